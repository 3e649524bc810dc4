"""Every matrix by name at full precision, as JSON or as NumPy's .npz; both can be read back."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from attnviz.steps.arithmetic import Steps
from attnviz.storage.json import dump_json

SUFFIXES = (".json", ".npz")


def as_json(steps: Steps) -> str:
    """One JSON object: schema, title, formulas, notes and tokens as text, every matrix as rows."""
    texts = {"schema": 1, "title": steps.title, "formulas": _formulas(steps)}
    notes = {"notes": "\n".join(steps.notes)} if steps.notes else {}
    matrices = {matrix.name: np.ascontiguousarray(matrix.values) for matrix in steps}
    return dump_json({**texts, **notes, **_tokens(steps), **matrices}) + "\n"


def as_npz(steps: Steps) -> bytes:
    """An archive with each matrix under its name and both lists of tokens."""
    arrays: dict[str, Any] = {name: np.array(words) for name, words in _tokens(steps).items()}
    arrays |= {matrix.name: matrix.values for matrix in steps}
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def _tokens(steps: Steps) -> dict[str, tuple[str, ...]]:
    return {"query_tokens": steps.query_tokens, "key_tokens": steps.key_tokens}


def _formulas(steps: Steps) -> str:
    return "\n".join(f"{matrix.name} = {matrix.formula}" for matrix in steps if matrix.formula)
