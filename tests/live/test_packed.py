"""The packed model: how far its weights are from the shipped ones, and what it takes."""

import base64
import zlib

import numpy as np

from attnviz.models.pocket.packed import quantise, split_by_bits
from attnviz.models.pocket.translator import Pocket
from attnviz.renderers.page.data import pack_base85

MOST = 9_500_000
"""Characters of a page's ten million: the rest of it needs some."""


def test_no_weight_is_further_off_than_half_a_step_of_its_row():
    model = Pocket()
    for name in model.weights:
        weight = np.asarray(model.weights[name])
        for part, bits in split_by_bits(name, weight) if weight.ndim == 2 else ():
            scales, codes = quantise(part, bits)
            apart = np.abs(scales[:, None] * codes - part)
            assert (apart <= 0.501 * scales[:, None]).all(), name
            # A step of 10 bits is 1/511 of the largest weight of the row.
            assert (apart.max(axis=1) <= np.abs(part).max(axis=1) / 1000).all(), name
            assert np.abs(codes).max() < 1 << (bits - 1)


def test_the_packed_model_fits_into_a_page_and_is_no_markup(packed_model):
    text = pack_base85(packed_model)
    assert len(text) <= MOST
    assert "<" not in text
    assert zlib.decompress(base64.b85decode(text.replace(",", "<"))) == packed_model
