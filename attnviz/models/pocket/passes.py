"""Queries through the pocket model, one or many in a pass, and each one's maps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.core.attention_map import Attention, AttentionMap, Focus, Token
from attnviz.core.errors import InputError
from attnviz.core.query import Query
from attnviz.models.kinds import check_kind
from attnviz.models.pocket.model import OTHER, PocketModel, to_numpy
from attnviz.models.pocket.network import decode, encode
from attnviz.models.pocket.text import EncodedQuery, EncodedText
from attnviz.storage.texts import MEMORY_BUDGET, batches, chunks_by_memory

if TYPE_CHECKING:
    from numpy.typing import NDArray

BATCH_TOKENS = 1024
"""Pieces of a batch at most, padding counted."""

Texts = tuple[EncodedText, ...]
"""One text, or a source and its target."""


def attend_batches(
    model: PocketModel,
    queries: Sequence[Query],
    batch_size: int | None,
    finish: Callable[[EncodedQuery, Attention], Attention],
) -> Iterator[Attention | InputError]:
    """The maps of each query in order, read in batches of similar length.

    Args:
        model: the model.
        queries: texts and pairs. A pair without a target is read in its turn, by itself, because
            the model has to write the target first.
        batch_size: queries of a batch at most; None: as many as fit.
        finish: what is done to each query's maps.
    """
    found: dict[int, Attention | InputError] = {}
    items: dict[int, Texts] = {}
    for number, query in enumerate(queries):
        try:
            items[number] = encode_texts(model, query)
        except InputError as error:
            found[number] = error
    sizes = [bytes_of(model, items.get(number, ())) for number in range(len(queries))]
    for chunk in chunks_by_memory(sizes, MEMORY_BUDGET):
        # Texts alone and pairs go through different layers; a pair without a target waits.
        for kind, texts in (("self", 1), ("cross", 2)):
            alike = [
                number
                for number in chunk
                if queries[number].kind == kind and len(items.get(number, ())) == texts
            ]
            plan = batches(
                alike,
                lambda number: lengths_of(items[number]),
                tokens=BATCH_TOKENS,
                most=batch_size,
                even=False,
            )
            for batch in plan:
                encoded = with_languages(model, [items[number] for number in batch])
                found |= zip(batch, map(finish, encoded, attend(model, encoded)), strict=True)
        for number in chunk:
            if number not in found:
                written = with_translation(model, items[number][0])
                found[number] = finish(written, attend(model, [written])[0])
            yield found.pop(number)


def encode_texts(model: PocketModel, query: Query) -> Texts:
    """A query's texts in pieces; of a pair without a target, the source alone.

    Raises:
        UsageError: the model does not answer this kind of query.
        InputError: a text that is blank or too long.
    """
    check_kind(query, "self", "cross")
    if query.kind == "self":
        return (model.encode_text(query.text),)
    source = model.encode_text(query.text, "source")
    if query.target is None:
        return (source,)
    return source, model.encode_text(query.target, "target")


def encode_query(model: PocketModel, query: Query) -> EncodedQuery:
    """A query as the model reads it; a missing target is written first.

    Raises:
        UsageError: the model does not answer this kind of query.
        InputError: a text that is blank or too long.
    """
    texts = encode_texts(model, query)
    if query.kind == "cross" and len(texts) == 1:
        return with_translation(model, texts[0])
    return with_languages(model, [texts])[0]


def with_translation(model: PocketModel, source: EncodedText) -> EncodedQuery:
    """A source and the model's own translation."""
    written, language, notes = model.write(source)
    target = model.encode_text(written, "target")
    notes = [*source.notes("the source"), *notes]
    return EncodedQuery(source, target, language, tuple(notes), translated=True)


