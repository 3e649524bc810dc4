"""A page in a notebook's widget hands to Python what its reader selects."""

import base64
import json
import pickle
import sys
from typing import Any

import pytest

import attnviz
from attnviz.core.errors import UsageError

TEXT = "The cat sat on the mat"
# What a notebook does with a widget: it calls render() with a model and a place.
HOST = """<!doctype html><title>notebook</title><div id="cell"></div><iframe></iframe>
<script type="module">
const url = URL.createObjectURL(new Blob([atob("{script}")], {{ type: "text/javascript" }}));
const widget = (await import(url)).default;
const values = {{ page: {page} }};
window.sent = [];
const model = {{
  get: (name) => values[name],
  set: (name, value) => {{ values[name] = value; }},
  save_changes: () => window.sent.push(values.selection),
}};
window.leave = widget.render({{ model, el: document.getElementById("cell") }});
</script>"""


def hosted(page: str) -> str:
    from attnviz.renderers.page.widget import SCRIPT

    script = base64.b64encode(SCRIPT.encode()).decode()
    return HOST.format(script=script, page=json.dumps(page).replace("<", "\\u003c"))


@pytest.fixture
def result() -> Any:
    pytest.importorskip("anywidget")
    return attnviz.attend(TEXT)


@pytest.mark.slow
@pytest.mark.browser
def test_what_is_selected_is_sent_and_no_other_heard(open_page, result):
    opened = open_page(hosted(result.page()))
    frame = opened.tab.frame_locator("#cell iframe")
    frame.locator("body[data-complete]").wait_for()
    sent = opened.tab.evaluate("() => window.sent.at(-1)")
    assert (sent["stream"], sent["heads"]) == ("encoder", [{"layer": "0", "head": "3"}])
    assert (sent["query"], sent["key"]) == (None, None)
    frame.locator("#overview .head").nth(7).click()
    opened.tab.wait_for_function("() => window.sent.at(-1).heads[0].head === '1'")
    assert opened.tab.evaluate("() => window.sent.at(-1).heads") == [{"layer": "1", "head": "1"}]
    frame.locator("#stage .plot canvas[tabindex]").click(position={"x": 200, "y": 150})
    opened.tab.wait_for_function("() => window.sent.at(-1).query !== null")
    pinned = opened.tab.evaluate("() => window.sent.at(-1)")
    tokens = [token.text for token in result.main.query_tokens]
    assert tokens[pinned["query"]["position"]] == pinned["query"]["token"]
    assert tokens[pinned["key"]["position"]] == pinned["key"]["token"]
    count = opened.tab.evaluate("() => window.sent.length")
    opened.tab.evaluate("() => window.postMessage({ attnviz: { stream: 'forged' } }, '*')")
    frame.locator("#overview .head").first.click()
    opened.tab.wait_for_function(f"() => window.sent.length > {count}")
    assert opened.tab.evaluate("() => window.sent.every((one) => one.stream === 'encoder')")


@pytest.mark.slow
def test_a_selection_comes_back_to_the_result(result):
    widget = result.widget()
    assert (result.selection, widget.page) == ({}, result._notebook_page())
    widget.selection = {"stream": "encoder", "heads": [{"layer": "0", "head": "3"}]}
    assert (result.selection, result.select(layer=0).selection) == (widget.selection, {})
    assert pickle.loads(pickle.dumps(result)).selection == result.selection


def test_a_notebook_shows_the_widget(result):
    shown, _ = result._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in shown
    assert shown["text/plain"] == repr(result)
    assert result._repr_html_().startswith("<iframe srcdoc=")


def test_without_anywidget_a_frame_is_shown(monkeypatch):
    monkeypatch.setitem(sys.modules, "anywidget", None)
    monkeypatch.delitem(sys.modules, "attnviz.renderers.page.widget", raising=False)
    result = attnviz.attend(TEXT)
    assert result._repr_mimebundle_() is None
    with pytest.raises(UsageError, match="pip install anywidget"):
        result.widget()
