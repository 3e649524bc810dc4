import pytest
import torch

from attnviz.core.errors import UsageError
from attnviz.layers import CoAttention, CrossAttention

FIRST = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(30))
SECOND = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(31))


@pytest.mark.parametrize(
    ("variant", "outputs", "weights"),
    [
        ("parallel", [(2, 6), (2, 5)], [(2, 4, 3), (2, 4), (2, 3)]),
        ("alternating", [(2, 6), (2, 5)], [(2, 4), (2, 3), (2, 4)]),
        ("two-stream", [(2, 4, 6), (2, 3, 5)], [(2, 1, 4, 3), (2, 1, 3, 4)]),
    ],
)
def test_each_variant_gives_what_it_promises(variant, outputs, weights):
    layer = CoAttention(6, 5, 8, variant=variant)
    told, seen = layer(FIRST, SECOND, need_weights=True)
    assert [tuple(tensor.shape) for tensor in told] == outputs
    assert [tuple(tensor.shape) for tensor in seen] == weights


@pytest.mark.parametrize("variant", ["parallel", "alternating"])
def test_a_summary_is_the_sequence_weighed(variant):
    (first, second), weights = CoAttention(6, 5, variant=variant)(FIRST, SECOND, need_weights=True)
    over_first = weights[1] if variant == "parallel" else weights[2]
    over_second = weights[2] if variant == "parallel" else weights[1]
    torch.testing.assert_close(first, torch.einsum("bp,bps->bs", over_first, FIRST))
    torch.testing.assert_close(second, torch.einsum("bp,bps->bs", over_second, SECOND))
    with pytest.raises(UsageError, match=f"2 heads in {variant} co-attention.*'two-stream'"):
        CoAttention(6, variant=variant, heads=2)


def test_a_stream_is_cross_attention_with_an_output():
    layer = CoAttention(6, 5, 8, variant="two-stream", heads=2)
    streams = layer.attention
    cross = CrossAttention(6, 5, 8, heads=2, bias=True)
    cross.query, cross.key, cross.value = (
        streams.first.query,
        streams.second.key,
        streams.second.value,
    )
    (first, _), (over_second, _) = layer(FIRST, SECOND, need_weights=True)
    expected, weights = cross(FIRST, SECOND, need_weights=True)
    torch.testing.assert_close(first, streams.first.output(expected))
    torch.testing.assert_close(over_second, weights)
    with pytest.raises(UsageError, match=r"variant 'paralel'.*Did you mean 'parallel'\?"):
        CoAttention(6, variant="paralel")
