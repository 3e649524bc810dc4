"""What a saved document may hold, checked for every format and every command that reads one.

docs/files.md describes the layout. Unknown fields are ignored.
"""

import re
from math import nan
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct, ValidationError, convert, structs

from attnviz.core.attention_map import Focus, Link, MeasuredLink, Provenance, Token, Values
from attnviz.core.effects import By, Effect, SavedEffects, instead_in_words
from attnviz.core.errors import InputError

Made = TypeVar("Made")
Position = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Name = str | int
Fact = str | int | float | bool | None
Facts = dict[str, Fact | list[Fact] | dict[str, Fact]]
_AT = re.compile(r"(.*?)(?: - at `\$\.?(.*)`)?", re.DOTALL)


class TokenDocument(Struct):
    """A token; a bare text stands for one too."""

    text: str
    start: Position = 0
    end: Position = 0
    special: bool = False
    label: str | None = None
    kind: str = "token"
    span: tuple[Position, Position] | None = None


class LinkDocument(Struct):
    """One of the strongest links beside a map of blocks."""

    query: str
    key: str
    weight: float
    layer: Name
    head: Name
    query_position: Position
    key_position: Position


class MeasuredDocument(Struct):
    """A link with its effect, as estimated and as measured."""

    stream: str
    link: LinkDocument
    estimated: float
    measured: float | None = None


class MapDocument(Struct):
    """One stream; its weights stand here, or else where the format keeps them."""

    stream: str
    query_tokens: list[TokenDocument | str]
    key_tokens: list[TokenDocument | str]
    weights: Any = None
    shape: tuple[Position, Position, Position, Position] | None = None
    layers: list[Name] = []
    heads: list[Name] = []
    head_layers: list[Name] = []
    values: Values = "share"
    unit: str = "share of a row's attention"
    query_text: str = "text"
    key_text: str = "text"
    blocks: tuple[Count, Count] = (1, 1)
    starts: tuple[Position, Position] = (0, 0)
    links: list[LinkDocument] = []
    begins: bool = True


class Document(Struct):
    """One text."""

    maps: Annotated[list[MapDocument], Meta(min_length=1)]
    provenance: dict[str, Any] = {}
    id: Name | float = "0"
    text: str | None = None
    source: str | None = None
    target: str | None = None
    measured: list[MeasuredDocument] = []
    idle: list[MeasuredDocument] = []
    decisive: list[MeasuredDocument] = []
    sinks: dict[str, Any] = {}  # what sinks hold, for whoever reads the file


class FocusDocument(Struct):
    """The head that a source says to show first."""

    layer: Name
    head: Name
    why: str


class ScoresDocument(Struct):
    """Measures of a head's scores before the softmax; null: no value."""

    stream: str
    layer: Name
    head: Name
    scores: dict[str, float | None]


class EffectDocument(Struct):
    """The effect of a part that was switched off; null: nothing was left to see."""

    label: str
    kind: str
    effect: float | None
    interval: tuple[float, float] | None = None
    texts: Count = 1


class AblationDocument(Struct):
    """The effects of one run; what else there is stays unread."""

    caption: str
    by: By
    effects: Annotated[list[EffectDocument], Meta(min_length=1)]
    together: EffectDocument | None = None
    reference: Annotated[int, Meta(ge=0)] = 0
    provenance: dict[str, Any] = {}
    text: str | None = None
    source: str | None = None
    target: str | None = None


def fit(value: Any, kind: type[Made], where: str, under: str = "") -> Made:
    """The value as that type; an InputError names the field, the type found and the one needed."""
    try:
        return convert(value, kind)
    except ValidationError as error:
        match = _AT.fullmatch(str(error))
        assert match
        path = ".".join(part for part in (under, match[2]) if part)
        reason = match[1][:1].lower() + match[1][1:].replace("`", "'")
        raise InputError(": ".join(filter(None, (where, path, reason)))) from error


def fit_provenance(value: Any, where: str) -> Provenance:
    """The provenance in a document; what is missing stays unknown."""
    facts = {"source": "file", "model": "unknown", **fit(value, dict[str, Any], where)}
    place = "provenance"
    # Deeply nested values could be neither written again nor shown.
    fit(facts.get("settings", {}), Facts, where, f"{place}.settings")
    return fit(facts, Provenance, where, place)


def tokens_of(tokens: list[TokenDocument | str]) -> tuple[Token, ...]:
    """Tokens as maps have them."""
    return tuple(
        Token(item) if isinstance(item, str) else Token(**structs.asdict(item)) for item in tokens
    )


def heads_of(item: MapDocument) -> tuple[str, ...]:
    """The names of a map's heads; of heads of several layers with their layers, "2.3"."""
    if len(item.head_layers) == len(item.heads):
        return tuple(
            f"{layer}.{head}" for layer, head in zip(item.head_layers, item.heads, strict=True)
        )
    return tuple(map(str, item.heads))


def links_of(links: list[LinkDocument]) -> tuple[Link, ...]:
    """Links as maps have them."""
    return tuple(
        Link(**structs.asdict(item) | {"layer": str(item.layer), "head": str(item.head)})
        for item in links
    )


def focus_of(facts: dict[str, Any], where: str) -> dict[str, Focus]:
    """The heads to show first, by stream."""
    heads = fit(facts.get("focus", {}), dict[str, FocusDocument], where, "provenance.focus")
    return {name: Focus(str(one.layer), str(one.head), one.why) for name, one in heads.items()}


def scores_of(facts: dict[str, Any], where: str) -> dict[tuple[str, str, str], dict[str, float]]:
    """The measures of scores by head; in schema 1 each is a list."""
    entries = facts.get("scores", [])
    if isinstance(entries, list):
        names = ScoresDocument.__struct_fields__
        entries = [dict(zip(names, x, strict=False)) if isinstance(x, list) else x for x in entries]
    rows = fit(entries, list[ScoresDocument], where, "provenance.scores")
    return {
        (one.stream, str(one.layer), str(one.head)): {
            name: nan if value is None else value for name, value in one.scores.items()
        }
        for one in rows
    }


def group_sizes_of(facts: dict[str, Any], where: str) -> dict[str, dict[str, int]]:
    """How many heads share each head of keys and values, by stream and layer."""
    sizes = facts.get("group_sizes", {})
    return fit(sizes, dict[str, dict[str, Count]], where, "provenance.group_sizes")


def measured_of(links: list[MeasuredDocument]) -> tuple[MeasuredLink, ...]:
    """Links with their effects as an `Attention` has them."""
    return tuple(
        MeasuredLink(item.stream, links_of([item.link])[0], item.estimated, item.measured)
        for item in links
    )


def fit_effects(document: Any, where: str) -> SavedEffects:
    """The effects in a document of an ablation."""
    ablation = fit(document, AblationDocument, where)
    effects = tuple(
        Effect(one.label, one.kind, {}, nan if one.effect is None else one.effect, one.interval)
        for one in (*ablation.effects, *([ablation.together] if ablation.together else []))
    )
    provenance = fit_provenance(ablation.provenance, where)
    text = ablation.text or " / ".join(filter(None, (ablation.source, ablation.target)))
    caption = " · ".join(filter(None, (text, ablation.caption)))
    instead = instead_in_words(ablation.by, ablation.reference, effects)
    return SavedEffects(caption, instead, effects, provenance)
