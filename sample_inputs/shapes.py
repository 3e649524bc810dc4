"""Draw shapes.png, a small picture in the public domain to try `attnviz image` on."""

from pathlib import Path

from PIL import Image, ImageDraw

FINE = 4
"""Drawn this many times as large and scaled down, so that edges come out smooth."""
FORMS = [
    ("rectangle", [(0, 160), (320, 224)], (214, 222, 204)),
    ("ellipse", [(36, 28), (104, 96)], (232, 178, 60)),
    ("polygon", [(150, 160), (200, 62), (250, 160)], (74, 111, 165)),
    ("polygon", [(184, 94), (200, 62), (216, 94)], (250, 250, 250)),
    ("rectangle", [(58, 132), (110, 184)], (178, 74, 58)),
    ("polygon", [(50, 132), (84, 102), (118, 132)], (92, 60, 52)),
    ("rectangle", [(77, 156), (92, 184)], (60, 42, 38)),
    ("rectangle", [(272, 132), (280, 190)], (110, 80, 56)),
    ("ellipse", [(250, 86), (302, 144)], (86, 136, 84)),
]

picture = Image.new("RGB", (320 * FINE, 224 * FINE), (246, 243, 235))
draw = ImageDraw.Draw(picture)
for form, corners, color in FORMS:
    getattr(draw, form)([(x * FINE, y * FINE) for x, y in corners], fill=color)
small = picture.resize((320, 224), Image.Resampling.LANCZOS)
few = small.quantize(64, dither=Image.Dither.NONE)
few.save(Path(__file__).with_suffix(".png"), optimize=True)
