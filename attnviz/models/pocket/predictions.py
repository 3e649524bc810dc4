"""The pocket model with a text before it: the masked word or the piece that it predicts."""

from __future__ import annotations

from dataclasses import replace

from attnviz.core.attention_map import Attention, AttentionMap
from attnviz.core.effects import HeadOutputs, Intervention, PredictedToken
from attnviz.core.errors import InputError, UsageError
from attnviz.core.lens_inputs import ValueVectors, find_token, last_word
from attnviz.core.query import ALL_OUTPUTS
from attnviz.models.pocket.experiment import PieceExperiment, require_place, stack_layers
from attnviz.models.pocket.model import PocketModel
from attnviz.models.pocket.stored import stored_values
from attnviz.models.pocket.text import MASK, SPECIALS, PocketInputs


class PocketExperiment(PieceExperiment):
    """The pocket model and a query.

    The encoder predicts a masked word, the decoder the next piece. The wanted output is a token by
    its text or position, or "all" tokens of the decoder's text. By default it is the last word of
    the encoder's text, the last piece of a translation, or the next piece after the decoder's text.
    """

    model: PocketModel
    given: PocketInputs

    def __init__(
        self, model: PocketModel, query: PocketInputs, attention: Attention, wanted: str | None
    ) -> None:
        super().__init__(model, query, attention)
        if query.target is None:
            self.attention, self.outputs = self._mask_word(attention, wanted)
        else:
            tokens, ids = attention.main.query_tokens, query.target_ids
            side, usual = ("target", len(ids) - 1) if query.source else ("text", len(ids))
            self.outputs = self.choose_pieces(tokens, ids, wanted, side, usual)

    def values(self) -> ValueVectors:
        """The value vectors of each head, for the text with its mask."""
        return stored_values(self.model, self.given, self.attention)

    def write(self, change: Intervention, instead: HeadOutputs | None = None) -> str | None:
        """The greedy translation or continuation; None: the encoder writes nothing."""
        query = self.given
        if query.target is None:
            return None
        read, prompt = query.source_ids, query.target_ids[: 1 if query.source else None]
        watch = self._edit([change], instead)
        return self.model.continue_text(read, prompt, query.language, watch)[0]

    def _mask_word(
        self, attention: Attention, wanted: str | None
    ) -> tuple[Attention, tuple[PredictedToken, ...]]:
        """The text with a word masked, and that word."""
        tokens = attention.main.query_tokens
        if wanted == ALL_OUTPUTS:
            raise UsageError(
                "--target all needs a model that predicts every token from those before it: the "
                "encoder predicts one masked word, so name it, or use 'cross' or --causal"
            )
        position = last_word(tokens)
        if wanted is not None:
            position = require_place(find_token(tokens, wanted), tokens, wanted, "text", 0)
        word = tokens[position]
        if word.special:
            if wanted is None:
                raise InputError("the text has no word that could be masked")
            raise UsageError(f"'{word.text}' is no word that could be masked: name another")
        number, read = self.given.source_ids[position], self.given.source
        assert read is not None
        ids = [*read.ids[:position], MASK, *read.ids[position + 1 :]]
        self.given = replace(self.given, source=replace(read, ids=ids))
        _, layers = self.model.forward(self.model.weights, self.model.inputs(self.given))
        mask = replace(word, text=SPECIALS[MASK], special=True)
        shown = (*tokens[:position], mask, *tokens[position + 1 :])
        item = AttentionMap("encoder", shown, shown, stack_layers(layers["encoder"]))
        note = f"'{word.text}' was masked, for the attribution to its prediction"
        masked = attention.with_maps((item,), notes=[note])
        return masked, (PredictedToken(position, number, word.text, position),)
