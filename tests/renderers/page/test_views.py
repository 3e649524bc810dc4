"""Each view of the page against the numbers of its map."""

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pytest

from attnviz import attend
from attnviz.core.attention_map import Attention, AttentionMap, Provenance, Token
from attnviz.renderers.page import Patches, page
from tests.renderers.page.reading import CLOSE, number, pointed_at, shades
from tests.renderers.page.samples import (
    encoder,
    encoder_page,
    pair,
    picture,
    placed,
    with_projections,
)

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_lines_are_drawn_from_a_threshold_and_chosen(open_page):
    opened = open_page(encoder_page(), "view=lines&least=0.3")
    expected = int((encoder().weights[1, 2] >= 0.3).sum())
    assert f".300, {expected} lines" in opened.text("#view .tools")
    slider = opened.tab.locator("#least")
    slider.fill("0.5")
    expected = int((encoder().weights[1, 2] >= 0.5).sum())
    assert f"{expected} line" in opened.text("#view .tools")

    opened = open_page(encoder_page(), "view=lines")
    opened.tab.locator(".lines canvas").focus()
    opened.key("ArrowDown", 3)
    assert opened.fragment()["row"] == "2"
    opened.key("ArrowRight")
    assert opened.fragment()["column"] == "2"
    assert "is attended most by" in opened.text("#readout")


@pytest.mark.core
def test_lines_of_several_heads_have_a_colour_each(open_page):
    opened = open_page(encoder_page(), "view=lines&least=0.2&heads=0.0,1.1")
    expected = int((encoder().weights[[0, 1], [0, 1]] >= 0.2).sum())
    said = opened.text("#view .tools")
    assert f"{expected} lines" in said
    tiles = opened.tab.locator("#view .tiles [aria-pressed=true]")
    assert tiles.all_inner_texts() == ["0", "1.1"]
    colors = [tile.evaluate("one => getComputedStyle(one).borderTopColor") for tile in tiles.all()]
    assert len(set(colors)) == 2


@pytest.mark.core
def test_a_word_of_the_text_shades_the_others(open_page):
    opened = open_page(encoder_page(), "view=text")
    opened.tab.locator(".word").nth(4).click()
    weights = encoder().weights[1, 2]
    np.testing.assert_allclose(shades(opened), weights[4], atol=CLOSE)
    opened.tab.get_by_text("the word is attended by").click()
    np.testing.assert_allclose(shades(opened), weights[:, 4], atol=CLOSE)


def test_words_of_one_text_shade_the_others(open_page):
    opened = open_page(page(pair()), "view=text&heads=0.1")
    weights = pair().maps[0].weights[0, 1]
    opened.tab.locator(".running").nth(0).locator(".word").nth(2).click()
    np.testing.assert_allclose(shades(opened)[5:], weights[2], atol=CLOSE)
    opened.tab.locator(".running").nth(1).locator(".word").nth(1).click()
    np.testing.assert_allclose(shades(opened)[:5], weights[:, 1], atol=CLOSE)


@pytest.mark.core
def test_query_and_key_multiply_to_the_weight(open_page):
    attention, kept = with_projections()
    html = page(attention, projections={0: kept})
    opened = open_page(html, "view=query-key&heads=0.1&row=2&column=3")
    said = opened.text(".sum")
    product = float(kept.query[0, 1, 2] @ kept.key[0, 1, 3])
    numbers = re.findall(r"= (-?\d+\.\d+)", said)
    assert float(numbers[0]) == pytest.approx(product, abs=2e-3)
    assert float(numbers[1]) == pytest.approx(product / np.sqrt(8), abs=2e-3)
    assert "over √8" in said
    softmax = number(opened.text(".sum output"))
    assert softmax == pytest.approx(float(attention.weights[0, 1, 2, 3]), abs=CLOSE)
    opened.tab.get_by_label("query", exact=True).select_option("0")
    assert opened.fragment()["row"] == "0"


def test_a_decoder_shows_how_a_weight_comes_about(open_page):
    found = attend("The cat sleeps", model="pocket", causal=True, keep_qk=True)
    row = len(found.tokens) - 2
    opened = open_page(found.page(), f"view=query-key&heads=1.2&row={row}&column=1")
    assert f"softmax over {row + 1} of {row + 2} keys, the later ones" in opened.text(".sum")
    shown = number(opened.text(".sum output"))
    assert shown == pytest.approx(float(found.weights[1, 2, row, 1]), abs=CLOSE)


