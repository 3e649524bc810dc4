"""Steps as one page: each matrix with its formula; pointing at a number shows its operands."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from attnviz.renderers.page.document import assemble
from attnviz.renderers.printable import printable
from attnviz.teach.steps.arithmetic import Matrix, Steps
from attnviz.teach.steps.show import agreement_lines, describe_shown_part, numerals, shown_places

MOST = (12, 16)
"""At most this many rows and columns of a matrix are shown: the first and the last."""


def steps_page(calculations: Sequence[Steps], command: str = "") -> str:
    """One HTML file that makes no requests, for one calculation or several."""
    several = f"{len(calculations)} calculations"
    document = {
        "title": printable(calculations[0].title if len(calculations) == 1 else several),
        "command": printable(command),
        "calculations": [_calculation_data(steps) for steps in calculations],
    }
    return assemble(document, {}, "steps")


def _calculation_data(steps: Steps) -> dict[str, Any]:
    known = {matrix.name: matrix for matrix in steps}
    return {
        "title": printable(steps.title),
        "about": printable(steps.about),
        "notes": [printable(note) for note in steps.notes],
        "agreed": [printable(line) for line in agreement_lines(steps)],
        "matrices": [_matrix(matrix, known) for matrix in steps],
    }


def _matrix(matrix: Matrix, known: dict[str, Matrix]) -> dict[str, Any]:
    places = [
        shown_places(count, most)
        for count, most in zip(matrix.values.shape[-2:], MOST, strict=True)
    ]
    size = " × ".join(map(str, matrix.values.shape))
    shown = ", ".join(filter(None, (size, describe_shown_part(matrix, places))))
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
        "reads": [read for name in matrix.operands for read in operand_cells(matrix, known[name])],
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
"""In such formulas a number may depend on every number of the matrices that they name."""


def operand_cells(matrix: Matrix, operand: Matrix) -> Iterator[dict[str, str]]:
    """The rows and columns of an operand that a number of a matrix depends on.

    Each is the number's own row ("i") or column ("j"), the index of its matrix in a stack ("s"), or
    all ("*"). Where the formula leaves it open, the answer is too many cells, never too few.
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
