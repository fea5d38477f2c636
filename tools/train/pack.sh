#!/bin/bash
# pack.sh -- what gpu.sh needs from a WORK: tools/train/pack.sh WORK PACK
set -eu
work=$1 pack=$2
cd "$(dirname -- "$0")/../.."
mkdir -p "$pack/state"
"${PYTHON:-python3}" - "$work" "$pack" <<'PY'
import json, sys
work, pack = sys.argv[1:]
doc, at = json.load(open(f"{work}/drawings.json")), 0
source, index = open(f"{work}/drawings.bin", "rb"), {}
with open(f"{pack}/drawings.bin", "wb") as out:
    for key, (start, n, side) in doc["index"].items():
        if key.count("/") == 3 and doc["items"][int(key.split("/")[0])]["tier"] in (1, 2):
            source.seek(start)
            out.write(source.read(n))
            index[key] = (at, n, side)
            at += n
json.dump(dict(items=doc["items"], index=index), open(f"{pack}/drawings.json", "w"))
print(len(index), "drawings,", at >> 20, "MB")
PY
cp -r "$work/tokenizer" "$work/vae" "$work/text_pre.pt" "$pack"
if [ -e "$work/state/unet.pt" ]; then
    "${PYTHON:-python3}" tools/train/train.py slim --work "$work"
    mv "$work/state/unet_slim.pt" "$pack/state/unet.pt"
fi
du -sh "$pack"
