#!/usr/bin/env python3
"""Writes text/unicode_tables.c: what CLIP's tokenizer needs to know about Unicode.

    python3 tools/make_unicode_tables.py            # rewrites the file
    python3 tools/make_unicode_tables.py --check    # exit 1 when it is not up to date

The data is that of Python 3.11's unicodedata (Unicode 14.0.0), corrected to what the reference tokenizer
(tokenizers 0.23.3) really uses. Its three libraries know three versions of Unicode, and token ids must
be equal for every code point:

  letters, numbers   its regex engine: Unicode 16.0; LETTERS_16 and NUMBERS_16 were assigned after 14.0
  lower case         its language's standard library: Unicode 17.0; LOWER_17 came after 14.0
  NFC                its normaliser: Unicode 9.0; MARKS_AFTER_9 have combining class 0 there, and
                     WHOLE_AT_9 does not decompose

The lists below were found by comparing every code point, and every pair that composes, with that version.
"""
import os
import sys
import unicodedata as ud

LETTERS_16 = """1C89-1C8A A7CB-A7CD A7DA-A7DC 105C0-105F3 10D4A-10D65 10D6F-10D85 10EC2-10EC4 1123F-11240
11380-11389 1138B 1138E 11390-113B5 113B7 113D1 113D3 11BC0-11BE0 11F02 11F04-11F10 11F12-11F33 1342F
13441-13446 13460-143FA 16100-1611D 16D40-16D6C 18CFF 1B132 1B155 1DF25-1DF2A 1E030-1E06D 1E4D0-1E4EB
1E5D0-1E5ED 1E5F0 2B739 2EBF0-2EE5D 31350-323AF"""
NUMBERS_16 = """10D40-10D49 116D0-116E3 11BF0-11BF9 11F50-11F59 16130-16139 16D70-16D79 1CCF0-1CCF9 1D2C0-1D2D3
1E4F0-1E4F9 1E5F1-1E5FA"""
LOWER_17 = {0x1C89: 0x1C8A, 0xA7CB: 0x264, 0xA7CC: 0xA7CD, 0xA7CE: 0xA7CF, 0xA7D2: 0xA7D3, 0xA7D4: 0xA7D5,
            0xA7DA: 0xA7DB, 0xA7DC: 0x19B, **{c: c + 0x20 for c in range(0x10D50, 0x10D66)},
            **{c: c + 0x1B for c in range(0x16EA0, 0x16EB9)}}
MARKS_AFTER_9 = """7FD 898-89F 8CA-8D3 9FE C3C D3B-D3C EBA 1715 1ABF-1ACE 1DF6-1DFA A82C 10D24-10D27 10EAB-10EAC
10F46-10F50 10F82-10F85 11070 1133B 1145E 11839-1183A 1193D-1193E 11943 119E0 11A34 11A47 11A99 11D42
11D44-11D45 11D97 16FF0-16FF1 1E130-1E136 1E2AE 1E2EC-1E2EF"""
WHOLE_AT_9 = {0x11938}

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
OTHER, LETTER, NUMBER, SPACE = range(4)  # tsr_char_class
HANGUL = range(0xAC00, 0xD7A4)


def code_points(text):
    """The set that "A-B C" names."""
    out = set()
    for part in text.split():
        first, _, last = part.partition("-")
        out.update(range(int(first, 16), int(last or first, 16) + 1))
    return out


def ranges(values):
    """Runs of one value in a {code point: value}: [first, how many more, value]."""
    out = []
    for c in sorted(values):
        if out and sum(out[-1][:2]) == c - 1 and out[-1][2] == values[c]:
            out[-1][1] += 1
        else:
            out.append([c, 0, values[c]])
    return out


def char_classes():
    letters, numbers = code_points(LETTERS_16), code_points(NUMBERS_16)
    out = {}
    for c in CODE_POINTS:
        kind = ud.category(chr(c))[0]
        if kind == "L" or c in letters:
            out[c] = LETTER
        elif kind == "N" or c in numbers:
            out[c] = NUMBER
        elif chr(c).isspace() and not 0x1C <= c <= 0x1F:  # White_Space does not hold the separators
            out[c] = SPACE
    return ranges(out)


