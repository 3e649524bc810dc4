"""Spreading a model over devices: who does it, and what is said where it cannot be done."""

import numpy as np
import pytest

from attnviz.models.hugging_face.load import devices
from attnviz.models.hugging_face.load.devices import has_accelerate
from attnviz.models.hugging_face.text_model import load_model
from tests.hugging_face.ask import attend
from tests.invoke import attnviz


def test_spreading_is_refused_in_one_line(folder_of, monkeypatch):
    monkeypatch.setattr(devices, "has_accelerate", lambda: False)
    done = attnviz("self", "the car", "--model", folder_of("bert"), "--device", "spread")
    assert done.status == 1
    said = "--device spread needs the package accelerate: pip install 'attnviz[big]'"
    assert done.mistake == said
    done = attnviz("self", "the car", "--device", "spread")
    said = "--device spread is for large models: --model ID_OR_FOLDER"
    assert (done.status, done.mistake) == (2, said)


@pytest.mark.skipif(not has_accelerate(), reason="accelerate is not installed")
def test_a_spread_model_gives_the_same_weights(folder_of, loaded):
    text = "The professor published."
    for kind in ("bert", "llama"):
        # On a machine with one device all of the model ends up there.
        spread = attend(load_model(str(folder_of(kind)), device_map="auto"), text)
        np.testing.assert_allclose(spread.weights, attend(loaded(kind), text).weights, atol=1e-5)
        assert spread.provenance.device == "cpu"
