"""What a campaign starts from: texts, maps, matrices, pictures and tiny models, each made once."""

from __future__ import annotations

import atexit
import gzip
import io
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image

from attnviz.core.attention_map import Link
from attnviz.storage.documents import dump_json, to_document
from tests.invoke import attnviz
from tests.samples import attention_of, self_map

SAMPLES = Path(__file__).parents[1] / "sample_inputs"
MODELS = ("bert", "gpt2", "t5", "vit", "whisper")
TEXTS = "The cat sat on the mat .\nthe dog saw the dog\nA car\n"
PAIRS = "The red car\tLa voiture rouge\nthe cat\tle chat\n"


@cache
def home() -> Path:
    """A folder of this process, in memory where that can be, removed at its end."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="attnviz-fuzz-", dir=memory))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def model(kind: str) -> Path:
    """The folder of a tiny model with random weights."""
    if kind == "vit":
        from tests.features.vision.tiny_vision import VISION_BUILDERS as BUILDERS
    elif kind == "whisper":
        from tests.features.audio.tiny_speech import SPEECH_BUILDERS as BUILDERS
    else:
        from tests.hugging_face.tiny_models import BUILDERS

    return BUILDERS[kind](home() / kind)


@cache
def model_files(kind: str) -> dict[str, bytes]:
    """The files of a tiny model by name."""
    return {path.name: path.read_bytes() for path in model(kind).iterdir() if path.is_file()}


@cache
def texts() -> dict[str, bytes]:
    """Files with a text in each record."""
    rows = [{"text": line, "id": str(n)} for n, line in enumerate(TEXTS.splitlines())]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    return {
        "t.txt": TEXTS.encode(),
        "t.jsonl": lines.encode(),
        "t.csv": b"text,id\n" + b"".join(f'"{row["text"]}",{row["id"]}\n'.encode() for row in rows),
        "t.tsv": b"text\tid\nthe cat sat\t1\nA dog .\t2\n",
        "t.txt.gz": gzip.compress(TEXTS.encode(), mtime=0),
    }


@cache
def pairs() -> dict[str, bytes]:
    """Files with a pair in each record."""
    split = [line.split("\t") for line in PAIRS.splitlines()]
    lines = "".join(json.dumps({"source": a, "target": b}) + "\n" for a, b in split)
    return {
        "p.tsv": PAIRS.encode(),
        "p.txt": PAIRS.replace("\t", " ||| ").encode(),
        "p.jsonl": lines.encode(),
        "p.jsonl.gz": gzip.compress(lines.encode(), mtime=0),
    }


def _output_of(*arguments: object, stdin: bytes = b"") -> bytes:
    done = attnviz(*arguments, "-q", stdin=stdin)
    assert done.status == 0, done.err
    return done.out


@cache
def saved_maps() -> dict[str, bytes]:
    """Saved maps: of one text, of several, of a pair, in every format that can be read again."""
    few = ("--mechanism", "multi-head:heads=2,size=8")
    one = ("self", "the cat sat", *few)
    found = {f"m.{name}": _output_of(*one, "-f", name) for name in ("json", "npz", "parquet")}
    for name in ("jsonl", "npz", "parquet"):
        found[f"many.{name}"] = _output_of("self", "-", *few, "-f", name, stdin=TEXTS.encode())
    found["pair.json"] = _output_of(
        "cross", "the red car", "a car", "--mechanism", "co", "-f", "json"
    )
    item = self_map(["the cat", "sat on", "the mat"], layers=2, heads=2)
    links = (Link("cat", "sat", 0.5, "0", "1", 1, 2), Link("mat", "the", 0.25, "1", "0", 5, 4))
    blocks = attention_of(replace(item, blocks=(2, 2), links=links), text="the cat sat on the mat")
    return found | {"blocks.json": dump_json(to_document(blocks)).encode()}


@cache
def effects() -> dict[str, bytes]:
    """What ablations saved, of heads and of layers, of one pair and of several."""
    few = ("ablate", "the cat", "le chat")
    return {
        "e.npz": _output_of(*few, "--each", "layers", "-f", "npz"),
        "e.json": _output_of(*few, "--head", "0.0", "--token", "cat", "-f", "json"),
        "f.json": _output_of("ablate", "-", "--each", "layers", "-f", "json", stdin=PAIRS.encode()),
        "e.jsonl": _output_of("ablate", "-", "--head", "0.0", "-f", "jsonl", stdin=TEXTS.encode()),
    }


@cache
def matrices() -> dict[str, bytes]:
    """Queries, keys and weights as other programs save them."""
    from safetensors.numpy import save

    drawn = np.random.default_rng(0).random((3, 4)).astype(np.float32)
    square = drawn @ drawn.T
    weights = square / square.sum(-1, keepdims=True)
    given = {"inputs": drawn, "w_query": drawn.T @ drawn, "w_key": drawn.T @ drawn}
    given["w_value"] = given["w_key"]
    found: dict[str, bytes] = {}
    for name, arrays in {"given": given, "weights": {"weights": weights}}.items():
        file = io.BytesIO()
        np.savez(file, **arrays)
        found[f"{name}.npz"] = file.getvalue()
        listed = {key: value.tolist() for key, value in arrays.items()}
        found[f"{name}.json"] = json.dumps(listed).encode()
        found[f"{name}.safetensors"] = save(arrays)
    dump = {"encoder.layers.0.attn": np.stack([weights, weights])[None]}
    found["dump.safetensors"] = save({name: np.ascontiguousarray(a) for name, a in dump.items()})
    return found


@cache
def pictures() -> dict[str, bytes]:
    """Pictures of a few pixels."""
    pixels = np.arange(40 * 30 * 3, dtype=np.uint8).reshape(30, 40, 3)
    found = {}
    for suffix, kind in {"png": "PNG", "jpg": "JPEG", "webp": "WEBP", "gif": "GIF"}.items():
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, kind)
        found[f"x.{suffix}"] = file.getvalue()
    return found


@cache
def recordings() -> dict[str, bytes]:
    """Recordings of a tenth of a second."""
    import soundfile

    sound = np.sin(np.arange(1600) / 5)[:, None] * [0.5, 0.1]
    found = {}
    for suffix in ("wav", "flac"):
        file = io.BytesIO()
        soundfile.write(file, sound, 16_000, format=suffix)
        found[f"s.{suffix}"] = file.getvalue()
    return {**found, "s.tsv": b"the\t0\t0.04\ncat\t0.05\t0.1\n"}


@cache
def others() -> dict[str, bytes]:
    """Treebanks, links, frequencies, pieces."""
    trees = (SAMPLES / "relations.conllu").read_bytes().split(b"\n\n")
    return {
        "r.conllu": b"\n\n".join(trees[:2]) + b"\n\n",
        "gold.txt": b"0-0 1-2 2-1\n0-0 1-1\n",
        "words.txt": b"the\t40\ncat\t3\n",
        "pieces.txt": b"The cat\nsat\n",
        "soft.txt": b"un chat ||| 0-0 1-1\nla voiture ||| 0-0\n",
    }


@cache
def bombs() -> dict[str, bytes]:
    """Small files that hold, or claim to hold, what fills a memory."""
    zeros = gzip.compress(b"a" * (100 << 20), 1, mtime=0)
    header = b"\x93NUMPY\1\0v\0" + (
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 300000, 300000), }".ljust(117)
        + b"\n"
    )
    claims = io.BytesIO()
    with zipfile.ZipFile(claims, "w") as archive:
        archive.writestr("weights.npy", header + b"\0" * 64)
    filled = io.BytesIO()
    np.savez_compressed(filled, weights=np.zeros((1, 4, 2500, 2500), np.float32))
    deep = b"[" * 100_000
    return {
        "line.txt.gz": zeros,
        "line.jsonl.gz": zeros,
        "claims.npz": claims.getvalue(),
        "filled.npz": filled.getvalue(),
        "deep.json": deep,
        "deep.jsonl": b'{"maps": ' + deep,
        "rows.tsv": b"a\tb\n" * 500,
    }


KINDS = {
    "texts": texts,
    "pairs": pairs,
    "saved": saved_maps,
    "effects": effects,
    "matrices": matrices,
    "pictures": pictures,
    "recordings": recordings,
    "others": others,
}
"""Every kind of file that a command may be given, by what makes them."""


def files(kind: str) -> Mapping[str, bytes]:
    """The files of a kind by name."""
    return KINDS[kind]()


def make() -> None:
    """Make everything now, so that no run pays for it and none is drawn while it is made."""
    bombs()
    for kind in KINDS:
        files(kind)
    for kind in MODELS:
        model_files(kind)
