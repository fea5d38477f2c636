"""Contact sheets made by `gen` itself, seed by seed: docs/sheet.png (prompts.txt) and the README's docs/pictures.png.

  python tools/train/sheet.py --gen BUILD/gen --out docs/sheet.png [--model assets/model] [--side 160] [PROMPT...]
"""
import argparse
import os
import subprocess
import tempfile

import numpy as np
from PIL import Image

import sample


def picture(gen, model, prompt, seed, folder):
    out = os.path.join(folder, "x.png")
    subprocess.run([gen, "--model", model, "--prompt", prompt, "--seed", str(seed), "--out", out], check=True,
                   stdout=subprocess.DEVNULL)
    return np.asarray(Image.open(out).convert("RGB"))


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--gen", required=True)
    ap.add_argument("--model", default="assets/model")
    ap.add_argument("--out", required=True)
    ap.add_argument("--side", type=int, default=160)
    ap.add_argument("--columns", type=int, default=8)
    ap.add_argument("prompts", nargs="*")
    a = ap.parse_args()
    prompts = a.prompts or open(os.path.join(sample.HERE, "prompts.txt"), encoding="utf-8").read().splitlines()
    with tempfile.TemporaryDirectory() as folder:
        ims = [picture(a.gen, a.model, p, k, folder) for k, p in enumerate(prompts)]
    page = sample.sheet(ims, prompts, a.columns, a.side)
    page.quantize(256, dither=Image.Dither.NONE).save(a.out, optimize=True)


if __name__ == "__main__":
    main()
