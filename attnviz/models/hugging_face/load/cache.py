"""What the local hub cache holds, read from its folders alone.

The layout is Hugging Face's own: `models--ORGANISATION--NAME/refs/REVISION` names a commit and
`snapshots/COMMIT` holds its files. Reading it here costs a few directory listings; asking the hub's
library costs its import.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WEIGHT_NAMES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
"""Where weights are looked for, best first; an index names the files of a model in several."""


@dataclass(frozen=True, slots=True)
class CachedModel:
    """A model that can be loaded without a network.

    Attributes:
        name: its id on the hub.
        model_type: the architecture its configuration names, "" where it names none.
        revision: the commit the cache holds.
        folder: where its files lie.
        bytes: how large they are together.
    """

    name: str
    model_type: str
    revision: str
    folder: Path
    bytes: int

    def __str__(self) -> str:
        return self.name


def cache_folder() -> Path:
    """The hub cache, by the same variables that Hugging Face's own libraries obey."""
    caches = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    home = os.environ.get("HF_HOME", f"{caches}/huggingface")
    cache = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    return Path(os.path.expandvars(cache or f"{home}/hub")).expanduser()


def is_offline() -> bool:
    """True where the environment forbids to ask the hub."""
    asked = os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or ""
    return asked.upper() in {"1", "ON", "YES", "TRUE"}


def cached_snapshot(name: str, revision: str | None = None) -> Path | None:
    """The cached folder of a model at a revision (the default branch), None where there is none.

    Args:
        name: an id on the hub, "organisation/name" or "name".
        revision: a branch, a tag or a full commit.
    """
    repository = cache_folder() / f"models--{name.replace('/', '--')}"
    reference = repository / "refs" / (revision or "main")
    commit = reference.read_text().strip() if reference.is_file() else revision
    folder = repository / "snapshots" / commit if commit else None
    return folder if folder and folder.is_dir() else None


def is_complete(folder: Path) -> bool:
    """True where a folder holds a configuration and all files of its weights."""
    weights = next((folder / name for name in WEIGHT_NAMES if (folder / name).is_file()), None)
    if weights is None or not (folder / "config.json").is_file():
        return False
    if not weights.name.endswith(".index.json"):
        return True
    weight_map = read_object(weights).get("weight_map", {})
    return all((folder / name).is_file() for name in set(weight_map.values()))


def read_object(path: Path) -> dict[str, Any]:
    """A JSON file's entries, none where it is broken: whoever loads the model says so."""
    import json

    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return {}
    return entries if isinstance(entries, dict) else {}


def list_cached_models() -> list[CachedModel]:
    """Every model in the local cache that has a configuration and weights, by name."""
    repositories = sorted(cache_folder().glob("models--*"))
    named = [(path.name.removeprefix("models--").replace("--", "/")) for path in repositories]
    found = ((name, cached_snapshot(name)) for name in named)
    return [describe(name, folder) for name, folder in found if folder and is_complete(folder)]


def describe(name: str, folder: Path) -> CachedModel:
    """One cached model, from its folder."""
    model_type = str(read_object(folder / "config.json").get("model_type", ""))
    # A file may be a link to a blob that was removed: it is there by name only.
    files = [path for path in folder.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    return CachedModel(name, model_type, folder.name, folder, size)
