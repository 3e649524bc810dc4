"""The end of a training run: the files that ship, measured."""

from __future__ import annotations

import time
from argparse import Namespace
from dataclasses import asdict
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from attnviz.pocket.tokenizer import load_tokenizer
from attnviz.pocket.training.corpus import checksum, read_pairs
from attnviz.pocket.training.export import export, write_json
from attnviz.pocket.training.objective import GUIDE_SHARE, HIDDEN_SHARE, REPEATS_SHARE, SMOOTHING

if TYPE_CHECKING:
    from attnviz.pocket.training.batches import Recipe
    from attnviz.pocket.training.corpus import Pair
    from attnviz.pocket.training.loop import Run, Settings


def finish(
    asked: Namespace, settings: Settings, recipe: Recipe, run: Run, unseen: list[Pair]
) -> None:
    """Write the model and its origin into the run's folder, with figures on the unseen pairs."""
    model = asked.output / "model"
    tokenizer = asked.output / "tokenizer.json"
    export(run.weights, run.sizes, tokenizer, model)
    origin: dict[str, Any] = {
        "data": {
            "file": asked.data.name,
            "sha256": checksum(asked.data),
            "pairs": len(read_pairs(asked.data)) - len(unseen),
            "unseen": len({pair.en for pair in unseen}),
        },
        "unseen": {"file": asked.unseen.name, "sha256": checksum(asked.unseen)}
        if asked.unseen
        else None,
        "started_from": _started_from(asked),
        "commit": _commit(),
        "finished": time.strftime("%Y-%m-%d", time.gmtime()),
        "settings": asdict(settings),
        "recipe": asdict(recipe),
        "objective": {
            "smoothing": SMOOTHING,
            "guide_share": GUIDE_SHARE,
            "hidden_share": HIDDEN_SHARE,
            "repeats_share": REPEATS_SHARE,
        },
        "versions": {name: version(name) for name in ("torch", "numpy", "tokenizers")},
        "figures": {},
    }
    if unseen:
        from attnviz.pocket.training.evaluation import Evaluation, measure

        weights = {name: array.detach() for name, array in run.weights.items()}
        evaluation = Evaluation(weights, run.sizes, load_tokenizer(tokenizer), settings.device)
        origin["figures"]["unseen"] = measure(evaluation, unseen)
    write_json(origin, model / "origin.json")


def _started_from(asked: Namespace) -> dict[str, str] | None:
    if asked.start_from is None:
        return None
    return {"sha256": checksum(asked.start_from / "weights.safetensors")}


def _commit() -> str | None:
    import subprocess

    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip()
