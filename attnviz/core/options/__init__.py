"""The options that commands share, as plain values.

Each field declares one option: its type says which values it takes, its `Option` how the command
line spells and explains it. Commands take groups of them (`attnviz.cli.options`).
"""

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Literal, get_type_hints

from attnviz.core.errors import UsageError, choose
from attnviz.core.options.look import Look
from attnviz.core.options.option import Option, names_in, opt, rare, shell_type
from attnviz.core.records import dataclass, field, fields, replace
from attnviz.core.registry import LENSES, MECHANISMS, MechanismChoice, parse_mechanism

Processor = Literal["auto", "cpu", "cuda", "mps"]
Device = Literal[Processor, "light", "torch", "spread", "spread:balanced", "spread:sequential"]
Trust = Literal["pickle", "code"]
Dtype = Literal["float32", "float64", "float16", "bfloat16"]
Language = Literal["en", "fr"]
Reduce = Literal["none", "mean", "max"]
Reduction = Literal[Reduce, "mean:heads", "mean:layers", "max:heads", "max:layers"]
INDEXER = "indexer"
"""The stream of the scores by which a model chooses keys: only asked for by name."""
Special = Literal["keep", "drop", "renormalise"]
InputFormat = Literal["txt", "jsonl", "csv", "tsv"]
ErrorForm = Literal["text", "json"]

_PICTURE = "is now --picture FILE"
FORMER = {
    **dict.fromkeys(("--overlay", "--overview", "--plot", "--bars", "--lines"), _PICTURE),
    "--scatter": "is now --picture scatter:FILE",
    "--highlight": "is now --picture highlight:FILE",
    "--prune-curve": "is now --picture curve:FILE",
    "--gif": "is now --picture FILE.gif",
    **{
        f"--{one}": f"is now --style {one}=…"
        for one in ("width", "font-size", "values", "cmap", "scale", "dpi")
    },
    "--table": "is now --max-rows 0",
    "--title": "is now --style title=TEXT",
    "--no-title": "is now --style title=no",
    "-m": "names a model in other commands; a module of watch stands behind --: -- -m MODULE",
    "--module": "is now a part of the program: -- -m MODULE",
    "--token-groups": "is now --labels FILE",
    "--by": "is now --without",
    "--model": "is now --config",
    "--allow-pickle": "is now --allow pickle",
    "--allow-code": "is now --allow code",
    "--device-map": "is now --device spread",
    "--arithmetic": "is now --device light or --device torch",
    "--revision": "is now a part of --model ID@REVISION",
    "--revision-a": "is now a part of --model-a ID@REVISION",
    "--revision-b": "is now a part of --model-b ID@REVISION",
    "--over": "is now a part of --reduce: mean:heads, mean:layers",
    "--ray-address": "is now a part of --engine ray:ADDRESS",
    "--input-format": "is now the word before a file: jsonl:FILE, or jsonl:- for stdin",
    "--rejects": "is now --on-error FILE.jsonl",
    "--check": "is gone: --lens effect measures 20 links, ablate --each links every one",
    "--batch-size": "is gone: a model reads as many texts at once as fit",
    "--max-line": "is gone: a line may have 64 MiB",
    "--limit-bytes": "is gone: -f links, --head, --top and --fields make an answer smaller",
}
"""Former options, each with what has taken its place; of a few options only some commands' own."""

LENS_NAMES = ("raw", *LENSES, "all")  # the values of --lens


class InMemory:
    """An object of this process as an option; two are equal if they hold the same objects."""

    def objects(self) -> tuple[Any, ...]:
        return tuple(vars(self).values())

    def __str__(self) -> str:
        return type(self.objects()[0]).__name__

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


@dataclass(frozen=True, eq=False)
class InMemoryReader(InMemory):
    """A tokenizer or processor of transformers, for a model by name."""

    reader: Any


