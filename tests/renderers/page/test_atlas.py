"""The atlas in a real browser: by mouse, by keyboard, and for everyone."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.invoke import attnviz
from tests.renderers.page.conftest import Opened
from tests.renderers.page.test_accessible import LOOKS, SMALL, findings, narrowed

pytestmark = [pytest.mark.browser, pytest.mark.slow]
SAMPLES = Path(__file__).parents[3] / "sample_inputs"


@pytest.fixture(scope="session")
def atlas(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of pocket's cross-attention, its encoder and its decoder, with effects."""
    path = tmp_path_factory.mktemp("atlas") / "atlas.html"
    how = ("--cross", "--effect", "-f", "none", "--atlas", path)
    done = attnviz("heads", "--input", SAMPLES / "pairs.tsv", *how)
    assert done.status == 0, done.err
    return path.read_text(encoding="utf-8")


def heading(opened: Opened) -> str:
    """The head that is shown, once the page has drawn."""
    opened.drawn()
    return str(opened.tab.locator("#head h2").inner_text())


def listed(opened: Opened) -> int:
    return int(opened.tab.locator("#list button").count())


def center(opened: Opened, number: int) -> tuple[float, float]:
    box = opened.tab.locator(f"#p{number}").bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


@pytest.mark.core
def test_heads_are_pointed_at_chosen_and_found(open_page, atlas):
    opened = open_page(atlas, "stream=1")
    tab = opened.tab
    tab.mouse.move(*center(opened, 5))
    heading(opened)
    assert tab.locator("#pointed").inner_text().startswith("layer 0 head 5 · ")
    tab.mouse.click(*center(opened, 5))
    assert heading(opened) == "layer 0 head 5"
    assert opened.fragment() == {"stream": "1", "head": "0.5"}
    x, y = center(opened, 5)
    tab.mouse.move(x - 12, y - 12)
    tab.mouse.down()
    tab.mouse.move(x + 3, y + 3)
    tab.mouse.move(x + 12, y + 12)
    tab.mouse.up()
    assert 1 <= listed(opened) < 24
    assert "of 24 heads" in tab.locator("#found").inner_text()
    tab.locator("#plot svg").focus()
    opened.key("Escape")
    assert listed(opened) == 24
    tab.locator("#choices input").fill("previous-token")
    assert 0 < listed(opened) == tab.locator("#plot [role=option]:not(.left-out)").count() < 6
    tab.locator("#choices input").fill("entropy<1.2, layer 1")
    assert 0 < listed(opened) < 6
    tab.locator("#choices input").fill("")
    for axis, name in (("across", "offset"), ("up", "self")):
        opened.choose(axis, name)
    titles = tab.locator("#plot .title").all_text_contents()
    assert [title.split(" ")[0] for title in titles] == ["offset", "self"]
    opened.choose("attention", "0")
    assert "effect" in tab.locator("#head .measures").inner_text()


def test_arrow_keys_go_from_head_to_head(open_page, atlas):
    opened = open_page(atlas, "head=2.3")
    plot = opened.tab.locator("#plot svg")
    plot.focus()
    before = heading(opened)
    assert before == "layer 2 head 3"
    seen = {before}
    for key in ("ArrowUp", "ArrowRight", "ArrowDown", "ArrowLeft"):
        opened.key(key)
        seen.add(heading(opened))
    assert len(seen) > 2
    active = opened.tab.locator(f"#{plot.get_attribute('aria-activedescendant')}")
    assert heading(opened) in active.get_attribute("aria-label")
    assert active.get_attribute("aria-selected") == "true"
    titles = opened.tab.locator("#head h3").all_inner_texts()
    assert titles == ["How far it looks", "Texts", "What it joins", "Measures", "Nearest heads"]
    assert opened.tab.locator("#head .text .query").count() > 3
    opened.tab.locator("#head .like button").first.click()
    assert heading(opened) not in seen


@pytest.mark.parametrize("look", LOOKS)
def test_axe_finds_nothing(open_page, atlas, look):
    opened = open_page(atlas, "stream=1", **LOOKS[look])
    narrowed(opened, look)
    assert (findings(opened.tab), opened.tab.evaluate(SMALL)) == ([], [])


def test_heads_are_saved_with_what_they_count(open_page, atlas):
    opened = open_page(atlas, "stream=1&head=2.3&find=self")
    root = ElementTree.fromstring(opened.download("svg"))
    words = " ".join(item.text or "" for item in root.iter("{http://www.w3.org/2000/svg}text"))
    for wanted in (
        *("Heads of pocket", "encoder ·", "model pocket", "relative-entropy (share)"),
        *("layer 2 head 3", "previous-token", "of 24 heads"),
    ):
        assert wanted in words
    assert opened.download("png").startswith(b"\x89PNG")

    opened = open_page(atlas, "stream=1&x=relative-entropy&y=effect")
    said = opened.tab.locator("#terms").inner_text()
    assert said.startswith("relative-entropy in shares of the entropy of an even look. Low: ")
    assert "effect in nats (natural logarithms; ln 2 = .69 nats is one bit)" in said
    opened.tab.get_by_label("up").select_option("relative-entropy")
    opened.drawn()
    assert "nats" not in opened.tab.locator("#terms").inner_text()


def test_an_address_of_an_atlas_is_checked(open_page, atlas):
    opened = open_page(atlas, "stream=9&head=7.7&x=none")
    told = opened.tab.locator("#amiss").inner_text()
    assert [one in told for one in ("stream 9", "head 7.7", "x none")] == [True] * 3
    opened.tab.locator("#list button").nth(3).click()
    chosen = opened.fragment()
    assert set(chosen) == {"head"}
    opened.tab.locator(".skip").focus()
    opened.key("Enter")
    assert opened.tab.evaluate("document.activeElement.id") == "head"
    assert opened.fragment() == chosen
    opened.tab.go_back()
    opened.tab.wait_for_function("() => !location.hash")


def test_a_phone_shows_nothing_wider(open_page, atlas):
    opened = open_page(atlas)
    opened.resize(390)
    heading(opened)
    # What is drawn for a wide screen is drawn anew some frames after the change of size.
    opened.tab.wait_for_function("() => document.documentElement.scrollWidth <= 390")


def test_pictures_show_framed_and_shaded_patches(open_page, tmp_path):
    path = tmp_path / "atlas.html"
    assert (
        attnviz("heads", "--input", SAMPLES / "shapes.png", "-f", "none", "--atlas", path).status
        == 0
    )
    opened = open_page(path.read_text(encoding="utf-8"), "head=3.1")
    titles = opened.tab.locator("#head h3").all_inner_texts()
    assert titles == ["How far it looks", "Pictures", "What it joins", "Measures", "Nearest heads"]
    shown = opened.tab.locator("#head .picture").first
    assert shown.locator("img").evaluate("(image) => image.complete && image.naturalWidth") == 96
    assert shown.locator(".key").count() in (5, 6)
    frame, image = (shown.locator(what).bounding_box() for what in (".over", "img"))
    assert (
        image["x"]
        <= frame["x"] + 1
        < frame["x"] + frame["width"]
        <= image["x"] + image["width"] + 1
    )
    assert frame["width"] == pytest.approx(image["width"] / 10, abs=3)
    assert "shapes.png: patch" in str(shown.locator("img").get_attribute("alt"))
    assert findings(opened.tab) == []
