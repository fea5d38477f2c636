#!/bin/sh
# run.sh [--rounds N] [--under CMD] [--at-most N] [--table] -- gen against OpenVINO, PyTorch and stable-diffusion.cpp, on this CPU.
#
# Builds gen, makes everything else under TESSERA_PEERS (build/peers; 17 GB): a Python environment with torch, diffusers and openvino,
# full-size weights from tools/hashed_weights, the peers' forms of them, and stable-diffusion.cpp in Release for this machine from the source
# package of its Python binding. Then it measures in alternation, each measurement a process of its own whose picture is checked, and
# appends to results.jsonl there: a run that was stopped goes on. Half an hour of installing and converting, once;
# then about 2 minutes an alternation on two cores. Needs python3 with venv, a C++ compiler, and the package index that pip is set to.
set -eu
. "$(dirname -- "$0")/../../tools/lib.sh"

ROOT=$(CDPATH= cd -- "$(dirname -- "$0")/../.." && pwd)
here=$ROOT/bench/peers
peers=${TESSERA_PEERS:-$ROOT/build/peers}
python=$peers/venv/bin/python
model=$peers/model
mkdir -p "$peers"

make_environment() {
    say "installing torch, diffusers and openvino (a few minutes, once)"
    python3 -m venv "$peers/venv"
    "$python" -m pip install -q torch diffusers transformers accelerate openvino safetensors numpy pillow ||
        die "pip could not install the peers; see its message above"
    touch "$peers/venv/done"
}

make_model() {
    say "making weights (2 GB)"
    rm -rf "$model"
    "$ROOT/build/release/hashed_weights" --spec "$ROOT/tests/data/full/sd15" --tokenizers "$ROOT/tests/data" --out "$model"
    cp "$here/scheduler_config.json" "$model/scheduler/"
    touch "$model/done"
}

make_sdcpp() {
    say "building stable-diffusion.cpp (ten minutes on two cores, once)"
    rm -rf "$peers/sdcpp"
    mkdir -p "$peers/sdcpp"
    (cd "$peers/sdcpp" &&
        "$python" -m pip download -q --no-deps --no-binary :all: stable-diffusion-cpp-python &&
        tar xzf ./*.tar.gz --strip-components 1) || die "the source of stable-diffusion.cpp could not be had"
    sed -n 's/^Version: /binding /p' "$peers/sdcpp/PKG-INFO" >"$peers/sdcpp/version"
    { cmake -S "$peers/sdcpp/vendor/stable-diffusion.cpp" -B "$peers/sdcpp/build" -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \
        -DSD_WEBP=OFF -DSD_WEBM=OFF && cmake --build "$peers/sdcpp/build" --target sd-cli -j "$(nproc)"; } \
        >"$peers/sdcpp/build.log" 2>&1 || die "stable-diffusion.cpp did not build; see $peers/sdcpp/build.log"
    touch "$peers/sdcpp/done"
}

needs | install_missing
build release gen hashed_weights
gen=$ROOT/build/release/gen
[ -e "$peers/venv/done" ] || make_environment
[ -e "$model/done" ] || make_model
[ "$peers/model.tsr" -nt "$gen" ] || "$gen" convert "$model" "$peers/model.tsr" --no-progress
[ -e "$peers/sdcpp/done" ] || make_sdcpp
[ -e "$peers/reference.npz" ] || { say "converting the weights for the peers, and making the reference" &&
    "$python" "$here/measure.py" "$peers" "$gen" prepare; }
exec python3 "$here/compare.py" --folder "$peers" --gen "$gen" --python "$python" "$@"
