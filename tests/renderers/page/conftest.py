"""A real browser for the page, where there is one."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest

from tests.invoke import attnviz


@dataclass
class Opened:
    """A page in the browser, and everything that it should not have done."""

    tab: Any
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def text(self, selector: str) -> str:
        """The text of an element, once the page has shown what was last asked of it."""
        self.settle()
        return str(self.tab.locator(selector).first.inner_text())

    def settle(self, what: str = "#stage") -> None:
        # Looks at each frame; `wait_for_selector` looks again after up to half a second.
        self.tab.wait_for_function(
            "(what) => document.querySelector(what)?.ariaBusy === 'false'", arg=what
        )

    def drawn(self) -> None:
        """Wait until the page has drawn what was done to it."""
        self.tab.evaluate(
            "() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))"
        )

    def resize(self, width: int, height: int = 800) -> None:
        """Another size of the window, and what is drawn for it: an observer of sizes runs in the
        frame that lays the page out anew, and what it asks for in the frame after that one.
        """
        self.tab.set_viewport_size({"width": width, "height": height})
        self.tab.wait_for_function("width => innerWidth === width", arg=width)
        for _ in range(3):
            self.drawn()

    def choose(self, switch: str, value: str) -> None:
        self.tab.locator(f'[data-switch="{switch}"]').select_option(value)

    def key(self, name: str, times: int = 1) -> None:
        for _ in range(times):
            self.tab.keyboard.press(name)

    def fragment(self) -> dict[str, str]:
        """What the address remembers, by name."""
        return dict(parse_qsl(self.address().partition("#")[2]))

    def address(self) -> str:
        """The address now; the one that playwright holds may lag behind."""
        return str(self.tab.locator("body").evaluate("() => location.href"))

    def download(self, kind: str) -> bytes:
        """A file that the page saves; pictures are made in a dialog."""
        if kind in ("png", "svg") and not self.tab.locator("#saving").is_visible():
            self.tab.locator("#save-picture").click()
            self.tab.wait_for_selector('#saving[open][aria-busy="false"]')
        with self.tab.expect_download() as waiting:
            self.tab.locator(f"#save-{kind}").click()
        return Path(waiting.value.path()).read_bytes()


Open = Callable[..., Opened]


VIEWPORT = {"width": 1300, "height": 900}


@pytest.fixture(scope="session")
def spare_tabs() -> dict[str, list[Opened]]:
    """Tabs that earlier tests have left, by their options: a new one costs more than a page."""
    return {}


def new_tab(browser: Any, options: dict[str, Any]) -> Opened:
    """A tab of its own that notes what it should not have done."""
    opened = Opened(browser.new_context(viewport=VIEWPORT, **options).new_page())
    opened.tab.on("console", lambda message: opened.said.append(message.text))
    opened.tab.on("pageerror", lambda error: opened.said.append(str(error)))
    opened.tab.on("dialog", lambda dialog: opened.said.append(dialog.message))
    opened.tab.on("request", lambda request: opened.asked.append(request.url))
    return opened


@pytest.fixture
def open_page(browser: Any, spare_tabs: dict[str, list[Opened]], tmp_path: Path) -> Iterator[Open]:
    """Opens a page's text at a fragment; afterwards nothing may have been said or asked for."""
    used: list[tuple[str, Opened]] = []

    def open_(
        html: str, fragment: str = "", wait: str = "body[data-complete]", **options: Any
    ) -> Opened:
        file = tmp_path / f"page{len(used)}.html"
        file.write_text(html, encoding="utf-8")
        kind = repr(sorted(options.items()))
        spare = spare_tabs.setdefault(kind, [])
        opened = spare.pop() if spare else new_tab(browser, options)
        used.append((kind, opened))
        opened.tab.goto(file.as_uri() + (f"#{fragment}" if fragment else ""))
        if "<iframe" not in html[:2000]:
            opened.tab.wait_for_selector(wait)
        return opened

    yield open_
    for kind, opened in used:
        opened.tab.mouse.move(0, 0)
        opened.tab.set_viewport_size(VIEWPORT)
        opened.tab.emulate_media(media="null")  # a test may have printed
        opened.tab.evaluate("localStorage.clear()")  # or have switched letters off as keys
        opened.tab.goto("about:blank")
        said, asked = opened.said.copy(), opened.asked.copy()
        opened.said.clear()
        opened.asked.clear()
        spare_tabs[kind].append(opened)
        outside = [
            url for url in asked if not url.startswith(("file:", "blob:", "data:", "about:"))
        ]
        assert (said, outside) == ([], [])
        assert len([url for url in asked if url.startswith("file:")]) <= 2


@pytest.fixture(scope="session")
def live_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page that answers, as the command writes it."""
    path = tmp_path_factory.mktemp("live") / "live.html"
    done = attnviz("live", "-o", path)
    assert (done.status, done.out, done.err) == (0, b"", "")
    return path.read_text(encoding="utf-8")
