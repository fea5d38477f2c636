"""Scenes: what stands where on which background; the picture and a caption made from it.

A scene is (background, parts, kind): background a name of BACKGROUNDS, parts a list of (drawing, colour or None, size,
x, y) in pixels of a 512x512 picture, kind the word for the arrangement. Positions lie on the latents' grid of 32
pixels, so that one drawing has one latent pattern for each size. Combinations held out to judge how words compose
(object x background, object x colour, pairs) never appear in training: see held_out().
"""
import random
import re
import zlib

import numpy as np

import drawings

SIDE, CELL = 512, 32
BACKGROUNDS = {
    "white": (255, 255, 255), "black": (16, 16, 20), "gray": (150, 152, 158), "red": (214, 48, 49),
    "orange": (250, 150, 50), "yellow": (255, 221, 85), "green": (72, 170, 84), "light green": (176, 228, 160),
    "dark green": (22, 84, 52), "blue": (52, 110, 220), "light blue": (160, 210, 250), "dark blue": (22, 40, 104),
    "purple": (136, 78, 190), "pink": (250, 170, 200), "brown": (128, 84, 54), "teal": (40, 160, 160),
    "beige": (240, 224, 190),
}
NAMES = list(BACKGROUNDS)

# ---------------------------------------------------------------- arrangements: kind -> [(size, x, y), ...]
PLACES = {
    "left": (0, 96), "right": (192, 96), "top": (96, 0), "bottom": (96, 192), "top left": (0, 0), "top right": (192, 0),
    "bottom left": (0, 192), "bottom right": (192, 192),
}
COUNTS = {
    "two": [(320, -32, 96), (320, 224, 96)],
    "three": [(256, 128, 0), (256, 0, 256), (256, 256, 256)],
    "four": [(256, 0, 0), (256, 256, 0), (256, 0, 256), (256, 256, 256)],
}
PAIR = COUNTS["two"]


def held_out(kind, *words):
    """Whether a combination is kept for judging: a tenth of the backgrounds, a seventh of the colours, a fifth of pairs."""
    h = zlib.crc32("|".join((kind,) + words).encode())
    return h % {"background": 10, "colour": 7, "pair": 5}[kind] == 0


def allowed(D, scene):
    bg, parts, _ = scene
    for i, colour, *_ in parts:
        name = D.items[i]["name"]
        if held_out("background", name, bg) or (colour and held_out("colour", name, colour)):
            return False
    names = sorted({D.items[p[0]]["name"] for p in parts})
    return len(names) < 2 or not held_out("pair", *names)


def single(i, bg="white", colour=None):
    return bg, [(i, colour, 512, 0, 0)], "single"


def pair(i, j, bg="white"):
    return bg, [(k, None, *at) for k, at in zip((i, j), PAIR)], "pair"


def random_scene(D, rng, pool, mix):
    """mix: weights of single, small, placed, count, pair, and the share of recoloured drawings as mix['colour']."""
    while True:
        kinds = [k for k in ("single", "small", "placed", "count", "pair") if mix.get(k)]
        kind = rng.choices(kinds, [mix[k] for k in kinds])[0]
        bg = "white" if rng.random() < mix.get("white", 0.15) else rng.choice(NAMES)
        i = rng.choice(pool)
        colours = D.colours(i)
        colour = rng.choice(colours) if colours and rng.random() < mix.get("colour", 0) else None
        if kind == "single":
            scene = single(i, bg, colour)
        elif kind == "small":
            scene = bg, [(i, colour, 320, 96, 96)], "small"
        elif kind == "placed":
            where = rng.choice(list(PLACES))
            scene = bg, [(i, colour, 320, *PLACES[where])], where
        elif kind == "count":
            n = rng.choice(list(COUNTS))
            scene = bg, [(i, colour, *at) for at in COUNTS[n]], n
        else:
            scene = pair(i, rng.choice([k for k in pool if k != i]), bg)
        if allowed(D, scene):
            return scene


