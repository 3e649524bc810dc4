"""Weights, tokenizer, configuration and origin as the files that ship."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.pocket.model import Sizes
from attnviz.pocket.tokenizer import SPECIALS
from attnviz.pocket.training.objective import GUIDED_HEAD, GUIDED_LAYER, REPEATS_HEAD, REPEATS_LAYER

if TYPE_CHECKING:
    from torch import Tensor


def export(weights: dict[str, Tensor], sizes: Sizes, tokenizer: Path, folder: Path) -> None:
    """Write what the pocket model is loaded from: float16 weights, tokenizer and configuration.

    The configuration's revision is the checksum of the weights' file.
    """
    from safetensors.numpy import save_file

    from attnviz.pocket.training.corpus import checksum

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "weights.safetensors"
    arrays = {
        name: np.ascontiguousarray(array.detach().cpu().numpy().astype(np.float16))
        for name, array in weights.items()
    }
    save_file(arrays, path)
    if tokenizer.resolve() != (folder / "tokenizer.json").resolve():
        shutil.copyfile(tokenizer, folder / "tokenizer.json")
    config: dict[str, Any] = {
        "revision": checksum(path)[:12],
        "sizes": asdict(sizes),
        "specials": {name: number for number, name in enumerate(SPECIALS)},
        "guided": {"layer": GUIDED_LAYER, "head": GUIDED_HEAD},
        "repeats": {"layer": REPEATS_LAYER, "head": REPEATS_HEAD},
    }
    write_json(config, folder / "config.json")


def write_json(content: dict[str, Any], path: Path) -> None:
    """Write a JSON document that a person can read."""
    text = json.dumps(content, indent=2, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
