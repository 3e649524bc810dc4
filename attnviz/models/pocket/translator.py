"""The pocket model as a source of attention: queries, one or many in a pass, and their maps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import Attention, AttentionMap, Focus
from attnviz.core.errors import InputError, choose
from attnviz.core.query import Query
from attnviz.core.registry import ANSWERS
from attnviz.mechanisms.arrays import to_numpy
from attnviz.models import check_kind
from attnviz.models.pocket.model import FOLDER, OTHER, PocketModel, run_decoder, run_encoder
from attnviz.models.pocket.stored import add_projections, device_options
from attnviz.models.pocket.text import LANGUAGE, EncodedText, PocketInputs
from attnviz.storage.texts import MEMORY_BUDGET, batches, chunks_by_memory

DECODER_ANSWERS = (
    "--causal: another network answers, the decoder of the pocket model, which was trained to "
    "translate; the model inside that continues texts is --model pocket-lm"
)
CACHED = 4  # encoded queries that are kept: a lens asks about the same text again
BATCH_TOKENS = 1024  # pieces of a batch at most, padding counted

Texts = tuple[EncodedText, ...]  # one text, or a source and its target


def load_pocket(
    *,
    causal: bool = False,
    to: str | None = None,
    device: str = "auto",
    dtype: str | None = None,
    keep_qk: bool = False,
    folder: Path = FOLDER,
) -> Pocket:
    """The small trained English–French encoder–decoder that ships with the package."""
    if to is not None:
        choose(to, LANGUAGE, "language")
    return Pocket(folder, causal=causal, to=to, keep_qk=keep_qk, **device_options(device, dtype))


class Pocket(PocketModel):
    """The pocket model, loaded: a `Source` that supports gradients and values.

    One text ("self") gives the stream "encoder", or with `causal` the decoder's "causal". A pair
    ("cross") gives "cross", "encoder" and "decoder"; the model translates where there is no target.
    Row 0 of a decoder's map is the target language's tag; every other row belongs to the piece that
    was just read, not to the piece that is predicted from it.
    """

    answers = ANSWERS["pocket"]

    def __init__(self, folder: Path = FOLDER, *, keep_qk: bool = False, **options: Any) -> None:
        super().__init__(folder, **options)
        self.keep_qk = keep_qk
        self._inputs: dict[Query, PocketInputs] = {}

    def attend(
        self, queries: Sequence[Query], *, batch_size: int | None = None
    ) -> Iterator[Attention | InputError]:
        if len(queries) == 1 or batch_size == 1:
            return super().attend(queries)
        return attend_batches(self, queries, batch_size, self._finish)

    def read(self, query: Query) -> tuple[PocketInputs, Attention]:
        """A query's pieces and its maps."""
        feed = self._encode(query)
        return feed, self._finish(feed, attend_batch(self, [feed])[0])

    def translate_all(self, queries: Sequence[Query]) -> None:
        """Write the targets that queries lack in one pass; each query is read from what is kept."""
        alone = [query for query in queries if query.kind == "cross" and query.target is None]
        if alone:
            items = [encode_texts(self, query) for query in alone]
            self._inputs |= zip(alone, with_translations(self, items), strict=True)

    def _encode(self, query: Query) -> PocketInputs:
        if query not in self._inputs:
            while len(self._inputs) >= CACHED:
                del self._inputs[next(iter(self._inputs))]
            self._inputs[query] = encode_query(self, query)
        return self._inputs[query]

    def _finish(self, query: PocketInputs, attention: Attention) -> Attention:
        if not self.keep_qk:
            return attention
        return add_projections(self, query, attention)


def attend_batches(
    model: PocketModel,
    queries: Sequence[Query],
    batch_size: int | None,
    finish: Callable[[PocketInputs, Attention], Attention],
) -> Iterator[Attention | InputError]:
    """The maps of queries in order, by similar length; missing targets are written first."""
    answers: dict[int, Attention | InputError] = {}
    items: dict[int, Texts] = {}
    for number, query in enumerate(queries):
        try:
            items[number] = encode_texts(model, query)
        except InputError as error:
            answers[number] = error
    sizes = [map_bytes(model, items.get(number, ())) for number in range(len(queries))]
    for chunk in chunks_by_memory(sizes, MEMORY_BUDGET):
        # Single texts and pairs use different layers.
        for kind, texts, read in (
            ("self", 1, with_languages),
            ("cross", 2, with_languages),
            ("cross", 1, with_translations),
        ):
            alike = [
                number
                for number in chunk
                if queries[number].kind == kind and len(items.get(number, ())) == texts
            ]
            how: Any = {"tokens": BATCH_TOKENS, "most": batch_size, "even": False}
            for batch in batches(alike, lambda number: lengths_of(items[number]), **how):
                inputs = read(model, [items[number] for number in batch])
                answers |= zip(batch, map(finish, inputs, attend_batch(model, inputs)), strict=True)
        yield from (answers.pop(number) for number in chunk)


def encode_texts(model: PocketModel, query: Query) -> Texts:
    """A query's texts in pieces; of a pair without a target, the source alone."""
    check_kind(query, "self", "cross")
    if query.kind == "self":
        return (model.encode_text(query.text),)
    source = model.encode_text(query.text, "source")
    if query.target is None:
        return (source,)
    return source, model.encode_text(query.target, "target")


