"""Steps as one page: each matrix beside its formula, and what a number is made of on pointing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from attnviz.renderers.page.document import assemble
from attnviz.renderers.printable import printable
from attnviz.teach.steps.arithmetic import Matrix, Steps
from attnviz.teach.steps.show import agreement, edges, numerals, shown_part

MOST = (12, 16)
"""Rows and columns of a matrix that are shown; of more the first and the last."""


def steps_page(calculations: Sequence[Steps], command: str = "") -> str:
    """One HTML file that asks nobody for anything, for one calculation or several."""
    document = {
        "title": printable(
            calculations[0].title if len(calculations) == 1 else f"{len(calculations)} calculations"
        ),
        "command": printable(command),
        "calculations": [_calculation(steps) for steps in calculations],
    }
    return assemble(document, {}, "steps")


def _calculation(steps: Steps) -> dict[str, Any]:
    known = {matrix.name: matrix for matrix in steps}
    return {
        "title": printable(steps.title),
        "about": printable(steps.about),
        "notes": [printable(note) for note in steps.notes],
        "agreed": [printable(line) for line in agreement(steps)],
        "matrices": [_matrix(matrix, known) for matrix in steps],
    }


def _matrix(matrix: Matrix, known: dict[str, Matrix]) -> dict[str, Any]:
    places = [
        edges(count, most) for count, most in zip(matrix.values.shape[-2:], MOST, strict=True)
    ]
    size = " × ".join(map(str, matrix.values.shape))
    shown = ", ".join(filter(None, (size, shown_part(matrix, places))))
    largest = float(np.abs(matrix.values).max(initial=0)) if matrix.stage == "scores" else 0.0
    share = matrix.name.startswith("weights") and largest <= 1 and matrix.values.min() >= 0
    return {
        "name": matrix.name,
        "size": shown,
        "formula": printable(matrix.formula),
        "origin": matrix.origin,
        "stage": matrix.stage,
        "product": re.fullmatch(r"[a-z_]+ᵀ? @ [a-z_]+ᵀ?", matrix.formula) is not None,
        "tint": 1.0 if share else largest,
        "rows": [printable(name) for name in matrix.rows],
        "columns": [printable(name) for name in matrix.columns],
        "places": places,
        "full": matrix.values.shape[-2:],
        "slices": [_slice(matrix, one, places) for one in matrix.slices()],
        "reads": [read for name in matrix.operands for read in reads(matrix, known[name])],
    }


def _slice(matrix: Matrix, one: Matrix, places: Sequence[Sequence[int]]) -> dict[str, Any]:
    cells, values = numerals(one.values), one.values.tolist()
    rows, columns = places

    def cut(table: Sequence[Sequence[Any]], gap: Any) -> list[list[Any]]:
        return [
            [table[row][column] if min(row, column) >= 0 else gap for column in columns]
            for row in rows
        ]

    exact = [[float(f"{float(value):.6g}") for value in row] for row in cut(values, 0)]
    name = one.name.removeprefix(f"{matrix.name} · ") if matrix.stack else ""
    return {"name": printable(name), "cells": cut(cells, "…"), "values": exact}


_PLAIN = {"tanh", "sigmoid", "exp", "ln", "row", "of"}
"""Words of formulas that work cell by cell."""
_ALL = re.compile(r"⁻¹|multiplied up|sum of|times")
"""Formulas whose numbers may hang on every number of what they name."""


def reads(matrix: Matrix, operand: Matrix) -> Iterator[dict[str, str]]:
    """What a number of a matrix is made of: rows and columns of a matrix that its formula names.

    They are those of the number ("i", "j"), the number of its own matrix among several ("s"), or
    all ("*"); never fewer than it hangs on.
    """
    name, formula = operand.name, matrix.formula
    plain = re.sub(
        r"[a-z_]+", lambda word: "" if word[0] in {*_PLAIN, *matrix.operands} else word[0], formula
    )
    of_rows = operand.axes.startswith("q") and len(operand.axes) == 3 and operand.stack
    found: list[str] = []
    if re.search(r" in \d+ (head|group)s? of ", formula):
        yield {"name": name, "rows": "i", "columns": "j", "by": "split"}
        return
    if "head beside head" in formula:
        yield {"name": name, "rows": "i", "columns": "j", "by": "join"}
        return
    patterns = {
        rf"\b{name}ᵀ @": "*i",
        rf"@ {name}ᵀ": "j*",
        rf"@ {name}(?![a-z_ᵀ])": "*j" if operand.values.shape[-1] > 1 else "**",
        rf"(?<![a-z_]){name} @": "j*" if of_rows else "i*",
        rf"row of {name}(?![a-z_])": "sj",
    }
    if not _ALL.search(formula):
        found = [code for pattern, code in patterns.items() if re.search(pattern, formula)]
    rows, columns = operand.values.shape[-2:]
    if not found and not _ALL.search(formula):
        if (rows, columns) == matrix.values.shape[-2:] and not re.search("[a-z]", plain):
            found = ["ij"]
        elif rows == 1 and columns == matrix.values.shape[-1] and "+" in formula:
            found = ["*j"]
        elif rows == matrix.values.shape[-2] and rows > 1:
            found = ["i*"]
    for code in found or ["**"]:
        yield {"name": name, "rows": code[0], "columns": code[1], "by": "row" if of_rows else ""}
