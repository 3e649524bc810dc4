from __future__ import annotations

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
    encoder_page,
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


def test_the_policy_forbids_everything_but_this_one_script_and_style() -> None:
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


def test_the_page_names_nothing_to_fetch() -> None:
    text = page(encoder())
    urls = set(re.findall(r"https?://[^\s\"'`<]+", text))
    assert urls == {"http://www.w3.org/2000/svg"}
    attributes = {name for _, attrs, _ in Elements(text).found for name in attrs}
    assert not attributes & {"src", "srcset", "action", "poster", "data", "background", "style"}
    assert not re.search(r"\b(eval|fetch|XMLHttpRequest|WebSocket|importScripts|innerHTML)\b", text)


def test_hostile_tokens_add_no_element_and_come_back_whole() -> None:
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


def test_a_hostile_title_stays_text() -> None:
    text = page(encoder(), title="</title><script>alert(1)</script>", command="$policy $data")
    assert [data for _, data in Elements(text).named("title")] == [
        "</title><script>alert(1)</script>"
    ]
    assert document(text)["command"] == "$policy $data"


@pytest.mark.parametrize("text", ["</script>", "<!--", "a&b", "\u2028\u2029", '"\\'])
def test_json_in_a_page_holds_nothing_that_ends_it_and_reads_back(text: str) -> None:
    written = script_json({"x": text})
    assert not re.search("[<>&\u2028\u2029]", written)
    assert json.loads(written) == {"x": text}


def test_random_heads_at_128_tokens_fit_in_three_megabytes() -> None:
    assert len(page(random_map(12, 12, 128))) <= 3.2e6


def test_a_layer_of_random_heads_at_512_tokens_takes_its_twelfth_of_48_megabytes() -> None:
    fixed = len(page(random_map(1, 1, 2)))
    assert len(page(random_map(1, 12, 512))) - fixed <= (48e6 - fixed) / 12


def test_the_page_says_where_its_numbers_come_from_and_how_to_make_it_again() -> None:
    provenance = Provenance(
        "hugging face",
        "bert",
        True,
        settings={"revision": "abc"},
        steps=("layer 2",),
        notes=("pooled",),
        versions={"torch": "2.13"},
    )
    found = document(
        page(Attention(encoder().maps, provenance), command="attnviz self x --html y.html")
    )
    facts = dict(found["provenance"])
    assert facts["model"] == "bert"
    assert facts["revision"] == "abc"
    assert facts["steps"] == "layer 2"
    assert facts["torch"] == "2.13"
    assert found["notes"] == ["pooled"]
    assert found["command"] == "attnviz self x --html y.html"


def test_measures_are_told_head_by_head_and_what_is_not_known_as_nothing() -> None:
    (found,) = document(encoder_page())["maps"][0]["measures"]
    assert (found["name"], found["low"], found["high"]) == ("previous-token", "never", "always")
    assert found["values"][0][0] is None
    diagonal = np.diagonal(encoder().weights[1, 2], -1)
    assert found["values"][1][2] == pytest.approx(diagonal.mean(), abs=1e-4)


def test_tokens_of_one_word_are_told_as_runs() -> None:
    found = document(encoder_page())["maps"][0]
    assert found["queries"]["words"] == found["keys"]["words"] == [0, 1, 2, 2, 3, 4, 5]


def test_words_of_one_token_each_are_no_choice() -> None:
    single = (None, 0, 1, 2, 3, 4, None)
    found = document(page(encoder(), words={0: (single, ())}))["maps"][0]
    assert found["queries"]["words"] is None
    assert found["keys"]["words"] is None


def test_word_numbers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="3 word numbers for the 7 tokens"):
        page(encoder(), words={0: ((0, 0, 1), ())})


def test_a_lens_is_told_apart_from_its_stream() -> None:
    item = encoder().main
    lens = AttentionMap("encoder · rollout", item.query_tokens, item.key_tokens, item.weights)
    maps = document(page(Attention((item, lens), Provenance("x", "y"))))["maps"]
    assert [(found["stream"], found["lens"]) for found in maps] == [
        ("encoder", ""),
        ("encoder", "rollout"),
    ]


def test_maps_of_one_stream_are_told_apart_by_their_layers() -> None:
    item = encoder().main
    later = item.with_weights(item.weights[:1], layers=("2",))
    maps = document(page(Attention((item, later), Provenance("x", "y"))))["maps"]
    assert [found["stream"] for found in maps] == [
        "encoder, layers 0 to 1",
        "encoder, layers 2 to 2",
    ]


def test_large_maps_are_pooled_and_keep_their_strongest_links() -> None:
    attention = random_map(1, 2, 100)
    found = document(page(attention, most_weights=5000))["maps"][0]
    assert found["queries"]["block"] == found["keys"]["block"] == 2
    query, from_, key, to, weight = found["links"][0][1][0]
    weights = attention.main.weights[0, 1]
    assert weights[query, key] == weights.max()
    assert (from_, to, weight) == (
        f"word{query}",
        f"word{key}",
        round(float(weights.max()), 4),
    )


def test_projections_that_do_not_fit_are_refused() -> None:
    attention, kept = with_projections()
    with pytest.raises(InputError, match="do not fit the map"):
        page(attention, projections={0: replace(kept, key=kept.key[:, :, :3])})


def test_patches_that_do_not_fit_are_refused() -> None:
    attention, image = picture()
    with pytest.raises(InputError, match="3 × 3 patches from token 1 on"):
        page(attention, patches={0: Patches(image, 3, 3, 1)})
    with pytest.raises(InputError, match="neither PNG"):
        page(attention, patches={0: Patches(b"GIF89a", 2, 2, 1)})


def test_a_frame_holds_the_whole_page_as_an_attribute() -> None:
    text = page(encoder())
    ((attributes, _),) = Elements(iframe(text)).named("iframe")
    assert attributes["srcdoc"] == text
    assert attributes["sandbox"] == "allow-scripts allow-downloads"


def test_modules_keep_their_own_names_when_joined() -> None:
    script = join_modules(
        {
            "one": "const own = 1;\nexport const shared = own;\n",
            "two": 'import { shared } from "./one.js";\nconst own = 2;\nexport { };\n',
        }
    )
    assert "const { shared } = modules.one;" in script
    assert "return { shared };" in script


def test_every_script_is_in_the_list_behind_those_it_imports_from() -> None:
    from importlib.resources import files

    folder = files("attnviz.renderers.page").joinpath("scripts")
    names = {
        item.name.removesuffix(".js") for item in folder.iterdir() if item.name.endswith(".js")
    }
    used = {kind.replaced.get(name, name) for kind in PAGE_KINDS.values() for name in kind.scripts}
    assert names - {"types"} == used
    for kind in PAGE_KINDS.values():
        for place, name in enumerate(kind.scripts):
            source = folder.joinpath(f"{kind.replaced.get(name, name)}.js").read_text("utf-8")
            needed = re.findall(r'^import [^;]*from "\./(\w+)\.js"', source, re.MULTILINE)
            assert set(needed) <= set(kind.scripts[:place]), name


def test_weights_of_one_query_that_is_no_token_make_a_page() -> None:
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
