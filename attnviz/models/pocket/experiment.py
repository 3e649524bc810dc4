"""The pocket model with a text before it: what it predicts, what changes that, and by how much."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import Attention, AttentionMap, Token
from attnviz.core.effects import Change, HeadOutputs, Output, put_out
from attnviz.core.errors import InputError, UsageError
from attnviz.core.lens_inputs import AttentionGradients, ValueVectors, find_token, last_word
from attnviz.core.query import ALL_OUTPUTS
from attnviz.mechanisms.arrays import Array, namespace, to_numpy
from attnviz.mechanisms.dot_product import join_heads, split_heads
from attnviz.models.pocket.lens_inputs import LAYER_NAMES, value_vectors
from attnviz.models.pocket.model import PocketModel
from attnviz.models.pocket.network import Attended, Watch, decode, encode, predict
from attnviz.models.pocket.text import END, MASK, SPECIALS, EncodedQuery, load_tokenizer

if TYPE_CHECKING:
    from torch import Tensor

NOTE = "gradients are taken by torch, which takes a second to load; the rest runs without it"
SCORES = 1 << 24
"""Scores of the vocabulary that exist at once, 64 MB of them."""
POSITIONS = 2048
"""Positions that go through the layers at once."""


class PocketExperiment:
    """The pocket model and a query; fulfils `attnviz.core.effects.Experiment`.

    The encoder's prediction is a word of the text where it is masked, the decoder's the piece
    after those before it. The wanted one is a token by text or position, or of the decoder "all"
    tokens of its text; None: the last word of the encoder's text, the last piece of a translation,
    or what the decoder would write after its text.
    """

    def __init__(
        self, model: PocketModel, query: EncodedQuery, attention: Attention, wanted: str | None
    ) -> None:
        self.model, self.query = model, query
        self.source_ids, self.target_ids = query.source_ids, query.target_ids
        self.places = {
            LAYER_NAMES[item.stream].format(layer): (item.stream, layer)
            for item in attention.maps
            for layer in item.layers
        }
        self.sides = {item.stream: (item.query_side, item.key_side) for item in attention.maps}
        if query.target is None:
            self.attention, self.outputs = self._masked(attention, wanted)
        else:
            self.attention, self.outputs = attention, self._next(attention, wanted)

    def run(
        self, changes: Sequence[Change], instead: HeadOutputs | None = None
    ) -> Iterator[NDArray[np.floating]]:
        """Log-probabilities of each output's choices, (outputs, pieces), for each change."""
        return self._run(changes, [output.row for output in self.outputs], instead)

    def _run(
        self, changes: Sequence[Change], rows: list[int], instead: HeadOutputs | None = None
    ) -> Iterator[NDArray[np.floating]]:
        positions = len(self.source_ids) + len(self.target_ids)
        vocabulary = len(rows) * self.model.sizes.vocabulary
        together = max(1, min(POSITIONS // positions, SCORES // vocabulary))
        for first in range(0, len(changes), together):
            some = changes[first : first + together]
            states = self._states(len(some), self._edit(some, instead))
            scores = _as_numpy(predict(self.model.weights, states[:, rows]))
            with np.errstate(invalid="ignore"):
                scores = scores - scores.max(axis=-1, keepdims=True)
                yield from scores - np.log(np.exp(scores).sum(axis=-1, keepdims=True))

    def changed(self, change: Change) -> Attention:
        """The maps with something switched off; a head that is off still weighs its keys."""
        edit, seen = self._edit([change], None), dict[tuple[str, str], NDArray[np.floating]]()

        def look(one: Attended) -> Array:
            if place := self.places.get(one.name):
                seen[place] = _as_numpy(one.shares[0])
            return edit(one)

        self._states(1, look)
        maps = (
            item.with_weights(np.stack([seen[item.stream, layer] for layer in item.layers]))
            for item in self.attention.maps
        )
        return self.attention.with_maps(tuple(change.seen_in(item) for item in maps))

    def head_outputs(self) -> HeadOutputs:
        """What each head puts out, (heads, positions, head size)."""
        found: dict[tuple[str, str], NDArray[np.floating]] = {}

        def note(seen: Attended) -> Array:
            if place := self.places.get(seen.name):
                (one,) = split_heads(seen.output, self.model.sizes.heads)
                found[place] = _as_numpy(one)
            return seen.output

        self._states(1, note)
        return found

    def values(self) -> ValueVectors:
        """What each head makes of each piece of the text that is run, masked where a word is."""
        return value_vectors(self.model, self.query, self.attention)

    def spell(self, number: int) -> str:
        """A piece as it is written, or the name of a special one."""
        if number < len(SPECIALS):
            return SPECIALS[number]
        return str(load_tokenizer(self.model.tokenizer).decode([number])).strip() or "␣"

    def write(self, change: Change, instead: HeadOutputs | None = None) -> str | None:
        """The greedy translation, or what the decoder goes on with; the encoder writes nothing."""
        if self.query.target is None:
            return None
        read, prompt = self.source_ids, self.target_ids[: 1 if self.query.source else None]
        watch = self._edit([change], instead)
        return self.model.continued(read, prompt, self.query.language, watch)[0]

    def gradients(self) -> tuple[NDArray[np.floating], ...]:
        """How the sum of the outputs' log-probabilities changes with each weight of each map."""
        return self.slopes(log=True)[0]

    def explained(self) -> AttentionGradients:
        """The gradients of the first output's score."""
        gradients, probability = self.slopes(log=False)
        attention = self.attention.with_maps(self.attention.maps, notes=[NOTE])
        (output,) = self.outputs
        return AttentionGradients(attention, gradients, (output.row,), output.name, probability)

    def slopes(self, *, log: bool) -> tuple[tuple[NDArray[np.floating], ...], float]:
        """Gradients by each map's weights of the outputs' log p or scores, and the first's p."""
        import torch

        model, maps = self.model, self.attention.maps
        weights = {name: _tensor(model.weights[name]) for name in model.weights}
        memory, encoder = encode(weights, model.sizes, self._inputs(self.source_ids))
        layers, states = {"encoder": encoder}, memory
        if self.target_ids:
            target = self._inputs(self.target_ids)
            states, own, cross = decode(weights, model.sizes, target, memory)
            layers |= {"cross": cross, "decoder": own, "causal": own}
        logits = predict(weights, states[[output.row for output in self.outputs]])
        numbers = torch.tensor([[output.number] for output in self.outputs], device=logits.device)
        chances = logits.log_softmax(-1).gather(1, numbers)
        score = (chances if log else logits.gather(1, numbers)).sum()
        flat = [share for item in maps for share in layers[item.stream]]
        slopes = iter(torch.autograd.grad(score, flat))
        found = tuple(_stacked([next(slopes) for _ in item.layers]) for item in maps)
        return found, float(chances.detach()[0].exp())

    def _inputs(self, ids: list[int]) -> Tensor:
        return _tensor(self.model.embed(ids)).requires_grad_()

    def _states(self, count: int, watch: Watch) -> Array:
        """What the layers make of the text, (count, positions, size), each item watched."""
        model = self.model

        def embedded(ids: list[int]) -> Array:
            one = model.embed(ids)
            return namespace(one).broadcast_to(one, (count, *one.shape))

        states, _ = encode(model.weights, model.sizes, embedded(self.source_ids), watch=watch)
        if self.target_ids:
            target = embedded(self.target_ids)
            states, *_ = decode(model.weights, model.sizes, target, states, watch=watch)
        return states

    def _edit(self, changes: Sequence[Change], instead: HeadOutputs | None) -> Watch:
        """What switches off in each item of a batch what its change says."""

        def edited(seen: Attended) -> Array:
            place = self.places.get(seen.name)
            if place is None:
                return seen.output
            heads, shape, output = self.model.sizes.heads, seen.shares.shape[-3:], None
            for number, change in enumerate(changes):
                off = change.heads_of(*place)
                hidden = change.hidden(*place, self.sides[place[0]], shape)
                if hidden is None and not off:
                    continue
                if output is None:
                    output = split_heads(seen.output, heads) + 0
                if hidden is not None:
                    kept = seen.shares[number] * self.model.weights.place(~hidden)
                    value = split_heads(seen.value[number], heads)
                    with np.errstate(invalid="ignore"):
                        output[number] = kept / kept.sum(-1)[..., None] @ value
                for head in off:
                    rows = put_out(instead, place, head, shape[1])
                    output[number, head] = self.model.weights.convert(np.asarray(rows))
            return seen.output if output is None else join_heads(output)

        return edited

    def _masked(
        self, attention: Attention, wanted: str | None
    ) -> tuple[Attention, tuple[Output, ...]]:
        """The text with a word masked, and that word."""
        tokens = attention.main.query_tokens
        if wanted == ALL_OUTPUTS:
            raise UsageError(
                "--target all needs a model that predicts every token from those before it: the "
                "encoder predicts one masked word, so name it, or use 'cross' or --causal"
            )
        position = last_word(tokens) if wanted is None else _find(tokens, wanted, "text", 0)
        word = tokens[position]
        if word.special:
            if wanted is None:
                raise InputError("the text has no word that could be masked")
            raise UsageError(f"'{word.text}' is no word that could be masked: name another")
        number, read = self.source_ids[position], self.query.source
        assert read is not None
        ids = [*read.ids[:position], MASK, *read.ids[position + 1 :]]
        self.query = replace(self.query, source=replace(read, ids=ids))
        self.source_ids = self.query.source_ids
        _, shares = encode(self.model.weights, self.model.sizes, self.model.embed(self.source_ids))
        mask = replace(word, text=SPECIALS[MASK], special=True)
        shown = (*tokens[:position], mask, *tokens[position + 1 :])
        item = AttentionMap("encoder", shown, shown, _stacked(shares))
        note = f"'{word.text}' was masked, for the attribution to its prediction"
        masked = attention.with_maps((item,), notes=[note])
        return masked, (Output(position, number, word.text, position),)

    def _next(self, attention: Attention, wanted: str | None) -> tuple[Output, ...]:
        """Pieces that the decoder predicts, each from the row before it."""
        tokens, ids = attention.main.query_tokens, self.target_ids
        if wanted == ALL_OUTPUTS:
            return tuple(
                Output(place - 1, ids[place], tokens[place].text, place)
                for place in range(1, len(tokens))
            )
        position = len(tokens) - 1 if self.query.source else len(tokens)
        if wanted is not None:
            position = _find(tokens, wanted, "target" if self.query.source else "text", 1)
        if position < len(tokens):
            return (Output(position - 1, ids[position], tokens[position].text, position),)
        # Tags, masks and the unknown are never written.
        (scores,) = self._run([Change()], [position - 1])
        number = max((END, *range(len(SPECIALS), scores.shape[1])), key=scores[0].__getitem__)
        return (Output(position - 1, number, self.spell(number), position),)


def _find(tokens: tuple[Token, ...], wanted: str, side: str, first: int) -> int:
    found = find_token(tokens, wanted, first)
    if found is None:
        raise UsageError(
            f"--target '{wanted}' is no token of the {side}: name one by its text, or by its "
            f"position, {first} to {len(tokens) - 1 + first}"
        )
    return found


def _tensor(array: Any) -> Tensor:
    import torch

    return torch.from_numpy(array) if isinstance(array, np.ndarray) else array


def _stacked(layers: list[Array]) -> NDArray[np.floating]:
    return np.stack([_as_numpy(layer) for layer in layers])


def _as_numpy(array: Array) -> NDArray[np.floating]:
    """The numbers of either kind of array, in double precision where they are."""
    if isinstance(array, np.ndarray) or "float64" not in str(array.dtype):
        return array if isinstance(array, np.ndarray) else to_numpy(array)
    numbers: NDArray[np.float64] = array.detach().cpu().numpy()
    return numbers
