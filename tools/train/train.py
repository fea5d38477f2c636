"""Trains text encoder and UNet on cached latents (latents.py).

  python tools/train/train.py text --work WORK --samples 100000 --procs 2 --data names_a=2   text encoder: caption -> latents
  python tools/train/train.py unet --work WORK --samples 500000 --procs 2 --data names_a=2,scenes_a=1
  python tools/train/train.py begin --work WORK --model DIR                    WORK's networks from an exported model
  python tools/train/train.py slim --work WORK                                 WORK/state/unet_slim.pt, in fp16
  python tools/train/train.py unet ... --device cuda --procs 1 --batch 512     the same on a GPU

v-prediction, zero terminal SNR, AdamW, EMA. text and unet go on from WORK/state/*.pt, which they write every --every
minutes; stop them at any time. The learning rate is constant after a warm-up and falls to a fiftieth from the share
--decay-from of the run on; a run ends at --samples, or by the clock at --end. --data: caches and how often each is drawn.

text: a caption decides the latents, so the text encoder learns them by plain regression, a fraction of the UNet's cost:
each position from model.FIRST on must hold its 2x2 block of latents, and where that is. unet: at first its
cross-attention is told where to look (--point: share of the run), and the text encoder rests (its outputs are cached)
unless --text-rate.
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
def blocks(x):
    """[N,16,16,16] latents as [N,64,64]: what each position of the text from FIRST on is to hold."""
    g = model.GRID
    return x.unfold(2, 2, 2).unfold(3, 2, 2).permute(0, 2, 3, 1, 4, 5).reshape(len(x), g * g, -1)


def unblock(p):
    g = model.GRID
    return p.view(len(p), g, g, model.LATENT, 2, 2).permute(0, 3, 1, 4, 2, 5).reshape(len(p), model.LATENT, 2 * g, 2 * g)


def begin_text(vocabulary):
    """Vectors large enough to matter, and positions that differ as places do."""
    text, g = model.make_text(vocabulary), model.GRID
    with torch.no_grad():
        text.get_input_embeddings().weight.mul_(10)                      # 0.02 is slow to leave
        at = torch.stack(torch.meshgrid(torch.arange(g), torch.arange(g), indexing="ij"), -1).reshape(-1, 2, 1)
        waves = (at * torch.tensor([0.4, 0.8, 1.6, math.pi])).flatten(1)
        waves = torch.cat([waves.sin(), waves.cos()], 1)
        mix = torch.randn(waves.shape[1], model.HIDDEN) * (0.4 / math.sqrt(waves.shape[1]))
        weight = next(p for n, p in text.named_parameters() if "position_embedding" in n)
        weight.mul_(10)
        weight[model.FIRST:] += waves @ mix
    return text


def train_text(rank, world, memory, a):
    torch.set_num_threads(1 if a.device == "cpu" else 4)
    torch.manual_seed(0)
    D, tok = drawings.Drawings(a.work), tokenizer(a.work)
    text, g = begin_text(len(tok)), model.GRID
    head, place = torch.nn.Linear(model.HIDDEN, 4 * model.LATENT), torch.nn.Linear(model.HIDDEN, 2 * g)
    pre = os.path.join(a.work, "text_pre.pt")
    if os.path.exists(pre):
        text.load_state_dict(torch.load(pre))
    for part in (text, head, place):
        part.to(a.device)
    (emb, _), (rest, _) = groups(text)
    flat = shared.Flat(rank, world, memory, [(emb, EMBEDDING_FACTOR),
                                             (rest + list(head.parameters()) + list(place.parameters()), 1.0)])
    path = os.path.join(a.work, "state", "text.pt")
    state = flat.load(path) or dict(done=0)
    done = state["done"]
    over = shared.Progress(flat, a.samples, a.end, 0.0 if a.again else state.get("over", 0.0))
    rng = random.Random(50 + rank + done)
    a.drop = 0
    data, log, since = Data(a, D, tok, rng, rank, world), autoencoder.Log(rank, a, "text"), 0
    where = torch.arange(g * g, device=a.device)
    while (f := over(done)) < 1:
        x, ids, _ = data.batch(a.batch // world)
        h = text(ids).last_hidden_state[:, model.FIRST:]
        loss = F.mse_loss(head(h), blocks(x))
        row, column = place(h).split(g, 2)
        placed = sum(F.cross_entropy(p.transpose(1, 2), w.expand(len(x), -1)) for p, w in ((row, where // g), (column, where % g)))
        (loss + 0.03 * placed).backward()
        norm = flat.step(learning_rate(a, f, since), min(0.998, (flat.steps + 1) / (flat.steps + 20)))
        done += a.batch
        since += a.batch
        log.add(done, 50, loss=loss.item(), placed=placed.item(), norm=norm)
        if log.due(memory, flat) or over(done) >= 1:
            flat.save(path, done=done, over=over(done))
            flat.swap()
            if rank == 0:
                shared.write_atomic(pre, {k: v.cpu().clone() for k, v in text.state_dict().items()})
                shared.write_atomic(os.path.join(a.work, "text_head.pt"), {k: v.cpu().clone() for k, v in head.state_dict().items()})
            flat.swap()


# ---------------------------------------------------------------- UNet
class Data:
    """Latents and captions of several caches, drawn with weights, each cache in shuffled rounds."""

    def __init__(self, a, D, tok, rng, rank, world):
        self.D, self.tok, self.rng, self.drop = D, tok, rng, a.drop
        self.known = {}                                                  # outputs of a resting text encoder
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
        xs, captions, keys = [], [], []
        for _ in range(n):
            k = self.rng.choices(range(len(self.parts)), self.weights)[0]
            found, specs, own, left = self.parts[k]
            if not left:
                left.extend(own)
                self.rng.shuffle(left)
            i = left.pop()
            xs.append(np.asarray(found[i], np.float32))
            captions.append(self.caption(specs[i]))
            keys.append((k, i, self.rng.randrange(2)) if captions[-1] else None)
        return torch.from_numpy(np.stack(xs)), model.tokens(self.tok, captions), keys

    @torch.no_grad()
    def context(self, text, ids, keys):
        """The resting text encoder's outputs, two captions of each scene kept."""
        new = [k for k, key in enumerate(keys) if key not in self.known]
        if new:
            for k, h in zip(new, text(ids[new]).last_hidden_state.half()):
                self.known[keys[k]] = h.clone()
        return torch.stack([self.known[key] for key in keys]).float()

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
        return x, torch.where(torch.rand(n, 1, device=self.device) < self.drop, empty, t), None


