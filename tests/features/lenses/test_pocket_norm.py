"""Norms of the pocket model against its own update of each position."""

import numpy as np
import pytest

from attnviz.core.query import Query
from attnviz.features.lenses.norm import norms
from attnviz.models.light import network
from attnviz.models.pocket import model
from attnviz.models.pocket.translator import encode_query, load_pocket

PAIR = "The red car is fast", "La voiture rouge est rapide"


def vectors(pocket, name, values):
    """fₕ(xⱼ) of one layer, shape (heads, keys, size)."""
    heads, size = pocket.sizes.heads, pocket.sizes.size
    value = values[f"{name}.value"]
    matrix = pocket.weights[f"{name}.output.weight"].T.reshape(heads, size // heads, size)
    return np.einsum("hjd,hdo->hjo", value, matrix)


@pytest.mark.parametrize("causal", [False, True])
def test_they_are_the_lengths_of_what_is_added(causal):
    pocket = load_pocket(causal=causal, dtype="float64")
    found = pocket.values(Query(PAIR[0]))
    attention = found.attention
    inputs = encode_query(pocket, Query(PAIR[0]))
    assert found.projected
    values = {}

    def note(seen):
        values[f"{seen.path}.value"] = seen.value
        return seen.output

    seen = []
    whole = network.Pass.attend

    def attend(run, number, block, *rest):
        update, shares = whole(run, number, block, *rest)
        seen.append((f"{run.shape.layer.format(number)}.{block.name}", update, shares))
        return update, shares

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network.Pass, "attend", attend)
        source = pocket.embed(inputs.source_ids)
        memory, _ = model.run_encoder(pocket.weights, pocket.sizes, source, watch=note)
        if causal:
            target = pocket.embed(inputs.target_ids)
            model.run_decoder(pocket.weights, pocket.sizes, target, memory, watch=note)
    own = [item for item in seen if item[0].startswith("decoder" if causal else "encoder")]
    own = [item for item in own if item[0].endswith("self_attention")]
    for layer, (name, update, shares) in enumerate(own):
        added = np.einsum("hij,hjo->ijo", shares, vectors(pocket, name, values))
        bias = pocket.weights[f"{name}.output.bias"]
        np.testing.assert_allclose(added.sum(axis=1) + bias, update, atol=1e-10)
        lengths = norms(attention.weights[layer : layer + 1], found.products[0][layer][None])[0]
        np.testing.assert_allclose(lengths, np.linalg.norm(added, axis=-1), atol=1e-5)


def test_a_pair_has_them_for_each_stream():
    pocket = load_pocket()
    found = pocket.values(Query(*PAIR, "cross"))
    shapes = [products.shape for products in found.products]
    keys, queries = len(found.attention.main.key_tokens), len(found.attention.tokens)
    assert shapes == [(4, keys, 6, 6), (4, keys, 6, 6), (4, queries, 6, 6)]
    for products in found.products:
        np.testing.assert_allclose(products, products.swapaxes(-1, -2), atol=1e-12)
