"""Lenses over pictures, against direct computations over transformers' own eager models."""

import numpy as np
import pytest
import torch
import transformers

from attnviz.core.effects import HeadAt, Intervention, TokenAt
from attnviz.core.errors import ModelError, UsageError
from attnviz.features.lenses.gradient import gradient
from attnviz.features.lenses.norm import norms, norms_by_head
from attnviz.features.vision.vision_model import load_vision_model
from tests.features.vision.test_vision_model import processed
from tests.features.vision.tiny_vision import VISION_BUILDERS, picture
from tests.hugging_face.ask import about, look

pytestmark = pytest.mark.models

HEADS = {
    "vit": "ViTForImageClassification",
    "deit": "DeiTForImageClassification",
    "dinov2": "Dinov2ForImageClassification",
    "beit": "BeitForImageClassification",
}
VALUES = {
    "vit": ("attention.v_proj", "attention.o_proj"),
    "deit": ("attention.v_proj", "attention.o_proj"),
    "dinov2": ("attention.v_proj", "attention.o_proj"),
    "beit": ("attention.v_proj", "attention.o_proj"),
    "clip": ("self_attn.v_proj", "self_attn.out_proj"),
    "siglip": ("self_attn.v_proj", "self_attn.out_proj"),
}
"""What the families call the values and the output projection."""
SCALES = {"dinov2": "layer_scale1.lambda1", "beit": "lambda_1"}
"""What they call the factors of what attention adds, one for each feature."""
CLASSES = {0: "cat", 1: "dog", 2: "tree"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a tiny model, of kinds with a classifier that one too."""
    made = {}

    def find(kind, *, head=False):
        if (kind, head) not in made:
            path = VISION_BUILDERS[kind](tmp_path_factory.mktemp(kind))
            if head:
                config = transformers.AutoConfig.from_pretrained(path)
                config.id2label = CLASSES
                torch.manual_seed(1)
                model = getattr(transformers, HEADS[kind])(config)
                with torch.no_grad():
                    for weights in model.parameters():
                        if weights.ndim > 1:
                            weights.normal_(std=0.3)
                model.save_pretrained(path)
            made[kind, head] = path
        return made[kind, head]

    return find


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("wanted", [None, "tree"])
@pytest.mark.slow
@pytest.mark.core
def test_relevance_over_a_picture_equals_direct_autograd(kind, wanted, folder):
    path = folder(kind, head=True)
    auto = getattr(transformers, HEADS[kind])
    own = auto.from_pretrained(path, attn_implementation="eager").eval()
    output = own(pixel_values=processed(path), output_attentions=True)
    logits = output.logits[0]
    number = int(logits.argmax()) if wanted is None else 2
    slopes = torch.autograd.grad(logits[number], output.attentions)
    relevance = torch.eye(output.attentions[0].shape[-1], dtype=torch.float64)
    for slope, layer in zip(slopes, output.attentions, strict=True):
        step = (slope * layer).clamp(min=0)[0].mean(0).double().detach()
        relevance = relevance + step @ relevance
    relevance -= torch.eye(len(relevance))
    rows = slopes[-1][0].abs().sum((0, 2)).nonzero().flatten()
    expected = relevance[rows].mean(0)
    explained = load_vision_model(str(path), device="cpu").gradients(about(picture()), wanted)
    assert explained.output == CLASSES[number]
    assert explained.probability == pytest.approx(logits.softmax(-1)[number].item(), abs=1e-6)
    assert explained.positions == tuple(rows.tolist())
    found = gradient(explained).weights[0, 0, 0]
    np.testing.assert_allclose(found, (expected / expected.sum()).numpy(), atol=1e-6)


def test_other_sizes_are_explained_and_no_other_classes(folder):
    model = load_vision_model(str(folder("vit", head=True)), device="cpu")
    with pytest.raises(UsageError, match=r"'bird' is no class .* 0 cat, 1 dog, 2 tree"):
        model.gradients(about(picture()), "bird")
    attention = model.gradients(about(picture(), size=(48, 32))).attention
    expected = look(model, picture(), size=(48, 32))
    np.testing.assert_allclose(attention.weights, expected.weights, atol=1e-5)
    assert attention.provenance.settings["patches"] == "6 × 4"


@pytest.mark.parametrize("kind", ["deit", "clip", "siglip"])
def test_a_tower_without_classes_has_nothing_to_explain(kind, folder):
    model = load_vision_model(str(folder(kind)), device="cpu")
    with pytest.raises(ModelError, match="no head that gives classes or tokens"):
        model.gradients(about(picture()))


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.slow
def test_norms_are_the_lengths_of_what_is_added(kind, folder):
    path = folder(kind)
    own = transformers.AutoModel.from_pretrained(path, attn_implementation="eager").eval()
    tower = getattr(own, "vision_model", None) or own
    value_name, output_name = VALUES[kind]
    modules = dict(tower.named_modules())
    heard = {}
    for name, module in modules.items():
        if name.endswith(value_name):
            module.register_forward_hook(
                lambda _part, _given, output, name=name: heard.update({name: output[0].double()})
            )
    with torch.no_grad():
        output = tower(pixel_values=processed(path), output_attentions=True)
    transformed = load_vision_model(str(path), device="cpu").values(about(picture()))
    assert transformed.projected
    weights = transformed.attention.weights
    np.testing.assert_allclose(weights, torch.cat(output.attentions).numpy(), atol=1e-5)
    assert len(heard) == len(weights)
    for place, (name, value) in enumerate(heard.items()):
        matrix = modules[name.removesuffix(value_name) + output_name].weight.detach().double().T
        if kind in SCALES:
            scale = name.removesuffix(value_name) + SCALES[kind]
            matrix = matrix * tower.get_parameter(scale).detach().double()
        heads = weights.shape[1]
        split = value.reshape(len(value), heads, -1)
        made = torch.einsum("jhd,hdo->hjo", split, matrix.reshape(heads, split.shape[-1], -1))
        added = weights[place, ..., None].astype(float) * made.numpy()[:, None]
        one = slice(place, place + 1)
        products = transformed.products[0][one]
        together = np.linalg.norm(added.sum(axis=0), axis=-1)
        np.testing.assert_allclose(norms(weights[one], products)[0], together, atol=1e-6)
        apart = np.linalg.norm(added, axis=-1)
        np.testing.assert_allclose(norms_by_head(weights[one], products)[0], apart, atol=1e-6)


def test_a_class_loses_what_its_heads_and_patches_gave_it(folder):
    path = folder("vit", head=True)
    model = load_vision_model(str(path), device="cpu")
    experiment = model.experiment(about(picture()), "dog")
    heads = [Intervention((HeadAt("self", "1", head),)) for head in range(4)]
    plain, *changed = experiment.run(
        [Intervention(), *heads, Intervention(tokens=(TokenAt("picture", 3),))]
    )
    own = transformers.AutoModelForImageClassification.from_pretrained(path).eval()
    with torch.no_grad():
        expected = own(**model._inputs(about(picture()).picture)[0]).logits
    np.testing.assert_allclose(plain, expected.log_softmax(-1), atol=1e-5)
    assert all(np.abs(scores - plain).max() > 1e-6 for scores in changed)
    assert experiment.spell(1) == "dog"
    assert experiment.attention.decision == look(model, picture()).decision
    np.testing.assert_allclose(
        experiment.attention.weights, look(model, picture()).weights, atol=1e-6
    )
    assert experiment.write(Intervention()) is None
