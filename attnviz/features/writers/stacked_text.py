"""What each head and block of the network inside writes, layer by layer, with its norms held."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_call import AttentionCall
from attnviz.core.attention_map import Attention
from attnviz.core.effects import HeadAt
from attnviz.core.errors import AttentionError
from attnviz.core.query import Query
from attnviz.core.records import dataclass
from attnviz.core.writers import (
    NORMALISES_SUMS,
    SIDES,
    HeadWeights,
    ResidualStream,
    Side,
    Writer,
    WriterKind,
    WrittenText,
)
from attnviz.features.targets.outputs import spell_choice
from attnviz.models import Choose
from attnviz.models.hugging_face.inputs.encoding import EncodedQuery, encode
from attnviz.models.hugging_face.light_model import LightModel
from attnviz.models.light import network
from attnviz.models.pocket.stored import StoredModel

Numbers = NDArray[np.floating]


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """What one part of a layer adds to the stream."""

    layer: int
    block: network.LayerPart
    attention: AttentionCall | None  # of an attention
    addition: Numbers  # (positions, size), before a norm of its own
    total: Numbers  # the sum, before a norm


class RecordedPass(network.Pass):
    """A forward pass that records what each part adds."""

    def __init__(self, weights: network.Weights, shape: network.Shape) -> None:
        self.record, self.updates = network.Record(), list[Update]()
        super().__init__(weights, shape, self.record, None)

    def add(self, number: int, block: network.LayerPart, inputs: Numbers, update: Numbers) -> Any:
        """The inputs plus what a part adds to them."""
        total = inputs + self.refine(number, block, update)
        attention = self.record.pop() if self.record else None
        self.updates.append(Update(number, block, attention, update, total))
        return self.norm(number, block.after, total)


class Stack:
    """A stack of layers that has read a text, and what each part wrote into its stream.

    Attributes:
        stream: of its own attention.
        writers: biases first, then embeddings, then each layer's parts in order.
        embed_without: what it reads without one kind of embedding, where a norm follows the
            embeddings; None: the sum of the others.
    """

    embed_without: Callable[[WriterKind], Numbers] | None = None

    def __init__(
        self,
        weights: network.Weights,
        shape: network.Shape,
        stream: str,
        embeddings: Mapping[WriterKind, Numbers],
        memory: Stack | None = None,
        cross: str = "",
    ) -> None:
        self.weights, self.shape, self.stream, self.memory = weights, shape, stream, memory
        bias = embeddings.get("bias", np.float32(0))  # of a norm of the embeddings
        kinds = [kind for kind in embeddings if kind != "bias"]
        self.embeddings, self.cross, self.bias = [embeddings[kind] for kind in kinds], cross, bias
        self.run = RecordedPass(weights, shape)
        states = memory.states if memory else None
        self.states: Numbers = self.run.run(sum(self.embeddings) + bias, states)[0]
        self.writers = [Writer("bias", stream), *(Writer(kind, stream) for kind in kinds)]
        self.first = list[int]()  # the number of each update's first writer
        for update in self.run.updates:
            self.first.append(len(self.writers))
            layer = str(update.layer)
            if update.attention is None:
                self.writers.append(Writer("feed-forward", stream, layer))
                continue
            name = stream if update.block is shape.attention else cross
            self.writers += [Writer("head", name, layer, head) for head in range(shape.heads)]
        self._latest: tuple[int, Numbers] | None = None

    @cached_property
    def writer_fields(self) -> list[Numbers]:
        """What the writers of each update wrote, (writers, positions, size)."""
        return [self._fields_of(update) for update in self.run.updates]

    def _fields_of(self, update: Update) -> Numbers:
        if update.attention is None:
            return update.addition[None]
        heads, output = self.shape.heads, update.attention.output
        rows = output.reshape(len(output), heads, -1)
        maps = self.output_map(self.run.updates.index(update))
        fields: Numbers = np.einsum("phd,hds->hps", rows, maps, optimize=True)
        return fields

    def output_map(self, number: int) -> Numbers:
        update = self.run.updates[number]
        assert update.attention is not None
        matrix = self.weights[f"{update.attention.path}.{update.block.maps[3]}.weight"]
        maps: Numbers = matrix.T.reshape(self.shape.heads, -1, len(matrix))
        return maps

    def bias_of(self, update: Update) -> Numbers | float:
        """The bias of an attention's output map; a feed-forward part has its bias inside."""
        if update.attention is None:
            return 0.0
        name = f"{update.attention.path}.{update.block.maps[3]}.bias"
        bias: Numbers | float = self.weights.get(name, 0.0)
        return bias

    def parts(self, until: int) -> Numbers:
        """What each writer has in the stream before an update, (writers, positions, size)."""
        start, parts = self._latest or (0, self._first_parts())
        if start > until:
            start, parts = 0, self._first_parts()
        for update, first, fields in zip(
            self.run.updates[start:until], self.first[start:until], self.writer_fields[start:until],
            strict=True,
        ):  # fmt: skip
            bias = np.broadcast_to(self.bias_of(update), update.addition.shape)
            new = np.concatenate([bias[None], fields])
            new = self.run.refine(update.layer, update.block, new, update.addition, 0)
            parts[0] += new[0]
            parts[first : first + len(fields)] += new[1:]
            parts = self.run.norm(update.layer, update.block.after, parts, update.total, 0)
        self._latest = until, parts
        return parts

    def _first_parts(self) -> Numbers:
        parts = np.zeros((len(self.writers), *self.embeddings[0].shape), self.embeddings[0].dtype)
        parts[0], parts[1 : 1 + len(self.embeddings)] = self.bias, self.embeddings
        return parts

    @property
    def total(self) -> Any:
        """What the last norm reads, (positions, size)."""
        last = self.run.updates[-1]
        return self.run.norm(last.layer, last.block.after, last.total)

    def last_parts(self) -> Numbers:
        """What each writer has in the last states, (writers, positions, size)."""
        return self.normalise_last(self.parts(len(self.run.updates)), self.total, 0)

    def normalise_last(
        self, parts: Numbers, like: Numbers | None = None, row: int | None = None
    ) -> Numbers:
        """The last norm, if there is one; see `normalise`."""
        name = self.shape.last_norm
        return (
            network.normalise(self.weights, self.shape, name, parts, like, row) if name else parts
        )

    def without(self, until: int, writer: int) -> Numbers:
        """The stream before an update if nothing of a writer were in it, every norm anew."""
        if self.embed_without and 0 < writer <= len(self.embeddings):
            stream = self.embed_without(self.writers[writer].kind)
        else:
            others = (one for place, one in enumerate(self.embeddings, 1) if place != writer)
            stream = np.zeros_like(self.embeddings[0]) + self.bias + sum(others)
        for update, first, fields in zip(
            self.run.updates[:until], self.first, self.writer_fields, strict=False
        ):
            addition = update.addition
            if first <= writer < first + len(fields):
                addition = addition - fields[writer - first]
            stream = stream + self.run.refine(update.layer, update.block, addition)
            stream = self.run.norm(update.layer, update.block.after, stream)
        return stream

    def carry(self, update: int, row: int, fields: Numbers) -> Numbers:
        """The part in a row's last state of fields (fields, size) that an update adds there."""
        for number, one in enumerate(self.run.updates[update:]):
            if not number:
                like = one.addition[row]
                fields = fields + 0  # a copy: a norm writes into row 0
                fields = _without_shift(self.run.refine, one.layer, one.block, fields, like)
            fields = _without_shift(
                self.run.norm, one.layer, one.block.after, fields, one.total[row]
            )
        zero = np.zeros_like(fields[:1])
        return self.normalise_last(np.concatenate([zero, fields]), self.total[row], 0)[1:]


