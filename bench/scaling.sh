#!/bin/sh
# scaling.sh [--gen GEN] [--model MODEL] [--under CMD] [CASE...] -- time against FLOPs: sizes, threads, pictures.
#
# A CASE is SIDE:THREADS:PICTURES; without any: 256, 512, 768 and 1024 squared on all threads, 512 on one thread, 512 four pictures.
# Each is one run of one step with guidance, and a decode: UNet and decoder seconds a picture (without the reading of weights)
# beside their FLOPs, and the rates, which should stay where they are. The model is a full-size one, Stable Diffusion 1.5
# with hashed weights (bench/peers/run.sh makes it as build/peers/model.tsr). CMD is put before every run: taskset, a lock.
set -eu
. "$(dirname -- "$0")/../tools/lib.sh"

gen=$ROOT/build/release/gen model=${TESSERA_PEERS:-$ROOT/build/peers}/model.tsr under=
while [ $# -gt 0 ]; do
    case $1 in
    --gen) gen=$2 && shift 2 ;;
    --model) model=$2 && shift 2 ;;
    --under) under=$2 && shift 2 ;;
    --help) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" | sed '/^set/d' && exit ;;
    -*) die "unknown option $1; see --help" ;;
    *) break ;;
    esac
done
all=$(nproc)
[ $# -gt 0 ] || set -- "256:$all:1" "512:$all:1" "768:$all:1" "1024:$all:1" 512:1:1 "512:$all:4"
[ -e "$model" ] || die "$model is not there; bench/peers/run.sh makes it, --model names another"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# measure SIDE THREADS PICTURES: one row of the table.
measure() {
    # shellcheck disable=SC2086
    $under "$gen" --model "$model" --prompt "a red apple" --seed 1 --steps 1 --guidance 7.5 --width "$1" --height "$1" \
        --threads "$2" --num "$3" --no-progress --quiet --out "$work/{index}.png" --report "$work/report.json" >/dev/null
    awk -v side="$1" -v threads="$2" -v pictures="$3" '
        function number(name) { return match($0, "\"" name "\": [0-9.]+") ? substr($0, RSTART + length(name) + 4, RLENGTH - length(name) - 4) + 0 : 0 }
        /"measured_peak_bytes"/ { peak = number("measured_peak_bytes") }
        /"name": "(denoise|decode)"/ {
            s = (number("seconds") - number("seconds_waiting_for_weights")) / pictures
            row = row sprintf(" %.0f | %.2f | %.0f |", number("gflop"), s, number("gflop") / s)
        }
        END { printf "| %d | %d | %d |%s %.0f |\n", side, threads, pictures, row, peak / 1048576 }' "$work/report.json"
}

echo "| side | threads | pictures | UNet step GFLOP | s | GFLOP/s | decode GFLOP | s | GFLOP/s | peak MiB |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
for case in "$@"; do
    IFS=: read -r side threads pictures <<EOF
$case
EOF
    measure "$side" "$threads" "$pictures"
done
