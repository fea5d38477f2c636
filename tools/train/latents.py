"""Caches latents of composed scenes for the UNet's training.

  python tools/train/latents.py --work WORK --name NAME --tiers 12 --mix single=1,colour=0.3 --count 20000
  python tools/train/latents.py --work WORK --name NAME --tiers 12 --all          every name on every allowed background

Writes WORK/latents/NAME.npy (float16 [N,16,16,16]: means, N scenes) and NAME.json (the scenes). train.py reads all
that its --data names.
"""
import argparse
import json
import os
import random
import time

import numpy as np
import torch

import autoencoder
import drawings
import model
import scenes


def every_single(D, pool):
    return [s for i in pool for bg in scenes.NAMES for s in [scenes.single(i, bg)] if scenes.allowed(D, s)]


def load(work, name):
    """(latents, scenes) of one cache."""
    with open(os.path.join(work, "latents", name + ".json"), encoding="utf-8") as f:
        found = json.load(f)
    return (np.load(os.path.join(work, "latents", name + ".npy"), mmap_mode="r"),
            [(bg, [tuple(p) for p in parts], kind) for bg, parts, kind in found])


@torch.no_grad()
def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--work", required=True)
    ap.add_argument("--name", required=True)
    ap.add_argument("--tiers", default="1")
    ap.add_argument("--mix", default="single=1")
    ap.add_argument("--count", type=int, default=10000)
    ap.add_argument("--all", action="store_true")
    ap.add_argument("--seed", type=int, default=0)
    a = ap.parse_args()
    torch.set_num_threads(1)
    D = drawings.Drawings(a.work)
    vae = autoencoder.load_vae(a.work)
    pool = [i for i in D.named if str(D.items[i]["tier"]) in a.tiers]
    rng = random.Random(a.seed)
    mix = {k: float(v) for k, v in (kv.split("=") for kv in a.mix.split(","))}
    todo = every_single(D, pool) if a.all else [scenes.random_scene(D, rng, pool, mix) for _ in range(a.count)]
    os.makedirs(os.path.join(a.work, "latents"), exist_ok=True)
    path = os.path.join(a.work, "latents", a.name)
    out = np.lib.format.open_memmap(path + ".tmp.npy", "w+", np.float16, (len(todo), model.LATENT, 16, 16))
    t0 = time.time()
    for k in range(0, len(todo), 16):
        x = autoencoder.as_tensor([scenes.compose(D, s, True) for s in todo[k:k + 16]])
        out[k:k + 16] = model.encode_small(vae, x)[0].numpy()
        if k % 1600 == 0:
            print(k, len(todo), f"{(k + 16) / (time.time() - t0):.1f}/s", flush=True)
    out.flush()
    os.replace(path + ".tmp.npy", path + ".npy")
    with open(path + ".json", "w", encoding="utf-8") as f:
        json.dump(todo, f)
    print(a.name, len(todo), "scenes, spread", float(np.std(out[::7].astype(np.float32))))


if __name__ == "__main__":
    main()
