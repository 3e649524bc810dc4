"""The page that answers, in a real browser: each number against Python's."""

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest

from attnviz import attend, load
from attnviz.renderers.page.document import LIVE_PRECISION
from tests.invoke import attnviz
from tests.patience import wait_until
from tests.renderers.page.conftest import Opened
from tests.renderers.page.test_accessible import LOOKS, SMALL, findings, narrowed
from tests.renderers.page.test_in_browser import number, weights_of
from tests.renderers.page.test_page import Elements

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SOURCE, TARGET = "The red car is fast.", "La voiture rouge est rapide."
NEAR = 0.03
"""Nats that ten bits of weights and two digits may be off."""
REMEMBERED = """() => new Promise((done) => {
  const look = () => (location.hash.includes("text2=") ? done() : requestAnimationFrame(look));
  look();
})"""
CLOSE = 4e-3
"""What ten bits do to a share of attention at most, here."""


def answered(opened: Opened) -> Opened:
    """The page once it has shown what was asked last."""
    opened.tab.wait_for_selector("#ask .sentence.waiting", state="detached")
    opened.settle()
    return opened


def measured(opened: Opened) -> Opened:
    """The page once the effects of its heads are there."""
    opened.tab.wait_for_selector("#overview .legend:has-text('Bars:')")
    return opened


def ablated(*arguments: str, source: str = SOURCE, target: str = TARGET) -> Any:
    """What `attnviz ablate` says."""
    return json.loads(attnviz("ablate", source, target, *arguments, "-f", "json", "-q").out)


def scores(opened: Opened) -> list[float]:
    """log p before, and after what is switched off."""
    answered(opened)
    told = opened.tab.locator(".score b").all_inner_texts()
    return [float(text.replace("−", "-")) for text in told if text]


def at(opened: Opened, **state: str) -> str:
    """An address of the page."""
    return urlencode(state)