@dataclass(frozen=True, eq=False)
class InMemoryMaps(InMemory):
    """Attention that was computed before, a text each."""

    maps: tuple[Any, ...]

    def objects(self) -> tuple[Any, ...]:
        return self.maps

    def __str__(self) -> str:
        return "results"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where attention comes from."""

    model: str | InMemoryModel | None = opt(
        "model",
        "--model -m ID_OR_FOLDER",
        "A Hugging Face model, by folder, id or id@revision, or one that 'attnviz models' lists.",
    )
    tokenizer: str | InMemoryReader | None = rare(
        "model",
        "--tokenizer ID_OR_FOLDER",
        "Tokenizer or processor for --model, by default the one in its folder.",
    )
    adapter: str | None = rare(
        "model",
        "--adapter ID_OR_FOLDER",
        "Adapter (LoRA and others, peft) to merge into --model, by default the one it names.",
    )
    mechanism: str | None = rare(
        "mechanism",
        "--mechanism NAME",
        "An untrained layer: linear, or linear:heads=4,size=64,seed=0 ('attnviz models "
        "--mechanisms' lists them).",
        suggestions=tuple(MECHANISMS),
    )
    weights: Path | InMemoryMaps | None = rare(
        "weights",
        "--weights FILE",
        "Attention from a file: your own matrices or a saved map (.npz, .safetensors, .json).",
    )
    qk: Path | None = rare(
        "weights",
        "--qk FILE",
        "Queries and keys that another program dumped (.npz, .safetensors, .json), or the folder "
        "of a request that vLLM-Hook wrote.",
    )
    causal: bool = rare("causal", "--causal", "Causal mask: hide every later token.")
    device: Device = rare(
        "compute",
        "--device NAME",
        "What calculates: {choices}. light starts fast, without torch, where it can; spread puts "
        "a model that is larger than one device on several (needs accelerate).",
        default="auto",
    )
    dtype: Dtype | None = rare("compute", "--dtype NAME", "Precision: {choices}; on a CPU float32.")
    allow: str | None = rare(
        "model",
        "--allow WHAT",
        "What to run of a model that you trust: pickle (pickled weights), code (its own Python "
        "code) or pickle,code.",
        suggestions=("pickle", "code", "pickle,code"),
    )
    generate: int | None = opt(
        "generate",
        "--generate N",
        "Let the model write N tokens at most, and show them with the text.",
        min=1,
    )
    chat: bool = rare(
        "chat",
        "--chat",
        "Read the text as a user's turn, by the model's chat template; in self, a file of messages "
        "(.json, .jsonl) opens on the parts that its answer looks at.",
    )
    keep_qk: bool = rare(
        "projections",
        "--keep-qk",
        "Keep queries and keys: the page of --html and --open then shows how each weight "
        "is computed.",
    )
    scores: bool = rare(
        "scores",
        "--scores",
        "Also measure scores before the softmax (the largest, mean, deviation, saturated rows) "
        "and the norms of queries, keys and values.",
    )
    channels: str = rare(
        "projections",
        "--channels WHICH",
        "Channels to show of layers without heads (Mamba, RWKV): mean, all, 3, 0,2 or 0-3.",
        default="mean",
        suggestions=("mean", "all"),
    )
    indexer: bool = rare(
        "python",  # --stream indexer asks for it
        "--stream indexer",
        "The scores by which an indexer chooses keys, before its top-k.",
    )
    max_size: int | None = rare(
        "long",
        "--max-size N",
        "Rows and columns of a map at most; a longer text is shown in blocks of tokens. "
        "Default 1024, or fewer if many heads would fill the memory.",
        min=1,
    )
    rows: str | None = rare(
        "range", "--rows A-B", "Show only the rows of tokens A to B, from 0, with exact weights."
    )
    window: str | None = rare("range", "--window A-B", "Only tokens A to B as rows and columns.")
    top: int = rare(
        "top",
        "--top N",
        "Strongest links that -f links lists, without special tokens and the diagonal. In a "
        "text shown in blocks each head is searched for them; 0 skips that.",
        default=20,
        min=0,
    )
    from_: str | None = rare(
        "to", "--from CODE", "Language of the source, for a translator with codes: eng_Latn, en_XX."
    )
    to: str | None = opt(
        "to",
        "--to LANGUAGE",
        "Language of the target: en or fr for the pocket model, fra_Latn, fr_XX with codes.",
        suggestions=("en", "fr"),
    )

    def __post_init__(self) -> None:
        for one in self.trusts:
            choose(one, names_in(Trust), "value for --allow")

    @property
    def trusts(self) -> list[str]:
        return self.allow.split(",") if self.allow else []

    @property
    def allow_pickle(self) -> bool:
        return "pickle" in self.trusts

    @property
    def allow_code(self) -> bool:
        return "code" in self.trusts

    @property
    def processor(self) -> Processor:
        """The device of torch; "auto" chooses it."""
        return self.device if self.device in ("cpu", "cuda", "mps") else "auto"

    @property
    def device_map(self) -> str | None:
        """How accelerate spreads the model over devices; None: it does not."""
        how, _, map_name = self.device.partition(":")
        return (map_name or "auto") if how == "spread" else None

    @property
    def arithmetic(self) -> str | None:
        """What calculates if the device asks for it: "light" or "torch"."""
        return self.device if self.device in ("light", "torch") else None

    @property
    def layer(self) -> MechanismChoice | None:
        return None if self.mechanism is None else parse_mechanism(self.mechanism)


@dataclass(frozen=True, slots=True)
class Choice:
    """Which part of the attention to show, and how."""

    lens: str = opt(
        "lens",
        "--lens NAME",
        "What to compute from the weights: {choices} (all lenses side by side).",
        default="raw",
        choices=LENS_NAMES,
    )
    explain: str | None = opt(
        "explain",
        "--target WHAT",
        "The output to explain: a class; a token by its text (red, red[3]) or number from 0; "
        "next:WORD, a possible next token; or all, each token predicted from those before it. "
        "Effects explain all by default.",
    )
    check: int = rare(
        "python",  # no command offers it
        "--check N",
        "How many links of --lens effect to cut one by one, to check their estimates.",
        default=20,
        min=0,
    )
    stream: str | None = rare(
        "stream",
        "--stream NAME",
        "One stream: encoder, decoder, cross, …; indexer: the scores by which a model chooses keys "
        "before its softmax (DeepSeek-V3.2, V4, GLM-5).",
    )
    layer: str | None = opt("heads", "--layer WHICH", "Layers from 0: 3, 0,2, 0-3, last or all.")
    head: str | None = opt(
        "heads",
        "--head WHICH",
        "Heads: 2.3 is head 3 of layer 2, 2.3,1.4 are two; 3 is head 3 of every layer, or of those "
        "of --layer; also 0,2, 0-3, last or all.",
    )
    reduce: Reduction = rare(
        "reduce",
        "--reduce HOW",
        "Combine heads and layers: mean or max; mean:heads, max:layers, … combine one of the two.",
        default="none",
    )
    kv: bool = rare(
        "kv",
        "--kv",
        "A map for each head of keys and values: the mean of the query heads that share it. --head "
        "then counts these.",
    )
    labels: str | None = rare(
        "labels",
        "--labels WHAT",
        'A label for each token or word, O for none ("B-PER O O"); or a FILE that names tokens, a '
        "line each: camera: @0-15, or subject: the professor.",
    )
    contacts: Path | None = rare(
        "contacts",
        "--contacts FILE",
        "Predict which residues of a protein touch, by a regression over heads fitted on this file "
        '(.jsonl: {"sequence": …, "contacts": [[0, 8], …]}; needs scikit-learn).',
    )
    token_groups: Path | None = rare(
        "python",  # --labels FILE
        "--token-groups FILE",
        "Names for tokens, one a line: camera: @0-15, or subject: the professor.",
    )
    special: str = opt(
        "special",
        "--special HOW",
        "Special tokens, such as [CLS]: keep, drop or renormalise (drop, then scale rows to sum "
        "to 1). drop:compressed,source leaves out keys of these kinds instead.",
        default="keep",
        suggestions=("keep", "drop", "renormalise"),
    )
    group: str | None = rare(
        "group",
        "--group WHAT",
        "Merge tokens into words, sentences, or the pieces that a file lists, one a line.",
        suggestions=("words", "sentences"),
    )
    words: bool = opt("group", "--words", "Merge the tokens of each word; short for --group words.")

    def __post_init__(self) -> None:
        if self.labels and self.token_groups is None and os.path.isfile(self.labels):  # noqa: PTH113 - a text may be longer than a name
            object.__setattr__(self, "token_groups", Path(self.labels))
            object.__setattr__(self, "labels", None)

    def check_names(self) -> None:
        """Refuse labels one by one where only names of tokens in a file are read."""
        if self.labels is not None:
            raise UsageError(f"--labels '{self.labels}' is no file, and this reads names from one")


@dataclass(frozen=True, slots=True)
class Output:
    """Where results go; a command's kind of data decides the values of --format and --output."""

    format: str | None = opt("stdout", "--format -f NAME", "What to print: {choices}.")
    output: Path | None = opt(
        "data",
        "--output -o FILE",
        "Data file, whose suffix names the format: {suffixes}. A file "
        "that attnviz did not write stays, as a picture or page does, without --overwrite.",
    )
    heatmap: Path | None = opt(
        "pictures", "--heatmap FILE", "One attention matrix as a picture: .png, .svg or .pdf."
    )
    grid: Path | None = opt(
        "pictures", "--grid FILE", "All heads side by side as a picture: .png, .svg or .pdf."
    )
    picture: list[Path] | None = opt("picture", "--picture FILE", "{pictures}")
    html: Path | None = opt(
        "page",
        "--html FILE",
        "Everything as one interactive page: .html; of several texts FILE-0, FILE-1, …",
    )
    atlas: Path | None = rare(
        "atlas",
        "--atlas PAGE",
        "Link each head of --html to its card in this page of 'heads --atlas', and back.",
    )
    overwrite: bool = rare(
        "data", "--overwrite", "Replace files of other programs, too: data, pictures, pages."
    )
    open_page: bool = rare("page", "--open", "Open the interactive page in a browser.")
    browse: bool = rare("browse", "--browse", "Browse the result by keys, in this terminal.")
    max_rows: int | None = rare(
        "data",
        "--max-rows N",
        "Rows that a table shows at most, by default 500 (of a matrix 32); 0 shows all, and every "
        "column.",
        min=0,
    )
    pieces: bool = rare("matrix", "--pieces", "Print tokens, special ones too, in place of words.")
    show: bool = opt(
        "show",
        "--show",
        "Draw the picture in this terminal, by kitty's, iTerm2's or sixel's protocol.",
    )
    fields: str | None = rare(
        "cut",
        "--fields NAMES",
        "Only these fields of json and jsonl, or columns of tsv and csv: heads.layer,heads.values.",
    )
    digits: int | None = rare(
        "digits",
        "--digits N",
        "Decimals of each weight in json, jsonl, tsv and csv, for smaller files; by default all "
        "that a float32 has.",
        min=1,
        max=6,
    )
    errors: ErrorForm = rare(
        "said",
        "--errors FORM",
        "Errors and notes on stderr: {choices}, a line each.",
        default="text",
    )
    quiet: bool = opt("said", "--quiet -q", "Print no notes and no progress on stderr.")
    verbose: bool = rare("said", "--verbose -v", "Report each step and its speed on stderr.")


