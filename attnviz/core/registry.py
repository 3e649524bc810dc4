"""What a row of a table is: a name with one line on it, and where its code lives.

The rows stand in the `__init__.py` of the package whose code they name. Listing a table imports no
numpy; an entry's code is imported when it is used. A new mechanism, lens, measure, format or
picture is its code and a row.
"""

from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any, ClassVar, Literal

from attnviz.core.errors import UsageError, choose, did_you_mean
from attnviz.core.plugins import INTERRUPTIONS, PluginError, add_rows, error_line
from attnviz.core.records import dataclass, field, replace

SCHEMA = 2  # of every JSON document that is written
Command = Literal["self", "cross", "picture"]
SourceKind = Literal[Command, "picture-text", "recording"]  # what a source is opened for
Sums = Literal["one", "less", "any"]
Needs = Literal["weights", "gradients", "values", "effects", "writers"]
Form = Literal["text", "document", "rows", "arrays", "maps", "links", "textgrid", "vtt", "nothing"]
"""What a format is written from."""
DataKind = Literal[
    "maps",
    "heads",
    "corpus",
    "comparison",
    "ablation",
    "why",
    "wiring",
    "answer",
    "match",
    "cache",
    "sources",
    "chat",
    "trace",
    "lenses",
    "changes",
    "alignment",
    "scores",
    "times",
    "steps",
    "lesson",
    "history",
    "listing",
]
RoleKind = Literal["acts", "rests"]  # what a head does if it can, or where it rests


@dataclass(frozen=True, slots=True)
class Entry:
    """A name's summary (the first line of its docstring) and where its code is."""

    summary: str
    target: str
    package: str = field(default="", kw_only=True)  # of a plug-in
    room: ClassVar[str] = ""  # what stands before the target of every such row

    def load(self) -> Any:
        """The object that the target "module:attribute" names.

        Raises:
            PluginError: a plug-in's cannot be had.
        """
        room = "" if self.package else self.room
        module, _, attribute = f"{room}{self.target}".partition(":")
        try:
            return getattr(import_module(module), attribute)
        except INTERRUPTIONS:
            raise
        except BaseException as error:  # a plug-in may raise SystemExit too
            if not self.package:
                raise
            raise PluginError(
                f"'{self.target}' of the package {self.package} cannot be loaded: "
                f"{error_line(error)}"
            ) from error


@dataclass(frozen=True, slots=True)
class Mechanism(Entry):
    """A formula, offered by some commands, and what an own layer needs around it."""

    room = "attnviz.mechanisms."
    commands: tuple[Command, ...] = ("self", "cross")
    projected: bool = True  # False where inputs serve as queries, keys and values as they are
    many_heads: bool = True
    # the name of its causal form, if a mask is not enough; its own name if it is always causal
    causal: str | None = None
    # whether scores are divided by √(head size); None: weights are no softmax of query · key
    scaled: bool | None = None
    # what a row of weights sums to: one, less where a sink takes a share, or anything
    sums: Sums = "one"
    signed: bool = False  # True where weights may be negative
    groups: Literal["all", "half", "one"] = "all"  # heads with own keys and values
    # further parameters by name, with their axes in words: "4 half_head"; "keys heads" and "queries
    # size" are of each position, sigmoid(inputs @ w_NAME)
    learned: Mapping[str, str] = field(default_factory=dict)
    # of co-attention, the part that each of its streams shows
    streams: Mapping[str, str] = field(default_factory=dict)
    module: str = ""  # the class of co-attention that `CoAttention` builds for it

    @property
    def mutual(self) -> bool:
        """Whether it is co-attention: both of two sequences attend."""
        return bool(self.streams)


@dataclass(frozen=True, slots=True)
class Format(Entry):
    """A data format."""

    room = "attnviz.renderers."
    suffix: str = ""
    form: Form = "maps"
    report: str = ""  # the code for data other than maps; empty: the same
    binary: bool = False
    grows: bool = False  # whether a file is complete after each text, so that a run can continue it

    def load_report(self) -> Any:
        return replace(self, target=self.report or self.target).load()


@dataclass(frozen=True, slots=True)
class Measure(Entry):
    """A number for each head."""

    room = "attnviz.features.measures."
    short: str
    role: RoleKind | None = None  # the kind of role that a head clearly above uniform attention has
    # of the role; most are Okabe and Ito's (2008), for colour-blind readers
    color: tuple[int, int, int] | None = None
    repeated: bool = False  # True where it is read off a repeated sequence


