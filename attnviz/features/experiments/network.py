"""A network's predictions, and how they change when parts are switched off.

A part is switched off before the output projection mixes the heads. Only the first changed layer
and those after it run again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from itertools import groupby
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_call import AttentionCall
from attnviz.core.attention_map import Attention
from attnviz.core.effects import (
    HeadOutputs,
    Intervention,
    LayerWeights,
    PredictedToken,
    SinkShares,
    leave_out,
    replacement_outputs,
)
from attnviz.mechanisms.arrays import Array, as_numpy, namespace
from attnviz.mechanisms.dot_product import join_heads, split_heads
from attnviz.models.light import network

SCORES = 1 << 24
"""Scores of choices that exist at once, 64 MB of them."""
POSITIONS = 2048
"""Positions that go through the layers at once."""


class NetworkExperiment:
    """A network and its input; fulfils `attnviz.core.effects.Experiment`."""

    outputs: tuple[PredictedToken, ...]
    sinks: SinkShares = MappingProxyType({})  # no such network has any

    def __init__(self, model: network.Network, feed: Any, attention: Attention) -> None:
        self.model: Any = model
        self.feed, self.attention = feed, attention
        self.places = {
            model.streams[item.stream].format(layer): (item.stream, layer)
            for item in attention.maps
            for layer in item.layers
        }
        self.sides = {item.stream: (item.query_side, item.key_side) for item in attention.maps}

    def run(
        self, changes: Sequence[Intervention], instead: HeadOutputs | None = None
    ) -> Iterator[NDArray[np.floating]]:
        """Log p of each output's choices for each change; neighbours of one layer share passes."""
        model, rows = self.model, [output.row for output in self.outputs]
        scores = max(1, model.sizes.vocabulary) * len(rows)
        together = max(1, min(POSITIONS // sum(map(len, self.inputs)), SCORES // scores))
        for first, group in groupby(changes, self._first_layer):
            alike = list(group)
            stacks = (*self.inputs[:-1], self.starts[first] if first else self.inputs[-1])
            for start in range(0, len(alike), together):
                some = alike[start : start + together]
                many = tuple(namespace(x).broadcast_to(x, (len(some), *x.shape)) for x in stacks)
                with np.errstate(all="ignore"):
                    states, _ = model.forward(model.weights, many, self._edit(some, instead), first)
                    logits = as_numpy(model.scores(model.weights, states[:, rows]))
                    chances = self.chances(logits)
                yield from chances

    def chances(self, logits: NDArray[np.floating]) -> NDArray[np.floating]:
        """Log p of each choice (…, choices) by its logits."""
        logits = leave_out(logits, self.outputs)
        log_p: NDArray[np.floating] = logits - logits.max(axis=-1, keepdims=True)
        log_p -= np.log(np.exp(log_p).sum(axis=-1, keepdims=True))
        return log_p

    @cached_property
    def inputs(self) -> network.Stacks:
        """The embedded inputs of each stack."""
        stacks: network.Stacks = self.model.inputs(self.feed)
        return stacks

    @cached_property
    def starts(self) -> list[Array]:
        """The inputs of each layer of the last stack in the unchanged model."""
        own = [one.residual for one in self.unchanged_passes if one.memory is one.inputs]
        return own[-len(self.attention.main.layers) :]

    @cached_property
    def unchanged_passes(self) -> network.Record:
        """Each attention of the unchanged model."""
        record = network.Record()
        with np.errstate(all="ignore"):
            self.model.forward(self.model.weights, self.inputs, record)
        return record

    def _first_layer(self, change: Intervention) -> int:
        """The first layer of the last stack that a change changes, or the last."""
        below = "encoder" if len(self.sides) > 1 else ""
        layers = (
            0 if stream == below else int(layer)
            for stream, layer in self.places.values()
            if change.changes(stream, layer, self.sides[stream])
        )
        return min(layers, default=len(self.attention.main.layers) - 1)

    @np.errstate(all="ignore")
    def changed_maps(self, change: Intervention) -> Attention:
        """The maps with something switched off; a head that is off still weighs its keys."""
        edit, shares = self._edit([change], None), dict[tuple[str, str], NDArray[np.floating]]()

        def look(one: AttentionCall) -> Array:
            if place := self.places.get(one.path):
                shares[place] = as_numpy(one.weights[0])
            return edit(one)

        self.model.forward(self.model.weights, tuple(one[None] for one in self.inputs), look)
        maps = (
            item.with_weights(np.stack([shares[item.stream, layer] for layer in item.layers]))
            for item in self.attention.maps
        )
        return self.attention.with_maps(tuple(change.apply_to(item, self.sinks) for item in maps))

    def head_outputs(self) -> HeadOutputs:
        """The output of each head, (heads, positions, head size)."""
        return {
            self.places[one.path]: as_numpy(split_heads(one.output, one.weights.shape[-3]))
            for one in self.unchanged_passes
            if one.path in self.places
        }

    def head_values(self) -> HeadOutputs:
        """The values that each head weighs, (heads, keys, head size)."""
        return {
            self.places[one.path]: as_numpy(one.value)
            for one in self.unchanged_passes
            if one.path in self.places
        }

    def write(self, change: Intervention, instead: HeadOutputs | None = None) -> str | None:
        """The model's text with parts switched off; None: it writes nothing."""
        return None

    def _weights_of(self, attention: AttentionCall, number: int) -> LayerWeights:
        """An attention of one item of a batch."""
        own = as_numpy(attention.weights[number])
        caches = getattr(self.model.sizes, "key_heads", 0) or len(own)
        return LayerWeights(own, np.zeros(own.shape[:2]), caches)

    def _edit(self, changes: Sequence[Intervention], instead: HeadOutputs | None) -> network.Watch:
        """The watch that makes each change in its item of a batch."""

        def edit(call: AttentionCall) -> Array:
            place = self.places.get(call.path)
            if place is None:
                return call.output
            (heads, queries, keys), output = call.weights.shape[-3:], None
            sides = self.sides[place[0]]
            # The first query of a text whose start is in a cache comes after it.
            start = keys - queries if sides[0] == sides[1] else 0
            for number, change in enumerate(changes):
                off = change.outputs_off(*place)
                shape = heads, start + queries, keys
                whole = partial(self._weights_of, call, number)
                cells = change.hidden_cells(*place, sides, shape, whole)
                if cells is None and not off:
                    continue
                if output is None:
                    output = split_heads(call.output, heads) + 0
                if cells is not None:
                    visible = call.weights[number] * self.model.weights.place(~cells[:, start:])
                    with np.errstate(invalid="ignore"):
                        output[number] = visible / visible.sum(-1)[..., None] @ call.value[number]
                if off:
                    size = output.shape[-1]
                    rows = replacement_outputs(instead, place, (heads, queries, size), start)
                    put = self.model.weights.convert(rows)
                for head, query in off:
                    at = slice(None) if query is None else query - start
                    output[number, head, at] = put[head, at]
            return call.output if output is None else join_heads(output)

        return edit
