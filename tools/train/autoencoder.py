"""Trains the AutoencoderKL (model.py), in two steps.

  python tools/train/autoencoder.py begin --work WORK                               encoder: principal components
  python tools/train/autoencoder.py small --work WORK --samples 100000 --procs 2    decoder up to 128 pixels
  python tools/train/autoencoder.py sharp --work WORK --samples 10000 --procs 2     decoder, 512 pixels, noisy latents
  python tools/train/autoencoder.py judge --work WORK                               PSNR, edges, WORK/sheets/vae.png

small: crops of 32, then 64, then whole pictures of 128 pixels; L1, L1 of the gradients, L1 of 4x4 averages, KL; a part
of the latents is halved in size and must decode to the halved picture (smoother latents). At the end zero mean and unit
spread per channel are folded into the 1x1 convolutions around the latents. sharp goes on for ever from its state: run
it again with more samples. The learning rate follows the samples, not the clock: a pause does no harm. State:
WORK/state/vae_small.pt, vae_sharp.pt (every --every minutes).
"""
import argparse
import json
import math
import os
import random
import time

import numpy as np
import torch
import torch.nn.functional as F

import drawings
import model
import scenes
import shared

MIX = dict(single=3, small=1, placed=1, count=2, pair=2, colour=0.3)


def as_tensor(ims):
    return torch.from_numpy(np.stack(ims)).permute(0, 3, 1, 2).float().div_(127.5).sub_(1).contiguous()


def any_colour(rng):
    return None if rng.random() < 0.6 else [rng.randrange(256) for _ in range(3)]


def small_picture(D, rng, train_other):
    """A scene of named drawings, or one drawing of all the others anywhere."""
    if rng.random() < 0.6:
        return scenes.compose(D, scenes.random_scene(D, rng, D.named, MIX), True, any_colour(rng))
    im = np.empty((128, 128, 3), np.float32)
    im[:] = any_colour(rng) or scenes.BACKGROUNDS[rng.choice(scenes.NAMES)]
    dx, dy = (0, 0) if rng.random() < 0.5 else (rng.randrange(-24, 25), rng.randrange(-24, 25))
    scenes.paste(im, D.other_small(rng.choice(train_other)), dx, dy)
    return np.clip(im + 0.5, 0, 255).astype(np.uint8)


def small_batch(D, rng, n, crop, train_other):
    out = []
    while len(out) < n:
        im = small_picture(D, rng, train_other)
        if crop == 128:
            out.append(im)
            continue
        for _ in range(2 if crop == 32 else 1):
            k = (128 - crop) // 8
            y, x = (8 * round(rng.triangular(0, k)) for _ in range(2))
            out.append(im[y:y + crop, x:x + crop])
    return as_tensor(out[:n])


def reconstruction(y, x):
    d = y - x
    l1 = d.abs().mean()
    grad = (d[..., 1:] - d[..., :-1]).abs().mean() + (d[..., 1:, :] - d[..., :-1, :]).abs().mean()
    return l1 + 0.5 * grad + 0.5 * F.avg_pool2d(d, 4).abs().mean()


def patches(D):
    """8x8 blocks of 4x4 averages of scenes of the named drawings."""
    rng = random.Random(9)
    x = as_tensor([scenes.compose(D, scenes.random_scene(D, rng, D.named, MIX), True) for _ in range(600)])
    return x.unfold(2, 8, 8).unfold(3, 8, 8).permute(0, 2, 3, 1, 4, 5).reshape(-1, 3, 8, 8)


def split_other(D):
    return [i for k, i in enumerate(D.other) if k % 16], [i for k, i in enumerate(D.other) if k % 16 == 0]


def rate(a, done, f):
    warm = min(1, (done + 1) / (200 * a.batch))
    return a.lr * warm * (0.02 + 0.98 * (0.5 + 0.5 * math.cos(math.pi * f)))


