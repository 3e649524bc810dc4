import pytest
import torch
from torch.nn.functional import elu

from attnviz.layers import LinearAttention

INPUTS = torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(28))
SOURCE = torch.randn(2, 7, 6, generator=torch.Generator().manual_seed(29))


def expected(layer, target, source):
    """Each head's normalised products, formed in full."""
    heads = []
    for query, key, value in zip(
        *(
            projection(given).chunk(layer.heads, dim=-1)
            for projection, given in (
                (layer.query, target),
                (layer.key, source),
                (layer.value, source),
            )
        ),
        strict=True,
    ):
        products = (elu(query) + 1) @ (elu(key) + 1).mT
        products = products.tril() if layer.causal else products
        heads.append(products / products.sum(dim=-1, keepdim=True) @ value)
    return layer.output(torch.cat(heads, dim=-1))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("bias", [False, True])
def test_it_is_the_full_products_head_by_head(causal, heads, bias):
    layer = LinearAttention(6, heads, causal=causal, bias=bias)
    found, _ = layer(INPUTS)
    torch.testing.assert_close(found, expected(layer, INPUTS, INPUTS), rtol=0, atol=1e-6)


def test_it_looks_over_another_sequence_but_not_causally():
    layer = LinearAttention(6, 2)
    found, weights = layer(INPUTS, SOURCE, need_weights=True)
    torch.testing.assert_close(found, expected(layer, INPUTS, SOURCE), rtol=0, atol=1e-6)
    assert weights.shape == (2, 2, 5, 7)
    with pytest.raises(ValueError, match="as many queries as keys"):
        LinearAttention(6, causal=True)(INPUTS, SOURCE)