# ---------------------------------------------------------------- pictures
def compose(D, scene, small=False, rgb=None):
    """[512,512,3] uint8, or its 4x4 averages [128,128,3] when small."""
    f = 4 if small else 1
    side = SIDE // f
    im = np.empty((side, side, 3), np.float32)
    im[:] = BACKGROUNDS[scene[0]] if rgb is None else rgb
    for i, colour, size, x, y in scene[1]:
        paste(im, D.picture(i, colour, size, small), x // f, y // f)
    return np.clip(im + 0.5, 0, 255).astype(np.uint8)


def paste(im, g, x, y):
    side, s = im.shape[0], g.shape[0]
    x0, y0, x1, y1 = max(x, 0), max(y, 0), min(x + s, side), min(y + s, side)
    if x0 >= x1 or y0 >= y1:
        return
    g = g[y0 - y:y1 - y, x0 - x:x1 - x].astype(np.float32)
    view = im[y0:y1, x0:x1]
    view *= 1 - g[..., 3:] / 255
    view += g[..., :3]


# ---------------------------------------------------------------- captions
NO_ARTICLE = {"grapes", "cherries", "french fries", "fries", "glasses", "eyeglasses", "sunglasses", "jeans", "trousers",
              "scissors", "socks", "gloves", "headphones", "pancakes", "peanuts", "blueberries", "shorts", "popcorn",
              "sushi", "bacon", "butter", "bread", "corn", "broccoli", "garlic", "spaghetti", "pasta", "cheese", "rice",
              "champagne", "wine", "coffee", "milk", "beer", "honey", "chocolate", "noodles", "ramen", "meat", "fire",
              "lightning", "crossed swords", "luggage", "soap", "thumbs up", "santa claus", "santa", "crocs", "poop"}
PLURALS = {"mouse": "mice", "computer mouse": "computer mice", "sheep": "sheep", "fish": "fish", "deer": "deer",
           "tropical fish": "tropical fish", "knife": "knives", "kitchen knife": "kitchen knives", "wolf": "wolves",
           "tooth": "teeth", "maple leaf": "maple leaves", "goose": "geese", "dice": "dice", "die": "dice",
           "drop of water": "drops of water", "slice of cake": "slices of cake", "cup of coffee": "cups of coffee",
           "glass of milk": "glasses of milk", "glass of wine": "glasses of wine", "bowl of rice": "bowls of rice",
           "bowl of noodles": "bowls of noodles", "squid": "squid", "aircraft": "aircraft", "piece of cheese": "pieces of cheese",
           "face with heart eyes": "faces with heart eyes", "face with sunglasses": "faces with sunglasses",
           "meat on a bone": "pieces of meat on a bone", "drink with a straw": "drinks with a straw",
           "bow and arrow": "bows and arrows", "egg in a pan": "eggs in a pan", "chess pawn": "chess pawns",
           "cup of tea": "cups of tea", "mug of beer": "mugs of beer", "bag of money": "bags of money",
           "bunch of flowers": "bunches of flowers", "bunch of grapes": "bunches of grapes", "slice of pizza": "slices of pizza",
           "ear of corn": "ears of corn", "loaf of bread": "loaves of bread", "slice of watermelon": "slices of watermelon",
           "bottle of champagne": "bottles of champagne", "pile of poo": "piles of poo"}
STYLES = ("a drawing of {}", "a picture of {}", "an emoji of {}", "a simple drawing of {}", "{}, flat colours", "an icon of {}")
WITH_COLOUR = ("{} on a {} background",) * 6 + ("{}, {} background", "{} with a {} background", "{} on {}", "{} in front of a {} background")


def article(n):
    if n in NO_ARTICLE:
        return n
    return ("an " if n[0] in "aeiou" and not n.startswith(("ufo", "uni")) else "a ") + n


def plural(n):
    if n in PLURALS:
        return PLURALS[n]
    if n in NO_ARTICLE:
        return n
    if n.endswith(("s", "x", "ch", "sh")):
        return n + "es"
    if n.endswith("y") and n[-2] not in "aeiou":
        return n[:-1] + "ies"
    return n + "s"


def noun(D, part, rng, many=False):
    e = D.items[part[0]]
    n = rng.choice(e["aliases"]) if e["aliases"] and rng.random() < 0.3 else e["name"]
    colour = part[1]
    if colour:
        n = re.sub(r"^(red|pink|brown) ", "", n)
    elif e.get("colour") in drawings.FILLS and rng.random() < 0.12 and not re.match(r"(red|pink|brown) ", n):
        colour = e["colour"]
    return (colour + " " if colour else "") + (plural(n) if many else n)


def words(D, scene, rng):
    """What stands there, without the background."""
    _, parts, kind = scene
    if kind == "pair":
        a, b = (article(noun(D, p, rng)) for p in parts)
        return rng.choice(("{} and {}",) * 3 + ("{} next to {}", "{} beside {}")).format(a, b)
    n = noun(D, parts[0], rng, kind in COUNTS)
    if kind in COUNTS:
        return f"{kind} {n}"
    if kind == "small":
        size = rng.choice(("small", "small", "little", "tiny"))
        return f"{size} {n}" if n in NO_ARTICLE else f"a {size} {n}"
    if kind in PLACES:
        prep = "at the" if kind in ("top", "bottom") else "on the" if kind in ("left", "right") else "in the"
        return f"{article(n)} {prep} {kind}" + (" corner" if " " in kind else "")
    return article(n) if rng.random() < 0.85 else n


def caption(D, scene, rng):
    s = words(D, scene, rng)
    if rng.random() < 0.12:
        s = rng.choice(STYLES).format(s)
    bg = scene[0]
    if bg != "white" or rng.random() < 0.25:
        if bg == "gray" and rng.random() < 0.3:
            bg = "grey"
        s = rng.choice(WITH_COLOUR).format(s, bg)
        if bg[0] in "aeiou":
            s = s.replace("a " + bg, "an " + bg)
    return s


def plain(D, scene):
    """The plain template that quality is measured with."""
    bg, parts, kind = scene
    colours = [(p[1] + " " if p[1] else "") for p in parts]
    names = [D.items[p[0]]["name"] for p in parts]
    if kind in COUNTS:
        s = f"{kind} {colours[0]}{plural(names[0])}"
    else:
        s = " and ".join(article(c + n) for c, n in zip(colours, names))
    if bg != "white":
        s += f" on a{'n' if bg[0] in 'aeiou' else ''} {bg} background"
    return s
