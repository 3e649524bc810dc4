"""The real page in a real browser: every control, and every number against the map."""

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from urllib.parse import urlencode

import numpy as np
import pytest

from attnviz import compare
from attnviz.core.attention_map import Attention, AttentionMap, Provenance, Token
from attnviz.renderers.page import document, iframe, page
from attnviz.storage.archive import dump_archive
from tests.renderers.page.conftest import Opened
from tests.renderers.page.reading import CLOSE, csv_of, number, pointed_at, weights_of
from tests.renderers.page.samples import (
    HOSTILE,
    encoder,
    encoder_page,
    hostile,
    pair,
    random_map,
    softmax_rows,
)
from tests.samples import effects

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.mark.core
def test_the_page_opens_with_the_head_in_focus(open_page):
    opened = open_page(
        encoder_page(title="sample · 2 layers", command="attnviz render x"), "view=heatmap"
    )
    assert opened.text("h1") == "sample · 2 layers"
    assert "the professor read it" in opened.text("#texts")
    caption = (
        "encoder · 2 layers × 3 heads · layer 1 head 2 (the sharpest) · rows attend to columns"
    )
    assert opened.text("#caption") == caption
    assert opened.text("footer code") == "attnviz render x"
    assert "made up" in opened.text("footer")
    np.testing.assert_allclose(weights_of(opened), encoder().weights[1, 2], atol=CLOSE)


def test_heads_are_named_added_and_taken_away(open_page):
    item = encoder().main
    mean = item.with_weights(
        item.weights.mean(axis=(0, 1), keepdims=True), layers=("mean",), heads=("mean",)
    )
    opened = open_page(page(Attention((mean,), Provenance("file", "reduced"))), "view=heatmap")
    expected = "encoder · mean over layers mean over heads · rows attend to columns"
    assert opened.text("#caption") == expected
    assert "within 0.00004" in opened.text("footer")

    opened = open_page(encoder_page(), "view=heatmap")
    heads = opened.tab.locator("#overview .head")
    assert heads.count() == 6
    heads.nth(1).click()
    assert opened.text("#caption").startswith("encoder · 2 layers × 3 heads · layer 0 head 1 ·")
    np.testing.assert_allclose(weights_of(opened), encoder().weights[0, 1], atol=CLOSE)
    assert heads.nth(1).get_attribute("aria-pressed") == "true"

    opened = open_page(encoder_page(), "heads=0.0")
    head = opened.tab.locator("#overview .head").nth(4)
    head.click(modifiers=["Shift"])
    weights = encoder().weights
    expected = (weights[0, 0] + weights[1, 1]) / 2
    np.testing.assert_allclose(weights_of(opened), expected, atol=CLOSE)
    assert "mean over 2 chosen heads" in opened.text("#caption")
    head.click(modifiers=["Shift"])
    assert "layer 0 head 0" in opened.text("#caption")
    opened = open_page(encoder_page(), "heads=1.0,1.0,0.1")
    np.testing.assert_allclose(weights_of(opened), (weights[1, 0] + weights[0, 1]) / 2, atol=CLOSE)
    assert "mean over 2 chosen heads" in opened.text("#caption")


@pytest.mark.parametrize(
    ("fragment", "names"),
    [
        ("heads=1.0,0.1", [("mean", "mean of 1.0 0.1")]),
        ("heads=1.0,1.1&mix=max", [("1", "max of 0 1")]),
        ("heads=1.0,1.1,1.2", [("1", "mean")]),
        ("heads=0.0,0.1,0.2,1.0,1.1,1.2", [("mean", "mean")]),
        ("heads=1.0,0.1&view=lines", [("1", "0"), ("0", "1")]),
        ("view=heads", [(layer, head) for layer in "01" for head in "012"]),
    ],
)
def test_csv_names_the_layer_and_head_of_each_weight(open_page, fragment, names):
    rows = csv_of(open_page(encoder_page(), fragment))
    assert list(dict.fromkeys((row["layer"], row["head"]) for row in rows)) == names
    if names[0][0].isdecimal() and names[0][1].isdecimal():
        expected = [encoder().weights[int(layer), int(head)] for layer, head in names]
        found = [float(row["weight"]) for row in rows]
        np.testing.assert_allclose(found, np.ravel(expected), atol=CLOSE)


