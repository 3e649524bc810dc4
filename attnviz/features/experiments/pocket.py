"""A shipped model with its input before it: what changes its predictions, and by how much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from attnviz.core import effects
from attnviz.core.attention_map import Attention, AttentionMap, Token
from attnviz.core.errors import InputError, UnfitTextError, UsageError
from attnviz.core.lens_inputs import AttentionGradients, ValueVectors
from attnviz.core.query import ALL_OUTPUTS, Query
from attnviz.features.experiments.network import NetworkExperiment
from attnviz.features.pocket_lm.language_model import CausalPocket
from attnviz.features.targets.outputs import chosen_class
from attnviz.features.targets.words import NEXT, find_token, last_word, next_word, place_to_explain
from attnviz.features.vision.pocket_vit import PicturePocket
from attnviz.mechanisms.arrays import as_numpy, stack_layers, to_numpy
from attnviz.mechanisms.dot_product import split_heads
from attnviz.models.light.network import Record
from attnviz.models.pocket.model import PocketModel
from attnviz.models.pocket.text import END, MASK, SPECIALS, PocketInputs, load_piece_tokenizer

NOTE = "gradients are taken by torch, which takes a second to load; the rest runs without it"
TOGETHER = 16  # texts whose targets are written in one pass
FEW = 20  # pieces after a text that are enough to see what the model would write
Place = TypeVar("Place")


class StoredExperiment(NetworkExperiment):
    """A shipped model and its input, with gradients by torch."""

    def spell(self, number: int) -> str:
        return str(self.model.spell(number))

    def gradients(self) -> tuple[NDArray[np.floating], ...]:
        return self.slopes(log=True)[0]

    def explain_first(self) -> AttentionGradients:
        """The gradients of the first output's score."""
        gradients, probability = self.slopes(log=False)
        attention = self.attention.with_maps(self.attention.maps, notes=[NOTE])
        (output,) = self.outputs
        label = effects.label_of(output, attention.main.query_tokens)
        return AttentionGradients(attention, gradients, (output.row,), label, probability)

    def output_gradients(self) -> effects.HeadOutputs:
        import torch

        record = Record()
        score, _, _ = self._score(record, log=True)
        own = [one for one in record if one.path in self.places]
        slopes = torch.autograd.grad(score, [one.output for one in own], allow_unused=True)
        return {
            self.places[one.path]: as_numpy(
                split_heads(torch.zeros_like(one.output) if slope is None else slope, heads)
            )
            for one, slope in zip(own, slopes, strict=True)
            for heads in (one.weights.shape[-3],)
        }

    def slopes(self, *, log: bool) -> tuple[tuple[NDArray[np.floating], ...], float]:
        import torch

        maps = self.attention.maps
        score, chance, layers = self._score(None, log=log)
        flat = [share for item in maps for share in layers[item.stream]]
        slopes = iter(torch.autograd.grad(score, flat))
        return tuple(stack_layers([next(slopes) for _ in item.layers]) for item in maps), chance

    def _score(self, watch: Record | None, *, log: bool) -> tuple[Any, float, Any]:
        """The outputs' summed log p or scores, the first's p, and the weights of each layer."""
        import torch

        model = self.model
        weights = {name: torch.as_tensor(model.weights[name]) for name in model.weights}
        inputs = tuple(torch.as_tensor(one).requires_grad_() for one in model.inputs(self.feed))
        states, layers = model.forward(weights, inputs, watch)
        logits = model.scores(weights, states[[output.row for output in self.outputs]])
        numbers = torch.tensor([[output.number] for output in self.outputs], device=logits.device)
        chances = effects.leave_out(logits, self.outputs).log_softmax(-1).gather(1, numbers)
        score = (chances if log else logits.gather(1, numbers)).sum()
        return score, float(chances.detach()[0].exp()), layers


class PieceExperiment(StoredExperiment):
    """A shipped model that predicts pieces of text, by its tokenizer."""

    model: Any

    def piece_of(self, word: str) -> int | None:
        """The number of a word that is one piece, as it begins a word or as it is."""
        vocabulary = load_piece_tokenizer(self.model.tokenizer)
        numbers = (vocabulary.token_to_id(piece) for piece in (f"▁{word}", word))
        return next((int(number) for number in numbers if number is not None), None)

    def choose_pieces(self, ids: list[int], target: str | None, side: str) -> None:
        """Set the outputs: pieces that a decoder predicts, each from the row before it.

        By default the last word of a target, or the word that the model would write after a text.

        Args:
            ids: the numbers of what it reads, a special one first.
            target: a token by text or position, "next:WORD", or "all"; None: the usual one.
            side: "target" or "text", what the decoder reads.
        """
        tokens = self.attention.main.query_tokens
        if target == ALL_OUTPUTS:
            self.outputs = tuple(
                effects.PredictedToken(place - 1, ids[place], tokens[place].text, place)
                for place in range(1, len(tokens))
            )
            return
        number, note = None, ""
        position = last_word(tokens) if side == "target" and len(tokens) > 1 else len(tokens)
        if target is not None:
            is_open = not tokens[-1].special or len(tokens) == 1
            place = NEXT if is_open else "", len(tokens)
            choice = place_to_explain(
                *(tokens, target, 1, self.piece_of, place), is_target=side == "target"
            )
            position, number, note = require_place(choice, tokens, target, side, 1)
        if number is None and position == len(tokens):
            self.outputs = (effects.PredictedToken(position - 1, END, "", position),)
            (scores,) = self.run([effects.Intervention()])
            output = next_word(position, scores[0], range(len(SPECIALS)), self.spell)
        elif number is None:
            name = tokens[position].text
            output = effects.PredictedToken(position - 1, ids[position], name, position, note=note)
        else:
            output = effects.PredictedToken(position - 1, number, self.spell(number), position)
        self.outputs = (output,)
        self.attention = effects.note_outputs(self.attention, self.outputs)


