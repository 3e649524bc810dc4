import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from attnviz.core.errors import InputError
from attnviz.storage.matrices import read_matrices


def write(path: Path, **members: object) -> Path:
    """The same matrices and words in a file of the kind that its suffix names."""
    if path.suffix == ".json":
        lists = {n: v.tolist() if isinstance(v, np.ndarray) else v for n, v in members.items()}
        path.write_text(json.dumps(lists))
    elif path.suffix == ".npz":
        arrays: dict[str, Any] = {name: np.asarray(value) for name, value in members.items()}
        np.savez(path, **arrays)
    else:
        words = {n: json.dumps(v) for n, v in members.items() if isinstance(v, list)}
        save_file({n: v for n, v in members.items() if isinstance(v, np.ndarray)}, path, words)
    return path


@pytest.mark.parametrize("suffix", [".json", ".npz", ".safetensors"])
def test_matrices_and_words_of_every_kind_of_file(tmp_path, suffix):
    path = write(tmp_path / f"m{suffix}", weights=np.eye(2), tokens=["a", "b"])
    found = read_matrices(path)
    assert found["tokens"] == ["a", "b"]
    assert np.array_equal(found["weights"], np.eye(2))
    assert found["weights"].dtype == np.float64


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"", "is none of .json, .npz, .safetensors"),
        ("a.json", b"{", "is not JSON"),
        ("a.json", b"[1]", "its JSON is not an object"),
        ("a.json", b'{"weights": [[1], [1, 2]]}', "rows of different lengths"),
        ("a.json", b'{"weights": [["1", "2"]]}', "no matrix of numbers"),
        ("a.json", b'{"weights": [[1, null]]}', "no matrix of numbers"),
        ("a.json", b'{"weights": {"a": 1}}', "no matrix of numbers"),
        ("a.json", b'{"tokens": ["a", 1]}', "'tokens' in"),
        ("a.json", b'{"tokens": ["a", ""]}', "not a list of words"),
        ("a.npz", b"no archive", "cannot be read as .npz"),
        ("a.npz", b"", "cannot be read as .npz"),
        ("a.npz", b"PK\x03\x04", "cannot be read as .npz"),
        ("a.safetensors", b"", "cannot be read as .safetensors"),
        ("a.safetensors", b"\xff" * 40, "cannot be read as .safetensors"),
    ],
)
def test_a_file_of_something_else_says_what_is_wrong(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_matrices(path)
    assert message in str(caught.value)


def test_other_files_and_numbers(tmp_path):
    with pytest.raises(InputError, match="there is no file"):
        read_matrices(tmp_path / "a.json")
    (tmp_path / "b.json").mkdir()
    with pytest.raises(InputError, match="is a folder, not a file"):
        read_matrices(tmp_path / "b.json")
    path = write(tmp_path / "a.safetensors", weights=np.eye(2, dtype=np.float16))
    assert np.array_equal(read_matrices(path)["weights"], np.eye(2))
    np.savez(tmp_path / "a.npz", weights=np.array([object()], dtype=object))
    with pytest.raises(InputError, match=r"cannot be read as \.npz"):
        read_matrices(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", weights=np.array([[1 + 2j]]))
    with pytest.raises(InputError, match="holds complex numbers"):
        read_matrices(tmp_path / "a.npz")