def test_words_without_a_value_count_in_no_mean(open_page):
    """The sums over a word's keys, and their mean over those of its queries that have a value."""
    words = (None, 0, 0, 1)
    opened = open_page(page(effects(), words={0: (words, words)}), "heads=0.0&unit=words")
    weights = effects().weights[0, 0]
    groups = [[0], [1, 2], [3]]

    def cell(queries: list[int], keys: list[int]) -> float:
        sums = [row[keys] for row in weights[queries] if np.isfinite(row[keys]).any()]
        return float(np.mean([np.nansum(one) for one in sums])) if sums else np.nan

    expected = [[cell(queries, keys) for keys in groups] for queries in groups]
    rows = csv_of(opened)
    found = np.array([float(row["weight"] or "nan") for row in rows]).reshape(3, 3)
    np.testing.assert_allclose(found, expected, atol=CLOSE)
    assert [row["key_position"] for row in rows[:3]] == ["0", "1", "2"]


def test_many_weights_are_within_what_the_page_states(open_page, monkeypatch):
    monkeypatch.setattr(document, "_FEW", 0)
    monkeypatch.setattr(document, "_MANY", 0)
    attention = random_map(3, 2, 40)
    opened = open_page(page(attention), "view=heatmap&heads=1.1")  # no layer that comes first
    said = "Weights are kept to within 0.001, those below 0.01 to within 0.0004."
    assert said in opened.text("footer")
    rows = [float(row["weight"]) for row in csv_of(opened)]
    off = np.abs(np.array(rows).reshape(40, 40) - attention.weights[1, 1])
    assert off.max() < 0.001
    assert off[attention.weights[1, 1] < 0.01].max() < 0.0004 + 0.0005  # three digits are written


@pytest.mark.parametrize(("few", "digits"), [(400_000, 4), (0, 3)])
def test_csv_has_the_digits_that_the_page_keeps(open_page, few, digits, monkeypatch):
    monkeypatch.setattr(document, "_FEW", few)
    texts = [row["weight"] for row in csv_of(open_page(encoder_page(), "view=heads"))]
    large = [text for text in texts if float(text) > 0.5]
    assert max(len(text.partition(".")[2]) for text in large) == digits


def test_heads_are_mixed_and_chosen_by_name(open_page):
    opened = open_page(encoder_page(), "view=heatmap")
    opened.choose("layer", "all")
    for mix in ("max", "mean"):
        opened.choose("several as", mix)
        expected = getattr(encoder().weights, mix)(axis=(0, 1))
        np.testing.assert_allclose(weights_of(opened), expected, atol=CLOSE)

    opened = open_page(encoder_page(), "view=heatmap")
    opened.choose("layer", "0")
    assert "layer 0 head 2" in opened.text("#caption")
    opened.choose("head", "all")
    assert "mean over the heads of layer 0" in opened.text("#caption")
    opened.choose("head", "1")
    assert "layer 0 head 1" in opened.text("#caption")


@pytest.mark.parametrize("values", ["share", "signed"])
def test_many_weights_stay_within_a_thousandth(open_page, values):
    tokens = tuple(Token(f"word{place}") for place in range(128))
    weights = softmax_rows(1, 25, 128, 128, spread=4.0)
    if values == "signed":
        weights = weights * np.where(np.arange(128) % 3, 1, -1)
    item = AttentionMap("encoder", tokens, tokens, weights, values=values)
    opened = open_page(page(Attention((item,), Provenance("file", "many"))), "heads=0.24")
    close = 0.0011 if values == "share" else 0.0021
    found, half = weights_of(opened), 0.0005  # of the last place of large weights
    np.testing.assert_allclose(found, weights[0, 24], atol=close + half)
    small = np.abs(weights[0, 24]) < 0.01  # which keep more places
    np.testing.assert_allclose(found[small], weights[0, 24][small], atol=3e-4)
    assert "within 0.00" in opened.text("footer")


