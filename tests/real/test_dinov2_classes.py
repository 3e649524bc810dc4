"""Lenses and effects that need a prediction: DINOv2 ViT-S/14 with a classifier fitted on shapes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw
from transformers import AutoImageProcessor, Dinov2Config, Dinov2ForImageClassification

import attnviz
from attnviz.core.effects import HeadAt, Intervention, LinkAt
from attnviz.features.lenses.gradient import gradient
from attnviz.features.vision.vision_model import load_vision_model
from tests.hugging_face.ask import about

CLASSES = {0: "disc", 1: "square", 2: "triangle"}
FITTED, HEADS = 18, 6


def draw(kind: int, rng: np.random.Generator) -> tuple[Image.Image, tuple[int, int, int, int]]:
    """A bright shape on a dark ground, and the box that holds it."""
    ground, colour = (tuple(map(int, rng.integers(*ends, 3))) for ends in ((0, 120), (150, 255)))
    picture = Image.new("RGB", (224, 224), ground)
    left, top = map(int, rng.integers(20, 140, 2))
    right, bottom = (start + int(rng.integers(45, 65)) for start in (left, top))
    corners = [(left, bottom), (right, bottom), ((left + right) // 2, top)]
    pen = ImageDraw.Draw(picture)
    if kind == 2:
        pen.polygon(corners, fill=colour)
    else:
        (pen.ellipse, pen.rectangle)[kind]((left, top, right, bottom), fill=colour)
    return picture, (left, top, right, bottom)


@pytest.fixture(scope="module")
def classifier(dinov2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trained weights with a classifier on top, fitted by ridge regression."""
    rng, path = np.random.default_rng(0), tmp_path_factory.mktemp("classifier")
    config = Dinov2Config.from_pretrained(dinov2)
    config.id2label, config.label2id = CLASSES, {name: kind for kind, name in CLASSES.items()}
    model = Dinov2ForImageClassification.from_pretrained(dinov2, config=config).eval()
    processor = AutoImageProcessor.from_pretrained(dinov2)
    kinds = [number % 3 for number in range(FITTED)]
    pictures = [draw(kind, rng)[0] for kind in kinds]
    with torch.no_grad():
        states = model.dinov2(**processor(pictures, return_tensors="pt")).last_hidden_state
        read = torch.cat([states[:, 0], states[:, 1:].mean(1)], -1)  # what the classifier reads
        wanted = torch.eye(3)[kinds] * 6 - 2
        centre, about_centre = read.mean(0), read - read.mean(0)
        square = about_centre.T @ about_centre + 50 * torch.eye(read.shape[1])
        weights = torch.linalg.solve(square, about_centre.T @ (wanted - wanted.mean(0)))
        model.classifier.weight.copy_(weights.T)
        model.classifier.bias.copy_(wanted.mean(0) - centre @ weights)
    model.save_pretrained(path)
    processor.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def disc() -> tuple[Image.Image, tuple[int, int, int, int]]:
    """A disc that the classifier has not seen."""
    return draw(0, np.random.default_rng(7))


@pytest.fixture(scope="module")
def eager(classifier: Path, disc: Any) -> Any:
    """transformers' own model, its log-probability of "disc", its weights and their slopes."""
    model = Dinov2ForImageClassification.from_pretrained(classifier, attn_implementation="eager")
    pixels = AutoImageProcessor.from_pretrained(classifier)(disc[0], return_tensors="pt")
    output = model.eval()(**pixels, output_attentions=True)
    score = output.logits[0].log_softmax(-1)[0]
    assert score.exp() > 0.9
    return model, pixels, score, output, torch.autograd.grad(score, output.attentions)


def test_the_gradient_lens_equals_autograd(classifier, disc, eager):
    model, pixels, *_ = eager
    output = model(**pixels, output_attentions=True)
    slopes = torch.autograd.grad(output.logits[0, 0], output.attentions)
    relevance = torch.eye(257, dtype=torch.float64)
    for slope, layer in zip(slopes, output.attentions, strict=True):
        relevance += (slope * layer).clamp(min=0)[0].mean(0).double().detach() @ relevance
    relevance -= torch.eye(257)
    rows = slopes[-1][0].abs().sum((0, 2)).nonzero().flatten()
    expected = relevance[rows].mean(0)
    found = load_vision_model(str(classifier), device="cpu").gradients(about(disc[0]), "disc")
    shares = gradient(found).weights[0, 0, 0]
    np.testing.assert_allclose(shares, (expected / expected.sum()).numpy(), atol=1e-6)
    left, top, right, bottom = disc[1]
    down, across = np.mgrid[7:224:14, 7:224:14]
    inside = (across > left) & (across < right) & (down > top) & (down < bottom)
    patches = shares[1:].reshape(16, 16)
    assert inside.mean() < 0.08
    assert patches[inside].sum() > 0.6 * patches.sum()


def test_first_order_effects_equal_autograd(classifier, disc, eager, tmp_path):
    path = tmp_path / "disc.png"
    disc[0].save(path)
    found = attnviz.image(path, model=classifier, lens="effect", patch="all", check=0).weights
    *_, output, slopes = eager
    for layer in (0, 5, 11):
        weights, slope = (
            item[layer][0].detach().double().numpy() for item in (output.attentions, slopes)
        )
        mean = (weights * slope).sum(-1, keepdims=True)
        # A link of nearly all the weight has no rest that could stand in: 1 - weight is rounding.
        sure = weights < 0.99
        expected = weights[sure] * (slope - mean)[sure] / (1 - weights[sure])
        np.testing.assert_allclose(found[layer][sure], expected, atol=1e-4 * abs(expected).max())


def test_heads_and_links_that_are_off_equal_hooks(classifier, disc, eager):
    model, pixels, score, output, _ = eager
    layer, head = 11, 2
    size = model.config.hidden_size // HEADS
    (projection,) = (
        part for name, part in model.named_modules() if name.endswith(f"{layer}.attention.o_proj")
    )
    weights = output.attentions[layer][0, head].detach()
    key = int(weights[0].argmax())
    values = []

    def changed(change: Any) -> float:
        def edit(_part: Any, given: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
            split = given[0].clone().unflatten(-1, (HEADS, size))
            change(split[0, :, head])
            return (split.flatten(-2),)

        hook = projection.register_forward_pre_hook(edit)
        with torch.no_grad():
            logits = model(**pixels).logits
        hook.remove()
        return float(logits[0].log_softmax(-1)[0])

    (value,) = (
        part for name, part in model.named_modules() if name.endswith(f"{layer}.attention.v_proj")
    )
    hook = value.register_forward_hook(lambda _part, _given, made: values.append(made.detach()))
    without_head = changed(lambda outputs: outputs.zero_())
    hook.remove()
    of_key = values[0][0, key].unflatten(-1, (HEADS, size))[head]

    def cut(outputs: torch.Tensor) -> None:
        weight = weights[0, key]
        outputs[0] = (outputs[0] - weight * of_key) / (1 - weight)

    experiment = load_vision_model(str(classifier), device="cpu").experiment(about(disc[0]), "disc")
    off = [
        Intervention((HeadAt("self", str(layer), head),)),
        Intervention(links=(LinkAt("self", 0, key, str(layer), head),)),
    ]
    plain, *ran = (float(np.ravel(scores)[0]) for scores in experiment.run([Intervention(), *off]))
    assert plain == pytest.approx(score.item(), abs=1e-5)
    assert ran == pytest.approx([without_head, changed(cut)], abs=1e-5)
    assert without_head != pytest.approx(plain, abs=1e-4)
