from __future__ import annotations

import numpy as np
import pytest

from attnviz.attention_map import AttentionMap, Token
from attnviz.renderers.page.pool import block_length, blocks, pool, strongest_cells
from tests.renderers.page.samples import softmax_rows


def words(count: int) -> tuple[Token, ...]:
    return tuple(Token(f"w{place}") for place in range(count))


def test_what_fits_is_not_pooled() -> None:
    item = AttentionMap("self", words(80), words(80), softmax_rows(1, 1, 80, 80))
    assert block_length(item, 6400) == (1, 1)
    assert block_length(item, 6399) == (2, 2)


def test_an_axis_of_few_tokens_stays_whole() -> None:
    item = AttentionMap("cross", words(4), words(500), softmax_rows(1, 1, 4, 500))
    assert block_length(item, 1000) == (1, 2)


@pytest.mark.parametrize("room", [1, 100, 5000, 10_000])
def test_pooled_maps_fit_the_room_as_far_as_whole_axes_allow(room: int) -> None:
    item = AttentionMap("self", words(150), words(130), softmax_rows(1, 2, 150, 130))
    rows, columns = block_length(item, room)
    kept = pool(item, rows, columns).map.weights.size
    assert kept <= max(room, 2)


def test_rows_of_a_pooled_map_sum_to_what_they_summed_to() -> None:
    item = AttentionMap("self", words(7), words(10), softmax_rows(2, 3, 7, 10))
    pooled = pool(item, 3, 4)
    assert pooled.map.weights.shape == (2, 3, 3, 3)
    np.testing.assert_allclose(pooled.map.weights.sum(axis=-1), 1, atol=1e-5)


def test_a_block_is_the_mean_over_its_queries_of_the_sum_over_its_keys() -> None:
    weights = softmax_rows(1, 1, 5, 5)
    pooled = pool(AttentionMap("self", words(5), words(5), weights), 2, 3).map.weights[0, 0]
    assert pooled[0, 0] == pytest.approx(weights[0, 0, 0:2, 0:3].sum(axis=1).mean(), abs=1e-6)
    assert pooled[2, 1] == pytest.approx(weights[0, 0, 4, 3:5].sum(), abs=1e-6)


def test_a_block_reads_as_its_first_and_last_token() -> None:
    assert [token.text for token in blocks(words(5), 2)] == ["w0 … w1", "w2 … w3", "w4"]


def test_the_strongest_links_of_a_pooled_map_are_those_of_the_whole_map() -> None:
    weights = softmax_rows(1, 2, 70, 70)
    item = AttentionMap("self", words(70), words(70), weights)
    links = pool(item, 7, 7).links[0][1]
    order = np.argsort(-weights[0, 1], axis=None)[: len(links)]
    assert [(query, key) for query, key, _ in links] == [divmod(int(at), 70) for at in order]
    assert links[0][2] == float(weights[0, 1].max())


def test_negative_cells_count_by_their_size() -> None:
    cells = strongest_cells(np.array([[0.1, -0.9], [0.5, 0.0]], np.float32), 2)
    assert [cell[:2] for cell in cells] == [(0, 1), (1, 0)]