def test_the_cell_pointed_at_shows_its_weight(open_page):
    opened = open_page(encoder_page(), "view=heatmap")
    opened.tab.locator(".plot canvas").last.focus()
    opened.key("ArrowDown")
    opened.key("ArrowDown", 3)
    opened.key("ArrowRight", 2)
    assert (opened.fragment()["row"], opened.fragment()["column"]) == ("3", "2")
    assert abs(pointed_at(opened) - encoder().weights[1, 2, 3, 2]) <= CLOSE
    opened.key("Escape")
    assert "row" not in opened.fragment()

    opened = open_page(encoder_page(), "heads=0.0")
    box = opened.tab.locator(".plot canvas").last.bounding_box()
    seen = set()
    weights = encoder().weights[0, 0]
    for x in range(130, 420, 60):
        opened.tab.mouse.move(box["x"] + x, box["y"] + x)
        opened.drawn()
        link = opened.text("#readout .link")
        found = re.fullmatch(r".+ (\d) attends to .+ (\d) (\S+)", link)
        if not found:
            continue
        row, column = int(found[1]), int(found[2])
        seen.add((row, column))
        assert abs(number(found[3]) - weights[row, column]) <= CLOSE
        strongest = float(weights[row].max())
        first = opened.text("#readout .strongest .entry").split()[-1]
        assert abs(number(first) - strongest) <= CLOSE
    assert len(seen) >= 3


def test_zoom_keeps_the_numbers_and_is_remembered(open_page):
    attention = random_map(1, 1, 60)
    opened = open_page(page(attention), "view=heatmap")
    opened.tab.locator(".plot canvas").last.focus()
    opened.key("+", 3)
    opened.tab.wait_for_function("() => parseFloat(location.hash.split('zoom=')[1]) > 3.3")
    assert float(opened.fragment()["zoom"].split(",")[0]) == pytest.approx(1.5**3, rel=0.01)
    box = opened.tab.locator(".plot canvas").last.bounding_box()
    opened.tab.mouse.move(box["x"] + 300, box["y"] + 300)
    opened.drawn()
    before = opened.text("#readout .link")
    row, column = map(int, re.findall(r" (\d+) ", before + " ")[:2])
    assert abs(pointed_at(opened) - attention.weights[0, 0, row, column]) <= CLOSE
    zoomed = opened.fragment()["zoom"]
    opened.tab.mouse.down()
    opened.tab.mouse.move(box["x"] + 200, box["y"] + 240, steps=4)
    opened.tab.mouse.up()
    opened.tab.wait_for_function(
        "was => !location.hash.includes(was)", arg=urlencode({"zoom": zoomed})
    )
    assert opened.fragment()["zoom"].split(",")[1:] != ["0", "0"]
    opened.tab.locator(".plot canvas").last.focus()
    opened.key("0")
    opened.tab.wait_for_function("() => !location.hash.includes('zoom')")


def test_words_and_special_tokens_change_the_weights(open_page):
    opened = open_page(encoder_page(), "view=heatmap")
    opened.choose("by", "words")
    columns = np.add.reduceat(encoder().weights[1, 2], [0, 1, 2, 4, 5, 6], axis=1)
    expected = np.add.reduceat(columns, [0, 1, 2, 4, 5, 6], axis=0)
    expected[2] /= 2
    np.testing.assert_allclose(weights_of(opened), expected, atol=2 * CLOSE)
    opened.settle("#table")
    assert "professor" in opened.text("#table tbody")

    opened = open_page(encoder_page(), "view=heatmap")
    whole = encoder().weights[1, 2]
    kept = whole[1:6, 1:6]
    opened.choose("special tokens", "drop")
    np.testing.assert_allclose(weights_of(opened), kept, atol=CLOSE)
    share = round(float((whole[1:6, 0] + whole[1:6, 6]).mean()) * 100)
    said = int(re.findall(r"hold (\d+) %", opened.text("#rests"))[0])
    assert abs(said - share) <= 1
    opened.choose("special tokens", "renormalise")
    expected = kept / kept.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(weights_of(opened), expected, atol=2 * CLOSE)
    np.testing.assert_allclose(weights_of(opened).sum(axis=1), 1, atol=0.01)