@dataclass(frozen=True, slots=True)
class Lens(Entry):
    """What can be made of weights, which are in every map, or of what only a model can tell."""

    room = "attnviz.features.lenses."
    needs: Needs = "weights"


@dataclass(frozen=True, slots=True)
class Policy(Entry):
    """A rule for which keys a cache holds: a score of each, for its `CacheState`.

    Attributes:
        once: True where it decides once, after the prompt; else after each step.
        beside: True where a query's own key does not count for the budget.
        measured: True where it looks ahead, at the measured effect of each key.
    """

    room = "attnviz.features.cache."
    once: bool = False
    beside: bool = False
    measured: bool = False


@dataclass(frozen=True, slots=True)
class CommandEntry(Entry):
    """A command: a function under `@command`, and the panel of the help that lists it."""

    room = "attnviz.commands."
    panel: str = "Look"


@dataclass(frozen=True, slots=True)
class FeatureEntry(CommandEntry):
    """A command of a feature, whose code nothing below imports."""

    room = "attnviz.features."


@dataclass(frozen=True, slots=True)
class FeatureFormat(Format):
    """A format of a feature."""

    room = "attnviz.features."


BROWSER = FeatureEntry("Browse the first result by keys.", "browse.entry:BrowsedResult")
"""The output that --browse and `Result.browse` open."""
CONTACTS = FeatureEntry("Predict contacts from heads.", "contacts.fit:fit_contacts")
"""What --contacts fits."""
GIVEN = FeatureEntry("Attention of queries and keys in a file.", "qk.source:QueriesAndKeys")
"""The source that --qk opens."""
DUMPS = FeatureEntry("Maps that other programs saved.", "dumps.arrays:read_foreign")
DUMPED = FeatureEntry("The same as a source, found by texts.", "dumps.source:open_dump")
"""How files of other programs are read: None for what is none."""
PART = FeatureEntry("A part of the maps of a whole text.", "parts.source:PartOfTexts")
"""What --rows and --window show of a model that reads texts whole."""
PARQUET = FeatureEntry("The texts of a Parquet file.", "parquet.file:ParquetReader")
DOCUMENTS = FeatureEntry("Every JSON document by name.", "schemas.layouts:LAYOUTS")
DOCUMENT_SCHEMA = FeatureEntry("What --schema prints.", "schemas.layouts:json_schema")
FIELDS = FeatureEntry("What refuses a name of --fields.", "schemas.layouts:check_fields")
PANELS = FeatureEntry("The picture of several maps side by side.", "grid.picture:panels")
HEAD_STEPS = FeatureEntry("Every step of one head of a model.", "steps.head:record_head")
"""What `steps` asks of a model of transformers."""
KEY_LAYOUTS = {
    name: FeatureEntry(summary, f"key_kinds.{target}")
    for name, (summary, target) in {
        "compressed": (
            "Tokens, then entries that each stand for several (DeepSeek-V4).",
            "layouts:compressed_entries",
        ),
        "merged": (
            "A decoder's tokens, then its source's, in one softmax (T5Gemma 2).",
            "layouts:merged_source",
        ),
        "layers": (
            "At each position the blocks of layers so far (Inkling 2).",
            "layouts:blocks_of_layers",
        ),
    }.items()
}
"""What declares the kinds of a layer's keys, by mechanism: None where it is not the layer's."""
WATCH_INDEXERS = FeatureEntry("What indexers choose by.", "key_kinds.indexer:watch_indexers")
WITH_INDEXER = FeatureEntry("Maps of these scores.", "key_kinds.indexer:with_scores")
"""What --stream indexer records of a pass, and what it adds to the maps of a text."""
SOURCES = {
    "picture": FeatureEntry("Models of pictures.", "vision.opening:open_vision"),
    "picture-text": FeatureEntry(
        "Models of pictures and a text.", "picture_text.opening:open_picture_text"
    ),
    "recording": FeatureEntry("Models of speech.", "audio.opening:open_speech_model"),
}
"""What opens the source of an origin, by what it reads where that is no text."""
PICTURE_READERS = {
    "video": FeatureEntry("Models of films.", "video.video_model:open_video"),
    "detection": FeatureEntry(
        "Models with queries for objects.", "detection.detector:open_detector"
    ),
}
"""What makes a source of a loaded model of pictures, each asked in turn: it, or None."""
OWN_CODE = FeatureEntry("Models whose own code runs.", "own_code.opening:open_own_code")
"""What opens a model of texts whose code is its own; without it only kernels are read."""
FILE_QUERIES = {
    "picture": FeatureEntry("The query of a picture.", "vision.opening:query_of_picture"),
    "recording": FeatureEntry("The query of a recording.", "audio.opening:query_of_recording"),
}
"""What makes a query of a file that is no text."""
ALIGNER = FeatureEntry("Write the word links of sentence pairs.", "align.command:align_texts")
"""What `cross` does where it is asked for alignments."""
CHATS = FeatureEntry("Show which parts of a chat its answer looks at.", "chat.command:show_chats")
"""What `self --chat` does with files of messages; CHAT is what `attend` does with messages."""
CHAT = FeatureEntry("The parts of a chat that its answer looks at.", "chat.function:attend_chat")
ATLAS = FeatureEntry("The heads of an atlas.", "atlas.page:read_atlas")
ATLAS_LINKS = FeatureEntry("How a page links its heads to an atlas.", "atlas.page:link_atlas")
"""What --atlas checks of a page of a corpus, and what a page of a text shows of it."""
STACK = FeatureEntry("A stack of layers and its writers.", "writers.stacked_text:Stack")
HEAD_WEIGHTS = FeatureEntry("The maps of each head.", "writers.stacked_text:head_weights")
ANSWERS: dict[str, dict[str, str]] = {
    "text": {
        "experiment": "experiments.sources:open_text",
        "head_outputs": "experiments.sources:head_outputs",
        "many_gradients": "lenses.batches:many_gradients",
        "many_values": "lenses.batches:many_values",
        "trace_writers": "writers.recorded_text:record_text",
        "read_stream": "why.stream:read_stream",
    },
    "light": {
        "experiment": "experiments.light:open_light",
        "many_gradients": "lenses.batches:many_gradients",
        "trace_writers": "writers.stacked_text:stack_text",
        "read_stream": "writers.stacked_text:stream_of_text",
    },
    "picture": {
        "experiment": "experiments.sources:open_picture",
        "trace_writers": "writers.recorded_text:record_picture",
    },
    "picture-text": {"experiment": "experiments.sources:open_words"},
    "recording": {"trace_writers": "writers.recorded_text:record_speech"},
} | {
    name: {
        "experiment": f"experiments.{target}",
        "trace_writers": "writers.stacked_text:stack_pocket",
        "read_stream": "writers.stacked_text:stream_of_pocket",
        "head_arithmetic": "steps.stored:stored_head",
    }
    for name, target in {
        "pocket": "pocket:PocketExperiment",
        "pocket-lm": "pocket:CausalExperiment",
        "pocket-vit": "pocket:PictureExperiment",
    }.items()
}
ANSWERS["pocket"]["head_outputs"] = "experiments.pocket:head_outputs"
"""By the kind of source and the name of a method, the code of a feature that answers it."""
LENS_QUESTIONS = {
    name: FeatureEntry("A text through a lens that needs more than a map.", f"lenses.{target}")
    for name, target in {
        "apply": "ask:apply_lens",
        "ask": "ask:ask_source",
        "ask together": "ask:ask_together",
        "steps": "ask:keep_steps",
        "links": "links:with_links",
    }.items()
}
"""What is asked where a lens is chosen."""
SYMMETRIZATIONS: dict[str, str] = {
    "forward": "Each target word's strongest source word.",
    "reverse": "Each source word's strongest target word, from the model run the other way.",
    "intersection": "Links that both directions find.",
    "union": "Links that either direction finds.",
    "grow-diag-final": "The intersection, grown along neighbours inside the union, then by words "
    "without a link.",
    "grow-diag-final-and": "The same, but a link is added last only between two words without one.",
    "product": "Links that are strongest both ways in the product of both directions.",
}
"""How the two directions of an alignment are joined."""


