"""Pictures from the newest checkpoint: the contact sheet of prompts.txt, or given prompts. Seed: the prompt's index.

  python tools/train/sample.py --work WORK --out WORK/sheets/latest.png [--side 256] [--steps 20] [--guidance 2] [PROMPT...]
"""
import argparse
import os

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw

import autoencoder
import model
import train

HERE = os.path.dirname(os.path.abspath(__file__))


@torch.no_grad()
def generate(unet, text, tok, prompts, seeds, steps=20, guidance=2.0):
    """Latents [N,16,16,16]."""
    s = model.scheduler()
    s.set_timesteps(steps)
    z = torch.cat([torch.randn(1, model.LATENT, 16, 16, generator=torch.Generator().manual_seed(i)) for i in seeds])
    both = [""] * len(prompts) + list(prompts)
    context = text(model.tokens(tok, both)).last_hidden_state
    for t in s.timesteps:
        u, c = unet(torch.cat([z, z]), t, context).sample.chunk(2)
        z = s.step(u + guidance * (c - u), t, z).prev_sample
    return z


@torch.no_grad()
def pictures(vae, head, z):
    """[N,3,512,512]; by the training's head at 128 pixels while the decoder has no fine levels yet."""
    if head is not None:
        return F.interpolate(head(model.decode_levels(vae, z, True)), scale_factor=4)
    return torch.cat([vae.decode(k[None]).sample for k in z])


def load(work):
    vae, head = autoencoder.load_vae(work), None
    if not os.path.exists(os.path.join(work, "vae_decoder.pt")):
        head = model.Head()
        head.load_state_dict(torch.load(os.path.join(work, "head.pt")))
    return (*train.averaged(work), train.tokenizer(work), vae, head)


def sheet(ims, prompts, columns, side):
    rows = -(-len(ims) // columns)
    page = Image.new("RGB", (columns * (side + 4), rows * (side + 18)), "white")
    draw = ImageDraw.Draw(page)
    for k, (im, p) in enumerate(zip(ims, prompts)):
        x, y = k % columns * (side + 4), k // columns * (side + 18)
        page.paste(Image.fromarray(im).resize((side, side), Image.LANCZOS), (x + 2, y + 2))
        draw.text((x + 3, y + side + 3), p[:side // 6 + 2], fill="black")
    return page


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--work", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--steps", type=int, default=20)
    ap.add_argument("--guidance", type=float, default=2.0)
    ap.add_argument("--side", type=int, default=160)
    ap.add_argument("--columns", type=int, default=8)
    ap.add_argument("prompts", nargs="*")
    a = ap.parse_args()
    torch.set_num_threads(1)
    prompts = a.prompts or open(os.path.join(HERE, "prompts.txt"), encoding="utf-8").read().splitlines()
    text, unet, done, tok, vae, head = load(a.work)
    ims = []
    for k in range(0, len(prompts), 8):
        z = generate(unet, text, tok, prompts[k:k + 8], range(k, min(k + 8, len(prompts))), a.steps, a.guidance)
        ims += [autoencoder.to_bytes(p) for p in pictures(vae, head, z)]
    os.makedirs(os.path.dirname(os.path.abspath(a.out)), exist_ok=True)
    sheet(ims, prompts, a.columns, a.side).save(a.out)
    print(done, "samples trained;", a.out)


if __name__ == "__main__":
    main()
