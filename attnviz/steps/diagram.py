"""The flow of the data as Mermaid text, which GitHub and many note-takers draw."""

from __future__ import annotations

from attnviz.steps.arithmetic import Matrix, Steps

_BOXES = {"inputs": '(["{}"])', "projections": '[/"{}"/]', "output": '(["{}"])'}
"""Rounded ends for what goes in and comes out, slanted boxes for what is learned."""


def mermaid(steps: Steps) -> str:
    """A Mermaid flowchart: a box a matrix with its shape and formula, an arrow an operand."""
    lines = ["---", f"title: {_quoted(steps.title)}", "---", "flowchart TD"]
    lines += [f"    {matrix.name}{_box(matrix)}" for matrix in steps]
    lines += [f"    {operand} --> {matrix.name}" for matrix in steps for operand in matrix.operands]
    return "\n".join(lines) + "\n"


def _box(matrix: Matrix) -> str:
    rows, columns = matrix.values.shape
    formula = f"<br/>{matrix.formula}" if matrix.formula else ""
    return _BOXES.get(matrix.stage, '["{}"]').format(f"{matrix.name} {rows} × {columns}{formula}")


def _quoted(title: str) -> str:
    """A title as JSON, which YAML reads, so that no sign in a file's name ends it."""
    from attnviz.storage.json import dump_json

    return dump_json(title)