COMMANDS: dict[str, CommandEntry]
MECHANISMS: dict[str, Mechanism]
FORMATS: dict[str, Format]
PICTURES: dict[str, Entry]
MEASURES: dict[str, Measure]
LENSES: dict[str, Lens]
POLICIES: dict[str, Policy]
ROOMS = {
    "COMMANDS": "attnviz.commands",
    "MECHANISMS": "attnviz.mechanisms",
    "FORMATS": "attnviz.renderers",
    "PICTURES": "attnviz.renderers",
    "MEASURES": "attnviz.features.measures",
    "LENSES": "attnviz.features.lenses",
    "POLICIES": "attnviz.features.cache",
}
"""The package whose `__init__.py` holds a table; it imports no other code."""
OPEN_TABLES = {
    "COMMANDS": CommandEntry,
    "PICTURES": Entry,
    "MECHANISMS": Mechanism,
    "LENSES": Lens,
    "MEASURES": Measure,
    "FORMATS": Format,
    "POLICIES": Policy,
}
"""The tables that plug-ins add rows to, with the kind of these rows."""
_TABLES: dict[str, dict[str, Any]] = {}


def tables() -> dict[str, dict[str, Any]]:
    if not _TABLES:
        # Filled before plug-ins are imported, for these may ask for a table themselves.
        for name, room in ROOMS.items():
            _TABLES[name] = {}
            feature = room.startswith(FeatureEntry.room)
            with suppress(*[ModuleNotFoundError] * feature):  # which may not be there
                _TABLES[name] = getattr(import_module(room), name)
        add_rows({f"attnviz.{n.lower()}": (_TABLES[n], row) for n, row in OPEN_TABLES.items()})
    return _TABLES


