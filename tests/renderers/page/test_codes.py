import base64
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from attnviz.renderers.page.data import FINE_LEVELS, Codes, code_scale, encode_weights
from tests.renderers.page.samples import softmax_rows

MAPS = arrays(np.float32, (1, 2, 3, 4), elements=st.floats(0, 1, width=32, allow_subnormal=False))
SIGNED = arrays(
    np.float32, (1, 2, 3, 4), elements=st.floats(-8, 8, width=32, allow_subnormal=False)
)


def decode(codes: Codes, layer: int, count: int, signed: bool) -> np.ndarray:
    """The weights that codes stand for, byte by byte, as the page reads them."""
    text = codes.layers[layer].replace(",", "<")
    unpack = base64.b64decode if codes.power == 2 else base64.b85decode
    data = zlib.decompress(unpack(text))
    if codes.levels == FINE_LEVELS:
        found, next_ = list(np.frombuffer(data, "<i2").astype(float)), len(data)
    else:
        found, next_ = [], count
        for byte in data[:count]:
            code = byte - 128 if signed else byte
            if abs(code) == (127 if signed else 255):
                size = data[next_] + 256 * data[next_ + 1]
                code, next_ = (-size if code < 0 else size), next_ + 2
            found.append(code)
    assert (next_, len(found)) == (len(data), count)
    return np.array(
        [np.sign(code) * (abs(code) / codes.levels) ** codes.power * codes.scale for code in found]
    )


@pytest.mark.slow
@given(MAPS)
def test_shares_come_back_closely_and_few_more_closely(weights):
    codes = encode_weights(weights, signed=False, fine=False)
    assert np.abs(decode(codes, 0, weights.size, False) - weights.ravel()).max() < 0.001
    codes = encode_weights(weights, signed=False, fine=True)
    assert np.abs(decode(codes, 0, weights.size, False) - weights.ravel()).max() < 4e-5


@given(SIGNED, st.booleans())
@pytest.mark.slow
def test_a_signed_value_comes_back_with_its_sign(weights, fine):
    codes = encode_weights(weights, signed=True, fine=fine)
    back = decode(codes, 0, weights.size, signed=True)
    assert np.abs(back - weights.ravel()).max() <= codes.scale / codes.levels * 1.0001
    assert not np.any(back * weights.ravel() < 0)


def test_many_shares_come_back_to_within_what_the_page_states():
    rows = softmax_rows(1, 2, 40, 371, seed=3, spread=3.0)
    rows[0, 0, :3, :3] = np.eye(3)
    codes = encode_weights(rows, signed=False, fine=False, many=True)
    off = np.abs(decode(codes, 0, rows.size, signed=False) - rows.ravel())
    assert off.max() <= 0.001
    assert off[rows.ravel() < 0.01].max() <= 0.0004
    assert off[rows.ravel() < 0.0027].max() <= 0.0003
    signed = encode_weights(rows, signed=True, fine=False, many=True)
    assert signed == encode_weights(rows, signed=True, fine=False)


def test_small_weights_come_back_closer_in_each_layer():
    weights = np.full((1, 1, 1, 128), 1 / 128, np.float32)
    weights[0, 0, 0, 0] = 0.4
    back = decode(encode_weights(weights, signed=False, fine=False), 0, 128, signed=False)
    assert abs(back[1] - 1 / 128) < 1e-4
    weights = softmax_rows(3, 2, 5, 4)
    codes = encode_weights(weights, signed=False, fine=False)
    for place, layer in enumerate(weights):
        np.testing.assert_allclose(decode(codes, place, 40, False), layer.ravel(), atol=0.001)
    assert code_scale(np.array([-2.0, 1.0], np.float32), signed=True) == 2.0
    assert code_scale(np.zeros(2, np.float32), signed=True) == 1.0


@pytest.mark.parametrize(("top", "scale"), [(1.0, 1.0), (1.0005, 1.0), (3.0, 3.0), (0.01, 1.0)])
def test_the_scale_of_shares_is_one_or_their_top(top, scale):
    assert code_scale(np.array([0, top], np.float32), signed=False) == pytest.approx(scale)


@pytest.mark.parametrize("fine", [True, False])
def test_no_value_has_a_code_of_its_own(fine):
    weights = np.array([[[[np.nan, 0, 0.5, -1]]]], np.float32)
    codes = encode_weights(weights, signed=True, fine=fine)
    assert codes.scale == 1
    data = zlib.decompress(base64.b64decode(codes.layers[0]))
    first = np.frombuffer(data[:2], "<i2")[0] if fine else data[0]
    assert first == (-32768 if fine else 0)
    others = encode_weights(weights[..., 1:], signed=True, fine=fine)
    np.testing.assert_allclose(decode(others, 0, 3, True), [0, 0.5, -1], atol=0.003)