def _without_shift(norm: Callable[..., Numbers], layer: int, which: Any, *of: Numbers) -> Numbers:
    """Fields through a held norm, without the norm's bias."""
    fields, like = of
    return norm(layer, which, np.concatenate([np.zeros_like(fields[:1]), fields]), like, 0)[1:]


class StackedText:
    """A text that the network inside has read; fulfils `attnviz.core.writers.WrittenText`."""

    def __init__(
        self,
        attention: Attention,
        stacks: Sequence[Stack],
        scores: Callable[[Numbers], Numbers] | None,
        spell: Callable[[int], str] = str,
        *,
        first: bool = False,
    ) -> None:
        """`scores` gives the last stack's logits, of its `first` row or all; `spell` names them."""
        self.attention, self.stacks, self.spell = attention, stacks, spell
        self._scores, self._first = scores, first
        self.writers = tuple(writer for stack in stacks for writer in stack.writers)
        self._before = {id(stack): sum(len(one.writers) for one in stacks[:n])
                        for n, stack in enumerate(stacks)}  # fmt: skip

    def _call(self, stream: str, layer: str) -> tuple[Stack, int, AttentionCall]:
        for stack in self.stacks:
            block = stack.shape.attention if stream == stack.stream else stack.shape.cross
            if stream in (stack.stream, stack.cross):
                for number, update in enumerate(stack.run.updates):
                    if update.attention and str(update.layer) == layer and update.block is block:
                        return stack, number, update.attention
        raise KeyError(stream, layer)

    def sides(self, at: HeadAt) -> AttentionCall:
        stack, _, attention = self._call(at.stream, at.layer)
        shape = stack.shape
        query, key, value = (getattr(attention, side)[at.head] for side in SIDES)
        visible = attention.weights[at.head] > 0
        if shape.causal and at.stream == stack.stream:  # a share may round to 0
            window = shape.windows[int(at.layer)] if shape.windows else 0
            visible = np.tril(np.ones_like(visible))
            visible &= ~np.tril(visible, -window) if window else visible
        else:
            visible = np.ones_like(visible)
        return AttentionCall(query, key, value, visible, factor=shape.factor, cap=shape.cap)

    def _side_parts(
        self, stream: str, layer: str, side: Side, writers: Sequence[int] | None = None
    ) -> tuple[Stack, Numbers]:
        """The stack that a side reads, and each writer's part (writers, heads, positions, …)."""
        stack, number, call = self._call(stream, layer)
        update, which = stack.run.updates[number], SIDES.index(side)
        if which and update.block is stack.shape.cross and stack.memory:
            source, parts = stack.memory, stack.memory.last_parts()
        else:
            source, parts = stack, stack.parts(number)
            parts = stack.run.norm(update.layer, update.block.before, parts, call.residual, 0)
        whole = None
        if (stack.shape.query_norm, stack.shape.key_norm, "")[which]:
            path = f"{call.path}.{update.block.maps[which]}"
            plain = network.linear_map(
                stack.weights, path, call.inputs if not which else call.memory
            )
            heads = (stack.shape.key_heads if which else 0) or stack.shape.heads
            whole = np.moveaxis(plain.reshape(len(plain), heads, -1), 0, 1)
        if writers is not None:
            # Row 0 holds the biases: it is needed for the norm, and dropped afterwards.
            parts = parts[[0, *writers]]
        projections = stack.run.project(update.layer, update.block, which, parts, like=whole, row=0)
        return source, projections if writers is None else projections[1:]

    def _of_head(self, at: HeadAt, side: Side) -> int:
        stack, _, _ = self._call(at.stream, at.layer)
        groups = stack.shape.key_heads if side != "query" else 0
        return at.head * groups // stack.shape.heads if groups else at.head

    def read(self, at: HeadAt, side: Side, direction: Numbers) -> NDArray[np.float64]:
        source, parts = self._side_parts(at.stream, at.layer, side)
        totals = np.zeros(len(self.writers))
        first = self._before[id(source)]
        own = parts[:, self._of_head(at, side)].astype(np.float64)
        totals[first : first + len(source.writers)] = np.einsum("wpd,pd->w", own, direction)
        return totals

    def parts(
        self, stream: str, layer: str, side: Side, writers: Sequence[int]
    ) -> Iterator[Numbers]:
        stack, _, _ = self._call(stream, layer)
        source = stack.memory if side != "query" and stream == stack.cross else stack
        assert source is not None
        first = self._before[id(source)]
        inside = [w for w in writers if first <= w < first + len(source.writers)]
        _, own_parts = self._side_parts(stream, layer, side, [w - first for w in inside])
        places, shape = dict(zip(inside, own_parts, strict=True)), stack.shape
        repeats = shape.heads // shape.key_heads if shape.key_heads and side != "query" else 1
        for writer in writers:
            part = places.get(writer)
            part = np.zeros(own_parts.shape[1:]) if part is None else part
            yield np.repeat(part, repeats, axis=0) if repeats > 1 else part

    def without(self, at: HeadAt, side: Side, writer: int) -> Numbers:
        """A side if it cannot read a writer, every norm computed anew."""
        stack, number, _ = self._call(at.stream, at.layer)
        update, which = stack.run.updates[number], SIDES.index(side)
        if which and update.block is stack.shape.cross and stack.memory:
            memory = stack.memory
            place = writer - self._before[id(memory)]
            inputs = memory.normalise_last(memory.without(len(memory.run.updates), place))
        else:
            inputs = stack.without(number, writer - self._before[id(stack)])
            inputs = stack.run.norm(update.layer, update.block.before, inputs)
        projection: Numbers = stack.run.project(update.layer, update.block, which, inputs)
        own: Numbers = projection[self._of_head(at, side)]
        return own

    def predicts(self, stream: str, row: int) -> bool:
        last = self.stacks[-1]
        inside = self._scores is not None and stream in (last.stream, last.cross)
        return inside and (row == 0 or not self._first)

    def _logits(self, states: Numbers) -> NDArray[np.float64]:
        assert self._scores is not None
        logits: NDArray[np.float64] = np.asarray(self._scores(states), dtype=np.float64)
        return logits

    @cached_property
    def _unembedding(self) -> NDArray[np.float64]:
        """The logits, above their mean, that each feature of the last state adds."""
        size = self.stacks[-1].states.shape[-1]
        matrix: NDArray[np.float64] = self._logits(np.eye(size)) - self._logits(np.zeros((1, size)))
        matrix -= matrix.mean(axis=-1, keepdims=True)
        return matrix

    def argue(self, at: HeadAt, outputs: Mapping[int, Numbers]) -> NDArray[np.float64]:
        stack, number, _ = self._call(at.stream, at.layer)
        matrix = stack.output_map(number)[at.head].T
        states = [stack.carry(number, row, (matrix @ one)[None])[0] for row, one in outputs.items()]
        logits: NDArray[np.float64] = np.sum(states, axis=0) @ self._unembedding
        return logits

    def slopes(self, row: int, choice: int) -> dict[tuple[str, str], NDArray[np.float64]]:
        stack = self.stacks[-1]
        by_layer: dict[tuple[str, str], NDArray[np.float64]] = {}
        basis = np.eye(stack.states.shape[-1])
        for number, update in enumerate(stack.run.updates):
            if update.attention is not None:
                stream = stack.stream if update.block is stack.shape.attention else stack.cross
                slope = stack.carry(number, row, basis) @ self._unembedding[:, choice]
                by_layer[stream, str(update.layer)] = stack.output_map(number) @ slope
        return by_layer

    def logits(self, row: int) -> NDArray[np.float64]:
        state = self.stacks[-1].states[0 if self._first else row]
        logits: NDArray[np.float64] = self._logits(state[None])[0]
        return logits

    def layer_logits(self, row: int) -> Sequence[NDArray[np.float64]]:
        place = 0 if self._first else row
        return [self._predict(one[place : place + 1])[0] for one in self._states()]

    def _states(self) -> list[Numbers]:
        """The last stack's stream after its embeddings and after each layer."""
        last = self.stacks[-1]
        ends = [one for one in last.run.updates if one.attention is None]
        streams: list[Numbers] = [np.sum(last.embeddings, axis=0) + last.bias]
        return streams + [last.run.norm(one.layer, one.block.after, one.total) for one in ends]

    def _states_of_attention(self) -> list[Numbers]:
        """The embeddings and what attention adds up to each layer, then the last whole state."""
        last = self.stacks[-1]
        if last.shape.attention.after:
            raise AttentionError(NORMALISES_SUMS.format(f"'{self.attention.provenance.title}'"))
        stream, *_, whole = self._states()
        states = [stream]
        for one in last.run.updates:
            if one.attention is None:
                states.append(stream)
            else:
                stream = stream + last.run.refine(one.layer, one.block, one.addition)
        return [*states, whole]

    def _predict(self, states: Numbers) -> NDArray[np.float64]:
        return self._logits(self.stacks[-1].normalise_last(states))

    def stream(self, choose: Choose, *, attention_only: bool) -> ResidualStream | None:
        """The last stack's stream at some positions; None: it predicts one class, or nothing."""
        if self._scores is None or self._first:
            return None
        item = self.attention.main
        rows = tuple(choose(item.query_tokens))
        states = self._states_of_attention() if attention_only else self._states()
        return ResidualStream(
            *(item.query_tokens, rows, [one[list(rows)] for one in states]),
            lambda state, some: self._predict(state[some]),
            *(self.spell, self.attention.provenance),
        )

    def logit_parts(self, row: int, choice: int) -> NDArray[np.float64]:
        last, parts = self.stacks[-1], np.zeros(len(self.writers))
        zero = self._logits(np.zeros_like(last.states[:1]))[0]
        parts_of_stack = last.last_parts()[:, row] @ self._unembedding[:, choice]
        parts_of_stack[0] += zero[choice] - zero.mean()
        first = self._before[id(last)]
        parts[first : first + len(parts_of_stack)] = parts_of_stack
        return parts


