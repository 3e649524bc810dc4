"""The queries, keys and values behind maps of the pocket model: its own forward pass once more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import Attention, AttentionMap, Projections, Token
from attnviz.core.errors import UsageError
from attnviz.core.lens_inputs import (
    AttentionGradients,
    ValueVectors,
    find_token,
    inner_products,
    last_word,
)
from attnviz.mechanisms.arrays import Array
from attnviz.mechanisms.dot_product import split_heads
from attnviz.models.pocket.network import decode, encode, predict
from attnviz.models.pocket.passes import Inputs, inputs_of
from attnviz.models.pocket.source import Pocket, stacked
from attnviz.models.pocket.text import END, MASK, SPECIALS, load_tokenizer, to_numpy

if TYPE_CHECKING:
    from torch import Tensor

PLACES = {
    "encoder": "encoder.{}.self_attention",
    "decoder": "decoder.{}.self_attention",
    "causal": "decoder.{}.self_attention",
    "cross": "decoder.{}.cross_attention",
}
"""What the attention of each stream's layers is called among the weights."""


def projected_for(pocket: Pocket, attention: Attention) -> dict[str, Array]:
    """What each projection gave, by its name ("encoder.0.self_attention.query").

    Args:
        pocket: the model.
        attention: maps that it has made.

    Returns:
        arrays of shape (positions, size), heads side by side.
    """
    inputs = inputs_of(pocket, attention)
    found: dict[str, Array] = {}
    source = pocket.embed(inputs.source)
    memory, _ = encode(pocket.weights, pocket.sizes, source, projected=found)
    if inputs.target:
        target = pocket.embed(inputs.target)
        decode(pocket.weights, pocket.sizes, target, memory, projected=found)
    return found


