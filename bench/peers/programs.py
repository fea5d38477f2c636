"""programs.py -- the runtimes that are programs: gen, and stable-diffusion.cpp's sd-cli.

Times are their own (the report; the log), over the very picture that is checked: gen's step is the mean of both, its text and decode
without the reading of the weights, which no other runtime's times hold either; sd-cli's likewise.
"""

import hashlib
import json
import os
import re
import subprocess

import common


def read_rgb(path):
    import numpy
    from PIL import Image

    return numpy.asarray(Image.open(path).convert("RGB"))


def run(args, folder):
    """Standard output and error together, and the peak resident set in bytes."""
    log = folder / "program.log"
    with open(log, "w") as out:
        child = subprocess.Popen([str(a) for a in args], stdout=out, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    text = log.read_text(errors="replace")
    if child.returncode:
        raise SystemExit(f"{args[0]} failed ({child.returncode}); the end of its output:\n{text[-2000:]}")
    return text, 1024 * usage.ru_maxrss


def build_of(gen):
    return hashlib.sha256(gen.read_bytes()).hexdigest()[:12]


def tessera(folder, gen, budget, precision):
    from safetensors.numpy import load_file

    png, latents, report = folder / "ours.png", folder / "ours.safetensors", folder / "ours.json"
    model = folder / "model.tsr" if precision == "f16" else folder / "model"
    args = [gen, "--model", model, "--prompt", common.PROMPT, "--negative-prompt", common.NEGATIVE,
            "--seed", common.SEED, "--steps", common.STEPS, "--guidance", common.GUIDANCE, "--scheduler", "euler",
            "--width", common.SIZE, "--height", common.SIZE, "--threads", common.threads(), "--precision", f"fp{precision[1:]}",
            "--out", png, "--save-latents", latents, "--report", report, "--no-progress"]  # fmt: skip
    run(args + (["--budget", budget, "--strict"] if budget else []), folder)
    r = json.loads(report.read_text())
    phase = {p["name"]: p["seconds"] - p["seconds_waiting_for_weights"] for p in r["phases"] if "seconds" in p}
    return {
        "version": build_of(gen),
        "tier": r["tier"],
        "text_seconds": phase["text"],
        "step_seconds": 1 / r["steps_per_second"],
        "decode_seconds": phase["decode"],
        "peak_bytes": r["measured_peak_bytes"],
        **common.check(folder, load_file(latents)["latents"], read_rgb(png), precision),
    }


def sdcpp(folder, precision):
    program = folder / "sdcpp" / "build" / "bin" / "sd-cli"
    png = folder / "sdcpp.png"
    args = [program, "-m", folder / "model.safetensors", "-p", common.PROMPT, "-n", common.NEGATIVE, "-s", common.SEED,
            "--rng", "cpu", "--steps", common.STEPS, "--cfg-scale", common.GUIDANCE, "--sampling-method", "euler",
            "--scheduler", "discrete", "-W", common.SIZE, "-H", common.SIZE, "-t", common.threads(), "--type", precision,
            "-o", png, "-v"]  # fmt: skip
    text, peak = run(args, folder)

    def took(what):
        return float(re.search(what + r" completed, taking ([\d.]+)\s*s", text).group(1))

    return {
        "version": (folder / "sdcpp" / "version").read_text().strip(),
        "text_seconds": took("get_learned_condition"),
        "step_seconds": took("sampling") / common.STEPS,
        "decode_seconds": took("decode_first_stage"),
        "peak_bytes": peak,
        **common.check(folder, None, read_rgb(png), "f16"),  # its convolutions round to half in any type
    }
