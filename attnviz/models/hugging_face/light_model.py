"""A checkpoint that numpy runs: its weights in the answer's first half second, without torch.

What the network inside cannot do (gradients, effects, long texts, many) is asked of transformers,
which loads the same checkpoint then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from attnviz.core import lens_inputs, notices, registry
from attnviz.core.attention_map import Attention, Provenance, check_finite
from attnviz.core.effects import HeadAt
from attnviz.core.errors import InputError, UsageError
from attnviz.core.query import Query
from attnviz.core.records import dataclass, replace
from attnviz.core.writers import HeadWeights, WriterKind
from attnviz.mechanisms.arrays import Array
from attnviz.mechanisms.formula import HeadArithmetic
from attnviz.mechanisms.relative import sinusoidal_positions
from attnviz.models import answer
from attnviz.models.hugging_face.batching import FEW
from attnviz.models.hugging_face.capture.capture import Captured, with_group_sizes
from attnviz.models.hugging_face.inputs.encoding import EncodedQuery, encode
from attnviz.models.hugging_face.inputs.generation import WritingRules
from attnviz.models.hugging_face.loaded_model import LoadedModel
from attnviz.models.hugging_face.text_model import HuggingFaceModel
from attnviz.models.light import network
from attnviz.models.light.architecture import Architecture
from attnviz.models.light.head import Head
from attnviz.models.light.vectors import projections_of, value_vectors
from attnviz.models.light.weights import CheckpointWeights

Loaded = TypeVar("Loaded")
TOGETHER = 1024
"""Tokens of texts of one length that go through the layers at once."""
GRADIENTS = "gradients and effects need torch"
ROUTE = "numpy"
MOST_TOKENS = 512
"""Tokens of the longest text that numpy reads."""
MOST_WORK = 3e11
"""Weights times tokens of many texts that numpy has read before torch has started and caught up:
13,000 tokens for a MiniLM (`benchmarks/switch.py`)."""
MANY_LINKS = 1e11
"""Weights times tokens of links that are cut, from which on torch is faster."""


@dataclass
class WholeModel(Generic[Loaded]):
    """The same model of transformers, loaded at the first question that numpy does not answer."""

    load: Callable[[], Loaded]
    is_forced: bool  # whether torch may not answer instead
    model: Loaded | None = None

    def __call__(self, reason: str) -> Loaded:
        """The model, asked for a reason."""
        if self.is_forced:
            raise UsageError(f"--device light cannot do this, since {reason}: leave it out")
        if self.model is None:
            notices.explain(f"torch calculates, since {reason}")
            self.model = self.load()
        return self.model


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LightModel(LoadedModel, network.Network):
    """A pretrained text model that numpy runs, for queries of the kinds "self", "pair", "cross"."""

    answers = registry.ANSWERS["light"]

    whole: WholeModel[HuggingFaceModel]
    architecture: Architecture
    sizes: network.Shape
    below: network.Shape | None  # of an encoder whose states the decoder attends to
    streams: Mapping[str, str]
    weights: CheckpointWeights
    numbers: int  # of weights
    padding: int  # the number of its token
    head: Head | None = None
    rules: WritingRules
    watch: network.Watch | None = None  # of what it writes

    def attend(
        self, queries: Sequence[Query], *, batch_size: int | None = None
    ) -> Iterator[Attention | InputError]:
        encodings = [self._encode(query) for query in queries]
        reason = self.refuse([one for one in encodings if isinstance(one, EncodedQuery)])
        if reason:
            yield from self.whole(reason).attend(queries, batch_size=batch_size)
            return
        groups = self._alike(encodings, batch_size or TOGETHER)
        maps = dict[int, Attention]()
        for number, one in enumerate(encodings):
            if isinstance(one, InputError):
                yield one
                continue
            if number not in maps:
                group = groups[number]
                texts = [
                    same for place in group if isinstance(same := encodings[place], EncodedQuery)
                ]
                maps |= zip(group, self._run_together(texts), strict=True)
            yield maps.pop(number)

    def _alike(
        self, encodings: Sequence[EncodedQuery | InputError], most: int
    ) -> dict[int, list[int]]:
        """Texts of one length, which go through the layers together without padding."""
        open_groups, groups = dict[Any, list[int]](), dict[int, list[int]]()
        for number, one in enumerate(encodings):
            if isinstance(one, InputError):
                continue
            lengths = tuple(map(len, one.tokens.values()))
            group = open_groups.setdefault(lengths, [])
            if len(group) >= max(1, min(most, TOGETHER // sum(lengths))) or self.region.keep_qk:
                group = open_groups[lengths] = []
            group.append(number)
            groups[number] = group
        return groups

    def _run_together(self, texts: Sequence[EncodedQuery]) -> list[Attention]:
        """The maps of texts of one length, from one pass."""
        if len(texts) == 1:
            return [self.run(texts[0])[0]]
        stacks = zip(*(self.inputs(one.inputs) for one in texts), strict=True)
        with np.errstate(all="ignore"):
            states, layers = self.forward(self.weights, tuple(map(np.stack, stacks)))
        return [
            self._build_attention(
                one, states[n], {name: [of[n] for of in own] for name, own in layers.items()}
            )
            for n, one in enumerate(texts)
        ]

    @property
    def kind(self) -> str:
        """The architecture as transformers calls it."""
        return str(self.provenance.settings["architecture"])

    @property
    def vocabulary(self) -> int:
        return self.sizes.vocabulary

    @property
    def shapes(self) -> tuple[network.Shape, ...]:
        """The shape of its stack, or of its encoder and its decoder."""
        return (self.below, self.sizes) if self.below else (self.sizes,)

    def tensors(self, inputs: Mapping[str, Sequence[int]], part: Any) -> dict[str, Any]:
        return dict(inputs)

    def values(self, query: Query) -> lens_inputs.ValueVectors:
        encoding = encode(self, query)
        if reason := self.refuse([encoding]):
            return self.whole(reason).values(query)
        record = network.Record()
        attention, _ = self.run(encoding, record)
        return value_vectors(self, attention, record)

    def many_values(
        self, queries: Sequence[Query], batch_size: int | None
    ) -> Iterator[lens_inputs.ValueVectors | InputError]:
        encodings = [self._encode(query) for query in queries]
        reason = self.refuse([one for one in encodings if isinstance(one, EncodedQuery)])
        if reason:
            yield from self.whole(reason).many_values(queries, batch_size) or ()
            return
        for query, encoding in zip(queries, encodings, strict=True):
            yield encoding if isinstance(encoding, InputError) else answer(self.values, query)

    def head_weights(self) -> tuple[list[HeadWeights], Provenance]:
        words, head = self.architecture.words, self.head
        has_words = head is not None and head.is_linear and not self.architecture.projection
        tokens = (words, head.maps) if has_words and head is not None and not head.labels else None
        weights = registry.HEAD_WEIGHTS.load()(self.weights, self.shapes, [*self.streams], tokens)
        return weights, self.provenance

    def head_arithmetic(self, query: Query, which: HeadAt) -> HeadArithmetic:
        return self.whole("each step of a head is torch's").head_arithmetic(query, which)

    def _encode(self, query: Query) -> EncodedQuery | InputError:
        try:
            return encode(self, query)
        except InputError as error:
            return error

    def refuse(self, encodings: Sequence[EncodedQuery]) -> str:
        """Why torch should answer, by the texts alone, so that workers agree; "": numpy does."""
        texts = [one.ids(side) for one in encodings for side in one.tokens]
        lengths = list(map(len, texts))
        if self.architecture.offset is None and any(self.padding in ids for ids in texts):
            return "the text holds the padding's token"
        if max(lengths, default=0) > MOST_TOKENS:
            return f"a text has more than {MOST_TOKENS} tokens"
        many = len(encodings) >= FEW and not self.whole.is_forced
        if many and sum(lengths) * self.numbers > MOST_WORK:
            return f"{len(encodings)} texts are many for a model of {self.numbers:,} weights"
        return ""

    def run(
        self, encoding: EncodedQuery, record: network.Record | None = None
    ) -> tuple[Attention, Any]:
        """The maps of a query, and the last states (tokens, size)."""
        record = network.Record() if record is None and self.region.keep_qk else record
        with np.errstate(all="ignore"):
            states, layers = self.forward(self.weights, self.inputs(encoding.inputs), record)
        return self._build_attention(encoding, states, layers, record), states

    def _build_attention(
        self,
        encoding: EncodedQuery,
        states: Any,
        layers: Mapping[str, Sequence[Any]],
        record: network.Record | None = None,
    ) -> Attention:
        """The maps of a query, of its last states and its weights by layer."""
        with np.errstate(all="ignore"):
            items = [self._capture(stream, layers[stream]) for stream in encoding.axes]
            logits = None
            if self.task and self.head and "text" in encoding.tokens:
                logits = self.scores(
                    self.weights, states[None, 0] if self.head.first else states[None]
                )
        if self.region.keep_qk and record is not None:
            items = [replace(one, projections=projections_of(self, one, record)) for one in items]
        return encoding.build_attention(items, self.task, logits)

    def _capture(self, stream: str, layers: Sequence[Array]) -> Captured:
        item, shape = capture_layers(stream, layers), self.shape_of(stream)
        size = shape.heads // (shape.key_heads or shape.heads)
        return with_group_sizes(item, dict.fromkeys(item.layers, size))

    def scores(self, weights: network.Weights, states: Array) -> Array:
        """Scores of every token or class, for states (…, size)."""
        assert self.head is not None
        return self.head.predict(weights, self.sizes, states)

    def inputs(self, ids: Mapping[str, Sequence[int]]) -> tuple[NDArray[np.float32], ...]:
        """The inputs of each stack's first layer, shape (tokens, size)."""
        return tuple(np.asarray(sum(parts.values())) for parts in self.embed_parts(ids))

    def embed_parts(
        self, inputs: Mapping[str, Sequence[int]], off: WriterKind | None = None
    ) -> Iterator[dict[WriterKind, NDArray[np.float32]]]:
        """The inputs of each stack, split by where they come from; the parts sum to the inputs.

        A kind that is off is taken away before the norm, which holds what it computes anew.
        """
        first = self.architecture.encoder or self.architecture
        yield self._embed(first, inputs["input_ids"], inputs.get("token_type_ids"), off)
        if "decoder_input_ids" in inputs:
            yield self._embed(self.architecture, inputs["decoder_input_ids"], off=off)

    def embed_without(
        self, inputs: Mapping[str, Sequence[int]], number: int, kind: WriterKind
    ) -> NDArray[np.float32]:
        return np.asarray(sum([*self.embed_parts(inputs, kind)][number].values()))

    def _embed(
        self,
        about: Architecture,
        tokens: Sequence[int],
        types: Sequence[int] | None = None,
        off: WriterKind | None = None,
    ) -> dict[WriterKind, NDArray[np.float32]]:
        ids, size = np.asarray(tokens), self.sizes.size
        words = self.weights.rows(f"{about.words}.weight", ids)
        if self.sizes.scales_embeddings:
            words = words * np.float32(size**0.5)
        if about.types:
            marks = np.zeros_like(ids) if types is None else np.asarray(types)
            words = words + self.weights.rows(f"{about.types}.weight", marks)
        parts = [np.zeros_like(words), words]
        names: list[WriterKind] = ["bias", "embedding"]
        if about.positions:
            offset = self.padding + 1 if about.offset is None else about.offset
            places = np.arange(offset, offset + len(ids))
            if about.waves and f"{about.positions}.weight" not in self.weights:
                waves = sinusoidal_positions(len(ids), size)
                parts.append(np.concatenate([waves[:, ::2], waves[:, 1::2]], axis=1))
            else:
                parts.append(self.weights.rows(f"{about.positions}.weight", places))
            names.append("position")
        stack = np.stack(parts)
        if off in names:
            stack[names.index(off)] = 0
        if about.embedding_norm:
            whole = stack.sum(axis=0)
            stack = network.normalise(
                self.weights, self.sizes, about.embedding_norm, stack, whole, 0
            )
        if about.projection and f"{about.projection}.weight" in self.weights:
            stack = network.linear_map(self.weights, about.projection, stack, 0)
        return dict(zip(names, stack, strict=True))

    def write_ids(self, inputs: Mapping[str, Sequence[int]], most: int) -> list[int]:
        """What the model writes greedily, at most so many ids, behind a prompt or a first token."""
        ids, memory = list(inputs["input_ids"]), None
        with np.errstate(all="ignore"), self.weights.keep_widened():
            if self.below:
                (embeddings,) = self.inputs({"input_ids": ids})
                memory = network.run_layers(
                    self.weights, self.below, embeddings[None], watch=self.watch
                )[0]
                ids = [int(self.rules.decoder_start_token_id or 0)]
            # A watch of two texts does not know what came before a cached query.
            cache = None if self.below and self.watch else network.Cache()
            longest = len(ids) + most
            while len(ids) < longest:
                embeddings = np.asarray(sum(self._embed(self.architecture, ids).values()))
                embeddings = embeddings[None, cache.length if cache else 0 :]
                how: Any = {"watch": self.watch, "cache": cache}
                states, *_ = network.run_layers(self.weights, self.sizes, embeddings, memory, **how)
                scores = self.scores(self.weights, states[0, -1:])[0]
                ids.append(self.rules.choose(ids, scores, longest))
                if ids[-1] in self.rules.ends:
                    break
        return ids


def capture_layers(stream: str, layers: Sequence[Array]) -> Captured:
    """The weights of a stream's layers, (heads, queries, keys) each."""
    weights = np.stack(layers)
    names, heads = (tuple(map(str, range(count))) for count in weights.shape[:2])
    check_finite(weights, stream, names, heads, "float32", "the attention")
    return Captured(stream, names, weights, route=ROUTE)
