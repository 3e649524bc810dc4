"""The engine in a real browser: the same answers as in node, and as Python."""

import base64
import zlib
from typing import Any

import numpy as np
import pytest

from attnviz.core.query import ALL_OUTPUTS, Query
from tests.features.live.conftest import NOTHING
from tests.features.live.test_tokens import lines

pytestmark = [pytest.mark.browser, pytest.mark.slow]

START = """
async ([script, packed]) => {
  const url = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
  const worker = new Worker(url);
  const bytes = Uint8Array.from(atob(packed), (one) => one.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const whole = new Uint8Array(await new Response(stream).arrayBuffer());
  const plain = (key, value) =>
    value instanceof Map ? Object.fromEntries(value)
    : value instanceof Int16Array ? Array.from(value)
    : typeof value === "number" && !Number.isFinite(value) ? String(value) : value;
  worker.postMessage({ kind: "open", packed: whole }, [whole.buffer]);
  window.ask = (question) => new Promise((done) => {
    worker.onmessage = ({ data }) => "doing" in data || done(JSON.stringify(data, plain));
    worker.postMessage(question);
  }).then(JSON.parse);
}
"""


@pytest.fixture
def tab(browser: Any, packed_model: bytes, worker_script: str) -> Any:
    """A page with the engine in a worker, which answers `ask(question)`."""
    context = browser.new_context()
    page = context.new_page()
    packed = base64.b64encode(zlib.compress(packed_model, 1)).decode()
    page.evaluate(START, [worker_script, packed])
    yield page
    context.close()


def test_chromium_answers_as_node_and_python_do(tab, engine, pocket):
    texts = ["The red car isn't fast", "Il était une fois, l’été…", *lines(3, seed=5)]
    for number, source in enumerate(texts):
        asked = {"target": None, "lens": "raw", "off": NOTHING}
        found = tab.evaluate(
            "question => ask(question)", {"id": number, "kind": "attend", "source": source, **asked}
        )
        expected = engine.ask(source)
        if "error" in expected:
            assert found["error"] == expected["error"]
            continue
        assert found["document"] == expected["document"]
        assert found["answer"]["written"] == expected["answer"]["written"]
        assert found["codes"] == expected["codes"]


def test_chromium_takes_the_gradients_of_python(tab, engine, pocket):
    source = "The red car isn't fast"
    asked = {"id": 1, "kind": "attend", "source": source, "target": None, "off": NOTHING}
    found = tab.evaluate("question => ask(question)", {**asked, "lens": "effect"})
    ran = pocket.experiment(Query(source, None, "cross"), ALL_OUTPUTS)
    assert len(found["answer"]["pieces"]) == len(ran.outputs)
    assert found["codes"] == engine.ask(source, lens="effect")["codes"]
    cells = sum(len(codes) for codes in found["codes"].values())
    assert cells == sum(np.size(gradient) for gradient in ran.gradients())
