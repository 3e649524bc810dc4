"""Each term stands beside what it means, and no number reads −0.00."""

import re
from dataclasses import replace

import numpy as np
import pytest

from attnviz.core.measures import HeadMeasure
from attnviz.renderers.page import page
from tests.invoke import attnviz
from tests.renderers.page.samples import encoder, with_projections

pytestmark = [pytest.mark.browser, pytest.mark.slow]
NEGATIVE_ZERO = re.compile(r"[-−]0?\.0+(?!\d)")
EFFECT = "what log p of the word loses (natural logarithms) where a token is hidden"
OTHERS = "Hiding all others: every token but those named, at once."


@pytest.mark.parametrize(
    ("name", "unit", "meaning"),
    [
        ("relative-entropy", "share", "in shares of the entropy of an even look. Low: one key;"),
        ("entropy", "nats", "in nats (natural logarithms; ln 2 = .69 nats is one bit). Low: one"),
        ("sink", "share", "in shares of attention. Low: one key; high: all keys."),
    ],
)
def test_a_measure_says_what_its_numbers_count(open_page, name, unit, meaning):
    values = np.linspace(0.1, 0.6, 6).reshape(2, 3)
    measure = HeadMeasure(name, unit, "one key", "all keys", values)
    opened = open_page(page(encoder(), measures={0: [measure]}), f"measure={name}&view=heatmap")
    assert f"{name} {meaning}" in opened.text("#overview .tools")
    assert "mean up to" not in opened.text("body")


def test_an_answer_says_what_nats_are(open_page, tmp_path):
    file = tmp_path / "explain.html"
    assert attnviz("explain", "The red car is", "--html", file, "-f", "none").status == 0
    said = open_page(file.read_text("utf-8")).text("section:has(> .claims)")
    assert "nats; hiding all others costs" in said
    assert EFFECT in said
    assert OTHERS in said


def test_a_word_of_the_live_page_says_what_nats_are(open_page, live_page):
    opened = open_page(live_page, "view=heatmap&word=3")
    opened.tab.wait_for_selector("#word .claims")
    said = opened.text("#word")
    assert "hiding all others costs" in said
    assert EFFECT in said
    assert OTHERS in said


def test_a_page_of_rules_says_what_each_column_counts(open_page, tmp_path):
    file = tmp_path / "cache.html"
    how = ("--keep", "sinks:1+recent:3", "--html", file, "-f", "none")
    assert attnviz("cache", "Tom likes dogs. Mary likes cats. Tom likes", *how).status == 0
    tab = open_page(file.read_text("utf-8"), wait="main").tab
    terms = tab.locator(".frame:has(table) + p, div:has(> table) + p").inner_text()
    columns = tab.locator("thead th").all_inner_texts()[1:]
    assert columns == ["keys", "attention", "nats a token", "changed"]
    assert [column for column in columns if f"{column}: " not in terms] == []
    assert not NEGATIVE_ZERO.search(tab.locator("main").inner_text())


def test_scores_that_round_to_nothing_have_no_sign(open_page):
    attention, kept = with_projections()
    tiny = replace(kept, query=np.full_like(kept.query, -1e-6), key=np.ones_like(kept.key))
    opened = open_page(page(attention, projections={0: tiny}), "view=query-key&row=2&column=3")
    assert "= 0.000, over √8 = 0.000" in opened.text(".sum")
    svg = opened.download("svg").decode()
    assert ">0.00<" in svg
    assert not NEGATIVE_ZERO.search(re.sub(r"<[^>]*>", " ", svg))
