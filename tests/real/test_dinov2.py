"""DINOv2 ViT-S/14: a head finds what is drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from tests.invoke import attnviz


def test_a_head_of_the_last_layer_looks_at_a_drawn_disc(dinov2: Path, tmp_path: Path) -> None:
    picture = Image.new("RGB", (224, 224), (225, 225, 225))
    ImageDraw.Draw(picture).ellipse((120, 90, 174, 144), fill=(200, 30, 30))
    picture.save(tmp_path / "disc.png")
    done = attnviz("image", tmp_path / "disc.png", "--model", dinov2, "-f", "json", "-q")
    (item,) = done.json()["maps"]
    look = np.array(item["weights"])[-1, :, 0, 1:].reshape(6, 16, 16)
    there = np.zeros((16, 16), dtype=bool)
    there[90 // 14 : 144 // 14 + 1, 120 // 14 : 174 // 14 + 1] = True
    shares = look[:, there].sum(axis=1) / look.sum(axis=(1, 2))
    assert shares.max() > 0.5
    assert there.mean() < 0.1