def require_place(
    place: Place | None, tokens: Sequence[Token], target: str, side: str, first: int
) -> Place:
    """The place, or a UnfitTextError that lists the allowed ones."""
    if place is None:
        also = " nor one piece of the model's vocabulary" if first else ""
        raise UnfitTextError(
            f"--target '{target}' is no token of the {side}{also}: name one by its text, or by its "
            f"position, {first} to {len(tokens) - 1 + first}"
        )
    return place


class PocketExperiment(PieceExperiment):
    """The pocket model and a query.

    The encoder predicts a masked word, the decoder the next piece. The wanted output is a token by
    its text or position, or "all" tokens of the decoder's text. By default it is the last word of
    the encoder's text or of a translation, or the next word after the decoder's text.
    """

    model: PocketModel
    feed: PocketInputs

    def __init__(self, model: PocketModel, query: Query, target: str | None) -> None:
        super().__init__(model, *model.read(query))
        if self.feed.target is None:
            self.attention, self.outputs = self._mask_word(self.attention, target)
        else:
            side = "target" if self.feed.source else "text"
            self.choose_pieces(self.feed.target_ids, target, side)

    def values(self) -> ValueVectors:
        return self.model.values_of(self.feed, self.attention)

    def write(
        self, change: effects.Intervention, instead: effects.HeadOutputs | None = None
    ) -> str | None:
        """The greedy translation or continuation; None: the encoder writes nothing."""
        query = self.feed
        if query.target is None:
            return None
        read, prompt = query.source_ids, query.target_ids[: 1 if query.source else None]
        watch = self._edit([change], instead)
        ((ids, _),) = self.model.continue_texts([read], [prompt], watch)
        return self.model.decode(ids, query.language)

    def _mask_word(
        self, attention: Attention, target: str | None
    ) -> tuple[Attention, tuple[effects.PredictedToken, ...]]:
        """The text with one word masked, and the word as the output."""
        tokens = attention.main.query_tokens
        if target == ALL_OUTPUTS:
            raise UsageError(
                "--target all needs a model that predicts every token from those before it: the "
                "encoder predicts one masked word, so name it, or use 'cross' or --causal"
            )
        position = last_word(tokens)
        if target is not None:
            position = require_place(find_token(tokens, target), tokens, target, "text", 0)
        word = tokens[position]
        if word.special:
            if target is None:
                raise InputError("the text has no word that could be masked")
            raise UnfitTextError(f"'{word.text}' is no word that could be masked: name another")
        number, read = self.feed.source_ids[position], self.feed.source
        assert read is not None
        ids = [*read.ids[:position], MASK, *read.ids[position + 1 :]]
        self.feed = replace(self.feed, source=replace(read, ids=ids))
        _, layers = self.model.forward(self.model.weights, self.model.inputs(self.feed))
        mask = replace(word, text=SPECIALS[MASK], special=True)
        new_tokens = (*tokens[:position], mask, *tokens[position + 1 :])
        item = AttentionMap("encoder", new_tokens, new_tokens, stack_layers(layers["encoder"]))
        note = f"'{word.text}' is masked, so that the model predicts it"
        changed_attention = attention.with_maps((item,), notes=[note])
        return changed_attention, (effects.PredictedToken(position, number, word.text, position),)


def head_outputs(
    model: Any, queries: Sequence[Query], like: effects.Experiment
) -> list[effects.HeadOutputs]:
    """What each head puts out in each text; the model writes missing targets together."""
    outputs = list[effects.HeadOutputs]()
    for start in range(0, len(queries), TOGETHER):
        some = queries[start : start + TOGETHER]
        model.translate_all(some)
        outputs += [PocketExperiment(model, query, None).head_outputs() for query in some]
    return outputs


class CausalExperiment(PieceExperiment):
    """The causal pocket model and a text; by default it explains the next word."""

    model: CausalPocket

    def __init__(self, model: CausalPocket, query: Query, target: str | None) -> None:
        super().__init__(model, *model.read(query))
        self.choose_pieces(self.feed, target, "text")

    def write(
        self, change: effects.Intervention, instead: effects.HeadOutputs | None = None
    ) -> str | None:
        new = self.model.write(self.feed, FEW, self._edit([change], instead))
        return "".join(map(self.model.piece, new)).replace("▁", " ")


class PictureExperiment(StoredExperiment):
    """The picture model and a picture; the wanted output is a class, by default the likeliest."""

    model: PicturePocket

    def __init__(self, model: PicturePocket, query: Query, target: str | None) -> None:
        super().__init__(model, *model.read(query))
        states, _ = model.forward(model.weights, model.inputs(self.feed))
        scores = to_numpy(model.scores(model.weights, states[:1]))[0]
        config = SimpleNamespace(id2label=dict(enumerate(model.labels)))
        self.outputs = (chosen_class(config, scores, target),)
