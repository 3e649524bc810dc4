"""The contract over families: transformers' eager weights, alone and together, or a refusal."""

from copy import deepcopy
from itertools import groupby
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import CONFIG_MAPPING, MODEL_MAPPING, AutoModel, AutoModelForSeq2SeqLM
from transformers.modeling_utils import AttentionInterface

from attnviz.analyses.masks import without_implied
from attnviz.core.attention_map import Attention, Provenance, Token
from attnviz.core.errors import AttentionError
from attnviz.models.hugging_face.batching import MapRunner, read_one
from attnviz.models.hugging_face.capture.capture import capture
from attnviz.models.hugging_face.capture.passes import read_calls
from attnviz.models.hugging_face.inputs.encoding import EncodedQuery
from attnviz.models.hugging_face.load.family import BLOCK_SPARSE, ENCODER_APART, NOT_WEIGHTS
from attnviz.models.hugging_face.loaded_model import LoadedModel
from tests.features.audio.tiny_speech import SPEECH_BUILDERS
from tests.features.picture_text.tiny_pictures import PICTURE_FAMILIES
from tests.hugging_face import tiny_heads
from tests.hugging_face.ask import every_weight
from tests.hugging_face.families import PICTURE_COMMAND, TRIED, WRITE, documented, found_of, line_of
from tests.hugging_face.tiny_families import EVERY, FAMILIES, UNLIKE
from tests.hugging_face.tiny_heads import SIDES
from tests.precision import check_as_near, exact, exact_model, in_float64, weights_of

pytestmark = pytest.mark.usefixtures("silence")

ROUTES = {"probe": "probed", "eager": "output_attentions"}


def make(name):
    """A random model as it loads by default, and one with the same weights that runs eagerly."""
    config = CONFIG_MAPPING[name](**deepcopy(EVERY[name].sizes))
    auto = AutoModel if type(config) in MODEL_MAPPING else AutoModelForSeq2SeqLM
    torch.manual_seed(0)
    made = tiny_heads.widened(auto.from_config(deepcopy(config)).eval(), EVERY[name].std)
    own = auto.from_config(deepcopy(config), attn_implementation="eager").eval()
    own.load_state_dict(made.state_dict())
    return made, own


def inputs_of(name):
    inputs = tiny_heads.inputs_of(name, tokens=13, towers=True)
    # ViTMAE reads its patches in the order of numbers that it draws, if it is given none.
    order = {"noise": torch.linspace(0, 60, 16).sin()[None]} if name == "vit_mae" else {}
    return inputs | order


def run(model, inputs, **asked):
    torch.default_generator.manual_seed(1)  # what manual_seed does, on this device alone
    inputs = {
        name: item.to(model.dtype) if item.is_floating_point() else item
        for name, item in inputs.items()
    }
    kept = {"use_cache": False} if hasattr(model.config, "use_cache") else {}
    with torch.no_grad():
        return model(**inputs, **kept, **asked)


def handed_over(own, inputs, kind):
    """transformers' own eager weights by stream, (batch, heads, queries, keys) for each layer."""
    if own.config.model_type in BLOCK_SPARSE:
        run(own, inputs)  # exchanges its attention in its first pass over a short text
    output = run(own, inputs, output_attentions=True)
    if kind == "image and text":
        return {
            "text": output.text_model_output.attentions,
            "vision": output.vision_model_output.attentions,
        }
    if kind in SIDES:
        return {stream: output[f"{stream}_attentions"] for stream in SIDES[kind]}
    layers = [layer for layer in output.attentions if layer is not None]
    if own.config.model_type == "minimax":  # gives out what its other layers are made of, too
        layers = layers[::2]
    return {"self" if kind in {"text", "joint"} else "vision": layers}


@pytest.fixture
def untouched():
    """transformers must be left as it was found."""
    before = dict(AttentionInterface._global_mapping), AttentionInterface.get_interface
    yield
    assert (dict(AttentionInterface._global_mapping), AttentionInterface.get_interface) == before


def watched_output(model):
    """What a model gives out in its next passes."""
    seen = []
    model.register_forward_hook(lambda module, given, output: seen.append(output))
    return seen


def tensors_of(output):
    return [item for item in output.to_tuple() if isinstance(item, torch.Tensor)]


READ = [name for name, one in EVERY.items() if one.route != "refused" and one.kind != "windows"]