class Log:
    """Prints means of what is added, and says when it is time to save (by the clock)."""

    def __init__(self, rank, a, name):
        self.rank, self.every, self.acc, self.t0, self.last = rank, a.every * 60, [], time.time(), time.time()
        os.makedirs(os.path.join(a.work, "log"), exist_ok=True)
        self.file = open(os.path.join(a.work, "log", name + ".log"), "a") if rank == 0 else None
        self.since = None

    def add(self, done, every, **values):
        if self.rank:
            return
        if self.since is None:
            self.since = (time.time(), done)
        self.acc.append(list(values.values()))
        if len(self.acc) == every:
            t, d = self.since
            means = " ".join(f"{k} {v:.4f}" for k, v in zip(values, np.mean(self.acc, 0)))
            line = f"{time.strftime('%d %H:%M:%S')} samples {done} {means} rate {(done - d) / max(1e-9, time.time() - t):.1f}/s"
            print(line, flush=True)
            self.file.write(line + "\n")
            self.file.flush()
            self.acc, self.since = [], None

    def due(self, memory, flat):
        """The same answer in all processes."""
        if self.rank == 0:
            memory["flag"][1] = time.time() - self.last > self.every
        flat.wait()
        due = bool(memory["flag"][1])
        flat.wait()
        if due:
            self.last = time.time()
        return due


def begin(a):
    """The encoder, for good: principal components, zero mean, and one factor for a spread of one over all channels."""
    torch.manual_seed(0)
    D = drawings.Drawings(a.work)
    vae = model.make_vae()
    model.begin_encoder(vae, patches(D))
    normalise(vae, D)
    vae.save_pretrained(os.path.join(a.work, "vae"))


@torch.no_grad()
def normalise(vae, D):
    rng = random.Random(5)
    means = [model.encode_small(vae, as_tensor([scenes.compose(D, scenes.random_scene(D, rng, D.named, MIX), True)
                                                for _ in range(16)]))[0] for _ in range(32)]
    m = torch.cat(means)
    mu, s = m.mean((0, 2, 3)), float((m - m.mean((0, 2, 3), True)).pow(2).mean().sqrt())
    print("latents' mean", [round(v, 3) for v in mu.tolist()], "spread", [round(v / s, 3) for v in m.std((0, 2, 3)).tolist()])
    q, p, c = vae.quant_conv, vae.post_quant_conv, model.LATENT
    q.weight[:c] /= s
    q.bias[:c] = (q.bias[:c] - mu) / s
    q.bias[c:] -= 2 * math.log(s)
    p.bias += p.weight[:, :, 0, 0] @ mu
    p.weight *= s