def head_weights(
    weights: network.Weights,
    shapes: Sequence[network.Shape],
    streams: Sequence[str],
    tokens: tuple[str, str] | None = None,
) -> list[HeadWeights]:
    """The maps of each head of one stack or two, with the scales of the norms before them.

    Args:
        weights: learned arrays by name.
        shapes: of the stacks.
        streams: the name of each stack's own attention, then of the cross-attention.
        tokens: the names of the embeddings and of the map to the logits.
    """

    def scale(shape: network.Shape, name: str) -> Any:
        weight = weights[f"{name}.weight"].astype(np.float64) if name else 1.0
        return 1 + weight if shape.norm == "rms from 0" and name else weight

    heads, memory, last = list[HeadWeights](), tuple[HeadAt, ...](), 1.0
    for own, shape in zip(streams, shapes, strict=False):
        meeting, before = None, tuple[HeadAt, ...]()
        if tokens is not None:
            rows, output = (weights[f"{name}.weight"].astype(np.float64) for name in tokens)
            meeting = rows.T @ (output * scale(shape, shape.last_norm))
        for number in range(shape.layers):
            layer = shape.layer.format(number)
            for stream, block in ((own, shape.attention), (streams[-1], shape.cross)):
                if block is None:
                    continue
                crosses = block is shape.cross
                fold = scale(shape, block.before and f"{layer}.{block.before}")
                arrays = []
                for which, name in enumerate(block.maps[:3]):
                    matrix = weights[f"{layer}.{block.name}.{name}.weight"].astype(np.float64)
                    count = (shape.key_heads if which else 0) or shape.heads
                    by_head = matrix.reshape(count, -1, matrix.shape[-1])
                    by_head = by_head * (last if crosses and which else fold)
                    arrays.append(np.repeat(by_head, shape.heads // count, axis=0))
                outer = weights[f"{layer}.{block.name}.{block.maps[3]}.weight"].astype(np.float64)
                outputs = np.moveaxis(outer.reshape(len(outer), shape.heads, -1), 1, 0)
                sources, meets = (memory, None) if crosses else (None, meeting)
                new = [
                    HeadWeights(HeadAt(stream, str(number), n), q, k, v, o, before, sources, meets)
                    for n, (q, k, v, o) in enumerate(zip(*arrays, outputs, strict=True))
                ]
                heads += new
                before += tuple(one.at for one in new)
        memory, last = before, scale(shape, shape.last_norm)
    return heads


def stack_text(source: LightModel, query: Query) -> WrittenText:
    encoding = encode(source, query)
    reason = source.refuse([encoding])
    if source.head is not None and not source.head.is_linear:
        reason = reason or "the head is not linear"
    if reason:
        text: WrittenText = source.whole(reason).trace_writers(query)
        return text
    return _stack(source, encoding)


def _stack(source: LightModel, encoding: EncodedQuery) -> StackedText:
    """A query that was read, with what each part wrote."""
    attention, _ = source.run(encoding)
    name = "encoder" if source.below else attention.main.stream
    stacks = list[Stack]()
    for number, embeddings in enumerate(source.embed_parts(encoding.inputs)):
        ends = ("decoder", embeddings, stacks[0], "cross") if number else (name, embeddings)
        stack = Stack(source.weights, source.shapes[number], *ends)
        stack.embed_without = partial(source.embed_without, encoding.inputs, number)
        stacks.append(stack)
    reads = source.head is not None and len(stacks) == len(source.shapes)
    scores = partial(source.scores, source.weights) if reads else None
    return StackedText(attention, stacks, scores, partial(spell_choice, source))


def stream_of_text(
    source: LightModel, query: Query, choose: Choose, *, attention_only: bool
) -> ResidualStream | None:
    encoding = encode(source, query)
    if reason := source.refuse([encoding]):
        return source.whole(reason).read_stream(query, choose, attention_only=attention_only)
    if source.task is not None:
        return None
    return _stack(source, encoding).stream(choose, attention_only=attention_only)


def stream_of_pocket(
    source: StoredModel, query: Query, choose: Choose, *, attention_only: bool
) -> ResidualStream | None:
    return stack_pocket(source, query).stream(choose, attention_only=attention_only)


def stack_pocket(source: StoredModel, query: Query) -> StackedText:
    feed, attention = source.read(query)
    model: Any = source if source.device == "cpu" else type(source)(source.folder)

    def scores(states: NDArray[np.floating]) -> NDArray[np.floating]:
        logits: NDArray[np.floating] = model.scores(model.weights, states)
        return logits

    return StackedText(attention, model.stacks(feed), scores, model.spell, first=model.decides)
