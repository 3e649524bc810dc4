"""The cards of the shipped models, which training wrote beside their weights."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from attnviz.core.errors import ModelError

FOLDER = Path(__file__).parent / "files"  # weights, tokenizer, configuration, origin
CARDS = {"pocket": FOLDER} | {
    f"pocket-{kind}": FOLDER.parents[1] / f"pocket_{kind}" / "files" for kind in ("lm", "vit")
}
"""The folders of the shipped models."""
ATTRIBUTION = "Sentences from tatoeba.org via www.manythings.org/anki, CC BY 2.0"


@cache
def read_model_file(path: Path) -> dict[str, Any]:
    """One of the files beside a shipped model's weights."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"the pocket model's '{path}' cannot be read") from error
    return content


def tokenizer_of(folder: Path) -> Path:
    """The tokenizer of a folder; the shipped translator's is that of pocket-lm, kept once."""
    return (CARDS["pocket-lm"] if folder == FOLDER else folder) / "tokenizer.json"


def card_of(name: str) -> str:
    """The card of a shipped model: its data, objective, figures, heads' roles and limits."""
    sections = read_model_file(CARDS[name] / "origin.json")["card"]
    return "\n\n".join("\n  ".join([title, *lines]) for title, lines in sections.items()) + "\n"


def summary_of(name: str) -> str:
    """A shipped model in one line for a list of models."""
    return str(read_model_file(CARDS[name] / "origin.json")["summary"])
