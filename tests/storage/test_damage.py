"""What is damaged, foreign or empty is told in one sentence, never in a traceback."""

import contextlib
import io
import json
import os
import random
import re
import tracemalloc
import zipfile
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.core.errors import InputError, first_line
from attnviz.features.parquet.file import ABOUT, ParquetWriter
from attnviz.storage import documents, matrices
from attnviz.storage.archive import dump_archive
from attnviz.storage.documents import dump_json, parse_json, to_document
from attnviz.storage.saved_maps import holds_attention, read_any, read_attention
from tests.invoke import attnviz
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


READ = [
    ("self", "--weights"),
    ("self", "--qk"),
    ("self", "a b", "--group"),
    ("self", "a b", "--contacts"),
    ("self", "a b", "--html", "a.html", "--atlas"),
    ("sources", "a b", "--context"),
    ("heads", "--treebank"),
    ("heads", "--input", "a.txt", "--frequencies"),
    ("lesson", "cache", "--config"),
    ("steps", "--mask"),
    ("steps",),
    ("render",),
    ("compare", "b.npz"),
    ("heads", "--input"),
]
"""What takes a file that is read whole, the file's name behind."""


@pytest.mark.parametrize("given", READ, ids=" ".join)
def test_a_pipe_and_a_device_are_no_files(given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("a b\n")
    (tmp_path / "b.npz").write_bytes(ARCHIVE)
    name = "a.png" if given == ("heads", "--input") else "a.npz"
    os.mkfifo(name)
    (tmp_path / f"zero-{name}").symlink_to("/dev/zero")
    for path in (name, f"zero-{name}"):
        done = attnviz(*given, path)
        assert (done.status, done.mistake) == (1, f"'{path}' is a pipe or a device, not a file")


@pytest.mark.parametrize("given", [("self", "--weights"), ("self", "--qk"), ("render",)])
def test_a_header_larger_than_any_is_not_read(given, tmp_path):
    path = tmp_path / "a.safetensors"
    with path.open("wb") as file:
        file.write((3 << 30).to_bytes(8, "little") + b"{")
        file.truncate((3 << 30) + 16)  # which take no place on the disk
    tracemalloc.start()
    try:
        mistake = attnviz(*given, path).mistake
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert mistake == f"the header of '{path}' would have 3,221,225,472 bytes: it is damaged"
    assert most < 1 << 28


def test_damage_is_told_in_no_words_of_python(tmp_path):
    whole = zipfile.ZipFile(io.BytesIO(ARCHIVE))
    index = whole.read("attnviz.npy")
    wrong = {"text": index[:-4] + b"\xff" * 4, "size": index.replace(b"'<U", b"'<V")}
    for data in wrong.values():
        path = tmp_path / "a.npz"
        with zipfile.ZipFile(path, "w") as archive:
            for name in whole.namelist():
                archive.writestr(name, data if name == "attnviz.npy" else whole.read(name))
        mistake = attnviz("render", path).mistake
        assert mistake.startswith(f"'{path}' is damaged: ")
        assert not re.search("codec|modulo|Error|\\bargument", mistake), mistake
    reader, writer = os.pipe()
    os.write(writer, ARCHIVE)
    os.close(writer)
    assert attnviz("render", f"/dev/fd/{reader}").status == 0
    os.close(reader)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (KeyError("\0"), "'\\x00' is missing or unknown"),
        (ZeroDivisionError("integer modulo by zero"), "a number in it is zero"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x"), "it holds bytes that are no text"),
    ],
)
def test_errors_of_python_are_said_in_plain_words(error, words):
    assert first_line(error) == words


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
        (changed(schema=3), "a document of schema 3: this attnviz reads schemas 1 and 2"),
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
def test_what_cannot_be_read_says_why(data, message):
    with pytest.raises(InputError) as caught:
        list(read_attention(data, "'f'"))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@checked
@given(st.floats(0, 1, exclude_max=True), st.sampled_from([ARCHIVE, DOCUMENT]))
def test_a_file_that_is_cut_off_is_an_input_error(share, whole):
    with pytest.raises(InputError):
        list(read_attention(whole[: max(1, int(share * len(whole)))], "'f'"))


@checked
@given(st.integers(0, len(ARCHIVE) - 1), st.integers(1, 255))
def test_a_flipped_byte_is_harmless_or_an_input_error(place, mask):
    damaged = bytearray(ARCHIVE)
    damaged[place] ^= mask
    try:
        found = list(read_attention(bytes(damaged), "'f'"))
    except InputError:
        return
    assert len(found) == 1


def test_json_is_told_and_told_apart():
    file = io.BytesIO()
    np.savez(file, attnviz=np.array([object()], dtype=object))
    with pytest.raises(InputError, match="damaged"):
        list(read_attention(file.getvalue(), "'f'"))

    assert holds_attention(ARCHIVE)
    assert holds_attention(DOCUMENT)
    assert not holds_attention(archive_of(weights=np.eye(2)))
    assert not holds_attention(b'{"weights": [[1]], "tokens": ["maps"]}')
    assert not holds_attention(b"{" + b"\0" * 20)
    empty = io.BytesIO()
    zipfile.ZipFile(empty, "w").close()
    assert not holds_attention(empty.getvalue())
    assert not holds_attention(b"PK\x03\x04 and no more")
    with pytest.raises(InputError, match=r"line 3 of 'a' is not JSON: .*column 7"):
        parse_json('{"a": ', "line 3 of 'a'")
    text = "\u202e\u200b\x7f\x9b\u2028\ufeff\u061c"
    dumped = dump_json({"a": text})
    assert dumped.isascii()
    assert json.loads(dumped)["a"] == text


