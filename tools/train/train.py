"""Trains text encoder and UNet on cached latents (latents.py).

  python tools/train/train.py text --work WORK --samples 60000 --procs 2       text encoder alone: caption -> thumbnail
  python tools/train/train.py unet --work WORK --samples 500000 --procs 2 --data names_a=2,scenes_a=1
  python tools/train/train.py slim --work WORK                                 WORK/state/unet_slim.pt, in fp16
  python tools/train/train.py unet ... --device cuda --procs 1 --batch 512     the same on a GPU

v-prediction, zero terminal SNR, AdamW, EMA. unet goes on from WORK/state/unet.pt, which it writes every --every
minutes; stop it at any time. The learning rate is constant after a warm-up and, beyond --decay-from samples, falls to
a fiftieth at --samples. --data: caches and how often each is drawn.
"""
import argparse
import math
import os
import random
import time

import numpy as np
import torch
import torch.nn.functional as F
from transformers import CLIPTokenizerFast

import autoencoder
import drawings
import latents
import model
import scenes
import shared

os.environ["TOKENIZERS_PARALLELISM"] = "false"
SKEW = 0.75                       # below 1: more of the noisy timesteps, where words decide what is drawn
EMBEDDING_FACTOR = 3.0            # most words are rare: larger steps for their vectors


def tokenizer(work):
    return CLIPTokenizerFast.from_pretrained(os.path.join(work, "tokenizer"))


def groups(text, unet=None):
    emb = text.get_input_embeddings().weight
    rest = [p for p in text.parameters() if p is not emb] + (list(unet.parameters()) if unet else [])
    return [([emb], EMBEDDING_FACTOR), (rest, 1.0)]