def train_small(rank, world, memory, a):
    """The decoder up to 128 pixels, with the training's head."""
    from diffusers import AutoencoderKL
    torch.set_num_threads(1)
    torch.manual_seed(0)
    D = drawings.Drawings(a.work)
    train_other, _ = split_other(D)
    vae, head = AutoencoderKL.from_pretrained(os.path.join(a.work, "vae")), model.Head()
    vae.requires_grad_(False)
    d = vae.decoder
    trained = [vae.post_quant_conv, d.conv_in, d.mid_block, *d.up_blocks[:3], d.up_blocks[3].resnets, head]
    params = [p.requires_grad_(True) for m in trained for p in m.parameters()]
    flat = shared.Flat(rank, world, memory, [(params, 1.0)])
    path = os.path.join(a.work, "state", "vae_small.pt")
    state = flat.load(path) or dict(done=0)
    done = state["done"]
    rng = random.Random(1000 + rank + done)
    torch.manual_seed(1 + rank + done)
    log, step = Log(rank, a, "vae_small"), 0
    over = shared.Progress(flat, a.samples, a.end, state.get("over", 0.0))
    while (f := over(done)) < 1:
        crop = 32 if f < 0.3 else 64 if f < 0.7 else 128
        x = small_batch(D, rng, max(1, a.batch // world * 1024 // crop ** 2), crop, train_other)
        with torch.no_grad():
            z = model.encode_small(vae, x)[0]
        with torch.autocast("cpu", torch.bfloat16):
            y = head(model.decode_levels(vae, z + a.noise * torch.rand(len(z), 1, 1, 1) * torch.randn_like(z), True))
        y = y.float()
        rec = reconstruction(y, x)
        rec.backward()
        flat.step(rate(a, done, f), min(0.998, (step + 1) / (step + 20)))
        step += 1
        done += a.batch
        log.add(done, 100, rec=rec.item(), psnr=-10 * math.log10((y - x).detach().pow(2).mean().item() / 4))
        if log.due(memory, flat):
            flat.save(path, done=done, over=f)
            keep_small(flat, rank, vae, head, a.work)
    flat.save(path, done=done, over=1.0)
    keep_small(flat, rank, vae, head, a.work)
    if rank == 0:
        show_small(load_vae(a.work, "vae_small.pt"), head_of(a.work), D, a.work)
    flat.wait()


def keep_small(flat, rank, vae, head, work):
    flat.swap()
    if rank == 0:
        keep_decoder(vae, os.path.join(work, "vae_small.pt"))
        shared.write_atomic(os.path.join(work, "head.pt"), {k: v.clone() for k, v in head.state_dict().items()})
    flat.swap()


def keep_decoder(vae, path):
    keep = {k: v for k, v in vae.state_dict().items() if k.startswith(("decoder.", "post_quant_conv."))}
    shared.write_atomic(path, {k: v.clone() for k, v in keep.items()})


def head_of(work):
    head = model.Head()
    head.load_state_dict(torch.load(os.path.join(work, "head.pt")))
    return head


@torch.no_grad()
def show_small(vae, head, D, work):
    from PIL import Image
    rng = random.Random(7)
    _, held = split_other(D)
    x = as_tensor([scenes.compose(D, scenes.random_scene(D, rng, D.named, MIX), True) for _ in range(12)]
                  + [small_picture(D, rng, held) for _ in range(12)])
    mean = model.encode_small(vae, x)[0]
    rows = [x] + [head(model.decode_levels(vae, mean + k * torch.randn_like(mean), True)) for k in (0, 0.2)]
    print("128 pixels: psnr", -10 * math.log10((rows[1] - x).pow(2).mean().item() / 4), "with noise 0.2",
          -10 * math.log10((rows[2] - x).pow(2).mean().item() / 4))
    sheet = torch.cat([torch.cat(list(t[i:i + 12]), 2) for i in (0, 12) for t in rows], 1)
    os.makedirs(os.path.join(work, "sheets"), exist_ok=True)
    Image.fromarray(to_bytes(sheet)).save(os.path.join(work, "sheets", "vae_small.png"))


def to_bytes(t):
    return t.clamp(-1, 1).add(1).mul(127.5).round().byte().permute(1, 2, 0).numpy()


def load_vae(work, *names):
    """The encoder of begin, with the newest decoder (averaged weights): sharp's, else small's."""
    from diffusers import AutoencoderKL
    vae = AutoencoderKL.from_pretrained(os.path.join(work, "vae"))
    for name in names or ("vae_decoder.pt", "vae_small.pt"):
        path = os.path.join(work, name)
        if os.path.exists(path):
            vae.load_state_dict(torch.load(path), strict=False)
            break
    return vae.eval()


def train_sharp(rank, world, memory, a):
    torch.set_num_threads(1)
    D = drawings.Drawings(a.work)
    vae = load_vae(a.work, "vae_decoder.pt", "vae_small.pt")
    vae.requires_grad_(False)
    params = list(vae.decoder.parameters()) + list(vae.post_quant_conv.parameters())
    for p in params:
        p.requires_grad_(True)
    flat = shared.Flat(rank, world, memory, [(params, 1.0)])
    path = os.path.join(a.work, "state", "vae_sharp.pt")
    state = flat.load(path) or dict(done=0)
    done = state["done"]
    rng = random.Random(3000 + rank + done)
    torch.manual_seed(3000 + rank + done)
    log, step, n = Log(rank, a, "vae_sharp"), 0, max(1, a.batch // world)
    over, f = shared.Progress(flat, a.samples, a.end, state.get("over", 0.0)), 0.0
    until = min(a.samples, a.until or a.samples)
    while done < until and (f := over(done)) < 1:
        whole = step % 16 == 15
        x, z, edges = sharp_batch(D, vae, rng, 1 if whole else n, 16 if whole else 6)
        with torch.autocast("cpu", torch.bfloat16):
            y = model.decode_levels(vae, z + a.noise * torch.rand(len(z), 1, 1, 1) * torch.randn_like(z), False)
        y = y.float()
        y, x = torch.where(edges, y, 0), torch.where(edges, x, 0)
        rec = reconstruction(y, x)
        rec.backward()
        flat.step(rate(a, done, f), min(0.998, (step + 1) / (step + 20)))
        step += 1
        done += a.batch
        log.add(done, 50, rec=rec.item(), psnr=-10 * math.log10((y - x).detach().pow(2).mean().item() / 4))
        if log.due(memory, flat) or done >= until or over(done) >= 1:
            flat.save(path, done=done, over=over(done))
            flat.swap()
            if rank == 0:
                keep_decoder(vae, os.path.join(a.work, "vae_decoder.pt"))
            flat.swap()


def sharp_batch(D, vae, rng, n, cells):
    """Crops of cells x cells latents: pictures, latents, and where the loss counts (not at a crop's cut edge)."""
    X, Z, E = [], [], []
    for _ in range(n):
        scene, rgb = scenes.random_scene(D, rng, D.named, MIX), any_colour(rng)
        x = as_tensor([scenes.compose(D, scene, False, rgb)])
        with torch.no_grad():
            z = model.encode_small(vae, F.avg_pool2d(x, 4))[0]
        i, j = (round(rng.triangular(0, 16 - cells)) for _ in range(2))
        X.append(x[:, :, 32 * i:32 * (i + cells), 32 * j:32 * (j + cells)])
        Z.append(z[:, :, i:i + cells, j:j + cells])
        e = torch.ones(1, 1, 32 * cells, 32 * cells, dtype=torch.bool)
        if i > 0: e[:, :, :16] = False
        if i + cells < 16: e[:, :, -16:] = False
        if j > 0: e[..., :16] = False
        if j + cells < 16: e[..., -16:] = False
        E.append(e)
    return torch.cat(X), torch.cat(Z), torch.cat(E)


@torch.no_grad()
def judge(a):
    from PIL import Image
    D, vae = drawings.Drawings(a.work), load_vae(a.work)
    rng = random.Random(11)
    rows, psnr, sharp, noisy = [], [], [], []
    torch.manual_seed(0)
    for k in range(24):
        x = as_tensor([scenes.compose(D, scenes.random_scene(D, rng, D.named, MIX))])
        mean = model.encode_small(vae, F.avg_pool2d(x, 4))[0]
        y, w = vae.decode(mean).sample, vae.decode(mean + 0.2 * torch.randn_like(mean)).sample
        psnr.append(-10 * math.log10((y - x).pow(2).mean().item() / 4))
        noisy.append(-10 * math.log10((w - x).pow(2).mean().item() / 4))
        sharp.append(edge_sharpness(y, x))
        if k < 8:
            rows.append(torch.cat([x[0], y[0], w[0]], 1))
    result = dict(psnr=float(np.mean(psnr)), noisy=float(np.mean(noisy)), edges=float(np.mean(sharp)))
    print(json.dumps(result))
    with open(os.path.join(a.work, "log", "judge_vae.jsonl"), "a") as f:
        f.write(json.dumps(result) + "\n")
    os.makedirs(os.path.join(a.work, "sheets"), exist_ok=True)
    Image.fromarray(to_bytes(torch.cat(rows, 2))).save(os.path.join(a.work, "sheets", "vae.png"))


def edge_sharpness(y, x):
    """Mean gradient of y where x has its strongest edges, relative to x's (1: as sharp)."""
    def g(t):
        t = t.mean(1)
        return (t[:, 1:, :-1] - t[:, :-1, :-1]).abs() + (t[:, :-1, 1:] - t[:, :-1, :-1]).abs()
    gx, gy = g(x), g(y)
    at = gx > 0.3
    return float(gy[at].mean() / gx[at].mean()) if at.any() else 1.0


if __name__ == "__main__":
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("cmd", choices=("begin", "small", "sharp", "judge"))
    ap.add_argument("--work", required=True)
    ap.add_argument("--samples", type=int, default=400000, help="small: crops of 32 pixels (or their like); sharp: crops")
    ap.add_argument("--until", type=int, default=0, help="sharp: stop here; the rate falls towards --samples")
    ap.add_argument("--end", type=float, default=0, help="seconds since 1970: end then, whatever the samples")
    ap.add_argument("--procs", type=int, default=2)
    ap.add_argument("--batch", type=int, default=0)
    ap.add_argument("--lr", type=float, default=0)
    ap.add_argument("--noise", type=float, default=0.3)
    ap.add_argument("--every", type=float, default=4)
    a = ap.parse_args()
    a.batch = a.batch or (16 if a.cmd == "small" else 4)
    a.lr = a.lr or (2e-3 if a.cmd == "small" else 1e-3)
    if a.cmd in ("begin", "judge"):
        {"begin": begin, "judge": judge}[a.cmd](a)
    else:
        shared.launch({"small": train_small, "sharp": train_sharp}[a.cmd], a.procs, 3_000_000, a)