def with_languages(model: PocketModel, items: Sequence[Texts]) -> list[EncodedQuery]:
    """Texts, or pairs, with the languages of what the decoder reads, guessed in one pass."""
    pairs = len(items[0]) == 2
    if not pairs and not model.causal:
        return [EncodedQuery(text, notes=tuple(text.notes("the text"))) for (text,) in items]
    targets = [texts[-1] for texts in items]
    if model.to:
        languages = [(model.to, list[str]()) for _ in targets]
    else:
        languages = model.languages(targets, [texts[0] for texts in items] if pairs else None)
    if not pairs:
        return [
            EncodedQuery(None, text, language, tuple(text.notes("the text")))
            for text, (language, _) in zip(targets, languages, strict=True)
        ]
    return [
        EncodedQuery(
            source,
            target,
            language,
            (*source.notes("the source"), *target.notes("the target"), *notes),
        )
        for (source, target), (language, notes) in zip(items, languages, strict=True)
    ]


def attend(model: PocketModel, queries: Sequence[EncodedQuery]) -> list[Attention]:
    """The maps of queries of one kind, from one pass over all of them."""
    weights, sizes = model.weights, model.sizes
    inputs, mask = model.embed_many([query.source_ids for query in queries])
    memory, encoder = encode(weights, sizes, inputs, mask)
    layers = {"encoder": encoder}
    if queries[0].target:
        # No mask: no position sees a later one, so none sees the padding behind its text.
        inputs, _ = model.embed_many([query.target_ids for query in queries])
        _, decoder, cross = decode(weights, sizes, inputs, memory, mask)
        if queries[0].source:
            layers = {"cross": cross, "encoder": encoder, "decoder": decoder}
        else:
            layers = {"causal": decoder}
    arrays = {stream: [to_numpy(layer) for layer in found] for stream, found in layers.items()}
    return [
        attention_of(
            model,
            query,
            {name: [layer[number] for layer in found] for name, found in arrays.items()},
        )
        for number, query in enumerate(queries)
    ]


def attention_of(
    model: PocketModel, query: EncodedQuery, arrays: Mapping[str, list[NDArray[np.float32]]]
) -> Attention:
    """A query's maps, from each layer's weights (heads, queries, keys) with their padding."""
    source, target = query.source, query.target
    sides = {
        "source": source.ended()[1] if source else (),
        "target": target.tagged(query.language)[1] if target else (),
    }

    def cut(stream: str, queries: tuple[Token, ...], keys: tuple[Token, ...]) -> Any:
        return np.stack([layer[:, : len(queries), : len(keys)] for layer in arrays[stream]])

    if not source or not target:
        ((stream, _),) = arrays.items()
        text = (source or target).text if source or target else ""
        tokens = sides["source"] or sides["target"]
        settings: dict[str, Any] = {"language": query.language} if target else {}
        item = AttentionMap(stream, tokens, tokens, cut(stream, tokens, tokens))
        return Attention((item,), model.provenance(query.notes, settings), text)
    maps = tuple(
        AttentionMap(
            stream,
            sides[rows],
            sides[columns],
            cut(stream, sides[rows], sides[columns]),
            query_side=rows,
            key_side=columns,
        )
        for stream, rows, columns in (
            ("cross", "target", "source"),
            ("encoder", "source", "source"),
            ("decoder", "target", "target"),
        )
    )
    settings = {
        "direction": f"{OTHER[query.language]} to {query.language}",
        "translated": query.translated,
    }
    guided = model.config["guided"]
    focus = {"cross": Focus(str(guided["layer"]), str(guided["head"]), "the alignment head")}
    provenance = model.provenance(query.notes, settings, focus)
    return Attention(maps, provenance, source=source.text, target=target.text)


def lengths_of(texts: Texts) -> tuple[int, ...]:
    """How many positions each text has, with the special piece around it."""
    return tuple(len(text.ids) + 1 for text in texts)


def bytes_of(model: PocketModel, texts: Texts) -> int:
    """What the maps of a text or a pair take."""
    sizes = model.sizes
    keys, queries = (*lengths_of(texts), 0, 0)[:2]
    cells = sizes.encoder_layers * keys**2 + sizes.decoder_layers * queries * (keys + queries)
    return 4 * sizes.heads * cells
