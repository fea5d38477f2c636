#!/bin/sh
# check_isa.sh -- no instruction set leaks: zmm registers only in the avx512 objects, ymm only in tiers above
# portable. One illegal instruction at start on an old machine is what this prevents. Reads build/release.
set -eu
cd "$(dirname -- "$0")/.."
case $(uname -m) in
x86_64) ;;
*) echo "skip isa: not an x86-64 build"; echo "0 passed, 0 failed, 1 skipped"; exit 0 ;;
esac

failed=0 passed=0
for object in $(find build/release/CMakeFiles -name '*.o' -not -path '*test*' -not -path '*simde*'); do
    case $object in
    *tier_avx512*) banned='' ;;
    *tier_avx2*) banned='%zmm' ;;
    *) banned='%ymm|%zmm' ;;
    esac
    if [ -n "$banned" ] && objdump -d --no-show-raw-insn "$object" | grep -qE "$banned"; then
        echo "FAIL $object uses $banned"
        failed=$((failed + 1))
    else
        passed=$((passed + 1))
    fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
