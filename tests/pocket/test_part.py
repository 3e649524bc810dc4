"""A part of a text's attention, of the models inside."""

import numpy as np
import pytest

import attnviz
from attnviz.core.errors import UsageError
from attnviz.renderers.text.table import FIRST_ROWS
from tests.invoke import attnviz as attnviz_in_terminal

TEXT = "The cat sat on the mat because it was warm."


@pytest.mark.parametrize("model", ["pocket", "pocket-lm"])
def test_rows_and_windows_are_cut_out_of_the_whole_text(model):
    whole = attnviz.attend(TEXT, model=model).main
    rows = attnviz.attend(TEXT, model=model, rows="3-5").main
    assert np.array_equal(rows.weights, whole.weights[:, :, 3:6])
    assert (rows.query_tokens, rows.key_tokens) == (whole.query_tokens[3:6], whole.key_tokens)
    assert rows.starts == (3, 0)
    window = attnviz.attend(TEXT, model=model, window="3-5").main
    assert np.array_equal(window.weights, whole.weights[:, :, 3:6, 3:6])
    assert window.starts == (3, 3)


def test_a_part_says_so_and_numbers_its_rows_by_the_text():
    found = attnviz.attend(TEXT, model="pocket-lm", rows="3-5", keep_qk=True)
    count = len(found.main.key_tokens)
    assert f"only tokens 3 to 5 of {count} tokens attend, to all of them" in found.notes
    assert found.projections["causal"].query.shape[2] == 3
    rows = {row["query_position"] for row in found.to_rows()}
    assert rows == {3, 4, 5}
    labels = [text.get_text() for text in found.heatmap().axes[0].get_yticklabels()]
    assert [label.split()[0] for label in labels] == ["3", "4", "5"]


def rows_shown(text: str, rows: str) -> list[list[str]]:
    """The number and the name of each row that a terminal shows of a part of a text."""
    done = attnviz_in_terminal("self", text, "-m", "pocket-lm", "--rows", rows)
    assert "a row has the number of its first token" in " ".join(done.text.split())
    lines = done.text.partition(" attend to columns")[2].splitlines()
    return [line.split()[:2] for line in lines if line[:1].isdigit()]


def test_rows_keep_their_numbers():
    text = "The dog was extraordinarily tired and slept."  # extra ##ordin ##ar ##ily: 4 to 7
    whole = [["3", "was"], ["4", "extraordina…"], ["8", "tired"], ["9", "and"]]
    assert rows_shown(text, "3-9") == whole
    assert rows_shown(text, "6-8") == [["6", "extraordina…"], ["8", "tired"]]
    text = "The dog was extraordinarily tired and the cat unhappily slept. " * 8
    tokens = attnviz.attend(text, model="pocket-lm").main.query_tokens
    shown = rows_shown(text, f"20-{len(tokens) - 3}")
    numbers = [int(number) for number, _ in shown]
    assert len(numbers) == FIRST_ROWS < numbers[-1] - numbers[0]
    assert numbers == sorted(numbers)
    assert all(word.startswith(tokens[int(number)].text) for number, word in shown)


def test_what_a_part_cannot_have_is_refused():
    for options, says in (
        ({"rows": "90-95"}, "does not lie in this text"),
        ({"rows": "1-2", "lens": "gradient"}, "leave --rows out"),
        ({"window": "1-2", "lens": "norm"}, "leave --window out"),
        ({"max_size": 4}, "longer than the models inside read"),
    ):
        with pytest.raises(UsageError, match=says):
            attnviz.attend(TEXT, model="pocket-lm", **options)
