"""Quality in figures: what a classifier trained on the same drawings sees in generated pictures.

  python tools/train/judge.py learn --work WORK --samples 80000       the classifier -> WORK/classifier.pt
  python tools/train/judge.py names --work WORK --tiers 123           top-1, top-5, background, over all names
  python tools/train/judge.py held  --work WORK --count 100           held-out backgrounds, colours and pairs

Prompts are the plain template (scenes.plain) on a background chosen by the name, seeds fixed; default steps and
guidance. The classifier sees 64x64 pixels: the canvas of one drawing on any background.
"""
import argparse
import json
import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

import autoencoder
import drawings
import sample
import scenes
import shared


class Classifier(nn.Module):
    def __init__(self, classes):
        super().__init__()
        widths, layers = (3, 32, 64, 96, 128), []
        for a, b in zip(widths, widths[1:]):
            layers += [nn.Conv2d(a, b, 3, stride=2, padding=1), nn.BatchNorm2d(b), nn.ReLU()]
        self.body, self.top = nn.Sequential(*layers), nn.Sequential(nn.Dropout(0.2), nn.Linear(128 * 16, classes))

    def forward(self, x):
        return self.top(self.body(x).flatten(1))


def augment(x, rng):
    """What generated pictures differ by: a little shift, blur, noise, contrast."""
    dx, dy = rng.randrange(-5, 6), rng.randrange(-5, 6)
    x = torch.roll(x, (dy, dx), (2, 3))
    if rng.random() < 0.5:
        k = rng.choice((2, 4))
        x = F.interpolate(F.avg_pool2d(x, k), size=x.shape[2:], mode="bilinear")
    return (x * rng.uniform(0.7, 1.2) + rng.uniform(0, 0.15) * torch.randn_like(x)).clamp(-1, 1)


