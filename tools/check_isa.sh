#!/bin/sh
# check_isa.sh -- no instruction set leaks: arithmetic in halves only in the avx512fp16 object, zmm registers only in the
# avx512 objects, ymm only in tiers above portable. One illegal instruction at start on an old machine is what this
# prevents. Also: every multiply-add of halves broadcasts one factor from memory, and no register is spilled between two
# of them (the loops of kernels/cpu/gemm_half_tile.h). Reads build/release.
set -eu
cd "$(dirname -- "$0")/.."
case $(uname -m) in
x86_64) ;;
*) echo "skip isa: not an x86-64 build"; echo "0 passed, 0 failed, 1 skipped"; exit 0 ;;
esac

failed=0 passed=0
for object in $(find build/release/CMakeFiles -name '*.o' -not -path '*test*' -not -path '*simde*'); do
    case $object in
    *tier_avx512fp16*) banned='' ;;
    *tier_avx512*) banned='\b(vf[a-z]+[0-9]+|vadd|vsub|vmul|vdiv|vmax|vmin)[ps]h\b' ;;
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

for object in $(find build/release/CMakeFiles/tier_avx512fp16.dir -name '*.o' 2>/dev/null); do
    if objdump -d --no-show-raw-insn "$object" | awk '
        /vfm.*ph/ { n++; if (!/1to32/ || near < 4 && spills) bad++; near = spills = 0; next }
        { near++; if (/zmm/ && /\(%r[sb]p/) spills++ }
        END { exit n < 36 || bad }'; then # 12x64 and 12x32
        passed=$((passed + 1))
    else
        echo "FAIL $object: its multiply-adds of halves do not broadcast from memory, or spill"
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
