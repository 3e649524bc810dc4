"""Text into pieces and back, with character offsets into the text as it was given."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

PAD, UNKNOWN, END, ENGLISH, FRENCH, MASK = range(6)
"""The ids of the pieces that stand for no text."""

SPECIALS = ("<pad>", "<unk>", "<eos>", "<en>", "<fr>", "<mask>")
LANGUAGE = {"en": ENGLISH, "fr": FRENCH}

REWRITES = (("\u2019", "'"), ("\u00ad", ""), ("\u200b", ""))
"""What the training text writes one way only; NFKC turns its odd spaces into plain ones."""


@cache
def load_tokenizer(path: Path) -> Any:
    """The `tokenizers.Tokenizer` that a JSON file describes."""
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(path))


def with_rewrites(document: str) -> str:
    """A tokenizer's JSON with the rewrites put before its normaliser, as small as it gets."""
    content = json.loads(document)
    steps = [
        {"type": "Replace", "pattern": {"String": old}, "content": new} for old, new in REWRITES
    ]
    content["normalizer"] = {"type": "Sequence", "normalizers": [*steps, {"type": "NFKC"}]}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))
