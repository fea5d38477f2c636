#!/usr/bin/env python3
"""Makes tests/data, the small golden files that the tests of a fresh clone need.

    tools/make_test_data.py --reference DIR [--only TOPIC]...

DIR holds the reference results (golden/ and models/). tests/data is laid out in the same way, so that one test can
run over both. Each topic below is one function, takes the reference folder and the output folder, and makes
its files from scratch; whatever is written depends on the reference alone. Python's standard library only.
"""

import argparse
import json
import pathlib
import shutil
import struct
import sys

MOST_BYTES = 15 << 20  # of tests/data as a whole


def copy(reference, out, *paths):
    """Copies files, or folders with everything in them, to the same place under `out`."""
    for path in paths:
        source, target = reference / path, out / path
        if source.is_dir():
            shutil.rmtree(target, ignore_errors=True)
        for file in sorted(source.rglob("*")) if source.is_dir() else [source]:
            if file.is_file():
                to = out / file.relative_to(reference)
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, to)


def rng(reference, out):
    """Words and normals of torch's generators, all seeds and shapes."""
    copy(reference, out, "golden/rng.safetensors")


def nets(reference, out):
    """UNet and autoencoder of the three small models, with all their cases. sd1-tiny is too big; its kinds of layers
    are in the others."""
    for model in ("sd1-odd", "sd2-tiny", "sdxl-tiny"):
        copy(reference, out, f"models/{model}/unet", f"models/{model}/vae")
        copy(reference, out, f"golden/unet-{model}.safetensors", f"golden/vae-{model}.safetensors")


def text(reference, out):
    """CLIP's whole vocabulary, once, with the tokenizer's cases; the text encoders' results of the models that
    the topic e2e copies."""
    for name in ("vocab.json", "merges.txt"):
        (out / "tokenizer/clip").mkdir(parents=True, exist_ok=True)
        shutil.copyfile(reference / f"models/sd1-odd/tokenizer/{name}", out / f"tokenizer/clip/{name}")
    copy(reference, out, "golden/tokenizer.jsonl", "golden/text-sd1-odd.safetensors", "golden/text-sd2-tiny.safetensors")


def e2e(reference, out):
    """Two whole models with their pipeline calls. Their tokenizers share one vocabulary, tokenizer/clip, by links;
    the manifest is the reference's, cut to these cases."""
    manifest = json.loads((reference / "manifest.json").read_text())
    kept = json.loads((out / "manifest.json").read_text()) if (out / "manifest.json").exists() else {}
    for model, cases in (("sd1-odd", ["odd-ddim"]), ("sd2-tiny", ["sd2-ddim-v", "sd2-euler-v-rescale"])):
        copy(reference, out, f"models/{model}/model_index.json", f"models/{model}/scheduler", f"models/{model}/text_encoder")
        copy(reference, out, *(f"models/{model}/tokenizer/{name}.json" for name in ("tokenizer_config", "special_tokens_map")))
        for name in ("vocab.json", "merges.txt"):
            link = out / f"models/{model}/tokenizer/{name}"
            link.unlink(missing_ok=True)
            link.symlink_to(f"../../../tokenizer/clip/{name}")
        for case in cases:
            copy(reference, out, f"golden/e2e/{case}.safetensors", f"golden/e2e/{case}.png")
            kept[f"golden/e2e/{case}.safetensors"] = {"case": manifest[f"golden/e2e/{case}.safetensors"]["case"]}
    (out / "manifest.json").write_text(json.dumps(kept, indent=1) + "\n")


def configs(reference, out):
    """The configs of SD 1.5 and SDXL base, and the tensors of SD 1.5, for tools/hashed_weights (with --tokenizers tests/data)."""
    for model in ("sd15", "sdxl"):
        for file in sorted((reference / "full" / model).rglob("*.json")):
            if file.name != "tensors.json":
                copy(reference, out, str(file.relative_to(reference)))
    tensors = (reference / "full/sd15/tensors.json").read_text()
    (out / "full/sd15/tensors.json").write_text(tensors.replace("models/sd1-tiny/tokenizer", "models/sd1-odd/tokenizer"))


def schedulers(reference, out):
    """Every sampler, spacing and prediction, at 1, 4 and 20 steps. Samplers work element by element, so the first
    sixteen of each latent say as much as all."""
    keep = 16
    index = json.loads((reference / "golden/schedulers.json").read_text())
    cases = {name: case for name, case in index["cases"].items() if not name.endswith(".50")}
    tensors = {}
    for name, (shape, values) in read_floats(reference / "golden/schedulers.safetensors").items():
        case, _, kind = name.rpartition(".")
        if case in cases and kind in ("timesteps", "sigmas"):
            tensors[name] = (shape, values)
        elif case in cases or name in ("start", "noise"):
            n = len(values) // shape[0]
            tensors[name] = ([shape[0], keep], [v for row in range(shape[0]) for v in values[row * n : row * n + keep]])
    index["cases"] = {name: {k: v for k, v in case.items() if k != "max"} for name, case in cases.items()}
    (out / "golden/schedulers.json").write_text(json.dumps(index, separators=(",", ":")) + "\n")
    write_floats(out / "golden/schedulers.safetensors", tensors)


def read_floats(path):
    """{name: (shape, values)} of a safetensors file of F32 tensors."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            tensors[name] = (entry["shape"], struct.unpack(f"<{(end - begin) // 4}f", data[begin:end]))
    return tensors


def write_floats(path, tensors):
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * len(values)]}
        data += struct.pack(f"<{len(values)}f", *values)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


TOPICS = [configs, rng, nets, text, e2e, schedulers]


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reference", type=pathlib.Path, required=True, help="folder with golden/ and models/")
    parser.add_argument("--only", action="append", choices=[t.__name__ for t in TOPICS], help="make this topic only")
    args = parser.parse_args()
    out = root / "tests" / "data"
    if not (args.reference / "golden").is_dir():
        sys.exit(f"{args.reference} has no golden/ in it")
    for topic in TOPICS:
        if not args.only or topic.__name__ in args.only:
            print(topic.__name__)
            topic(args.reference, out)
    size = sum(f.stat().st_size for f in out.rglob("*") if f.is_file() and not f.is_symlink())
    print(f"tests/data has {size / 2**20:.2f} MiB of at most {MOST_BYTES >> 20}")
    if size > MOST_BYTES:
        sys.exit("that is too much")


if __name__ == "__main__":
    main()
