#!/bin/sh
# check_style.sh -- formatting (clang-format 14), a comment at each file's top that names it, unique file names,
# files of at most 600 lines (tables excepted), no unfinished words, the tree under 45 MB.
set -eu
cd "$(dirname -- "$0")/.."

sources=$(git ls-files -co --exclude-standard '*.c' '*.h')
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
verdict "not formatted (clang-format-14 -i)" \
    "$(for f in $sources; do clang-format-14 --dry-run -Werror "$f" >/dev/null 2>&1 || echo "$f"; done)"
verdict "no comment at the top that begins with the file's name" \
    "$(for f in $sources; do head -n 1 "$f" | grep -qF "/* $(basename "$f") -- " || echo "$f"; done)"
verdict "file names that are not unique" "$(for f in $sources; do basename "$f"; done | sort | uniq -d)"
verdict "over 600 lines" \
    "$(for f in $sources; do case $f in *_tables.[ch] | *.inc) ;; *) awk -v f="$f" 'END { if (NR > 600) print f, NR }' "$f" ;; esac; done)"
verdict "unfinished words" "$(grep -nE '\b(TODO|FIXME|XXX|HACK)\b' $sources || true)"
verdict "code that is switched off" "$(grep -nE '^#if 0' $sources || true)"
verdict "the tree is over 45 MB" \
    "$(git ls-files -z | xargs -0 du -cb 2>/dev/null | awk '/total$/ { t += $1 } END { if (t > 45 * 1048576) print t }')"
echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
