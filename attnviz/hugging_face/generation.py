"""What a decoder reads: a given target, or one that the model writes first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from attnviz.attention_map import Token
from attnviz.errors import ModelError
from attnviz.hugging_face.border import running
from attnviz.hugging_face.tokens import tokenize, tokenize_generated

LONGEST = 256
"""Tokens after which a model that does not end its output by itself is stopped."""


@dataclass(frozen=True, slots=True)
class Target:
    """A decoder's input.

    Attributes:
        text: what it says.
        ids: its tokens' numbers, the decoder's start token first.
        tokens: one for each.
        notes: what a reader must know about it.
    """

    text: str
    ids: list[int]
    tokens: tuple[Token, ...]
    notes: tuple[str, ...] = ()


QUERIES = "the decoder's input: each token looks before the next one is predicted"
"""What the rows of a decoder's maps stand for."""


def given_target(model: Any, tokenizer: Any, text: str) -> Target:
    """A text as the decoder reads it while it predicts that text: shifted by one start token.

    Raises:
        InputError: the text is blank.
        ModelError: the model does not say how its decoder starts.
    """
    written = tokenize(tokenizer, text, as_target=True)
    ids, tokens = list(written.ids), list(written.tokens)
    if not tokens[-1].special:
        # Shifting drops the last token, which must not be one of the text's.
        ids.append(tokenizer.eos_token_id if tokenizer.eos_token_id is not None else ids[-1])
        tokens.append(tokens[-1])
    shifted = shift(model, ids)
    start = Token(str(tokenizer.convert_ids_to_tokens(shifted[0])), special=True)
    return Target(text, shifted, (start, *tokens[:-1]))


def shift(model: Any, ids: list[int]) -> list[int]:
    """What a decoder reads to predict these tokens: a start token, then all but the last of them.

    A model's own way is asked first: mBART starts with the language, which stands last.

    Raises:
        ModelError: the model does not say how its decoder starts.
    """
    import torch

    if hasattr(model, "prepare_decoder_input_ids_from_labels"):
        own = model.prepare_decoder_input_ids_from_labels(torch.tensor([ids]))
        return [int(number) for number in own[0]]
    start = getattr(model.config, "decoder_start_token_id", None)
    if start is None:
        raise ModelError(
            f"the decoder of architecture '{model.config.model_type}' does not say how it starts "
            "(decoder_start_token_id)"
        )
    return [start, *ids[:-1]]


def generated_target(
    model: Any, tokenizer: Any, inputs: Mapping[str, Any], limit: int, most: int | None = None
) -> Target:
    """What the model itself writes, taking the likeliest token each time.

    Args:
        model: an encoder–decoder with a language-model head.
        tokenizer: its tokenizer.
        inputs: the source as tensors.
        limit: how many tokens its decoder can read.
        most: how many tokens to write at most; None: LONGEST.

    Raises:
        ModelError: it wrote nothing.
    """
    import torch

    most = min(most or LONGEST, limit - 1)
    # transformers sizes the cache of T5 and its kin by the encoder, too small for a deeper decoder.
    deeper = getattr(model.config, "num_decoder_layers", 0) > model.config.num_hidden_layers
    with running(model), torch.inference_mode():
        written = model.generate(
            **inputs, do_sample=False, num_beams=1, max_new_tokens=most, use_cache=not deeper
        )
    ids = written[0].tolist()
    ended = ids[-1] in end_ids(model, tokenizer)
    kept = ids[:-1] if ended else ids
    text, tokens = tokenize_generated(tokenizer, kept)
    if not text:
        raise ModelError("the model wrote nothing about this text: give a target")
    # The token that a decoder starts with stands for no text, whatever it is called.
    tokens = (replace(tokens[0], special=True), *tokens[1:])
    cut = () if ended else (f"the model was stopped after {most} tokens",)
    notes = ("the target was generated greedily, then read in one teacher-forced pass", *cut)
    return Target(text, kept, tokens, notes)


def end_ids(model: Any, tokenizer: Any) -> set[int]:
    """The tokens that end a model's output."""
    named = model.generation_config.eos_token_id
    listed = named if isinstance(named, list) else [named]
    return {number for number in (*listed, tokenizer.eos_token_id) if number is not None}
