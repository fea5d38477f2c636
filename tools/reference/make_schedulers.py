#!/usr/bin/env python3
"""Makes scheduler cases that the reference set does not have: tests/data/golden/schedulers-more.{json,safetensors}.

    python3 -m venv VENV && VENV/bin/pip install torch diffusers scipy
    VENV/bin/python tools/reference/make_schedulers.py

Same layout, loop and model function as the reference's golden/schedulers (see its README), on latents of eight elements:
other betas and training lengths, odd step counts, sigma tables, final sigmas, solver orders and types, thresholding,
sample prediction, zero terminal SNR. PICKED has a case for every formula of its own; more configs are drawn at random
from SEED. diffusers runs as it is but for one thing:
torch takes square roots from MKL, whose last bit depends on the processor (one in five is off); here they are rounded
correctly, so that the tables are the same wherever this is run, and sigmas and timesteps can be compared exactly.
"""

import inspect
import json
import pathlib
import random
import sys
import warnings

import diffusers
import numpy as np
import torch
from diffusers.utils import torch_utils

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "golden"
SEED, CASES_A_CLASS, SHAPE = 20, 4, (1, 2, 2, 2)
CLASSES = ["DDIMScheduler", "DDPMScheduler", "PNDMScheduler", "LMSDiscreteScheduler", "EulerDiscreteScheduler",
           "EulerAncestralDiscreteScheduler", "HeunDiscreteScheduler", "KDPM2DiscreteScheduler", "DPMSolverSinglestepScheduler",
           "DPMSolverMultistepScheduler", "UniPCMultistepScheduler", "DEISMultistepScheduler", "LCMScheduler"]
MIN = dict(final_sigmas_type="sigma_min")
MULTI, SINGLE, UNIPC = "DPMSolverMultistepScheduler", "DPMSolverSinglestepScheduler", "UniPCMultistepScheduler"
PICKED = [
    ("DDPMScheduler", dict(beta_schedule="laplace", clip_sample=False), 7),
    ("DDPMScheduler", dict(beta_schedule="sigmoid", variance_type="fixed_large"), 5),
    ("HeunDiscreteScheduler", dict(beta_schedule="exp", clip_sample=True, use_karras_sigmas=True), 6),
    ("EulerDiscreteScheduler", dict(interpolation_type="log_linear"), 6),
    ("EulerDiscreteScheduler", dict(timestep_type="continuous", prediction_type="v_prediction", rescale_betas_zero_snr=True), 6),
    *[(MULTI, dict(MIN, algorithm_type=a, solver_type=t, solver_order=o), 6)
      for a in ("dpmsolver", "sde-dpmsolver", "sde-dpmsolver++") for t in ("midpoint", "heun") for o in (2, 3) if (a, o) != ("sde-dpmsolver", 3)],
    *[(SINGLE, dict(MIN, algorithm_type=a, solver_type=t, solver_order=3), 9)
      for a in ("dpmsolver", "sde-dpmsolver++", "dpmsolver++") for t in ("midpoint", "heun")],
    *[(UNIPC, dict(MIN, predict_x0=False, solver_type=t, solver_order=o, prediction_type=p), 6)
      for t, o, p in (("bh1", 2, "epsilon"), ("bh2", 3, "v_prediction"), ("bh2", 4, "sample"))],
    (UNIPC, dict(MIN, solver_order=4, use_karras_sigmas=True), 8),
    ("DEISMultistepScheduler", dict(solver_order=3, lower_order_final=False), 6),
    (MULTI, dict(use_lu_lambdas=True, rescale_betas_zero_snr=True, lambda_min_clipped=-1.0), 6),
]


def exact_root(t):
    return torch.from_numpy(np.sqrt(t.detach().numpy().reshape(-1))).reshape(t.shape)


def round_roots_correctly():
    power = torch.Tensor.__pow__

    def patched(a, b):
        return exact_root(a) if isinstance(b, float) and b == 0.5 and a.dtype == torch.float32 else power(a, b)

    torch.Tensor.__pow__, torch.Tensor.sqrt, torch.sqrt = patched, exact_root, exact_root


def feed_noise(noise):
    """Makes diffusers draw from `noise`; returns the list of what was drawn."""
    drawn, real = [], torch_utils.randn_tensor

    def fake(shape, **_):
        drawn.append(noise[len(drawn)].reshape(shape))
        return drawn[-1].clone()

    for name, module in list(sys.modules.items()):
        if name.startswith("diffusers.") and module.__dict__.get("randn_tensor") is real:
            module.randn_tensor = fake
    return drawn


