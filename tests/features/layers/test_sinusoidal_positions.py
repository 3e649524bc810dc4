import pytest
import torch

from attnviz.layers import SinusoidalPositions
from attnviz.mechanisms.relative import sinusoidal_positions


@pytest.mark.parametrize("size", [1, 6, 7])
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)], ids=str)
def test_the_waves_are_added_to_every_item(size, batch):
    inputs = torch.randn(*batch, 5, size, generator=torch.Generator().manual_seed(32))
    added = SinusoidalPositions(size)(inputs) - inputs
    expected = torch.from_numpy(sinusoidal_positions(5, size)).expand(*batch, 5, size)
    torch.testing.assert_close(added, expected, rtol=0, atol=1e-6)


def test_the_table_grows_and_nothing_is_learned():
    layer = SinusoidalPositions(6, length=3)
    told = layer(torch.zeros(20, 6))
    torch.testing.assert_close(told, torch.from_numpy(sinusoidal_positions(20, 6)))
    assert layer.table.shape == (20, 6)
    assert SinusoidalPositions(6)(torch.zeros(3, 6, dtype=torch.float64)).dtype == torch.float64
    assert SinusoidalPositions(6)(torch.zeros(3, 6, dtype=torch.bfloat16)).dtype == torch.bfloat16
    layer = SinusoidalPositions(6)
    assert list(layer.parameters()) == []
    assert layer.state_dict() == {}
    layer = SinusoidalPositions(6, dropout=0.5)
    torch.manual_seed(33)
    assert (layer(torch.ones(50, 6)) == 0).any()
    assert (layer.eval()(torch.full((50, 6), 9.0)) > 0).all()
