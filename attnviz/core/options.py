"""What a user can ask for, as plain values: the same for the shell and for Python."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Origin:
    """Where attention comes from.

    Attributes:
        model: a Hugging Face id, a folder, or "pocket".
        mechanism: an untrained own layer, by name.
        weights: a file with your own matrices or a saved map.
        causal: no position sees a later one.
        size: features of an own layer.
        heads: heads of an own layer.
        seed: of an own layer's random numbers.
        device: "auto", "cpu", "cuda" or "mps".
        device_map: how accelerate spreads a model over devices ("auto"); None: it is on one.
        dtype: precision to compute in; None: float32, or what the device prefers.
        revision: of a model on the hub.
        allow_pickle: load pickled weights, which can run code.
        allow_code: run code that a checkpoint brings along.
        generate: how many tokens the model writes at most; None: it writes a missing target only.
        chat: read the text as the user's turn of a conversation.
        keep_qk: keep queries and keys beside the weights.
        max_size: tokens or blocks of them that a side of a map has at most; None: 1,024, or fewer
            where many heads would fill the memory.
        rows: the only tokens that attend, by number from 0 ("120-140").
        window: the only tokens that attend and are attended to, likewise.
        top: how many of each head's strongest links are looked for beside a map in blocks, and how
            many of them all are listed.
        to: the language to translate into ("en", "fr"); None: the other one.
    """

    model: str | None = None
    mechanism: str | None = None
    weights: Path | None = None
    causal: bool = False
    size: int = 64
    heads: int = 4
    seed: int = 0
    device: str = "auto"
    device_map: str | None = None
    dtype: str | None = None
    revision: str | None = None
    allow_pickle: bool = False
    allow_code: bool = False
    generate: int | None = None
    chat: bool = False
    keep_qk: bool = False
    max_size: int | None = None
    rows: str | None = None
    window: str | None = None
    top: int = 20
    to: str | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """Which part of the attention is wanted.

    Attributes:
        lens: what is made of the raw weights first; "raw" leaves them, "all" sets every lens side
            by side.
        explain: what the lens "gradient" explains: a class by name or number, a token by text or
            position; None: what the model predicts.
        stream: one stream by name; None: all.
        layer: "0", "2,5", "0-3", "last" or "all".
        head: likewise.
        reduce: "none", "mean" or "max".
        over: what is reduced: "heads", "layers" or "both".
        labels: a label for each token, "O" for none.
        special: what becomes of special tokens: "keep", "drop" or "renormalise".
        group: tokens taken together: "words", "sentences" or a file that names groups.
        words: the same as the group "words".
    """

    lens: str = "raw"
    explain: str | None = None
    stream: str | None = None
    layer: str | None = None
    head: str | None = None
    reduce: str = "none"
    over: str = "both"
    labels: str | None = None
    special: str = "keep"
    group: str | None = None
    words: bool = False


@dataclass(frozen=True, slots=True)
class Many:
    """How many texts are read and worked through.

    Attributes:
        columns: which column of a .csv or .tsv file holds what ("text=sentence,id=key").
        input_format: "txt", "jsonl", "csv" or "tsv"; None: as the file's suffix says.
        on_error: "skip" goes on after a text that fails, "stop" ends there.
        rejects: a file for the lines that failed, each with its reason.
        batch_size: texts that a model reads at once at most; None: as many as fit.
        workers: processes that share the work; None: this one does it.
        engine: who shares out the work: "local" or "ray".
        ray_address: a Ray cluster to join; None: one is started here.
        shard_size: records that one output file holds at most; None: one file holds all.
        resume: go on where an interrupted run stopped.
    """

    columns: str | None = None
    input_format: str | None = None
    on_error: str = "skip"
    rejects: Path | None = None
    batch_size: int | None = None
    workers: int | None = None
    engine: str = "local"
    ray_address: str | None = None
    shard_size: int | None = None
    resume: bool = False
