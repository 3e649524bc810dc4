"""The calculation as a table of every matrix side by side, a Mermaid flowchart, and a page.

On the page each matrix has its formula, and pointing at a number shows its operands.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len
from rich.text import Text

from attnviz.features.steps.arithmetic import ROUNDED, Matrix, Steps
from attnviz.renderers import Display
from attnviz.renderers.printable import printable, shorten
from attnviz.renderers.text.console import render_parts, shade_text
from attnviz.storage.documents import dump_json

MOST_ROWS = 12
MOST_LABEL = 12
GAP, GUTTER = 4, 2
ELISION = "…"

ORIENTATION = "one row per position; in scores, mask and weights rows are queries, columns keys"


def table(steps: Steps, display: Display) -> str:
    """The calculation as wide as the display, every matrix with its shape and formula.

    Matrices of one stage stand side by side where they fit. A large matrix shows its first and
    last rows and columns, and its heading says how many. Weights are coloured on a display with
    colours.
    """
    lines = [Text(printable(steps.title), style="bold"), Text(ORIENTATION, style="dim")]
    if steps.about:
        lines.insert(1, Text(printable(steps.about)))
    lines += [Text(f"note: {printable(note)}") for note in steps.notes]
    lines += [Text(line) for line in agreement_lines(steps)]
    for _, stage in groupby(steps, key=lambda matrix: matrix.stage):
        lines.append(Text())
        blocks = [_block(one, display) for matrix in stage for one in matrix.slices()]
        lines += _place_side_by_side(blocks, display.width)
    return render_parts(lines, display)


def agreement_lines(steps: Steps) -> list[str]:
    """One line: how far the given results differ from the computed ones; none without results."""
    if not steps.compared:
        return []
    apart = ", ".join(f"{name} {value:.1g}" for name, value in steps.compared.items())
    return [f"largest difference from {steps.against}: {apart}"]


def examples_listing(examples: Mapping[str, Steps], display: Display) -> str:
    """Several examples: first one line for each, then the steps of each."""
    lines = [Text(f"{len(examples)} examples; --example NAME shows one alone", style="bold")]
    for name, steps in examples.items():
        count, off = len(steps.compared), sum(value >= ROUNDED for value in steps.compared.values())
        verdict = f"{count - off} of {count} results as given" if count else "no results given"
        lines.append(Text(f"  {printable(name)}: {verdict}"))
    tables = [table(steps, display) for steps in examples.values()]
    return "\n".join([render_parts(lines, display), *tables])


def _place_side_by_side(blocks: Sequence[list[Text]], width: int) -> Iterator[Text]:
    band: list[list[Text]] = []
    for block in blocks:
        if band and sum(_widest(one) + GAP for one in band) + _widest(block) > width:
            yield from _join_band(band)
            yield Text()
            band = []
        band.append(block)
    yield from _join_band(band)


def _widest(block: list[Text]) -> int:
    return max(line.cell_len for line in block)


def _join_band(blocks: Sequence[list[Text]]) -> Iterator[Text]:
    for parts in zip_longest(*blocks, fillvalue=Text()):
        line = Text()
        for block, part in zip(blocks, parts, strict=True):
            line.append_text(part).append(" " * (_widest(block) + GAP - part.cell_len))
        line.rstrip()
        yield line


def _block(matrix: Matrix, display: Display) -> list[Text]:
    labels = [shorten(printable(row), MOST_LABEL) for row in matrix.rows]
    label_width = max(map(cell_len, labels), default=-GUTTER) + GUTTER
    room = display.width - label_width
    cells, gutter = _numerals_that_fit(matrix.values, room)
    cell_width = _cell_width(cells, matrix.columns, gutter, room)
    rows = shown_places(len(cells), MOST_ROWS)
    columns = shown_places(
        len(cells[0]), _columns_that_fit(len(cells[0]), cell_width, gutter, room)
    )
    lines = [*_heading(matrix, rows, columns, display.width)]
    if matrix.columns and cell_width > 1:
        heads = [_column_head(matrix, column, cell_width) for column in columns]
        lines.append(_line("", label_width, heads, gutter))
    for row in rows:
        label = (labels[row] if row >= 0 else ELISION) if labels else ""
        texts = []
        for column in columns:
            cell = cells[row][column] if min(row, column) >= 0 else ELISION
            text = cell.rjust(cell_width if column >= 0 else 1)
            if matrix.name.startswith("weights") and cell != ELISION:
                texts.append(shade_text(text, float(matrix.values[row, column]), display))
            else:
                texts.append(Text(text))
        lines.append(_line(label, label_width, texts, gutter))
    return lines


def _heading(
    matrix: Matrix, rows: Sequence[int], columns: Sequence[int], width: int
) -> Iterator[Text]:
    size = " × ".join(map(str, matrix.values.shape))
    yield Text(printable(matrix.name), style="bold").append(f"  {size}", style="not bold dim")
    yield Text(
        shorten(f"= {matrix.formula}" if matrix.formula else matrix.origin, width), style="dim"
    )
    if part := describe_shown_part(matrix, (rows, columns)):
        yield Text(shorten(part, width), style="dim italic")


def describe_shown_part(matrix: Matrix, places: Sequence[Sequence[int]]) -> str:
    """How many rows and columns are shown, if `shown_places` leaves some out."""
    sides = zip(places, matrix.values.shape[-2:], ("rows", "columns"), strict=True)
    parts = [
        f"{len(indices) - 1} of {count} {what}" for indices, count, what in sides if -1 in indices
    ]
    return f"showing {', '.join(parts)}" if parts else ""


def _column_head(matrix: Matrix, column: int, cell_width: int) -> Text:
    name = shorten(printable(matrix.columns[column]), cell_width) if column >= 0 else ELISION
    text = Text(name, style="dim")
    text.pad_left((cell_width if column >= 0 else 1) - text.cell_len)
    return text


def _line(label: str, label_width: int, texts: Sequence[Text], gutter: int) -> Text:
    line = Text.assemble((label, "dim"), " " * (label_width - cell_len(label)))
    return line.append_text(Text(" " * gutter).join(texts))


def _numerals_that_fit(values: NDArray[Any], room: int) -> tuple[list[list[str]], int]:
    """The numbers as text, as precise as the width allows, and the space between columns."""
    for decimals, gutter in ((3, GUTTER), (2, GUTTER), (2, 1)):
        cells = numerals(values, decimals)
        widest = max(len(cell) for row in cells for cell in row)
        if _width(len(cells[0]), widest, gutter) <= room:
            return cells, gutter
    return numerals(values, decimals=2), GUTTER


def _cell_width(
    cells: Sequence[Sequence[str]], heads: Sequence[str], gutter: int, room: int
) -> int:
    numbers = max(len(cell) for row in cells for cell in row)
    names = max((cell_len(printable(head)) for head in heads), default=0)
    for most in (MOST_LABEL, 6, 4, 3):
        wider = max(numbers, min(names, most))
        if _width(len(cells[0]), wider, gutter) <= room:
            return wider
    return numbers


def _width(columns: int, cell_width: int, gutter: int) -> int:
    return columns * (cell_width + gutter) - gutter


def _columns_that_fit(columns: int, cell_width: int, gutter: int, room: int) -> int:
    """How many columns to show, the narrow "…" column included."""
    if _width(columns, cell_width, gutter) <= room:
        return columns
    return max(min((room - 1) // (cell_width + gutter), columns - 2), 1) + 1


def shown_places(count: int, most: int) -> list[int]:
    """Indices of the places to show, at most that many; −1 is "…" for those in the middle."""
    if count <= most:
        return list(range(count))
    tail = (most - 1) // 2
    return [*range(most - 1 - tail), -1, *range(count - tail, count)]


def numerals(values: NDArray[Any], decimals: int = 3) -> list[list[str]]:
    """Each number of a matrix as text: whole numbers, or that many decimals.

    Very large and very small numbers get powers of ten. Among fractions an exact zero is "0", and
    a number that rounds to zero is "0.000" or "-0.000". A mask shows 1 and "·".
    """
    if values.dtype == np.bool_:
        return [["1" if cell else "·" for cell in row] for row in values]
    largest = float(np.abs(values).max(initial=0.0))
    if largest < 1e6 and np.array_equal(values, np.round(values)):
        pattern = "{:.0f}"
    elif 0.01 <= largest < 1e4:
        pattern = f"{{:.{decimals}f}}"
    else:
        pattern = "{:.2e}"
    return [[pattern.format(cell) if cell else "0" for cell in row] for row in values.tolist()]


_BOXES = {"inputs": '(["{}"])', "projections": '[/"{}"/]', "output": '(["{}"])'}
"""Rounded boxes for inputs and outputs, slanted boxes for learned parameters."""


def mermaid(steps: Steps) -> str:
    """A Mermaid flowchart: a box for each matrix, an arrow from each operand."""
    # YAML reads JSON, and no character of a file name can end a JSON string.
    lines = ["---", f"title: {dump_json(steps.title)}", "---", "flowchart TD"]
    lines += [f"    {matrix.name}{_mermaid_box(matrix)}" for matrix in steps]
    lines += [f"    {operand} --> {matrix.name}" for matrix in steps for operand in matrix.operands]
    return "\n".join(lines) + "\n"


def _mermaid_box(matrix: Matrix) -> str:
    size = " × ".join(map(str, matrix.values.shape))
    # In Mermaid a quote ends a label and an angle bracket begins a tag.
    formula = matrix.formula.replace('"', "'").replace("<", "&lt;")
    label = f"{matrix.name} {size}{f'<br/>{formula}' if formula else ''}"
    return _BOXES.get(matrix.stage, '["{}"]').format(label)


MOST = (12, 16)  # at most this many rows and columns of a matrix are shown: the first and the last


def steps_page(calculations: Sequence[Steps], command: str = "") -> str:
    """One HTML file that makes no requests, for one calculation or several."""
    from attnviz.renderers.page.document import assemble

    several = f"{len(calculations)} calculations"
    document = {
        "title": printable(calculations[0].title if len(calculations) == 1 else several),
        "command": printable(command),
        "calculations": [_calculation_data(steps) for steps in calculations],
    }
    return assemble(document, {}, "steps")


def _calculation_data(steps: Steps) -> dict[str, Any]:
    by_name = {matrix.name: matrix for matrix in steps}
    return {
        "title": printable(steps.title),
        "about": printable(steps.about),
        "notes": [printable(note) for note in steps.notes],
        "agreed": [printable(line) for line in agreement_lines(steps)],
        "matrices": [_matrix(matrix, by_name) for matrix in steps],
    }


def _matrix(matrix: Matrix, by_name: dict[str, Matrix]) -> dict[str, Any]:
    places = [
        shown_places(count, most)
        for count, most in zip(matrix.values.shape[-2:], MOST, strict=True)
    ]
    size = " × ".join(map(str, matrix.values.shape))
    description = ", ".join(filter(None, (size, describe_shown_part(matrix, places))))
    largest = float(np.abs(matrix.values).max(initial=0)) if matrix.stage == "scores" else 0.0
    share = matrix.name.startswith("weights") and largest <= 1 and matrix.values.min() >= 0
    return {
        "name": matrix.name,
        "size": description,
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
        "reads": [
            read for name in matrix.operands for read in operand_cells(matrix, by_name[name])
        ],
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


_PLAIN = {"tanh", "sigmoid", "exp", "ln", "row", "of"}  # words of formulas that work cell by cell
_ALL = re.compile(r"⁻¹|multiplied up|sum of|times")  # these use whole matrices


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
    codes: list[str] = []
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
        codes = [code for pattern, code in patterns.items() if re.search(pattern, formula)]
    rows, columns = operand.values.shape[-2:]
    if not codes and not _ALL.search(formula):
        if (rows, columns) == matrix.values.shape[-2:] and not re.search("[a-z]", plain):
            codes = ["ij"]
        elif rows == 1 and columns == matrix.values.shape[-1] and "+" in formula:
            codes = ["*j"]
        elif rows == matrix.values.shape[-2] and rows > 1:
            codes = ["i*"]
    for code in codes or ["**"]:
        yield {"name": name, "rows": code[0], "columns": code[1], "by": "row" if of_rows else ""}