def rewritten(data: bytes, member: str, change: Callable[[bytes], bytes]) -> bytes:
    """The archive with one member changed, so that only the member is wrong."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as before, zipfile.ZipFile(file, "w") as after:
        for name in before.namelist():
            content = before.read(name)
            after.writestr(name, change(content) if name == member else content)
    return file.getvalue()


@pytest.mark.slow
@checked
@given(st.lists(st.tuples(st.integers(6, 117), st.sampled_from(b"0(){}'|<O-T\n")), min_size=1))
def test_a_broken_header_is_harmless_or_an_input_error(spoilt):
    def change(content: bytes) -> bytes:
        broken = bytearray(content)
        for place, letter in spoilt:
            broken[place] = letter
        return bytes(broken)

    for member in ("0/0/self.npy", "attnviz.npy"):
        with contextlib.suppress(InputError):
            list(read_any(rewritten(ARCHIVE, member, change), "'f'"))


@pytest.mark.parametrize(
    ("claimed", "message"),
    [
        ("(2, 2, 9, 9)", "says 1296 bytes and has"),
        ("(2, 2, 2, 2**62)", "damaged"),
        ("(9**40, 2, 2, 2)", "damaged"),
        ("(16,)", "has the shape (16,), not (2, 2, 2, 2)"),
        ("(4, 1, 2, 2)", "has the shape (4, 1, 2, 2), not (2, 2, 2, 2)"),
    ],
)
def test_a_shape_that_does_not_fit_is_refused_at_once(claimed, message, monkeypatch):
    def claim(content: bytes) -> bytes:
        return (
            content[:10]
            + content[10:128].replace(b"(2, 2, 2, 2)", claimed.encode().ljust(12))[:118].ljust(118)
            + content[128:]
        )

    monkeypatch.setattr("attnviz.storage.archive.read_member", lambda *rest: pytest.fail("read"))
    with pytest.raises(InputError) as caught:
        list(read_attention(rewritten(ARCHIVE, "0/0/self.npy", claim), "'f'"))
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["weights", "attention"])
def test_numbers_that_fit_no_token_are_not_read(name, tmp_path, monkeypatch):
    monkeypatch.setattr("attnviz.storage.matrices.SMALL", 0)
    path = tmp_path / "a.npz"
    np.savez_compressed(path, **{name: np.zeros((300, 300)), "tokens": np.array(["a", "b"])})
    real, read = matrices.read_member, list[str]()

    def noted(archive: zipfile.ZipFile, member: str) -> Any:
        read.append(member)
        return real(archive, member)

    monkeypatch.setattr(matrices, "read_member", noted)
    mistake = attnviz("self", "--weights", path).mistake
    assert "300" in mistake
    assert set(read) <= {"tokens.npy"}


def test_what_would_fill_the_memory_is_not_read(monkeypatch):
    monkeypatch.setattr(documents, "SMALL", 0)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=8))
    with pytest.raises(InputError, match=r"more than half of the .* memory that are free"):
        list(read_attention(ARCHIVE, "'f'"))


@pytest.mark.parametrize("command", ["render", "self"])
def test_complex_numbers_never_lose_a_part(command, tmp_path):
    path, given = tmp_path / "a.npz", (("--weights",) if command == "self" else ())
    index = np.array(json.dumps([json.loads(DOCUMENT)]))
    members = {"0/0/self": SAVED.weights.astype(complex)}
    for content in ({"attention": np.eye(2) * 1j}, {"attnviz": index, **members}):
        np.savez(path, **content)
        assert "complex numbers: store real ones" in attnviz(command, *given, path).mistake


def rows_of(**columns: Any) -> bytes:
    plain = {"id": "0", "text": "a b", "provenance": "{}", "maps": []} | columns
    file = io.BytesIO()
    row = {name: value for name, value in plain.items() if value is not Ellipsis}
    pq.write_table(pa.Table.from_pylist([row]).replace_schema_metadata(ABOUT), file)
    return file.getvalue()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"provenance": ...}, "column 'provenance' holds no JSON"),
        ({"provenance": None}, "column 'provenance' holds no JSON"),
        ({"provenance": 7}, "column 'provenance' holds no JSON"),
        ({"maps": ...}, "no 'maps'"),
        ({"maps": None}, "maps: expected 'array'"),
        ({"maps": 3}, "maps: expected 'array', got 'int'"),
        ({"maps": [None]}, "maps[0]: expected 'object', got 'null'"),
        ({"maps": [{"stream": "s", "query_tokens": ["a"], "key_tokens": ["a"]}]}, "no matrix"),
        ({"maps": [{"stream": "s", "weights": ["x"]}]}, "missing required field 'query_tokens'"),
    ],
)
def test_foreign_parquet_is_told_by_its_column(columns, message):
    with pytest.raises(InputError) as caught:
        list(read_attention(rows_of(**columns), "'f'"))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("shape", "weights"), [([1, 1, 1, 2], [1.0]), ([1, 1, -1, 1], [1.0]), ([1], [1.0]), (None, [1])]
)
def test_weights_that_do_not_fill_their_shape(shape, weights):
    item = {"stream": "s", "query_tokens": ["a"], "key_tokens": ["a"], "starts": [0, 0]}
    with pytest.raises(InputError, match="text 0 of 'f': "):
        list(read_attention(rows_of(maps=[{**item, "shape": shape, "weights": weights}]), "'f'"))


def test_damaged_parquet_never_ends_the_process():
    writer = ParquetWriter()
    data = writer.add(SAVED, 0) + writer.finish()
    for seed in range(200):
        drawn, damaged = random.Random(seed), bytearray(data)
        for _ in range(3):
            damaged[drawn.randrange(len(data))] = drawn.randrange(256)
        with contextlib.suppress(InputError):
            list(read_any(bytes(damaged), "'f'"))