def draw_config(r, cls):
    known = set(inspect.signature(getattr(diffusers, cls).__init__).parameters)
    tables = ["use_karras_sigmas", "use_exponential_sigmas", "use_beta_sigmas", "use_lu_lambdas"]
    c = {"num_train_timesteps": r.choice([1000, 1000, 100, 333, 500, 2000]),
         "timestep_spacing": r.choice(["linspace", "leading", "trailing"]), "steps_offset": r.choice([0, 1, 2]),
         "prediction_type": r.choice(["epsilon", "v_prediction", "sample"]),
         "clip_sample": r.random() < 0.4, "clip_sample_range": r.choice([1.0, 2.5]), "set_alpha_to_one": r.random() < 0.5,
         "thresholding": r.random() < 0.3, "sample_max_value": r.choice([1.0, 1.5]), "dynamic_thresholding_ratio": r.choice([0.995, 0.7]),
         "final_sigmas_type": r.choice(["zero", "sigma_min"]), "solver_order": r.choice([1, 2, 3, 3]),
         "lower_order_final": r.random() < 0.7, "euler_at_final": r.random() < 0.3, "predict_x0": r.random() < 0.7,
         "disable_corrector": r.choice([[], [0], [1, 2]]), "skip_prk_steps": r.random() < 0.5,
         "interpolation_type": r.choice(["linear", "linear", "log_linear"]), "timestep_type": r.choice(["discrete", "continuous"]),
         "original_inference_steps": r.choice([50, 30]), "timestep_scaling": r.choice([10.0, 3.0])}
    c["beta_schedule"], c["beta_start"], c["beta_end"] = r.choice(
        [("scaled_linear", 0.00085, 0.012), ("linear", 0.0001, 0.02), ("scaled_linear", 0.001, 0.01)])
    if cls in ("DDIMScheduler", "LCMScheduler", "PNDMScheduler") and r.random() < 0.5:
        c["beta_schedule"] = "squaredcos_cap_v2"
    if r.random() < 0.15 and c["num_train_timesteps"] == 100:
        c["trained_betas"] = [round(0.0003 + 0.0002 * i, 6) for i in range(100)]
    if c["prediction_type"] == "v_prediction":
        c["rescale_betas_zero_snr"] = r.random() < 0.6
    if r.random() < 0.7:
        c[r.choice(tables)] = True
    if r.random() < 0.3:
        c["sigma_min"] = r.choice([0.03, 0.1])
        c["sigma_max"] = r.choice([None, 10.0, 20.0])
    c["algorithm_type"] = "deis" if cls.startswith("DEIS") else r.choice(["dpmsolver++", "sde-dpmsolver++", "dpmsolver"])
    c["solver_type"] = r.choice(["bh1", "bh2"]) if cls.startswith("Uni") else "logrho" if cls.startswith("DEIS") else r.choice(["midpoint", "heun"])
    if r.random() < 0.3:
        c["lambda_min_clipped"] = r.choice([-3.0, -1.5])
    if cls == "DDPMScheduler":
        c["variance_type"] = r.choice(["fixed_small", "fixed_small_log", "fixed_large"])
        c["beta_schedule"] = r.choice([c["beta_schedule"], "sigmoid", "laplace"])
    return {k: v for k, v in c.items() if k in known}


def run(cls, config, steps, eta, start, drawn):
    scheduler = getattr(diffusers, cls)(**config)
    scheduler.set_timesteps(steps)
    x, args = start * scheduler.init_noise_sigma, {"eta": eta} if cls == "DDIMScheduler" else {}
    drawn.clear()
    for t in scheduler.timesteps:
        seen = scheduler.scale_model_input(x, t)
        x = scheduler.step(0.3 * seen + 0.1 * torch.sin(3 * seen + t / 200), t, x, **args).prev_sample
    if not torch.isfinite(x).all():
        raise ValueError("not finite")
    out = {"timesteps": scheduler.timesteps.float(), "final": x}
    if getattr(scheduler, "sigmas", None) is not None:
        out["sigmas"] = scheduler.sigmas.float()
    case = {"class": cls, "config": config, "step": args, "noise_used": len(drawn), "init_noise_sigma": float(scheduler.init_noise_sigma)}
    return case, out


def main():
    warnings.filterwarnings("ignore")
    diffusers.utils.logging.set_verbosity_error()
    round_roots_correctly()
    g = torch.Generator("cpu").manual_seed(SEED)
    start = torch.randn(SHAPE, generator=g)
    noise = torch.randn((40, *SHAPE[1:]), generator=g)
    drawn = feed_noise(noise)
    r = random.Random(SEED)
    cases, tensors = {}, {"start": start.reshape(1, -1), "noise": noise.reshape(len(noise), -1)}

    def add(cls, config, steps, eta):
        case, out = run(cls, config, steps, eta, start, drawn)
        name = f"{cls}.{len(cases)}.{steps}"
        cases[name] = case
        tensors.update({f"{name}.{k}": v for k, v in out.items()})

    for cls, config, steps in PICKED:
        add(cls, dict(dict(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear"), **config), steps, 0.0)
    for cls in CLASSES:
        most = len(cases) + CASES_A_CLASS
        while len(cases) < most:
            try:
                add(cls, draw_config(r, cls), r.choice([2, 3, 5, 7, 9, 11, 15, 16, 17, 23]), r.choice([0.0, 0.5]))
            except Exception:  # what diffusers refuses, or cannot do
                continue
    header, data = {}, b""
    for name, t in tensors.items():
        raw = t.contiguous().numpy().astype("<f4").tobytes()
        shape = [1, t.numel()] if name.endswith(".final") else list(t.shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    (OUT / "schedulers-more.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    (OUT / "schedulers-more.json").write_text(json.dumps({"cases": cases, "skipped": {}}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
