"""The layout of every JSON document that is written, in short and as JSON Schema for readers.

A layout names fields and their types: "layer head:str" are two texts, [] is a list of objects and
{} one object, ? may be absent. A report of `core` stands for its fields, less those with a minus.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import fields
from importlib import import_module
from inspect import cleandoc
from itertools import chain
from typing import Any, Literal, NamedTuple, get_args, get_type_hints

from msgspec import UNSET, UnsetType, defstruct
from msgspec.json import schema as schema_of

from attnviz.core.attention_map import Provenance
from attnviz.core.effects import Effect, HeadAt, LinkAt
from attnviz.core.errors import choose
from attnviz.core.measures import Argument, HeadRow, Meaning, Role
from attnviz.core.registry import SCHEMA, DataKind
from attnviz.features.ablate.report import LENS_MEASURES, AblationReport, Prediction
from attnviz.features.why.report import LayersReport
from attnviz.features.wiring.report import Wire, WiringReport
from attnviz.features.writers.report import LinkReport
from attnviz.storage.columns import TABLES, columns_of
from attnviz.storage.schema import Document

REPORTS = {
    one.__name__: one
    for one in (
        AblationReport,
        HeadAt,
        HeadRow,
        LayersReport,
        LinkReport,
        WiringReport,
    )
}
FEATURE_TYPES = {
    "AnswerReport": "explain.report",
    "CacheReport": "cache.report",
    "ChatReport": "chat.report",
    "ContrastReport": "explain.report",
    "CorpusReport": "corpus.results",
    "HeadClaim": "explain.report",
    "HeadReport": "measures.study",
    "SourcesReport": "sources.report",
    "TimedWord": "audio.timed_words",
    "TreebankReport": "treebank.study",
}
"""Types of features, each with its module, which is imported when its layout is asked for."""
SEEN = {one.__name__: one for one in (Provenance, Effect, HeadAt, LinkAt, Meaning, Role, Mapping)}
"""What modules of `core` import for type checkers alone."""
TYPES: dict[str, Any] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "strs": list[str],
    "ints": list[int],
    "floats": list[float],
    "matrix": list[list[float]],
    "no_str": str | None,
    "no_float": float | None,
    "place": int | str,
    "no_links": list[tuple[int, int]] | None,
    "HeadsAt": list[HeadAt],
    "table": list[dict[str, Any]],
    "objects": dict[str, Any],
    "lists": list[list[int]],
    "Provenance": Provenance,
    "Role": Role,
    "Meanings": list[Meaning],
    "Roles": list[Role],
    "Wires": list[Wire],
    "Arguments": list[Argument],
    "Predictions": list[Prediction],
}


class DocumentLayout(NamedTuple):
    """A document: the data that are written as it (None: what stderr and rejects hold).

    A document that is `open` has further fields, by the names of what it holds.
    """

    kind: DataKind | None
    summary: str
    text: str
    open: bool = False


SIDES = "a b:{caption:str provenance:Provenance}"
PAIRS = "pairs:[query key:str value:float]"
CLAIM = f"HeadClaim is_sure:bool why:{{LinkReport -logits {PAIRS}}}|"
ANSWER = (
    f"AnswerReport heads:[{CLAIM}] idle:{{{CLAIM}}}| is_small:bool "
    "claims:[about text:str link:{stream:str layer:place head query key:int}| heads:HeadsAt "
    "tokens:[side:str position:int]]"
)
OF_HEAD = (
    "measures:[measure:str mean sd low high uniform:float texts:int] "
    "positions:[offset:place mean share:float] classes:[class:str share uniform:float] "
    "pairs:[query key:str mean:float count:int] links:[rank:int weight:float query key id text:str]"
)
CURVE = "prune_curve:{unit texts:str off:ints orders:[by:str heads:HeadsAt losses:floats]}?"
RECORDING = "recording text against:str provenance:Provenance"
ABOUT = "caption:str provenance:Provenance"

LAYOUTS: dict[str, DocumentLayout] = {
    "maps": DocumentLayout("maps", "Attention of one text: tokens, every weight, provenance.", ""),
    "heads": DocumentLayout(
        *("heads", "Roles and measures of each head."),
        "HeadReport -rows note:str heads:[HeadRow writes:Arguments? kv:int?]",
    ),
    "similarity": DocumentLayout(
        *("heads", "Which heads attend alike."),
        f"{ABOUT} stream unit:str texts:int heads:[layer head:place place:floats] "
        "divergences:matrix plane_shows:float",
    ),
    "treebank": DocumentLayout("heads", "Which head finds which relation.", "TreebankReport"),
    "corpus": DocumentLayout(
        *("corpus", "Every head over a corpus."),
        f"CorpusReport -curve -things {CURVE} streams:[stream:str "
        "tokens paired:int measures:Meanings note:str "
        f"heads:[layer head:place roles:Roles {OF_HEAD}]]",
    ),
    "comparison": DocumentLayout(
        *("comparison", "What changed between two attentions."),
        f"{SIDES} stream unit:str heads:[a b:{{layer head:place}} divergence:float] notes:strs "
        "links:[query key:str layer head:place query_position key_position:int a b change:float]",
    ),
    "ablation": DocumentLayout(
        *("ablation", "Effects of heads, links and tokens that are switched off."),
        "AblationReport -predictions -maps id text source target:str? unit:str "
        "outputs:Predictions wrote:{before after:str}| provenance:Provenance",
    ),
    "ablation-comparison": DocumentLayout(
        *("changes", "What changed between two ablations."),
        f"{SIDES} unit:str rank_correlation:float only_in_a only_in_b:strs "
        "effects:[kind label:str a b change:float]",
    ),
    "why": DocumentLayout(
        *("why", "Why a head looks at a token, and what it argues for."),
        f"LinkReport -logits id:str? {PAIRS}",
    ),
    "layers": DocumentLayout(
        "why", "After which layer a prediction appears.", "LayersReport unit:str"
    ),
    "wiring": DocumentLayout(
        *("wiring", "Which heads read which heads."),
        "WiringReport -heads chance:float? roles:[HeadAt role:Role]",
    ),
    "ranking": DocumentLayout(
        *("match", "Documents by how well they match a query, the best first."),
        "query:str provenance:Provenance documents:[rank:int score:float id text:str]",
    ),
    "pair-score": DocumentLayout(
        *("answer", "What carries the score that a reranker gives a pair."),
        "id caption:str score p:float tokens:[side token:str position:int without effect:float] "
        "heads:[stream layer:str head:int without effect:float attention:no_float] "
        "reference:str notes:strs provenance:Provenance",
    ),
    "answer": DocumentLayout("answer", "What decided an answer.", ANSWER),
    "answers": DocumentLayout(
        *("answer", "Which heads carry the answers of several texts."),
        "small:int heads:[HeadAt texts:int effect:float] notes:strs provenance:Provenance "
        f"answers:[{ANSWER}]",
    ),
    "contrast": DocumentLayout(
        "answer", "What makes two texts have other answers.", "ContrastReport"
    ),
    "sources": DocumentLayout(
        *("sources", "Which parts of a context an answer was made from."),
        "SourcesReport sources:lists",
    ),
    "chat": DocumentLayout("chat", "Which parts of a chat its answer looks at.", "ChatReport"),
    "trace": DocumentLayout(
        *("trace", "Which sentences of a reasoning carry it."),
        f"{ABOUT} name:str tokens prompt_tokens:int answer right:str sentences:[number:int "
        "text:str tokens:int receiver effect kl:float answer_kl:no_float marks:strs "
        "needs changes:ints "
        "resampling:{different:float accuracy_without accuracy_with kl:no_float instead:str}|] "
        "heads:[layer:place head:int kurtosis:float] log_kl links:matrix temperature:float "
        "control_depth:bool passes:float resamples:int notes:strs",
    ),
    "lenses": DocumentLayout(
        *("lenses", "How far each lens can be trusted."),
        f"{ABOUT} unit conclusion rule:str texts:int tokens:table lenses:[lens:str texts:int "
        f"left_out:no_str {' '.join(LENS_MEASURES)}:{{mean low high:float}}]",
    ),
    "history": DocumentLayout(
        *("history", "What each head did over a training run, a list over its steps each."),
        "caption:str? run:str? steps:ints? heads:table? notes:strs? provenance:Provenance? "
        f"runs:[run:str {ABOUT} steps:ints notes:strs heads:table]? rules:objects",
    ),
    "cache": DocumentLayout("cache", "What smaller caches cost, rule by rule.", "CacheReport"),
    "alignment": DocumentLayout(
        *("alignment", "The aligned words of a pair, by position; null where the pair failed."),
        "id:str source target:no_str links:no_links score:float reliable:bool? notes:strs?",
    ),
    "scores": DocumentLayout(
        *("scores", "Precision, recall and error of each head's alignments."),
        "rows:[layer head:place precision recall alignment_error:float]",
    ),
    "times": DocumentLayout(
        *("times", "When each word is spoken, in seconds."),
        f"{RECORDING} heads:[layer head:int] words:TimedWords",
    ),
    "time-errors": DocumentLayout(
        *("times", "How far the times of words err, in seconds."),
        f"{RECORDING} note:str alignment_heads:[layer head:int]| "
        "errors:[name:str heads:[layer head:int] error start end:float]",
    ),
    "steps": DocumentLayout(
        *("steps", "Each matrix of a calculation, by its name."),
        "title formulas:str about notes compared:str? query_tokens key_tokens:strs",
        open=True,
    ),
    "examples": DocumentLayout("steps", "Several calculations by name.", "examples:objects"),
    "lesson": DocumentLayout(
        *("lesson", "The table of a lesson."),
        "title reference:str explanation:strs rows:table",
    ),
    "models": DocumentLayout("listing", "The list of models.", "rows:[model from about:str]"),
    "mechanisms": DocumentLayout(
        "listing", "All mechanisms.", "rows:[mechanism commands summary:str]"
    ),
    "lessons": DocumentLayout("listing", "The list of lessons.", "rows:[lesson summary:str]"),
    "example-files": DocumentLayout(
        "listing", "What the command examples writes.", "rows:[file about:str]"
    ),
    "card": DocumentLayout("listing", "The card of a model inside.", "model card:str"),
    "facts": DocumentLayout(
        "listing", "What can be seen of a model (models --check).", "", open=True
    ),
    "error": DocumentLayout(
        *(None, "An error on stderr, with --errors json."),
        "message error:str status:int",
    ),
    "note": DocumentLayout(None, "A note on stderr, with --errors json.", "message:str"),
    "reject": DocumentLayout(None, "A line of --on-error.", "line:int reason text:str"),
}
"""Every document by name."""


def type_of(name: str) -> Any:
    """The type of a document, as msgspec has types."""
    about: dict[str, Any] = {"schema": Literal[SCHEMA], "kind": Literal[name.replace("-", " ")]}
    if name == "maps":
        return defstruct("Maps", [*about.items()], bases=(Document,), kw_only=True)
    words = iter(re.findall(r"-?\w+|[][:{}?|]", LAYOUTS[name].text))
    return _object(name.title().replace("-", ""), words, about)


def feature_type(name: str) -> Any:
    """A type of a feature."""
    return getattr(import_module(f"attnviz.features.{FEATURE_TYPES[name]}"), name)


def type_named(word: str) -> Any:
    """The type that a layout's word names; of a feature many of a type, which end in s."""
    own = TYPES.get(word)
    return list[feature_type(word[:-1])] if not own and word[:-1] in FEATURE_TYPES else own  # type: ignore[misc]


