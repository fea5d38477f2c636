"""The model directory, in fp16: what StableDiffusionPipeline loads and what `gen` carries.

  python tools/train/export.py --work WORK --out assets/model [--notes NOTES.json]

Weights are the averaged ones of the newest checkpoints. Writes the parts, model_index.json with its "tessera" card
and README.md from card.md; the figures in it come from WORK/log/judge_*.jsonl and WORK/log/judge_vae.jsonl (newest
line of each).
"""
import argparse
import json
import os
import shutil

import torch

import autoencoder
import drawings
import model
import train

HERE = os.path.dirname(os.path.abspath(__file__))
CARD = dict(steps=20, guidance=2.0, width=512, height=512, scheduler="ddim")


def half(m):
    """A copy's place: rounds to fp16, and says what would overflow."""
    worst = max(float(p.abs().max()) for p in m.state_dict().values())
    assert worst < 60000, worst
    return m.half()


def write_parts(work, out):
    text, unet, done = train.averaged(work)
    vae = autoencoder.load_vae(work)
    for name, part in (("text_encoder", text), ("unet", unet), ("vae", vae)):
        half(part).save_pretrained(os.path.join(out, name))
    model.scheduler().save_pretrained(os.path.join(out, "scheduler"))
    shutil.copytree(os.path.join(work, "tokenizer"), os.path.join(out, "tokenizer"), dirs_exist_ok=True)
    shutil.rmtree(os.path.join(out, "tokenizer", ".cache"), ignore_errors=True)
    prefix_text(os.path.join(out, "text_encoder", "model.safetensors"))
    for part in ("unet", "vae"):
        strip(os.path.join(out, part, "config.json"), "_name_or_path")
    return done, {n: sum(p.numel() for p in m.parameters()) for n, m in (("UNet", unet), ("VAE", vae), ("text", text))}


def prefix_text(path):
    """Tensor names as the published checkpoints have them: text_model.*"""
    from safetensors.torch import load_file, save_file
    t = load_file(path)
    if not all(k.startswith("text_model.") for k in t):
        save_file({k if k.startswith("text_model.") else "text_model." + k: v for k, v in t.items()}, path,
                  metadata=dict(format="pt"))


def strip(path, key):
    config = json.load(open(path))
    config.pop(key, None)
    with open(path, "w") as f:
        json.dump(config, f, indent=2, sort_keys=True)
        f.write("\n")


def write_index(out):
    import diffusers
    index = {"_class_name": "StableDiffusionPipeline", "_diffusers_version": diffusers.__version__,
             "feature_extractor": [None, None], "image_encoder": [None, None], "requires_safety_checker": False,
             "safety_checker": [None, None], "scheduler": ["diffusers", "DDIMScheduler"],
             "text_encoder": ["transformers", "CLIPTextModel"], "tokenizer": ["transformers", "CLIPTokenizer"],
             "unet": ["diffusers", "UNet2DConditionModel"], "vae": ["diffusers", "AutoencoderKL"], "tessera": CARD}
    with open(os.path.join(out, "model_index.json"), "w") as f:
        json.dump(index, f, indent=2)
        f.write("\n")


def newest(work, name):
    path = os.path.join(work, "log", f"judge_{name}.jsonl")
    return json.loads(open(path).read().splitlines()[-1]) if os.path.exists(path) else {}


def share(result, key):
    return f"{100 * result[key]:.1f} %" if key in result else "not measured"


def write_card(work, out, done, sizes, notes):
    D = drawings.Drawings(work)
    names, held, vae = newest(work, "names"), newest(work, "held"), newest(work, "vae")
    used = sorted(D.items[i]["name"] for i in D.named if str(D.items[i]["tier"]) in notes.get("tiers", "12"))
    fields = dict(
        unet=f"{sizes['UNet'] / 1e6:.2f} M", vae=f"{sizes['VAE'] / 1e6:.2f} M", text=f"{sizes['text'] / 1e6:.2f} M",
        samples=f"{done:,}", count=str(len(used)), names=", ".join(used), hours=notes.get("hours", "not recorded"),
        good=notes.get("good", "not judged"), bad=notes.get("bad", "not judged"),
        top1=share(names, "top1"), top5=share(names, "top5"), background=share(names, "background"),
        held_background=share(held, "background_object"), held_colour=share(held, "coloured_object"),
        held_pairs=share(held, "pair_both_top1"), held_pairs5=share(held, "pair_both_top5"),
        psnr=f"{vae['psnr']:.1f} dB" if vae else "not measured", noisy=f"{vae['noisy']:.1f} dB" if vae else "not measured",
        edges=f"{vae['edges']:.2f}" if vae else "not measured")
    text = open(os.path.join(HERE, "card.md"), encoding="utf-8").read()
    for k, v in fields.items():
        text = text.replace("{" + k + "}", v)
    with open(os.path.join(out, "README.md"), "w", encoding="utf-8") as f:
        f.write(text)


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--work", required=True)
    ap.add_argument("--out", required=True)
    ap.add_argument("--notes", help="JSON: hours, good, bad (prose for the card), tiers")
    a = ap.parse_args()
    os.makedirs(a.out, exist_ok=True)
    notes = json.load(open(a.notes, encoding="utf-8")) if a.notes else {}
    done, sizes = write_parts(a.work, a.out)
    write_index(a.out)
    write_card(a.work, a.out, done, sizes, notes)
    total = sum(os.path.getsize(os.path.join(d, f)) for d, _, fs in os.walk(a.out) for f in fs)
    print(f"{a.out}: {total / 1e6:.2f} MB, {done} samples, parameters {sizes}")
    assert total <= 24e6, "over 24 MB"


if __name__ == "__main__":
    main()