def test_it_is_one_file_that_may_start_a_worker(live_page):
    assert len(live_page.encode()) <= 10_000_000
    elements = Elements(live_page)
    policy = next(
        attrs["content"] or ""
        for attrs, _ in elements.named("meta")
        if attrs.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert policy.endswith("base-uri 'none'; form-action 'none'; worker-src blob:")
    assert set(re.findall(r"https?://[^\s\"'`<\\]+", live_page)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"\b(eval|fetch|XMLHttpRequest|WebSocket|importScripts)\(", live_page)


@pytest.mark.core
def test_it_opens_with_pythons_answer(open_page, live_page):
    opened = answered(open_page(live_page, "view=heatmap"))
    assert "layer 2 head 0 (trained to align)" in opened.text("#caption")
    weights = attend(SOURCE, target=TARGET).weights[2, 0]
    np.testing.assert_allclose(weights_of(opened), weights, atol=CLOSE)
    before = sum(one["before"] for one in ablated("--head", "cross.0.2")["outputs"])
    assert scores(opened) == [pytest.approx(before, abs=NEAR)]
    assert opened.text(".written").split()[::2] == TARGET.replace(".", " .").split()
    assert LIVE_PRECISION in opened.text("footer")
    assert "kept to within" not in opened.text("footer")
    opened.choose("stream", "encoder")
    opened.choose("layer", "0")
    opened.choose("head", "4")
    encoder = attend(SOURCE, target=TARGET, stream="encoder").weights[0, 4]
    np.testing.assert_allclose(weights_of(opened), encoder, atol=CLOSE)


def test_it_answers_as_one_types(open_page, live_page):
    opened = open_page(live_page, "view=heatmap")
    opened.tab.locator("#text").fill("")
    opened.tab.locator("#text").press_sequentially("Je vois un chien.", delay=5)
    answered(opened)
    assert opened.text(".written").split()[::2] == ["I", "see", "a", "dog", "."]
    assert "French" in opened.text("label[for=text]")
    opened.tab.locator("#into").fill("I saw a cat.")
    answered(opened)
    assert "English, as given" in opened.text("label[for=into]")
    assert "cat" in opened.text(".written")
    opened.tab.locator("#text").fill("  ")
    assert "Write a sentence" in opened.text(".failed")

    opened = answered(open_page(live_page, "view=heatmap"))
    shown = opened.tab.evaluate(
        """async () => {
          const text = document.getElementById("text");
          const tokens = document.querySelector(".tokens");
          const seen = [];
          new MutationObserver(() => seen.push(tokens.innerText.replace(/\\s+/g, " ")))
            .observe(tokens, { childList: true });
          for (let number = 0; number < 30; number++) {
            text.value = `I see ${"very ".repeat(number % 3)}old house ${number} .`;
            text.dispatchEvent(new Event("input"));
          }
          while (document.querySelector(".waiting")) await new Promise(requestAnimationFrame);
          return seen;
        }"""
    )
    assert len(shown) <= 2
    assert shown[-1].replace(" ", "").replace("▁", "").endswith("oldhouse2##9.<eos>")


def test_heads_and_tokens_go_off_and_on(open_page, live_page):
    opened = open_page(live_page, "view=heatmap")
    cell = opened.tab.locator(".switchable").nth(2)
    cell.hover()
    cell.locator(".power").click()
    effect = ablated("--head", "cross.0.2")["effects"][0]["effect"]
    before, after = scores(opened)
    assert before - after == pytest.approx(effect, abs=NEAR)
    assert "layer 2 head 0" in opened.text("#caption")
    assert opened.text(".off-list") == "Off:\ncross layer 0 head 2 ×"
    cell.locator(".head").focus()
    opened.key("o")
    assert len(scores(opened)) == 1
    opened.tab.locator("#acts button").first.click()
    effect = ablated("--head", "cross.2.0")["effects"][0]["effect"]
    before, after = scores(opened)
    assert before - after == pytest.approx(effect, abs=NEAR)

    opened = open_page(live_page, "view=heatmap")
    opened.tab.locator(".tokens .word").nth(1).click()
    found = ablated("--token", "red")
    before, after = scores(opened)
    assert before - after == pytest.approx(found["effects"][0]["effect"], abs=NEAR)
    assert opened.tab.locator(".changed del").all_inner_texts() == ["rouge"]
    assert found["wrote"]["after"] == "La voiture est rapide."
    assert opened.tab.locator(".tokens .word[aria-pressed=true]").inner_text().split() == ["red"]
    assert opened.tab.locator(".written .worse").count() >= 1
    opened.tab.wait_for_selector("[role=status]:has-text(' now')", state="attached")
    spoken = opened.tab.locator(".sentence [role=status]").first.text_content()
    assert spoken.startswith("Translation now: La voiture est rapide.")
    assert "nats lower" in spoken


@pytest.mark.core
def test_a_link_is_cut_by_keys_and_clicks(open_page, live_page):
    opened = answered(open_page(live_page, "row=3&column=1"))
    opened.key("k")
    answered(opened)
    assert opened.fragment()["off"] == "cross:2:0:3:1"
    opened.settle("#table")
    cut = weights_of(opened)
    assert (cut[3, 1], cut[3].sum()) == (0, pytest.approx(1, abs=CLOSE))
    opened.key("k")
    assert "off" not in opened.fragment()
    answered(opened)
    box = opened.tab.locator("#view .plot canvas").last.bounding_box()
    opened.tab.locator("#view .plot canvas").last.click(
        modifiers=["Alt"], position={"x": 130, "y": 150}
    )
    assert box
    assert re.fullmatch(r"cross:2:0:\d+:\d+", opened.fragment()["off"])
    opened.key("n")
    assert "off" not in opened.fragment()
    opened.key("Escape")  # with a pinned link its explanation stands beside the view
    opened.tab.wait_for_selector("#why", state="hidden")
    opened.tab.locator("#tab-lines").click()
    answered(opened)
    canvas = opened.tab.locator("#view .lines canvas")
    width = canvas.bounding_box()["width"]
    # Row 4, est, is level with its key in this sentence.
    for y in range(60, 260, 4):
        canvas.click(position={"x": width * 0.3, "y": y})
        if "off" in opened.fragment():
            break
    assert re.fullmatch(r"cross:2:0:\d+:\d+", opened.fragment()["off"])


def test_why_a_link_is_there_is_read_by_keys(open_page, live_page):
    opened = answered(open_page(live_page, "map=2&heads=2.3&row=5&column=3"))
    opened.tab.wait_for_selector("#why[aria-busy=false]")
    expected = json.loads(
        attnviz(
            "why",
            SOURCE,
            TARGET,
            "--head",
            "decoder.2.3",
            "--link",
            "rapide>rouge",
            "-f",
            "json",
            "-q",
        ).out
    )
    told = opened.text("#why .sum")
    assert told.startswith("rapide gives rouge .430 of its attention: the score is ")
    assert number(re.search(r"score is (\S+)", told)[1]) == pytest.approx(
        expected["contrast"], abs=NEAR
    )
    for place, side in enumerate(("key", "query")):
        rows = opened.tab.locator("#why .sides ol").nth(place).locator("li").all_inner_texts()
        values = [number(row.split("\n")[-1]) for row in rows]
        assert sum(values[:-1]) == pytest.approx(values[-1], abs=0.05)
        named = {one["writer"]: one["value"] for one in expected[side]}
        for row, value in list(zip(rows, values, strict=True))[:6]:
            assert value == pytest.approx(named[row.split("\n")[0]], abs=NEAR)
    tokens = opened.text("#why .tokens-for").split()
    assert expected["arguments"][0]["token"] in tokens
    opened.key("y")
    assert opened.tab.evaluate("document.activeElement.textContent").startswith("why rapide")
    opened.key("Tab")
    writer = opened.tab.locator("#why li button").first.inner_text()
    assert opened.tab.evaluate("document.activeElement.innerText") == writer
    opened.tab.wait_for_selector("#why .preview:not([hidden])")
    assert opened.text("#why .preview") == writer.replace(".", "·")
    assert findings(opened.tab) == []
    opened.key("Enter")
    stream, head = writer.split()
    answered(opened)
    assert opened.fragment()["heads"] == head
    assert stream in opened.text("#caption")
    opened.tab.wait_for_selector("#why h2:has-text('why rouge →')")
    opened.key("Escape")
    opened.tab.wait_for_selector("#why", state="hidden")


def test_a_page_of_why_follows_the_writers(open_page, tmp_path):
    file = tmp_path / "why.html"
    text = "Tom likes dogs. Mary likes cats. Tom likes"
    attnviz("why", text, "--model", "pocket-lm", "--head", "2.3", "--html", file, "-f", "none")
    opened = open_page(file.read_text("utf-8"))
    assert opened.text("#why .sum").startswith("likes gives dogs .962 of its attention")
    assert findings(opened.tab) == []
    opened.tab.locator("#why li button:has-text('previous-token')").first.click()
    opened.tab.wait_for_selector("#why h2:has-text('why dogs → likes in causal 1·1')")
    assert opened.text("#why .sum").startswith("Position decides, whatever the words are")
    again = open_page(file.read_text("utf-8"), "heads=0.2&row=4&column=1")
    assert "attnviz live explains any link" in again.text("#why .sum")


def test_a_page_of_explain_opens_on_what_matters(open_page, tmp_path):
    file = tmp_path / "explain.html"
    asked = ("explain", SOURCE, TARGET, "--target", "rouge[3]")
    assert attnviz(*asked, "--html", file, "-f", "none").status == 0
    opened = open_page(file.read_text("utf-8"))
    assert opened.text("#why h2").startswith("why voiture → red")
    needs = opened.text(".claims li:has-text('It needs')")
    assert "red (source 1) 8.6" in needs
    assert "−" not in needs


def test_undo_everything_on_and_all_off_but_one(open_page, live_page):
    opened = answered(open_page(live_page, "view=heatmap"))
    opened.tab.locator(".tokens .word").nth(1).click()
    answered(opened)  # an answer moves the buttons down
    opened.tab.locator("#acts button").nth(1).click()
    answered(opened)
    assert opened.fragment()["off"].count("cross:") == 23
    assert "23 heads" in opened.text(".off-list")
    heads = [f"--head=cross.{layer}.{head}" for layer in range(4) for head in range(6)]
    heads.remove("--head=cross.2.0")
    effect = ablated(*heads, "--token", "red")["together"]["effect"]
    before, after = scores(opened)
    assert before - after == pytest.approx(effect, abs=5 * NEAR)
    opened.key("u")
    wait_until(lambda: opened.fragment().get("off") == "source:1")
    opened.tab.get_by_role("button", name="Everything on").click()
    wait_until(lambda: "off" not in opened.fragment())
    opened.key("u")
    wait_until(lambda: opened.fragment().get("off") == "source:1")


def test_effects_colour_and_sort_the_thumbnails(open_page, live_page):
    opened = measured(open_page(live_page, "view=heatmap"))
    opened.choose("measure", "effect")
    every = {
        (one["place"]["stream"], one["place"]["layer"], one["place"]["head"]): one["effect"]
        for one in ablated("--each", "heads")["effects"]
    }
    first = opened.tab.locator("#overview .head").first
    label = first.get_attribute("aria-label")
    layer, head, value = re.fullmatch(r"layer (\d), head (\d), effect (\S+)", label).groups()
    cross = {place: effect for place, effect in every.items() if place[0] == "cross"}
    assert every["cross", int(layer), int(head)] == pytest.approx(max(cross.values()), abs=NEAR)
    assert number(value) == pytest.approx(every["cross", int(layer), int(head)], abs=NEAR)
    opened.choose("stream", "decoder")
    opened.choose("measure", "effect")
    opened.choose("order", "layout")
    for name in opened.tab.locator("#overview .head").all():
        found = re.fullmatch(
            r"layer (\d), head (\d), effect (\S+)", name.get_attribute("aria-label")
        )
        assert number(found[3]) == pytest.approx(
            every["decoder", int(found[1]), int(found[2])], abs=NEAR
        )


def test_two_sentences_stand_side_by_side(open_page, live_page):
    opened = answered(open_page(live_page, "view=heatmap"))
    opened.key("b")
    answered(opened)
    opened.tab.wait_for_selector('#stage-2[aria-busy="false"] .plot')
    opened.tab.locator("#text2").fill("The blue house is old.")
    answered(opened)
    opened.tab.locator(".written", has_text="maison").wait_for()
    opened.tab.locator("#tab-table").click()
    opened.tab.wait_for_selector("#stage-2 .table:not(.unseen) table")
    opened.tab.locator("#stage-2 thead th", has_text="house").wait_for()
    headings = opened.tab.locator("#stage-2 thead th").all_inner_texts()
    assert headings == ["The", "blue", "house", "is", "old", ".", "<eos>"]
    assert opened.tab.locator("#stage thead th").all_inner_texts()[:2] == ["The", "red"]
    opened.key("b")
    opened.tab.wait_for_selector("#stage-2", state="hidden")


@pytest.mark.parametrize("lens", ["rollout", "effect"])
def test_lenses_are_pythons(open_page, live_page, lens):
    opened = answered(open_page(live_page, f"lens={lens}&specials=keep"))
    opened.choose("layer", "0")
    mean = attend(SOURCE, target=TARGET, lens=lens, explain="all" if lens == "effect" else None)
    chosen = opened.tab.locator('[data-switch="head"]')
    head = int(chosen.input_value()) if chosen.count() else 0
    np.testing.assert_allclose(weights_of(opened), mean.weights[0, head], atol=0.02)


def test_the_address_restores_everything(open_page, live_page):
    opened = answered(open_page(live_page, "view=heatmap"))
    opened.tab.locator("#text").fill("She gave him the old manuscript.")
    answered(opened)
    opened.tab.get_by_role("button", name="Two sentences").click()
    opened.tab.locator("#text2").fill("He reads carefully.")
    answered(opened)
    opened.choose("stream", "encoder")
    opened.tab.locator(".tokens .word").nth(2).click()
    opened.tab.locator(".switchable .head").nth(5).click()
    opened.key("o")
    opened.choose("by", "words")
    opened.choose("lens", "effect")
    answered(opened)
    opened.tab.evaluate(REMEMBERED)
    again = answered(open_page(live_page, opened.address().split("#")[1]))
    assert again.address().split("#")[1] == opened.address().split("#")[1]
    for selector in ("#caption", "#switches", ".tokens", ".written", ".off-list", ".score"):
        assert again.text(selector) == opened.text(selector)
    assert again.tab.locator("#text2").input_value() == "He reads carefully."


def test_what_is_seen_is_saved_as_json_and_pictures(open_page, live_page, tmp_path):
    opened = answered(open_page(live_page, "off=source:1"))
    path = tmp_path / "seen.json"
    path.write_bytes(opened.download("json"))
    (found,) = load(path)
    assert (found.source, found.target) == (SOURCE, TARGET)
    np.testing.assert_allclose(found.weights[2, 0], weights_of(opened), atol=1e-4)
    assert [token.text for token in found.main.key_tokens][:2] == ["The", "red"]
    done = attnviz("render", path, "--layer", 2, "--head", 0)
    assert (done.status, "rouge" in done.text) == (0, True)
    assert "red switched off" in json.dumps(found.to_dict()["attrs"]) + done.text + done.err
    ElementTree.fromstring(opened.download("svg"))
    assert opened.download("png").startswith(b"\x89PNG")


def test_an_early_sentence_is_answered(open_page, live_page):
    opened = open_page(live_page, wait="#text")
    opened.tab.locator("#text").fill("The cat sleeps.")
    opened.tab.wait_for_selector("body[data-complete]")
    answered(opened)
    assert "chat" in opened.text(".written")
    assert "cat" in opened.text(".tokens")
    opened = open_page(live_page, f"text={'x ' * 5000}", wait=".failed:not(:empty)")
    opened.tab.locator("#text").fill("The cat sleeps.")
    opened.tab.wait_for_selector("body[data-complete]")
    assert "chat" in answered(opened).text(".written")


@pytest.mark.parametrize("text", ["  ", "word " * 5000, "The cat sleeps."])
def test_what_is_saved_is_what_was_answered(open_page, live_page, text):
    opened = answered(open_page(live_page, "off=source:1"))
    with opened.tab.expect_download() as waiting:
        opened.tab.evaluate(  # at once, while a new text waits
            """(text) => {
              const field = document.getElementById("text");
              field.value = text;
              field.dispatchEvent(new Event("input"));
              document.getElementById("save-json").click();
            }""",
            text,
        )
    found = json.loads(Path(waiting.value.path()).read_bytes())
    assert (found["source"], found["target"]) == (SOURCE, TARGET)
    assert "red switched off" in found["provenance"]["steps"]
    if text != "The cat sleeps.":
        opened.tab.wait_for_selector(".failed:not(:empty)")
        assert SOURCE in "".join(ElementTree.fromstring(opened.download("svg")).itertext())


def test_the_tour_shows_six_steps_and_gives_back(open_page, live_page):
    opened = measured(open_page(live_page, "view=heatmap"))
    opened.tab.get_by_role("button", name="Guided tour").click()
    titles = []
    for _ in range(6):
        answered(opened)
        titles.append(opened.text("#tour h2"))
        assert opened.tab.evaluate("document.activeElement.textContent") == titles[-1]
        assert opened.tab.locator(".toured").count() == 1
        if len(titles) == 4:
            assert "(trained to align)" in opened.text("#caption")
        if len(titles) == 5:
            assert "(no change)" in opened.text(".score") or "0.0" in opened.text(".score")
        if len(titles) < 6:
            onward = opened.tab.locator("#tour").get_by_role("button", name="Next")
            onward.hover()
            assert onward.evaluate(
                "(one) => getComputedStyle(one).color !== getComputedStyle(one).backgroundColor"
            )
            onward.click()
    assert (titles[0], titles[-1]) == ("Tokens", "A head that matters")
    every = ablated("--each", "heads")["effects"]
    cross = [one["effect"] for one in every if one["place"]["stream"] == "cross"]
    before, after = scores(opened)
    assert before - after == pytest.approx(max(cross), abs=NEAR)
    opened.tab.locator("#tour").get_by_role("button", name="Done").click()
    assert not opened.tab.locator("#tour").is_visible()
    assert "off" not in opened.fragment()
    opened.tab.get_by_role("button", name="Guided tour").click()
    opened.tab.locator("#tour").get_by_role("button", name="Skip").click()
    assert "tour" not in opened.fragment()

    mine = {"off": "cross:0:2,source:1", "view": "lines", "heads": "1.3"}
    opened = measured(open_page(live_page, urlencode(mine)))
    mine = opened.fragment()
    for leave in ("Skip", "Done"):
        opened.tab.get_by_role("button", name="Guided tour").click()
        tour = opened.tab.locator("#tour")
        if leave == "Done":
            for _ in range(5):
                tour.get_by_role("button", name="Next").click()
        assert opened.fragment().get("off") != mine["off"]
        tour.get_by_role("button", name=leave).click()
        assert opened.fragment() == mine
        answered(opened)


def test_each_example_is_translated_well(open_page, live_page):
    opened = answered(open_page(live_page, "view=heatmap"))
    field = opened.tab.locator('[data-switch="example"]')
    examples = [one for one in field.locator("option").all_inner_texts() if one != "choose …"]
    written = []
    for example in examples:
        opened.choose("example", example)
        answered(opened)
        words = opened.tab.locator(".written").first.locator("bdi").all_inner_texts()
        written.append("".join(words).replace("##", "").replace("▁", ""))
        assert field.input_value() == ""
    assert [one.lower() for one in written] == [
        "lavoiturerougeestrapide.",
        "tomadonnéàmarylelivrequ'ilavaitacheté.",
        "lesenfantsjouaientdanslejardinquandilsemitàpleuvoir.",
        "mybrotherlivesinasmallhouse.",
    ]


def test_numbers_under_tokens_and_ranges_are_named(open_page, live_page):
    opened = answered(open_page(live_page, "view=heatmap"))
    numbers = opened.tab.locator(".written .word .number")
    assert "under each token its probability" in opened.text(".score")
    assert all(0 <= number(one) <= 1 for one in numbers.all_inner_texts())
    opened.tab.locator(".tokens .word").nth(1).click()
    answered(opened)
    assert "under each token the change of its log p, where .050 or more" in opened.text(".score")
    shown = [one for one in numbers.all_inner_texts() if one]
    assert shown
    assert all(one[0] in "−+" for one in shown)
    opened = answered(open_page(live_page, "lens=effect"))
    assert opened.tab.locator(".fact", has_text="read from").inner_text() == "read from 0 to 5"


def test_a_long_text_counts_and_is_cancelled(open_page, live_page):
    opened = answered(open_page(live_page, "view=heatmap"))
    text = "The old man who lived by the sea told his children a long story about storms, " * 13
    opened.tab.locator("#text").fill(text)
    cancel = opened.tab.get_by_role("button", name="Cancel")
    cancel.wait_for()
    assert re.search("finding|reading|writing|gathering", opened.text(".status"))
    cancel.click()
    opened.tab.locator(".failed", has_text="Cancelled").wait_for()
    cancel.wait_for(state="hidden")
    assert opened.tab.locator(".waiting").count() == 0
    opened.tab.locator("#text").fill("The cat sat.")
    opened.tab.locator(".written", has_text="chat").wait_for()


HOSTILE = (
    '<img src=x onerror="alert(1)"> </script><script>alert(2)</script> \u202e\x1b[31m 猫 👩‍👩‍👧'
)


def test_hostile_sentences_stay_text(open_page, live_page):
    off = "x:y,z:0,a:b:c,<b>:1:1:1:1,%"
    fragment = urlencode({"text": HOSTILE, "into": "<b>x</b>", "off": off})
    opened = answered(open_page(live_page, fragment))
    scripts = opened.tab.locator("script").count()
    assert opened.tab.locator("img, b:has(script)").count() == 0
    for view in ("text", "lines", "table", "heads"):
        opened.tab.locator(f"#tab-{view}").click()
        opened.settle()
    assert opened.tab.locator("script").count() == scripts
    assert opened.tab.locator("img").count() == 0


@pytest.mark.parametrize("look", ["light", "dark", "320 pixels"])
def test_axe_finds_nothing_whatever_is_shown(open_page, live_page, look):
    state = {"off": "source:1,cross:0:2,cross:2:0:3:1", "row": "3", "column": "1", "tour": "2"}
    opened = measured(open_page(live_page, urlencode(state), **LOOKS[look]))
    narrowed(opened, look)
    assert findings(opened.tab) == []
    opened.tab.locator("#tour").get_by_role("button", name="Skip").click()
    opened.key("b")
    for name in ("heads", "lines", "text", "table", "heatmap"):
        opened.tab.locator(f"#tab-{name}").click()
        answered(opened)
        narrowed(opened, look)
        assert findings(opened.tab) == [], name
        assert opened.tab.evaluate(SMALL) == []


def test_a_phone_shows_all_and_nothing_moves(open_page, live_page):
    opened = open_page(live_page, "beside=on&off=source:1,cross:0:2&tour=3")
    opened.resize(360, 740)
    answered(opened)
    wide = opened.tab.evaluate("document.scrollingElement.scrollWidth")
    assert wide <= 360
    for name in ("heads", "lines", "text", "table"):
        opened.tab.locator(f"#tab-{name}").dispatch_event("click")
        answered(opened)
        assert opened.tab.evaluate("document.scrollingElement.scrollWidth") <= 360
    opened = open_page(live_page, reduced_motion="reduce")
    moving = opened.tab.evaluate(
        "[...document.querySelectorAll('*')].filter(one => "
        "parseFloat(getComputedStyle(one).transitionDuration) > 0).length"
    )
    assert moving == 0
