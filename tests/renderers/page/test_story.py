"""A number unfolded, linked looks, why a word, heads in a corpus, two texts as a difference."""

import json
import re

import numpy as np
import pytest

from attnviz import attend
from attnviz.features.compare.differences import compare_maps
from tests.invoke import attnviz
from tests.renderers.page.conftest import Opened
from tests.renderers.page.test_accessible import findings
from tests.renderers.page.test_in_browser import number
from tests.renderers.page.test_live import CLOSE, NEAR, SOURCE, TARGET, answered

pytestmark = [pytest.mark.browser, pytest.mark.slow]

STEPS = [
    "1 query",
    "2 key",
    "3 scale and mask",
    "4 softmax over the row",
    "5 value",
    "6 what it writes",
    "7 change of log p",
]
LM_TEXT = "Tom likes dogs. Mary likes cats. Tom likes"


def formula(opened: Opened, step: int) -> float:
    """The number that a step's formula ends in."""
    opened.tab.wait_for_selector("#why[aria-busy=false] .unfold")
    return number(
        opened.tab.locator(".unfold .formula").nth(step - 1).locator("b").first.inner_text()
    )


@pytest.mark.core
def test_a_link_unfolds_into_seven_pictures(open_page, live_page):
    opened = answered(open_page(live_page, "row=3&column=1"))
    opened.tab.wait_for_selector("#why .unfold")
    assert opened.tab.locator(".unfold h3").all_inner_texts() == STEPS
    product, score, weight = (formula(opened, step) for step in (2, 3, 4))
    assert score == pytest.approx(product / np.sqrt(32), abs=0.01)
    assert weight == pytest.approx(attend(SOURCE, target=TARGET).weights[2, 0, 3, 1], abs=CLOSE)
    opened.tab.locator("#acts button:has-text('Cut')").click()
    answered(opened)
    before, after = (
        float(one.replace("−", "-")) for one in opened.tab.locator(".score b").all_inner_texts()[:2]
    )
    assert formula(opened, 7) == pytest.approx(after - before, abs=NEAR)
    assert findings(opened.tab) == []


def test_a_page_of_queries_unfolds_without_the_model(open_page, tmp_path):
    file = tmp_path / "page.html"
    asked = ("self", LM_TEXT, "--model", "pocket-lm")
    assert attnviz(*asked, "--keep-qk", "--html", file, "-f", "none", "-q").status == 0
    opened = open_page(file.read_text("utf-8"), "heads=2.3&row=9&column=2")
    opened.tab.wait_for_selector("#why .unfold")
    assert opened.tab.locator(".unfold h3").all_inner_texts() == STEPS
    raw = attend(LM_TEXT, model="pocket-lm").weights[2, 3, 9, 2]
    assert formula(opened, 4) == pytest.approx(raw, abs=1e-3)
    logits = attend(LM_TEXT, model="pocket-lm", lens="logits").weights[2, 3, 9, 2]
    assert number(opened.tab.locator(".unfold li:nth-child(6) ul b").inner_text()) == pytest.approx(
        logits, abs=0.006
    )
    effect = attend(LM_TEXT, model="pocket-lm", lens="effect").weights[2, 3, 9, 2]
    assert formula(opened, 7) == pytest.approx(-effect, abs=0.006)
    assert "first order" in opened.text(".unfold > li:last-child")


def test_a_click_on_a_word_says_why(open_page, live_page):
    opened = answered(open_page(live_page, "view=heatmap"))
    opened.tab.locator(".written .word:has-text('rouge')").click()
    opened.tab.wait_for_selector("#word .claims")
    assert opened.fragment()["word"] == "3"
    lines = opened.tab.locator("#word .claims li").all_inner_texts()
    assert lines[0].startswith('The model says\n"rouge" (.9')
    assert "red (source 1)" in lines[1]
    assert findings(opened.tab) == []
    carried = opened.tab.locator("#word .claims button:has-text('Carried by')")
    layer, head = re.search(r"head cross (\d)\.(\d)", carried.inner_text()).groups()  # type: ignore[union-attr]
    carried.click()
    answered(opened)
    assert opened.fragment()["heads"] == f"{layer}.{head}"
    assert {"row", "column"} <= opened.fragment().keys()
    opened.tab.locator("#word .claims button:has-text('It needs')").click()
    opened.tab.wait_for_selector(".tokens .word.lit:has-text('red')")
    opened.tab.locator("#word .claims button:has-text('Kept alone')").click()
    answered(opened)
    assert opened.fragment()["heads"].count(",") >= 1
    shared = opened.address().partition("#")[2]
    again = answered(open_page(live_page, shared))
    again.tab.wait_for_selector("#word .claims")
    assert again.tab.locator("#word .claims li").all_inner_texts() == lines
    again.tab.locator("#word button:has-text('Close')").click()
    assert "word" not in again.fragment()


