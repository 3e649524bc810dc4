"""Saved and printed figures are whole: title, caption, scale, legend, model, what is off."""

import re
import struct
import xml.etree.ElementTree as ElementTree
from typing import Any
from urllib.parse import urlencode

import pytest

from attnviz import attend
from attnviz.renderers.page import Patches, page
from tests.renderers.page.conftest import Opened
from tests.renderers.page.samples import encoder_page, picture, with_projections

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SVG = "{http://www.w3.org/2000/svg}"
TEXT = "The professor who supervised the student published the paper"
VIEWS = ("heads", "heatmap", "lines", "text", "table")


def figure(opened: Opened, width: str = "178") -> ElementTree.Element:
    """The view as an SVG so wide."""
    opened.settle()
    opened.tab.locator("#save-picture").click()
    opened.tab.locator('[data-switch="width"]').select_option(width)
    opened.tab.wait_for_selector('#saving[open][aria-busy="false"]')
    return ElementTree.fromstring(opened.download("svg"))


def told(root: ElementTree.Element) -> str:
    """All words of a figure, lines joined."""
    return " ".join(item.text or "" for item in root.iter(f"{SVG}text"))


def inside(opened: Opened, svg: bytes) -> bool:
    """Whether each text of a figure ends within it."""
    return bool(
        opened.tab.evaluate(
            """svg => {
              const holder = document.createElement("div");
              holder.append(new DOMParser().parseFromString(svg, "image/svg+xml").documentElement);
              document.body.append(holder);
              const root = holder.firstChild.getBoundingClientRect();
              const out = [...holder.querySelectorAll("text")]
                .map((one) => one.getBoundingClientRect())
                .filter((box) => box.right > root.right + 1 || box.left < root.left - 1);
              holder.remove();
              return out.length === 0;
            }""",
            svg.decode(),
        )
    )


@pytest.mark.parametrize("width", ["85", "178", "px"])
@pytest.mark.parametrize("view", VIEWS)
def test_a_saved_figure_is_whole(open_page, view, width):
    opened = open_page(attend(TEXT).page(), f"view={view}&row=3&heads=0.0")
    root = figure(opened, width)
    words = told(root)
    assert TEXT in words
    assert "encoder · 4 layers × 6 heads" in words
    assert "rows attend to columns" in words
    assert "model pocket" in words
    if view != "table":
        assert "share of a row's attention" in words
    size = {"85": "85mm", "178": "178mm", "px": "800"}[width]
    assert root.get("width") == size
    assert inside(opened, opened.download("svg"))


def test_every_view_is_saved_as_it_is_seen(open_page):
    opened = open_page(encoder_page(), "view=heads")
    root = figure(opened)
    assert len(root.findall(f".//{SVG}image")) == 6 + 1  # and the scale
    opened = open_page(encoder_page(), "view=table")
    numbers = re.findall(
        r"(?:^| )(?:<?\.\d{3}|1\.00)(?= |$)", told(figure(opened)).replace("  ", " ")
    )
    assert len(numbers) == 49

    root = figure(open_page(encoder_page(), "view=lines&heads=0.0,1.1"))
    words = told(root)
    assert "layer 0 head 0" in words
    assert "layer 1 head 1" in words
    lines = {one.get("stroke") for one in root.iter(f"{SVG}path")}
    chips = [one.get("fill") for one in root.iter(f"{SVG}rect") if one.get("height") == "6"]
    assert len(chips) == 2
    assert set(chips) <= lines

    attention, kept = with_projections()
    words = told(figure(open_page(page(attention, projections={0: kept}), "view=query-key&row=1")))
    assert "over √8" in words
    attention, image = picture()
    html = page(attention, patches={0: Patches(image, 2, 2, 1)})
    words = told(figure(open_page(html, "specials=drop")))
    assert "that all queries give on average" in words
    assert "[CLS]" in told(figure(open_page(html, "view=heatmap")))


@pytest.mark.core
def test_what_is_off_and_both_sentences_are_drawn(open_page, live_page):
    off = ",".join(f"cross:{layer}:{head}" for layer in range(3) for head in range(6))
    state = {"off": f"{off},source:1,cross:3:0:3:2", "beside": "on"}
    opened = open_page(live_page, urlencode(state))
    opened.tab.wait_for_selector('#stage-2[aria-busy="false"] .plot')
    words = told(figure(opened, "85"))
    for layer in range(3):
        for head in range(6):
            assert f"cross layer {layer} head {head}" in words
    assert "rouge → car in cross 3·0" in words
    assert "The red car is fast. → La voiture rouge est rapide." in words
    assert "The blue car is fast. →" in words
    assert inside(opened, opened.download("svg"))
    assert "model pocket" in words


def dimensions(data: bytes) -> tuple[int, int]:
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def test_width_ground_and_title_are_chosen(open_page):
    opened = open_page(encoder_page(title="sample"), "view=heatmap", color_scheme="dark")
    tab = opened.tab
    assert 'fill="#ffffff"' in ElementTree.tostring(figure(opened)).decode()
    assert dimensions(opened.download("png"))[0] == round(round(178 * 96 / 25.4) * 300 / 96)
    tab.get_by_label("light").set_checked(False)
    tab.get_by_label("title", exact=True).set_checked(False)
    tab.locator('[data-switch="width"]').select_option("px")
    tab.get_by_label("width in pixels").fill("1000")
    tab.locator("#saving .hint", has_text="1000 ×").wait_for()
    assert dimensions(opened.download("png"))[0] == 1000
    dark = opened.download("svg").decode()
    assert 'fill="#15181d"' in dark
    assert "the professor" not in dark
    assert "model sample" in dark


def printed(tab: Any) -> float:
    """The mean of the pixels of the figure as it stands when the page is printed."""
    tab.evaluate(
        """() => addEventListener("beforeprint", () => {
          const canvas = document.getElementById("printed");
          const surface = canvas.getContext("2d");
          const { data } = surface.getImageData(0, 0, canvas.width, canvas.height);
          let sum = 0;
          for (let at = 0; at < data.length; at++) sum += at % 4 < 3 ? data[at] : 0;
          window.seen = sum / (data.length / 4) / 3;
        })"""
    )
    tab.pdf()
    return float(tab.evaluate("window.seen"))


@pytest.mark.parametrize("view", VIEWS)
def test_a_dark_page_is_printed_on_white(open_page, view):
    opened = open_page(encoder_page(), f"view={view}", color_scheme="dark")
    opened.settle()
    assert printed(opened.tab) > 180
    opened.tab.emulate_media(media="print", color_scheme="dark")
    ground, ink = opened.tab.evaluate(
        "() => { const { backgroundColor, color } = getComputedStyle(document.body);"
        " return [backgroundColor, color]; }"
    )
    assert (ground, ink) == ("rgb(255, 255, 255)", "rgb(26, 28, 32)")
    assert opened.tab.locator("button:visible").count() == 0
    assert opened.tab.locator("#printed").is_visible() == (view != "table")
    assert opened.tab.locator("#table table").is_visible() == (view == "table")
