"""How faithful lenses are for transformers models: the rows explained, the tokens hidden."""

from functools import partial

import numpy as np
import pytest

from attnviz.core.query import Query
from attnviz.core.registry import LENSES
from attnviz.features.ablate.faithfulness import faithfulness
from attnviz.features.experiments.texts import explained_by, open_experiment
from attnviz.features.lenses.ask import ask_source, scores_of
from attnviz.models.hugging_face.text_model import load_model
from tests.hugging_face.tiny_models import headed
from tests.invoke import attnviz

TEXT = Query("The professor published the red paper")
PAIR = Query("The red car is fast", "La voiture rouge", "cross")


def scores(folder, query):
    source = load_model(str(folder), device="cpu", with_head=True)
    explained = explained_by(open_experiment(source, query))
    return scores_of(explained, partial(ask_source, source, query))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "query"), [("gpt2", TEXT), ("bart", PAIR)])
def test_every_lens_is_judged(folder_of, kind, query):
    found = scores(folder_of(kind), query)
    assert ([*found.scores], found.left_out) == (["raw", *LENSES], {})
    judged = faithfulness(found)
    assert all(np.isfinite(measures).all() for measures in judged.measures.values())
    assert np.count_nonzero([told["knock_out"] for told in judged.tokens]) == len(found.tokens)


def test_a_class_read_last_explains_its_row(tmp_path):
    found = scores(headed(tmp_path, "LlamaForSequenceClassification", num_labels=3), TEXT)
    item = found.inputs.attention.main
    assert found.inputs.positions == (len(item.key_tokens) - 1,)
    raw = item.weights[:, :, -1, :-1].mean(axis=(0, 1))
    np.testing.assert_allclose(found.scores["raw"], raw, atol=1e-7)


@pytest.mark.slow
def test_no_head_and_long_texts_are_told(folder_of):
    done = attnviz("ablate", "--lenses", TEXT.text, "--model", folder_of("bert"))
    assert (done.status, "has no head" in done.mistake) == (1, True)
    found = scores(folder_of("bart"), Query("the " * 40, "the " * 40, "cross"))
    (left_out,) = found.left_out.items()
    assert left_out[0] == "flow"
    assert "maximum-flow problems of" in left_out[1]