@dataclass(frozen=True, slots=True)
class Many:
    """How to read many texts and share the work."""

    columns: str | None = rare(
        "reading",
        "--columns ROLES",
        "Columns of a .csv or .tsv, by name or number, or keys of a .jsonl: text=sentence,id=key.",
    )
    on_error: Path = rare(
        "reading",
        "--on-error HOW",
        "What to do about a line that fails: skip notes it and goes on, stop ends the run, and "
        "FILE.jsonl also keeps the line with its reason.",
        default=Path("skip"),
        suggestions=("skip", "stop"),
    )
    batch_size: int | None = rare(
        "python",  # no command offers it: as many as fit
        "--batch-size N",
        "Texts that the model reads at once, at most; by default as many as fit.",
        min=1,
    )
    workers: int | None = rare(
        "sharing", "--workers N", "Processes that share the work.", min=1, max=1024
    )
    engine: str = rare(
        "sharing",
        "--engine NAME",
        "What runs the workers: local, ray, or ray:ADDRESS, a cluster to join (ray needs the "
        "extra ray).",
        default="local",
        suggestions=("local", "ray", "ray:auto"),
    )
    shard_size: int | None = rare(
        "files",
        "--shard-size N",
        "Texts per data file: -o maps.npz becomes maps-00000.npz, maps-00001.npz, …",
        min=1,
    )
    resume: bool = rare(
        "files", "--resume", "Continue an interrupted run that has the same -o FILE."
    )

    def __post_init__(self) -> None:
        if self.rejects and not self.rejects.suffix and self.rejects.parent == Path():
            choose(str(self.on_error), ("skip", "stop"), "value for --on-error")

    @property
    def rejects(self) -> Path | None:
        """The file for lines that failed."""
        return None if str(self.on_error) in ("skip", "stop") else self.on_error


