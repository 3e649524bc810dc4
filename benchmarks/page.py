"""The page against the clock: how large, how soon written, how soon open, how soon it answers.

python benchmarks/page.py [TOKENS ...]   random 12 × 12 heads, 128 and 512 tokens by default

Where bertviz can be imported, its `model_view` of the same weights is timed in the same run.
Needs chromium and playwright.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from attnviz.core.attention_map import Attention
from attnviz.renderers.page import page
from tests.renderers.page.samples import random_map

HOVERS = 60
# What a pointer event and the drawing that it asks for cost; a frame leaves room for 16.7 ms.
PROBE = """
(async () => {
  const canvas = document.querySelector("#view canvas:last-of-type");
  const times = [];
  for (let step = 0; step < %d; step++) {
    const at = { clientX: 0, clientY: 0, bubbles: true };
    const box = canvas.getBoundingClientRect();
    at.clientX = box.left + (location.hash.includes("lines") ? 80 : 120 + (step * 7) %% 300);
    at.clientY = box.top + 120 + (step * 5) %% 300;
    await new Promise(requestAnimationFrame);
    const before = new Promise((done) => requestAnimationFrame(() => done(performance.now())));
    const started = performance.now();
    canvas.dispatchEvent(new PointerEvent("pointermove", at));
    const handled = performance.now() - started;
    const after = new Promise((done) => requestAnimationFrame(() => done(performance.now())));
    times.push((await after) - (await before) + handled);
  }
  return times.map((time) => time.toFixed(2)).join(" ");
})()
"""


def main(sizes: list[int]) -> None:
    """Print a block of figures for each size."""
    for size in sizes:
        attention = random_map(12, 12, size)
        started = time.perf_counter()
        html = page(attention)
        written = time.perf_counter() - started
        print(f"{size} tokens: {len(html) / 1e6:.2f} MB, written in {written:.2f} s", end="")
        print(_bertviz(attention, written) if size <= 128 else "")
        _open_page(html)


def _bertviz(attention: Attention, written: float) -> str:
    try:
        import torch
        from bertviz import model_view
    except ImportError:
        return "; no bertviz to compare with"
    layers = [torch.tensor(layer)[None] for layer in attention.weights]
    started = time.perf_counter()
    html = model_view(layers, list(attention.tokens), html_action="return").data
    took = time.perf_counter() - started
    return (
        f"; bertviz: {len(html) / 1e6:.2f} MB in {took:.2f} s, {took / written:.0f} times as long"
    )


def _open_page(html: str) -> None:
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        file = Path(folder, "page.html")
        file.write_text(html, encoding="utf-8")
        for view in ("heatmap", "lines"):
            tab = browser.new_page(viewport={"width": 1300, "height": 900})
            started = time.perf_counter()
            tab.goto(f"{file.as_uri()}#view={view}&heads=0.0")
            tab.wait_for_selector("body[data-complete]", timeout=60_000)
            whole = time.perf_counter() - started
            ready = int(tab.locator("body").get_attribute("data-ready"))
            hovers = _hovers(tab)
            print(
                f"  {view}: ready after {ready / 1000:.2f} s, every thumbnail after {whole:.2f} s; "
                f"hover {statistics.median(hovers):.1f} ms, at most {max(hovers):.1f} ms"
            )
            tab.close()
        browser.close()


def _hovers(tab: Any) -> list[float]:
    """Milliseconds of each hover; the debugger may evaluate what the page's own policy forbids."""
    session = tab.context.new_cdp_session(tab)
    answer = session.send(
        "Runtime.evaluate",
        {"expression": PROBE % HOVERS, "awaitPromise": True, "returnByValue": True},
    )
    return [float(part) for part in answer["result"]["value"].split()]


if __name__ == "__main__":
    main([int(text) for text in sys.argv[1:]] or [128, 512])
