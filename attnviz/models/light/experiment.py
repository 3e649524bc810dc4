"""A network's predictions, and how they change when parts are switched off.

A part is switched off before the output projection mixes the heads. Only the first changed layer
and those after it run again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import groupby
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
from attnviz.mechanisms.arrays import Array, namespace, to_numpy
from attnviz.mechanisms.dot_product import join_heads, split_heads
from attnviz.models.light import network

SCORES = 1 << 24
"""Scores of choices that exist at once, 64 MB of them."""
POSITIONS = 2048
"""Positions that go through the layers at once."""


@dataclass(frozen=True, slots=True)
class Head:
    """An output head: how it scores tokens or classes by the last states, and its weights."""

    model: str  # the class of transformers that has it
    maps: str = "lm_head"  # the map to the scores; before it another and perhaps a norm
    bias: str = ""  # of the map to the scores, where it is stored under another name
    activation: str = ""  # between the maps; "": that of the layers
    ties: bool = True  # whether the last map is the embeddings, where no key says so
    cap: float | None = None  # of scores
    labels: int = 0  # of a classifier
    first: bool = False  # whether it reads the first state alone

    @property
    def is_linear(self) -> bool:
        """Whether scores are a linear map of the last states."""
        return self.cap is None and " " not in self.maps

    def predict(self, weights: network.Weights, shape: network.Shape, states: Array) -> Array:
        """Scores of every token (…, vocabulary), for the last states (…, size)."""
        output, *before = self.maps.split()
        if before:
            activate = network.ACTIVATIONS[self.activation or shape.activation]
            states = activate(network.linear_map(weights, before[0], states))
            states = network.normalise(weights, shape, before[1], states) if before[1:] else states
        scores = network.linear_map(weights, output, states)
        return self.cap * namespace(scores).tanh(scores / self.cap) if self.cap else scores

    def weight_shapes(
        self, shape: network.Shape, width: int
    ) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Every weight that it reads, and its shape; embeddings have a width."""
        output, *before = self.maps.split()
        width = shape.size if self.labels else width
        yield f"{output}.weight", (self.labels or shape.vocabulary, width)
        if before or self.labels:
            yield f"{output}.bias", (self.labels or shape.vocabulary,)
        elif self.bias:
            yield f"{output}.bias", (1, shape.vocabulary)
        if before:
            yield f"{before[0]}.weight", (width, shape.size)
            norms = [f"{norm}.{end}" for norm in before[1:] for end in ("weight", "bias")]
            yield from ((name, (width,)) for name in (f"{before[0]}.bias", *norms))


ROBERTA = Head(
    "RobertaForMaskedLM", "lm_head.decoder lm_head.dense lm_head.layer_norm", "lm_head.bias", "gelu"
)
HEADS = {
    "bert": Head(
        "BertForMaskedLM",
        "cls.predictions.decoder cls.predictions.transform.dense "
        "cls.predictions.transform.LayerNorm",
        "cls.predictions.bias",
    ),
    "roberta": ROBERTA,
    "xlm-roberta": replace(ROBERTA, model="XLMRobertaForMaskedLM"),
    "distilbert": Head("DistilBertForMaskedLM", "vocab_projector vocab_transform vocab_layer_norm"),
    "electra": Head(
        "ElectraForMaskedLM",
        "generator_lm_head generator_predictions.dense generator_predictions.LayerNorm",
        activation="gelu",
    ),
    "llama": Head("LlamaForCausalLM", ties=False),
    "mistral": Head("MistralForCausalLM", ties=False),
    "qwen2": Head("Qwen2ForCausalLM", ties=False),
    "qwen3": Head("Qwen3ForCausalLM", ties=False),
    "gemma2": Head("Gemma2ForCausalLM", cap=30.0),
    "gemma3_text": Head("Gemma3ForCausalLM"),
    "gpt2": Head("GPT2LMHeadModel"),
    "opt": Head("OPTForCausalLM"),
    "gpt_neox": Head("GPTNeoXForCausalLM", "embed_out", ties=False),
    "bart": Head("BartForConditionalGeneration", bias="final_logits_bias"),
    "marian": Head("MarianMTModel", bias="final_logits_bias"),
}
"""The head that predicts tokens, by model type."""
OF_TEXTS = {
    "bert": ("classifier bert.pooler.dense", "tanh"),
    "roberta": ("classifier.out_proj classifier.dense", "tanh"),
    "xlm-roberta": ("classifier.out_proj classifier.dense", "tanh"),
    "electra": ("classifier.out_proj classifier.dense", "gelu"),
    "distilbert": ("classifier pre_classifier", "relu"),
}
"""The maps of a classifier of texts and the activation between them, by model type."""
CLASSES = {"ForSequenceClassification": True, "ForTokenClassification": False}
"""The endings of classifiers' names, and whether they read the first state alone."""


