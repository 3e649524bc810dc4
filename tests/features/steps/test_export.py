import json

import numpy as np

from attnviz.features.steps.arithmetic import arithmetic
from attnviz.features.steps.given import CalculationInputs, worked_example
from attnviz.features.steps.show import mermaid
from attnviz.storage.documents import dump_json


def test_files_hold_every_matrix_and_are_read_back(tmp_path):
    steps = arithmetic(worked_example(), causal=True)
    found = json.loads(dump_json(steps.data()))
    for matrix in steps:
        assert found[matrix.name] == matrix.values.tolist()
    assert "scaled_scores = scores / √2" in found["formulas"].splitlines()
    given = CalculationInputs("two", np.eye(2) / 3, query_tokens=("a", "b"), key_tokens=("a", "b"))
    steps = arithmetic(given, causal=True)
    (tmp_path / "a.json").write_text(dump_json(steps.data()))
    np.savez(tmp_path / "a.npz", **steps.arrays())
    for path in tmp_path.iterdir():
        again = arithmetic(CalculationInputs.from_file(path))
        assert again.notes == ()
        assert again.query_tokens == ("a", "b")
        assert [matrix.name for matrix in again] == [matrix.name for matrix in steps]
        assert all(np.array_equal(again[matrix.name], matrix.values) for matrix in steps)


def test_the_diagram_has_boxes_and_arrows():
    steps = arithmetic(worked_example(), causal=True)
    lines = mermaid(steps).splitlines()
    arrows = [line.strip() for line in lines if "-->" in line]
    assert arrows.count("mask --> weights") == 1
    assert len(arrows) == sum(len(matrix.operands) for matrix in steps)
    assert '    scores["scores 3 × 3<br/>query @ keyᵀ"]' in lines
    assert lines[3] == "flowchart TD"
