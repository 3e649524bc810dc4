"""One output in several files: maps.npz as maps-00000.npz, maps-00001.npz and so on."""

from __future__ import annotations

import re
from pathlib import Path


def shard_path(path: Path, number: int) -> Path:
    """The file of one shard, counted from 0."""
    return path.with_name(f"{path.stem}-{number:05}{path.suffix}")


def shards_of(path: Path) -> list[Path]:
    """The shards that there are, by number."""
    name = re.compile(rf"{re.escape(path.stem)}-(\d{{5,}}){re.escape(path.suffix)}")
    numbers = [
        int(found[1])
        for item in _siblings(path)
        if (found := name.fullmatch(item.name)) is not None
    ]
    return [shard_path(path, number) for number in sorted(numbers)]


def _siblings(path: Path) -> list[Path]:
    return list(path.parent.iterdir()) if path.parent.is_dir() else []