def test_streams_and_lenses_have_sides_and_switches(open_page):
    opened = open_page(page(pair()), "view=heatmap")
    assert "rows (target) attend to columns (source)" in opened.text("#caption")
    opened.choose("stream", "affinity")
    np.testing.assert_allclose(weights_of(opened), pair().maps[2].weights[0, 0], atol=CLOSE)
    assert "affinity, from -1 to 1" in opened.text("#scale")
    assert "against" in opened.text("#caption")
    opened.key("t")
    assert opened.text("#caption").startswith("cross")

    first = encoder()
    item = first.main
    rollout = AttentionMap(
        "encoder · rollout", item.query_tokens, item.key_tokens, item.weights[:1, :1]
    )
    opened = open_page(page(replace(first, maps=(item, rollout))), "view=heatmap")
    opened.choose("lens", "rollout")
    assert "rollout · layer 0 head 0" in opened.text("#caption")
    np.testing.assert_allclose(weights_of(opened), item.weights[0, 0], atol=CLOSE)


@pytest.mark.parametrize("few", [400_000, 0])
def test_cells_without_a_value_say_so(open_page, few, monkeypatch):
    monkeypatch.setattr(document, "_FEW", few)
    opened = open_page(page(effects()), "heads=0.0&row=0&column=0")
    assert "no value" in opened.text("#readout")
    assert "Grey cells have no value" in opened.text("#remark")
    rows = csv_of(opened)
    empty = [(row["query_position"], row["key_position"]) for row in rows if not row["weight"]]
    assert empty == [("0", "0"), ("1", "0")]
    opened.tab.get_by_text("weight .900, estimated .250").first.click()
    assert "sat" in opened.text("#readout")
    assert "attend" not in opened.text("#readout")
    assert opened.fragment()["heads"] == "0.1"
    opened = open_page(page(effects()), "view=text")
    assert "attend" not in opened.text("#stage")


def test_a_swipe_scrolls_unless_it_can_pan(open_page):
    opened = open_page(page(random_map(1, 1, 60)), has_touch=True)
    over = opened.tab.locator(".plot canvas").last
    touch = "one => [one, one.parentElement].map((part) => getComputedStyle(part).touchAction)"
    assert "none" not in over.evaluate(touch)
    over.focus()
    opened.key("+", 2)
    opened.tab.wait_for_function("() => location.hash.includes('zoom=')")
    assert over.evaluate(touch)[0] == "none"
    opened.key("0")
    opened.tab.wait_for_function("() => !location.hash.includes('zoom=')")
    assert "none" not in over.evaluate(touch)


def test_heads_are_sorted_and_filtered_by_a_measure(open_page):
    opened = open_page(encoder_page(), "view=heatmap")
    opened.choose("measure", "previous-token")
    names = opened.tab.locator("#overview .head .name").all_inner_texts()
    weights = encoder().weights
    values = {
        f"{layer}·{head}": np.diagonal(weights[layer, head], -1).mean()
        for layer in range(2)
        for head in range(3)
        if (layer, head) != (0, 0)
    }
    highest_first = sorted(values, key=lambda name: -values[name])
    assert names == [*highest_first, "0·0"]
    opened.choose("order", "low")
    names = opened.tab.locator("#overview .head .name").all_inner_texts()
    assert names == [*highest_first[::-1], "0·0"]
    middle = sorted(values.values())[3] - 1e-4
    opened.tab.locator('[data-switch="at least"]').fill(str(round(middle, 3)))
    assert "2 of 6 heads" in opened.text("#overview")


