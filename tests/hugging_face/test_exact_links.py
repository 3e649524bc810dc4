"""The strongest links beside a pooled map, against whole matrices searched by brute force."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from attnviz.models.hugging_face.capture import exact_links
from attnviz.models.hugging_face.capture import probe as row_weights
from attnviz.models.hugging_face.capture.capture import capture
from attnviz.models.hugging_face.capture.probe import read_grid
from attnviz.models.hugging_face.capture.region import PooledGrid, Region, TokenBlocks, split_blocks
from tests.hugging_face.ask import attend
from tests.hugging_face.test_probe import rounding, sdpa

HIDDEN = exact_links.IgnoredPositions(queries=(2,), keys=(0, 7), itself=True)


def found_in(call, frame, hidden, count):
    bounds = exact_links.Bounds(call, frame, hidden)
    read_grid(call, frame, bounds.add)
    return exact_links.find_strongest(bounds, count)


def brute_force(weights, hidden, count):
    """Every cell of every head, one by one."""
    return [
        sorted(
            (
                (-float(weight), query, key)
                for (query, key), weight in np.ndenumerate(head)
                if query not in hidden.queries
                and key not in hidden.keys
                and weight > 0
                and not (hidden.itself and query == key)
            )
        )[:count]
        for head in weights
    ]


def assert_same(found, expected, weights, atol):
    """The same cells in the same order, but for what rounding alone can exchange."""
    assert len(found) == len(expected)
    for head, (own, best) in enumerate(zip(found, expected, strict=True)):
        assert len({(cell.query, cell.key) for cell in own}) == len(own) == len(best)
        np.testing.assert_allclose(
            [cell.weight for cell in own], [-item[0] for item in best], atol=atol
        )
        for cell in own:
            assert weights[head, cell.query, cell.key] == pytest.approx(cell.weight, abs=atol)


@pytest.mark.parametrize(("rows", "groups"), [(2, 4), (64, 2)])
@pytest.mark.parametrize("sharp", [0.01, 1.7])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("most", [1, 3, 10])
def test_no_stronger_link_is_missing(most, groups, causal, sharp, rows, monkeypatch):
    monkeypatch.setattr(exact_links, "ROWS", rows)
    call, weights = sdpa(heads=4, groups=groups, causal=causal, sharp=sharp)
    frame = PooledGrid(split_blocks(0, 21, most), split_blocks(0, 21, most))
    found = found_in(call, frame, HIDDEN, 5)
    assert_same(found, brute_force(weights.numpy(), HIDDEN, 5), weights, rounding(call))


def test_frames_and_equal_links():
    call, weights = sdpa(causal=False)
    part = torch.zeros_like(weights)
    part[:, 4:15, 6:20] = weights[:, 4:15, 6:20]
    found = found_in(call, PooledGrid(TokenBlocks(4, 15, 3), TokenBlocks(6, 20, 5)), HIDDEN, 6)
    assert_same(found, brute_force(part.numpy(), HIDDEN, 6), weights, rounding(call))
    call, _ = sdpa(causal=False)
    even = torch.zeros_like(call.query)
    output = call.kernel(call.module, even, call.key, call.value, None)[0]
    even_call = replace(call, query=even, output=output)
    frame = PooledGrid(split_blocks(0, 21, 4), split_blocks(0, 21, 4))
    for head in found_in(even_call, frame, exact_links.IgnoredPositions(keys=(0,), itself=True), 4):
        assert [(cell.query, cell.key) for cell in head] == [(0, 1), (0, 2), (0, 3), (0, 4)]
    values = torch.tensor([[0.1, 0.5, 0.2, 0.5, 0.5], [0.0, 0.0, 0.0, 0.0, 1.0]])
    assert exact_links.top_columns(values, 2).tolist() == [[1, 3], [4, 0]]
    weights = np.array([[[0.9, 0.1, 0.0], [0.3, 0.6, 0.1], [0.2, 0.7, 0.1]]], dtype=np.float32)
    (found,) = exact_links.strongest_in_matrices(
        weights, exact_links.IgnoredPositions(queries=(0,), keys=(2,), itself=True), 9
    )
    assert [(cell.query, cell.key) for cell in found] == [(2, 1), (1, 0), (2, 0)]


@pytest.mark.parametrize(("dtype", "atol"), [(torch.float16, 2e-3), (torch.bfloat16, 2e-2)])
def test_half_precision_hides_no_more_than_rounding(dtype, atol):
    call, _ = sdpa(tokens=40, sharp=2.0)
    call = replace(
        call,
        **{name: getattr(call, name).to(dtype) for name in ("query", "key", "value", "output")},
    )
    wide = replace(call, query=call.query.float(), key=call.key.float(), value=call.value.float())
    frame = PooledGrid(split_blocks(0, 40, 5), split_blocks(0, 40, 5))
    whole = PooledGrid(split_blocks(0, 40, 40), split_blocks(0, 40, 40))
    weights = read_grid(wide, whole)[0].numpy()
    assert_same(found_in(call, frame, HIDDEN, 9), brute_force(weights, HIDDEN, 9), weights, atol)


def test_an_odd_kernel_is_asked_for_its_rows(monkeypatch):
    call, _ = sdpa(heads=4, groups=2)
    asked = []

    def mixed(module, query, key, value, mask, **options):
        output, nothing = call.kernel(module, query, key, value, mask)
        return (output + output.roll(1, dims=1)) / 2, nothing

    odd = replace(
        call, kernel=mixed, output=mixed(call.module, call.query, call.key, call.value, None)[0]
    )
    exact_rows = row_weights.exact_rows
    monkeypatch.setattr(
        row_weights, "exact_rows", lambda *given: (asked.append(1), exact_rows(*given))[1]
    )
    weights = read_grid(odd, PooledGrid(split_blocks(0, 21, 21), split_blocks(0, 21, 21)))[
        0
    ].numpy()
    found = found_in(odd, PooledGrid(split_blocks(0, 21, 4), split_blocks(0, 21, 4)), HIDDEN, 5)
    assert asked
    assert_same(found, brute_force(weights, HIDDEN, 5), weights, rounding(call))


@pytest.mark.parametrize(
    "keys", [TokenBlocks(6, 20, 5), TokenBlocks(5, 20, 2), TokenBlocks(0, 21, 4)]
)
def test_a_rows_bound_is_what_it_gives_to_a_block(keys):
    call, weights = sdpa(causal=False)
    frame, hidden = (
        PooledGrid(TokenBlocks(4, 15, 3), keys),
        exact_links.IgnoredPositions(keys=(0, 6, 7, 12, 19)),
    )
    bounds = exact_links.Bounds(call, frame, hidden)
    read_grid(call, frame, bounds.add)
    shown = weights.clone()
    shown[..., list(hidden.keys)] = 0
    masses = torch.stack([shown[:, 4:15, first:stop].sum(-1) for first, stop in keys.spans])
    torch.testing.assert_close(bounds.highest.T, masses.amax(0), atol=1e-5, rtol=0)


def opened_rows(monkeypatch):
    """The shapes of the rows that are computed from here on."""
    opened, rows = [], exact_links.row_weights
    monkeypatch.setattr(
        exact_links, "row_weights", lambda *given: (opened.append(given[2].shape), rows(*given))[1]
    )
    return opened


def test_rows_are_worked_out_as_many_at_a_time_as_fit(monkeypatch):
    # Of two heads a row of 40 weights takes 2 × 40 × 16 bytes.
    monkeypatch.setattr(exact_links, "ROW_BYTES", 3 * 2 * 40 * 16)
    call, weights = sdpa(tokens=40, heads=2, groups=2)
    opened = opened_rows(monkeypatch)
    found = found_in(call, PooledGrid(split_blocks(0, 40, 2), split_blocks(0, 40, 2)), HIDDEN, 5)
    assert {shape[1] for shape in opened[:-1]} == {3}
    assert_same(found, brute_force(weights.numpy(), HIDDEN, 5), weights, rounding(call))


def test_few_rows_are_opened(monkeypatch):
    monkeypatch.setattr(exact_links, "ROWS", 4)
    call, _ = sdpa(tokens=400, heads=2, groups=2)
    opened = opened_rows(monkeypatch)
    found_in(
        call,
        PooledGrid(split_blocks(0, 400, 100), split_blocks(0, 400, 100)),
        exact_links.IgnoredPositions(itself=True),
        5,
    )
    assert sum(shape.numel() for shape in opened) < 400


@pytest.mark.core
@pytest.mark.parametrize("kind", ["bert", "llama", "gemma2", "gpt2"])
def test_links_are_those_of_eager_weights(kind, loaded):
    model = loaded(kind)
    text = "The professor who supervised the student published the paper. " * 2
    text = text if kind != "bert" else text[:62]
    pooled = attend(replace(model, region=Region(max_size=4, links=6)), text).main
    whole = attend(model, text).main
    special = tuple(place for place, token in enumerate(whole.query_tokens) if token.special)
    keys = special if kind == "bert" else tuple({*special, 0})
    for layer in range(len(whole.layers)):
        own = [
            [link for link in pooled.links if (link.layer, link.head) == (str(layer), str(head))]
            for head in range(whole.weights.shape[1])
        ]
        best = brute_force(
            whole.weights[layer], exact_links.IgnoredPositions(special, keys, itself=True), 6
        )
        for links, expected in zip(own, best, strict=True):
            assert [(link.query_position, link.key_position) for link in links] == [
                item[1:] for item in expected
            ]
            np.testing.assert_allclose(
                [link.weight for link in links], [-item[0] for item in expected], atol=1e-5
            )


def test_which_links_count_unless_told_otherwise(loaded):
    model, ids = loaded("bert").model, torch.tensor([[2, 5, 6, 7, 8, 9, 3]])
    (pooled,) = capture(model, {"input_ids": ids}, {"self": (7, 7)}, region=Region(3, links=4))
    (whole,) = capture(model, {"input_ids": ids}, {"self": (7, 7)})
    for weights, heads in zip(whole.weights, pooled.links, strict=True):
        best = brute_force(weights, exact_links.IgnoredPositions(itself=True), 4)
        assert_same(heads, best, weights, 1e-5)
    model, ids = loaded("bart").model, torch.tensor([[0, 50, 60, 70, 80, 90, 2]])
    given = {"input_ids": ids, "decoder_input_ids": ids[:, :6]}
    (pooled,) = capture(model, given, {"cross": (6, 7)}, region=Region(3, links=42))
    (whole,) = capture(model, given, {"cross": (6, 7)})
    assert whole.weights.shape[2:] == (6, 7)
    for weights, heads in zip(whole.weights, pooled.links, strict=True):
        assert_same(heads, brute_force(weights, exact_links.IgnoredPositions(), 42), weights, 1e-5)


@pytest.mark.parametrize("count", [1, 2])
def test_a_head_is_read_on_while_it_may_be_beaten(count, monkeypatch):
    monkeypatch.setattr(exact_links, "ROWS", 1)
    call, weights = sdpa(causal=False, sharp=1.5)
    frame = PooledGrid(split_blocks(0, 21, 7), split_blocks(0, 21, 7))
    found = found_in(call, frame, HIDDEN, count)
    assert_same(found, brute_force(weights.numpy(), HIDDEN, count), weights, rounding(call))
