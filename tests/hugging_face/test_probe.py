"""Kernels asked with indicators, against the softmax written out."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from attnviz.core.attention_call import AttentionCall
from attnviz.core.errors import AttentionError
from attnviz.models.hugging_face.capture import probe, region
from attnviz.models.hugging_face.capture.passes import CaptureSpec, check_mixture, read_call
from attnviz.models.hugging_face.capture.probe import exact_rows, key_masses, pool_array, read_grid
from tests.hugging_face.ask import every_weight


class Module(torch.nn.Module):
    def __init__(self, groups: int, causal: bool) -> None:
        super().__init__()
        self.num_key_value_groups, self.is_causal = groups, causal


def softmaxed(query, key, members, causal):
    """The slow, obvious weights, shape (heads, queries, keys)."""
    scores = (
        query[0] @ key[0].repeat_interleave(members, 0).transpose(1, 2) / query.shape[-1] ** 0.5
    )
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[1:]).triu(1).bool(), -torch.inf)
    return scores.softmax(-1)


def sdpa(tokens=21, heads=4, groups=2, size=6, causal=True, sharp=1.0):
    """A call of PyTorch's kernel and the weights it applies."""
    torch.manual_seed(0)
    query, key, value = (
        torch.randn(1, count, tokens, size) * sharp for count in (heads, groups, groups)
    )
    module = Module(heads // groups, causal)
    output, _ = sdpa_attention_forward(module, query, key, value, None)
    call = AttentionCall(
        query, key, value, None, output, kernel=sdpa_attention_forward, module=module
    )
    return call, softmaxed(query, key, heads // groups, causal)


def rounding(call):
    """How far two float32 readings of a call's weights may lie apart, on any processor.

    A score is a sum of products, and is off by half a unit of the last place of all of them for
    each at most; a weight moves by half of that; and either reading may.
    """
    size = call.query.shape[-1]
    keys = call.key[0].repeat_interleave(call.query.shape[1] // call.key.shape[1], 0)
    products = call.query[0].abs() @ keys.abs().transpose(1, 2) / size**0.5
    eps = torch.finfo(torch.float32).eps
    return eps * (size * float(products.max()) / 2 + 8)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("heads", "groups"), [(4, 4), (4, 2), (8, 1)])
def test_indicators_of_single_keys_give_the_weights(heads, groups, causal):
    call, weights = sdpa(heads=heads, groups=groups, causal=causal)
    found = torch.cat([masses for _, masses in key_masses(call, region.each_token(21))], -1)
    torch.testing.assert_close(found[0].transpose(0, 1), weights, atol=rounding(call), rtol=0)


@pytest.mark.parametrize(("heads", "groups"), [(4, 4), (4, 2), (8, 1)])
def test_the_gradient_by_the_values_gives_whole_rows(heads, groups):
    call, weights = sdpa(heads=heads, groups=groups)
    queries = torch.stack([torch.randperm(21)[:9] for _ in range(heads)])
    rows = exact_rows(call, queries)
    expected = torch.stack([head[chosen] for head, chosen in zip(weights, queries, strict=True)])
    torch.testing.assert_close(rows, expected, atol=rounding(call), rtol=0)


@pytest.mark.parametrize("most", [1, 4, 5, 20, 21, 100])
def test_blocks_sum_keys_and_average_queries(most):
    call, weights = sdpa()
    frame = region.PooledGrid(region.split_blocks(0, 21, most), region.split_blocks(0, 21, most))
    found = read_grid(call, frame)[0]
    rows = [weights[:, a:b].mean(1) for a, b in frame.queries.spans]
    columns = [torch.stack([row[:, c:d].sum(1) for c, d in frame.keys.spans], -1) for row in rows]
    expected = torch.stack(columns, 1)
    torch.testing.assert_close(found, expected, atol=rounding(call), rtol=0)
    torch.testing.assert_close(found.sum(-1), torch.ones(found.shape[:2]), atol=1e-5, rtol=0)
    np.testing.assert_allclose(
        pool_array(weights.numpy(), frame), expected.numpy(), atol=rounding(call)
    )


def test_parts_and_what_is_no_mixture():
    for frame in (
        region.PooledGrid(region.TokenBlocks(3, 5), region.each_token(21)),
        region.PooledGrid(region.TokenBlocks(3, 9), region.TokenBlocks(3, 9)),
        region.PooledGrid(region.TokenBlocks(2, 21, 4), region.TokenBlocks(5, 20, 3)),
    ):
        call, weights = sdpa(heads=2, groups=1, tokens=21)
        found = read_grid(call, frame)[0].numpy()
        np.testing.assert_allclose(found, pool_array(weights.numpy(), frame), atol=rounding(call))
    call, weights = sdpa()
    check_mixture("layer", call, weights[None])
    said = (
        r"^attention of 'layer' cannot be read: its kernel does more than mix values by weights "
        r"\(off by [\d.]+\)$"
    )
    with pytest.raises(AttentionError, match=said):
        check_mixture("layer", call, weights[None].flip(-1))
    call, _ = sdpa(heads=2, groups=2)

    def squares(module, query, key, value, mask, **options):
        return sdpa_attention_forward(module, query, key, value + value**2, mask)

    output, _ = squares(call.module, call.query, call.key, call.value, None)
    crooked = AttentionCall(
        call.query, call.key, call.value, None, output, kernel=squares, module=call.module
    )
    with pytest.raises(AttentionError, match="cannot be read"):
        read_call("layer", crooked, every_weight("layer", crooked))


def spelled_out(module, query, key, value, mask, **options):
    """A kernel with all that kernels add to a softmax: caps, biases, masks and sinks."""
    members = query.shape[1] // key.shape[1]
    key, value = (part.repeat_interleave(members, 1) for part in (key, value))
    scores = query @ key.transpose(2, 3) * options.get("scaling", query.shape[-1] ** -0.5)
    if "softcap" in options:
        scores = (scores / options["softcap"]).tanh() * options["softcap"]
    scores = scores + options.get("position_bias", 0)
    if mask is not None:
        scores = (
            scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
        )
    elif module.is_causal:
        scores = scores.masked_fill(torch.ones(scores.shape[2:]).triu(1).bool(), -torch.inf)
    if "s_aux" in options:
        sinks = options["s_aux"][None, :, None, None].expand(*scores.shape[:3], 1)
        scores = torch.cat([scores, sinks], -1)
    weights = scores.softmax(-1)[..., : key.shape[2]]
    return (weights @ value).transpose(1, 2), weights


SEEN = torch.rand(1, 1, 21, 21, generator=torch.Generator().manual_seed(1)) > 0.4
SEEN[..., 0] = True
BIAS = torch.randn(1, 4, 21, 21, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(
    ("mask", "options"),
    [
        (None, {}),
        (SEEN, {}),
        (torch.zeros(SEEN.shape).masked_fill(~SEEN, -torch.inf), {}),
        (None, {"scaling": 0.7}),
        (None, {"softcap": 0.9}),
        (None, {"s_aux": torch.tensor([0.5, 1.0, 2.0, -1.0])}),
        (None, {"position_bias": BIAS}),
        (SEEN, {"position_bias": BIAS[:, :1], "softcap": 2.0}),
    ],
)
@pytest.mark.parametrize("groups", [4, 2, 1])
def test_softmax_rows_without_the_kernel(groups, mask, options, causal, monkeypatch):
    call, _ = sdpa(groups=groups, causal=causal)
    output, weights = spelled_out(call.module, call.query, call.key, call.value, mask, **options)
    given = (call.query, call.key, call.value, mask, output)
    monkeypatch.setattr(probe, "exact_rows", None)
    heads = torch.tensor([0, 2, 3])
    queries = torch.tensor([[1, 5], [0, 20], [7, 8]])
    plain = AttentionCall(*given, kernel=spelled_out, module=call.module, options=options)
    rows = probe.row_weights(plain, heads, queries)
    expected = weights[0][heads[:, None], queries]
    torch.testing.assert_close(rows, expected[..., : rows.shape[2]], atol=1e-5, rtol=0)
    assert not expected[..., rows.shape[2] :].any()


@pytest.mark.parametrize(("tokens", "asked"), [(17, 1), (16, 0)])
def test_few_rows_of_a_long_text_are_read_by_themselves(tokens, asked, monkeypatch):
    # Two rows of two heads cost as much as 16 queries.
    call, weights = sdpa(tokens=tokens, heads=2, groups=2)
    calls = []
    monkeypatch.setattr(
        probe, "exact_rows", lambda *given: (calls.append(1), exact_rows(*given))[1]
    )
    found = read_grid(
        call, region.PooledGrid(region.TokenBlocks(3, 5), region.TokenBlocks(0, tokens))
    )
    torch.testing.assert_close(found[0], weights[:, 3:5], atol=rounding(call), rtol=0)
    assert len(calls) == asked


@pytest.mark.parametrize(
    ("dtype", "share"), [(torch.float32, 1e-3), (torch.float16, 1e-2), (torch.bfloat16, 5e-2)]
)
@pytest.mark.parametrize("sharp", [0.1, 1.0])
def test_outputs_may_be_off_by_a_share(sharp, dtype, share):
    call, weights = sdpa(heads=2, groups=2, causal=False, sharp=sharp)
    value = call.value.to(dtype)
    mixed = (weights @ value[0].float()).transpose(0, 1)[None]
    most = share * max(float(value.abs().max()), 1.0)
    for part, refused in ((0.95, False), (1.05, True)):
        output = mixed.clone()
        output[0, 5, 1, 2] += part * most
        off = replace(call, value=value, output=output)
        check_mixture("layer", off, weights[None], 5)
        if refused:
            with pytest.raises(AttentionError, match="'layer' cannot be read"):
                check_mixture("layer", off, weights[None])
        else:
            check_mixture("layer", off, weights[None])


def test_what_is_kept_where_it_is_wanted():
    call, weights = sdpa()
    given, whole = replace(call, weights=weights[None]), every_weight("layer", call)
    taken = read_call("layer", given, replace(whole, from_kernel=True))
    assert taken.how == "given by its kernel"
    assert np.array_equal(taken.weights, weights[None].numpy())
    assert read_call("layer", given, whole).how == "probed"
    assert read_call("layer", call, replace(whole, from_kernel=True)).how == "probed"
    call, _ = sdpa()
    for grid in (
        region.PooledGrid(region.each_token(21), region.each_token(21)),
        region.PooledGrid(region.TokenBlocks(3, 5), region.TokenBlocks(3, 5)),
    ):
        assert read_call("layer", call, CaptureSpec(grid)).projections is None
        assert read_call("layer", call, CaptureSpec(grid, keep_qk=True)).projections is not None
    for module in (True, False):
        call, _ = sdpa(causal=module)
        assert probe.is_causal(call) is module
        for said in (True, False):
            assert probe.is_causal(replace(call, options={"is_causal": said})) is said


@pytest.mark.parametrize("given", [True, False])
def test_only_own_queries_explain_the_output(given):
    call, weights = sdpa(heads=2, groups=2)
    output = call.output.clone()
    output[0, 5:] += 1
    off = replace(call, output=output, weights=weights[None] if given else None)
    whole = replace(every_weight("layer", call), from_kernel=given)
    assert read_call("layer", off, replace(whole, first=5)).path == "layer"
    for first in (6, None):
        with pytest.raises(AttentionError, match=r"^attention of 'h\.3\.attn' cannot be read: "):
            read_call("h.3.attn", off, replace(whole, first=first))


def test_a_row_of_zeros_may_be_broken():
    for sizes, options, head in (
        # Of 4 heads of size 4 and 2 groups, the third of the second text answers 0 in a row.
        ((1e20, 1e19), {}, 2),
        ((1e20, 1e18), {}, None),
        ((1e20, 1e19), {"scaling": 1e-9}, None),
        ((1e20, 1e18), {"scaling": 5.0}, 2),
        ((1.0, 1e19), {}, None),
    ):
        query, key = torch.full((2, 4, 3, 4), 1e-3), torch.full((2, 2, 5, 4), 1e-3)
        # The scores of the first head overflow too, but it answers something.
        query[:, 0] = 1e20
        query[1, 2, 1], key[1, :, 4] = sizes[0] / 2, sizes[1] / 2
        output = torch.ones(2, 3, 4, 4)
        output[1, 1, 2] = output[0, 2, 3] = 0
        call = AttentionCall(query, key, key.clamp(max=1), None, output, options=options)
        assert probe.broken_head(call) == head
