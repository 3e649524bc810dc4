"""What every attention layer has in common."""

import pytest
import torch

import attnviz.layers
from attnviz.core.errors import UsageError

from .rows import LAYERS, build, flat, hiding, inputs

every_layer = pytest.mark.parametrize("name", LAYERS)
many = pytest.mark.parametrize("batch", [(), (2,), (2, 3)], ids=str)


def close(one, other, tolerance=1e-12):
    for mine, theirs in zip(flat(one), flat(other), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=tolerance)


def weight_rows(name, weights):
    """The weights whose rows are shares: all but the affinity of parallel co-attention."""
    return flat(weights)[1:] if name == "co parallel" else flat(weights)


def test_every_public_name_is_there():
    for name in attnviz.layers.__all__:
        assert issubclass(getattr(attnviz.layers, name), torch.nn.Module | tuple)
    assert {row.layer.__name__ for row in LAYERS.values()} <= set(attnviz.layers.__all__)


@every_layer
def test_rows_sum_to_one_and_weights_come_on_request(name):
    layer, given = build(name), inputs(name)
    output, nothing = layer(*given)
    same, weights = layer(*given, need_weights=True)
    assert nothing is None
    assert weights is not None
    close(output, same, 0)
    _, weights = build(name)(*inputs(name), need_weights=True)
    for shares in weight_rows(name, weights):
        close(shares.sum(dim=-1), torch.ones(shares.shape[:-1], dtype=torch.float64))


@every_layer
@many
def test_leading_axes_are_a_batch_and_hidden_keys_have_no_weight(name, batch):
    layer, given = build(name), inputs(name, batch)
    output, weights = layer(*given, need_weights=True)
    for tensor in flat(output) + flat(weights):
        assert tensor.shape[: len(batch)] == batch
    alone, seen = layer(*(tensor[(0,) * len(batch)] for tensor in given), need_weights=True)
    for whole, part in zip(flat(output) + flat(weights), flat(alone) + flat(seen), strict=True):
        close(whole[(0,) * len(batch)], part)
    given = inputs(name, batch)
    _, weights = build(name)(*given, need_weights=True, **hiding(name, given, 1))
    for shares in flat(weights):
        assert (shares[..., 1] == 0).all()
        assert shares.abs().sum() > 0


@every_layer
def test_a_hidden_keys_content_changes_nobody_else(name):
    layer, given = build(name), inputs(name)
    before, _ = layer(*given, **hiding(name, given, 2))
    for sequence in given:
        sequence[:, 2] += 10
    after, _ = layer(*given, **hiding(name, given, 2))
    for one, other in zip(flat(before), flat(after), strict=True):
        keep = [0, 1, 3] if one.ndim == 3 else slice(None)
        close(one[:, keep], other[:, keep], 1e-10)


@every_layer
def test_where_nothing_is_in_sight_nothing_is_nan(name):
    layer, given = build(name), inputs(name)
    for tensor in given:
        tensor.requires_grad_()
    hidden = range(min(tensor.shape[-2] for tensor in given))
    masks = {key: torch.zeros_like(mask) for key, mask in hiding(name, given, *hidden).items()}
    output, weights = layer(*given, need_weights=True, **masks)
    for shares in flat(weights):
        assert (shares == 0).all()
    sum(tensor.square().sum() for tensor in flat(output)).backward()
    for tensor in [*flat(output), *(p.grad for p in layer.parameters() if p.grad is not None)]:
        assert torch.isfinite(tensor).all()
    for tensor in given:
        assert tensor.grad is None or torch.isfinite(tensor.grad).all()


@every_layer
def test_dropout_falls_in_training_only(name):
    layer, given = build(name, dropout=0.5), inputs(name)
    plain = build(name)(*given)[0]
    layer.eval()
    close(layer(*given)[0], plain, 0)
    layer.train()
    torch.manual_seed(0)
    assert any(
        (one - other).abs().max() > 1e-3
        for one, other in zip(flat(layer(*given)[0]), flat(plain), strict=True)
    )


@pytest.mark.parametrize("name", [name for name in LAYERS if "linear" not in name])
def test_weights_in_training_are_those_dropout_left(name):
    layer, given = build(name, dropout=0.5), inputs(name)
    _, whole = layer.eval()(*given, need_weights=True)
    torch.manual_seed(1)
    _, left = layer.train()(*given, need_weights=True)
    for before, after in zip(
        weight_rows(name, whole)[:1], weight_rows(name, left)[:1], strict=True
    ):
        dropped = after == 0
        assert (dropped & (before > 0)).any()
        assert not dropped.all()
        if "block" not in name:
            close(after, torch.where(dropped, 0, 2 * before))


@every_layer
def test_parameters_are_learned_and_kept(name):
    layer, given = build(name), inputs(name)
    sum(tensor.square().sum() for tensor in flat(layer(*given)[0])).backward()
    for parameter_name, parameter in layer.named_parameters():
        assert parameter.grad is not None, parameter_name
        # a key's bias moves every score of a row alike, so the softmax never feels it
        if "key.bias" not in parameter_name or "linear" in name:
            assert parameter.grad.abs().max() > 0, parameter_name
    torch.manual_seed(99)
    row = LAYERS[name]
    other = row.layer(**row.options).double()
    assert any(
        (one - two).abs().max() > 1e-3
        for one, two in zip(flat(layer(*given)[0]), flat(other(*given)[0]), strict=True)
    )
    other.load_state_dict(layer.state_dict())
    close(layer(*given)[0], other(*given)[0], 0)


@every_layer
def test_gradients_are_right_and_the_device_is_the_inputs(name):
    layer, given = build(name), inputs(name)

    def outputs(*tensors):
        output, weights = layer(*tensors, need_weights=True)
        return tuple(flat(output) + flat(weights))

    given = [tensor.requires_grad_() for tensor in given]
    assert torch.autograd.gradcheck(outputs, given, fast_mode=True)
    layer, given = build(name).to("meta"), [tensor.to("meta") for tensor in inputs(name)]
    masks = {key: mask.to("meta") for key, mask in hiding(name, given, 1).items()}
    output, weights = layer(*given, need_weights=True, **masks)
    assert {tensor.device.type for tensor in flat(output) + flat(weights)} == {"meta"}


@pytest.mark.parametrize(
    "make",
    [
        lambda: attnviz.layers.MultiHeadAttention(8, 3),
        lambda: attnviz.layers.LinearAttention(8, 3),
        lambda: attnviz.layers.CrossAttention(6, 4, 8, heads=3),
        lambda: attnviz.layers.CoAttention(6, 5, 8, variant="two-stream", heads=3),
        lambda: attnviz.layers.TextEncoder(20, 8, 3),
    ],
)
def test_heads_that_do_not_divide_the_size_are_refused(make):
    with pytest.raises(UsageError, match="a size of 8 cannot be split into 3 heads"):
        make()
