#!/bin/sh
# check_header.sh -- the public header stands alone, in C11 and in C++, without a warning.
set -eu
cd "$(dirname -- "$0")/.."
failed=0 passed=0 skipped=0
for try in "cc -std=c11 -x c" "c++ -std=c++11 -x c++"; do
    compiler=${try%% *}
    if ! command -v "$compiler" >/dev/null 2>&1; then
        echo "skip header: no $compiler"
        skipped=$((skipped + 1))
    elif echo '#include <tessera.h>' | $try -Wall -Wextra -Wpedantic -Werror -fsyntax-only -Iinclude -; then
        passed=$((passed + 1))
    else
        echo "FAIL tessera.h with $compiler"
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
