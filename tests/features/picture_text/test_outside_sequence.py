"""Pictures beside the sequence of a text, against transformers' own eager weights.

The copies are those of the table of families; where patches lie follows from transformers' code: a
class token first, then row by row.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from attnviz.core.query import Picture
from attnviz.features.picture_text.probe import extend_points
from attnviz.features.picture_text.source import load_picture_text_model
from attnviz.models.hugging_face.capture.kernel import watch_kernels
from tests.families.folders import make_folder
from tests.families.readers import TEXT, picture_of
from tests.families.rows import NEAR, RELATIVE
from tests.hugging_face.ask import look

pytestmark = [pytest.mark.models, pytest.mark.slow]


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """By type: the source, what it was given, where the pictures are, and what it found."""
    root = tmp_path_factory.mktemp("beside")

    @cache
    def of(name: str) -> Any:
        make_folder(name, root / name)
        source = load_picture_text_model(str(root / name), device="cpu")
        reading = source.read(Picture(picture_of()), TEXT)
        return source, reading, source.sight_of(reading, Picture(picture_of()))

    return of


def eager(source: Any, inputs: Any) -> Any:
    source.model.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            return source.model(**inputs, output_attentions=True).attentions
    finally:
        source.model.set_attn_implementation("sdpa")


def test_a_text_attends_to_states_of_patches_by_layers_of_their_own(read):
    source, reading, sight = read("mllama")
    np.testing.assert_array_equal(sight.sheets[0].cells, 1 + np.arange(64).reshape(8, 8))
    found = look(source, picture_of(), TEXT)
    (own,) = [one for one in eager(source, reading.inputs) if one.shape[-1] == sight.keys]
    rows = len(found.maps[0].query_tokens)
    assert rows == len(reading.ids) - sight.places[-1] - 1
    theirs = own[0, :, -rows:, 1:65].numpy()
    np.testing.assert_allclose(found.weights[0][..., -64:], theirs, atol=NEAR, rtol=RELATIVE)
    assert own[0, :, -rows:, 65:].abs().max() == 0  # tiles that are not there


def test_layers_between_others_attend_to_states_by_their_own_scores(read):
    """Idefics gives out no weights: they are calculated from its queries and keys in float64."""
    source, reading, sight = read("idefics")
    found, scores = look(source, picture_of(), TEXT), list[Any]()

    def see(call: Any) -> None:
        if call.key.shape[2] == sight.keys != call.query.shape[2]:
            products = call.query.double() @ call.key.double().mT / call.query.shape[-1] ** 0.5
            scores.append(products + call.mask)

    with torch.no_grad(), watch_kernels(see):
        source.model.set_attn_implementation("eager")  # whose mask is added to scores
        source.model(**reading.inputs)
        source.model.set_attn_implementation("sdpa")
    theirs = torch.cat(scores).softmax(-1)[:, :, sight.places[-1] + 1 :].numpy()
    cells = sight.sheets[0].cells.ravel()
    rows = theirs[:, :, -found.weights.shape[2] :]
    np.testing.assert_allclose(found.weights[..., -len(cells) :], rows[..., cells], atol=NEAR)
    assert np.ptp(rows) > 0.5  # the text sees the picture: no mask hides it


def test_queries_without_a_place_attend_to_patches(read):
    source, reading, sight = read("idefics2")
    np.testing.assert_array_equal(sight.sheets[0].cells, np.arange(64).reshape(8, 8))
    found, crossed = look(source, picture_of(), TEXT), list[Any]()
    taken = [
        part.register_forward_hook(lambda _, __, made: crossed.append(made[1]))
        for part in source.model.modules()
        if type(part).__name__ == "Idefics2PerceiverAttention"
    ]
    attentions = eager(source, reading.inputs)
    for one in taken:
        one.remove()
    theirs = torch.cat(crossed)[..., :64].numpy()
    np.testing.assert_allclose(
        found.map_of("queries-to-picture").weights, theirs, atol=NEAR, rtol=RELATIVE
    )
    words = found.map_of("text-to-queries").weights
    rows = torch.cat(attentions)[:, :, -words.shape[2] :][..., sight.places].numpy()
    np.testing.assert_allclose(words, rows, atol=NEAR, rtol=RELATIVE)


def test_codes_of_a_codebook_stand_row_by_row(read):
    source, reading, sight = read("emu3")
    high, wide = (int(one) // 8 for one in reading.inputs["image_sizes"][0])
    cells = sight.places.reshape(high, wide + 1)[:, :-1]  # a token ends each row
    np.testing.assert_array_equal(sight.sheets[0].cells, cells)
    found = look(source, picture_of(), TEXT)
    words = found.weights[..., -high * wide :]
    rows = torch.cat(eager(source, reading.inputs))[:, :, -words.shape[2] :][..., cells.ravel()]
    np.testing.assert_allclose(words, rows.numpy(), atol=NEAR, rtol=RELATIVE)


def test_patches_in_a_row_are_no_plane():
    """Four patches of a picture of 8 × 8 side by side, as MiniCPM packs them."""
    x = np.concatenate([np.tile(np.arange(4) + start, (4, 1)) for start in (0, 4, 0, 4)], axis=1)
    y = np.concatenate([np.tile(np.arange(4) + start, (4, 1)).T for start in (0, 0, 4, 4)], axis=1)
    points = np.stack([np.zeros((1, 3, 4, 16)), *(np.tile(one, (1, 3, 1, 1)) for one in (x, y))])
    np.testing.assert_array_equal(extend_points(points, np.ones((1, 3, 4, 16))), points)