def test_what_explains_a_score_is_said(open_page):
    attention, kept = with_projections()
    unscaled = replace(kept, query=kept.query / np.sqrt(8), scale=1.0)
    opened = open_page(page(attention, projections={0: unscaled}), "view=query-key&row=2")
    assert "√" not in opened.text(".sum")
    assert "takes part" not in opened.text(".sum")
    html = page(attention, projections={0: replace(kept, scale=1.0)})
    opened = open_page(html, "view=query-key&row=2&column=3")
    assert "a mask, a bias or another scale takes part too" in opened.text(".sum")

    kept = replace(kept, besides="a soft cap of 50")
    opened = open_page(page(attention, projections={0: kept}), "view=query-key&row=2")
    assert "a soft cap of 50 takes part too does not show here" in opened.text(".sum")
    kept = replace(kept, scale=1.0)
    opened = open_page(page(attention, projections={0: kept}), "view=query-key&row=2")
    said = "the score is the product alone, and a soft cap of 50 takes part too"
    assert said in opened.text(".sum")


def test_keys_that_get_nothing_are_said_to(open_page):
    attention, kept = with_projections()
    masked = attention.weights * np.tri(4, dtype=np.float32)
    masked /= masked.sum(axis=-1, keepdims=True)
    item = attention.main.with_weights(masked)
    html = page(replace(attention, maps=(item,)), projections={0: kept})
    opened = open_page(html, "view=query-key&heads=0.0&row=1&column=0")
    assert "2 of 4 keys, the others get nothing" in opened.text(".sum")
    assert abs(number(opened.text(".sum output")) - masked[0, 0, 1, 0]) <= CLOSE
    html = page(replace(attention, maps=(replace(item, stream="causal"),)), projections={0: kept})
    opened = open_page(html, "view=query-key&heads=0.0&row=1&column=0")
    assert "2 of 4 keys, the later ones are hidden" in opened.text(".sum")


def test_without_queries_or_patches_no_view_is_offered(open_page):
    opened = open_page(encoder_page(), "view=query-key")
    tabs = opened.tab.locator("[role=tab]").all_inner_texts()
    assert tabs == ["Sentence", "Heads", "Heat map", "Lines", "Text", "Table"]
    assert opened.tab.locator("[role=tab][aria-selected=true]").inner_text() == "Heat map"


@pytest.mark.core
def test_patches_lie_over_their_picture(open_page):
    attention, image = picture()
    html = page(attention, patches={0: Patches(image, 2, 2, 1)})
    opened = open_page(html, "view=image&heads=0.0")
    opened.tab.locator(".image canvas:not(.ramp)").focus()
    opened.key("ArrowRight")
    assert opened.fragment()["row"] == "1"  # from the class token to the first patch
    box = opened.tab.locator(".image canvas:not(.ramp)").bounding_box()
    opened.tab.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + box["height"] * 0.25)
    assert "patch 0 1 attends to patch 1 2" in opened.text("#readout .link")
    assert abs(pointed_at(opened) - attention.weights[0, 0, 1, 2]) <= CLOSE
    opened.tab.mouse.click(box["x"] + box["width"] * 0.25, box["y"] + box["height"] * 0.75)
    assert opened.fragment()["row"] == "3"
    root = ElementTree.fromstring(opened.download("svg"))
    assert len(list(root.iter("{http://www.w3.org/2000/svg}image"))) == 2  # and the scale
    largest = attention.weights[0, 0, 3, 1:].max()
    said = re.findall(r"“patch 2” gives: (\S+) at most", opened.text("#view .hint"))
    assert abs(number(said[0]) - largest) <= CLOSE


def test_without_a_class_token_patches_have_the_mean(open_page):
    attention, image = picture()
    opened = open_page(page(attention, patches={0: Patches(image, 2, 2, 1)}), "specials=drop")
    assert opened.tab.get_by_label("query", exact=True).input_value() == "-1"
    kept = attention.weights[0].mean(axis=0)[1:, 1:]
    said = re.findall(r"give on average: (\S+) at most", opened.text("#view .hint"))
    assert abs(number(said[0]) - kept.mean(axis=0).max()) <= CLOSE
    clear = opened.tab.locator(".ramp").evaluate(
        "one => [...one.getContext('2d').getImageData(0, 0, 160, 1).data]"
        ".filter((_, at) => at % 4 === 3)"
    )
    assert clear[0] < 20 < 200 < clear[-1]  # as faint as what it explains
    opened.tab.locator(".image canvas:not(.ramp)").focus()
    opened.key("ArrowRight")
    assert opened.fragment()["row"] == "0"


