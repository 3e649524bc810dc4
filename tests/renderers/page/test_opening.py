"""What a page shows first, and the addresses that open it otherwise."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from attnviz import attend, compare
from attnviz.core.attention_map import Attention, AttentionMap, Provenance, Token
from attnviz.renderers.page import page
from attnviz.renderers.page.document import plain_page
from attnviz.storage.archive import dump_archive
from tests.renderers.page.conftest import Opened
from tests.renderers.page.reading import CLOSE, csv_of, number, weights_of
from tests.renderers.page.samples import encoder, encoder_page, pair, random_map, softmax_rows

pytestmark = [pytest.mark.browser, pytest.mark.slow]
SENTENCE = "My sister bought a red car and sold her bike."


def links(opened: Opened, selector: str) -> list[tuple[str, str, float]]:
    """The links that stand in a part of the page: query, key, weight."""
    opened.settle()
    parts = opened.tab.locator(f"{selector} .entry").all_inner_texts()
    found = [re.fullmatch(r"(\S+) → (\S+) (\S+)", part) for part in parts]
    return [(one[1], one[2], number(one[3])) for one in found if one]


def words_alone(weights: np.ndarray) -> np.ndarray:
    """The words of `encoder`, whose rows sum to 1 without the special tokens."""
    columns = np.add.reduceat(weights, [1, 2, 4, 5], axis=1)
    columns -= np.array([0, 0, 0, 1]) * weights[:, 6:]
    rows = np.stack([columns[1], columns[2:4].mean(axis=0), columns[4], columns[5]])
    return rows / rows.sum(axis=1, keepdims=True)


def test_a_sentence_opens_as_lines_beside_a_matrix(open_page):
    opened = open_page(encoder_page())
    assert opened.fragment() == {"view": "sentence", "unit": "words", "specials": "renormalise"}
    assert opened.tab.locator("#view .lines canvas").is_visible()
    assert opened.tab.locator("#view .plot canvas").first.is_visible()
    assert weights_of(opened).shape == (4, 4)
    np.testing.assert_allclose(weights_of(opened).sum(axis=1), 1, atol=4 * CLOSE)

    tiles = opened.tab.locator("#view .tiles button")
    assert tiles.all_inner_texts() == ["0", "1", "2"]
    tiles.nth(0).click()
    opened.settle()
    assert opened.fragment()["heads"] == "1.2,1.0"
    tiles.nth(2).click()
    opened.settle()
    assert opened.fragment()["heads"] == "1.0"
    tiles.nth(1).click()
    opened.settle()
    tiles.nth(1).dblclick()
    opened.settle()
    assert opened.fragment()["heads"] == "1.1"


def test_headline_list_and_matrix_agree(open_page):
    opened = open_page(attend(SENTENCE, model="pocket").page())
    cells = {(row["query_token"], row["key_token"]): float(row["weight"]) for row in csv_of(opened)}
    headline = links(opened, "#readout .link")
    assert headline
    for query, key, weight in [*headline, *links(opened, "#overview .links li >> nth=0")]:
        assert abs(cells[query, key] - weight) <= CLOSE
        assert query != key
    first = opened.tab.locator("#overview .links small").first.inner_text()
    layer, head = first.split(".")
    assert f"layer {layer} head {head} (says most)" in opened.text("#caption")
    opened = open_page(attend(SENTENCE, model="pocket").page(), "view=text&heads=0.3")
    query = links(opened, "#readout .link")[0][0]
    assert opened.tab.locator(".word.active").inner_text().split()[0] == query
    assert opened.tab.locator(".word .number:not(:empty)").count() > 0
    model = "/home/somebody/secret/model"
    provenance = Provenance("file", "sample", True, settings={"folder": model}, notes=(model,))
    html = page(replace(encoder(), provenance=provenance))
    assert "somebody" not in html
    assert "folder …/model" in open_page(html).text("footer")


def test_what_rows_rest_on_stands_above(open_page):
    tokens = tuple(Token(word) for word in SENTENCE.split())
    count = len(tokens)
    even = np.full((1, 1, count, count), 1 / count, np.float32)
    one_key = np.zeros_like(even)
    one_key[..., 3] = 1
    for weights, said in (
        (even, "look at all keys about evenly"),
        (one_key, f"{count} of {count} words look most"),
    ):
        item = AttentionMap("encoder", tokens, tokens, weights)
        opened = open_page(page(Attention((item,), Provenance("file", "even"))))
        assert links(opened, "#readout .link") == []
        assert said in opened.text("#rests")
    weights = np.eye(5, dtype=np.float32)[[1, 2, 3, 4, 0]][None, None]
    tokens = tuple(Token(word) for word in SENTENCE.split()[:5])
    item = AttentionMap("self", tokens, tokens, weights, query_side="target")
    opened = open_page(page(Attention((item,), Provenance("file", "turn"))), "unit=words")
    assert opened.text("#rests") == "Each of the 5 words looks most at a key of its own."
    assert "Pieces" not in opened.text("#remark")

    weights = np.full((1, 1, 7, 7), 0.05, np.float32)
    weights[..., 0] = 0.7
    item = encoder().main.with_weights(weights, layers=("0",), heads=("0",))
    opened = open_page(page(replace(encoder(), maps=(item,), focus={})))
    expected = (
        "5 of 5 words look most at “[CLS]”; special tokens hold 75 % of the attention, "
        "left out here."
    )
    assert opened.text("#rests") == expected
    opened.choose("special tokens", "keep")
    assert "left out" not in opened.text("#rests")


def test_the_word_under_the_pointer_shows_its_row(open_page):
    opened = open_page(page(pair()), "view=sentence&heads=0.1")
    box = opened.tab.locator(".lines canvas").bounding_box()
    step = (box["height"] - 44) / 5
    for row in (1, 2):
        opened.tab.mouse.move(box["x"] + 40, box["y"] + 34 + (row + 0.5) * step)
        opened.drawn()
        opened.drawn()
        assert opened.text("#readout .link").startswith(("voiture", "rouge")[row - 1])
    opened.tab.locator(".lines canvas").focus()
    opened.key("ArrowDown", 2)
    assert opened.fragment()["row"] == "1"
    assert opened.text("#readout .link").startswith("voiture")


@pytest.mark.parametrize("width", [390, 1300])
def test_matrix_and_scale_lie_in_the_page(open_page, width):
    opened = open_page(attend(SENTENCE, model="pocket").page(), "")
    opened.resize(width)
    assert opened.tab.evaluate("document.scrollingElement.scrollWidth") <= width
    plot = opened.tab.locator("#view .plot").bounding_box()
    assert plot["width"] >= min(0.85 * width, 400)
    parts = opened.tab.locator("#scale > *")
    low, bar = (parts.nth(place).bounding_box() for place in (0, 1))
    assert 0 <= bar["x"] - low["x"] - low["width"] < 12


@pytest.mark.parametrize(
    ("fragment", "missing"),
    [
        ("lens=xyz", "lens xyz"),
        ("layer=99", "layer 99"),
        ("off=source:99", "off source:99"),
        ("word=99", "word 99"),
        ("tour=99&view=lines", "tour 99"),
        ("heads=7.7", "heads 7.7"),
    ],
)
def test_an_address_in_vain_is_told_and_taken_out(open_page, fragment, missing):
    opened = open_page(encoder_page(), fragment)
    assert f"“{missing}”" in opened.text("#amiss")
    assert missing.split()[0] not in opened.fragment()
    opened.choose("layer", "0")
    assert opened.text("#amiss") == ""


def test_a_training_run_opens_where_it_ended(open_page, tmp_path):
    item = random_map(2, 2, 5).main
    for step in (0, 100, 200):
        made = item.with_weights(np.roll(item.weights, step // 100, axis=3))
        sample = Attention((made,), Provenance("watched", "Toy"), id=f"step {step}")
        (tmp_path / f"step-{step:08d}.npz").write_bytes(dump_archive([sample]))
    opened = open_page(compare(str(tmp_path)).page())
    assert opened.text("#caption").startswith("step 200 · ")
    assert opened.tab.locator('#history [aria-pressed="true"]').count() == 1


def test_a_scale_leaves_out_first_rows_and_marks_more(open_page):
    weights = softmax_rows(1, 1, 60, 60, seed=2, spread=0.3) * np.tri(60, dtype=np.float32)
    weights /= weights.sum(axis=-1, keepdims=True)
    tokens = tuple(Token(f"word{place}") for place in range(60))
    item = AttentionMap("causal", tokens, tokens, weights)
    opened = open_page(page(Attention((item,), Provenance("file", "causal"))), "range=view")
    low, high = opened.tab.locator("#scale span").all_inner_texts()
    sizes = np.sort(weights[0, 0, 6:][weights[0, 0, 6:] > 0])  # a tenth of 60 rows sees few keys
    top = sizes[math.ceil(0.995 * sizes.size) - 1]
    assert (low, high) == ("0", f"> {math.ceil(10 * top) / 10:.1f}".replace("0.", "."))
    assert high.startswith("> .")
    for view in ("lines", "table"):
        opened.tab.locator(f"#tab-{view}").click()
        opened.settle()
        assert not opened.tab.locator("#scale").is_visible()


def test_what_is_printed_is_white_and_names_its_head(open_page):
    opened = open_page(encoder_page(), color_scheme="dark")
    opened.tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    opened.tab.emulate_media(media="print")
    opened.drawn()
    assert opened.tab.locator("#caption").is_visible()
    assert "layer 1 head 2" in opened.text("#caption")
    assert opened.tab.locator("#printed").is_visible()
    style = opened.tab.evaluate(
        """() => { const style = getComputedStyle(document.body);
          return [style.color, style.backgroundColor, style.printColorAdjust]; }"""
    )
    ink, ground = (sum(map(int, re.findall(r"\d+", one)[:3])) for one in style[:2])
    assert ink < 150 < 700 < ground
    assert style[2] == "exact"

    opened = open_page(
        plain_page("title", '<img alt="" src="data:image/svg+xml,<svg/>">'),
        "",
        "img",
        color_scheme="dark",
    )
    look = """() => [getComputedStyle(document.body).backgroundColor,
      getComputedStyle(document.querySelector("img")).filter]"""
    assert opened.tab.evaluate(look) == ["rgb(21, 24, 29)", "invert(0.9) hue-rotate(180deg)"]
    opened.tab.emulate_media(media="print")
    assert opened.tab.evaluate(look) == ["rgb(255, 255, 255)", "none"]


def test_arrow_keys_walk_over_the_words_of_a_text(open_page):
    opened = open_page(encoder_page(), "view=text&heads=1.2")
    words = opened.tab.locator("#view .word")
    assert words.count() == 7
    assert opened.tab.locator('#view .word[tabindex="0"]').count() == 1
    words.nth(0).evaluate("one => one.focus()")
    opened.key("ArrowRight")
    opened.key("ArrowDown")
    opened.key("ArrowLeft")
    assert opened.tab.evaluate("document.activeElement.textContent").startswith("the")
    opened.key("Enter")
    assert opened.fragment()["row"] == "1"
    assert opened.tab.locator('#view .word[tabindex="0"]').count() == 1


def test_names_and_titles_of_files_are_short(open_page):
    opened = open_page(encoder_page(title="word " * 3000), "view=heatmap")
    with opened.tab.expect_download() as waiting:
        opened.tab.locator("#save-csv").click()
    assert waiting.value.suggested_filename == "encoder-1.2.csv"
    svg = opened.download("svg").decode()
    width, height = map(float, re.findall(r'(?:width|height)="([\d.]+)mm"', svg)[:2])
    assert height < 2 * width

    names = ["def", "_", "get_name", "__", "(", "_x", ")"]
    tokens = tuple(Token(name) for name in names)
    item = AttentionMap("encoder", tokens, tokens, softmax_rows(1, 1, 7, 7))
    opened = open_page(page(Attention((item,), Provenance("file", "code"))), "view=heatmap")
    svg = opened.download("svg").decode()
    shown = [f"“{name}”" if not name.strip("_") else name for name in names]
    written = [text for text in re.findall(r"<text[^>]*>([^<]*)</text>", svg) if text in shown]
    assert written == shown * 2
    assert not re.search(r">_+<", svg)


def test_tables_and_telephones_show_whole_captions(open_page):
    opened = open_page(page(random_map(1, 1, 60)), "view=table")
    heads = opened.tab.locator("#table thead th").all_inner_texts()
    assert heads == ["1st key", "2nd key", "3rd key", "4th key", "5th key", "6th key"]
    stage, caption = (
        opened.tab.locator(one).bounding_box() for one in ("#table", "#table caption")
    )
    assert caption["x"] + caption["width"] <= stage["x"] + stage["width"]

    opened = open_page(page(random_map(1, 1, 101)), "view=heatmap")
    opened.resize(390)
    root = opened.tab.locator("#view .plot canvas").first.bounding_box()
    cells = opened.tab.evaluate(
        """() => { const one = document.querySelector("#view .plot canvas");
          const {data, width} = one.getContext("2d").getImageData(0, one.height / 2, one.width, 1);
          const line = Array.from({length: width}, (_, x) => data[4 * x + 3] > 250);
          return line.lastIndexOf(true) - line.lastIndexOf(false, line.lastIndexOf(true)); }"""
    )
    assert root["width"] <= 390
    assert cells > 0.5 * 390
