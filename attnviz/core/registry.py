"""The tables behind the four doors: every name with one line on it and where its code lives.

Listing a table imports nothing; an entry's code is imported when it is used. A new mechanism,
analysis, format or picture is one new file and one line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, Literal

from attnviz.core.errors import UsageError, choose, did_you_mean
from attnviz.core.plugins import INTERRUPTIONS, PluginError, add_rows, error_line

Command = Literal["self", "cross", "co", "picture"]
SourceKind = Literal[Command, "picture-text"]
"""What a source is opened for."""
Sums = Literal["one", "less", "any"]
Needs = Literal["weights", "gradients", "values", "effects"]
Form = Literal["text", "document", "rows", "arrays", "maps", "links", "textgrid", "vtt", "nothing"]
"""What a format is written from."""
DataKind = Literal[
    "maps",
    "heads",
    "corpus",
    "comparison",
    "ablation",
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
RoleKind = Literal["acts", "rests"]
"""What a role says of a head: what it does where it can, or where it rests when it cannot."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A name's summary (the first line of its docstring) and where its code is.

    Attributes:
        package: the package that added the row, of a plug-in; its target is complete.
    """

    summary: str
    target: str
    package: str = field(default="", kw_only=True)
    room: ClassVar[str] = ""
    """What stands before the target of every such row."""

    def load(self) -> Any:
        """The object that the target "module:attribute" names.

        Raises:
            PluginError: a plug-in's cannot be had.
        """
        from importlib import import_module

        room = "" if self.package else self.room
        module, _, attribute = f"{room}{self.target}".partition(":")
        try:
            return getattr(import_module(module), attribute)
        except INTERRUPTIONS:
            raise
        except BaseException as error:
            if not self.package:
                raise
            raise PluginError(
                f"'{self.target}' of the package {self.package} cannot be loaded: "
                f"{error_line(error)}"
            ) from error


@dataclass(frozen=True, slots=True)
class Mechanism(Entry):
    """A formula, offered by some commands, and what an own layer needs around it.

    Attributes:
        projected: False where inputs serve as queries, keys and values as they are.
        causal: the name of its causal form, where a mask alone does not make it causal; its own
            where it is always causal.
        scaled: whether scores are divided by the root of the head size; None where weights are no
            softmax of a query times a key.
        sums: what a row of weights sums to: one, less where a sink takes a share, or anything.
        signed: True where weights may be negative.
        groups: how many heads have keys and values of their own: all, half of them, or one.
        learned: further parameters by name, with their axes in words: "4 half_head"; "keys heads"
            and "queries size" are of each position, sigmoid(inputs @ w_NAME).
        streams: of co-attention, the part that each stream of `attnviz co` shows.
        module: the class of `attnviz.layers.co_attention` that `CoAttention` builds for it.
    """

    room = "attnviz.mechanisms."
    commands: tuple[Command, ...] = ("self", "cross")
    projected: bool = True
    many_heads: bool = True
    causal: str | None = None
    scaled: bool | None = None
    sums: Sums = "one"
    signed: bool = False
    groups: Literal["all", "half", "one"] = "all"
    learned: Mapping[str, str] = field(default_factory=dict)
    streams: Mapping[str, str] = field(default_factory=dict)
    module: str = ""


@dataclass(frozen=True, slots=True)
class Format(Entry):
    """A data format.

    Attributes:
        report: where the code is for other data than maps, "module:attribute"; empty: maps only.
        grows: True where a file is complete after each text, so that a run can continue it.
    """

    suffix: str = ""
    form: Form = "maps"
    report: str = ""
    binary: bool = False
    grows: bool = False

    def load_report(self) -> Any:
        """The object that `report` names."""
        return Entry(self.summary, self.report).load()


@dataclass(frozen=True, slots=True)
class Measure(Entry):
    """A number for each head.

    Attributes:
        role: the kind of role that a head has once it beats uniform attention clearly; None: none.
        color: of the role, red, green and blue, told apart by the colour-blind too (most are Okabe
            and Ito's, 2008).
        repeated: True where it is read off a repeated sequence.
    """

    room = "attnviz.analyses.measures."
    short: str
    role: RoleKind | None = None
    color: tuple[int, int, int] | None = None
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Lens(Entry):
    """What can be made of weights, which are in every map, or of what only a model can tell."""

    room = "attnviz.analyses.lenses."
    needs: Needs = "weights"


@dataclass(frozen=True, slots=True)
class LessonEntry(Entry):
    """A row of the table of lessons."""

    room = "attnviz.teach.lessons."


@dataclass(frozen=True, slots=True)
class CommandEntry(Entry):
    """A row of the table of commands."""

    room = "attnviz.cli.commands."


MECHANISMS: dict[str, Mechanism] = {
    "naive": Mechanism(
        "Attention of the inputs over themselves, without projections or scaling.",
        "dot_product:naive",
        projected=False,
        scaled=False,
        many_heads=False,
    ),
    "single-head": Mechanism(
        "Attention of one head over projected inputs, without scaling.",
        "dot_product:single_head",
        scaled=False,
        many_heads=False,
    ),
    "scaled": Mechanism(
        "Scaled dot-product attention: scores divided by the root of the head size.",
        "dot_product:scaled",
        many_heads=False,
        scaled=True,
    ),
    "causal": Mechanism(
        "Scaled dot-product attention in which no position sees a later one.",
        "dot_product:causal",
        ("self",),
        causal="causal",
        many_heads=False,
        scaled=True,
    ),
    "multi-head": Mechanism(
        "Scaled dot-product attention in several heads at once, joined again.",
        "dot_product:multi_head",
        scaled=True,
    ),
    "cross": Mechanism(
        "Multi-head attention of one sequence's queries over another's keys and values.",
        "dot_product:cross",
        ("cross",),
        scaled=True,
    ),
    "linear": Mechanism(
        "Linear attention: a feature map in place of the softmax, at a cost linear in length.",
        "linear:linear",
        causal="causal-linear",
        many_heads=False,
    ),
    "causal-linear": Mechanism(
        "Linear attention by prefix sums, in which no position sees a later one.",
        "linear:causal_linear",
        ("self",),
        causal="causal-linear",
        many_heads=False,
    ),
    "additive": Mechanism(
        "Attention scored by a small network of the query plus the key, v · tanh(q + k).",
        "weighing:additive",
        learned={"w_score": "head 1"},
    ),
    "relative": Mechanism(
        "Attention with a learned vector for each distance, added to the keys and to the values.",
        "relative:relative",
        ("self",),
        learned={"relative_key": "5 head", "relative_value": "5 head"},
    ),
    "relative-bias": Mechanism(
        "Attention with a learned number for each range of distances, added to the scores (T5).",
        "relative:relative_bias",
        ("self",),
        learned={"bias": "32 heads"},
    ),
    "alibi": Mechanism(
        "Attention with a penalty that grows with distance, at a slope of its own for each head.",
        "relative:alibi",
        ("self",),
    ),
    "rotary": Mechanism(
        "Attention whose queries and keys are turned, pair by pair, by their position (RoPE).",
        "relative:rotary",
        ("self",),
    ),
    "grouped-query": Mechanism(
        "Attention whose heads share keys and values in groups.",
        "grouped:grouped_query",
        groups="half",
    ),
    "multi-query": Mechanism(
        "Attention whose heads all share the same keys and values.",
        "grouped:multi_query",
        groups="one",
    ),
    "latent": Mechanism(
        "Attention whose keys and values unfold from one small latent vector a position (MLA).",
        "grouped:latent",
        ("self",),
        projected=False,
        learned={
            "w_query": "input size",
            "w_turned_query": "input turned_heads",
            "w_latent": "input latent",
            "w_up_key": "latent size",
            "w_up_value": "latent size",
            "w_turned_key": "input turned",
        },
    ),
    "sliding-window": Mechanism(
        "Scaled dot-product attention to near keys only, so many positions to either side.",
        "relative:sliding_window",
        ("self",),
        scaled=True,
    ),
    "global-window": Mechanism(
        "Window attention with a few first positions that see everything and are seen by all.",
        "relative:global_window",
        ("self",),
        scaled=True,
    ),
    "sinks": Mechanism(
        "Attention in which a learned sink takes its share of each row and puts nothing out.",
        "weighing:sinks",
        sums="less",
        learned={"sink": "heads"},
    ),
    "soft-cap": Mechanism(
        "Attention whose scores are bent to stay within a cap, cap · tanh(score / cap).",
        "weighing:soft_cap",
    ),
    "differential": Mechanism(
        "Attention as the difference of two softmaxes, so that what both see cancels out.",
        "weighing:differential",
        sums="any",
        signed=True,
        learned={"balance": "4 half_head"},
    ),
    "gated": Mechanism(
        "Scaled dot-product attention whose output passes a gate that each query sets itself.",
        "weighing:gated",
        learned={"gate": "queries size"},
        scaled=True,
    ),
    "sigmoid": Mechanism(
        "Attention that weighs each key by itself, by a sigmoid instead of a softmax.",
        "weighing:sigmoid",
        sums="any",
    ),
    "online": Mechanism(
        "Scaled dot-product attention tile by tile, with a running maximum and sum of each row.",
        "weighing:online",
        scaled=True,
    ),
    "retention": Mechanism(
        "Linear attention that keeps a fixed share of its state from position to position.",
        "recurrent:retention",
        ("self",),
        causal="retention",
        sums="any",
        signed=True,
    ),
    "delta-rule": Mechanism(
        "Linear attention that corrects what its state answers to a key, instead of adding to it.",
        "recurrent:delta_rule",
        ("self",),
        causal="delta-rule",
        sums="any",
        signed=True,
        learned={"beta": "keys heads"},
    ),
    "gated-delta-rule": Mechanism(
        "Linear attention by the delta rule, whose state also fades as much as each position says.",
        "recurrent:gated_delta_rule",
        ("self",),
        causal="gated-delta-rule",
        sums="any",
        signed=True,
        learned={"beta": "keys heads", "alpha": "keys heads"},
    ),
    "co-parallel": Mechanism(
        "Co-attention of two sequences through one shared affinity, both summarised at once.",
        "co_attention:co_parallel",
        ("co",),
        projected=False,
        learned={
            "w_affinity": "first second",
            "w_first": "first hidden",
            "w_second": "second hidden",
            "first_score": "hidden",
            "second_score": "hidden",
        },
        streams={"affinity": "affinity", "a": "weights_first", "b": "weights_second"},
        module="ParallelCoAttention",
        many_heads=False,
    ),
    "co-alternating": Mechanism(
        "Co-attention in three turns: summarise one, let it guide the other, and back again.",
        "co_attention:co_alternating",
        ("co",),
        projected=False,
        learned={
            "w_first_inputs": "first hidden",
            "w_first_score": "hidden",
            "w_second_inputs": "second hidden",
            "w_second_guide": "first hidden",
            "w_second_score": "hidden",
            "w_first_again_inputs": "first hidden",
            "w_first_again_guide": "second hidden",
            "w_first_again_score": "hidden",
        },
        streams={
            "a-guided-by-b": "weights_first",
            "b-guided-by-a": "weights_second",
            "a-alone": "weights_alone",
        },
        module="AlternatingCoAttention",
        many_heads=False,
    ),
    "co-two-stream": Mechanism(
        "Co-attention of two streams, each one's queries over the other's keys and values.",
        "co_attention:co_two_stream",
        ("co",),
        projected=False,
        learned={
            f"w_{side}_{name}": f"{side} hidden"
            for side in ("first", "second")
            for name in ("query", "key", "value")
        },
        streams={"a-to-b": "weights_first", "b-to-a": "weights_second"},
        module="TwoStreamCoAttention",
    ),
}

FORMATS: dict[str, Format] = {
    "table": Format(
        "A table for the eye: one head or a mean, and a line for each head.",
        "attnviz.renderers.text.table:TableRenderer",
        ".txt",
        "text",
        "attnviz.renderers.reports:TextReport",
    ),
    "json": Format(
        "One JSON document with tokens, every weight and the provenance.",
        "attnviz.renderers.data.maps:JsonRenderer",
        ".json",
        "document",
        "attnviz.renderers.reports:JsonReport",
    ),
    "jsonl": Format(
        "One JSON document a line, a line a text.",
        "attnviz.renderers.data.maps:JsonLinesRenderer",
        ".jsonl",
        "document",
        "attnviz.renderers.reports:JsonLinesReport",
        grows=True,
    ),
    "csv": Format(
        "Comma-separated, one weight a row.",
        "attnviz.renderers.data.maps:CsvRenderer",
        ".csv",
        "rows",
        "attnviz.renderers.reports:CsvReport",
        grows=True,
    ),
    "tsv": Format(
        "Tab-separated, one weight a row, backslash escapes, never a quote.",
        "attnviz.renderers.data.maps:TsvRenderer",
        ".tsv",
        "rows",
        "attnviz.renderers.reports:TsvReport",
        grows=True,
    ),
    "npz": Format(
        "NumPy arrays with everything in them, readable without pickle.",
        "attnviz.renderers.data.maps:NpzRenderer",
        ".npz",
        "arrays",
        "attnviz.renderers.reports:TextReport",
        binary=True,
    ),
    "parquet": Format(
        "A table with a row for each text, for pandas, DuckDB and their like (needs pyarrow).",
        "attnviz.renderers.data.maps:ParquetRenderer",
        ".parquet",
        binary=True,
    ),
    "heatmap": Format(
        "One matrix as a picture in the terminal.", "attnviz.renderers.text.heatmap:TerminalHeatmap"
    ),
    "grid": Format(
        "Every head as a thumbnail in the terminal.", "attnviz.renderers.text.heatmap:TerminalGrid"
    ),
    "links": Format(
        "The strongest links between words, one a line: no special tokens, sinks or diagonal.",
        "attnviz.renderers.text.link_list:LinksRenderer",
    ),
    "pharaoh": Format(
        "The links of a pair's words on one line, as word aligners write them: 0-0 2-1.",
        "attnviz.renderers.reports:TextReport",
        ".txt",
        "links",
        "attnviz.renderers.reports:TextReport",
    ),
    "textgrid": Format(
        "Words with their times, as Praat reads them.",
        "attnviz.renderers.reports:TextReport",
        ".textgrid",
        "textgrid",
        "attnviz.renderers.reports:TextReport",
    ),
    "vtt": Format(
        "Words with their times as WebVTT, a cue each.",
        "attnviz.renderers.reports:TextReport",
        ".vtt",
        "vtt",
        "attnviz.renderers.reports:TextReport",
    ),
    "none": Format(
        "Nothing on stdout.",
        "attnviz.renderers.data.maps:NoRenderer",
        "",
        "nothing",
        "attnviz.renderers.data.maps:NoRenderer",
    ),
}

DATA_KINDS: dict[DataKind, tuple[Form, ...]] = {
    "maps": ("text", "document", "rows", "arrays", "maps"),
    "heads": ("text", "document", "rows"),
    "corpus": ("text", "document", "rows", "arrays"),
    "comparison": ("text", "document", "rows", "arrays"),
    "ablation": ("text", "document", "rows", "arrays"),
    "changes": ("text", "document", "rows"),
    "lenses": ("text", "document", "rows"),
    "alignment": ("links", "document", "rows"),
    "scores": ("text", "document", "rows"),
    "times": ("text", "document", "rows", "textgrid", "vtt"),
    "steps": ("text", "document", "arrays"),
    "lesson": ("text", "document", "rows"),
    "history": ("text", "document", "rows"),
    "listing": ("text", "document", "rows"),
}
"""What each kind of data can be written as, its usual form first."""

PICTURES: dict[str, Entry] = {
    "heatmap": Entry(
        "One matrix of weights as a heat map.", "attnviz.renderers.figures.heatmap:heatmap"
    ),
    "grid": Entry(
        "Every head of every layer side by side on one scale.",
        "attnviz.renderers.figures.grid:grid",
    ),
    "lines": Entry(
        "Two columns of tokens joined by lines, the heavier the larger the weight.",
        "attnviz.renderers.figures.lines:lines",
    ),
}

MEASURES: dict[str, Measure] = {
    "entropy": Measure("Mean entropy of a row, in nats.", "spread:entropy", "entr"),
    "relative-entropy": Measure(
        "Entropy as a share of the most that the visible keys allow.",
        "spread:relative_entropy",
        "rel",
    ),
    "span": Measure(
        "How many keys uniform attention of the same entropy would cover.", "spread:span", "span"
    ),
    "confidence": Measure(
        "Mean of each row's largest weight, without the end token.", "spread:confidence", "conf"
    ),
    "mass": Measure("Mean sum of a row, told where rows do not sum to 1.", "spread:mass", "mass"),
    "empty": Measure(
        "Rows that attend to nothing, told where there are any.", "spread:empty", "none"
    ),
    "distance": Measure(
        "Mean distance between a token and the tokens it attends to, in tokens.",
        "distance:distance",
        "dist",
    ),
    "offset": Measure(
        "Mean signed distance, negative towards the past.", "distance:offset", "offs"
    ),
    "patch-distance": Measure(
        "Mean distance between a patch of a picture and those it attends to, in patches.",
        "distance:patch_distance",
        "way",
    ),
    "previous-token": Measure(
        "Share that goes to the token before.",
        "shares:previous_token",
        "prev",
        "acts",
        (0, 114, 178),
    ),
    "next-token": Measure(
        "Share that goes to the token after.", "shares:next_token", "next", "acts", (86, 180, 233)
    ),
    "self": Measure(
        "Share that stays on the token itself.", "shares:own_token", "self", "acts", (68, 68, 68)
    ),
    "same-token": Measure(
        "Share that goes to other places of the same token.",
        "shares:same_token",
        "same",
        "acts",
        (204, 121, 167),
    ),
    "first-token": Measure(
        "Share that goes to the first token, from all the others.",
        "shares:first_token",
        "first",
        "rests",
        (230, 159, 0),
    ),
    "special-token": Measure(
        "Share that goes to special tokens.", "shares:special_token", "spec", "rests", (213, 94, 0)
    ),
    "punctuation": Measure(
        "Share that goes to punctuation marks.",
        "shares:punctuation",
        "punc",
        "rests",
        (240, 228, 66),
    ),
    "sink": Measure(
        "Attention that the strongest key gets from those who see it (Gu 2024).",
        "shares:sink",
        "sink",
    ),
    "induction": Measure(
        "On a repeated sequence, share that goes to the token after the earlier copy.",
        "repetition:induction",
        "ind",
        "acts",
        (0, 158, 115),
        repeated=True,
    ),
    "duplicate": Measure(
        "On a repeated sequence, share that goes to the earlier copy of the token.",
        "repetition:duplicate",
        "dup",
        "acts",
        (140, 211, 184),
        repeated=True,
    ),
}

PICTURE_SUFFIXES = (".png", ".svg", ".pdf")

LENSES: dict[str, Lens] = {
    "rollout": Lens(
        "How much of each input token is in each position after each layer.", "rollout:rollout"
    ),
    "flow": Lens(
        "The largest flow from each input token to each position after the last layer.", "flow:flow"
    ),
    "gradient": Lens(
        "Attribution of one output to each input token, by gradient-weighted attention.",
        "gradient:gradient",
        "gradients",
    ),
    "effect": Lens(
        "Estimated change of the output's log-probability, in nats, when a link is cut.",
        "effect:effect",
        "effects",
    ),
    "norm": Lens(
        "Length of each key's contribution to each query, over all heads together.",
        "norm:norm",
        "values",
    ),
}

LESSONS: dict[str, LessonEntry] = {
    "positions": LessonEntry(
        "Sinusoidal position encoding as a heat map.", "distance:positions_lesson"
    ),
    "rotary": LessonEntry(
        "Rotary positions: scores depend on distance alone, and fade with it.",
        "distance:rotary_lesson",
    ),
    "alibi": LessonEntry(
        "Biases by distance: ALiBi's slopes, and T5's ranges.", "distance:alibi_lesson"
    ),
    "scaling": LessonEntry(
        "Scaled against unscaled softmax as the head size grows.", "softmax:scaling_lesson"
    ),
    "temperature": LessonEntry(
        "One row of scores, softened and sharpened by a temperature.", "softmax:temperature_lesson"
    ),
    "online": LessonEntry(
        "Softmax tile by tile equals the whole, with its running maximum and sum.",
        "softmax:online_lesson",
    ),
    "sinks": LessonEntry(
        "A sink lets a head that finds nothing look at nothing.", "softmax:sinks_lesson"
    ),
    "masking": LessonEntry(
        "Full against causal attention over the same scores.", "masks:masking_lesson"
    ),
    "padding": LessonEntry("Why a padded batch needs a key mask.", "masks:padding_lesson"),
    "window": LessonEntry(
        "A sliding window: what one layer sees, and how far several reach.", "masks:window_lesson"
    ),
    "linear": LessonEntry(
        "Standard against linear attention: time and memory as the length grows.",
        "linear:linear_lesson",
    ),
    "delta": LessonEntry(
        "Linear attention forgets; the delta rule corrects what its state says.",
        "linear:delta_lesson",
    ),
    "cache": LessonEntry(
        "The key-value cache: what is computed again without it, and its bytes.",
        "memory:cache_lesson",
    ),
    "groups": LessonEntry(
        "Heads that share keys and values: memory against what is lost.", "memory:groups_lesson"
    ),
    "training": LessonEntry(
        "A small model learns to reverse a sequence: its heads, step by step.",
        "trained:training_lesson",
    ),
    "induction": LessonEntry(
        "A previous-token head feeds an induction head; cut the first, the second dies.",
        "trained:induction_lesson",
    ),
}


add_rows(
    {
        "attnviz.mechanisms": (MECHANISMS, Mechanism),
        "attnviz.lenses": (LENSES, Lens),
        "attnviz.measures": (MEASURES, Measure),
        "attnviz.formats": (FORMATS, Format),
    }
)

LARGEST_SEED = 2**64 - 1
LARGEST = 10**9
"""The largest number that an option takes. Memory is checked where an array is made."""
LIMITS = {"heads": (1, LARGEST), "size": (1, LARGEST), "seed": (0, LARGEST_SEED)}
"""What --mechanism takes behind a name, with the least and the largest number."""


@dataclass(frozen=True, slots=True)
class MechanismChoice:
    """A mechanism with the size and seed of its untrained layer.

    Numbers that are not given are None: each command has defaults of its own.
    """

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
    row = MECHANISMS[choose(name, MECHANISMS, "mechanism")]
    given: dict[str, int] = {}
    for part in numbers.split(",") if colon else ():
        key, _, number = (one.strip() for one in part.partition("="))
        if key not in LIMITS or key in given:
            wrong = f"'{key}' twice" if key in given else f"'{part.strip()}'"
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
        given[key] = int(number)
    if given.get("heads", 1) > 1 and not row.many_heads:
        raise UsageError(f"mechanism '{name}' has one head: leave heads={given['heads']} out")
    return MechanismChoice(name, **given)


REDUCED = ("mean", "max", "sum", *LENSES)
"""Names of an axis that was reduced."""


def axis_name(what: str, name: str) -> str:
    """Such as "layer 3", "layer decoder.2.attention" or, of a reduced axis, "mean over layers"."""
    if " over " in name:
        return name  # "mean over channels"
    return f"{name} over {what}s" if name in REDUCED else f"{what} {name}"