def head_of(config: Mapping[str, Any], bare: str, *, writes: bool = False) -> Head | None:
    """The head for the class that a configuration names; None: the class has no head.

    `bare` is the kind's class without a head; a kind that `writes` text has its head anyway.

    Raises:
        UnknownArchitecture: another head, or a key of it with another kind of value.
    """
    name, kind = (config.get("architectures") or [bare])[0], config["model_type"]
    ending, head = name.removeprefix(bare.removesuffix("Model")), HEADS.get(kind)
    if name == bare and not writes:
        return None
    if ending in CLASSES and kind in OF_TEXTS:
        maps, activation = OF_TEXTS[kind] if (first := CLASSES[ending]) else ("classifier", "")
        count = len(config.get("id2label") or "12")  # two where none are named
        return Head(name, maps, "", activation, ties=False, labels=count, first=first)
    if head is None or name not in (bare, head.model):
        raise network.UnknownArchitecture(f"the network inside has no head of a {name}")
    is_tied = config.get("tie_word_embeddings", head.ties)
    cap = config.get("final_logit_softcapping", head.cap)
    if not isinstance(is_tied, bool) or not isinstance(cap, float | int | None):
        raise network.UnknownArchitecture("its configuration does not say how it predicts")
    return replace(head, ties=is_tied, cap=cap)


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

        def look(one: network.Attended) -> Array:
            if place := self.places.get(one.name):
                shares[place] = as_numpy(one.shares[0])
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
            self.places[one.name]: as_numpy(split_heads(one.output, one.shares.shape[-3]))
            for one in self.unchanged_passes
            if one.name in self.places
        }

    def head_values(self) -> HeadOutputs:
        """The values that each head weighs, (heads, keys, head size)."""
        return {
            self.places[one.name]: as_numpy(one.value)
            for one in self.unchanged_passes
            if one.name in self.places
        }

    def write(self, change: Intervention, instead: HeadOutputs | None = None) -> str | None:
        """The model's text with parts switched off; None: it writes nothing."""
        return None

    def _weights_of(self, attention: network.Attended, number: int) -> LayerWeights:
        """An attention of one item of a batch."""
        own = as_numpy(attention.shares[number])
        caches = getattr(self.model.sizes, "key_heads", 0) or len(own)
        return LayerWeights(own, np.zeros(own.shape[:2]), caches)

    def _edit(self, changes: Sequence[Intervention], instead: HeadOutputs | None) -> network.Watch:
        """The watch that makes each change in its item of a batch."""

        def edit(call: network.Attended) -> Array:
            place = self.places.get(call.name)
            if place is None:
                return call.output
            (heads, queries, keys), output = call.shares.shape[-3:], None
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
                    visible = call.shares[number] * self.model.weights.place(~cells[:, start:])
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


def as_numpy(array: Array) -> NDArray[np.floating]:
    """The numbers of either kind of array, in double precision where they are."""
    if isinstance(array, np.ndarray):
        return array
    return np.asarray(array.detach().cpu()) if "float64" in str(array.dtype) else to_numpy(array)
