#!/bin/sh
# check_cuda.sh LIBRARY -- what the plug-in is made of: one symbol leaves it, it needs cuDNN and cuBLASLt and no more, and,
# where cuobjdump is there, its hot kernels keep nothing in local memory and move 128 bits at once.
set -eu
lib=$1
passed=0 failed=0 skipped=0
verdict() { # NAME OFFENDERS
    if [ -n "$2" ]; then
        echo "FAIL $1:"
        echo "$2"
        failed=$((failed + 1))
    else
        passed=$((passed + 1))
    fi
}

verdict "symbols beside tsr_plugin_get" \
    "$(nm -D --defined-only "$lib" | awk '$NF != "tsr_plugin_get" { print $NF }')"
verdict "libraries beside cuDNN and cuBLASLt" \
    "$(objdump -p "$lib" | awk '$1 == "NEEDED" && $2 ~ /cu|nv/ && $2 !~ /^lib(cudnn|cublasLt)\.so/ { print $2 }')"
dump=$(command -v cuobjdump || echo /usr/local/cuda/bin/cuobjdump)
if [ ! -x "$dump" ]; then
    echo "skip SASS of the hot kernels: cuobjdump is missing"
    skipped=1
else
    sass=$(mktemp)
    trap 'rm -f "$sass"' EXIT
    "$dump" -sass "$lib" >"$sass"
    for kernel in gemm_tile attention_tile group_norm_kernelILi8 add_kernelILi8; do
        one=$(awk -v k="$kernel" '/Function :/ { on = index($0, k) > 0 } on' "$sass")
        verdict "$kernel is not in the library" "$([ -n "$one" ] || echo "$kernel")"
        verdict "$kernel keeps something in local memory" "$(printf '%s' "$one" | grep -E '(LDL|STL)' | head -n 3 || true)"
        verdict "$kernel has no access of 128 bits" \
            "$(printf '%s' "$one" | grep -qE '(LDG|LDGSTS|STG)[.A-Z0-9_]*\.128' || echo "$kernel")"
    done
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
