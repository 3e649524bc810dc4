"""The layout of every JSON document that is written, as types, and as JSON Schema for readers.

Most fields are those of the reports in `core`, which are written as they are.
"""

from collections.abc import Mapping
from dataclasses import fields
from inspect import cleandoc
from types import UnionType
from typing import Any, Literal, NamedTuple, get_args, get_type_hints

from msgspec import UNSET, UnsetType, defstruct
from msgspec.json import schema as schema_of

from attnviz.core.answers import AnswerReport, ContrastReport, HeadClaim, SourcesReport
from attnviz.core.attention_map import Provenance
from attnviz.core.corpus_report import CorpusReport
from attnviz.core.effects import LENS_MEASURES, AblationReport, Effect, HeadAt, Prediction
from attnviz.core.measures import Argument, HeadReport, HeadRow, Meaning, Role, TreebankReport
from attnviz.core.registry import DataKind
from attnviz.core.writers import LayersReport, LinkReport, Wire, WiringReport
from attnviz.storage.schema import Document
from attnviz.storage.timed_words import TimedWord

DIALECT = "https://json-schema.org/draft/2020-12/schema"
SEEN: dict[str, Any] = {
    "Mapping": Mapping,
    **{one.__name__: one for one in (Provenance, Effect, HeadAt, Meaning, Role)},
}
"""What modules of `core` import for type checkers alone."""
KEYWORDS = {"from_": "from", "class_": "class"}


class Layout(NamedTuple):
    """A document: the data that are written as it (None: what stderr and rejects hold), its type.

    A document that is `open` has further fields, by the names of what it holds.
    """

    kind: DataKind | None
    summary: str
    type: Any
    open: bool = False


def part(name: str, like: Any = None, without: str = "", /, **more: Any) -> Any:
    """A JSON object: the fields of a dataclass but some, and more."""
    names = [one.name for one in fields(like)] if like else []
    kept = {key: like.__annotations__[key] for key in names if key not in {*without.split(), *more}}
    module = like.__module__ if like else __name__
    hints = get_type_hints(
        type(name, (), {"__annotations__": kept, "__module__": module}), None, SEEN
    )
    found = hints | more
    rows = [(key, kind, *([UNSET] if is_optional(kind) else [])) for key, kind in found.items()]
    return defstruct(name, rows, kw_only=True, rename=KEYWORDS)  # type: ignore[arg-type]


def is_optional(kind: Any) -> bool:
    """Whether a field may be absent."""
    return isinstance(kind, UnionType) and UnsetType in get_args(kind)


def report(kind: str, like: Any = None, without: str = "", /, **more: Any) -> Any:
    """The document of a report: its number, its kind and what a `part` has."""
    about = {"schema": Literal[1], "kind": Literal[kind], **more}
    return part(kind.title().replace(" ", ""), like, without, **about)


def each(names: str, kind: Any) -> dict[str, Any]:
    """Several fields of one type."""
    return dict.fromkeys(names.split(), kind)


def rows(name: str, like: Any = None, without: str = "", /, **more: Any) -> Any:
    """A list of objects."""
    return list[part(name, like, without, **more)]  # type: ignore[misc]


TEXTS = each("text source target", str | UnsetType)
SIDE = part("Side", caption=str, provenance=Provenance)
NAMED = part("NamedHead", layer=str, head=str)
PAIRS = rows("WriterPair", query=str, key=str, value=float)
REASON = part("Reason", LinkReport, "logits", pairs=PAIRS)
CLAIM = part("Claim", HeadClaim, why=REASON | None, is_sure=bool)
LINK = tuple[str, str, str, int, int]
ANSWER = {
    "heads": list[CLAIM],
    "idle": CLAIM | None,
    "is_small": bool,
    "claims": rows("Sentence", about=str, text=str, link=LINK | None),
}
OF_HEAD = {
    "measures": rows(
        "MeasureOfHead", measure=str, **each("mean sd low high uniform", float), texts=int
    ),
    "positions": rows("ShareAtOffset", offset=str | int, mean=float, share=float),
    "classes": rows("ClassOfKeys", class_=str, share=float, uniform=float),
    "pairs": rows("WordPair", query=str, key=str, mean=float, count=int),
    "links": rows("Example", rank=int, weight=float, **each("query key id text", str)),
}
"""What a corpus tells of each head, by the tables of `corpus --show`."""
STREAM = {
    "heads": rows("HeadOfCorpus", layer=str, head=str, roles=list[Role], **OF_HEAD),
    "stream": str,
    "tokens": int,
    "paired": int,
    "measures": list[Meaning],
    "note": str,
}
ORDERS = rows("PruningOrder", by=str, heads=list[str], losses=list[float])
CURVE = part("PruningCurve", unit=str, texts=int, off=list[int], orders=ORDERS)
STEPS = {
    "schema": Literal[1],
    "title": str,
    "formulas": str,
    **each("about notes compared", str | UnsetType),
    **each("query_tokens key_tokens", list[str]),
}
RECORDING = {"provenance": Provenance, **each("recording text against", str)}
ERROR = each("error start end", float)
LENS = each(" ".join(LENS_MEASURES), part("Mean", mean=float, low=float, high=float))
SAID = {"schema": Literal[1], "message": str}
LISTS = {
    "models": part("Model", **each("model from_ about", str)),
    "mechanisms": part("MechanismRow", **each("mechanism commands summary", str)),
    "lessons": part("LessonRow", lesson=str, summary=str),
}

