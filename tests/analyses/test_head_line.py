import numpy as np
import pytest

from attnviz.analyses.view import describe, head_lines
from tests.samples import self_map

WORDS = ["a", "b", "c", "d"]


def shown(matrix: np.ndarray) -> tuple[str, float]:
    return describe(self_map(WORDS).with_weights(matrix[None, None].astype(np.float32)))


@pytest.mark.parametrize(
    ("matrix", "pattern", "share"),
    [
        (np.eye(4), "each → itself", 1),
        (np.eye(4, k=-1), "each → the one before", 1),
        (np.eye(4, k=1), "each → the one after", 1),
        (np.outer(np.ones(4), [0, 0, 1, 0]), "every token → c", 1),
        (np.full((4, 4), 0.25) + 0.05 * np.outer([0, 1, 0, 0], [-1, 0, 0, 1]), "b → d", 0.3),
    ],
)
def test_what_a_head_does_is_said_in_words(matrix, pattern, share):
    found, weight = shown(matrix)
    assert (found, weight) == (pattern, pytest.approx(share, abs=1e-6))


def test_when_a_head_has_a_pattern():
    before = np.eye(4, k=-1) * 0.6
    assert shown(before + 0.1)[0] == "each → the one before"
    assert "→ the one" not in shown(before * 0.5 + 0.15)[0]
    item = self_map(["a", "b"]).with_weights(np.eye(2, dtype=np.float32)[None, None])
    assert describe(item)[0] == "a → b"
    item = self_map(WORDS, signed=True).with_weights(np.eye(4, dtype=np.float32)[None, None])
    assert "each" not in describe(item)[0]


def test_there_is_a_line_a_head_of_the_first_layer():
    item = self_map(WORDS, 2, 3)
    lines = head_lines(item)
    assert [line.head for line in lines] == ["0", "1", "2"]
    for place, line in enumerate(lines):
        assert np.allclose(line.profile, item.weights[0, place].mean(axis=0), atol=1e-6)
        assert 0 <= line.entropy <= np.log(4)
