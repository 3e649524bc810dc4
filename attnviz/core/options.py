"""What a user can ask for, as plain values: the same for the shell and for Python.

Each field is declared once: its `Option` says how the command line spells and explains it, and its
type says what it may be. A command offers whole groups of them (`attnviz.cli.options`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_type_hints

from attnviz.core.errors import UsageError
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
Width = Literal["single", "double"]
PictureScale = Literal["own", "shared"]

LARGEST_SEED = 2**64 - 1
LENS_NAMES = ("raw", *LENSES, "all")
"""What --lens can be: the weights themselves, a lens, or all of them side by side."""


class InMemory:
    """What this process has in memory; two are equal where they hold the very same objects."""

    def objects(self) -> tuple[Any, ...]:
        """What it holds."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        # By identity: models and arrays compare slowly, or element by element.
        return type(other) is type(self) and self._places() == other._places()

    def __hash__(self) -> int:
        return hash(self._places())

    def _places(self) -> tuple[int, ...]:
        return tuple(map(id, self.objects()))

    def __reduce__(self) -> Any:
        raise UsageError(f"{self} is in this process alone: leave workers and engine out")


@dataclass(frozen=True, eq=False)
class InMemoryModel(InMemory):
    """A model of transformers, with the tokenizer or processor that reads its inputs."""

    model: Any
    reader: Any = None

    def objects(self) -> tuple[Any, ...]:
        """The model and its reader."""
        return self.model, self.reader

    def __str__(self) -> str:
        return type(self.model).__name__


@dataclass(frozen=True, eq=False)
class InMemoryMaps(InMemory):
    """Attention that was computed before, a text each."""

    maps: tuple[Any, ...]

    def objects(self) -> tuple[Any, ...]:
        """The attention of each text."""
        return self.maps

    def __str__(self) -> str:
        return "results"


@dataclass(frozen=True, slots=True)
class Option:
    """How the command line spells and explains a field.

    Attributes:
        group: the options that it is offered with; of a command's own option the panel of the help.
        usage: "--format -f NAME": its names and what stands for its value; a flag has none.
        help: a noun phrase; "{choices}" stands for what the field may be.
        min: the least number; a seed has 64 bits at most.
        choices: the names of a table that it may be; a Literal type says so by itself.
        suggested: names that a shell completes, among other values.
        rare: --help lists it by name only; --help-all explains it.
    """

    group: str
    usage: str
    help: str
    min: int | None = None
    max: int | None = None
    choices: tuple[str, ...] = ()
    suggested: tuple[str, ...] = ()
    rare: bool = False

    @property
    def names(self) -> list[str]:
        """Long and short."""
        return [word for word in self.usage.split() if word.startswith("-")]

    @property
    def metavar(self) -> str | None:
        """What stands for its value; None: it is a flag."""
        return self.usage.removeprefix(" ".join(self.names)).strip() or None


def opt(group: str, usage: str, text: str, *, default: object = None, **more: Any) -> Any:
    """A default value that carries its `Option`: of a field here, or of a command's parameter.

    Without a default a flag is off and anything else None; `more` are further fields of `Option`.
    """
    option = Option(group, usage, text, **more)
    if default is None and option.metavar is None:
        default = False
    return field(default=default, metadata={"option": option})