def with_projections(pocket: Pocket, attention: Attention) -> Attention:
    """The attention with the queries and keys of each of its streams."""
    found = projected_for(pocket, attention)

    def stacked(item: AttentionMap, side: str) -> NDArray[np.float32]:
        names = (f"{PLACES[item.stream].format(layer)}.{side}" for layer in item.layers)
        return np.stack([split_heads(to_numpy(found[name]), pocket.sizes.heads) for name in names])

    scale = (pocket.sizes.size // pocket.sizes.heads) ** -0.5
    kept = {
        item.stream: Projections(
            stacked(item, "query"), stacked(item, "key"), scale, item.layers, item.heads
        )
        for item in attention.maps
    }
    return replace(attention, projections=kept)


# <norm> What each head of the pocket model makes of each key: its value through its slice of W_O.


def transform(pocket: Pocket, attention: Attention) -> ValueVectors:
    """What each head makes of each key, for maps that the model has made."""
    projected = projected_for(pocket, attention)
    products = tuple(
        np.stack(
            [
                products_of(pocket, PLACES[item.stream].format(layer), projected)
                for layer in item.layers
            ]
        )
        for item in attention.maps
    )
    return ValueVectors(attention, products, projected=True)


def products_of(pocket: Pocket, name: str, projected: Mapping[str, Array]) -> NDArray[np.float64]:
    """One layer's inner products."""
    value = split_heads(to_numpy(projected[f"{name}.value"]), pocket.sizes.heads)
    return inner_products(value, to_numpy(pocket.weights[f"{name}.output.weight"]).T)


# <gradient> How one prediction of the pocket model changes with each of its attention weights, by
# torch.

NOTE = "gradients are taken by torch, which takes a second to load; the rest runs without it"


def explain_self(pocket: Pocket, text: str, wanted: str | None = None) -> AttentionGradients:
    """What speaks for a word of the text where it is masked, or for the next piece of a decoder.

    Args:
        pocket: the model.
        text: what it reads.
        wanted: a token by text or position; None: the last word, or what a decoder would write.

    Raises:
        UsageError: no such token.
    """
    attention = pocket.attend_self(text)
    inputs = inputs_of(pocket, attention)
    if not inputs.target:
        return explain_masked(pocket, attention, inputs, wanted)
    tokens = attention.main.query_tokens
    position = len(tokens) if wanted is None else place(tokens, wanted, "text", 1)
    return explain_written(pocket, attention, inputs, position)


def explain_cross(
    pocket: Pocket, source: str, target: str | None, wanted: str | None = None
) -> AttentionGradients:
    """What speaks for a piece of a translation: the named one, or the last.

    Raises:
        UsageError: no such token.
    """
    attention = pocket.attend_cross(source, target)
    tokens = attention.main.query_tokens
    position = len(tokens) - 1 if wanted is None else place(tokens, wanted, "target", 1)
    return explain_written(pocket, attention, inputs_of(pocket, attention), position)


def place(tokens: tuple[Token, ...], wanted: str, side: str, first: int) -> int:
    """The token that a user named.

    Raises:
        UsageError: there is none.
    """
    found = find_token(tokens, wanted, first)
    if found is None:
        raise UsageError(
            f"--target '{wanted}' is no token of the {side}: name one by its text, or by its "
            f"position, {first} to {len(tokens) - 1 + first}"
        )
    return found


def explain_masked(
    pocket: Pocket, attention: Attention, inputs: Inputs, wanted: str | None
) -> AttentionGradients:
    """A word that the encoder has to guess from the others, as in its training."""
    tokens = attention.main.query_tokens
    position = last_word(tokens) if wanted is None else place(tokens, wanted, "text", 0)
    if tokens[position].special:
        raise UsageError(f"'{tokens[position].text}' is no word that could be masked: name another")
    ids = [MASK if at == position else number for at, number in enumerate(inputs.source)]
    weights = on_torch(pocket)
    memory, shares = encode(weights, pocket.sizes, embedded(pocket, ids))
    logits = predict(weights, memory[position])
    number = inputs.source[position]
    (slopes,) = slopes_of(logits[number], [shares])
    masked = replace(tokens[position], text=SPECIALS[MASK], special=True)
    shown = (*tokens[:position], masked, *tokens[position + 1 :])
    item = AttentionMap("encoder", shown, shown, stacked([share.detach() for share in shares]))
    provenance = attention.provenance
    hidden = f"'{tokens[position].text}' was masked, to see what speaks for it"
    attention = replace(
        attention,
        maps=(item,),
        provenance=replace(provenance, notes=(*provenance.notes, hidden, NOTE)),
    )
    return AttentionGradients(
        attention, (slopes,), (position,), tokens[position].text, chance(logits, number)
    )


def explain_written(
    pocket: Pocket, attention: Attention, inputs: Inputs, position: int
) -> AttentionGradients:
    """A piece that the decoder writes after those before it; past the last one the likeliest."""
    weights = on_torch(pocket)
    memory, encoder = encode(weights, pocket.sizes, embedded(pocket, inputs.source))
    states, own, cross = decode(weights, pocket.sizes, embedded(pocket, inputs.target), memory)
    logits = predict(weights, states[position - 1])
    tokens = attention.main.query_tokens
    if position < len(tokens):
        number, name = inputs.target[position], tokens[position].text
    else:
        # Tags, masks and the unknown are never written.
        number = max((END, *range(len(SPECIALS), len(logits))), key=logits.tolist().__getitem__)
        name = spelled(pocket, number)
    layers = {"cross": cross, "encoder": encoder, "decoder": own, "causal": own}
    used = [layers[item.stream] for item in attention.maps]
    slopes = slopes_of(logits[number], used)
    provenance = attention.provenance
    notes = (*provenance.notes, NOTE)
    attention = replace(attention, provenance=replace(provenance, notes=notes))
    return AttentionGradients(
        attention, tuple(slopes), (position - 1,), name, chance(logits, number)
    )


def on_torch(pocket: Pocket) -> dict[str, Tensor]:
    """The model's weights as tensors."""
    return {name: tensor(pocket.weights[name]) for name in pocket.weights}


def tensor(array: Any) -> Tensor:
    """An array of either kind as a tensor."""
    import torch

    return torch.from_numpy(array) if isinstance(array, np.ndarray) else array


def embedded(pocket: Pocket, ids: list[int]) -> Tensor:
    """Inputs from which gradients are followed."""
    return tensor(pocket.embed(ids)).requires_grad_()


def slopes_of(score: Tensor, streams: list[list[Tensor]]) -> list[NDArray[Any]]:
    """∂score/∂weights of each stream, shape (layers, heads, queries, keys)."""
    import torch

    flat = [share for shares in streams for share in shares]
    slopes = iter(torch.autograd.grad(score, flat))
    return [stacked([next(slopes) for _ in shares]) for shares in streams]


def chance(logits: Tensor, number: int) -> float:
    """The probability of one piece among all."""
    return float(logits.detach().softmax(-1)[number])


def spelled(pocket: Pocket, number: int) -> str:
    """What a piece reads as."""
    if number < len(SPECIALS):
        return SPECIALS[number]
    return str(load_tokenizer(pocket.tokenizer).decode([number])).strip() or "␣"