def test_words_and_patches_show_where_they_look(open_page):
    attention, image = picture()
    words, text = placed(["red", "car", "fast"])
    (item,) = attention.maps
    looks = item.with_weights(
        item.weights[:, :, :3], query_tokens=words, query_side="text", layers=item.layers
    )
    attention = replace(attention, maps=(looks,), text=text)
    opened = open_page(page(attention, patches={0: Patches(image, 2, 2, 1)}), "heads=0.0")
    tab = opened.tab  # it opens beside its words
    assert tab.locator("[role=tab][aria-selected=true]").inner_text() == "Image"
    tab.locator(".beside .word").nth(1).hover()
    assert "car" in opened.text("#readout .link")
    assert tab.locator(".beside .word").nth(1).get_attribute("aria-pressed") == "true"
    tab.locator(".beside .word").nth(2).click()
    assert opened.fragment()["row"] == "2"
    box = tab.locator(".image canvas:not(.ramp)").bounding_box()
    tab.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + box["height"] * 0.25)
    given = [
        number(word.get_attribute("aria-description") or "0")
        for word in tab.locator(".beside .word").all()
    ]
    assert np.abs(np.array(given) - looks.weights[0, 0, :, 2]).max() <= 2 * CLOSE
    tab.locator(".image canvas:not(.ramp)").focus()
    opened.key("ArrowRight")
    opened.key("ArrowDown")
    assert opened.fragment()["column"] == "3"


@pytest.mark.core
def test_the_table_holds_every_weight(open_page):
    opened = open_page(encoder_page(), "view=table")
    cells = [number(text) for text in opened.tab.locator("#table tbody td").all_inner_texts()]
    np.testing.assert_allclose(np.reshape(cells, (7, 7)), encoder().weights[1, 2], atol=CLOSE)


def test_labels_tables_and_words_stand_beside_views(open_page):
    item = encoder().main
    tokens = tuple(
        replace(token, label="B-PER" if token.text == "profes" else "")
        for token in item.query_tokens
    )
    labelled = replace(item, query_tokens=tokens, key_tokens=tokens)
    html = page(replace(encoder(), maps=(labelled,)))
    for view in ("heatmap", "lines", "table"):
        opened = open_page(html, f"view={view}")
        root = ElementTree.fromstring(opened.download("svg"))
        assert "profes · B-PER" in [text.text for text in root.iter() if text.text]

    opened = open_page(encoder_page(), "view=heatmap")
    opened.settle("#table")
    assert opened.tab.locator("#table tbody tr").count() == 7
    for view in ("heatmap", "lines"):
        opened.tab.locator(f"#tab-{view}").click()
        canvas = opened.tab.locator("#view canvas[role=application]")
        assert canvas.get_attribute("aria-label")
        assert canvas.get_attribute("tabindex") == "0"
    assert opened.tab.locator("select:not([data-switch])").count() == 0


def test_few_queries_over_many_keys_are_drawn(open_page):
    weights = np.zeros((1, 1, 6, 2000), dtype=np.float32)
    weights[0, 0, range(6), range(150, 2000, 333)] = 1
    rows, keys = (tuple(Token(f"{n}") for n in range(count)) for count in (6, 2000))
    item = AttentionMap("cross", rows, keys, weights, key_side="recording")
    opened = open_page(page(Attention((item,), Provenance("file", "wide"))), "view=heatmap")
    canvas = opened.tab.locator("#overview .head canvas")
    assert canvas.evaluate("canvas => [canvas.width, canvas.height]") == [96, 6]
    opened.tab.locator("body").evaluate(
        """() => {
          const draw = CanvasRenderingContext2D.prototype.drawImage;
          window.heights = [];
          CanvasRenderingContext2D.prototype.drawImage = function (image, ...where) {
            window.heights.push(image.height);
            draw.call(this, image, ...where);
          };
        }"""
    )
    opened.choose("scale", "view")
    opened.settle()
    assert {6} <= {*opened.tab.locator("body").evaluate("() => window.heights")}

    weights = np.zeros((1, 1, 6, 300), dtype=np.float32)
    weights[0, 0, range(6), range(25, 300, 50)] = 1
    rows = tuple(Token(f"query{n}") for n in range(6))
    item = AttentionMap("cross", rows, tuple(Token(f"{n}") for n in range(300)), weights)
    opened = open_page(page(Attention((item,), Provenance("file", "wide"))), "view=lines")
    root = ElementTree.fromstring(opened.download("svg"))
    places = {text.text: float(text.get("y", "nan")) for text in root.iter() if text.text}
    for row in range(6):
        assert abs(places[f"query{row}"] - places[str(25 + 50 * row)]) < 20