@dataclass(frozen=True, slots=True)
class Origin:
    """Where attention comes from."""

    model: str | InMemoryModel | None = opt(
        "model", "--model -m ID_OR_FOLDER", "Hugging Face model, or one of 'attnviz models'."
    )
    adapter: str | None = opt(
        "model",
        "--adapter ID_OR_FOLDER",
        "Merge an adapter (LoRA and its like, peft) into --model, by default the one it names.",
        rare=True,
    )
    mechanism: str | None = opt(
        "mechanism",
        "--mechanism NAME",
        "Untrained own layer; 'attnviz mechanisms' lists them.",
        suggested=tuple(MECHANISMS),
    )
    weights: Path | InMemoryMaps | None = opt(
        "weights",
        "--weights FILE",
        "Your own matrices or a saved map: .npz, .safetensors or .json.",
        rare=True,
    )
    qk: Path | None = opt(
        "weights",
        "--qk FILE",
        "Queries and keys that another program dumped: .npz, .safetensors or .json.",
        rare=True,
    )
    causal: bool = opt("causal", "--causal", "Hide every later token.")
    size: int = opt("layer", "--size N", "Features of an own layer.", default=64, min=1, rare=True)
    heads: int = opt("layer", "--heads N", "Heads of an own layer.", default=4, min=1, rare=True)
    seed: int = opt(
        "layer", "--seed N", "Seed of an own layer.", default=0, min=0, max=LARGEST_SEED, rare=True
    )
    device: Device = opt("compute", "--device NAME", "{choices}.", default="auto", rare=True)
    device_map: DeviceMap | None = opt(
        "model",
        "--device-map HOW",
        "Spread a model larger than one device: {choices} (accelerate).",
        rare=True,
    )
    dtype: Dtype | None = opt(
        "compute", "--dtype NAME", "{choices}. On a processor the first is the default.", rare=True
    )
    revision: str | None = opt(
        "model", "--revision NAME", "Branch, tag or commit of a model on the hub.", rare=True
    )
    allow_pickle: bool = opt(
        "model", "--allow-pickle", "Load pickled weights of a model that you trust.", rare=True
    )
    allow_code: bool = opt(
        "model", "--allow-code", "Run the code that a model you trust brings along.", rare=True
    )
    generate: int | None = opt(
        "generate",
        "--generate N",
        "Tokens that the model writes at most; its output is shown with the text.",
        min=1,
    )
    chat: bool = opt(
        "chat", "--chat", "Read the text as a user's turn, by the model's chat template.", rare=True
    )
    keep_qk: bool = opt(
        "projections",
        "--keep-qk",
        "Keep queries and keys, for the query · key view of --html and --open.",
        rare=True,
    )
    channels: str = opt(
        "projections",
        "--channels WHICH",
        "Of layers without attention that mix channel by channel (Mamba, RWKV): mean, 3, 0,2 or "
        "0-3, all.",
        default="mean",
        suggested=("mean", "all"),
        rare=True,
    )
    max_size: int | None = opt(
        "long",
        "--max-size N",
        "Rows and columns of a map at most; a longer text is shown in blocks. Default 1024, "
        "fewer where many heads would fill the memory.",
        min=1,
        rare=True,
    )
    rows: str | None = opt(
        "range", "--rows A-B", "Only tokens A to B attend, counted from 0: exact.", rare=True
    )
    window: str | None = opt(
        "range", "--window A-B", "Only tokens A to B attend, and to each other.", rare=True
    )
    top: int = opt(
        "top",
        "--top N",
        "Strongest links that -f links lists, without special tokens and the diagonal; of a "
        "text in blocks found for each head, which 0 spares.",
        default=20,
        min=0,
        rare=True,
    )
    to: Language | None = opt(
        "to", "--to LANGUAGE", "Language of the target for the pocket model: {choices}."
    )


@dataclass(frozen=True, slots=True)
class Choice:
    """Which part of the attention is wanted."""

    lens: str = opt(
        "lens",
        "--lens NAME",
        "What to make of the weights first: {choices}; all shows them side by side.",
        default="raw",
        choices=LENS_NAMES,
    )
    explain: str | None = opt(
        "explain",
        "--target WHAT",
        "What is explained: a class, a token (its text, red[3] or its number from 0), next:WORD "
        "for what could come next, or 'all' tokens, each predicted from those before it, the "
        "default of effects.",
    )
    check: int = opt(
        "explain",
        "--check N",
        "Links of --lens effect that are measured, by cutting each, beside the estimate.",
        default=20,
        min=0,
        rare=True,
    )
    stream: str | None = opt(
        "stream", "--stream NAME", "One stream: encoder, decoder, cross, …", rare=True
    )
    layer: str | None = opt("heads", "--layer WHICH", "Layers from 0: 3, 0,2 or 0-3, last, all.")
    head: str | None = opt(
        "heads",
        "--head WHICH",
        "Heads from 0: 2.3 (head 3 of layer 2), 2.3,4.1, or 3, 0,2, 0-3, last, all of each layer.",
    )
    reduce: Reduce = opt(
        "reduce", "--reduce HOW", "Combine heads and layers: {choices}.", default="none", rare=True
    )
    over: Over = opt(
        "reduce", "--over AXIS", "What --reduce combines: {choices}.", default="both", rare=True
    )
    labels: str | None = opt(
        "labels",
        "--labels TEXT",
        'A label for each token or word, "O" for none: "B-PER O O".',
        rare=True,
    )
    special: Special = opt(
        "special",
        "--special HOW",
        "Special tokens: {choices} (rows sum to 1 without them).",
        default="keep",
    )
    group: str | None = opt(
        "group",
        "--group WHAT",
        "Merge tokens: words, sentences, or a file with a piece of text a line.",
        suggested=("words", "sentences"),
        rare=True,
    )
    words: bool = opt("group", "--words", "Short for --group words.")


