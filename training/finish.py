"""Weights, tokenizer, configuration and origin as the files that ship."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.models.light.weights import PLANES
from attnviz.models.pocket.model import TranslatorSizes
from attnviz.models.pocket.text import SPECIALS, load_piece_tokenizer
from training.card import describe_translator
from training.corpus import checksum, read_pairs
from training.objective import (
    GUIDE_SHARE,
    GUIDED_HEAD,
    GUIDED_LAYER,
    HIDDEN_SHARE,
    REPEATS_HEAD,
    REPEATS_LAYER,
    REPEATS_SHARE,
    SMOOTHING,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from training.batches import Recipe
    from training.corpus import Pair
    from training.loop import Settings


def export(
    weights: dict[str, Tensor], sizes: TranslatorSizes, tokenizer: Path, folder: Path
) -> None:
    """Write what the pocket model is loaded from: float16 weights, tokenizer and configuration.

    The configuration's revision is the checksum of the weights, before they are split into planes.
    """
    from safetensors.numpy import save, save_file

    folder.mkdir(parents=True, exist_ok=True)
    stored = float16(weights)
    save_file(in_planes(stored), folder / "weights.safetensors", metadata=PLANES)
    if tokenizer.resolve() != (folder / "tokenizer.json").resolve():
        shutil.copyfile(tokenizer, folder / "tokenizer.json")
    config: dict[str, Any] = {
        "revision": hashlib.sha256(save(stored)).hexdigest()[:12],
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


# <finish> The end of a training run: the files that ship, measured.


def finish(
    asked: Namespace,
    settings: Settings,
    recipe: Recipe,
    weights: dict[str, Tensor],
    sizes: TranslatorSizes,
    unseen: list[Pair],
) -> None:
    """Write the model and its origin into the run's folder, with figures on the unseen pairs."""
    model = asked.output / "model"
    tokenizer = asked.output / "tokenizer.json"
    export(weights, sizes, tokenizer, model)
    origin: dict[str, Any] = {
        "data": {
            "file": asked.data.name,
            "sha256": checksum(asked.data),
            "pairs": len(read_pairs(asked.data)) - len(unseen),
            "unseen": len({pair.en for pair in unseen}),
        },
        **origin_of(asked, settings, recipe),
        "objective": {
            "smoothing": SMOOTHING,
            "guide_share": GUIDE_SHARE,
            "hidden_share": HIDDEN_SHARE,
            "repeats_share": REPEATS_SHARE,
        },
        "figures": {},
    }
    if unseen:
        from training.evaluation import Evaluation, measure

        weights = {name: array.detach() for name, array in weights.items()}
        evaluation = Evaluation(weights, sizes, load_piece_tokenizer(tokenizer), settings.device)
        origin["figures"]["unseen"] = measure(evaluation, unseen)
    write_json(origin | describe_translator(origin, model), model / "origin.json")


def origin_of(asked: Namespace, settings: Settings, recipe: Any) -> dict[str, Any]:
    """What a run went through, but for its data and its objective."""
    return {
        "unseen": {"file": asked.unseen.name, "sha256": checksum(asked.unseen)}
        if asked.unseen and asked.unseen.is_file()
        else None,
        "started_from": {"sha256": checksum(weights_in(asked.start_from))}
        if asked.start_from
        else None,
        "commit": _commit(),
        "finished": time.strftime("%Y-%m-%d", time.gmtime()),
        "settings": asdict(settings),
        "recipe": asdict(recipe),
        "versions": {name: version(name) for name in ("torch", "numpy", "tokenizers")},
    }


def weights_in(folder: Path) -> Path:
    """The file of a folder that holds its weights."""
    (path,) = folder.glob("*.safetensors")
    return path


def float16(weights: dict[str, Tensor]) -> dict[str, NDArray[np.float16]]:
    """The weights as they are stored."""
    return {
        name: np.ascontiguousarray(array.detach().cpu().numpy().astype(np.float16))
        for name, array in weights.items()
    }


def in_planes(stored: Mapping[str, NDArray[np.float16]]) -> dict[str, NDArray[np.uint8]]:
    """The low and the high bytes of each array, which `StoredWeights` joins."""
    return {
        name: np.ascontiguousarray(
            np.moveaxis(array.astype("<f2").view(np.uint8).reshape(*array.shape, 2), -1, 0)
        )
        for name, array in stored.items()
    }


def _commit() -> str | None:
    import subprocess

    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip()