# ---------------------------------------------------------------- text encoder alone
def train_text(rank, world, memory, a):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    D, tok = drawings.Drawings(a.work), tokenizer(a.work)
    text = model.make_text(len(tok))
    with torch.no_grad():
        text.get_input_embeddings().weight.mul_(10)                      # 0.02 is slow to leave
    head = torch.nn.Sequential(torch.nn.Linear(model.HIDDEN, 384), torch.nn.SiLU(), torch.nn.Linear(384, 768))
    (emb, _), (rest, _) = groups(text)
    flat = shared.Flat(rank, world, memory, [(emb, 3 * EMBEDDING_FACTOR), (rest + list(head.parameters()), 1.0)])
    rng, log, done = random.Random(50 + rank), autoencoder.Log(rank, a, "text"), 0
    mix = dict(single=3, small=1, placed=1, count=1, pair=1, colour=0.3)
    while done < a.samples:
        found = [scenes.random_scene(D, rng, D.named, mix) for _ in range(a.batch // world)]
        ids = model.tokens(tok, [scenes.caption(D, s, rng) for s in found], 20)
        x = np.stack([scenes.compose(D, s, True) for s in found]).reshape(-1, 16, 8, 16, 8, 3).mean((2, 4))
        y = torch.from_numpy(x.astype(np.float32)).div_(127.5).sub_(1).flatten(1)
        loss = F.mse_loss(head(text(ids).last_hidden_state.mean(1)), y)
        loss.backward()
        f = done / a.samples
        norm = flat.step(a.lr * min(1, (done + 1) / (50 * a.batch)) * max(0.02, 1 - f), 0.9)
        done += a.batch
        log.add(done, 25, loss=loss.item(), norm=norm)
    flat.wait()
    if rank == 0:
        shared.write_atomic(os.path.join(a.work, "text_pre.pt"), {k: v.clone() for k, v in text.state_dict().items()})
    flat.wait()


# ---------------------------------------------------------------- UNet
class Data:
    """Latents and captions of several caches, drawn with weights, each cache in shuffled rounds."""

    def __init__(self, a, D, tok, rng, rank, world):
        self.D, self.tok, self.rng, self.drop = D, tok, rng, a.drop
        self.parts, self.weights = [], []
        for item in a.data.split(","):
            name, weight = item.split("=")
            found, specs = latents.load(a.work, name)
            own = list(range(rank, len(specs), world))
            self.parts.append((found, specs, own, []))
            self.weights.append(float(weight))
        self.device = a.device
        if self.device != "cpu":                                         # everything there, some captions of each ready
            self.parts = [self.resident(*p) for p in self.parts]

    def caption(self, spec):
        return "" if self.rng.random() < self.drop else scenes.caption(self.D, spec, self.rng)

    def resident(self, found, specs, own, left):
        ids = [model.tokens(self.tok, [scenes.caption(self.D, s, self.rng) for s in specs]) for _ in range(8)]
        return torch.from_numpy(np.array(found)).to(self.device), torch.stack(ids, 1).to(self.device), len(specs)

    def batch(self, n):
        if self.device != "cpu":
            return self.resident_batch(n)
        xs, captions = [], []
        for _ in range(n):
            found, specs, own, left = self.rng.choices(self.parts, self.weights)[0]
            if not left:
                left.extend(own)
                self.rng.shuffle(left)
            i = left.pop()
            xs.append(np.asarray(found[i], np.float32))
            captions.append(self.caption(specs[i]))
        return torch.from_numpy(np.stack(xs)), model.tokens(self.tok, captions)

    def resident_batch(self, n):
        total, xs, ids = sum(self.weights), [], []
        counts = np.random.default_rng(self.rng.randrange(1 << 30)).multinomial(n, [w / total for w in self.weights])
        for (found, tokens, size), k in zip(self.parts, counts):
            i = torch.randint(size, (int(k),), device=self.device)
            xs.append(found[i].float())
            ids.append(tokens[i, torch.randint(8, (int(k),), device=self.device)])
        x, t = torch.cat(xs), torch.cat(ids)
        mix = torch.randperm(n, device=self.device)                      # timesteps are stratified in the batch's order
        x, t = x[mix], t[mix]
        empty = model.tokens(self.tok, [""]).to(self.device)
        return x, torch.where(torch.rand(n, 1, device=self.device) < self.drop, empty, t)


def learning_rate(a, done, since):
    f = 0 if a.decay_from is None else max(0, done - a.decay_from) / max(1, a.samples - a.decay_from)
    return a.lr * min(1, (since + 1) / (100 * a.batch)) * (0.02 + 0.98 * (0.5 + 0.5 * math.cos(math.pi * min(1, f))))


def train_unet(rank, world, memory, a):
    torch.set_num_threads(1 if a.device == "cpu" else 4)
    torch.manual_seed(0)
    D, tok = drawings.Drawings(a.work), tokenizer(a.work)
    text, unet = model.make_text(len(tok)), model.make_unet()
    pre = os.path.join(a.work, "text_pre.pt")
    if os.path.exists(pre):
        text.load_state_dict(torch.load(pre))
    text.to(a.device), unet.to(a.device)
    flat = shared.Flat(rank, world, memory, groups(text, unet))
    path = os.path.join(a.work, "state", "unet.pt")
    done = (flat.load(path) or dict(done=0))["done"]
    rng = random.Random(70 + rank + done)
    torch.manual_seed(70 + rank + done)
    data, log = Data(a, D, tok, rng, rank, world), autoencoder.Log(rank, a, "unet")
    abar = model.scheduler().alphas_cumprod.to(a.device)
    sa, sn = abar.sqrt().view(-1, 1, 1, 1), (1 - abar).sqrt().view(-1, 1, 1, 1)
    n, since = a.batch // world, 0
    until = min(a.samples, a.until or a.samples)
    while done < until:
        x, ids = data.batch(n)
        u = (torch.arange(n, device=a.device) + torch.rand(n, device=a.device)) / n
        t = (1000 * u ** SKEW).long().clamp_(0, 999)                     # stratified
        e = torch.randn_like(x)
        with torch.autocast("cuda", torch.bfloat16, enabled=a.device != "cpu"):
            p = unet(sa[t] * x + sn[t] * e, t, text(ids).last_hidden_state).sample
        each = (p.float() - (sa[t] * e - sn[t] * x)).pow(2).mean((1, 2, 3))
        each.mean().backward()
        norm = flat.step(learning_rate(a, done, since), min(a.ema, (flat.steps + 1) / (flat.steps + 20)))
        done += a.batch
        since += a.batch
        if a.device == "cpu" or flat.steps % 20 == 0:
            q = each.detach()
            log.add(done, 100 if a.device == "cpu" else 10, loss=q.mean().item(), low=q[:n // 2].mean().item(),
                    high=q[n // 2:].mean().item(), norm=norm)
        if log.due(memory, flat):
            flat.save(path, done=done)
        if a.stop_at and time.time() > a.stop_at:
            break
    flat.save(path, done=done)


def averaged(work):
    """(text encoder, UNet, samples trained) with the averaged weights of the newest checkpoint."""
    state = torch.load(os.path.join(work, "state", "unet.pt"), map_location="cpu", weights_only=False, mmap=True)
    text, unet = model.make_text(len(tokenizer(work))), model.make_unet()
    at = 0
    with torch.no_grad():
        for ps, _ in groups(text, unet):
            for p in ps:
                p.copy_(state["e"][at:at + p.numel()].view(p.shape))
                at += p.numel()
    assert at == len(state["e"])
    return text.eval(), unet.eval(), state["done"]


if __name__ == "__main__":
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("cmd", choices=("text", "unet", "slim"))
    ap.add_argument("--work", required=True)
    ap.add_argument("--data", default="")
    ap.add_argument("--samples", type=int, default=0)
    ap.add_argument("--until", type=int, default=0, help="stop here; the rate falls towards --samples")
    ap.add_argument("--decay-from", type=int)
    ap.add_argument("--stop-at", type=float, default=0, help="seconds since 1970 when to stop (one process)")
    ap.add_argument("--procs", type=int, default=2)
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--ema", type=float, default=0.9993)
    ap.add_argument("--drop", type=float, default=0.1, help="share of empty captions")
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--every", type=float, default=4)
    a = ap.parse_args()
    if a.cmd == "slim":
        shared.slim(os.path.join(a.work, "state", "unet.pt"), os.path.join(a.work, "state", "unet_slim.pt"))
    else:
        shared.launch({"text": train_text, "unet": train_unet}[a.cmd], a.procs, 10_000_000, a)
