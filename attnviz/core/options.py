"""What a user can ask for, as plain values: the same for the shell and for Python.

Each field is declared once: its `Option` says how the command line spells and explains it, and its
type says what it may be. A command offers whole groups of them (`attnviz.cli.options`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from attnviz.core.registry import LENSES, MECHANISMS

Device = Literal["auto", "cpu", "cuda", "mps"]
DeviceMap = Literal["auto", "balanced", "sequential"]
Dtype = Literal["float32", "float64", "float16", "bfloat16"]
Language = Literal["en", "fr"]
Reduce = Literal["none", "mean", "max"]
Over = Literal["both", "heads", "layers"]
Special = Literal["keep", "drop", "renormalise"]
InputFormat = Literal["txt", "jsonl", "csv", "tsv"]
OnError = Literal["skip", "stop"]
EngineName = Literal["local", "ray"]

LENS_NAMES = ("raw", *LENSES, "all")
"""What --lens can be: the weights themselves, a lens, or all of them side by side."""


@dataclass(frozen=True, slots=True)
class Option:
    """How the command line spells and explains a field.

    Attributes:
        group: the options that it is offered with; of a command's own option the panel of the help.
        names: "--format -f".
        help: a noun phrase; "{choices}" stands for what the field may be.
        metavar: what stands for its value; None: it is a flag.
        min: the least number.
        choices: the names of a table that it may be; a Literal type says so by itself.
        suggested: names that a shell completes, among other values.
    """

    group: str
    names: str
    help: str
    metavar: str | None = None
    min: int | None = None
    choices: tuple[str, ...] = ()
    suggested: tuple[str, ...] = ()


def opt(default: object, *words: str | int, **settings: tuple[str, ...]) -> Any:
    """A default value that carries its `Option`: of a field here, or of a command's parameter."""
    return field(default=default, metadata={"option": Option(*words, **settings)})  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where attention comes from."""

    model: str | None = opt(
        None, "model", "--model -m", "Hugging Face model, or 'pocket'.", "ID_OR_FOLDER"
    )
    mechanism: str | None = opt(
        None,
        "mechanism",
        "--mechanism",
        "Untrained own layer; 'attnviz mechanisms' lists them.",
        "NAME",
        suggested=tuple(MECHANISMS),
    )
    weights: Path | None = opt(
        None,
        "weights",
        "--weights",
        "Your own matrices or a saved map: .npz, .safetensors or .json.",
        "FILE",
    )
    causal: bool = opt(False, "causal", "--causal", "Hide every later token.")
    size: int = opt(64, "layer", "--size", "Features of an own layer.", "N", 1)
    heads: int = opt(4, "layer", "--heads", "Heads of an own layer.", "N", 1)
    seed: int = opt(0, "layer", "--seed", "Seed of an own layer.", "N", 0)
    device: Device = opt("auto", "compute", "--device", "{choices}.", "NAME")
    device_map: DeviceMap | None = opt(
        None,
        "model",
        "--device-map",
        "Spread a model larger than one device: {choices} (accelerate).",
        "HOW",
    )
    dtype: Dtype | None = opt(
        None, "compute", "--dtype", "{choices}. On a processor the first is the default.", "NAME"
    )
    revision: str | None = opt(
        None, "model", "--revision", "Branch, tag or commit of a model on the hub.", "NAME"
    )
    allow_pickle: bool = opt(
        False, "model", "--allow-pickle", "Load pickled weights of a model that you trust."
    )
    allow_code: bool = opt(
        False, "model", "--allow-code", "Run the code that a model you trust brings along."
    )
    generate: int | None = opt(
        None,
        "generate",
        "--generate",
        "Tokens that the model writes at most; its output is shown with the text.",
        "N",
        1,
    )
    chat: bool = opt(
        False, "chat", "--chat", "Read the text as a user's turn, by the model's chat template."
    )
    keep_qk: bool = opt(
        False,
        "projections",
        "--keep-qk",
        "Keep queries and keys, for the query · key view of --html and --open.",
    )
    max_size: int | None = opt(
        None,
        "long",
        "--max-size",
        "Rows and columns of a map at most; a longer text is shown in blocks. Default 1024, "
        "fewer where many heads would fill the memory.",
        "N",
        1,
    )
    rows: str | None = opt(
        None, "range", "--rows", "Only tokens A to B attend, counted from 0: exact.", "A-B"
    )
    window: str | None = opt(
        None, "range", "--window", "Only tokens A to B attend, and to each other.", "A-B"
    )
    top: int = opt(
        20,
        "top",
        "--top",
        "Strongest links that -f links lists, without special tokens and the diagonal; of a "
        "text in blocks found for each head, which 0 spares.",
        "N",
        0,
    )
    to: Language | None = opt(
        None, "to", "--to", "Language of the target for the pocket model: {choices}.", "LANGUAGE"
    )


@dataclass(frozen=True, slots=True)
class Choice:
    """Which part of the attention is wanted."""

    lens: str = opt(
        "raw",
        "lens",
        "--lens",
        "What to make of the weights first: {choices}; all shows them side by side.",
        "NAME",
        choices=LENS_NAMES,
    )
    explain: str | None = opt(
        None,
        "explain",
        "--target",
        "What --lens gradient explains: a class, or a token (by text or number from 0).",
        "WHAT",
    )
    stream: str | None = opt(
        None, "stream", "--stream", "One stream: encoder, decoder, cross, …", "NAME"
    )
    layer: str | None = opt(
        None, "heads", "--layer", "Layers from 0: 3, 0,2 or 0-3, last, all.", "WHICH"
    )
    head: str | None = opt(
        None, "heads", "--head", "Heads from 0: 3, 0,2 or 0-3, last, all.", "WHICH"
    )
    reduce: Reduce = opt(
        "none", "reduce", "--reduce", "Combine heads and layers: {choices}.", "HOW"
    )
    over: Over = opt("both", "reduce", "--over", "What --reduce combines: {choices}.", "AXIS")
    labels: str | None = opt(
        None,
        "labels",
        "--labels",
        'A label for each token or word, "O" for none: "B-PER O O".',
        "TEXT",
    )
    special: Special = opt(
        "keep",
        "special",
        "--special",
        "Special tokens: {choices} (rows sum to 1 without them).",
        "HOW",
    )
    group: str | None = opt(
        None,
        "group",
        "--group",
        "Merge tokens: words, sentences, or a file with a piece of text a line.",
        "WHAT",
        suggested=("words", "sentences"),
    )
    words: bool = opt(False, "group", "--words", "Short for --group words.")


@dataclass(frozen=True, slots=True)
class Output:
    """Where results go.

    What --format and --output may be follows from the kind of data that a command writes.
    """

    format: str | None = opt(None, "data", "--format -f", "What stdout gets: {choices}.", "NAME")
    output: Path | None = opt(None, "data", "--output -o", "Data file: {suffixes}.", "FILE")
    heatmap: Path | None = opt(
        None, "pictures", "--heatmap", "One matrix as a picture: .png, .svg or .pdf.", "FILE"
    )
    grid: Path | None = opt(
        None, "pictures", "--grid", "Every head as a picture: .png, .svg or .pdf.", "FILE"
    )
    links: Path | None = opt(
        None,
        "links",
        "--links",
        "Tokens joined by lines, eight heads at most in colours: .png, .svg or .pdf.",
        "FILE",
    )
    html: Path | None = opt(
        None, "page", "--html", "Everything as one interactive page: .html.", "FILE"
    )
    open_page: bool = opt(False, "page", "--open", "Show the interactive page in a browser.")
    quiet: bool = opt(False, "said", "--quiet -q", "No notes and no progress on stderr.")
    verbose: bool = opt(False, "said", "--verbose -v", "Say on stderr what is done, and how fast.")


@dataclass(frozen=True, slots=True)
class Many:
    """How many texts are read and worked through."""

    columns: str | None = opt(
        None,
        "reading",
        "--columns",
        "Columns of a .csv or .tsv, by name or number: text=sentence,id=key.",
        "ROLES",
    )
    input_format: InputFormat | None = opt(
        None,
        "reading",
        "--input-format",
        "{choices}, where no suffix tells (stdin is txt).",
        "NAME",
    )
    on_error: OnError = opt(
        "skip", "reading", "--on-error", "A line that fails: {choices} (skip says so).", "HOW"
    )
    rejects: Path | None = opt(
        None, "reading", "--rejects", "Lines that failed, with reasons, as .jsonl.", "FILE"
    )
    batch_size: int | None = opt(
        None,
        "sharing",
        "--batch-size",
        "Texts that a model reads at once at most; by default as many as fit.",
        "N",
        1,
    )
    workers: int | None = opt(
        None, "sharing", "--workers", "Processes that share the work.", "N", 1
    )
    engine: EngineName = opt(
        "local",
        "sharing",
        "--engine",
        "What runs the workers: {choices} (needs the extra ray).",
        "NAME",
    )
    ray_address: str | None = opt(
        None, "sharing", "--ray-address", "A Ray cluster to join; else one is started.", "ADDRESS"
    )
    shard_size: int | None = opt(
        None,
        "files",
        "--shard-size",
        "Texts to a file: -o maps.npz becomes maps-00000.npz, maps-00001.npz, …",
        "N",
        1,
    )
    resume: bool = opt(
        False, "files", "--resume", "Continue an interrupted run with the same -o FILE."
    )


@dataclass(frozen=True, slots=True)
class Options:
    """Everything that was asked for by shared options."""

    origin: Origin = field(default_factory=Origin)
    choice: Choice = field(default_factory=Choice)
    output: Output = field(default_factory=Output)
    many: Many = field(default_factory=Many)


def names_in(literal: object) -> tuple[str, ...]:
    """The names that a Literal type, or such a type or None, allows; none for other types."""
    found = [name for part in (literal, *get_args(literal)) for name in get_args(part)]
    return tuple(dict.fromkeys(name for name in found if isinstance(name, str)))