@dataclass(frozen=True, slots=True)
class Output:
    """Where results go.

    What --format and --output may be follows from the kind of data that a command writes.
    """

    format: str | None = opt("stdout", "--format -f NAME", "What stdout gets: {choices}.")
    output: Path | None = opt(
        "data",
        "--output -o FILE",
        "Data file: {suffixes}. Like every FILE written, it replaces an older one.",
    )
    heatmap: Path | None = opt(
        "pictures",
        "--heatmap FILE",
        "One matrix as a picture: .png, .svg or .pdf.",
    )
    grid: Path | None = opt(
        "pictures", "--grid FILE", "Every head as a picture: .png, .svg or .pdf."
    )
    width: Width | None = opt(
        "pictures",
        "--width COLUMN",
        "Lay pictures out for a paper's column: {choices} (85 or 178 mm), text at its usual size.",
        rare=True,
    )
    links: Path | None = opt(
        "links",
        "--links FILE",
        "Tokens joined by lines, eight heads at most in colours: .png, .svg or .pdf.",
        rare=True,
    )
    html: Path | None = opt(
        "page",
        "--html FILE",
        "Everything as one interactive page: .html. Of many texts, and of pictures, FILE-0, "
        "FILE-1, …: such files of attnviz are replaced, others refused.",
    )
    overwrite: bool = opt(
        "page", "--overwrite", "Replace files FILE-0, … that others made, too.", rare=True
    )
    open_page: bool = opt("page", "--open", "Show the interactive page in a browser.", rare=True)
    max_rows: int = opt(
        "data",
        "--max-rows N",
        "Rows that a table shows at most; 0: all.",
        default=500,
        min=0,
        rare=True,
    )
    quiet: bool = opt("said", "--quiet -q", "No notes and no progress on stderr.")
    verbose: bool = opt(
        "said", "--verbose -v", "Say on stderr what is done, and how fast.", rare=True
    )


@dataclass(frozen=True, slots=True)
class Many:
    """How many texts are read and worked through."""

    columns: str | None = opt(
        "reading",
        "--columns ROLES",
        "Columns of a .csv or .tsv, by name or number: text=sentence,id=key.",
        rare=True,
    )
    input_format: InputFormat | None = opt(
        "reading",
        "--input-format NAME",
        "{choices}, where no suffix tells (stdin is txt).",
        rare=True,
    )
    max_line: int = opt(
        "reading", "--max-line MIB", "Longest line or row to read.", default=64, min=1, rare=True
    )
    on_error: OnError = opt(
        "reading",
        "--on-error HOW",
        "A line that fails: {choices} (skip says so).",
        default="skip",
        rare=True,
    )
    rejects: Path | None = opt(
        "reading", "--rejects FILE", "Lines that failed, with reasons, as .jsonl.", rare=True
    )
    batch_size: int | None = opt(
        "sharing",
        "--batch-size N",
        "Texts that a model reads at once at most; by default as many as fit.",
        min=1,
        rare=True,
    )
    workers: int | None = opt(
        "sharing", "--workers N", "Processes that share the work.", min=1, max=1024, rare=True
    )
    engine: EngineName = opt(
        "sharing",
        "--engine NAME",
        "What runs the workers: {choices} (needs the extra ray).",
        default="local",
        rare=True,
    )
    ray_address: str | None = opt(
        "sharing", "--ray-address ADDRESS", "A Ray cluster to join; else one is started.", rare=True
    )
    shard_size: int | None = opt(
        "files",
        "--shard-size N",
        "Texts to a file: -o maps.npz becomes maps-00000.npz, maps-00001.npz, …",
        min=1,
        rare=True,
    )
    resume: bool = opt(
        "files", "--resume", "Continue an interrupted run with the same -o FILE.", rare=True
    )


@dataclass(frozen=True, slots=True)
class Options:
    """Everything that was asked for by shared options.

    Attributes:
        given: every argument and option that may name a file to be read, with its parameter's name.
    """

    origin: Origin = field(default_factory=Origin)
    choice: Choice = field(default_factory=Choice)
    output: Output = field(default_factory=Output)
    many: Many = field(default_factory=Many)
    given: tuple[tuple[str, str], ...] = ()


def names_in(literal: object) -> tuple[str, ...]:
    """The names that a Literal type, or such a type or None, allows; none for other types."""
    found = [name for part in (literal, *get_args(literal)) for name in get_args(part)]
    return tuple(dict.fromkeys(name for name in found if isinstance(name, str)))


def _declared(half: Any) -> dict[str, tuple[Any, Option]]:
    types = get_type_hints(half)
    return {
        item.name: (_shell_type(types[item.name]), item.metadata["option"]) for item in fields(half)
    }


def _shell_type(annotation: Any) -> Any:
    """What of a type a shell can give: nothing that lies in Python's memory."""
    parts = get_args(annotation)
    rest = [one for one in parts if not (isinstance(one, type) and issubclass(one, InMemory))]
    return annotation if len(rest) == len(parts) else Union[*rest]


DECLARED: dict[Any, dict[str, tuple[Any, Option]]] = {
    half: _declared(half) for half in (Origin, Choice, Output, Many)
}
"""The type and the declaration of every shared option, by the part that it belongs to."""
