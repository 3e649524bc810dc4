"""What is damaged, foreign or empty is told in one sentence, never in a traceback."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.core.errors import InputError
from attnviz.storage.archive import dump_archive
from attnviz.storage.documents import dump_json, parse_json, to_document
from attnviz.storage.saved import holds_attention, read_attention
from tests.samples import attention_of, checked, self_map

SAVED = attention_of(self_map(["a", "b"], 2, 2), text="a b")
ARCHIVE = dump_archive([SAVED])
DOCUMENT = dump_json(to_document(SAVED)).encode()


def archive_of(**members: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **members)
    return file.getvalue()


def changed(**fields: Any) -> bytes:
    return json.dumps(json.loads(DOCUMENT) | fields).encode()


def changed_map(**fields: Any) -> bytes:
    document = json.loads(DOCUMENT)
    document["maps"][0] |= fields
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "'f' is empty"),
        (b"  \n", "'f' is empty"),
        (b"\x93NUMPY", "neither .npz nor JSON"),
        (b"PKxx", "neither .npz nor JSON"),
        (b"hello", "neither .npz nor JSON"),
        (b"{", "'f' is not JSON"),
        (b'{"schema": 1', "'f' is not JSON"),
        (DOCUMENT + b'\n{"sch', "line 2 of 'f' is not JSON"),
        (b"[1]", "no 'maps'"),
        (b'{"a": 1}', "no 'maps'"),
        (changed(schema=2), "a document of schema 2: this attnviz reads schema 1"),
        (changed(maps=[]), "'f': maps: expected 'array' of length >= 1"),
        (changed(maps=3), "'f': maps: expected 'array', got 'int'"),
        (changed(maps=[{}]), "maps[0]: object missing required field 'stream'"),
        (changed(maps=["a"]), "maps[0]: expected 'object', got 'str'"),
        (changed(provenance=3), "provenance: expected 'object', got 'int'"),
        (changed(provenance={"steps": [1]}), "provenance.steps[0]: expected 'str', got 'int'"),
        (changed_map(weights="x"), "maps[0].weights is no matrix of numbers"),
        (changed_map(weights=[[1, 2], [3]]), "maps[0].weights has rows of different lengths"),
        (changed_map(weights=[[1, 0], [0, 1]]), "2 axes, not 4"),
        (changed_map(weights=[[[[2, 0], [0, 1]]]], layers=["0"], heads=["0"]), "outside 0 to 1"),
        (changed_map(weights=[[[[1, 0]]]]), "have the shape (1, 1, 1, 2), but there are 2 layers"),
        (changed_map(query_tokens=[{"text": "a"}]), "but there are 2 layers"),
        (changed_map(query_tokens=[{"txt": "a"}, "b"]), "maps[0].query_tokens[0]: object missing"),
        (changed_map(query_tokens=None), "query_tokens: expected 'array', got 'null'"),
        (changed_map(values="odd"), "values: invalid enum value 'odd'"),
        (archive_of(weights=np.eye(2)), "no member 'attnviz': attnviz did not write it"),
        (archive_of(attnviz=np.array("{")), "member 'attnviz' is not JSON"),
        (archive_of(attnviz=np.array("3")), "damaged"),
        (archive_of(attnviz=np.array('[{"schema": 1, "maps": [{}]}]')), "text 0 of 'f': maps[0]: "),
        (archive_of(attnviz=np.array([None])), "damaged"),
    ],
)
def test_what_cannot_be_read_says_why(data: bytes, message: str) -> None:
    with pytest.raises(InputError) as caught:
        list(read_attention(data, "'f'"))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@checked
@given(st.integers(0, len(ARCHIVE) - 1))
def test_a_cut_archive_is_an_input_error(length: int) -> None:
    with pytest.raises(InputError):
        list(read_attention(ARCHIVE[:length], "'f'"))


@checked
@given(st.integers(0, len(ARCHIVE) - 1), st.integers(1, 255))
def test_a_flipped_byte_is_harmless_or_an_input_error(place: int, mask: int) -> None:
    damaged = bytearray(ARCHIVE)
    damaged[place] ^= mask
    try:
        found = list(read_attention(bytes(damaged), "'f'"))
    except InputError:
        return
    assert len(found) == 1


@checked
@given(st.integers(1, len(DOCUMENT) - 1))
def test_a_cut_document_is_an_input_error(length: int) -> None:
    with pytest.raises(InputError):
        list(read_attention(DOCUMENT[:length], "'f'"))


def test_pickled_arrays_are_never_loaded() -> None:
    file = io.BytesIO()
    np.savez(file, attnviz=np.array([object()], dtype=object))
    with pytest.raises(InputError, match="damaged"):
        list(read_attention(file.getvalue(), "'f'"))


def test_only_what_attnviz_wrote_is_taken_for_saved_attention() -> None:
    assert holds_attention(ARCHIVE)
    assert holds_attention(DOCUMENT)
    assert not holds_attention(archive_of(weights=np.eye(2)))
    assert not holds_attention(b'{"weights": [[1]], "tokens": ["maps"]}')
    assert not holds_attention(b"{" + b"\0" * 20)
    empty = io.BytesIO()
    zipfile.ZipFile(empty, "w").close()
    assert not holds_attention(empty.getvalue())
    assert not holds_attention(b"PK\x03\x04 and no more")


def test_json_says_where_it_breaks() -> None:
    with pytest.raises(InputError, match=r"line 3 of 'a' is not JSON: .*column 7"):
        parse_json('{"a": ', "line 3 of 'a'")


def test_json_shows_nothing_raw_that_turns_or_hides_text() -> None:
    text = "\u202e\u200b\x7f\x9b\u2028\ufeff\u061c"
    dumped = dump_json({"a": text})
    assert dumped.isascii()
    assert json.loads(dumped)["a"] == text
