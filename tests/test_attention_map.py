import dataclasses

import numpy as np
import pytest

from attnviz.core.attention_map import AttentionMap, Provenance, Token
from attnviz.core.errors import InputError
from tests.samples import self_map, weights_of

TOKENS = (Token("a"), Token("b"))


def made(weights: object, **facts: object) -> AttentionMap:
    return AttentionMap("self", TOKENS, TOKENS, np.asarray(weights), **facts)  # type: ignore[arg-type]


def test_numbers_types_and_frozen_fields():
    item = made(weights_of((3, 2, 2, 2)))
    assert (item.layers, item.heads) == (("0", "1", "2"), ("0", "1"))
    named = made(weights_of((1, 1, 2, 2)), layers=("5",), heads=("mean",))
    assert (named.layers, named.heads) == (("5",), ("mean",))
    item = made(np.moveaxis(weights_of((1, 2, 2, 2)).astype(np.float64), 0, 1))
    assert item.weights.dtype == np.float32
    assert item.weights.flags["C_CONTIGUOUS"]
    with pytest.raises(InputError, match="are empty"):
        AttentionMap("self", (), TOKENS, np.zeros((1, 1, 0, 2), np.float32))
    assert made(np.full((1, 1, 2, 2), -3.0), values="signed").weights.min() == -3
    assert made(np.full((1, 1, 2, 2), 0.1)).weights.sum() == pytest.approx(0.4)
    with pytest.raises(dataclasses.FrozenInstanceError):
        self_map(["a"]).stream = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("weights", "facts", "message"),
    [
        (np.eye(2), {}, "has|have 2 axes, not 4"),
        (np.zeros((1, 1, 2, 3)), {}, "2 query and 2 key tokens"),
        (np.zeros((2, 1, 2, 2)), {"layers": ("0",)}, "but there are 1 layers"),
        (np.full((1, 1, 2, 2), np.nan), {}, "layer 0 head 0 .*NaN or infinite"),
        (np.full((1, 1, 2, 2), np.inf), {"values": "signed"}, "is NaN or infinite"),
        (np.full((1, 1, 2, 2), 1.5), {}, "run from 1.5 to 1.5, outside 0 to 1: these are scores"),
        (np.full((1, 1, 2, 2), -0.1), {}, "outside 0 to 1"),
    ],
)
def test_what_is_no_map_is_refused(weights, facts, message):
    with pytest.raises(InputError, match=message):
        made(weights, **facts)


@pytest.mark.parametrize(
    ("model", "trained", "title"),
    [
        ("bert-base-uncased", True, "bert-base-uncased"),
        ("org/model", True, "org/model"),
        ("./runs/bert/", None, "bert"),
        ("/data/models/bert", True, "bert"),
        ("multi-head", False, "multi-head (untrained)"),
    ],
)
def test_a_title_names_a_folder_by_its_own_name(model, trained, title):
    assert Provenance("file", model, trained).title == title
