"""Gradients, values, queries and keys behind maps of the pocket model, from one more pass."""

from __future__ import annotations

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
from attnviz.mechanisms.arrays import Array, to_numpy
from attnviz.mechanisms.dot_product import split_heads
from attnviz.models.pocket.model import PocketModel
from attnviz.models.pocket.network import decode, encode, predict
from attnviz.models.pocket.text import END, MASK, SPECIALS, EncodedQuery, load_tokenizer

if TYPE_CHECKING:
    from torch import Tensor

LAYER_NAMES = {
    "encoder": "encoder.{}.self_attention",
    "decoder": "decoder.{}.self_attention",
    "causal": "decoder.{}.self_attention",
    "cross": "decoder.{}.cross_attention",
}
"""What the attention of each stream's layers is called among the weights."""
NOTE = "gradients are taken by torch, which takes a second to load; the rest runs without it"


def projections_of(model: PocketModel, query: EncodedQuery) -> dict[str, Array]:
    """What each projection gave, shape (positions, size), by name ("encoder.0.….query")."""
    found: dict[str, Array] = {}
    source = model.embed(query.source_ids)
    memory, _ = encode(model.weights, model.sizes, source, projected=found)
    if query.target:
        target = model.embed(query.target_ids)
        decode(model.weights, model.sizes, target, memory, projected=found)
    return found


def with_projections(model: PocketModel, query: EncodedQuery, attention: Attention) -> Attention:
    """The attention with the queries and keys of each of its streams."""
    found = projections_of(model, query)

    def stacked(item: AttentionMap, side: str) -> NDArray[np.float32]:
        names = (f"{LAYER_NAMES[item.stream].format(layer)}.{side}" for layer in item.layers)
        return np.stack([split_heads(to_numpy(found[name]), model.sizes.heads) for name in names])

    scale = (model.sizes.size // model.sizes.heads) ** -0.5
    kept = {
        item.stream: Projections(
            stacked(item, "query"), stacked(item, "key"), scale, item.layers, item.heads
        )
        for item in attention.maps
    }
    return replace(attention, projections=kept)


def value_vectors(model: PocketModel, query: EncodedQuery, attention: Attention) -> ValueVectors:
    """Each head's values through its slice of W_O, for maps that the model has made."""
    projected = projections_of(model, query)

    def products(name: str) -> NDArray[np.float64]:
        value = split_heads(to_numpy(projected[f"{name}.value"]), model.sizes.heads)
        return inner_products(value, to_numpy(model.weights[f"{name}.output.weight"]).T)

    found = tuple(
        np.stack([products(LAYER_NAMES[item.stream].format(layer)) for layer in item.layers])
        for item in attention.maps
    )
    return ValueVectors(attention, found, projected=True)


def gradients_of(
    model: PocketModel, query: EncodedQuery, attention: Attention, wanted: str | None
) -> AttentionGradients:
    """Gradients of a prediction by every attention weight, by torch.

    The encoder's prediction is a word of the text where it is masked, the decoder's the piece
    after those before it.

    The wanted one is a token by text or position; None: the last word of the encoder's text, the
    last piece of a translation, or what the decoder would write after its text.
    """
    if query.target is None:
        return _masked_word(model, query, attention, wanted)
    tokens = attention.main.query_tokens
    if wanted is not None:
        position = _find(tokens, wanted, "target" if query.source else "text", 1)
    else:
        position = len(tokens) - 1 if query.source else len(tokens)
    return _next_piece(model, query, attention, position)


def _find(tokens: tuple[Token, ...], wanted: str, side: str, first: int) -> int:
    found = find_token(tokens, wanted, first)
    if found is None:
        raise UsageError(
            f"--target '{wanted}' is no token of the {side}: name one by its text, or by its "
            f"position, {first} to {len(tokens) - 1 + first}"
        )
    return found


def _masked_word(
    model: PocketModel, query: EncodedQuery, attention: Attention, wanted: str | None
) -> AttentionGradients:
    tokens = attention.main.query_tokens
    position = last_word(tokens) if wanted is None else _find(tokens, wanted, "text", 0)
    word = tokens[position]
    if word.special:
        raise UsageError(f"'{word.text}' is no word that could be masked: name another")
    ids = query.source_ids
    masked_ids = [*ids[:position], MASK, *ids[position + 1 :]]
    weights = _on_torch(model)
    memory, shares = encode(weights, model.sizes, _inputs(model, masked_ids))
    logits = predict(weights, memory[position])
    (gradients,) = _gradients(logits[ids[position]], [shares])
    mask = replace(word, text=SPECIALS[MASK], special=True)
    shown = (*tokens[:position], mask, *tokens[position + 1 :])
    item = AttentionMap("encoder", shown, shown, _stacked([share.detach() for share in shares]))
    note = f"'{word.text}' was masked, for the attribution to its prediction"
    attention = _with_notes(replace(attention, maps=(item,)), note)
    probability = _probability(logits, ids[position])
    return AttentionGradients(attention, (gradients,), (position,), word.text, probability)


def _next_piece(
    model: PocketModel, query: EncodedQuery, attention: Attention, position: int
) -> AttentionGradients:
    weights = _on_torch(model)
    memory, encoder = encode(weights, model.sizes, _inputs(model, query.source_ids))
    states, own, cross = decode(weights, model.sizes, _inputs(model, query.target_ids), memory)
    logits = predict(weights, states[position - 1])
    tokens = attention.main.query_tokens
    if position < len(tokens):
        number, name = query.target_ids[position], tokens[position].text
    else:
        # Tags, masks and the unknown are never written.
        number = max((END, *range(len(SPECIALS), len(logits))), key=logits.tolist().__getitem__)
        name = _spelled(model, number)
    layers = {"cross": cross, "encoder": encoder, "decoder": own, "causal": own}
    gradients = _gradients(logits[number], [layers[item.stream] for item in attention.maps])
    return AttentionGradients(
        _with_notes(attention), gradients, (position - 1,), name, _probability(logits, number)
    )


def _with_notes(attention: Attention, *notes: str) -> Attention:
    provenance = attention.provenance
    notes = (*provenance.notes, *notes, NOTE)
    return replace(attention, provenance=replace(provenance, notes=notes))


def _on_torch(model: PocketModel) -> dict[str, Tensor]:
    return {name: _tensor(model.weights[name]) for name in model.weights}


def _tensor(array: Any) -> Tensor:
    import torch

    return torch.from_numpy(array) if isinstance(array, np.ndarray) else array


def _inputs(model: PocketModel, ids: list[int]) -> Tensor:
    return _tensor(model.embed(ids)).requires_grad_()


def _gradients(score: Tensor, streams: list[list[Tensor]]) -> tuple[NDArray[np.float32], ...]:
    """∂score/∂weights of each stream, shape (layers, heads, queries, keys)."""
    import torch

    flat = [share for shares in streams for share in shares]
    found = iter(torch.autograd.grad(score, flat))
    return tuple(_stacked([next(found) for _ in shares]) for shares in streams)


def _stacked(layers: list[Array]) -> NDArray[np.float32]:
    return np.stack([to_numpy(layer) for layer in layers])


def _probability(logits: Tensor, number: int) -> float:
    return float(logits.detach().softmax(-1)[number])


def _spelled(model: PocketModel, number: int) -> str:
    if number < len(SPECIALS):
        return SPECIALS[number]
    return str(load_tokenizer(model.tokenizer).decode([number])).strip() or "␣"