def learn(rank, world, memory, a):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    D, rng = drawings.Drawings(a.work), random.Random(rank)
    net = Classifier(len(D.named))
    flat = shared.Flat(rank, world, memory, [(list(net.parameters()), 1.0)], decay=0.01)
    log, done = autoencoder.Log(rank, a, "classifier"), 0
    while done < a.samples:
        labels = [rng.randrange(len(D.named)) for _ in range(a.batch // world)]
        ims = []
        for k in labels:
            i = D.named[k]
            colours = D.colours(i)
            c = rng.choice(colours) if colours and rng.random() < 0.25 else None
            rgb = autoencoder.any_colour(rng)
            ims.append(scenes.compose(D, scenes.single(i, rng.choice(scenes.NAMES), c), True, rgb))
        x = augment(F.avg_pool2d(autoencoder.as_tensor(ims), 2), rng)
        p = net(x)
        loss = F.cross_entropy(p, torch.tensor(labels), label_smoothing=0.05)
        loss.backward()
        flat.step(2e-3 * min(1, (done + 1) / (50 * a.batch)) * max(0.01, 1 - done / a.samples), 0.99)
        done += a.batch
        log.add(done, 50, loss=loss.item(), right=(p.argmax(1) == torch.tensor(labels)).float().mean().item())
    if rank == 0:
        shared.write_atomic(os.path.join(a.work, "classifier.pt"), {k: v.clone() for k, v in net.state_dict().items()})
    flat.wait()


def background_of(im):
    """Name of the background: median of the corners' pixels."""
    c = np.concatenate([im[y:y + 12, x:x + 12].reshape(-1, 3) for y in (0, 500) for x in (0, 500)])
    m = np.median(c, 0)
    return min(scenes.NAMES, key=lambda k: float(((m - scenes.BACKGROUNDS[k]) ** 2).sum()))


class Judge:
    def __init__(self, a):
        torch.set_num_threads(1)
        self.a, self.D = a, drawings.Drawings(a.work)
        self.text, self.unet, self.done, self.tok, self.vae, self.head = sample.load(a.work)
        self.net = Classifier(len(self.D.named)).eval()
        self.net.load_state_dict(torch.load(os.path.join(a.work, "classifier.pt")))
        self.label = {i: k for k, i in enumerate(self.D.named)}

    def draw(self, found):
        """Pictures [N,3,512,512] of scenes, from their plain captions."""
        out = []
        for k in range(0, len(found), 16):
            part = found[k:k + 16]
            z = sample.generate(self.unet, self.text, self.tok, [scenes.plain(self.D, s) for s in part],
                                range(k, k + len(part)), self.a.steps, self.a.guidance)
            out.append(sample.pictures(self.vae, self.head, z).clamp(-1, 1))
        return torch.cat(out)

    @torch.no_grad()
    def ranks(self, x, wanted):
        p = self.net(F.interpolate(x, size=(64, 64), mode="area"))
        order = p.argsort(1, descending=True).tolist()
        return [o.index(self.label[i]) for o, i in zip(order, wanted)]


def names(a):
    j = Judge(a)
    pool = [i for i in j.D.named if str(j.D.items[i]["tier"]) in a.tiers]
    rng, found = random.Random(1), []
    for i in pool:
        free = [b for b in scenes.NAMES if not scenes.held_out("background", j.D.items[i]["name"], b)]
        found.append(scenes.single(i, rng.choice(free)))
    x = j.draw(found)
    rank = j.ranks(x, pool)
    right = [background_of(autoencoder.to_bytes(im)) == s[0] for im, s in zip(x, found)]
    result = dict(samples=j.done, names=len(pool), top1=float(np.mean([r == 0 for r in rank])),
                  top5=float(np.mean([r < 5 for r in rank])), background=float(np.mean(right)),
                  worst=[j.D.items[i]["name"] for i, r in zip(pool, rank) if r >= 5])
    report(a, "names", result)


def held(a):
    j = Judge(a)
    pool = [i for i in j.D.named if str(j.D.items[i]["tier"]) in a.tiers]
    rng, name = random.Random(2), lambda i: j.D.items[i]["name"]
    backs = [scenes.single(i, b) for i in pool for b in scenes.NAMES if scenes.held_out("background", name(i), b)]
    colours = [scenes.single(i, "white", c) for i in pool for c in j.D.colours(i) if scenes.held_out("colour", name(i), c)]
    pairs = [scenes.pair(*sorted((i, k), key=name)) for i, k in (rng.sample(pool, 2) for _ in range(a.count * 10))
             if scenes.held_out("pair", *sorted((name(i), name(k))))]
    backs, colours, pairs = (rng.sample(s, min(a.count, len(s))) for s in (backs, colours, pairs))
    x = j.draw(backs)
    result = dict(samples=j.done, background_object=float(np.mean([r < 1 for r in j.ranks(x, [s[1][0][0] for s in backs])])),
                  background=float(np.mean([background_of(autoencoder.to_bytes(im)) == s[0] for im, s in zip(x, backs)])))
    result["coloured_object"] = float(np.mean([r < 1 for r in j.ranks(j.draw(colours), [s[1][0][0] for s in colours])]))
    x = F.pad(j.draw(pairs), (32, 32, 0, 0), value=1.0)
    sides = [j.ranks(x[:, :, 96:416, at:at + 320], [s[1][k][0] for s in pairs]) for k, at in ((0, 0), (1, 256))]
    result.update(pair_both_top1=float(np.mean([p == 0 and q == 0 for p, q in zip(*sides)])),
                  pair_both_top5=float(np.mean([p < 5 and q < 5 for p, q in zip(*sides)])))
    report(a, "held", result)


def report(a, name, result):
    print(json.dumps(result))
    with open(os.path.join(a.work, "log", "judge_" + name + ".jsonl"), "a") as f:
        f.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("cmd", choices=("learn", "names", "held"))
    ap.add_argument("--work", required=True)
    ap.add_argument("--samples", type=int, default=80000)
    ap.add_argument("--procs", type=int, default=1)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--every", type=float, default=1e9)
    ap.add_argument("--tiers", default="123")
    ap.add_argument("--count", type=int, default=100)
    ap.add_argument("--steps", type=int, default=20)
    ap.add_argument("--guidance", type=float, default=2.0)
    a = ap.parse_args()
    if a.cmd == "learn":
        shared.launch(learn, a.procs, 1_500_000, a)
    else:
        dict(names=names, held=held)[a.cmd](a)
