"""The keywords that functions share: the options of the command line, by name.

`attnviz.core.options` declares and explains each; a test compares names and types.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

from attnviz.core.options import (
    Device,
    DeviceMap,
    Dtype,
    EngineName,
    InputFormat,
    Language,
    OnError,
    Over,
    Reduce,
    Special,
)

Which = int | str | Sequence[int] | None
"""Layers or heads: 3, "0-2", "2.3", [0, 2]."""


class ModelOptions(TypedDict, total=False):
    """A model by name or folder, or one of transformers in memory with what reads its inputs."""

    model: Any
    tokenizer: Any
    processor: Any
    adapter: str | None
    device: Device
    device_map: DeviceMap | None
    dtype: Dtype | None
    revision: str | None
    allow_pickle: bool
    allow_code: bool


class LayerOptions(TypedDict, total=False):
    """An untrained layer of one's own."""

    mechanism: str | None
    size: int
    heads: int
    seed: int


class FileOptions(TypedDict, total=False):
    """Weights, or queries and keys, that a file holds."""

    weights: str | Path | None
    qk: str | Path | None


class SelectionOptions(TypedDict, total=False):
    """Which maps of a model are taken."""

    stream: str | None
    layer: Which
    head: Which


class ViewOptions(SelectionOptions, total=False):
    """What is made of the maps of a text."""

    reduce: Reduce
    over: Over
    special: Special
    group: str | None
    words: bool


class LensOptions(TypedDict, total=False):
    """A lens, and what it explains."""

    lens: str
    explain: str | None
    check: int


class ReadingOptions(TypedDict, total=False):
    """How files of texts are read."""

    columns: str | None
    input_format: InputFormat | None
    max_line: int
    on_error: OnError


class SharingOptions(TypedDict, total=False):
    """Who does the work on many texts."""

    batch_size: int | None
    workers: int | None
    engine: EngineName
    ray_address: str | None


class AttendOptions(ModelOptions, LayerOptions, FileOptions, LensOptions, ViewOptions, total=False):
    """What `attend` and `attend_many` take."""

    command: Literal["self", "cross", "co"] | None
    causal: bool
    generate: int | None
    chat: bool
    keep_qk: bool
    channels: str
    max_size: int | None
    rows: str | None
    window: str | None
    top: int
    to: Language | None
    labels: str | Sequence[str] | None


class CorpusOptions(
    ModelOptions, LayerOptions, SelectionOptions, ReadingOptions, SharingOptions, total=False
):
    """What `corpus` takes."""

    causal: bool
    to: Language | None
    max_size: int | None
    special: Special


class HeadsOptions(CorpusOptions, FileOptions, total=False):
    """What `heads` takes."""


class ExperimentOptions(ModelOptions, ReadingOptions, total=False):
    """What `ablate` and `lenses` take."""

    causal: bool
    to: Language | None
    chat: bool
    explain: str | None


class AlignOptions(ModelOptions, ReadingOptions, SharingOptions, total=False):
    """What `align` takes."""

    to: Language | None
    max_size: int | None
    layer: Which
    head: Which


class CompareOptions(ModelOptions, LayerOptions, LensOptions, ViewOptions, total=False):
    """What `compare` takes."""

    causal: bool
    generate: int | None
    chat: bool
    max_size: int | None


class ImageOptions(ModelOptions, total=False):
    """What `image` takes."""

    generate: int | None
    explain: str | None
    check: int
    layer: Which
    head: Which
    reduce: Reduce
    over: Over
    special: Special


class AudioOptions(ModelOptions, ViewOptions, total=False):
    """What `audio` takes."""

    max_size: int | None
    top: int


class StepsOptions(ModelOptions, SelectionOptions, total=False):
    """What `steps` takes."""

    mechanism: str | None
