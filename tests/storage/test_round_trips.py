"""Saving and loading changes nothing, whichever file it goes through."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.core.attention_map import (
    DECISION,
    PARTS,
    SECOND_PART,
    Attention,
    Provenance,
    TextParts,
    Token,
)
from attnviz.renderers import NO_VIEWS, Display
from attnviz.renderers.reports import JsonLinesReport, JsonReport
from attnviz.storage.archive import dump_archive
from attnviz.storage.documents import dump_json, from_document, to_document
from attnviz.storage.saved_maps import holds_attention, read_attention
from tests.samples import attention_of, attentions, checked, few, same, self_map

several = st.lists(attentions(), min_size=1, max_size=3)


def as_archive(found: list[Attention]) -> bytes:
    return dump_archive(found)


def as_document(found: list[Attention]) -> bytes:
    return dump_json(to_document(found[0])).encode()


def as_json_list(found: list[Attention]) -> bytes:
    renderer = JsonReport(Display(many=True))
    return "".join([*(renderer.add(item, NO_VIEWS) for item in found), renderer.finish()]).encode()


def as_json_lines(found: list[Attention]) -> bytes:
    renderer = JsonLinesReport(Display(many=True))
    return b"".join(renderer.add(item, NO_VIEWS) for item in found)


@checked
@given(attentions())
@pytest.mark.slow
def test_a_document_gives_back_what_was_saved(attention):
    assert same(attention, next(read_attention(as_document([attention]), "x")))


@few
@given(several)
@pytest.mark.parametrize("dump", [as_archive, as_json_list, as_json_lines])
@pytest.mark.slow
def test_several_texts_come_back_in_order(dump, found):
    data = dump(found)  # type: ignore[operator]
    assert holds_attention(data)
    loaded = list(read_attention(data, "x"))
    assert [same(*pair) for pair in zip(found, loaded, strict=True)] == [True] * len(found)


def test_saved_bytes_change_with_the_last_bit_only():
    item = self_map(["a", "b"])
    changed = item.weights.copy()
    changed[0, 0, 0, 0] = np.nextafter(changed[0, 0, 0, 0], np.float32(1))
    assert not same(attention_of(item), attention_of(item.with_weights(changed)))
    assert same(attention_of(item), attention_of(item.with_weights(item.weights.copy())))
    item = attention_of(self_map(["a", "b"], 2, 3))
    assert dump_archive([item]) == dump_archive([item])


def test_an_archive_and_a_document_as_promised():
    item = self_map(["a", "b"], 2, 3)
    with np.load(io.BytesIO(dump_archive([attention_of(item, text="a b")]))) as archive:
        assert np.array_equal(archive["0/0/self"], item.weights)
        assert json.loads(str(archive["attnviz"]))[0]["text"] == "a b"

    item = self_map(["John", "ran"])
    tokens = (Token("John", 0, 4, label="B-PER"), Token("[SEP]", 4, 4, special=True))
    document = to_document(attention_of(item, text="John"))
    assert list(document) == ["schema", "kind", "id", "text", "maps", "provenance"]
    assert document["schema"] == 2
    named = {"stream", "layers", "heads", "query_tokens", "key_tokens", "weights"}
    assert named <= set(document["maps"][0])
    assert set(document["maps"][0]["query_tokens"][0]) == {"text", "start", "end", "special"}
    labelled = to_document(attention_of(self_map(["a", "b"]).with_weights(
        item.weights, query_tokens=tokens
    )))  # fmt: skip
    assert labelled["maps"][0]["query_tokens"] == [
        {"text": "John", "start": 0, "end": 4, "special": False, "label": "B-PER"},
        {"text": "[SEP]", "start": 4, "end": 4, "special": True},
    ]

    pair = Attention((self_map(["a"]),), attention_of().provenance, source="a", target="b")
    assert list(to_document(pair)) == [
        "schema",
        "kind",
        "id",
        "source",
        "target",
        "maps",
        "provenance",
    ]


def test_what_the_program_steers_by_is_read_back():
    facts = {PARTS: "prompt and output", SECOND_PART: 4, "prompt tokens": 2, "output tokens": 3}
    provenance = Provenance("file", "m", settings=facts | {DECISION: "cat (70%)"})
    saved = Attention((self_map(["a", "b"]),), replace(provenance, steps=("head 1", "lens all")))
    found = from_document(json.loads(dump_json(to_document(saved))))
    assert found.parts == TextParts("prompt and output", 4, (2, 3))
    assert (found.decision, found.lens_name) == ("cat (70%)", "all")
    plain = from_document(to_document(replace(saved, provenance=Provenance("file", "m"))))
    assert (plain.parts, plain.decision, plain.lens_name) == (None, "", "raw")