def test_what_is_pointed_at_lights_up_everywhere(open_page, live_page):
    opened = answered(open_page(live_page, "view=heatmap"))
    picture = "document.querySelector('.marks').toDataURL()"
    blank = opened.tab.evaluate(picture)
    opened.tab.locator(".tokens .word:has-text('red')").hover()
    opened.tab.wait_for_function(f"(blank) => {picture} !== blank", arg=blank)
    assert opened.tab.locator(".word.lit").all_inner_texts() == ["red"]
    assert "red" in opened.text("#readout .link")
    box = opened.tab.locator("#view .plot canvas").last.bounding_box()
    opened.tab.mouse.move(box["x"] + 200, box["y"] + 200)
    opened.tab.wait_for_function("() => document.querySelectorAll('.word.lit').length === 2")
    opened.tab.locator("#tab-text").click()
    answered(opened)
    opened.tab.locator("#view .word:has-text('voiture')").hover()
    opened.tab.wait_for_selector(".written .word.lit:has-text('voiture')")
    opened.tab.locator("#tab-lines").click()
    answered(opened)
    opened.tab.locator("#view .lines canvas").hover(position={"x": 40, "y": 80})
    opened.tab.wait_for_function("() => document.querySelectorAll('.word.lit').length === 1")
    opened = answered(open_page(live_page, "row=3&column=1&measure=pinned&order=high"))
    opened.tab.wait_for_selector(".heads.sorted")
    weights = attend(SOURCE, target=TARGET).weights[:, :, 3, 1]
    best = np.unravel_index(int(weights.argmax()), weights.shape)
    assert opened.tab.locator(".heads .head").first.get_attribute("data-head") == "{}.{}".format(
        *best
    )


def test_two_sentences_are_shown_as_their_difference(open_page, live_page):
    second = "The small blue car is fast."
    opened = answered(open_page(live_page, f"beside=difference&map=1&heads=1.2&text2={second}"))
    opened.tab.wait_for_selector("#stage-2[aria-busy=false] .plot")
    opened.tab.wait_for_selector("#stage-2 .table[aria-busy=false] td", state="attached")
    translated = "La petite voiture bleue est la plus rapide."
    first, other = (
        attend(text, target=target, stream="encoder").main
        for text, target in ((SOURCE, TARGET), (second, translated))
    )
    expected = compare_maps(first, other).map
    rows = opened.tab.locator("#stage-2 table tbody tr").all_inner_texts()
    assert len(rows) == len(expected.query_tokens)
    for row, values in zip(rows, expected.weights[1, 2], strict=True):
        shown = [number(one) for one in row.split("\t")[1:]]
        np.testing.assert_allclose(shown, values, atol=CLOSE)
    head = opened.tab.locator("#stage-2 table thead th").all_inner_texts()
    assert [one.split(" ")[0] for one in head if one] == [one.text for one in expected.key_tokens]
    assert "queries only in A: 1, only in B: 2; left out" in opened.text("#stage-2 .hint")
    opened.choose("measure", "difference")
    opened.tab.wait_for_selector(".heads.sorted")


def test_a_head_shows_what_it_does_in_other_texts(open_page, live_page):
    opened = answered(open_page(live_page, "view=heatmap"))
    opened.key("i")
    opened.tab.wait_for_selector("dialog.card[open] .texts")
    assert opened.text("dialog.card h2") == "cross layer 2 head 0"
    assert findings(opened.tab) == []
    opened.tab.locator("dialog.card .like button").first.click()
    opened.tab.wait_for_selector("dialog.card h2:not(:has-text('cross layer 2 head 0'))")
    name = opened.text("dialog.card h2")
    opened.tab.locator("dialog.card button:has-text('Back')").click()
    answered(opened)
    assert name.removeprefix("cross ") in opened.text("#caption")


def test_a_page_and_an_atlas_lead_to_the_same_head(browser, tmp_path):
    lines = tmp_path / "lines.txt"
    lines.write_text("Tom likes dogs.\nThe cat sat on the mat.\n", encoding="utf-8")
    atlas, page = tmp_path / "atlas of lm.html", tmp_path / "page.html"
    model = ("--model", "pocket-lm", "-f", "none", "-q")
    assert attnviz("heads", "--input", lines, "--atlas", atlas, *model).status == 0
    assert attnviz("self", LM_TEXT, "--html", page, "--atlas", atlas, *model).status == 0
    context = browser.new_context()  # type: ignore[attr-defined]
    tab = context.new_page()
    tab.goto(f"{page.as_uri()}#heads=1.4")
    tab.locator("#corpus").click()
    tab.wait_for_selector("#back")
    assert tab.locator("#head h2").inner_text() == "layer 1 head 4"
    tab.locator(".like button").first.click()
    tab.wait_for_function(
        "() => document.querySelector('#head h2').textContent !== 'layer 1 head 4'"
    )
    name = tab.locator("#head h2").inner_text()
    tab.locator("#back").click()
    tab.wait_for_selector("body[data-complete]")
    assert name in tab.locator("#caption").inner_text()
    tab.goto(f"{atlas.as_uri()}#back=javascript:alert(1)|causal:0:0")
    assert tab.locator("#back").count() == 0
    context.close()
    bad = attnviz("self", LM_TEXT, "--html", page, "--atlas", page, *model)
    assert (bad.status, bad.err.count("\n")) == (1, 1)
    assert "is no atlas" in bad.err
    assert attnviz("self", LM_TEXT, "--atlas", atlas, *model).status == 2
    other = attnviz("self", "Tom", "--html", page, "--atlas", atlas, "-f", "none")
    assert "no head is linked: the atlas is of pocket-lm, and the page of pocket" in other.err
    document = re.search(r'id="document">(.*?)</script>', page.read_text("utf-8"))
    assert document
    assert json.loads(document[1])["atlas"] is None
