"""The contract over model families: beside other texts each has the numbers that it has alone."""

from types import SimpleNamespace

import numpy as np
import pytest

from attnviz.analyses.masks import without_implied
from attnviz.core.attention_map import Attention, Provenance, Token
from attnviz.models.hugging_face.batching import MapRunner, read_one
from attnviz.models.hugging_face.inputs.encoding import EncodedQuery
from attnviz.models.hugging_face.loaded_model import LoadedModel
from tests.hugging_face.test_families import make
from tests.hugging_face.tiny_families import FAMILIES, UNLIKE
from tests.hugging_face.tiny_heads import SIDES
from tests.precision import check_as_near, exact_model, in_float64, weights_of

pytestmark = pytest.mark.usefixtures("silence")

LENGTHS = [(9, 5), (4, 6), (13, 3), (9, 8), (6, 7), (9, 5)]
"""Tokens of each text, and of its target."""
AXES = {"text": {"self": ("text", "text")}, "pair": SIDES["pair"]}

EVEN = ("convbert", "mobilebert")
"""Families with convolutions over positions, into which padding leaks: only texts of equal length
are read together."""

READ = [name for name, one in UNLIKE.items() if one.route != "refused" and one.kind in AXES]


def texts_of(model, kind):
    random = np.random.default_rng(0)
    for lengths in LENGTHS:
        texts = [random.integers(5, 49, length).tolist() for length in lengths]
        inputs = {"input_ids": texts[0], "attention_mask": [1] * lengths[0]}
        tokens = {"text": texts[0]}
        if kind == "pair":
            inputs["decoder_input_ids"] = texts[1]
            tokens = {"source": texts[0], "target": texts[1]}
        named = {name: tuple(Token(str(n)) for n in ids) for name, ids in tokens.items()}
        yield EncodedQuery(
            model, inputs, named, AXES[kind], Attention((), Provenance("test", "tiny"))
        )


def loaded(name):
    model = make(name)[0]
    return LoadedModel(
        name=name,
        model=model,
        tokenizer=SimpleNamespace(pad_token_id=0),
        family="encoder–decoder" if FAMILIES[name].kind == "pair" else "encoder-only",
        limit=None,
        provenance=Provenance("test", "tiny"),
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", READ)
def test_each_text_has_the_numbers_that_it_has_alone(name):
    model = loaded(name)
    texts = list(texts_of(model.model, FAMILIES[name].kind))
    together = MapRunner(model, dict(enumerate(texts)), None)
    found = together.attend()
    assert together.compatibility.grouping == ("even" if name in EVEN else "padded")
    assert set(found) == ({0, 3, 5} if name in EVEN else set(range(len(texts))))
    # What layers without attention amount to is read text by text, and never here.
    alone = [without_implied(read_one(model, texts[number])) for number in found]
    for single, beside in zip(alone, found.values(), strict=True):
        for one, other in zip(single.maps, beside.maps, strict=True):
            assert (one.stream, one.layers) == (other.stream, other.layers)
    in_double = exact_model(model)
    with in_float64():
        same = list(texts_of(in_double.model, FAMILIES[name].kind))
        truth = [without_implied(read_one(in_double, same[number])) for number in found]
    check_as_near(weights_of(found.values()), weights_of(alone), weights_of(truth))