def _object(name: str, words: Iterator[str], members: dict[str, Any]) -> Any:
    """The object whose fields are described up to the bracket that closes it."""
    names: list[str] = []
    last: list[str] = []
    reports: list[Any] = []
    less = set[str]()
    for word in words:
        if word in "]}":
            break
        if word == ":":
            last, names, kind = names, [], next(words)
            value = type_named(kind) or _object(f"{name}{last[-1].title()}", words, {})
            many: Any = list[value]  # type: ignore[valid-type]
            members |= dict.fromkeys(last, many if kind == "[" else value)
        elif word in "?|":
            more = UnsetType if word == "?" else None
            members |= {one: members[one] | more for one in last}
        elif word in REPORTS:
            reports.append(REPORTS[word])
        elif word in FEATURE_TYPES:
            reports.append(feature_type(word))
        elif word.startswith("-"):
            less.add(word[1:])
        else:
            names.append(word)
    for report in reports:
        own = [one.name for one in fields(report) if one.name not in less | members.keys()]
        own_types = {one: report.__annotations__[one] for one in own}
        hints = type(name, (), {"__annotations__": own_types, "__module__": report.__module__})
        members |= get_type_hints(hints, None, SEEN)
    rows: list[Any] = [
        (f"{key}_", kind, *([UNSET] if UnsetType in get_args(kind) else []))
        for key, kind in members.items()
    ]  # with a dash behind, since a field may be called "from"
    return defstruct(name, rows, kw_only=True, rename=lambda key: key[:-1])


