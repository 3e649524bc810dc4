"""The page of steps: what it says a number is made of, against autograd, and that it is safe."""

import itertools
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
import torch

from attnviz.core.registry import MECHANISMS
from attnviz.features.steps.arithmetic import Steps, arithmetic
from attnviz.features.steps.given import CalculationInputs, seeded_sentence, worked_example
from attnviz.features.steps.show import steps_page
from tests.invoke import attnviz
from tests.renderers.page.samples import HOSTILE

from .highlights import shape, sources

CASES = [
    (name, heads)
    for name, row in MECHANISMS.items()
    for heads in (1, 2)
    if (heads == 1 or row.many_heads) and name != "naive"
]
"""All but naive attention, whose inputs are all three sides at once."""


def steps_of(name: str, heads: int) -> Steps:
    row = MECHANISMS[name]
    second = "A dog" if row.mutual else None
    given = seeded_sentence("The cat sat", 4, 0, second, row, heads)
    return arithmetic(given, mechanism=name, heads=heads)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "heads"), CASES)
def test_a_number_hangs_on_nothing_that_does_not_light_up(name, heads):
    steps = steps_of(name, heads)
    names = [matrix.name for matrix in steps]
    row = MECHANISMS[name]
    sides = [
        side if side in names and row.projected else "inputs" for side in ("query", "key", "value")
    ]
    if row.mutual:
        sides = ["first", "second"]
    leaves = {
        one: torch.tensor(steps[one].astype(float), requires_grad=True)
        for one in {*sides, *row.learned}
    }
    learned = {
        one: leaves[one] if " " in axes else leaves[one][0] for one, axes in row.learned.items()
    }
    options = {"heads": heads} if row.many_heads else {}
    parts = row.load().parts(*(leaves[side] for side in sides), **learned, **options)
    tensors = leaves | {part.name: part.value for part in parts}
    checked = 0
    for matrix in steps:
        made = tensors.get(matrix.name)
        if made is None or made.grad_fn is None:
            continue
        made = made.reshape(shape(matrix))
        operands = [steps.matrix(one) for one in matrix.operands]
        known = [one for one in operands if one.name in tensors and tensors[one.name].requires_grad]
        if any(tensors[one.name].grad_fn for one in known):
            # A sequence of co-attention reaches its output through its weights as well.
            known = [one for one in known if one.name not in ("first", "second")]
        for place in itertools.product(*map(range, made.shape)):
            slopes = torch.autograd.grad(
                made[place],
                [tensors[one.name] for one in known],
                retain_graph=True,
                allow_unused=True,
            )
            for operand, slope in zip(known, slopes, strict=True):
                if slope is None:
                    continue
                lit = sources(matrix, operand, place)
                hangs = np.argwhere(slope.reshape(shape(operand)).numpy() != 0)
                assert {(operand.name, *cell) for cell in hangs.tolist()} <= lit, (
                    matrix.name,
                    place,
                )
                checked += 1
    assert checked > 9


def test_of_a_product_only_one_row_and_one_column_light_up():
    steps = arithmetic(worked_example())
    scores, query, key = (steps.matrix(name) for name in ("scores", "query", "key"))
    assert sources(scores, query, (0, 2, 1)) == {("query", 0, 2, 0), ("query", 0, 2, 1)}
    assert sources(scores, key, (0, 2, 1)) == {("key", 0, 1, 0), ("key", 0, 1, 1)}
    output, value = steps.matrix("output"), steps.matrix("value")
    assert sources(output, value, (0, 2, 1)) == {("value", 0, row, 1) for row in range(3)}
    scaled = steps.matrix("scaled_scores")
    assert sources(scaled, scores, (0, 2, 1)) == {("scores", 0, 2, 1)}


class Elements(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.document = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][1].get("id") == "document" and not self.document:
            self.document = data


def test_the_page_holds_no_foreign_element():
    text = steps_page([arithmetic(worked_example())], "attnviz steps")
    assert "default-src 'none'; script-src 'sha256-" in text
    # The namespace of SVG is a name, which nobody fetches.
    assert {*re.findall(r"https?://[^\s\"'`<]+", text)} <= {"http://www.w3.org/2000/svg"}
    attributes = {name for _, attrs in Elements(text).tags for name in attrs}
    assert not attributes & {"src", "srcset", "action", "style", "onclick"}
    assert not re.search(r"\b(eval|fetch|XMLHttpRequest|WebSocket|innerHTML)\b", text)
    names = HOSTILE[:4]
    given = CalculationInputs("</title><script>", np.eye(4), query_tokens=names, key_tokens=names)
    plain = steps_page([arithmetic(CalculationInputs("t", np.eye(4)))])
    nasty = steps_page([arithmetic(given)], "$policy $data")
    tags = [tag for tag, _ in Elements(nasty).tags]
    assert tags == [tag for tag, _ in Elements(plain).tags]
    found = json.loads(Elements(nasty).document)
    assert found["calculations"][0]["matrices"][1]["rows"] == list(names)
    assert found["command"] == "$policy $data"


def test_numbers_are_those_of_the_calculation_or_cut(tmp_path):
    steps = steps_of("rotary", 2)
    found = json.loads(Elements(steps_page([steps])).document)["calculations"][0]
    for matrix, shown in zip(steps, found["matrices"], strict=True):
        values = matrix.values if matrix.stack else matrix.values[None]
        for one, own in zip(values, shown["slices"], strict=True):
            np.testing.assert_allclose(own["values"], one, rtol=1e-5)
        darkest = 1.0 if matrix.name == "weights" else np.abs(values).max()
        assert shown["tint"] == pytest.approx(darkest if matrix.stage == "scores" else 0)
    page = tmp_path / "head.html"
    command = ("steps", "--model", "pocket", "--layer", "2", "--head", "0", "a cat", "un chat")
    assert attnviz(*command, "--html", page, "-f", "none", "-q").status == 0
    found = json.loads(Elements(page.read_text("utf-8")).document)["calculations"][0]
    weights = next(one for one in found["matrices"] if one["name"] == "w_query")
    assert weights["size"] == "192 × 32, showing 11 of 192 rows, 15 of 32 columns"
    assert weights["places"][0][:3] == [0, 1, 2]
    assert weights["places"][0][-1] == 191
    assert len(page.read_bytes()) < 200_000
