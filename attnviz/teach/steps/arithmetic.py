"""Scaled dot-product attention taken apart (Vaswani 2017, section 3.2.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from attnviz.core.errors import InputError, UsageError
from attnviz.mechanisms.arrays import softmax, transpose
from attnviz.mechanisms.dot_product import causal_mask
from attnviz.teach.steps.given import Floats, Given

Stage = Literal["inputs", "projections", "projected", "scores", "output"]


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """One matrix of the calculation.

    Attributes:
        formula: how it comes about ("query @ keyᵀ"); empty where it was given.
        rows: a name for each row, or nothing where rows are features.
    """

    name: str
    values: NDArray[Any]
    formula: str
    operands: tuple[str, ...]
    stage: Stage
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Every matrix of one calculation, in the order it is done."""

    title: str
    matrices: tuple[Matrix, ...]
    query_tokens: tuple[str, ...]
    key_tokens: tuple[str, ...]
    origin: str = "given"
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.matrix(name).values

    def __iter__(self) -> Iterator[Matrix]:
        return iter(self.matrices)

    def matrix(self, name: str) -> Matrix:
        """The matrix of that name, with its formula."""
        return {matrix.name: matrix for matrix in self}[name]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Both lists of tokens and each matrix by name, as an .npz archive has them."""
        tokens = {"query_tokens": self.query_tokens, "key_tokens": self.key_tokens}
        words = {name: np.array(found) for name, found in tokens.items()}
        return words | {matrix.name: matrix.values for matrix in self}

    def data(self) -> dict[str, Any]:
        """As a JSON object has it: schema, title, formulas, notes, tokens, every matrix as rows."""
        formulas = [f"{matrix.name} = {matrix.formula}" for matrix in self if matrix.formula]
        texts = {"schema": 1, "title": self.title, "formulas": "\n".join(formulas)}
        notes = {"notes": "\n".join(self.notes)} if self.notes else {}
        tokens = {"query_tokens": self.query_tokens, "key_tokens": self.key_tokens}
        matrices = {matrix.name: np.ascontiguousarray(matrix.values) for matrix in self}
        return {**texts, **notes, **tokens, **matrices}


def arithmetic(given: Given, *, causal: bool = False) -> Steps:
    """Attention matrix by matrix, from the inputs to the output.

    With projections: query, key and value, scores, scaled scores, weights, output. Without: the
    inputs take the place of all three and nothing is scaled, which is naive attention. Rows of
    weights sum to 1, or to 0 where all is masked.
    """
    working = _Working(given)
    query, key, value = working.project()
    with np.errstate(over="ignore", invalid="ignore"):
        scores = working.add(
            "scores", working[query] @ transpose(working[key]), f"{query} @ {key}ᵀ", (query, key)
        )
        if given.projections:
            size = working[query].shape[1]
            divided = working["scores"] / size**0.5
            scores = working.add("scaled_scores", divided, f"scores / √{size}", ("scores",))
        mask = working.mask(causal)
        shown = f"softmax({scores}{' where mask' if mask is not None else ''})"
        operands = (scores,) if mask is None else (scores, "mask")
        weights = working.add("weights", softmax(working[scores], mask), shown, operands)
        working.add(
            "output", working[weights] @ working[value], f"weights @ {value}", (weights, value)
        )
    return working.done(causal)


class _Working:
    """The matrices so far; each is added under its name and refused if it overflowed."""

    def __init__(self, given: Given) -> None:
        self.given = given
        self.found: dict[str, Matrix] = {}
        counts = [len(given.inputs[name]) for name in given.names]
        letters = "xx" if given.key_value_input is None else "qk"
        self.queries = given.query_tokens or tuple(f"{letters[0]}{i}" for i in range(counts[0]))
        self.keys = given.key_tokens or tuple(f"{letters[1]}{i}" for i in range(counts[1]))

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.found[name].values

    def add(
        self, name: str, values: NDArray[Any], formula: str = "", operands: tuple[str, ...] = ()
    ) -> str:
        if not np.isfinite(values).all():
            raise InputError(f"{name} overflows: the numbers it is made from are too large")
        self.found[name] = Matrix(name, values, formula, operands, *self._place(name))
        return name

    def project(self) -> tuple[str, str, str]:
        asking, asked = self.given.names
        for name, inputs in self.given.inputs.items():
            self.add(name, inputs)
        if not self.given.projections:
            return asking, asked, asked
        for name, matrix in self.given.projections.items():
            self.add(name, matrix)
        for name, source in (("query", asking), ("key", asked), ("value", asked)):
            with np.errstate(over="ignore", invalid="ignore"):
                projected = self[source] @ self[f"w_{name}"]
            self.add(name, projected, f"{source} @ w_{name}", (source, f"w_{name}"))
        return "query", "key", "value"

    def mask(self, causal: bool) -> NDArray[np.bool_] | None:
        given = self.given.mask
        if not causal:
            if given is not None:
                self.add("mask", given)
            return given
        if len(self.queries) != len(self.keys):
            raise UsageError(
                f"--causal needs one sequence, but there are {len(self.queries)} queries "
                f"and {len(self.keys)} keys"
            )
        like = self.given.query_input
        triangle: NDArray[np.bool_] = causal_mask(like, len(self.queries), len(self.keys))
        both = triangle if given is None else triangle & given
        formula = "1 where key position ≤ query position"
        self.add("mask", both, formula if given is None else f"{formula}, and as given")
        return both

    def done(self, causal: bool) -> Steps:
        kind = "scaled dot-product attention" if self.given.projections else "naive attention"
        title = f"{self.given.title} · {'causal ' if causal else ''}{kind}"
        ordered = tuple(self.found.values())
        notes = compare(self.given.claimed, {name: self[name] for name in self.found})
        return Steps(title, ordered, self.queries, self.keys, self.given.origin, notes)

    def _place(self, name: str) -> tuple[Stage, tuple[str, ...], tuple[str, ...]]:
        if name in ("inputs", "query_input"):
            return "inputs", self.queries, ()
        if name == "key_value_input":
            return "inputs", self.keys, ()
        if name in self.given.projections:
            return "projections", (), ()
        if name in ("query", "key", "value"):
            return "projected", self.queries if name == "query" else self.keys, ()
        if name == "output":
            return "output", self.queries, ()
        return "scores", self.queries, self.keys


def compare(claimed: Mapping[str, Floats], computed: Mapping[str, NDArray[Any]]) -> tuple[str, ...]:
    """One line for each result in the file that is not what was computed.

    Differences below 0.001 count as rounding: three printed digits are right.
    """
    notes = []
    for name, values in claimed.items():
        if name not in computed:
            notes.append(f"'{name}' was given, but this calculation has no such matrix")
        elif values.shape != computed[name].shape:
            notes.append(
                f"'{name}' was given as {values.shape}, computed as {computed[name].shape}"
            )
        else:
            apart = np.abs(values - computed[name])
            row, column = np.unravel_index(int(apart.argmax()), apart.shape)
            if apart[row, column] >= 1e-3:
                notes.append(
                    f"'{name}' as given differs from the computed by up to {apart.max():.3g} "
                    f"(row {row}, column {column}: {values[row, column]:.6g} instead of "
                    f"{computed[name][row, column]:.6g})"
                )
    return tuple(notes)
