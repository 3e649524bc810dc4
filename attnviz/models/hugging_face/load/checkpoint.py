"""What a model's folder holds, checked from the files alone, before anything heavy is imported."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from attnviz.core.errors import ModelError
from attnviz.models.hugging_face.load.locate import WEIGHT_NAMES

POINTER = b"version https://git-lfs"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A folder that can be loaded."""

    folder: Path
    config: Mapping[str, Any]  # as it is written
    pickled: bool  # else the weights are safetensors
    dtypes: tuple[str, ...]  # as safetensors spells them ("F32", "BF16")
    numbers: int  # how many weights are stored, 0 where that is not known


def check_folder(folder: Path, *, allow_pickle: bool = False) -> Checkpoint:
    """A folder's contents, once everything that loading needs is there and complete."""
    config = read_config(folder)
    name = next((name for name in WEIGHT_NAMES if (folder / name).is_file()), None)
    if name is None:
        raise ModelError(f"'{folder}' holds a configuration but no weights: {contents(folder)}")
    pickled = not name.startswith("model.safetensors")
    if pickled and not allow_pickle:
        raise ModelError(
            f"'{folder}' holds its weights as a pickle ('{name}'), which can hide code: give "
            "--allow-pickle if you trust it, or use a model with safetensors"
        )
    files = shards(folder / name) if name.endswith(".index.json") else [folder / name]
    for file in files:
        _check_file(file)
    headers = [] if pickled else [_read_header(file) for file in files]
    tensors = [tensor for header in headers for tensor in header.values()]
    return Checkpoint(
        folder,
        config,
        pickled,
        tuple(sorted({tensor["dtype"] for tensor in tensors if "F" in tensor["dtype"]})),
        sum(prod(tensor["shape"]) for tensor in tensors),
    )


def read_config(folder: Path) -> dict[str, Any]:
    """A model's configuration."""
    path = folder / "config.json"
    if not path.is_file():
        raise ModelError(
            f"'{folder}' is not a model's folder, it has no config.json: {hint(folder)}"
        )
    config = _read_json(path)
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise ModelError(f"'{path}' names no 'model_type', so its architecture is unknown")
    return config


def hint(folder: Path) -> str:
    """What to do about a folder that is not a model's."""
    if (folder / "adapter_config.json").is_file():
        return "it holds an adapter only; merge it into its model and load that"
    deeper = sorted(path.parent for path in folder.glob("*/config.json"))
    return f"did you mean '{deeper[0]}'?" if deeper else contents(folder)


def contents(folder: Path) -> str:
    """A folder's first files, in words."""
    names = sorted(path.name for path in folder.iterdir())
    listed = f"it has {', '.join(names[:6])}{', …' if len(names) > 6 else ''}"
    return listed if names else "it is empty"


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"'{path}' is not valid JSON: {error}") from error


def shards(index: Path) -> list[Path]:
    """The files that an index names."""
    weight_map = _read_json(index).get("weight_map") or {}
    names = sorted(set(weight_map.values()))
    missing = [name for name in names if not (index.parent / name).is_file()]
    if missing or not names:
        raise ModelError(
            f"'{index.parent}' lacks {len(missing)} of the {len(names)} files with weights that "
            f"its {index.name} names: {', '.join(missing[:3])}"
        )
    return [index.parent / name for name in names]


def _check_file(file: Path) -> None:
    with file.open("rb") as stream:
        start = stream.read(len(POINTER))
    if not start:
        raise ModelError(f"'{file}' is empty: download it again")
    if start == POINTER:
        raise ModelError(f"'{file}' is a Git LFS pointer, not the weights: run 'git lfs pull'")


def _read_header(file: Path) -> dict[str, dict[str, Any]]:
    """The dtype and shape of every tensor in a safetensors file, by name."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        text = stream.read(length) if length < size else b""
    try:
        header = {name: item for name, item in json.loads(text).items() if name != "__metadata__"}
        ends = (int(tensor["data_offsets"][1]) for tensor in header.values())
        end = 8 + length + max(ends, default=0)
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise ModelError(
            f"'{file}' is not a complete safetensors file: download it again"
        ) from error
    if size != end:
        raise ModelError(
            f"'{file}' is damaged: it has {size:,} bytes and not the {end:,} that its header says; "
            "download it again"
        )
    return header
