"""The packed model: how far its weights are from the shipped ones, and what it takes."""

import base64
import re
import zlib
from pathlib import Path

import numpy as np
import pytest

from attnviz.core.query import Query
from attnviz.features.live.packed import quantise, split_by_bits
from attnviz.models.pocket.translator import Pocket
from attnviz.renderers.page.data import pack_base85
from attnviz.renderers.page.document import LIVE_PRECISION

MOST = 9_500_000
"""Characters of a page's ten million: the rest of it needs some."""


def test_no_weight_is_off_by_more_than_half_a_step():
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


@pytest.mark.slow
def test_the_packed_model_fits_into_a_page_and_is_no_markup(packed_model):
    text = pack_base85(packed_model)
    assert len(text) <= MOST
    assert "<" not in text
    assert zlib.decompress(base64.b85decode(text.replace(",", "<"))) == packed_model


def test_weights_are_as_exact_as_the_page_says(pocket):
    (bound,) = re.findall(r"within (0\.\d+) of", LIVE_PRECISION)
    assert f"within {bound} of the command line's" in Path("docs/live.md").read_text("utf-8")
    pairs = [
        ("The red car is fast.", "La voiture rouge est rapide."),
        ("She gave him the old manuscript.", "Elle lui donna le vieux manuscrit."),
        ("I spent the whole week working.", "J'ai passé toute la semaine à travailler."),
    ]
    queries = [Query(source, target, "cross") for source, target in pairs]
    for one, other in zip(pocket.attend(queries), Pocket().attend(queries), strict=True):
        apart = [
            np.abs(own.weights - exact.weights).max()
            for own, exact in zip(one.maps, other.maps, strict=True)
        ]
        assert 4e-5 < max(apart) <= float(bound)
