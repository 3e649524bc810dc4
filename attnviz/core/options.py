"""What a user can ask for, as plain values: the same for the shell and for Python.

Each field is declared once: its `Option` says how the command line spells and explains it, and its
type says what it may be. A command offers whole groups of them (`attnviz.cli.options`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, get_args

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

Group = Literal[
    "model",
    "compute",
    "mechanism",
    "layer",
    "weights",
    "causal",
    "generate",
    "chat",
    "to",
    "projections",
    "long",
    "range",
    "top",
    "lens",
    "explain",
    "stream",
    "heads",
    "reduce",
    "labels",
    "special",
    "group",
    "data",
    "pictures",
    "links",
    "page",
    "said",
    "reading",
    "sharing",
    "files",
]
"""Options that a command offers together."""


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

    group: Group | str
    names: str
    help: str
    metavar: str | None = None
    min: int | None = None
    choices: tuple[str, ...] = ()
    suggested: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Origin:
    """Where attention comes from."""

    model: Annotated[
        str | None,
        Option("model", "--model -m", "Hugging Face model, or 'pocket'.", "ID_OR_FOLDER"),
    ] = None
    mechanism: Annotated[
        str | None,
        Option(
            "mechanism",
            "--mechanism",
            "Untrained own layer; 'attnviz mechanisms' lists them.",
            "NAME",
            suggested=tuple(MECHANISMS),
        ),
    ] = None
    weights: Annotated[
        Path | None,
        Option(
            "weights",
            "--weights",
            "Your own matrices or a saved map: .npz, .safetensors or .json.",
            "FILE",
        ),
    ] = None
    causal: Annotated[bool, Option("causal", "--causal", "Hide every later token.")] = False
    size: Annotated[int, Option("layer", "--size", "Features of an own layer.", "N", 1)] = 64
    heads: Annotated[int, Option("layer", "--heads", "Heads of an own layer.", "N", 1)] = 4
    seed: Annotated[int, Option("layer", "--seed", "Seed of an own layer.", "N", 0)] = 0
    device: Annotated[Device, Option("compute", "--device", "{choices}.", "NAME")] = "auto"
    device_map: Annotated[
        DeviceMap | None,
        Option(
            "model",
            "--device-map",
            "Spread a model larger than one device: {choices} (accelerate).",
            "HOW",
        ),
    ] = None
    dtype: Annotated[
        Dtype | None,
        Option("compute", "--dtype", "{choices}. On a processor the first is the default.", "NAME"),
    ] = None
    revision: Annotated[
        str | None,
        Option("model", "--revision", "Branch, tag or commit of a model on the hub.", "NAME"),
    ] = None
    allow_pickle: Annotated[
        bool, Option("model", "--allow-pickle", "Load pickled weights of a model that you trust.")
    ] = False
    allow_code: Annotated[
        bool, Option("model", "--allow-code", "Run the code that a model you trust brings along.")
    ] = False
    generate: Annotated[
        int | None,
        Option(
            "generate",
            "--generate",
            "Tokens that the model writes at most; its output is shown with the text.",
            "N",
            1,
        ),
    ] = None
    chat: Annotated[
        bool,
        Option("chat", "--chat", "Read the text as a user's turn, by the model's chat template."),
    ] = False
    keep_qk: Annotated[
        bool,
        Option(
            "projections",
            "--keep-qk",
            "Keep queries and keys, for the query · key view of --html and --open.",
        ),
    ] = False
    max_size: Annotated[
        int | None,
        Option(
            "long",
            "--max-size",
            "Rows and columns of a map at most; a longer text is shown in blocks. Default 1024, "
            "fewer where many heads would fill the memory.",
            "N",
            1,
        ),
    ] = None
    rows: Annotated[
        str | None,
        Option("range", "--rows", "Only tokens A to B attend, counted from 0: exact.", "A-B"),
    ] = None
    window: Annotated[
        str | None,
        Option("range", "--window", "Only tokens A to B attend, and to each other.", "A-B"),
    ] = None
    top: Annotated[
        int,
        Option(
            "top",
            "--top",
            "Strongest links that -f links lists, without special tokens and the diagonal; of a "
            "text in blocks found for each head, which 0 spares.",
            "N",
            0,
        ),
    ] = 20
    to: Annotated[
        Language | None,
        Option("to", "--to", "Language of the target for the pocket model: {choices}.", "LANGUAGE"),
    ] = None


@dataclass(frozen=True, slots=True)
class Choice:
    """Which part of the attention is wanted."""

    lens: Annotated[
        str,
        Option(
            "lens",
            "--lens",
            "What to make of the weights first: {choices}; all shows them side by side.",
            "NAME",
            choices=LENS_NAMES,
        ),
    ] = "raw"
    explain: Annotated[
        str | None,
        Option(
            "explain",
            "--target",
            "What --lens gradient explains: a class, or a token (by text or number from 0).",
            "WHAT",
        ),
    ] = None
    stream: Annotated[
        str | None, Option("stream", "--stream", "One stream: encoder, decoder, cross, …", "NAME")
    ] = None
    layer: Annotated[
        str | None,
        Option("heads", "--layer", "Layers from 0: 3, 0,2 or 0-3, last, all.", "WHICH"),
    ] = None
    head: Annotated[
        str | None, Option("heads", "--head", "Heads from 0: 3, 0,2 or 0-3, last, all.", "WHICH")
    ] = None
    reduce: Annotated[
        Reduce, Option("reduce", "--reduce", "Combine heads and layers: {choices}.", "HOW")
    ] = "none"
    over: Annotated[
        Over, Option("reduce", "--over", "What --reduce combines: {choices}.", "AXIS")
    ] = "both"
    labels: Annotated[
        str | None,
        Option(
            "labels",
            "--labels",
            'A label for each token or word, "O" for none: "B-PER O O".',
            "TEXT",
        ),
    ] = None
    special: Annotated[
        Special,
        Option(
            "special",
            "--special",
            "Special tokens: {choices} (rows sum to 1 without them).",
            "HOW",
        ),
    ] = "keep"
    group: Annotated[
        str | None,
        Option(
            "group",
            "--group",
            "Merge tokens: words, sentences, or a file with a piece of text a line.",
            "WHAT",
            suggested=("words", "sentences"),
        ),
    ] = None
    words: Annotated[bool, Option("group", "--words", "Short for --group words.")] = False


@dataclass(frozen=True, slots=True)
class Output:
    """Where results go.

    What --format and --output may be follows from the kind of data that a command writes.
    """

    format: Annotated[
        str | None, Option("data", "--format -f", "What stdout gets: {choices}.", "NAME")
    ] = None
    output: Annotated[
        Path | None, Option("data", "--output -o", "Data file: {suffixes}.", "FILE")
    ] = None
    heatmap: Annotated[
        Path | None,
        Option("pictures", "--heatmap", "One matrix as a picture: .png, .svg or .pdf.", "FILE"),
    ] = None
    grid: Annotated[
        Path | None,
        Option("pictures", "--grid", "Every head as a picture: .png, .svg or .pdf.", "FILE"),
    ] = None
    links: Annotated[
        Path | None,
        Option(
            "links",
            "--links",
            "Tokens joined by lines, eight heads at most in colours: .png, .svg or .pdf.",
            "FILE",
        ),
    ] = None
    html: Annotated[
        Path | None,
        Option("page", "--html", "Everything as one interactive page: .html.", "FILE"),
    ] = None
    open_page: Annotated[
        bool, Option("page", "--open", "Show the interactive page in a browser.")
    ] = False
    quiet: Annotated[bool, Option("said", "--quiet -q", "No notes and no progress on stderr.")] = (
        False
    )
    verbose: Annotated[
        bool, Option("said", "--verbose -v", "Say on stderr what is done, and how fast.")
    ] = False


@dataclass(frozen=True, slots=True)
class Many:
    """How many texts are read and worked through."""

    columns: Annotated[
        str | None,
        Option(
            "reading",
            "--columns",
            "Columns of a .csv or .tsv, by name or number: text=sentence,id=key.",
            "ROLES",
        ),
    ] = None
    input_format: Annotated[
        InputFormat | None,
        Option(
            "reading",
            "--input-format",
            "{choices}, where no suffix tells (stdin is txt).",
            "NAME",
        ),
    ] = None
    on_error: Annotated[
        OnError,
        Option("reading", "--on-error", "A line that fails: {choices} (skip says so).", "HOW"),
    ] = "skip"
    rejects: Annotated[
        Path | None,
        Option("reading", "--rejects", "Lines that failed, with reasons, as .jsonl.", "FILE"),
    ] = None
    batch_size: Annotated[
        int | None,
        Option(
            "sharing",
            "--batch-size",
            "Texts that a model reads at once at most; by default as many as fit.",
            "N",
            1,
        ),
    ] = None
    workers: Annotated[
        int | None, Option("sharing", "--workers", "Processes that share the work.", "N", 1)
    ] = None
    engine: Annotated[
        EngineName,
        Option(
            "sharing", "--engine", "What runs the workers: {choices} (needs the extra ray).", "NAME"
        ),
    ] = "local"
    ray_address: Annotated[
        str | None,
        Option(
            "sharing",
            "--ray-address",
            "A Ray cluster to join; else one is started.",
            "ADDRESS",
        ),
    ] = None
    shard_size: Annotated[
        int | None,
        Option(
            "files",
            "--shard-size",
            "Texts to a file: -o maps.npz becomes maps-00000.npz, maps-00001.npz, …",
            "N",
            1,
        ),
    ] = None
    resume: Annotated[
        bool,
        Option("files", "--resume", "Continue an interrupted run with the same -o FILE."),
    ] = False


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
