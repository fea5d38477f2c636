"""common.py -- the one case that every runtime computes, and when its result counts.

Stable Diffusion 1.5 with hashed weights, 512x512, guidance 7.5, Euler over linearly spaced steps, start noise
torch.randn with seed 1. A whole picture of STEPS steps gives the peak resident set and is compared with that of
torch in float32 (reference.npz); then the parts are timed in the same process. A timing whose result is off is
thrown away: `ok` is false and compare.py stops.
"""

import json
import os
import pathlib
import re

PROMPT, NEGATIVE = "a red apple on a blue background", ""
SIZE, SEED, GUIDANCE, STEPS = 512, 1, 7.5, 2

# Largest relative L2 error of the final latents, and least PSNR of the picture in dB, by precision. 16-bit storage
# and sums in float are 5e-3 here, a wrong tap or a swapped prompt above 0.3.
BOUNDS = {"f32": (1e-3, 45.0), "f16": (2e-2, 35.0), "bf16": (1e-1, 22.0)}


def threads():
    return len(os.sched_getaffinity(0))


def cpu_flags():
    match = re.search(r"^flags\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    return set(match.group(1).split()) if match else set()


def cpu_name():
    match = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    return match.group(1) if match else "unknown"


def own_peak():
    """Peak resident set of this process in bytes."""
    return 1024 * int(re.search(r"VmHWM:\s*(\d+)", pathlib.Path("/proc/self/status").read_text()).group(1))


def check(folder, latents, rgb, precision):
    """The result against the reference: what goes into the record."""
    import numpy

    want = numpy.load(folder / "reference.npz")
    worst, least = BOUNDS[precision]
    psnr = 10 * numpy.log10(255.0**2 / max(1e-9, numpy.mean((rgb.astype(float) - want["rgb"]) ** 2)))
    found = {"psnr": round(float(psnr), 1)}
    ok = psnr >= least
    if latents is not None:
        error = numpy.linalg.norm(latents - want["latents"]) / numpy.linalg.norm(want["latents"])
        found["latents_error"] = float(error)
        ok = ok and error <= worst
    return {**found, "ok": bool(ok)}


def emit(record):
    print(json.dumps(record))
