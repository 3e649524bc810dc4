"""Everyone can use the page: axe-core finds nothing on any view, in light and in dark.

axe-core is a package of npm that only tests need: `npm install` in the root brings it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from attnviz import attend
from attnviz.renderers.page import Patches, page
from tests.renderers.page.conftest import Open
from tests.renderers.page.samples import encoder_page, pair, picture, with_projections
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


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["text", "pair", "effects", "vectors", "picture", "pocket"])
def test_axe_finds_nothing_on_any_view(open_page: Open, name: str, scheme: str) -> None:
    opened = open_page(sample(name), "row=2", color_scheme=scheme)
    tabs = opened.tab.locator("#views [role=tab]")
    for place in range(tabs.count()):
        tabs.nth(place).click()
        opened.settle()
        opened.settle("#table")
        assert findings(opened.tab) == [], tabs.nth(place).inner_text()
    opened.key("?")
    assert findings(opened.tab) == []


def test_what_axe_would_find_is_found(open_page: Open) -> None:
    opened = open_page(encoder_page())
    opened.tab.evaluate("document.querySelector('.fact').style.color = '#bbb'")
    assert any("color-contrast" in found for found in findings(opened.tab))
