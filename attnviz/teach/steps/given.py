"""What the arithmetic starts from: inputs, projections, a mask and names for the positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from attnviz.core.errors import InputError
from attnviz.models.own import SeededEmbedding, split_words
from attnviz.storage.matrices import read_matrices

Floats = NDArray[np.float64]

PROJECTIONS = ("w_query", "w_key", "w_value")
INPUTS = ("inputs", "query_input", "key_value_input")
TOKENS = ("tokens", "query_tokens", "key_tokens")
COMPUTED = ("query", "key", "value", "scores", "scaled_scores", "weights", "output")
"""What a file may hold besides, to be compared with what is computed."""


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """The matrices that a person writes down before attention begins.

    Attributes:
        query_input: shape (queries, query features).
        key_value_input: shape (keys, key features); None: the queries' own input.
        projections: w_query, w_key and w_value by name, or nothing: naive attention.
        mask: boolean, shape (queries, keys), True where a query may look; None: everywhere.
        claimed: results that came along, by name, to be compared with the computed ones.

    Raises:
        InputError: shapes that do not fit; the message names both.
    """

    title: str
    query_input: Floats
    key_value_input: Floats | None = None
    projections: Mapping[str, Floats] = field(default_factory=dict)
    mask: NDArray[np.bool_] | None = None
    query_tokens: tuple[str, ...] = ()
    key_tokens: tuple[str, ...] = ()
    origin: str = "given"
    claimed: Mapping[str, Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, matrix in {**self.inputs, **self.projections}.items():
            check_matrix(name, matrix)
        if missing := [name for name in PROJECTIONS if name not in self.projections]:
            if self.projections:
                raise InputError(
                    f"{' and '.join(missing)} missing: give {', '.join(PROJECTIONS)}, or none of "
                    "them for attention without projections"
                )
            self._check_columns(*self.names)
        else:
            for name, inputs in zip(
                PROJECTIONS, (self.names[0], *[self.names[1]] * 2), strict=True
            ):
                self._check_rows(inputs, name)
            self._check_columns("w_query", "w_key")
        self._check_mask()
        for name, tokens, inputs in (
            ("query", self.query_tokens, self.names[0]),
            ("key", self.key_tokens, self.names[1]),
        ):
            rows = len(self.inputs[inputs])
            if tokens and len(tokens) != rows:
                raise InputError(
                    f"{inputs} has {rows} rows, but there are {len(tokens)} {name} tokens"
                )

    @property
    def names(self) -> tuple[str, str]:
        """What the input of the queries, and that of the keys and values, are called."""
        names = tuple(self.inputs)
        return names[0], names[-1]

    @property
    def inputs(self) -> dict[str, Floats]:
        """The input, or both inputs, by name."""
        if self.key_value_input is None:
            return {"inputs": self.query_input}
        return {"query_input": self.query_input, "key_value_input": self.key_value_input}

    @classmethod
    def from_matrices(cls, found: Mapping[str, Any], title: str) -> Self:
        """Matrices and lists of words by name: inputs, or query_input and key_value_input.

        Further any of w_query, w_key and w_value, mask, tokens, query_tokens, key_tokens and
        results to compare with.
        """
        known = (*INPUTS, *PROJECTIONS, "mask", *TOKENS, *COMPUTED, "schema")
        for name in found:
            if name not in known:
                raise InputError(f"unknown matrix '{name}': known are {', '.join(known[:-1])}")
        both = [name for name in INPUTS[1:] if name in found]
        if "inputs" in found if both else "inputs" not in found:
            raise InputError(f"give either inputs or query_input and key_value_input{_got(found)}")
        if len(both) == 1:
            lacking = next(name for name in INPUTS[1:] if name not in both)
            raise InputError(
                f"{both[0]} needs {lacking} beside it; for one sequence, call it inputs"
            )
        tokens = found.get("tokens", ())
        return cls(
            title=title,
            query_input=found[both[0] if both else "inputs"],
            key_value_input=found[both[1]] if both else None,
            projections={name: found[name] for name in PROJECTIONS if name in found},
            mask=as_mask(found["mask"]) if "mask" in found else None,
            query_tokens=tuple(found.get("query_tokens", tokens)),
            key_tokens=tuple(found.get("key_tokens", tokens)),
            claimed={name: found[name] for name in COMPUTED if name in found},
        )

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """The matrices of a .json, .npz or .safetensors file."""
        found = read_matrices(path)
        try:
            return cls.from_matrices(found, path.name)
        except InputError as error:
            raise InputError(f"'{path}': {error}") from error

    def _check_rows(self, inputs: str, projection: str) -> None:
        columns, rows = self.inputs[inputs].shape[1], self.projections[projection].shape[0]
        if columns != rows:
            raise InputError(f"{inputs} has {columns} columns but {projection} has {rows} rows")

    def _check_columns(self, first: str, second: str) -> None:
        matrices = {**self.inputs, **self.projections}
        one, other = matrices[first].shape[1], matrices[second].shape[1]
        if one != other:
            raise InputError(
                f"{first} has {one} columns but {second} has {other}: "
                "queries and keys must be of one size to be multiplied"
            )

    def _check_mask(self) -> None:
        shape = tuple(len(self.inputs[name]) for name in self.names)
        if self.mask is not None and self.mask.shape != shape:
            raise InputError(
                f"mask has the shape {self.mask.shape}, not {shape}: a row a query, a column a key"
            )


def check_matrix(name: str, matrix: Floats) -> None:
    """Refuse what has not two axes, or an axis of length 0."""
    if matrix.ndim != 2:
        raise InputError(
            f"{name} has {matrix.ndim} axes, not 2: write a list of rows, as in [[1, 0], [0, 1]]"
        )
    if matrix.size == 0:
        raise InputError(f"{name} is empty: its shape is {matrix.shape}")


def as_mask(values: Floats) -> NDArray[np.bool_]:
    """Ones and zeros as booleans; other numbers, such as the −∞ of some libraries, are refused."""
    if not np.isin(values, (0, 1)).all():
        raise InputError("mask holds other numbers than 1 (a query may look) and 0 (it may not)")
    return values.astype(np.bool_)


def _got(found: Sequence[str] | Mapping[str, Any]) -> str:
    return f"; got {', '.join(found)}" if found else "; got nothing"


# <starts> Where the arithmetic can start without a file: a worked example, or a sentence.


def worked_example() -> Given:
    """Self-attention of head size 2 over three positions, its inputs and projections 0 or 1."""
    inputs = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 1, 1]], dtype=np.float64)
    straight = np.array([[1, 0], [0, 1], [1, 0], [0, 1]], dtype=np.float64)
    swapped = straight[:, ::-1]
    return Given(
        title="worked example",
        query_input=inputs,
        key_value_input=inputs,
        projections={"w_query": straight, "w_key": swapped, "w_value": straight},
    )


def seeded_sentence(sentence: str, size: int, seed: int) -> Given:
    """A sentence's words with the vectors and projections of an untrained own layer.

    They are those of `attnviz self --mechanism scaled` with the same size and seed.
    """
    tokens = split_words(sentence)
    names = tuple(token.text for token in tokens)
    embedding = SeededEmbedding(seed, size)
    return Given(
        title=f"untrained, size {size}, seed {seed}",
        query_input=embedding.embed(tokens),
        projections={name: embedding.projection(name.removeprefix("w_")) for name in PROJECTIONS},
        query_tokens=names,
        key_tokens=names,
        origin="seeded, untrained",
    )