@pytest.mark.slow
@pytest.mark.parametrize("name", READ)
@pytest.mark.usefixtures("untouched")
def test_weights_are_those_of_transformers(name):
    model, own = make(name)
    inputs = inputs_of(name)
    expected = handed_over(own, inputs, EVERY[name].kind)
    sides = {stream: tuple(layers[0].shape[2:]) for stream, layers in expected.items()}
    with in_float64():
        truth = handed_over(exact(own), inputs, EVERY[name].kind)
    before = tensors_of(run(model, inputs))
    seen = watched_output(model)
    torch.default_generator.manual_seed(1)
    captured = capture(model, inputs, sides)
    assert all(map(torch.equal, before, tensors_of(seen[0])))
    assert [stream for stream, _ in groupby(item.stream for item in captured)] == [*expected]
    assert all(item.route.endswith(ROUTES[EVERY[name].route]) for item in captured)
    found = [
        layer
        for stream in expected
        for item in captured
        if item.stream == stream
        for layer in item.weights
    ]
    check_as_near(found, *map(layers_of, (expected, truth)))


def layers_of(given):
    return [layer[0] for layers in given.values() for layer in layers]


@pytest.mark.parametrize("name", [name for name in EVERY if EVERY[name].kind == "windows"])
@pytest.mark.usefixtures("untouched")
def test_windows_are_read_and_refused_as_maps(name):
    model, own = make(name)
    inputs = inputs_of(name)
    found = [reading.weights for reading in read_calls(model, inputs, every_weight)]
    given = handed_over(own, inputs, "windows")["vision"]
    with in_float64():
        check_as_near(found, given, handed_over(exact(own), inputs, "windows")["vision"])
    with pytest.raises(AttentionError, match="windows or blocks"):
        capture(model, inputs, {"vision": (3, 3)})


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in EVERY if EVERY[name].route == "refused"])
@pytest.mark.usefixtures("untouched")
def test_what_is_not_weights_is_refused(name):
    model, _ = make(name)
    sides = {"cross": (7, 13), "encoder": (13, 13), "decoder": (7, 7)}
    sides = sides if EVERY[name].kind == "pair" else {"self": (13, 13)}
    with pytest.raises(AttentionError, match=EVERY[name].says):
        capture(model, inputs_of(name), sides)


@pytest.mark.parametrize("name", ENCODER_APART)
def test_an_encoder_in_windows_is_refused_alone(name):
    assert EVERY[name].kind == "apart"
    with pytest.raises(AttentionError, match=ENCODER_APART[name]):
        capture(make(name)[0], inputs_of(name), {"encoder": (13, 13)})


def test_layers_keep_their_true_numbers():
    for name, numbers in (
        ("jamba", "13"),
        ("qwen3_next", "13"),
        ("zamba2", "12"),
        ("recurrent_gemma", "2"),
        ("albert", "01"),
    ):
        captured = capture(make(name)[0], inputs_of(name), {"self": (13, 13)})
        assert [layer for item in captured for layer in item.layers] == list(numbers)


def test_long_texts_of_blocks_are_refused():
    model, _ = make("big_bird")
    ids = torch.full((1, 24), 7)
    with pytest.raises(AttentionError, match="up to 14 it is full"):
        capture(model, {"input_ids": ids}, {"self": (24, 24)})


@pytest.mark.slow
@pytest.mark.parametrize("name", TRIED)
@pytest.mark.usefixtures("untouched")
def test_the_documentation_tells_what_is_found(name):
    assert documented()[name] == line_of(name, found_of(name)), WRITE


def test_every_family_is_documented_and_refusals_tested():
    lines = documented()
    pictures = [line for line in lines.values() if f"| {PICTURE_COMMAND} |" in line]
    assert len(pictures) == len(PICTURE_FAMILIES) - 1, "Pixtral is a 'llava' too"
    assert {*TRIED} <= {*lines}
    assert len(lines) == len(TRIED) + len(pictures) + len(SPEECH_BUILDERS) >= 180
    assert [*lines] == sorted(lines)
    assert set(NOT_WEIGHTS) <= {name for name in EVERY if EVERY[name].route == "refused"}


LENGTHS = [(9, 5), (4, 6), (13, 3), (9, 8), (6, 7), (9, 5)]
"""Tokens of each text, and of its target."""
AXES = {"text": {"self": ("text", "text")}, "pair": SIDES["pair"]}

EVEN = ("convbert", "mobilebert")
"""Families with convolutions over positions, into which padding leaks: only texts of equal length
are read together."""

TOGETHER = [name for name, one in UNLIKE.items() if one.route != "refused" and one.kind in AXES]


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


def loaded_family(name):
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
@pytest.mark.parametrize("name", TOGETHER)
def test_each_text_has_the_numbers_that_it_has_alone(name):
    model = loaded_family(name)
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
