"""DINOv2 ViT-S/14: a head finds what is drawn, and numbers are those of transformers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw
from transformers import AutoImageProcessor, Dinov2Model

import attnviz


@pytest.fixture(scope="module")
def disc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A red disc on blue, 4.7 % of the picture."""
    path = tmp_path_factory.mktemp("disc") / "disc.png"
    picture = Image.new("RGB", (224, 224), (40, 80, 200))
    ImageDraw.Draw(picture).ellipse((120, 50, 175, 105), fill=(220, 30, 30))
    picture.save(path)
    return path


@pytest.fixture(scope="module")
def eager(dinov2: Path, disc: Path) -> tuple[Any, Any]:
    """transformers' own eager model, and what it gives of the disc."""
    model = Dinov2Model.from_pretrained(dinov2, attn_implementation="eager").eval()
    pixels = AutoImageProcessor.from_pretrained(dinov2)(Image.open(disc), return_tensors="pt")
    with torch.no_grad():
        return model, model(**pixels, output_attentions=True, output_hidden_states=True)


def test_a_head_of_the_last_layer_looks_at_a_drawn_disc(dinov2, disc):
    look = attnviz.image(disc, model=dinov2).weights[-1, :, 0, 1:].reshape(6, 16, 16)
    down, across = np.mgrid[:224, :224]
    there = ((across - 147.5) ** 2 + (down - 77.5) ** 2 < 27.5**2).reshape(16, 14, 16, 14)
    share = look[:, there.any(axis=(1, 3))].sum(axis=1) / look.sum(axis=(1, 2))
    assert there.mean() < 0.05
    assert share[2] > 0.9
    assert share.argmax() == 2


def test_weights_are_those_of_transformers(dinov2, disc, eager, halves):
    expected = torch.cat(eager[1].attentions).numpy()
    plain = attnviz.image(disc, model=dinov2, patch="all")
    assert abs(plain.weights - expected).max() < 1e-4
    for dtype, off in halves.items():
        half = attnviz.image(disc, model=dinov2, patch="all", dtype=dtype)
        assert abs(half.weights - expected).max() < off
        assert any("a few hundredths" in note for note in half.provenance.notes)


def test_weights_are_near_double_precision(dinov2, disc, eager):
    found = attnviz.image(disc, model=dinov2, patch="all", device="light").weights
    pixels = AutoImageProcessor.from_pretrained(dinov2)(Image.open(disc), return_tensors="pt")
    model = Dinov2Model.from_pretrained(dinov2, attn_implementation="eager").eval().double()
    with torch.no_grad():
        double = model(pixels["pixel_values"].double(), output_attentions=True).attentions
    theirs, mine = (
        abs(one - torch.cat(double).numpy())
        for one in (torch.cat(eager[1].attentions).numpy(), found)
    )
    assert mine.max() < max(1e-5, 1.5 * theirs.max())
    assert mine.mean() < 1.5 * theirs.mean()


def test_norms_count_the_layer_scale(dinov2, disc, eager):
    found = attnviz.image(disc, model=dinov2, lens="norm", patch="all")
    model, output = eager
    for number in (0, 5, 11):
        layer = model.encoder.layer[number]
        parts = dict(layer.attention.named_modules())
        value, out = (
            next(part for name, part in parts.items() if name.endswith(end))
            for end in ("v_proj", "o_proj")
        )
        with torch.no_grad():
            read = value(layer.norm1(output.hidden_states[number])[0]).view(-1, 6, 64)
            matrix = (layer.layer_scale1.lambda1[:, None] * out.weight).view(-1, 6, 64)
            added = torch.einsum("hqk,khd,ohd->qko", output.attentions[number][0], read, matrix)
            norms = added.norm(dim=-1)
            shares = norms / norms.sum(-1, keepdim=True)
        assert abs(found.weights[number, 0] - shares.numpy()).max() < 1e-5


def test_the_class_token_is_the_only_sink(dinov2, disc):
    notes = attnviz.image(disc, model=dinov2).provenance.notes
    (told,) = [note for note in notes if note.startswith("sinks")]
    assert "[CLS]" in told
    assert told.count("×") == 1
    other = attnviz.image(disc, model=dinov2, lens="rollout").provenance.notes
    assert not [note for note in other if note.startswith("sinks")]


def test_a_corpus_of_pictures_gives_each_head_its_intervals(dinov2, disc, tmp_path):
    for turn in range(4):
        picture = Image.open(disc).rotate(90 * turn)
        picture.save(tmp_path / f"{turn}.png")
    found = attnviz.heads(input=str(tmp_path), model=dinov2)
    (stream,) = found.value.streams
    assert len(stream.rows) == 72
