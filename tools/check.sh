#!/bin/sh
# check.sh [--long] -- everything that must hold before a change lands, in one command.
#
# Installs what is missing, builds with gcc and clang (warnings are errors), under ASAN+UBSAN and TSAN, runs every
# test and the source checks, replays the fuzz corpora, and ends with "N passed, N failed, N skipped". Each section
# prints its time beside its budget in minutes. --long adds the full-size models and long sweeps (TSR_LONG_TESTS=1).
set -eu
. "$(dirname -- "$0")/lib.sh"

if [ "${1:-}" = --long ]; then
    TSR_LONG_TESTS=1
    export TSR_LONG_TESTS
elif [ $# -gt 0 ]; then
    die "usage: tools/check.sh [--long]"
fi

test_needs() {
    needs
    cat <<'EOF'
cmd:clang-14 clang-14
cmd:clang-format-14 clang-format-14
file:/usr/include/simde/x86/avx512.h libsimde-dev
cmd:python3 python3
cmd:objdump binutils
EOF
}

passed=0 failed=0 skipped=0
# section NAME MINUTES COMMAND...: runs it, adds up its "N passed, N failed, N skipped" lines.
section() {
    name=$1 minutes=$2
    shift 2
    say "$name"
    begin=$(date +%s)
    out=$ROOT/build/check-$(printf '%s' "$name" | tr -c 'a-z0-9\n' '-').log
    rc=0
    "$@" >"$out" 2>&1 || rc=$?
    counts=$(awk '/^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ { p += $1; f += $3; s += $5 }
                  END { printf "%d %d %d", p, f, s }' "$out")
    set -- $counts
    [ $rc -eq 0 ] || [ "$2" -gt 0 ] || set -- "$1" 1 "$3" # it stopped without saying which test
    passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
    [ "$2" -eq 0 ] || { grep -vE '^ok ' "$out" | tail -n 60 >&2; say "FAILED: $name; its log is $out"; }
    grep -E '^skip ' "$out" | sed 's/^/tessera:   /' >&2 || true
    say "  $1 passed, $2 failed, $3 skipped in $(($(date +%s) - begin)) s (budget $minutes min)"
}

# run_tests PRESET KIND...: every test program of these kinds, one after the other.
run_tests() {
    dir=$ROOT/build/$1/tests
    shift
    status=0
    for kind in "$@"; do
        for program in "$dir/$kind"/*; do
            [ -f "$program" ] && [ -x "$program" ] || continue
            echo "== $kind/$(basename "$program")"
            set --
            [ "$kind" = fuzz ] && set -- "$ROOT/tests/fuzz/corpus/$(basename "$program")"
            timeout 1800 "$program" "$@" || status=1
        done
    done
    return $status
}

# The CUDA backend over the simulated device; CI has the headers and requires it (TSR_REQUIRE_CUDA=1).
cuda_headers() {
    for dir in /usr/local/cuda/include /usr/local/include /usr/include; do
        [ -f $dir/cublasLt.h ] && [ -f $dir/cudnn_backend.h ] && return 0
    done
    return 1
}

# cuda_sim PRESET PATTERN: the small models of tests/data are enough here, since each thread of each kernel is a fiber;
# two at a time.
cuda_sim() {
    find "$ROOT/build/$1/tests/cuda" -maxdepth 1 -type f -name "$2" ! -name '*.log' |
        TSR_REFERENCE_DIR=/nowhere xargs -P 2 -I '{}' sh -c 'timeout 1800 {} >{}.log 2>&1; rc=$?; cat {}.log; exit $rc'
}

# nvcc takes every kernel without a warning, for one device and as PTX; the plug-in links with the real libraries, and the
# real cuDNN takes every graph that is built for it.
cuda_compile() {
    cmake -S "$ROOT" -B "$ROOT/build/cuda" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTESSERA_TESTS=OFF -DTESSERA_WERROR=ON \
        -DTESSERA_CUDA=ON -DTESSERA_CUDA_ARCHS=90 || return 1
    cmake --build "$ROOT/build/cuda" --target tessera_cuda check_graphs || return 1
    "$ROOT/build/cuda/check_graphs" || return 1
    "$ROOT/tools/check_cuda.sh" "$ROOT/build/cuda/libtessera_cuda.so"
}

source_check() {
    status=0
    for script in layers symbols style isa header; do
        "$ROOT/tools/check_$script.sh" || status=1
    done
    return $status
}

test_needs | install_missing
say "building: gcc, clang, ASAN+UBSAN, TSAN"
TESSERA_CMAKE_ARGS=-DTESSERA_WERROR=ON
if cuda_headers; then
    TESSERA_CMAKE_ARGS="$TESSERA_CMAKE_ARGS -DTESSERA_SIM=ON"
elif [ -n "${TSR_REQUIRE_CUDA:-}" ]; then
    die "the headers of CUDA and cuDNN are missing"
fi
for preset in release clang asan tsan; do
    build "$preset"
done
section "source" 1 source_check
section "gcc" 6 run_tests release unit kernels memory fault model threads cli fuzz
section "clang" 6 run_tests clang unit kernels memory model threads cli fuzz
section "asan and ubsan" 8 run_tests asan unit kernels memory fault model cli fuzz
section "tsan" 3 run_tests tsan threads
if cuda_headers; then
    section "cuda, simulated" 4 cuda_sim release '*'
    section "cuda, simulated, asan and ubsan" 2 cuda_sim asan 'test_[sdl]*'
else
    say "skip cuda, simulated: cublasLt.h or cudnn_backend.h is missing"
fi
if cuda_headers && { command -v nvcc || [ -x /usr/local/cuda/bin/nvcc ]; } >/dev/null; then
    section "cuda, nvcc" 3 cuda_compile
else
    say "skip cuda, nvcc: nvcc or a header is missing"
fi
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ]
