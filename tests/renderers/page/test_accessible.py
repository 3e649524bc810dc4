"""Everyone can use the page: axe-core finds nothing on any view, in light and in dark.

axe-core is a package of npm that only tests need: `npm install` in the root brings it.
"""

from pathlib import Path
from typing import Any

import pytest

from attnviz import attend, compare
from attnviz.core.attention_map import Attention, Provenance
from attnviz.renderers.page import Patches, page
from attnviz.storage.archive import dump_archive
from tests.invoke import attnviz
from tests.renderers.page.conftest import Opened
from tests.renderers.page.samples import encoder_page, pair, picture, random_map, with_projections
from tests.samples import effects

pytestmark = [pytest.mark.browser, pytest.mark.slow]
AXE = Path(__file__).parents[3] / "node_modules" / "axe-core" / "axe.min.js"


def findings(tab: Any) -> list[str]:
    """What axe finds in the page as it stands: rules, elements, and why."""
    if not AXE.is_file():
        pytest.skip("no axe-core: npm install brings it")
    if not tab.evaluate("'axe' in window"):
        tab.evaluate(AXE.read_text(encoding="utf-8"))
    how = {"resultTypes": ["violations"], "preload": False}  # a quarter of the time, finds the same
    how |= {"rules": {"target-size": {"enabled": True}}}
    found = tab.evaluate("async (how) => (await axe.run(how)).violations", how)
    return [
        f"{rule['id']}: {node['html'][:90]} {node['failureSummary'][:300]}"
        for rule in found
        for node in rule["nodes"]
    ]


def sample(name: str) -> str:
    """A page of each kind of data."""
    if name == "text":
        return encoder_page(title="sample", command="attnviz self 'the professor'")
    if name == "pair":
        return page(pair())
    if name == "effects":
        return page(effects())
    if name == "vectors":
        attention, kept = with_projections()
        return page(attention, projections={0: kept})
    if name == "picture":
        attention, image = picture()
        return page(attention, patches={0: Patches(image, 2, 2, 1)})
    return attend("The professor who supervised it.").page()


LOOKS: dict[str, dict[str, Any]] = {
    "light": {},
    "dark": {"color_scheme": "dark"},
    "forced colours": {"color_scheme": "dark", "forced_colors": "active"},
    "320 pixels": {},
    "390 pixels": {},
}
"""How a reader may see the page: the narrowest as 1280 pixels at 400 %, the next a telephone."""


def narrowed(opened: Opened, look: str) -> None:
    """The page in its look; where it is narrow, nothing is wider than it."""
    if look.endswith("pixels"):
        width = int(look.split()[0])
        opened.resize(width, 700)
        assert opened.tab.evaluate("document.scrollingElement.scrollWidth") <= width


SMALL = """() => [...document.querySelectorAll(
    "a[href], button, select, input, textarea, summary, [role=application]")]
  .filter((one) => one.checkVisibility({visibilityProperty: true}) && !one.matches(".skip")
    && !one.closest("dialog:not([open]), .unseen"))
  .map((one) => [one.outerHTML.slice(0, 80), one.getBoundingClientRect()])
  .filter(([, box]) => box.width < 23.5 || box.height < 23.5)
  .map(([what, box]) => `${what} ${box.width} × ${box.height}`)"""


SAMPLES = ("text", "pair", "effects", "vectors", "picture", "pocket")
# What forced colours and a telephone change, they change alike on pages of all data.
SEEN = [
    (name, look)
    for name in SAMPLES
    for look in LOOKS
    if look in ("light", "dark", "320 pixels") or name in ("vectors", "pocket")
]


@pytest.mark.parametrize(("name", "look"), SEEN)
def test_axe_finds_nothing_on_any_view(open_page, name, look):
    opened = open_page(sample(name), "row=2", **LOOKS[look])
    tabs = opened.tab.locator("#views [role=tab]")
    for place in range(tabs.count()):
        tabs.nth(place).click()
        opened.settle()
        if not place:  # the table that a screen reader meets; later views have the same
            opened.settle("#table")
        narrowed(opened, look)
        assert findings(opened.tab) == [], tabs.nth(place).inner_text()
        assert opened.tab.evaluate(SMALL) == []
    for key in ("?", "p"):
        opened.key(key)
        opened.tab.wait_for_selector("dialog[open]")
        assert (findings(opened.tab), opened.tab.evaluate(SMALL)) == ([], [])
        opened.key("Escape")


@pytest.mark.parametrize("look", LOOKS)
def test_axe_finds_nothing_in_steps(open_page, tmp_path, look):
    path = tmp_path / "steps.html"
    attnviz("steps", "the cat sat", "--html", path, "-f", "none")
    opened = open_page(path.read_text("utf-8"), **LOOKS[look])
    narrowed(opened, look)
    assert (findings(opened.tab), opened.tab.evaluate(SMALL)) == ([], [])


@pytest.mark.parametrize("look", ["dark", "390 pixels"])
@pytest.mark.parametrize(
    "command",
    [
        ("explain", "The red car is"),
        ("cache", "Tom likes dogs. Mary likes cats. Tom likes", "--keep", "sinks:1+recent:3"),
        ("why", "Tom likes dogs. Tom likes", "--model", "pocket-lm", "--layers"),
        ("lesson", "scaling"),
        ("steps", "--model", "pocket", "--head", "2.0", "The red car", "La voiture rouge"),
    ],
    ids=lambda command: command[0],
)
def test_axe_finds_nothing_on_pages_of_commands(open_page, tmp_path, command, look):
    path = tmp_path / "page.html"
    done = attnviz(*command, "--html", path)
    assert done.status == 0, done.err
    opened = open_page(path.read_text("utf-8"), wait="main", **LOOKS[look])
    narrowed(opened, look)
    assert (findings(opened.tab), opened.tab.evaluate(SMALL)) == ([], [])


@pytest.mark.parametrize("look", ["light", "390 pixels"])
def test_axe_finds_nothing_in_a_history(open_page, tmp_path, look):
    item = random_map(2, 2, 5).main
    for step in (0, 100):
        sample = Attention((item,), Provenance("watched", "Toy"), id=f"step {step}")
        (tmp_path / f"step-{step:08d}.npz").write_bytes(dump_archive([sample]))
    opened = open_page(compare(str(tmp_path)).page(), **LOOKS[look])
    narrowed(opened, look)
    assert (findings(opened.tab), opened.tab.evaluate(SMALL)) == ([], [])


def test_forced_colours_show_bars_and_frames(open_page, live_page):
    state = "off=cross:0:2&row=3&column=1&measure=effect"
    opened = open_page(live_page, state, **LOOKS["forced colours"])
    opened.tab.wait_for_selector("#overview .legend:has-text('Bars:')")
    seen = opened.tab.evaluate(
        """() => {
          const back = getComputedStyle(document.body).backgroundColor;
          const bar = getComputedStyle(document.querySelector(".switchable"), "::after");
          const line = getComputedStyle(document.querySelector(".written .word"), "::after");
          const frame = getComputedStyle(document.querySelector(".head[aria-pressed=true] canvas"));
          return [bar.backgroundColor !== back, line.backgroundColor !== back,
            frame.outlineStyle === "solid" && frame.outlineColor !== back];
        }"""
    )
    assert seen == [True, True, True]
    opened = open_page(encoder_page(), "view=heatmap")
    opened.tab.evaluate("document.querySelector('.fact').style.color = '#bbb'")
    assert any("color-contrast" in found for found in findings(opened.tab))