def json_schema(name: str) -> dict[str, Any]:
    """The JSON Schema of a document. Where a number does not exist (NaN), null stands for it."""
    dialect = "https://json-schema.org/draft/2020-12/schema"
    schema: dict[str, Any] = _for_readers(schema_of(type_of(name)))
    return {"$schema": dialect, "title": name, "description": LAYOUTS[name].summary, **schema}


ANY = "*"
"""Stands for every name: in a document that is open, or in an object whose names are data."""


def check_fields(
    names: Collection[str], kind: DataKind, formats: Collection[str], document: str = ""
) -> None:
    """Refuse a field, such as heads.layer, or a column that no data of the kind has; a UsageError.

    Columns of measures are known when they are there. `document` is the one of the kind, if known.
    """
    own = [
        name for name, layout in LAYOUTS.items() if layout.kind == kind and document in ("", name)
    ]
    if not {"json", "jsonl"}.isdisjoint(formats):
        _check_paths(names, own)
    tables = [columns_of(table) for table in TABLES if table.partition(" ")[0] in own]
    columns = list(dict.fromkeys(chain(*tables)))
    if not {"tsv", "csv"}.isdisjoint(formats) and all(map(str.islower, columns)):
        for name in names if columns else ():
            choose(name, columns, "column")


def _check_paths(names: Iterable[str], documents: Iterable[str]) -> None:
    paths = dict[str, None]()
    for document in documents:
        schema = json_schema(document)
        paths |= dict.fromkeys(_paths(schema, schema.get("$defs", {})))
        paths |= {ANY: None} if LAYOUTS[document].open else {}
    for name in names:
        parts = name.split(".")
        if not any(".".join([*parts[:depth], ANY]) in paths for depth in range(len(parts))):
            above = {"", name.rpartition(".")[0]}
            choose(name, [one for one in paths if {one.rpartition(".")[0]} & above], "field")


