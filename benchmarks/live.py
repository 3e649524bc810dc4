"""The live page's engine against Python: accuracy in node, speed in chromium.

python benchmarks/live.py SENTENCES PAIRS [COUNT]

SENTENCES holds a text a line, which the page and Python translate into French; PAIRS an English
sentence and a French one a line, tab-separated: the references of chrF where they are of the same
sentence, and the pairs whose maps are compared. COUNT of each are read, 1,000 by default. Python
has the float16 weights, the page those of few bits. Needs node, chromium, playwright, sacrebleu.
"""

from __future__ import annotations

import base64
import shutil
import statistics
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from sacrebleu.metrics import CHRF

from attnviz.core.query import Query
from attnviz.features.live.command import read_sample_atlas
from attnviz.features.live.packed import pack_model
from attnviz.models.pocket.translator import Pocket
from attnviz.renderers.page.document import live_page, live_worker
from tests.features.live.conftest import NOTHING, Engine, started
from tests.features.live.test_page_in_browser import START

TEN_WORDS = (
    "I spent the whole week working on that long report.",
    "He never told us why he had left the old house.",
    "Nous avons passé toute la journée à chercher tes vieilles clés.",
    "The children were playing in the garden when it began raining.",
    "Elle voudrait savoir si vous viendrez demain soir avec votre frère.",
)


def main(sentences: Path, pairs: Path, count: int) -> None:
    """Print what was found."""
    data = pack_model()
    page = live_page("attnviz live", data, read_sample_atlas())
    print(f"packed: {len(data) / 1e6:.2f} MB, the page {len(page.encode()) / 1e6:.2f} MB")
    lines = [line.split("\t") for line in pairs.read_text(encoding="utf-8").splitlines()]
    known = [(line[0], line[1]) for line in lines if len(line) > 1]
    with engine_of(data) as engine:
        translations(engine, sentences.read_text(encoding="utf-8").splitlines()[:count], known)
        maps(engine, known[:: max(len(known) // count, 1)][:count])
    opening(page)
    speed(data)


@contextmanager
def engine_of(data: bytes) -> Iterator[Engine]:
    with (
        tempfile.TemporaryDirectory() as folder,
        started(Path(folder), live_worker(), data) as engine,
    ):
        yield engine


def translations(engine: Engine, texts: list[str], pairs: list[tuple[str, str]]) -> None:
    """How many greedy translations are the same, and how far chrF is from Python's."""
    model = Pocket(to="fr")
    expected = [model.translate(text) for text in texts]
    found = [engine.ask(text, to="fr")["answer"]["written"] for text in texts]
    same = sum(one == other for one, other in zip(expected, found, strict=True))
    print(f"translations identical: {same} of {len(texts)}")
    references: dict[str, list[str]] = {}
    for english, french in pairs:
        references.setdefault(english, []).append(french)
    places = [place for place, text in enumerate(texts) if text in references]
    if not places:
        return
    most = max(len(references[texts[place]]) for place in places)
    columns = [
        [(references[texts[place]] * most)[number] for place in places] for number in range(most)
    ]
    scores = [
        CHRF().corpus_score([one[place] for place in places], columns).score
        for one in (expected, found)
    ]
    print(f"chrF over {len(places)}: Python {scores[0]:.2f}, page {scores[1]:.2f}")


def maps(engine: Engine, pairs: list[tuple[str, str]]) -> None:
    """How far attention weights and log p are from Python's."""
    model = Pocket(to="fr")
    largest, means, logs = [], [], []
    for source, target in pairs:
        answer = engine.ask(source, target, to="fr")
        (attention,) = model.attend([Query(source, target, "cross")])
        apart = []
        for number, item in enumerate(attention.maps):  # type: ignore[union-attr]
            codes = [answer["codes"][f"m{number}-{layer}"] for layer in range(len(item.layers))]
            weights = np.square(np.array(codes).reshape(item.weights.shape) / 32767)
            apart.append(np.abs(weights - item.weights).ravel())
        every = np.concatenate(apart)
        largest.append(every.max())
        means.append(every.mean())
        logs.append(sum(piece["logp"] for piece in answer["answer"]["pieces"]))
    print(
        f"attention weights over {len(pairs)} pairs: mean deviation {np.mean(means):.1e}, largest "
        f"of a pair {np.median(largest):.4f} (median), {np.max(largest):.4f} (of all)"
    )


@contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


ANSWERED = """new MutationObserver((_, watch) => {
  if (!document.querySelector('.status')?.textContent.includes('answered')) return;
  document.documentElement.dataset.answered = performance.now();
  watch.disconnect();
}).observe(document, { subtree: true, childList: true, characterData: true })"""


def opening(page: str) -> None:
    """How soon the page has answered once it is opened from disk, each time in a fresh profile."""
    found = []
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        file = Path(folder) / "live.html"
        file.write_text(page, encoding="utf-8")
        for _ in range(9):
            context = browser.new_context()
            tab = context.new_page()
            tab.add_init_script(ANSWERED)
            tab.goto(file.as_uri())
            tab.wait_for_selector("html[data-answered]")
            found.append(float(tab.locator("html").get_attribute("data-answered") or 0))
            context.close()
    print(f"first answer {statistics.median(found):.0f} ms after opening (least {min(found):.0f})")


def speed(data: bytes) -> None:
    """How soon a worker in chromium answers once it has begun."""
    with chromium() as browser:
        tab = browser.new_page()
        asked: dict[str, Any] = {
            "id": 1,
            "kind": "attend",
            "target": None,
            "lens": "raw",
            "off": NOTHING,
        }
        packed = base64.b64encode(zlib.compress(data, 1)).decode()
        tab.evaluate(START, [live_worker(), packed])
        tab.evaluate("question => ask(question)", {**asked, "source": TEN_WORDS[0]})
        timed: dict[str, list[float]] = {"new sentence": [], "typed on": [], "head off": []}
        for number in range(8):
            for text in TEN_WORDS:
                for name, question in (
                    ("new sentence", {"source": f"{text} {number}"}),
                    ("typed on", {"source": f"{text} {number}a"}),
                    (
                        "head off",
                        {
                            "source": f"{text} {number}a",
                            "off": {**NOTHING, "heads": [["cross", "2", 0]]},
                        },
                    ),
                ):
                    answer = tab.evaluate(
                        "async question => { const begun = performance.now(); await ask(question);"
                        " return performance.now() - begun; }",
                        {**asked, **question},
                    )
                    timed[name].append(answer)
        for name, found in timed.items():
            print(f"{name}: {statistics.median(found):.0f} ms (median of {len(found)})")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int((sys.argv[3:] or ["1000"])[0]))
