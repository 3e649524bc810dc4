import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from attnviz.core.attention_map import Attention, AttentionMap, Provenance, Token
from attnviz.core.errors import InputError
from attnviz.renderers.page import Patches, iframe, page
from attnviz.renderers.page.document import PAGE_KINDS, join_modules, script_json
from tests.renderers.page.samples import (
    HOSTILE,
    encoder,
    hostile,
    picture,
    random_map,
    with_projections,
)


class Elements(HTMLParser):
    """Every element of a page with its attributes and the text in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.within = False
        self.found: list[tuple[str, dict[str, str | None], str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), ""))
        self.within = True

    def handle_endtag(self, tag: str) -> None:
        self.within = False

    def handle_data(self, data: str) -> None:
        if self.found and self.within:
            tag, attrs, text = self.found[-1]
            self.found[-1] = (tag, attrs, text + data)

    def named(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        return [(attrs, text) for name, attrs, text in self.found if name == tag]


def document(text: str) -> Any:
    scripts = Elements(text).named("script")
    return json.loads(next(data for attrs, data in scripts if attrs.get("id") == "document"))


def sha(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_the_policy_forbids_all_but_script_and_style():
    elements = Elements(page(encoder()))
    policy = next(
        attrs["content"] or ""
        for attrs, _ in elements.named("meta")
        if attrs.get("http-equiv") == "Content-Security-Policy"
    )
    (style,) = (text for _, text in elements.named("style"))
    (script,) = (text for attrs, text in elements.named("script") if attrs["type"] == "module")
    assert policy.split("; ") == [
        "default-src 'none'",
        f"script-src '{sha(script)}'",
        f"style-src '{sha(style)}'",
        "img-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    text = page(encoder())
    urls = set(re.findall(r"https?://[^\s\"'`<]+", text))
    assert urls == {"http://www.w3.org/2000/svg"}
    attributes = {name for _, attrs, _ in Elements(text).found for name in attrs}
    assert not attributes & {"src", "srcset", "action", "poster", "data", "background", "style"}
    assert not re.search(r"\b(eval|fetch|XMLHttpRequest|WebSocket|importScripts|innerHTML)\b", text)


def test_hostile_tokens_and_titles_stay_text():
    plain, nasty = Elements(page(encoder())), Elements(page(hostile()))

    def kinds(elements: Elements) -> list[str]:
        blobs = {"text/plain"}
        return [tag for tag, attrs, _ in elements.found if attrs.get("type") not in blobs]

    assert kinds(nasty) == kinds(plain)
    tokens = document(page(hostile()))["maps"][0]["keys"]["tokens"]
    raw = [token.get("raw", token["text"]) for token in tokens]
    assert raw == [text.encode("utf-8", "backslashreplace").decode() for text in HOSTILE]
    assert "\u202e" not in tokens[5]["text"]
    assert "\x1b" not in tokens[6]["text"]
    text = page(encoder(), title="</title><script>alert(1)</script>", command="$policy $data")
    assert [data for _, data in Elements(text).named("title")] == [
        "</title><script>alert(1)</script>"
    ]
    assert document(text)["command"] == "$policy $data"


@pytest.mark.parametrize("text", ["</script>", "<!--", "a&b", "\u2028\u2029", '"\\'])
def test_json_in_a_page_ends_nothing_and_reads_back(text):
    written = script_json({"x": text})
    assert not re.search("[<>&\u2028\u2029]", written)
    assert json.loads(written) == {"x": text}


def test_random_heads_at_128_tokens_take_3_megabytes():
    assert len(page(random_map(12, 12, 128))) <= 3.2e6


@pytest.mark.slow
def test_144_heads_of_371_tokens_take_12_megabytes_and_what_opens_comes_first():
    text = page(random_map(12, 12, 371))
    assert len(text) <= 12e6
    names = [attrs.get("id") for attrs, _ in Elements(text).named("script")]
    others = [f"m0-{layer}" for layer in range(11)]
    assert names == ["document", "m0-11", None, *others]  # the script has no name


def test_words_streams_and_a_summary_of_the_document():
    single = (None, 0, 1, 2, 3, 4, None)
    found = document(page(encoder(), words={0: (single, ())}))["maps"][0]
    assert found["queries"]["words"] is None
    assert found["keys"]["words"] is None

    item = encoder().main
    later = item.with_weights(item.weights[:1], layers=("2",))
    maps = document(page(Attention((item, later), Provenance("x", "y"))))["maps"]
    assert [found["stream"] for found in maps] == [
        "encoder, layers 0 to 1",
        "encoder, layers 2 to 2",
    ]

    keys = tuple(Token(word) for word in "abc")
    item = AttentionMap(
        "a",
        (Token("[summary]", special=True),),
        keys,
        np.full((1, 1, 1, 3), 1 / 3, np.float32),
        query_side="summary",
        key_side="source",
    )
    assert document(page(Attention((item,), Provenance("x", "y"))))["maps"][0]["links"] is None


def test_what_does_not_fit_is_refused():
    with pytest.raises(InputError, match="3 word numbers for the 7 tokens"):
        page(encoder(), words={0: ((0, 0, 1), ())})
    attention, kept = with_projections()
    with pytest.raises(InputError, match="do not fit the map"):
        page(attention, projections={0: replace(kept, key=kept.key[:, :, :3])})
    attention, image = picture()
    with pytest.raises(InputError, match="3 × 3 patches from token 1 on"):
        page(attention, patches={0: Patches(image, 3, 3, 1)})
    with pytest.raises(InputError, match="neither PNG"):
        page(attention, patches={0: Patches(b"GIF89a", 2, 2, 1)})


def test_a_frame_and_modules_hold_what_they_join():
    text = page(encoder())
    ((attributes, _),) = Elements(iframe(text)).named("iframe")
    assert attributes["srcdoc"] == text
    assert attributes["sandbox"] == "allow-scripts allow-downloads"

    script = join_modules(
        {
            "one": "const own = 1;\nexport const shared = own;\n",
            "two": 'import { shared } from "./one.js";\nconst own = 2;\nexport { };\n',
        }
    )
    assert "const { shared } = modules.one;" in script
    assert "return { shared };" in script


def test_every_script_stands_behind_its_imports():
    from importlib.resources import files

    folder = files("attnviz.renderers.page").joinpath("scripts")
    names = {
        item.name.removesuffix(".js") for item in folder.iterdir() if item.name.endswith(".js")
    }
    kinds = PAGE_KINDS.values()
    used = {kind.substitutes.get(name, name) for kind in kinds for name in kind.scripts}
    assert names - {"types"} == used
    for kind in PAGE_KINDS.values():
        for place, name in enumerate(kind.scripts):
            source = folder.joinpath(f"{kind.substitutes.get(name, name)}.js").read_text("utf-8")
            needed = re.findall(r'^import [^;]*from "\./(\w+)\.js"', source, re.MULTILINE)
            assert set(needed) <= set(kind.scripts[:place]), name