def learning_rate(a, f, since):
    f = max(0.0, f - a.decay_from) / max(1e-9, 1 - a.decay_from)
    return a.lr * min(1, (since + 1) / (100 * a.batch)) * (0.02 + 0.98 * (0.5 + 0.5 * math.cos(math.pi * min(1, f))))


def train_unet(rank, world, memory, a):
    torch.set_num_threads(1 if a.device == "cpu" else 4)
    torch.manual_seed(0)
    D, tok = drawings.Drawings(a.work), tokenizer(a.work)
    text, unet = model.make_text(len(tok)), model.make_unet()
    for part, name in ((text, "text_pre.pt"), (unet, "unet_pre.pt")):
        if os.path.exists(os.path.join(a.work, name)):
            part.load_state_dict(torch.load(os.path.join(a.work, name)))
    text.to(a.device), unet.to(a.device)
    resting = a.text_rate == 0 and a.device == "cpu"
    text.requires_grad_(not resting)
    ((emb, _), (rest, _)), body = groups(text), list(unet.parameters())
    flat = shared.Flat(rank, world, memory, [(emb, a.text_rate * EMBEDDING_FACTOR), (rest, a.text_rate), (body, 1.0)])
    path = os.path.join(a.work, "state", "unet.pt")
    state = flat.load(path) or dict(done=0)
    done = state["done"]
    over = shared.Progress(flat, a.samples, a.end, 0.0 if a.again else state.get("over", 0.0))
    pointing = model.Pointing(unet)
    rng = random.Random(70 + rank + done)
    torch.manual_seed(70 + rank + done)
    data, log = Data(a, D, tok, rng, rank, world), autoencoder.Log(rank, a, "unet")
    abar = model.scheduler().alphas_cumprod.to(a.device)
    sa, sn = abar.sqrt().view(-1, 1, 1, 1), (1 - abar).sqrt().view(-1, 1, 1, 1)
    n, since = a.batch // world, 0
    until = a.until or math.inf
    while done < until and (f := over(done)) < 1:
        pointing.turn(f < a.point)
        x, ids, keys = data.batch(n)
        context = data.context(text, ids, keys) if resting else text(ids).last_hidden_state
        u = (torch.arange(n, device=a.device) + torch.rand(n, device=a.device)) / n
        t = (1000 * u ** SKEW).long().clamp_(0, 999)                     # stratified
        e = torch.randn_like(x)
        with torch.autocast("cuda", torch.bfloat16, enabled=a.device != "cpu"):
            p = unet(sa[t] * x + sn[t] * e, t, context).sample
        each = (p.float() - (sa[t] * e - sn[t] * x)).pow(2).mean((1, 2, 3))
        missed = pointing.missed()
        (each.mean() + 0.1 * missed).backward()
        norm = flat.step(learning_rate(a, f, since), min(a.ema, (flat.steps + 1) / (flat.steps + 20)))
        done += a.batch
        since += a.batch
        if a.device == "cpu" or flat.steps % 20 == 0:
            q = each.detach()
            log.add(done, 100 if a.device == "cpu" else 10, loss=q.mean().item(), low=q[:n // 2].mean().item(),
                    high=q[n // 2:].mean().item(), last=q[-n // 8:].mean().item(), missed=missed.item(), norm=norm)
        if log.due(memory, flat):
            flat.save(path, done=done, over=over(done))
    flat.save(path, done=done, over=over(done))


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


def begin(a):
    """WORK's tokenizer, networks and decoder from an exported model: what a run goes on from when nothing else is left."""
    import shutil
    from diffusers import AutoencoderKL, UNet2DConditionModel
    from transformers import CLIPTextModel
    shutil.copytree(os.path.join(a.model, "tokenizer"), os.path.join(a.work, "tokenizer"), dirs_exist_ok=True)
    vae = AutoencoderKL.from_pretrained(os.path.join(a.model, "vae"), torch_dtype=torch.float32)
    vae.save_pretrained(os.path.join(a.work, "vae"))
    autoencoder.keep_decoder(vae, os.path.join(a.work, "vae_decoder.pt"))
    for name, part, kind in (("text_pre.pt", "text_encoder", CLIPTextModel), ("unet_pre.pt", "unet", UNet2DConditionModel)):
        found = kind.from_pretrained(os.path.join(a.model, part), torch_dtype=torch.float32)
        shared.write_atomic(os.path.join(a.work, name), found.state_dict())


if __name__ == "__main__":
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("cmd", choices=("begin", "text", "unet", "slim"))
    ap.add_argument("--work", required=True)
    ap.add_argument("--data", default="")
    ap.add_argument("--samples", type=int, default=0)
    ap.add_argument("--until", type=int, default=0, help="stop here; the rate falls towards --samples")
    ap.add_argument("--decay-from", type=float, default=0.4)
    ap.add_argument("--end", type=float, default=0, help="seconds since 1970: end then, whatever the samples")
    ap.add_argument("--again", action="store_true", help="a further run from the state of one that ended")
    ap.add_argument("--point", type=float, default=0.15)
    ap.add_argument("--text-rate", type=float, default=0.0, help="unet: the text encoder's rate, of the UNet's")
    ap.add_argument("--model", help="begin: the exported model's directory")
    ap.add_argument("--procs", type=int, default=2)
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--ema", type=float, default=0.9993)
    ap.add_argument("--drop", type=float, default=0.1, help="share of empty captions")
    ap.add_argument("--device", default="cpu")
    ap.add_argument("--every", type=float, default=4)
    a = ap.parse_args()
    if a.cmd == "begin":
        begin(a)
    elif a.cmd == "slim":
        shared.slim(os.path.join(a.work, "state", "unet.pt"), os.path.join(a.work, "state", "unet_slim.pt"))
    else:
        shared.launch({"text": train_text, "unet": train_unet}[a.cmd], a.procs, 10_000_000, a)