@dataclass(frozen=True, slots=True)
class Options:
    """The values of all shared options."""

    origin: Origin = field(default_factory=Origin)
    choice: Choice = field(default_factory=Choice)
    output: Output = field(default_factory=Output)
    many: Many = field(default_factory=Many)
    look: Look = field(default_factory=Look)
    # every picture that the command offers, with the file that it is drawn into
    pictures: dict[str, Path | None] = field(default_factory=dict)
    # arguments and options that may name a file to read, each with its parameter's name
    given: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if self.choice.stream == INDEXER:  # its scores are there only if they are recorded
            object.__setattr__(self, "origin", replace(self.origin, indexer=True))


def map_options(options: Options, *exceptions: str) -> list[str]:
    """The given options that choose, draw or show maps, such as "--heatmap"."""
    places = ("pictures", "picture", "page")
    return [
        option.names[0]
        for part in (options.choice, options.output)
        for item in fields(part)
        for option in (item.metadata["option"],)
        if (part is options.choice or option.group in places)
        and item.name not in exceptions
        and getattr(part, item.name) != item.default
    ]


def pictures_by_kind(files: Sequence[Path], kinds: Collection[str]) -> dict[str, Path]:
    """The files of --picture by the kind that stands before a colon, by default the first.

    Raises:
        UsageError: the command draws no such kind, or two files are named for one.
    """
    by_kind: dict[str, Path] = {}
    for file in files:
        kind, colon, name = str(file).partition(":")
        if not colon or "/" in kind:  # a name of its own may have a colon: ./a:b.png
            is_moving = file.suffix.lower() == ".gif" and "gif" in kinds
            kind, name = "gif" if is_moving else next(iter(kinds)), str(file)
        if not name or kind in by_kind:
            problem = f"two files for {kind}" if name else "no file"
            raise UsageError(f"--picture {file} names {problem}: write {kind}:FILE once")
        by_kind[choose(kind, kinds, "picture")] = Path(name)
    return by_kind


def split_format(file: str) -> tuple[str | None, str]:
    """The format that stands before a file's name, and the name: "jsonl:-"; None: no format."""
    name, colon, rest = file.partition(":")
    return (name, rest) if colon and rest and name in names_in(InputFormat) else (None, file)


def _declarations_of(half: Any) -> dict[str, tuple[Any, Option]]:
    types = get_type_hints(half)
    return {
        item.name: (shell_type(types[item.name]), item.metadata["option"]) for item in fields(half)
    }


DECLARED: dict[Any, dict[str, tuple[Any, Option]]] = {
    half: _declarations_of(half) for half in (Origin, Choice, Output, Many, Look)
}
"""The type and the declaration of every shared option, by the part that it belongs to."""
