"""Train a shipped model: `python -m training.train --model NAME --data FILE --output FOLDER`.

Stages: clean the pairs and keep the unseen ones out; align their words; train with checkpoints;
write weights, tokenizer, configuration and origin; measure on the unseen pairs.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path

from attnviz.core.errors import AttnvizError
from attnviz.models.pocket.card import FOLDER, tokenizer_of

TOKENIZER = tokenizer_of(FOLDER)
MODELS = {"pocket": "stages", "pocket-lm": "causal", "pocket-vit": "picture"}
"""The module that trains each model."""


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """The command line's options, or the given ones."""
    parser = argparse.ArgumentParser(
        prog="python -m training.train",
        description="Train a shipped model from English<TAB>French lines, or from drawings.",
    )
    parser.add_argument(
        "--model", choices=MODELS, default="pocket", help="which one (default pocket)"
    )
    parser.add_argument("--data", type=Path, help="file of English<TAB>French lines")
    parser.add_argument(
        "--output", type=Path, required=True, help="folder for checkpoints and files"
    )
    parser.add_argument(
        "--unseen",
        type=Path,
        help="English sentences kept out, to measure on; of pocket-vit a folder of photographs",
    )
    parser.add_argument(
        "--tokenizer", type=Path, default=TOKENIZER, help="of pocket-lm (default the pocket's own)"
    )
    parser.add_argument("--start-from", type=Path, help="folder with weights and a tokenizer")
    parser.add_argument("--steps", type=int, default=30_000, help="batches (default 30000)")
    parser.add_argument("--rate", type=float, default=2e-3, help="highest rate (default 0.002)")
    parser.add_argument("--warm-up", type=int, default=400, help="steps up to it (default 400)")
    parser.add_argument(
        "--pieces", type=int, default=4000, help="of a batch (default 4000), or pictures"
    )
    parser.add_argument("--seed", type=int, default=0, help="of every draw (default 0)")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or mps (default cpu)")
    parser.add_argument("--save-every", type=int, default=200, help="steps between checkpoints")
    parser.add_argument("--decay", type=float, default=0.01, help="of weights (default 0.01)")
    parser.add_argument("--stop-after", type=int, help="a step to leave at, to go on later")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    parser.add_argument("--compile", action="store_true", help="slow to start, then twice as fast")
    asked = parser.parse_args(given)
    if asked.data is None and asked.model != "pocket-vit":
        parser.error("--data is missing: a file of English<TAB>French lines")
    if asked.unseen is None and asked.model == "pocket-lm":
        parser.error("--unseen is missing: sentences to measure on")
    return asked


def main(given: list[str] | None = None) -> int:
    """Train as asked; the exit status."""
    asked = arguments(given)
    try:
        import_module(f"training.{MODELS[asked.model]}").train(asked)
    except AttnvizError as error:
        print(f"attnviz: error: {error}", file=sys.stderr)
        return error.status
    return 0


if __name__ == "__main__":
    sys.exit(main())
