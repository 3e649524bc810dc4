"""Many texts read at once, each with the numbers that it would have alone.

Texts of similar length are padded to the longest of them and read in one pass, and each one's part
is cut out; how it is made certain that padding changes nothing stands in `company`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from attnviz.attention_map import Attention
from attnviz.errors import AttnvizError, InputError
from attnviz.hugging_face.company import Together
from attnviz.hugging_face.devices import free_bytes
from attnviz.hugging_face.extent import DEFAULT_SIZE, heads_of
from attnviz.hugging_face.prepared import Prepared
from attnviz.hugging_face.quiet import quiet
from attnviz.texts import Text
from attnviz.texts.batches import ROOM, stretches

if TYPE_CHECKING:
    from attnviz.hugging_face.model import HuggingFaceModel

FEW = 4
"""Fewer texts than this are read one by one: a batch of them would save nothing."""


def attend_many(
    model: HuggingFaceModel, texts: Sequence[Text], *, alone: bool, batch_size: int | None = None
) -> Iterator[Attention | InputError]:
    """The attention of each text or pair, in order; one that cannot be used gives its error.

    Args:
        model: who reads.
        texts: what; what is read together depends on nothing else.
        alone: True for a text's attention over itself, or a sentence pair's over its two.
        batch_size: texts that are read at once at most; None: as many as is good.

    Raises:
        AttnvizError: every text would fail likewise.
    """
    most = room()
    with quiet():
        prepared = [prepare(model, text, alone=alone) for text in texts]
    heads = dict[str, int]()
    sizes = [0 if item is None else bytes_of(item, heads) for item in prepared]
    # What would take much of the room is read by itself.
    sizes = [0 if 8 * size > most else size for size in sizes]
    for stretch in stretches(sizes, most):
        items = {n: item for n in stretch if sizes[n] and (item := prepared[n]) is not None}
        with quiet():
            found = Together(model, items, batch_size).read() if len(items) >= FEW else {}
        for number in stretch:
            if number in found:
                yield found.pop(number)
            else:
                yield by_itself(model, texts[number], alone=alone)


def by_itself(model: HuggingFaceModel, text: Text, *, alone: bool) -> Attention | InputError:
    """One text's attention from a pass of its own, or why it cannot be had."""
    try:
        with quiet():
            return model.attend(model.prepare(text, alone=alone))
    except InputError as error:
        return error


def prepare(model: HuggingFaceModel, text: Text, *, alone: bool) -> Prepared | None:
    """A text as it can be read with others; None where it needs a pass of its own.

    So do texts that fail, whose error is then raised in their turn, and those that are pooled.
    """
    extent = model.extent
    written = model.writes is not None or (text.target is None and not alone)
    if written or extent.rows or extent.window or extent.keep_qk:
        return None
    try:
        prepared = model.prepare(text, alone=alone)
    except AttnvizError:
        return None
    longest = max(map(len, prepared.tokens.values()))
    return None if longest > (extent.max_size or DEFAULT_SIZE) else prepared


def bytes_of(prepared: Prepared, heads: dict[str, int]) -> int:
    """What the maps of a text take.

    Args:
        prepared: the text.
        heads: of each stream that was met before; others are added.
    """
    size = 0
    for stream, (queries, keys) in prepared.sides.items():
        if stream not in heads:
            heads[stream] = heads_of(prepared.part.config, stream)
        size += 4 * heads[stream] * queries * keys
    return size


def room() -> int:
    """Bytes of maps that are held at once.

    It has two sizes only, so that what is read together is the same wherever memory is not scarce.
    """
    import torch

    free = free_bytes(torch.device("cpu"))
    return ROOM if free is None or free > 4 * ROOM else ROOM // 8