def encode_query(model: PocketModel, query: Query) -> PocketInputs:
    """A query as the model reads it; the model writes a missing target."""
    texts = encode_texts(model, query)
    read = with_translations if query.kind == "cross" and len(texts) == 1 else with_languages
    return read(model, [texts])[0]


def with_translations(model: PocketModel, items: Sequence[Texts]) -> list[PocketInputs]:
    """Sources, each with the model's own translation."""
    sources = model.judge([source for (source,) in items])
    inputs = []
    for source, (text, language, notes) in zip(sources, model.write(sources), strict=True):
        target = model.encode_text(text, "target")
        notes = [*source.notes("the source"), *notes]
        inputs.append(PocketInputs(source, target, language, tuple(notes), translated=True))
    return inputs


def with_languages(model: PocketModel, items: Sequence[Texts]) -> list[PocketInputs]:
    """Texts, or pairs, with the languages of what the decoder reads, guessed in one pass."""
    pairs = len(items[0]) == 2
    flat = model.judge([text for texts in items for text in texts])
    items = [*zip(flat[::2], flat[1::2], strict=True)] if pairs else [(text,) for text in flat]
    if not pairs and not model.causal:
        return [PocketInputs(text, notes=tuple(text.notes("the text"))) for (text,) in items]
    targets = [texts[-1] for texts in items]
    if model.to:
        languages = [(model.to, list[str]()) for _ in targets]
    else:
        languages = model.languages(targets, [texts[0] for texts in items] if pairs else None)
    inputs = []
    for texts, (language, notes) in zip(items, languages, strict=True):
        source, target = texts if pairs else (None, texts[0])
        if source:
            notes = [*source.notes("the source"), *target.notes("the target"), *notes]
        else:
            notes = [*target.notes("the text"), DECODER_ANSWERS]
        inputs.append(PocketInputs(source, target, language, tuple(notes)))
    return inputs


def attend_batch(model: PocketModel, queries: Sequence[PocketInputs]) -> list[Attention]:
    """The maps of queries of one kind, from one pass over all of them."""
    weights, sizes = model.weights, model.sizes
    inputs, mask = model.embed_many([query.source_ids for query in queries])
    memory, encoder = run_encoder(weights, sizes, inputs, mask=mask)
    layers = {"encoder": encoder}
    if queries[0].target:
        # No mask: padding stands last and no position sees a later one.
        inputs, _ = model.embed_many([query.target_ids for query in queries])
        _, decoder, cross = run_decoder(weights, sizes, inputs, memory, mask=mask)
        if queries[0].source:
            layers = {"cross": cross, "encoder": encoder, "decoder": decoder}
        else:
            layers = {"causal": decoder}
    arrays = {stream: [to_numpy(layer) for layer in streams] for stream, streams in layers.items()}
    return [
        build_attention(
            model,
            query,
            {name: [layer[number] for layer in streams] for name, streams in arrays.items()},
        )
        for number, query in enumerate(queries)
    ]


def build_attention(
    model: PocketModel, query: PocketInputs, arrays: Mapping[str, list[NDArray[np.float32]]]
) -> Attention:
    """A query's maps, from each layer's weights (heads, queries, keys) with their padding."""
    source, target = query.source, query.target
    sides = {
        "source": source.with_end()[1] if source else (),
        "target": target.with_tag(query.language)[1] if target else (),
    }

    def build_map(stream: str, rows: str, columns: str, **names: Any) -> AttentionMap:
        queries, keys = sides[rows], sides[columns]
        cut = [layer[:, : len(queries), : len(keys)] for layer in arrays[stream]]
        return AttentionMap(stream, queries, keys, np.stack(cut), **names)

    if not source or not target:
        ((stream, _),) = arrays.items()
        only = source or target
        text = only.text if only else ""
        side = "source" if source else "target"
        settings: dict[str, Any] = {}
        if target:
            settings["language"] = "unknown" if target.is_foreign else query.language
        item = build_map(stream, side, side)
        return Attention((item,), model.provenance(query.notes, settings), text)
    maps = tuple(
        build_map(stream, rows, columns, query_side=rows, key_side=columns)
        for stream, rows, columns in (
            ("cross", "target", "source"),
            ("encoder", "source", "source"),
            ("decoder", "target", "target"),
        )
    )
    directions = [
        "unknown" if text.is_foreign else language
        for text, language in ((source, OTHER[query.language]), (target, query.language))
    ]
    settings = {"direction": " to ".join(directions), "translated": query.translated}
    head = model.config["guided"]
    beyond = bool(source.notes("") or target.notes(""))
    # Not "the alignment head": readers would conclude that attention learns alignment by itself.
    why = "trained to align, but not on such text" if beyond else "trained to align"
    focus = {"cross": Focus(str(head["layer"]), str(head["head"]), why)}
    return Attention(
        maps,
        model.provenance(query.notes, settings),
        source=source.text,
        target=target.text,
        two_way=True,
        outside=beyond,
        focus=focus,
    )


def lengths_of(texts: Texts) -> tuple[int, ...]:
    """Positions of each text, with its special piece."""
    return tuple(len(text.ids) + 1 for text in texts)


def map_bytes(model: PocketModel, texts: Texts) -> int:
    sizes = model.sizes
    keys, queries = (*lengths_of(texts), 0, 0)[:2]
    cells = sizes.encoder_layers * keys**2 + sizes.decoder_layers * queries * (keys + queries)
    return 4 * sizes.heads * cells
