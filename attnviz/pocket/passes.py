"""Texts through the pocket model, as many as there are in one pass, and each one's maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnviz.attention_map import Attention, AttentionMap
from attnviz.pocket.batch import embed_many, own_shares
from attnviz.pocket.language import OTHER, languages_of
from attnviz.pocket.model import decode, encode
from attnviz.pocket.text import Reading
from attnviz.pocket.tokenizer import END

if TYPE_CHECKING:
    from attnviz.pocket.pocket import Pocket


@dataclass(frozen=True, slots=True)
class Goal:
    """What a decoder reads.

    Attributes:
        reading: the target in pieces.
        language: its own.
        notes: what a reader must know of it.
        translated: True where the model wrote it.
    """

    reading: Reading
    language: str
    notes: tuple[str, ...] = ()
    translated: bool = False


def over_themselves(pocket: Pocket, readings: Sequence[Reading]) -> list[Attention]:
    """Each text's attention over itself in the encoder."""
    ended = [reading.ended() for reading in readings]
    inputs, mask = embed_many(pocket.weights, pocket.sizes, [ids for ids, _ in ended])
    _, shares = encode(pocket.weights, pocket.sizes, inputs, mask)
    own = own_shares(shares, [(len(ids), len(ids)) for ids, _ in ended])
    return [
        Attention(
            (AttentionMap("encoder", tokens, tokens, weights),),
            pocket.provenance(reading.notes("the text")),
            reading.text,
        )
        for reading, (_, tokens), weights in zip(readings, ended, own, strict=True)
    ]


def causally(pocket: Pocket, readings: Sequence[Reading]) -> list[Attention]:
    """Each text's attention over itself in the decoder, where no position sees a later one.

    So padding behind a text needs no mask.
    """
    weights, sizes = pocket.weights, pocket.sizes
    languages = (
        [pocket.to for _ in readings]
        if pocket.to
        else [language for language, _ in languages_of(weights, sizes, readings)]
    )
    tagged = [reading.tagged(name) for reading, name in zip(readings, languages, strict=True)]
    inputs, _ = embed_many(weights, sizes, [ids for ids, _ in tagged])
    memory, _ = encode(weights, sizes, embed_many(weights, sizes, [[END]])[0])
    _, shares, _ = decode(weights, sizes, inputs, memory)
    own = own_shares(shares, [(len(ids), len(ids)) for ids, _ in tagged])
    return [
        Attention(
            (AttentionMap("causal", tokens, tokens, array),),
            pocket.provenance(reading.notes("the text"), {"language": language}),
            reading.text,
        )
        for reading, language, (_, tokens), array in zip(
            readings, languages, tagged, own, strict=True
        )
    ]


def goals_of(pocket: Pocket, sources: Sequence[Reading], targets: Sequence[Reading]) -> list[Goal]:
    """Given targets with their languages, which are told by both texts of a pair."""
    found = (
        [(pocket.to, list[str]()) for _ in targets]
        if pocket.to
        else languages_of(pocket.weights, pocket.sizes, targets, sources)
    )
    return [
        Goal(target, language, (*target.notes("the target"), *notes))
        for target, (language, notes) in zip(targets, found, strict=True)
    ]


def across(pocket: Pocket, sources: Sequence[Reading], goals: Sequence[Goal]) -> list[Attention]:
    """Each pair's attention: streams "cross", "encoder" and "decoder"."""
    weights, sizes = pocket.weights, pocket.sizes
    ended = [source.ended() for source in sources]
    tagged = [goal.reading.tagged(goal.language) for goal in goals]
    inputs, mask = embed_many(weights, sizes, [ids for ids, _ in ended])
    memory, encoder = encode(weights, sizes, inputs, mask)
    inputs, _ = embed_many(weights, sizes, [ids for ids, _ in tagged])
    _, decoder, cross = decode(weights, sizes, inputs, memory, mask)
    keys, queries = [len(ids) for ids, _ in ended], [len(ids) for ids, _ in tagged]
    shares = zip(
        own_shares(cross, list(zip(queries, keys, strict=True))),
        own_shares(encoder, list(zip(keys, keys, strict=True))),
        own_shares(decoder, list(zip(queries, queries, strict=True))),
        strict=True,
    )
    found = []
    for source, goal, (_, key), (_, query), own in zip(
        sources, goals, ended, tagged, shares, strict=True
    ):
        maps = (
            AttentionMap("cross", query, key, own[0], query_side="target", key_side="source"),
            AttentionMap("encoder", key, key, own[1], query_side="source", key_side="source"),
            AttentionMap("decoder", query, query, own[2], query_side="target", key_side="target"),
        )
        settings: dict[str, Any] = {
            "direction": f"{OTHER[goal.language]} to {goal.language}",
            "translated": goal.translated,
        }
        notes = [*source.notes("the source"), *goal.notes]
        provenance = pocket.provenance(notes, settings, pocket.focus())
        found.append(Attention(maps, provenance, source=source.text, target=goal.reading.text))
    return found
