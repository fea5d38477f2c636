#!/bin/sh
# check_layers.sh -- the arrows of dependency go one way:
#   base < memory < kernels < model < {text, unet, vae, scheduler} < pipeline < cli
# text, unet, vae and scheduler never include each other; headers named *_internal.h stay in their folder.
set -eu
cd "$(dirname -- "$0")/.."

allowed() {
    case $1 in
    base) echo base ;;
    memory) echo base memory ;;
    kernels) echo base memory kernels ;;
    model) echo base memory kernels model ;;
    text | unet | vae | scheduler) echo base memory kernels model "$1" ;;
    pipeline) echo base memory kernels model text unet vae scheduler pipeline ;;
    cli) echo base memory model cli ;;
    esac
}

failed=0 passed=0
for folder in base memory kernels model text unet vae scheduler pipeline cli; do
    bad=$(grep -rnE '^#include "[a-z]+/' "$folder" --include='*.[ch]' | while IFS= read -r line; do
        target=$(printf '%s' "$line" | sed -E 's/.*#include "([a-z]+)\/.*/\1/')
        case " $(allowed $folder) " in
        *" $target "*) ;;
        *) echo "$line" ;;
        esac
        case ${line##*#include} in
        *_internal.h*) [ "$target" = "$folder" ] || echo "$line (private to $target)" ;;
        esac
    done)
    if [ -n "$bad" ]; then
        echo "FAIL $folder may not include:"
        echo "$bad"
        failed=$((failed + 1))
    else
        passed=$((passed + 1))
    fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed -eq 0 ]
