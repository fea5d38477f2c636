#!/bin/sh
# quickstart.sh [gen options] -- from a fresh machine to a picture, in one command.
#
# Installs the packages that are missing (apt; sudo only when needed), builds gen, and runs it: with the options
# given, or with a prompt of its own. A second call only runs. Works offline once the packages are there.
set -eu
. "$(dirname -- "$0")/lib.sh"

if [ ! -x "$ROOT/build/release/gen" ]; then
    needs | install_missing
    say "building (a minute or two, once)"
fi
[ -x "$ROOT/build/release/gen" ] && [ -z "$(find "$ROOT" -name '*.[ch]' -newer "$ROOT/build/release/gen" -not -path '*/build/*' -print -quit)" ] ||
    build release gen
if [ $# -eq 0 ]; then
    set -- --prompt "a red fox on a blue background" --seed 1 --out fox.png
    say "gen --prompt \"a red fox on a blue background\" --seed 1 --out fox.png"
fi
exec "$ROOT/build/release/gen" "$@"
