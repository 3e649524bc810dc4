"""Many texts through the pocket model at once, each with the numbers that it has alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from attnviz.attention_map import Attention
from attnviz.errors import InputError
from attnviz.pocket.passes import across, goals_of
from attnviz.pocket.pocket import Pocket
from attnviz.pocket.text import Reading, read_text
from attnviz.texts import Text
from attnviz.texts.batches import ROOM, Lengths, batches, stretches

TOKENS = 1024
"""Pieces of a batch at most, padding counted."""

Readings = tuple[Reading, ...]
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
    for stretch in stretches(sizes, ROOM):
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
