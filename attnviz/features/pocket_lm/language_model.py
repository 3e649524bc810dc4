"""The causal pocket model as a source of attention: texts, and what it writes after them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from attnviz.core.attention_map import PARTS, SECOND_PART, Attention, AttentionMap, typed_facts
from attnviz.core.errors import InputError, UsageError
from attnviz.core.query import Query
from attnviz.core.registry import ANSWERS, STACK
from attnviz.mechanisms.arrays import Array, stack_layers, to_numpy
from attnviz.models.light.architectures import ARCHITECTURES, with_prefix
from attnviz.models.light.network import Cache, Shape, Watch, run_layers
from attnviz.models.pocket.card import CARDS
from attnviz.models.pocket.stored import StoredModel, add_projections, device_options
from attnviz.models.pocket.text import (
    END,
    SPECIALS,
    EncodedText,
    encode_text,
    load_piece_tokenizer,
    outside_note,
    special,
    token,
)

FOLDER = CARDS["pocket-lm"]  # loads as LlamaForCausalLM in transformers
EMBEDDING = "model.embed_tokens.weight"


def load_pocket_lm(
    *,
    device: str = "auto",
    dtype: str | None = None,
    keep_qk: bool = False,
    generate: int | None = None,
    folder: Path = FOLDER,
) -> CausalPocket:
    """The small trained English decoder that ships with the package."""
    return CausalPocket(folder, keep_qk=keep_qk, generate=generate, **device_options(device, dtype))


def causal_shape(config: Mapping[str, Any]) -> Shape:
    """The shape that a configuration of Llama asks for, for weights with their head."""
    return with_prefix(ARCHITECTURES["llama"].shape_of(config), "model")


class CausalPocket(StoredModel):
    """The causal pocket model, loaded.

    Its stream is "causal". Every text begins with <eos>. A row belongs to the piece that was just
    read, not to the piece that is predicted from it.
    """

    answers = ANSWERS["pocket-lm"]

    name = "pocket-lm"
    can_generate = True
    sizes: Shape
    streams = {"causal": "model.layers.{}.self_attn"}  # noqa: RUF012
    words = output = "model.embed_tokens"

    def __init__(
        self, folder: Path, *, keep_qk: bool = False, generate: int | None = None, **options: str
    ) -> None:
        super().__init__(folder, **options)
        self.sizes = causal_shape(self.config)
        self.longest = self.config["max_position_embeddings"] - 1
        self.keep_qk, self.generate = keep_qk, generate

    def inputs(self, feed: list[int]) -> tuple[Array]:
        return (self.weights.rows(EMBEDDING, np.array(feed)),)

    def stacks(self, feed: list[int]) -> list[Any]:
        stack = STACK.load()
        return [stack(self.weights, self.sizes, "causal", {"embedding": self.inputs(feed)[0]})]

    def read(self, query: Query) -> tuple[list[int], Attention]:
        """The ids that the model reads, its continuation of the text included, and their maps."""
        if query.kind != "self":
            raise UsageError(
                f"'{self.name}' reads one text: use 'attnviz self TEXT', or --model pocket for two"
            )
        text = encode_text(query.text, self.tokenizer, longest=self.longest)
        settings, notes = dict[str, Any](), list[str]()
        if self.generate:
            text, settings, notes = self.continue_text(text)
        ids, tokens = [END, *text.ids], (special(END, 0), *text.tokens)
        states, layers = self.forward(self.weights, self.inputs(ids))
        notes = [*self.notes(text, states), *notes]
        item = AttentionMap("causal", tokens, tokens, stack_layers(layers["causal"]))
        provenance = self.provenance(tuple(notes), settings)
        attention = Attention((item,), provenance, text.text, **typed_facts(provenance))
        return ids, add_projections(self, ids, attention) if self.keep_qk else attention

    def notes(self, text: EncodedText, states: Array) -> list[str]:
        """A note where a text is unlike English: unknown pieces, its length, or its loss."""
        limits = self.origin["limits"]
        notes = text.notes("the text", "pocket-lm", limits["pieces"])
        scores = to_numpy(self.scores(self.weights, states[:-1])).astype(np.float64)
        totals = scores.max(-1) + np.log(np.exp(scores - scores.max(-1, keepdims=True)).sum(-1))
        nats = float((totals - scores[np.arange(len(scores)), text.ids]).mean())
        if notes or nats <= limits["nats"]:
            return notes
        surprise = f"{nats:.1f} nats a piece, where 99 % of English sentences have fewer than "
        return outside_note("the text", "pocket-lm", [f"{surprise}{limits['nats']}"])

    def continue_text(self, prompt: EncodedText) -> tuple[EncodedText, dict[str, Any], list[str]]:
        """A prompt with the model's continuation, and settings and notes about it."""
        most, read = self.generate or 0, [END, *prompt.ids]
        if len(read) + most > self.longest:
            raise InputError(
                f"the prompt is {len(prompt.ids)} pieces long and the pocket-lm model reads "
                f"{self.longest}: --generate can be {max(self.longest - len(read), 0)} at most"
            )
        new = self.write(read, most)
        text, ids, tokens = prompt.text, list(prompt.ids), list(prompt.tokens)
        for number, piece in zip(new, map(self.piece, new), strict=True):
            start, text = len(text), text + piece.replace("▁", " ")
            ids.append(number)
            tokens.append(token(text, piece, (start, len(text))))
        if not new:
            raise InputError("the model ends the text here, and writes nothing: give another one")
        settings = {
            PARTS: "prompt and output",
            SECOND_PART: len(prompt.text),
            "prompt tokens": len(read),
            "output tokens": len(new),
        }
        notes = ["the output was generated greedily, then read in one pass with the prompt"]
        if len(new) == most:
            notes.append(f"the model was stopped after {most} tokens")
        return EncodedText(text, ids, tuple(tokens)), settings, notes

    def write(self, read: list[int], most: int, watch: Watch | None = None) -> list[int]:
        # A watch may change what earlier positions compute, so a cache would be stale.
        cache, new = None if watch else Cache(), list[int]()
        while len(new) < most:
            new_ids = [*read, *new] if cache is None else (new[-1:] or read)
            inputs = self.inputs(new_ids)[0][None]
            states, *_ = run_layers(self.weights, self.sizes, inputs, watch=watch, cache=cache)
            scores = to_numpy(self.scores(self.weights, states[0, -1:]))[0]
            # Of the special pieces, only the end is ever written.
            scores[[number for number in range(len(SPECIALS)) if number != END]] = -np.inf
            if (best := int(scores.argmax())) == END:
                break
            new.append(best)
        return new

    def piece(self, number: int) -> str:
        """A piece as the vocabulary spells it, with a ▁ for the space before a word."""
        return str(load_piece_tokenizer(self.tokenizer).id_to_token(number))