def lower_runs():
    """[first, how many more, step, delta]: they lie step apart and lower by adding delta."""
    pairs = {c: ord(chr(c).lower()) for c in CODE_POINTS if len(chr(c).lower()) == 1 and chr(c).lower() != chr(c)}
    pairs.update(LOWER_17)
    out = []
    for c, low in sorted(pairs.items()):
        first, more, step, delta = out[-1] if out else (-9, 0, 1, 0)
        gap = c - (first + more * step)
        if low - c == delta and (gap == step or (gap == 2 and more == 0)):
            out[-1][1:3] = more + 1, gap
        else:
            out.append([c, 0, 1, low - c])
    return out


def combining_classes():
    late = code_points(MARKS_AFTER_9)
    return ranges({c: ud.combining(chr(c)) for c in CODE_POINTS if ud.combining(chr(c)) and c not in late})


def decompositions():
    """[code point, first, second or 0]: one step of the canonical decomposition, Hangul left out."""
    out = []
    for c in CODE_POINTS:
        parts = ud.decomposition(chr(c)).split()
        if parts and not parts[0].startswith("<") and c not in HANGUL and c not in WHOLE_AT_9:
            out.append([c] + [int(p, 16) for p in parts] + [0] * (2 - len(parts)))
    return out


def compositions(decomposed):
    """Indices of the pairs that compose again, sorted by the pair."""
    index = [i for i, (c, a, b) in enumerate(decomposed)
             if b and ud.normalize("NFC", chr(a) + chr(b)) == chr(c)]
    return sorted(index, key=lambda i: decomposed[i][1:])


def emit(kind, name, cells):
    lines, line = [], "   "
    for cell in cells:
        if len(line) + len(cell) + 2 > 100:
            lines.append(line)
            line = "   "
        line += " " + cell + ","
    lines.append(line)
    return f"const {kind} {name}[{len(cells)}] = {{\n" + "\n".join(lines) + "\n};\n"


def main():
    if ud.unidata_version != "14.0.0":
        sys.exit(f"this Python has Unicode {ud.unidata_version}; 14.0.0 (Python 3.11) is needed for the same tables")
    decomposed = decompositions()
    tables = [
        ("tsr_unicode_range", "tsr_unicode_classes", [f"{{0x{a:X}, {n}, {k}}}" for a, n, k in char_classes()]),
        ("tsr_unicode_lower_run", "tsr_unicode_lower_runs",
         [f"{{0x{a:X}, {n}, {s}, {d}}}" for a, n, s, d in lower_runs()]),
        ("tsr_unicode_range", "tsr_unicode_combining", [f"{{0x{a:X}, {n}, {k}}}" for a, n, k in combining_classes()]),
        ("tsr_unicode_decomposition", "tsr_unicode_decomposed",
         [f"{{0x{c:X}, 0x{a:X}, 0x{b:X}}}" if b else f"{{0x{c:X}, 0x{a:X}, 0}}" for c, a, b in decomposed]),
        ("uint16_t", "tsr_unicode_composed", [str(i) for i in compositions(decomposed)]),
    ]
    source = ("/* unicode_tables.c -- made by tools/make_unicode_tables.py; do not edit.\n"
              " *\n"
              " * Unicode 14.0.0, with the reference tokenizer's letters and numbers of 16.0, lower case of 17.0,\n"
              " * and the normaliser's combining classes and decompositions of 9.0. See unicode_tables.h. */\n"
              "#include \"text/unicode_tables.h\"\n\n/* clang-format off */\n\n" + "\n".join(emit(*t) for t in tables))
    header = open(os.path.join(ROOT, "text/unicode_tables.h"), encoding="utf-8").read()
    for _, name, cells in tables:
        if f"{name}[{len(cells)}]" not in header:
            sys.exit(f"text/unicode_tables.h must declare {name}[{len(cells)}]")
    path = os.path.join(ROOT, "text/unicode_tables.c")
    if "--check" in sys.argv[1:]:
        sys.exit(0 if open(path, encoding="utf-8").read() == source else f"{path} is not up to date")
    with open(path, "w", encoding="utf-8") as f:
        f.write(source)


if __name__ == "__main__":
    main()
