"""Compares `gen` with diffusers' StableDiffusionPipeline on a model directory, at three sizes.

  python tools/train/compare.py --gen BUILD/gen --model assets/model

diffusers in fp32, gen in fp32 and as it runs by itself (weights in fp16), from the same start noise, with the card's
steps, guidance and scheduler. Bounds as in tests/model/golden_e2e.c: final latents within 1e-3 (fp32) and 2e-2 of
diffusers' in L2; pictures within one grey level on average.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
from diffusers import StableDiffusionPipeline
from PIL import Image
from safetensors.torch import load_file, save_file

PROMPTS = ("a red fox on a blue background", "a cat and a dog on a green background")
BOUNDS = {"fp32": 1e-3, "auto": 2e-2}
SIZES = ((512, 512), (256, 256), (512, 768))                             # height, width


def by_diffusers(pipe, card, prompt, noise, side):
    kept = {}
    def keep(_pipe, step, _t, kwargs):
        kept["z"] = kwargs["latents"].clone()
        return kwargs
    im = pipe(prompt, height=side[0], width=side[1], num_inference_steps=card["steps"], guidance_scale=card["guidance"],
              latents=noise.clone(), output_type="np", callback_on_step_end=keep).images[0]
    return kept["z"], im * 255


def by_gen(gen, directory, prompt, noise, side, precision, work):
    save_file({"latents": noise}, os.path.join(work, "noise.safetensors"))
    out, z = os.path.join(work, "x.png"), os.path.join(work, "z.safetensors")
    subprocess.run([gen, "--model", directory, "--prompt", prompt, "--height", str(side[0]), "--width", str(side[1]),
                    "--precision", precision, "--latents", os.path.join(work, "noise.safetensors"), "--seed", "0", "--save-latents", z, "--out", out],
                   check=True, stdout=subprocess.DEVNULL)
    return load_file(z)["latents"], np.asarray(Image.open(out).convert("RGB")).astype(np.float64)


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--gen", required=True)
    ap.add_argument("--model", required=True)
    a = ap.parse_args()
    pipe = StableDiffusionPipeline.from_pretrained(a.model, torch_dtype=torch.float32)
    pipe.set_progress_bar_config(disable=True)
    card = json.load(open(os.path.join(a.model, "model_index.json")))["tessera"]
    cell = 2 ** (len(pipe.vae.config.block_out_channels) - 1)
    failed = 0
    for side in SIZES:
        for k, prompt in enumerate(PROMPTS):
            noise = torch.randn(1, pipe.unet.config.in_channels, side[0] // cell, side[1] // cell,
                                generator=torch.Generator().manual_seed(k))
            want, picture = by_diffusers(pipe, card, prompt, noise, side)
            for precision, bound in BOUNDS.items():
                with tempfile.TemporaryDirectory() as work:
                    z, im = by_gen(a.gen, a.model, prompt, noise, side, precision, work)
                off = float((z.reshape(want.shape).float() - want).norm() / want.norm())
                grey = float(np.abs(im - picture).mean())
                ok = off < bound and grey < 1
                failed += not ok
                print(f"{'ok  ' if ok else 'FAIL'} {side[0]}x{side[1]} {prompt!r}, {precision}: latents {off:.1e}, picture {grey:.3f} grey levels")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