def test_the_address_reopens_the_same_view(open_page):
    html = encoder_page()
    opened = open_page(html, "view=heatmap")
    opened.choose("layer", "0")
    opened.choose("by", "words")
    opened.choose("special tokens", "drop")
    opened.choose("colours", "sunset")
    opened.choose("scale", "view")
    opened.choose("measure", "previous-token")
    opened.tab.locator("#tab-text").click()
    opened.tab.locator(".word").nth(1).click()
    fragment = opened.address().split("#")[1]
    again = open_page(html, fragment)
    assert again.address().split("#")[1] == fragment
    for selector in ("#caption", "#switches", "#readout .link", "#remark", "#overview", "#scale"):
        assert again.text(selector) == opened.text(selector)
    chosen = again.tab.locator("select")
    assert [chosen.nth(at).input_value() for at in range(chosen.count())] == [
        opened.tab.locator("select").nth(at).input_value() for at in range(chosen.count())
    ]


@pytest.mark.parametrize(
    "fragment",
    ["view=nothing", "map=99&heads=7.7,x", "row=1e9&column=-5&zoom=a,b,c", "%E0%A4%A", "least=x"],
)
def test_a_foreign_address_opens_something(open_page, fragment):
    opened = open_page(encoder_page(), fragment)
    assert "layer 1 head 2" in opened.text("#caption")


def test_every_key_does_what_the_list_says(open_page):
    opened = open_page(encoder_page(), "view=heatmap")
    caption = lambda: opened.text("#caption")  # noqa: E731
    opened.key("[")
    assert "layer 1 head 1" in caption()
    opened.key("]")
    assert "layer 1 head 2" in caption()
    opened.key("{")
    assert "layer 0 head 2" in caption()
    opened.key("}")
    opened.key("m")
    assert "mean over the heads of layer 1" in caption()
    opened.key("x")
    assert "maximum over the heads" in caption()
    for key, name, value in (
        ("w", "unit", "words"),
        ("s", "specials", "drop"),
        ("c", "colors", "sunset"),
        ("r", "range", "shared"),
        ("4", "view", "lines"),
    ):
        opened.key(key)
        assert opened.fragment()[name] == value
    opened.key("?")
    said = opened.text("#help")
    assert "the layer before, the next layer" in said
    assert "the next stream or lens" not in said  # of one stream it does nothing
    opened.key("Escape")
    assert not opened.tab.locator("#help").is_visible()

    opened = open_page(encoder_page(), "view=heatmap")
    opened.tab.locator("#tab-heatmap").focus()
    opened.key("ArrowRight")
    assert opened.fragment()["view"] == "lines"
    opened.tab.locator("#overview .head[tabindex='0']").focus()
    opened.key("ArrowLeft")
    opened.key("ArrowUp")
    opened.key("Enter")
    assert "layer 0 head 1" in opened.text("#caption")


def test_colours_scale_and_pools_are_said(open_page):
    opened = open_page(page(random_map(1, 2, 12)), "view=heatmap")
    opened.choose("scale", "view")
    assert 0.1 < random_map(1, 2, 12).weights[0].mean(axis=0).max() < 0.2
    assert opened.text("#scale span >> nth=1") == ".2"

    def ground(opened: Opened) -> int:
        color = opened.tab.locator("body").evaluate(
            "body => getComputedStyle(body).backgroundColor"
        )
        return sum(map(int, re.findall(r"\d+", color)[:3]))

    assert ground(open_page(encoder_page(), color_scheme="light")) > 700
    assert ground(open_page(encoder_page(), color_scheme="dark")) < 150

    attention = random_map(1, 1, 130)
    opened = open_page(page(attention, most_weights=5000))
    weights = attention.weights[0, 0]
    query, key = map(int, np.unravel_index(weights.argmax(), weights.shape))
    remark = opened.text("#remark")
    assert "Pooled: 2 queries × 2 keys" in remark
    assert f"exact: word{query} {query} → word{key} {key}" in remark