LAYOUTS: dict[str, Layout] = {
    "maps": Layout(
        "maps",
        "Attention of one text: tokens, every weight and the provenance.",
        defstruct("Maps", [("schema", Literal[1])], bases=(Document,), kw_only=True),
    ),
    "heads": Layout(
        "heads",
        "Roles and measures of each head.",
        report(
            *("heads", HeadReport, "rows"),
            note=str,
            heads=rows("Head", HeadRow, "writes", writes=list[Argument] | UnsetType),
        ),
    ),
    "similarity": Layout(
        "heads",
        "Which heads attend alike.",
        report(
            "similarity",
            **{**each("caption stream unit", str), "texts": int, "provenance": Provenance},
            heads=rows("HeadInPlane", layer=str, head=str, place=list[float]),
            divergences=list[list[float]],
            plane_shows=float,
        ),
    ),
    "treebank": Layout(
        "heads", "Which head finds which relation.", report("treebank", TreebankReport)
    ),
    "corpus": Layout(
        "corpus",
        "Every head over a corpus.",
        report(
            *("corpus", CorpusReport, "curve wiring things streams"),
            prune_curve=CURVE | UnsetType,
            wires=list[Wire] | UnsetType,
            streams=rows("StreamOfCorpus", **STREAM),
        ),
    ),
    "comparison": Layout(
        "comparison",
        "What changed between two attentions.",
        report(
            *("comparison",),
            **{**each("a b", SIDE), **each("stream unit", str), "notes": list[str]},
            heads=rows("HeadChange", **each("a b", NAMED), divergence=float),
            links=rows(
                *("LinkChange",),
                **{**each("query key layer head", str), **each("query_position key_position", int)},
                **each("a b change", float),
            ),
        ),
    ),
    "ablation": Layout(
        "ablation",
        "Effects of heads, links and tokens that are switched off.",
        report(
            *("ablation", AblationReport, "predictions maps wrote"),
            **{"id": str | UnsetType, **TEXTS, "unit": str, "provenance": Provenance},
            outputs=list[Prediction],
            wrote=part("Written", before=str, after=str) | None,
        ),
    ),
    "ablation-comparison": Layout(
        "changes",
        "What changed between two ablations.",
        report(
            *("ablation comparison",),
            **{**each("a b", SIDE), "unit": str, "rank_correlation": float},
            effects=rows("EffectChange", **each("kind label", str), **each("a b change", float)),
            **each("only_in_a only_in_b", list[str]),
        ),
    ),
    "why": Layout(
        "why",
        "Why a head looks at a token, and what it argues for.",
        report("why", LinkReport, "logits", pairs=PAIRS, id=str | UnsetType),
    ),
    "layers": Layout(
        "why", "After which layer a prediction appears.", report("layers", LayersReport, unit=str)
    ),
    "wiring": Layout(
        "wiring",
        "Which heads read which heads.",
        report(
            *("wiring", WiringReport, "heads chance roles"),
            chance=float | UnsetType,
            roles=rows("HeadRole", HeadAt, role=Role),
        ),
    ),
    "answer": Layout("answer", "What decided an answer.", report("answer", AnswerReport, **ANSWER)),
    "answers": Layout(
        "answer",
        "Which heads carry the answers of several texts.",
        report(
            *("answers",),
            small=int,
            notes=list[str],
            provenance=Provenance,
            heads=rows("Carrier", HeadAt, texts=int, effect=float),
            answers=rows("Answer", AnswerReport, **ANSWER),
        ),
    ),
    "contrast": Layout(
        "answer", "What makes two texts have different answers.", report("contrast", ContrastReport)
    ),
    "sources": Layout(
        "sources",
        "Which parts of a context an answer was made from.",
        report("sources", SourcesReport, sources=list[list[int]]),
    ),
    "lenses": Layout(
        "lenses",
        "How far each lens can be trusted.",
        report(
            *("lenses",),
            **{**each("caption unit conclusion rule", str), "texts": int, "provenance": Provenance},
            lenses=rows("LensRow", lens=str, texts=int, **LENS, left_out=str | None),
            tokens=list[dict[str, str | float]],
        ),
    ),
    "history": Layout(
        "history",
        "What each head did over a training run; each measure is a list over the steps.",
        report(
            *("history",),
            caption=str,
            steps=list[int],
            notes=list[str],
            provenance=Provenance,
            heads=list[dict[str, str | list[str | float | None]]],
        ),
    ),
    "alignment": Layout(
        "alignment",
        "The aligned words of a pair, by position; null where the pair failed.",
        part(
            *("Alignment",),
            id=str,
            **{**each("source target", str | None), "links": list[tuple[int, int]] | None},
            score=float,
            reliable=bool | UnsetType,
            notes=list[str] | UnsetType,
        ),
    ),
    "scores": Layout(
        "scores",
        "Precision, recall and error of each head's alignments.",
        rows("Score", **each("layer head", str), **each("precision recall alignment_error", float)),
    ),
    "times": Layout(
        "times",
        "When each word is spoken, in seconds.",
        part("Times", **RECORDING, heads=list[tuple[int, int]], words=list[TimedWord]),
    ),
    "time-errors": Layout(
        "times",
        "How far the times of words err, in seconds.",
        part(
            *("TimeErrors",),
            **{**RECORDING, "note": str, "alignment_heads": list[tuple[int, int]] | None},
            errors=rows("TimeError", name=str, heads=list[tuple[int, int]], **ERROR),
        ),
    ),
    "steps": Layout("steps", "Each matrix of a calculation.", part("Steps", **STEPS), open=True),
    "examples": Layout(
        "steps",
        "Several calculations by name.",
        part("Examples", schema=Literal[1], examples=dict[str, dict[str, Any]]),
    ),
    "lesson": Layout(
        "lesson",
        "The table of a lesson.",
        part(
            *("Lesson",),
            **{"schema": Literal[1], **each("title reference", str), "explanation": list[str]},
            rows=list[dict[str, Any]],
        ),
    ),
    **{
        name: Layout("listing", f"The list of {name}.", list[row])  # type: ignore[valid-type]
        for name, row in LISTS.items()
    },
    "card": Layout("listing", "The card of a model inside.", part("Card", model=str, card=str)),
    "facts": Layout("listing", "What can be seen of a model (models --check).", dict[str, Any]),
    "schemas": Layout("listing", "This list.", rows("SchemaRow", name=str, summary=str)),
    "error": Layout(
        None,
        "An error on stderr, with --errors json.",
        part("ErrorLine", **SAID, kind=Literal["error"], error=str, status=int),
    ),
    "note": Layout(
        None,
        "A note on stderr, with --errors json.",
        part("NoteLine", **SAID, kind=Literal["note"]),
    ),
    "reject": Layout(None, "A line of --rejects.", part("Reject", line=int, reason=str, text=str)),
}
"""Every document by name."""


def json_schema(name: str) -> dict[str, Any]:
    """The JSON Schema of a document. Where a number does not exist (NaN), null stands for it."""
    layout = LAYOUTS[name]
    found: dict[str, Any] = _nullable(schema_of(layout.type))
    return {"$schema": DIALECT, "title": name, "description": layout.summary, **found}


def _nullable(value: Any) -> Any:
    """A schema in which null may stand for each number that is not whole."""
    if isinstance(value, dict):
        made = {key: _nullable(one) for key, one in value.items()}
        if isinstance(made.get("description"), str):
            made["description"] = cleandoc(made["description"])
        return made | {"type": ["number", "null"]} if made.get("type") == "number" else made
    return [_nullable(one) for one in value] if isinstance(value, list) else value
