"""The model's own vocabulary: CLIP's byte-level BPE, 4,096 tokens, learnt from the names, keywords and templates.

  python tools/train/tokenizer.py --work WORK --cldr DIR/annotations/en.xml      -> WORK/tokenizer/
"""
import argparse
import collections
import json
import os
import random
import re
import xml.etree.ElementTree as ET

import drawings
import scenes

SIZE, LENGTH = 4096, 80
SPLIT = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d|[^\W\d_]+|\d|[^\s\w]+", re.I)
COMMON = """photo image picture painting art artwork portrait landscape beautiful cute high quality detailed simple little tiny huge
color colour style digital cartoon vector clipart sticker logo symbol sign front behind under over side left right top bottom
two three four five many some one is are has its his her my your sitting standing running flying eating playing holding
wearing riding looking sky sea water forest city night day summer winter light dark bright pastel big small large the of in
an and with on at to near by from black white gray grey red orange yellow green blue purple pink brown teal beige golden silver"""


def bytes_to_unicode():
    bs = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    cs, n = bs[:], 0
    for b in range(256):
        if b not in bs:
            bs.append(b)
            cs.append(256 + n)
            n += 1
    return dict(zip(bs, map(chr, cs)))


def learn(counts, size):
    """counts: word -> how often. Returns (vocabulary, merges)."""
    b2u = bytes_to_unicode()
    base = list(b2u.values())
    seqs = {w: [b2u[b] for b in w.encode()] for w in counts}
    for s in seqs.values():
        s[-1] += "</w>"
    merges = []
    pairs, where = collections.Counter(), collections.defaultdict(set)
    for w, s in seqs.items():
        for p in zip(s, s[1:]):
            pairs[p] += counts[w]
            where[p].add(w)
    while len(merges) < size - 514 and pairs:
        best = max(pairs.items(), key=lambda kv: (kv[1], kv[0]))[0]
        if pairs[best] <= 0:
            break
        merges.append(best)
        for w in list(where[best]):
            s = seqs[w]
            for p in zip(s, s[1:]):
                pairs[p] -= counts[w]
            i = 0
            while i < len(s) - 1:
                if (s[i], s[i + 1]) == best:
                    s[i:i + 2] = [s[i] + s[i + 1]]
                i += 1
            for p in zip(s, s[1:]):
                pairs[p] += counts[w]
                where[p].add(w)
    tokens = base + [c + "</w>" for c in base] + [a + b for a, b in merges] + ["<|startoftext|>", "<|endoftext|>"]
    return {t: i for i, t in enumerate(tokens)}, merges


def word_counts(D, cldr):
    counts = collections.Counter()
    def add(text, n):
        for w in SPLIT.findall(text.lower()):
            counts[w] += n
    for i in D.named:
        e = D.items[i]
        for n in [e["name"]] + e["aliases"]:
            add(n, 60)
            add(scenes.plural(n), 40)
    for a in ET.parse(cldr).getroot().iter("annotation"):
        add((a.text or "").replace("|", " "), 4)
    rng = random.Random(0)
    mix = dict(single=1, small=1, placed=1, count=1, pair=1, colour=0.4)
    for _ in range(4000):
        add(scenes.caption(D, scenes.random_scene(D, rng, D.named, mix), rng), 2)
    add(COMMON, 60)
    for c in "abcdefghijklmnopqrstuvwxyz0123456789":
        counts[c] += 1
    return counts


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--work", required=True)
    ap.add_argument("--cldr", required=True)
    a = ap.parse_args()
    out = os.path.join(a.work, "tokenizer")
    os.makedirs(out, exist_ok=True)
    vocab, merges = learn(word_counts(drawings.Drawings(a.work), a.cldr), SIZE)
    with open(os.path.join(out, "vocab.json"), "w", encoding="utf-8") as f:
        json.dump(vocab, f, ensure_ascii=False)
    with open(os.path.join(out, "merges.txt"), "w", encoding="utf-8") as f:
        f.write("#version: 0.2\n" + "".join(f"{x} {y}\n" for x, y in merges))
    special = dict(bos_token="<|startoftext|>", eos_token="<|endoftext|>", unk_token="<|endoftext|>", pad_token="<|endoftext|>")
    with open(os.path.join(out, "special_tokens_map.json"), "w") as f:
        json.dump(special, f, indent=1)
    with open(os.path.join(out, "tokenizer_config.json"), "w") as f:
        json.dump(dict(tokenizer_class="CLIPTokenizer", model_max_length=LENGTH, do_lower_case=True, add_prefix_space=False,
                       errors="replace", **special), f, indent=1)
    print(len(vocab), "tokens")


if __name__ == "__main__":
    main()
