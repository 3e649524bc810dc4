"""Packages that some of transformers' processors and towers need, beside the environment.

`nox -s families` installs them into a folder of their own, without what they depend on: attnviz is
tried without them first, as it is used, and with them where a type needs them. torchvision's own
operators are built for another torch; processors of pictures use none of them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / ".nox" / "families-packages"
NAMES = ("torchvision==0.28.0", "torchaudio", "timm", "num2words", "docopt")
SAID = "with torchvision, torchaudio and timm"
OPERATORS = ("nms", "qnms")  # which torchvision describes when it is imported


def are_there() -> bool:
    """Whether they are installed."""
    return (FOLDER / "torchvision").is_dir()


def install() -> None:
    """Put them into the folder; torchaudio without its library, which is for another torch."""
    words = ["install", "-q", "--no-deps", "--target", str(FOLDER), *NAMES]
    subprocess.run([sys.executable, "-m", "pip", *words], check=True)
    shutil.rmtree(FOLDER / "torchaudio" / "lib", ignore_errors=True)


def use() -> None:
    """Let transformers find them; it asks once, when it is imported."""
    import torch

    sys.path.append(str(FOLDER))
    library = torch.library.Library("torchvision", "DEF")
    for name in OPERATORS:
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    KEPT.append(library)


KEPT: list[object] = []
"""torch forgets operators whose library is gone."""


if __name__ == "__main__":
    if not are_there():
        install()
