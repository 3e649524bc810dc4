"""Every control of every page by the keyboard alone, and what is done is undone."""

import xml.etree.ElementTree as ElementTree
from urllib.parse import urlencode

import pytest

from attnviz import attend
from attnviz.renderers.page import iframe, page
from tests.invoke import attnviz
from tests.renderers.page.conftest import Opened
from tests.renderers.page.samples import encoder_page, pair, with_projections

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CONTROLS = """() => {
  const every = (document.querySelector("dialog[open]") ?? document).querySelectorAll(
    "a[href], button:enabled, select:enabled, input:enabled, textarea, [tabindex='0']");
  window.tried = [...every].filter((one) => one.tabIndex >= 0
    && one.checkVisibility({visibilityProperty: true}) && !one.closest("dialog:not([open])"));
  return window.tried.length;
}"""
FOCUSED = """() => {
  const one = document.activeElement;
  const style = getComputedStyle(one);
  const seen = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1;
  return [window.tried.indexOf(one), seen, one.outerHTML.slice(0, 80)];
}"""
"""The number of what has the focus, and whether that is seen."""
AT_ONCE = """([keys, range]) => {
  for (const key of keys)
    document.body.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
  if (!range) return;
  const scale = document.querySelector('[data-switch="scale"]');
  scale.value = "view";
  scale.dispatchEvent(new Event("change", {bubbles: true}));
}"""
"""Keys and a choice of the scale in one task."""


def walked(opened: Opened, start: str = "document.body") -> None:
    """Go through the page by Tab: each control is reached, its focus is seen, and none holds it."""
    tab = opened.tab
    count = tab.evaluate(CONTROLS)
    assert count >= 2
    tab.evaluate(f"() => {{ {start}.tabIndex = -1; {start}.focus(); }}")
    reached: set[int] = set()
    for _ in range(2 * count + 20):
        opened.key("Tab")
        number, seen, what = tab.evaluate(FOCUSED)
        if number in reached and len(reached) > 1:
            break
        if number >= 0:
            assert seen, what
            reached.add(number)
    left = "reached => window.tried.filter((one, at) => one.isConnected && !reached.includes(at))"
    assert tab.evaluate(f"{left}.map((one) => one.outerHTML.slice(0, 80))", [*reached]) == []


def finished(name: str) -> str:
    if name == "pair":
        return page(pair())
    if name == "vectors":
        attention, kept = with_projections()
        return page(attention, projections={0: kept})
    return encoder_page(title="sample", command="attnviz self 'the professor'")


@pytest.mark.parametrize("name", ["text", "pair", "vectors"])
def test_tab_reaches_every_control_of_every_view(open_page, name):
    opened = open_page(finished(name), "row=2&measure=previous-token" if name == "text" else "")
    for view in opened.tab.locator("#views [role=tab]").all():
        view.dispatch_event("click")
        opened.settle()
        opened.settle("#table")
        walked(opened)


def test_tab_reaches_every_control_that_answers(open_page, live_page):
    off = "off=source:1,cross:0:2,cross:2:0:3:1&row=3&column=1&beside=on"
    opened = open_page(live_page, off)
    opened.tab.wait_for_selector("#overview .legend:has-text('Bars:')")
    opened.tab.wait_for_selector("#why[aria-busy=false]")
    walked(opened)
    opened.key("g")
    opened.tab.wait_for_selector("#tour:not([hidden])")
    opened.tab.wait_for_selector("#ask .sentence.waiting", state="detached")
    opened.tab.wait_for_selector("#overview .legend:has-text('Bars:')")
    walked(opened)
    for name in ("keys", "save-picture"):
        opened.tab.locator(f"#{name}").focus()
        opened.key("Enter")
        opened.tab.wait_for_selector("dialog[open]")
        walked(opened, "document.querySelector('dialog[open]')")
        opened.key("Escape")
        opened.tab.wait_for_selector("dialog[open]", state="detached")


def test_tab_reaches_all_of_an_atlas_and_of_steps(open_page, tmp_path):
    files = [tmp_path / "atlas.html", tmp_path / "steps.html"]
    text = tmp_path / "texts.txt"
    text.write_text("The cat sat.\nA dog ran.\n", "utf-8")
    attnviz("heads", "--input", text, "-f", "none", "--atlas", files[0])
    attnviz("steps", "the cat sat", "--html", files[1], "-f", "none")
    for file in files:
        opened = open_page(file.read_text("utf-8"))
        walked(opened)
        head = opened.tab.locator("h2").first
        assert head.evaluate("one => one.tagName") == "H2"


