#!/bin/bash
# run.sh -- the whole training, unattended: every stage goes on from what WORK holds, so stop it and start it at will.
#
#   PYTHON=VENV/bin/python OPENMOJI=DIR/openmoji/svg CLDR=DIR/annotations/en.xml tools/train/run.sh WORK [PROCESSES]
#
# Stages: drawings, tokenizer, encoder, latents, text encoder on single things, then on everything, decoder, and the UNet
# in chunks of CHUNK samples (single things, then colours, then sizes, places, counts, pairs), each with some more of the
# decoder and a contact sheet WORK/sheets/SAMPLES.png.
set -eu
work=$1 procs=${2:-2}
cd "$(dirname -- "$0")/../.."
py=${PYTHON:-python3} t=tools/train
total=${TOTAL:-150000} chunk=${CHUNK:-30000} text=${TEXT:-150000} small=${SMALL:-70000} sharp=${SHARP:-24000}
export OMP_NUM_THREADS=1
mkdir -p "$work/log" "$work/sheets"
exec 9>"$work/lock"
flock -w 20 9 || { echo "already running on $work"; exit 1; }

note() { echo "$(date '+%d %H:%M:%S') $*"; }
cache() { # NAME OPTIONS...
    [ -e "$work/latents/$1.json" ] || { note "latents $1"; "$py" $t/latents.py --work "$work" --name "$@"; }
}
field() { # STATE FIELD: of a checkpoint, 0 without one
    "$py" -c "
import sys, torch
try: print(torch.load(sys.argv[1], mmap=True, weights_only=False).get(sys.argv[2], 0))
except FileNotFoundError: print(0)" "$work/state/$1.pt" "$2"
}

[ -e "$work/drawings.json" ] || "$py" $t/drawings.py --openmoji "$OPENMOJI" --cldr "$CLDR" --work "$work"
[ -e "$work/tokenizer/vocab.json" ] || "$py" $t/tokenizer.py --work "$work" --cldr "$CLDR"
[ -e "$work/vae/config.json" ] || "$py" $t/autoencoder.py begin --work "$work"
cache singles12 --tiers 12 --all
cache colours12 --tiers 12 --mix single=1,colour=1 --count 5000 --seed 1
cache scenes12 --tiers 12 --mix small=1,placed=1,count=1,pair=3.5,colour=0.15 --count 22000 --seed 2
[ "$(field text done)" -gt 0 ] || note "text encoder"
"$py" $t/train.py text --work "$work" --data singles12=6,colours12=1,scenes12=5 --samples "$text" --procs "$procs" \
    --batch 64 --lr 1.5e-3
"$py" $t/autoencoder.py small --work "$work" --samples "$small" --procs "$procs"
"$py" $t/autoencoder.py sharp --work "$work" --samples "$sharp" --until $((sharp * 3 / 4)) --procs "$procs"

while n=$(field unet done); [ "$n" -lt "$total" ]; do
    data=singles12=3,colours12=1,scenes12=3
    [ "$n" -ge $((total / 7)) ] || data=singles12=5,colours12=1
    note "unet from $n on $data"
    "$py" $t/train.py unet --work "$work" --data "$data" --samples "$total" --until $((n + chunk)) --procs "$procs" --batch 32
    m=$(field vae_sharp done)
    "$py" $t/autoencoder.py sharp --work "$work" --samples "$sharp" --until $((m + sharp * chunk / total / 4)) --procs "$procs"
    "$py" $t/sample.py --work "$work" --out "$work/sheets/$(printf %07d $((n + chunk))).png"
done
note "finished: judge.py, then export.py"
