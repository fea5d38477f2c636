"""Data-parallel training on CPU cores without copies: the weights of all processes are one flat tensor in shared memory.

Every process fills its own flat gradient; then each sums and updates its share (AdamW) and its share of the average
(EMA). Two one-thread processes do half as much again as one process with two threads. State (weights, average,
moments) is one file, written to a temporary name first, that a later run with any number of processes goes on from.
"""
import math
import os
import time

import torch
import torch.multiprocessing as mp


class Flat:
    """groups: [(parameters, learning rate factor), ...] of this process' model, the same in every process."""

    def __init__(self, rank, world, memory, groups, decay=0.0, betas=(0.9, 0.99), clip=1.0):
        self.rank, self.world, self.memory, self.clip = rank, world, memory, clip
        self.decay, self.betas = decay, betas
        params = [p for ps, _ in groups for p in ps]
        self.n = sum(p.numel() for p in params)
        W, G = memory["w"], memory["g"]
        assert W.numel() >= self.n, self.n
        bounds, at = [], 0
        for ps, factor in groups:
            start = at
            for p in ps:
                k = p.numel()
                if rank == 0:
                    W[at:at + k].copy_(p.data.reshape(-1))
                p.data = W[at:at + k].view(p.shape)
                p.grad = G[rank][at:at + k].view(p.shape)
                at += k
            bounds.append((start, at, factor))
        if rank == 0:
            memory["e"][:self.n].copy_(W[:self.n])
        G[rank].zero_()
        lo, hi = self.n * rank // world, self.n * (rank + 1) // world
        self.mine = [(max(s, lo), min(e, hi), f) for s, e, f in bounds if max(s, lo) < min(e, hi)]
        self.steps = 0
        memory["flag"][2] = time.time()
        self.wait()
        self.now = float(memory["flag"][2])                              # the same clock for all

    def wait(self):
        if self.world > 1:
            self.memory["bar"].wait()

    @torch.no_grad()
    def step(self, lr, ema):
        """One AdamW step at rate lr; ema: the average's decay. Returns the gradient's norm; skips what is not finite."""
        self.wait()
        m, G, squares = self.memory, self.memory["g"], 0.0
        for s, e, _ in self.mine:
            g = G[0][s:e]
            for r in range(1, self.world):
                g.add_(G[r][s:e])
            if self.world > 1:
                g.div_(self.world)
            squares += float(g.dot(g))
        m["norm"][self.rank] = squares
        if self.rank == 0:
            m["flag"][2] = time.time()
        self.wait()
        self.now = float(m["flag"][2])
        norm = math.sqrt(float(m["norm"][:self.world].sum()))
        if math.isfinite(norm):
            self.steps += 1
            b1, b2 = self.betas
            c1, c2 = 1 - b1 ** self.steps, 1 - b2 ** self.steps
            for s, e, factor in self.mine:
                w, g, m1, m2 = m["w"][s:e], G[0][s:e], m["m1"][s:e], m["m2"][s:e]
                if norm > self.clip:
                    g.mul_(self.clip / norm)
                torch._fused_adamw_([w], [g], [m1], [m2], [], [torch.tensor(float(self.steps), device=w.device)], lr=lr * factor, beta1=b1,
                                    beta2=b2, weight_decay=self.decay, eps=1e-8, amsgrad=False, maximize=False)
                m["e"][s:e].lerp_(w, 1 - ema)
        self.wait()
        G[self.rank][:self.n].zero_()
        return norm

    def swap(self):
        """Puts the averaged weights in the weights' place (again: back). All processes call it."""
        self.wait()
        if self.rank == 0:
            w, e = self.memory["w"][:self.n], self.memory["e"][:self.n]
            t = w.clone()
            w.copy_(e)
            e.copy_(t)
        self.wait()

    def save(self, path, **more):
        self.wait()
        if self.rank == 0:
            state = {k: self.memory[k][:self.n].clone() for k in ("w", "e", "m1", "m2")}
            write_atomic(path, dict(state, steps=self.steps, **more))
        self.wait()

    def load(self, path):
        """Returns what save() was given beside the weights, or None without a file."""
        self.wait()
        if not os.path.exists(path):
            return None
        state = torch.load(path, map_location="cpu", weights_only=False, mmap=True)
        if self.rank == 0:
            for k in ("w", "e", "m1", "m2"):
                if k == "w" or k in state:                               # slim() leaves all out but the average
                    self.memory[k][:self.n].copy_(state[k if k in state else "e"])
        self.steps = state["steps"] if "m1" in state else 0
        self.wait()
        return {k: v for k, v in state.items() if k not in ("w", "e", "m1", "m2")}


class Progress:
    """How much of a run is over, 0 to 1: by the samples, or by the clock when the run has a time to end at."""

    def __init__(self, flat, samples, end=0.0, before=0.0):
        self.flat, self.samples, self.end, self.before, self.start = flat, samples, end, before, flat.now

    def __call__(self, done):
        if not self.end:
            return min(1.0, done / self.samples)
        f = (self.flat.now - self.start) / max(1.0, self.end - self.start)
        return min(1.0, self.before + (1 - self.before) * f)


def slim(path, out):
    """The averaged weights alone in fp16, an eighth of a checkpoint: a run can go on from that, too."""
    state = torch.load(path, map_location="cpu", weights_only=False)
    write_atomic(out, dict(e=state["e"].half(), steps=state["steps"], done=state["done"]))


def write_atomic(path, state):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    torch.save(state, path + ".tmp")
    os.replace(path + ".tmp", path)


def launch(fn, world, capacity, args):
    """Runs fn(rank, world, memory, args) in world processes (forked: they keep the command line); capacity: an upper
    bound of the number of weights."""
    context = mp.get_context("fork")
    device = getattr(args, "device", "cpu")
    memory = {k: torch.zeros(capacity, device=device).share_memory_() for k in ("w", "e", "m1", "m2")}
    memory.update(g=[torch.zeros(capacity, device=device).share_memory_() for _ in range(world)],
                  norm=torch.zeros(world).share_memory_(), flag=torch.zeros(4, dtype=torch.float64).share_memory_(),
                  bar=context.Barrier(world))
    if world == 1:
        fn(0, 1, memory, args)
        return
    processes = [context.Process(target=fn, args=(r, world, memory, args)) for r in range(world)]
    for p in processes:
        p.start()
    for p in processes:
        p.join()
    assert all(p.exitcode == 0 for p in processes)
