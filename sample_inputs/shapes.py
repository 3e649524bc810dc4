"""Draw shapes.png, a small picture in the public domain to try `attnviz image` on."""

from math import cos, pi, sin
from pathlib import Path

from PIL import Image, ImageDraw

SIDE, FINE = 240, 4
"""Pixels of a side; drawn so many times as large and scaled down, so that edges come out smooth."""
ARM = 8
STAR = [
    (r * cos(pi * n / 5 - pi / 2), r * sin(pi * n / 5 - pi / 2))
    for n, r in enumerate((30, 12.6) * 5)
]
HALF = [(-ARM, -24), (ARM, -24), (ARM, -ARM), (24, -ARM), (24, ARM), (ARM, ARM)]
CROSS = HALF + [(-x, -y) for x, y in HALF]
FORMS = [
    ("rectangle", [(0, 168), (240, 240)], (214, 222, 204)),
    ("ellipse", [(22, 24), (84, 86)], (74, 111, 165)),
    ("polygon", [(124, 22), (150, 67), (98, 67)], (58, 92, 150)),
    ("polygon", [(66 + x, 136 + y) for x, y in STAR], (226, 150, 46)),
    ("rectangle", [(168, 44), (216, 92)], (92, 130, 184)),
    (
        "polygon",
        [(184 + x, 136 + y) for x, y in CROSS],
        (66, 98, 158),
    ),
    ("ellipse", [(94, 164), (150, 220)], (84, 122, 178)),
]

picture = Image.new("RGB", (SIDE * FINE, SIDE * FINE), (246, 243, 235))
draw = ImageDraw.Draw(picture)
for form, corners, color in FORMS:
    getattr(draw, form)([(x * FINE, y * FINE) for x, y in corners], fill=color)
small = picture.resize((SIDE, SIDE), Image.Resampling.LANCZOS)
few = small.quantize(64, dither=Image.Dither.NONE)
few.save(Path(__file__).with_suffix(".png"), optimize=True)