def test_arrows_reach_every_head_and_every_view(open_page):
    opened = open_page(encoder_page(), "heads=0.0")
    opened.tab.locator("#overview .head[tabindex='0']").focus()
    seen = set()
    for keys in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft", "ArrowLeft"):
        seen.add(opened.tab.evaluate("document.activeElement.dataset.head"))
        opened.key(keys)
    seen.add(opened.tab.evaluate("document.activeElement.dataset.head"))
    assert seen == {f"{layer}.{head}" for layer in range(2) for head in range(3)}
    opened.tab.locator("#tab-heatmap").focus()
    views = []
    for _ in range(5):
        opened.key("ArrowRight")
        views.append(opened.tab.evaluate("document.activeElement.id"))
    assert sorted(views) == [
        f"tab-{one}" for one in ("heads", "lines", "sentence", "table", "text")
    ]

    opened = open_page(encoder_page(), "view=lines&row=2")
    opened.key("Tab")
    assert opened.tab.evaluate("document.activeElement.innerText") == "Skip to the view"
    opened.key("Enter")
    assert opened.tab.evaluate("document.activeElement.id") == "stage"
    assert opened.fragment() == {"view": "lines", "row": "2"}
    opened.tab.evaluate("location.hash = 'footer'")
    became(opened, view="lines", row="2")
    opened = open_page(encoder_page(), "specials=dropped")
    assert opened.tab.locator('[data-switch="special tokens"]').input_value() == "drop"


def test_letters_can_be_switched_off_as_keys(open_page):
    opened = open_page(encoder_page(), "view=heatmap")
    opened.tab.locator("#keys").focus()
    opened.key("Enter")
    opened.tab.get_by_label("Letters, digits and signs are keys").focus()
    opened.key(" ")
    opened.key("Escape")
    for key in ("4", "?", "m", "]"):
        opened.key(key)
    assert opened.fragment() == {"view": "heatmap"}  # an empty address opens on the sentence
    assert not opened.tab.locator("#help").is_visible()
    opened.tab.reload()
    opened.tab.wait_for_selector("body[data-complete]")
    opened.key("4")
    assert opened.fragment() == {"view": "heatmap"}
    opened.tab.locator("#tab-heatmap").focus()
    opened.key("ArrowRight")
    assert opened.fragment() == {"view": "lines"}


def became(opened: Opened, **state: str) -> None:
    """Wait until the address remembers just this."""
    opened.tab.wait_for_function(
        "wanted => String(new URLSearchParams([...new URLSearchParams(location.hash.slice(1))]"
        ".sort())) === wanted",
        arg=urlencode(sorted(state.items())),
    )
    opened.settle()


@pytest.mark.core
def test_everything_is_undone_and_redone(open_page):
    opened = open_page(encoder_page(), "view=heatmap")
    undo, redo = (opened.tab.get_by_role("button", name=name) for name in ("Undo", "Redo"))
    assert undo.is_disabled()
    opened.choose("by", "words")
    opened.choose("layer", "0")
    opened.tab.locator("#tab-lines").click()
    last = {"unit": "words", "heads": "0.2", "view": "lines"}
    became(opened, **last)
    opened.key("u")
    became(opened, unit="words", heads="0.2")
    assert opened.tab.locator("#tab-heatmap").get_attribute("aria-selected") == "true"
    opened.tab.go_back()
    became(opened, unit="words")
    opened.key("Control+z")
    became(opened, view="heatmap")
    assert undo.is_disabled()
    redo.click()
    became(opened, unit="words")
    opened.key("Control+Shift+Z")
    opened.key("U")
    became(opened, **last)
    assert redo.is_disabled()
    opened.tab.go_back()
    opened.choose("scale", "view")
    became(opened, unit="words", heads="0.2", range="view")
    assert redo.is_disabled()


def test_what_comes_while_the_browser_goes_back_waits(open_page):
    opened = open_page(encoder_page(), "view=heatmap")
    opened.choose("by", "words")
    opened.choose("layer", "0")
    became(opened, unit="words", heads="0.2")
    # In one task: a new address before the browser has gone back would keep it from going.
    opened.tab.evaluate(AT_ONCE, ["u", "range"])
    became(opened, unit="words", range="view")
    opened.key("u")
    became(opened, unit="words")
    opened.tab.evaluate(AT_ONCE, ["uU", ""])
    became(opened, unit="words")
    opened.tab.evaluate(AT_ONCE, ["Uu", ""])
    became(opened, unit="words")


