#!/bin/sh
# check_symbols.sh -- every symbol that leaves its object starts with tsr_, and the library neither prints nor
# exits: its objects do not refer to printf, exit, abort and the like. Reads build/release.
set -eu
cd "$(dirname -- "$0")/.."
lib=build/release/libtessera.a
[ -f $lib ] || { echo "FAIL $lib is not built"; echo "0 passed, 1 failed, 0 skipped"; exit 1; }

failed=0 passed=0
verdict() { # NAME OFFENDERS
    if [ -n "$2" ]; then
        echo "FAIL $1:"
        echo "$2"
        failed=$((failed + 1))
    else
        passed=$((passed + 1))
    fi
}
verdict "symbols without the prefix tsr_" \
    "$(nm -A --defined-only --extern-only $lib 2>/dev/null | awk '$NF !~ /^tsr_/ && NF >= 3 { print $NF }' | sort -u)"
verdict "the library prints or ends the process" \
    "$(nm -A --undefined-only $lib 2>/dev/null | awk '$NF ~ /^(printf|puts|putchar|perror|exit|_exit|abort|__printf_chk)$/ { print }')"
# Constant tables of pointers lie in .data.rel.ro and are no variables. The tables of tiers and cJSON's hooks are filled
# once (pthread_once) and constant afterwards; the counters of alloc.c and file.c are for tests.
verdict "writable globals outside base/alloc.c, base/file.c, and what is filled once" \
    "$(objdump -t $lib 2>/dev/null | awk '/file format/ { object = $1 }
        $0 ~ / O \.(data|bss)\t/ && object !~ /^(alloc|file|cpu_backend|config_json)\.c\.o:/ { print object, $NF }')"
echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
