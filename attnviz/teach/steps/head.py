"""One head of a trained model as steps, from the input of its layer to its own output."""

from __future__ import annotations

from typing import get_args

import numpy as np

from attnviz.core.attention_map import Attention
from attnviz.mechanisms.formula import HeadArithmetic, HeadPlace
from attnviz.teach.steps.arithmetic import Matrix, Stage, Steps, compare_results, operands_of


def head_steps(attention: Attention, which: HeadPlace, worked: HeadArithmetic) -> Steps:
    """What a head did with the tokens of a map, every matrix by name.

    They are computed here and compared with those of the model's own pass.
    """
    item = next(item for item in attention.maps if item.stream == which.stream)
    queries, keys = (
        tuple(token.text for token in side) for side in (item.query_tokens, item.key_tokens)
    )
    names = {"q": queries, "k": keys}
    matrices: list[Matrix] = []
    for name, values, formula, axes in worked.parts:
        stage: Stage = "scores" if axes == "qk" else "projected"
        if not formula:
            stage = "projections" if axes == "ff" else "inputs"
        elif name in ("head_output", "added"):
            stage = "output"
        rows, columns = (names.get(axis, ()) for axis in axes)
        operands = operands_of(formula, [matrix.name for matrix in matrices])
        matrices.append(
            Matrix(name, values, formula, operands, stage, rows, columns, (), "of the model", axes)
        )
    order = get_args(Stage)
    matrices.sort(key=lambda matrix: order.index(matrix.stage))
    computed = {matrix.name: matrix.values for matrix in matrices}
    seen = {name: np.asarray(values, dtype=np.float64) for name, values in worked.seen.items()}
    _, compared = compare_results(seen, computed)
    title = f"{attention.provenance.title} · {which.stream} · layer {which.layer} head {which.head}"
    notes = (*attention.provenance.notes, *worked.notes)
    against = "the model's own pass"
    return Steps(title, tuple(matrices), queries, keys, notes, compared, against=against)
