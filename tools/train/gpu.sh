#!/bin/bash
# gpu.sh -- the long run on a GPU: one command, from what pack.sh took along.
#
#   tools/train/gpu.sh PACK OUT [SECONDS]
#
# PACK (made by pack.sh from a WORK whose autoencoder is done) holds the drawings at 128 pixels, tokenizer, VAE, text
# encoder and the last checkpoint. Scenes are composed and encoded here, on all cores; then text encoder and UNet train until
# SECONDS are over, with a checkpoint a minute, and the newest is left in OUT in pieces under 16 MB:
# cat OUT/unet.pt.* > WORK/state/unet.pt puts it back.
set -eu
pack=$1 out=$2 seconds=${3:-540}
cd "$(dirname -- "$0")/../.."
py=${PYTHON:-python3} t=tools/train end=$(($(date +%s) + seconds))
work=$(mktemp -d)
cp -r "$pack"/. "$work"
for mix in "singles --tiers 12 --all" "colours --tiers 12 --mix single=1,colour=1 --count 16000" \
    "scenes0 --tiers 12 --mix small=1,placed=1.5,count=1.5,pair=2,colour=0.2 --count 20000 --seed 10" \
    "scenes1 --tiers 12 --mix small=1,placed=1.5,count=1.5,pair=2,colour=0.2 --count 20000 --seed 11" \
    "scenes2 --tiers 12 --mix small=1,placed=1.5,count=1.5,pair=2,colour=0.2 --count 20000 --seed 12"; do
    # shellcheck disable=SC2086
    "$py" $t/latents.py --work "$work" --name $mix &
done
wait
keep() { # the newest checkpoint, slim and in pieces
    [ -e "$work/state/unet.pt" ] || return 0
    "$py" $t/train.py slim --work "$work" || return 0
    rm -rf "$out/new" && mkdir -p "$out/new"
    split -b 15M -d "$work/state/unet_slim.pt" "$out/new/unet.pt."
    rm -f "$out"/unet.pt.* && mv "$out"/new/* "$out"/ && rmdir "$out/new"
}
mkdir -p "$out"
data=singles=3,colours=1,scenes0=1,scenes1=1,scenes2=1
(
    # a sixth of what is left of the time for the text encoder alone, then both together
    now=$(date +%s)
    "$py" $t/train.py text --work "$work" --again --data "$data" --device cuda --procs 1 --batch 512 --lr 1.5e-3 \
        --every 1 --end $((now + (end - now) / 6))
    "$py" $t/train.py unet --work "$work" --again --data "$data" --device cuda --procs 1 --batch 512 --lr 1.5e-3 \
        --text-rate 0.3 --ema 0.999 --every 1 --end $((end - 20))
) 2>&1 | tail -n 40 &
while [ "$(date +%s)" -lt $((end - 15)) ] && kill -0 $! 2>/dev/null; do sleep 30; keep; done
wait || true
keep
ls -l "$out"