@pytest.mark.parametrize("view", ["heatmap", "lines", "text", "table"])
def test_a_view_is_saved_as_svg_and_png(open_page, view):
    opened = open_page(encoder_page(), f"view={view}&row=2&column=2")
    root = ElementTree.fromstring(opened.download("svg"))
    words = [item.text for item in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "profes" in words
    assert any("layer 1 head 2" in (text or "") for text in words)
    assert opened.download("png").startswith(b"\x89PNG\r\n\x1a\n")


@pytest.mark.core
def test_hostile_tokens_are_text(open_page):
    opened = open_page(page(hostile()), "view=heatmap")
    for view in ("table", "text", "lines", "heatmap"):
        opened.tab.locator(f"#tab-{view}").click()
        opened.settle()
        assert opened.tab.locator("script").count() == 3
        assert opened.tab.locator("img").count() == 0
    rows = csv_of(opened)
    assert (rows[0]["key_token"], rows[12]["key_token"]) == (HOSTILE[0], HOSTILE[12])
    assert rows[4]["key_token"] == "line\\u2028and\\u2029paragraph"
    for part in ElementTree.fromstring(opened.download("svg")).iter():
        assert part.tag.split("}")[1] in {"svg", "g", "rect", "path", "text", "image", "clipPath"}


def test_pages_in_one_notebook_are_apart(open_page, tmp_path):
    notebook = f"<!doctype html>{iframe(encoder_page())}{iframe(page(pair()))}"
    opened = open_page(notebook)
    first, second = (opened.tab.frame_locator("iframe").nth(place) for place in (0, 1))
    second.locator("body[data-complete]").wait_for()
    first.locator("body[data-complete]").wait_for()
    before = second.locator("#caption").inner_text()
    first.locator("#overview .head").first.click()
    assert "layer 0 head 0" in first.locator("#caption").inner_text()
    assert second.locator("#caption").inner_text() == before
    assert "#" not in opened.tab.url


@pytest.mark.core
def test_a_training_run_has_a_slider_of_steps(open_page):
    item = random_map(2, 2, 5).main
    maps = tuple(
        replace(item, stream=f"step {step}", weights=np.roll(item.weights, step // 100, axis=3))
        for step in (0, 100, 200)
    )
    opened = open_page(page(Attention(maps, Provenance("watched", "Toy"))), "view=heatmap")
    opened.choose("layer", "0")
    opened.choose("head", "1")
    slider = opened.tab.locator('[data-switch="step"]')
    assert (slider.get_attribute("max"), opened.tab.locator('[data-switch="stream"]').count()) == (
        *("2", 0),
    )
    slider.focus()
    for step in (100, 200):
        opened.key("ArrowRight")
        assert opened.text("#caption").startswith(f"step {step} · ")
        assert opened.text("#switches").startswith(f"step {step}")
        assert " head 1" in opened.text("#caption")
    assert np.allclose(weights_of(opened), maps[2].weights[0, 1], atol=CLOSE)


def test_a_cell_of_a_history_opens_head_and_step(open_page, tmp_path):
    item = random_map(2, 2, 5).main
    for step in (0, 100, 200):
        made = item.with_weights(np.roll(item.weights, step // 100, axis=3))
        sample = Attention((made,), Provenance("watched", "Toy"), id=f"step {step}")
        (tmp_path / f"step-{step:08d}.npz").write_bytes(dump_archive([sample]))
    opened = open_page(compare(str(tmp_path)).page(), "view=heatmap")
    cells = opened.tab.locator("#history button[data-place]")
    assert cells.count() == 4 * 3
    cells.nth(3 * 1 + 2).click()  # head 0.1 at the last step
    assert opened.text("#caption").startswith("step 200 · ")
    assert "layer 0 head 1" in opened.text("#caption")
    pressed = opened.tab.locator('#history button[aria-pressed="true"]')
    assert pressed.count() == 1
    pressed.focus()
    opened.key("ArrowLeft")
    opened.key("Enter")
    assert opened.text("#caption").startswith("step 100 · ")
    opened.tab.locator("#history select").select_option("drift")
    assert "Divergence from the sample before" in opened.text("#history")
    assert np.allclose(weights_of(opened), np.roll(item.weights, 1, axis=3)[0, 1], atol=CLOSE)