def _paths(schema: Mapping[str, Any], types: Mapping[str, Any], at: str = "") -> Iterator[str]:
    """Every field below a part of a schema, by its path."""
    parts = [*schema.get("anyOf", ()), *schema.get("prefixItems", ())]
    parts += [types[schema["$ref"].rpartition("/")[2]]] if "$ref" in schema else []
    parts += [schema["items"]] if isinstance(schema.get("items"), Mapping) else []
    for part in parts:
        yield from _paths(part, types, at)
    for name, part in schema.get("properties", {}).items():
        yield f"{at}{name}"
        yield from _paths(part, types, f"{at}{name}.")
    if schema.get("type") == "object" and "properties" not in schema:
        yield f"{at}{ANY}"


def _for_readers(value: Any, name: str = "") -> Any:
    """A schema with texts that read well, in which null may stand for a number with a fraction.

    A layer and a head are numbers, unless they are no single one ("mean", a module's path).
    """
    if isinstance(value, list):
        return [_for_readers(one) for one in value]
    if not isinstance(value, dict):
        return value
    kinds = {one.get("type") for one in value.get("anyOf", [value])}
    if name in ("layer", "head") and "string" in kinds:
        return {"type": sorted({*kinds, "integer"})}
    result = {key: _for_readers(one, key) for key, one in value.items()}
    if isinstance(result.get("description"), str):
        result["description"] = cleandoc(result["description"])
    return result | {"type": ["number", "null"]} if result.get("type") == "number" else result
