"""What the pocket model read for maps that it has already made, once more as numbers of pieces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnviz.core.attention_map import Attention, AttentionMap
from attnviz.core.errors import InputError
from attnviz.models.pocket.network import decode, encode
from attnviz.models.pocket.text import (
    END,
    OTHER,
    EncodedText,
    embed_many,
    languages_of,
    own_shares,
    read_text,
)
from attnviz.storage.texts import Text
from attnviz.storage.texts.batches import MEMORY_BUDGET, Lengths, batches, chunks_by_memory

if TYPE_CHECKING:
    from attnviz.models.pocket.source import Pocket


@dataclass(frozen=True, slots=True)
class Inputs:
    """Pieces by number.

    Attributes:
        source: what the encoder reads; <eos> alone where the decoder stands by itself.
        target: what the decoder reads, a language's tag first; empty where only the encoder runs.
    """

    source: list[int]
    target: list[int]


def inputs_of(pocket: Pocket, attention: Attention) -> Inputs:
    """The pieces behind a text's maps, or behind those of a pair."""
    settings = attention.provenance.settings
    if attention.main.stream == "cross":
        source, _ = read_text(attention.source or "", pocket.tokenizer, "source").ended()
        target = read_text(attention.target or "", pocket.tokenizer, "target")
        language = str(settings["direction"]).split()[-1]
        return Inputs(source, target.tagged(language)[0])
    reading = read_text(attention.text or "", pocket.tokenizer)
    if attention.main.stream == "causal":
        return Inputs([END], reading.tagged(str(settings["language"]))[0])
    return Inputs(reading.ended()[0], [])


# <passes> Texts through the pocket model, as many as there are in one pass, and each one's maps.


@dataclass(frozen=True, slots=True)
class DecoderInput:
    """What a decoder reads.

    Attributes:
        reading: the target in pieces.
        language: its own.
        notes: what a reader must know of it.
        translated: True where the model wrote it.
    """

    reading: EncodedText
    language: str
    notes: tuple[str, ...] = ()
    translated: bool = False


def over_themselves(pocket: Pocket, readings: Sequence[EncodedText]) -> list[Attention]:
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


def causally(pocket: Pocket, readings: Sequence[EncodedText]) -> list[Attention]:
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


def goals_of(
    pocket: Pocket, sources: Sequence[EncodedText], targets: Sequence[EncodedText]
) -> list[DecoderInput]:
    """Given targets with their languages, which are told by both texts of a pair."""
    found = (
        [(pocket.to, list[str]()) for _ in targets]
        if pocket.to
        else languages_of(pocket.weights, pocket.sizes, targets, sources)
    )
    return [
        DecoderInput(target, language, (*target.notes("the target"), *notes))
        for target, (language, notes) in zip(targets, found, strict=True)
    ]


def across(
    pocket: Pocket, sources: Sequence[EncodedText], goals: Sequence[DecoderInput]
) -> list[Attention]:
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


# <together> Many texts through the pocket model at once, each with the numbers that it has alone.

TOKENS = 1024
"""Pieces of a batch at most, padding counted."""

Readings = tuple[EncodedText, ...]
"""One text, or a source and its target."""


def attend_many(
    pocket: Pocket, texts: Sequence[Text], *, alone: bool, batch_size: int | None = None
) -> Iterator[Attention | InputError]:
    """The attention of each text or pair, in order; one that cannot be used gives its error.

    Args:
        pocket: the model.
        texts: what it reads. A pair without a target is read in its turn, by itself, because the
            model has to write the target first.
        alone: True for a text's attention over itself.
        batch_size: texts that are read at once at most; None: as many as is good.
    """
    prepared = [prepare(pocket, text, alone=alone) for text in texts]
    sizes = [bytes_of(pocket, readings) if readings else 0 for readings in prepared]
    for stretch in chunks_by_memory(sizes, MEMORY_BUDGET):
        items = {number: item for number in stretch if (item := prepared[number])}
        found = read(pocket, items, batch_size)
        for number in stretch:
            if number in found:
                yield found.pop(number)
            else:
                yield by_itself(pocket, texts[number], alone=alone)


def prepare(pocket: Pocket, text: Text, *, alone: bool) -> Readings | None:
    """A text or a pair in pieces; None where it cannot be read with others."""
    try:
        if alone:
            return (read_text(text.text, pocket.tokenizer),)
        if text.target is None:
            return None
        source = read_text(text.text, pocket.tokenizer, "source")
        return source, read_text(text.target, pocket.tokenizer, "target")
    except InputError:
        return None


def by_itself(pocket: Pocket, text: Text, *, alone: bool) -> Attention | InputError:
    """One text's attention from a pass of its own, or why it cannot be had."""
    try:
        return (
            pocket.attend_self(text.text) if alone else pocket.attend_cross(text.text, text.target)
        )
    except InputError as error:
        return error


def read(pocket: Pocket, items: Mapping[int, Readings], most: int | None) -> dict[int, Attention]:
    """The attention of each, batch by batch."""
    found = dict[int, Attention]()
    plan = batches(
        list(items), lambda number: lengths_of(items[number]), tokens=TOKENS, most=most, even=False
    )
    for batch in plan:
        sources, *targets = (list(texts) for texts in zip(*map(items.get, batch), strict=True))
        attend = pocket.attend_readings
        made = (
            across(pocket, sources, goals_of(pocket, sources, *targets))
            if targets
            else attend(sources)
        )
        found |= dict(zip(batch, map(pocket.kept, made), strict=True))
    return found


def lengths_of(readings: Readings) -> Lengths:
    """How many positions each text has, with the special piece around it."""
    return tuple(len(reading.ids) + 1 for reading in readings)


def bytes_of(pocket: Pocket, readings: Readings) -> int:
    """What the maps of a text or a pair take."""
    sizes = pocket.sizes
    keys, queries = (*lengths_of(readings), 0)[:2]
    cells = sizes.encoder_layers * keys**2 + sizes.decoder_layers * queries * (keys + queries)
    return 4 * sizes.heads * cells