def __getattr__(name: str) -> dict[str, Any]:
    """A table, which is read from its room when it is first asked for."""
    if name not in ROOMS:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return tables()[name]


ALL_LENSES = "all"  # the name for every lens side by side
PREDICTED: tuple[Needs, ...] = ("gradients", "effects", "writers")
"""Needs of lenses that only a predicting model meets."""
LARGEST_SEED = 2**64 - 1  # torch takes no larger one
LARGEST = 10**9  # the largest number of an option; memory is checked where an array is made
CO = "co-parallel"  # what "co" alone names
LIMITS = {"heads": (1, LARGEST), "size": (1, LARGEST), "seed": (0, LARGEST_SEED)}
"""What --mechanism takes behind a name, with the least and the largest number."""


@dataclass(frozen=True, slots=True)
class MechanismChoice:
    """A mechanism with the size and seed of its untrained layer; None: the command's default."""

    name: str
    heads: int | None = None
    size: int | None = None
    seed: int | None = None


@cache
def parse_mechanism(text: str) -> MechanismChoice:
    """The mechanism that "rotary", or "rotary:heads=4,size=64,seed=0", names.

    Raises:
        UsageError: an unknown name or key, or a number that is out of range.
    """
    name, colon, numbers = text.partition(":")
    name = CO if name == "co" else name
    mechanisms = tables()["MECHANISMS"]
    row: Mechanism = mechanisms[choose(name, mechanisms, "mechanism")]
    sizes: dict[str, int] = {}
    for part in numbers.split(",") if colon else ():
        key, _, number = (one.strip() for one in part.partition("="))
        if key not in LIMITS or key in sizes:
            wrong = f"'{key}' twice" if key in sizes else f"'{part.strip()}'"
            example = ",".join(f"{one}=N" for one in LIMITS)
            raise UsageError(
                f"--mechanism {text} has {wrong}: write {name}:{example}, or some of these."
                f"{did_you_mean(key, LIMITS)}"
            )
        low, high = LIMITS[key]
        # int() takes at most 4,300 digits; the largest seed has 20
        if not number.isdecimal() or len(number) > 20 or not low <= int(number) <= high:
            raise UsageError(
                f"--mechanism {text}: {key}={number} is no whole number from {low} to {high:,}"
            )
        sizes[key] = int(number)
    if sizes.get("heads", 1) > 1 and not row.many_heads:
        raise UsageError(f"mechanism '{name}' has one head: leave heads={sizes['heads']} out")
    return MechanismChoice(name, **sizes)


def is_reduced(name: str) -> bool:
    """Whether an axis of this name was reduced."""
    return name in ("mean", "max", "sum") or name in tables()["LENSES"]


def axis_name(what: str, name: str) -> str:
    """Such as "layer 3", "layer decoder.2.attention" or, of a reduced axis, "mean over layers"."""
    if " over " in name:
        return name  # "mean over channels"
    if name == "several":
        return f"{name} {what}s"
    return f"{name} over {what}s" if is_reduced(name) else f"{what} {name}"


def needs_head(lens: str) -> bool:
    """True where the lens asks for predictions."""
    lenses = tables()["LENSES"]
    return lens == ALL_LENSES or (lens in lenses and lenses[lens].needs in PREDICTED)
