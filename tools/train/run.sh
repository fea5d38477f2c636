#!/bin/bash
# run.sh -- the whole training, unattended: every stage goes on from what WORK holds, so stop it and start it at will.
#
#   PYTHON=VENV/bin/python OPENMOJI=DIR/openmoji/svg CLDR=DIR/annotations/en.xml tools/train/run.sh WORK [PROCESSES]
#
# Stages: drawings, tokenizer, autoencoder (small), its decoder (sharp, a first part), latents, text encoder, then UNet in
# chunks; after each chunk some more of the decoder and a contact sheet WORK/sheets/SAMPLES.png. Few names at first,
# one thing centred; then all names and colours; then sizes, places, counts, pairs. The rate falls from DECAY on.
set -eu
work=$1 procs=${2:-2}
cd "$(dirname -- "$0")/../.."
py=${PYTHON:-python3} t=tools/train
total=${TOTAL:-600000} decay=${DECAY:-450000} chunk=${CHUNK:-30000} sharp=${SHARP:-20000}
mkdir -p "$work/log" "$work/sheets"
exec 9>"$work/lock"
flock -w 20 9 || { echo "already running on $work"; exit 1; }

note() { echo "$(date '+%d %H:%M:%S') $*"; }
cache() { # NAME OPTIONS...
    [ -e "$work/latents/$1.json" ] || { note "latents $1"; "$py" $t/latents.py --work "$work" --name "$@"; }
}
done_samples() { "$py" -c "
import sys, torch
try: print(torch.load(sys.argv[1], mmap=True, weights_only=False)['done'])
except FileNotFoundError: print(0)" "$work/state/$1.pt"; }

[ -e "$work/drawings.json" ] || "$py" $t/drawings.py --openmoji "$OPENMOJI" --cldr "$CLDR" --work "$work"
[ -e "$work/tokenizer/vocab.json" ] || "$py" $t/tokenizer.py --work "$work" --cldr "$CLDR"
[ -e "$work/vae/config.json" ] || "$py" $t/autoencoder.py small --work "$work" --samples "${SMALL:-130000}" --procs "$procs"
[ -e "$work/text_pre.pt" ] || "$py" $t/train.py text --work "$work" --samples 40000 --procs "$procs"
cache singles1 --tiers 1 --all
[ -e "$work/vae_decoder.pt" ] ||
    "$py" $t/autoencoder.py sharp --work "$work" --samples "$sharp" --until 3000 --procs "$procs"

while n=$(done_samples unet); [ "$n" -lt "$total" ]; do
    if [ "$n" -lt 60000 ]; then
        data=singles1=1
    elif [ "$n" -lt 210000 ]; then
        cache singles12 --tiers 12 --all
        cache colours12 --tiers 12 --mix single=1,colour=1 --count 8000 --seed 1
        data=singles12=3,colours12=1
    else
        cache scenes12 --tiers 12 --mix small=1,placed=1.5,count=1.5,pair=2,colour=0.2 --count 20000 --seed 2
        data=singles12=3,colours12=1,scenes12=3
    fi
    note "unet from $n on $data"
    "$py" $t/train.py unet --work "$work" --data "$data" --samples "$total" --decay-from "$decay" --until $((n + chunk)) \
        --procs "$procs"
    m=$(done_samples vae_sharp)
    "$py" $t/autoencoder.py sharp --work "$work" --samples "$sharp" --until $((m + 1500)) --procs "$procs"
    "$py" $t/sample.py --work "$work" --out "$work/sheets/$(printf %07d $((n + chunk))).png"
done
note "finished: judge.py, then export.py"