def test_undo_without_a_history_or_an_address(open_page):
    opened = open_page(encoder_page(), "view=heatmap")
    opened.choose("by", "words")
    opened.choose("layer", "0")
    opened.tab.evaluate("() => { history.go = () => {}; }")
    opened.key("u")
    became(opened, unit="words")
    opened.key("U")
    became(opened, unit="words", heads="0.2")

    opened = open_page(f"<!doctype html>{iframe(encoder_page())}")
    frame = opened.tab.frame_locator("iframe")
    frame.locator("body[data-complete]").wait_for()
    frame.locator("#overview .head").first.click()
    frame.locator("#caption", has_text="layer 0 head 0").wait_for()
    frame.get_by_role("button", name="Undo").click()
    frame.locator("#caption", has_text="layer 1 head 2").wait_for()


@pytest.mark.parametrize(
    ("fragment", "told"),
    [
        ("heads=0.1,9.9", ["heads 9.9"]),
        ("view=round&specials=gone", ["view round", "specials gone"]),
        ("row=7&measure=none", ["row 7", "measure none"]),
        ("colors=mud&mix=sum&range=all", ["colors mud", "mix sum", "range all"]),
        ("zoom=a,b&filter=x&map=3", ["zoom a,b", "filter x", "map 3"]),
        ("heads=0.1&row=2", []),
    ],
)
def test_an_address_that_asks_in_vain_is_told(open_page, fragment, told):
    opened = open_page(encoder_page(), fragment)
    said = opened.tab.locator("#amiss").inner_text()
    assert [one in said for one in told] == [True] * len(told)
    assert bool(said) == bool(told)
    if told:
        name, value = told[0].split()
        assert value not in opened.fragment().get(name, "")
        opened.tab.locator("#tab-text").click()
        opened.tab.wait_for_selector("#amiss:empty", state="attached")


@pytest.mark.parametrize("view", ["heatmap", "heads"])
def test_numbers_that_cannot_be_unpacked_are_told(open_page, view):
    html = encoder_page()
    start = html.index('id="m0-1">') + len('id="m0-1">')
    opened = open_page(html[:start] + "AAAA" + html[start + 4 :], "", wait="#broken")
    assert "Something in this page is damaged" in opened.tab.locator("#broken").inner_text()
    assert opened.tab.locator("[aria-busy=true]").count() == 0
    opened.tab.get_by_role("button", name="Reload").click()
    opened.tab.wait_for_selector("#broken")


def test_a_worker_that_dies_is_told_in_a_line(open_page, live_page):
    start = live_page.index('id="packed">') + len('id="packed">')
    broken = live_page[:start] + "0000000000" + live_page[start + 10 :]
    opened = open_page(broken, "", wait=".failed button")
    said = opened.tab.locator(".failed").first.inner_text()
    assert said.startswith("The model in this page does not run: its weights are damaged")
    start = live_page.index('id="worker">"') + len('id="worker">"')
    opened = open_page(f"{live_page[:start]}throw 7;{live_page[start:]}", "", wait=".failed button")
    assert "does not run" in opened.tab.locator(".failed").first.inner_text()


def test_query_and_key_open_on_a_link_between_words(open_page):
    found = attend("The cat sat on the mat", model="pocket-lm", keep_qk=True)
    opened = open_page(found.page(), "view=query-key&heads=1.3")
    row = int(opened.tab.get_by_label("query", exact=True).input_value())
    assert row > 0
    weights = found.weights[1, 3]
    column = int(opened.tab.get_by_label("key", exact=True).input_value())
    assert weights[row, column] == weights[row].max()
    opened.tab.get_by_label("query", exact=True).select_option("2")
    opened.settle()
    root = ElementTree.fromstring(opened.download("svg"))
    words = [item.text or "" for item in root.iter("{http://www.w3.org/2000/svg}text")]
    listed = words[words.index("softmax") + 1 :]
    assert sum(one in ("<eos>", "The", "cat") for one in listed) == 3
    assert not {"sat", "on", "the", "mat"} & {*listed}
