import numpy as np
import pytest

from attnviz.core.attention_map import AttentionMap, Token
from attnviz.renderers.page.data import join_tokens, keep_strongest, pool, pool_to_fit
from tests.renderers.page.samples import softmax_rows


def words(count: int) -> tuple[Token, ...]:
    return tuple(Token(f"w{place}") for place in range(count))


def test_what_fits_or_is_short_stays_whole():
    item = AttentionMap("self", words(80), words(80), softmax_rows(1, 1, 80, 80))
    assert pool_to_fit(item, 6400) is item
    assert pool_to_fit(item, 6399).blocks == (2, 2)
    item = AttentionMap("cross", words(4), words(500), softmax_rows(1, 1, 4, 500))
    assert pool_to_fit(item, 1000).blocks == (1, 2)
    item = AttentionMap("self", words(64), words(65), softmax_rows(1, 1, 64, 65))
    assert pool_to_fit(item, 4000).blocks == (1, 2)


@pytest.mark.parametrize("room", [1, 100, 5000, 10_000])
def test_pooled_maps_fit_the_room(room):
    item = AttentionMap("self", words(150), words(130), softmax_rows(1, 2, 150, 130))
    assert pool_to_fit(item, room).weights.size <= max(room, 2)


def test_a_block_is_the_mean_of_sums_over_its_keys():
    item = AttentionMap("self", words(7), words(10), softmax_rows(2, 3, 7, 10))
    pooled = pool(item, 3, 4)
    assert pooled.weights.shape == (2, 3, 3, 3)
    np.testing.assert_allclose(pooled.weights.sum(axis=-1), 1, atol=1e-5)
    tenths = np.full((1, 1, 1, 10), 0.1, np.float32)  # which sum to a little more in float32
    assert pool(AttentionMap("cross", words(1), words(10), tenths), 1, 10).weights.item() == 1
    more = AttentionMap("cross", words(1), words(10), 10 * tenths, values="signed")
    assert pool(more, 1, 10).weights.item() == 10
    weights = softmax_rows(1, 1, 5, 5)
    pooled = pool(AttentionMap("self", words(5), words(5), weights), 2, 3).weights[0, 0]
    assert pooled[0, 0] == pytest.approx(weights[0, 0, 0:2, 0:3].sum(axis=1).mean(), abs=1e-6)
    assert pooled[2, 1] == pytest.approx(weights[0, 0, 4, 3:5].sum(), abs=1e-6)
    assert [token.text for token in join_tokens(words(5), 2)] == ["w0 … w1", "w2 … w3", "w4"]


def test_links_of_a_pooled_map_are_those_of_the_whole():
    weights = softmax_rows(1, 2, 70, 70)
    item = AttentionMap("self", words(70), words(70), weights)
    links = [link for link in pool(item, 7, 7).links if link.head == "1"]
    order = np.argsort(-weights[0, 1], axis=None)[: len(links)]
    found = [(link.query_position, link.key_position) for link in links]
    assert found == [divmod(int(at), 70) for at in order]
    assert links[0].weight == float(weights[0, 1].max())
    assert links[0].query == f"w{found[0][0]}"
    whole = AttentionMap("self", words(140), words(140), softmax_rows(1, 1, 140, 140))
    blocks = pool(whole, 2, 2)
    further = pool(blocks, 3, 3)
    assert further.blocks == (6, 6)
    assert further.links == blocks.links
    weights = np.array([[[[0.1, -0.9], [0.5, 0.0]]]], np.float32)
    item = AttentionMap("affinity", words(2), words(2), weights, values="signed")
    links = keep_strongest(item, 2)
    assert [(link.query_position, link.key_position) for link in links] == [(0, 1), (1, 0)]


def test_a_block_without_a_value_has_none():
    weights = np.array(
        [[np.nan, np.nan, 1, -2], [np.nan, np.nan, np.nan, np.nan]] + [[0, np.nan, 3, 3]] * 2,
        np.float32,
    )
    item = AttentionMap("x", words(4), words(4), weights[None, None], values="signed")
    pooled = pool(item, 2, 2).weights[0, 0]
    np.testing.assert_array_equal(pooled, [[np.nan, -1], [0, 6]])
    assert [link.weight for link in keep_strongest(item, 3)][2] == 3
    assert np.isfinite([link.weight for link in keep_strongest(item)]).all()
