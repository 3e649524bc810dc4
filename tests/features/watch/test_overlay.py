"""A word's map over a picture, and the quarters of a joint sequence of text and picture."""

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from attnviz import watch
from attnviz.core.errors import UsageError
from attnviz.features.watch.maps import word_maps

TOKENS = ["<s>", "a", "astro", "naut</w>", "▁and", "a"]


class Places(nn.Module):
    """Places that attend as they are told to, shape (places, tokens)."""

    def __init__(self, weights: np.ndarray) -> None:
        super().__init__()
        self.scores = torch.from_numpy(weights).log()[None, None]

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        self.scores = self.scores.roll(1, 2)  # another map at each step
        return self.scores.softmax(-1) @ values


class Picture(nn.Module):
    """Maps of a picture against a text, of several resolutions."""

    def __init__(self, **weights: np.ndarray) -> None:
        super().__init__()
        self.maps = nn.ModuleDict({name: Places(each) for name, each in weights.items()})

    def forward(self, values: torch.Tensor) -> None:
        for places in self.maps.values():
            places(values)


def shares(places: int, tokens: int = len(TOKENS), seed: int = 0) -> np.ndarray:
    weights = np.random.default_rng(seed).random((places, tokens)) + 0.01
    return weights / weights.sum(1, keepdims=True)


def seen_of(model: nn.Module, keys: int = len(TOKENS), steps: int = 2, **options: Any) -> Any:
    with watch(model, **{"tokens": TOKENS} | options) as seen:
        for _ in range(steps):
            model(torch.ones(1, 1, keys, 3, dtype=torch.float64))
    return seen


def maps_of(seen: Any, word: str | int, ratio: float = 1.0) -> Any:
    _, wanted, names = seen._facts
    return word_maps(seen.log, 0, wanted, names, word, ratio)


def test_a_word_gets_what_its_pieces_get():
    fine, coarse = shares(4 * 8), shares(2 * 4, seed=1)
    modules, steps, maps = maps_of(seen_of(Picture(fine=fine, coarse=coarse)), "Astronaut", 4 / 8)
    assert (modules, steps) == (["maps.fine", "maps.coarse"], ["1", "2"])
    assert maps.shape == (2, 2, 4, 8)
    for step in (0, 1):
        for row in range(4):
            for column in range(8):
                place = (row * 8 + column - step - 1) % 32
                assert maps[0, step, row, column] == pytest.approx(fine[place, [2, 3]].sum(), 1e-5)
                place = (row // 2 * 4 + column // 2 - step - 1) % 8
                truth = coarse[place, [2, 3]].sum()
                assert maps[1, step, row, column] == pytest.approx(truth, 1e-5)


def test_blocks_of_places_lie_in_rows_and_words_come_twice():
    weights = shares(16)
    seen = seen_of(Picture(only=weights), steps=1)
    truth = np.roll(weights, 1, axis=0).reshape(4, 4, -1)
    assert np.abs(maps_of(seen, "a")[2][0, 0] - truth[..., [1, 5]].sum(-1)).max() < 1e-6
    phrase = truth[..., [2, 3, 4]].sum(-1)
    assert np.abs(maps_of(seen, "astronaut AND")[2][0, 0] - phrase).max() < 1e-6
    assert np.abs(maps_of(seen, 5)[2][0, 0] - truth[..., 5]).max() < 1e-6
    weights = shares(8 * 8)
    maps = maps_of(seen_of(Picture(only=weights), steps=1, max_size=16), 4)[2]
    truth = np.roll(weights, 1, axis=0)[:, 4].reshape(8, 2, 4).mean(-1)
    assert np.abs(maps[0, 0] - truth).max() < 1e-6


@pytest.mark.parametrize("split", [6, -6])
def test_the_quarters_of_a_joint_sequence_are_its_cells(split):
    weights = shares(6 + 16, 6 + 16)
    seen = seen_of(Picture(joint=weights), 22, steps=1, split=split)
    truth = np.roll(weights, 1, axis=0)
    text, image = (slice(6), slice(6, 22)) if split > 0 else (slice(16, 22), slice(16))
    parts = {"text": text, "image": image}
    result = seen.attention()
    assert len(result.maps) == 4
    for item in result.maps:
        query, _, key = item.stream.partition("-to-")
        assert (item.query_side, item.key_side) == (query, key)
        assert np.abs(item.weights[0, 0] - truth[parts[query], parts[key]]).max() < 1e-6
        assert [token.text for token in item.key_tokens][:2] == (
            TOKENS[:2] if key == "text" else ["0", "1"]
        )
    word = truth[image, text][:, 4].reshape(4, 4)
    assert np.abs(maps_of(seen, "and")[2][0, 0] - word).max() < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("places", "options", "word", "error"),
    [
        (16, {}, "dog", "'dog' is not among the tokens: <s> a astro naut and a"),
        (16, {}, 6, "token 6 does not exist: there are 0 to 5"),
        (15, {}, "and", "15 queries of 'maps.only', in blocks of 1, are no picture"),
        (64, {"max_size": 3}, "and", "no map is of a picture against 6 tokens"),
        (64, {"max_size": 7}, "and", "64 queries of 'maps.only', in blocks of 10, are no picture"),
        (16, {"split": 77}, "and", "split=77 cuts no map"),
        (16, {"tokens": None}, "and", "an overlay needs the text's tokens"),
        (16, {"tokens": TOKENS[:3]}, "a", "no map is of a picture against 3 tokens of text"),
    ],
)
def test_what_cannot_be_laid_over_a_picture_is_said(places, options, word, error):
    seen = seen_of(Picture(only=shares(places)), steps=1, **options)
    with pytest.raises(UsageError, match=error):
        seen.overlay(word)


def test_splits_and_pictures_that_do_not_fit_are_refused():
    seen = seen_of(Picture(joint=shares(22, 22)), 22, steps=1, split=5, max_size=11, tokens=None)
    with pytest.raises(UsageError, match="split=5 falls into a block of 2 tokens"):
        seen.attention()
    with pytest.raises(UsageError, match="not 0"), watch(split=0):
        pass
    seen = seen_of(Picture(only=shares(16)), steps=1)
    with pytest.raises(UsageError, match="needs bytes of shape"):
        seen.overlay("a", picture=np.zeros((4, 4, 3)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "steps", "layers"),
    [
        ("file", "mean", "mean"),
        ("image", "each", "mean"),
        ("array", "mean", "each"),
        ("none", "each", "each"),
        ("none", "mean", "mean"),
    ],
)
def test_the_overlay_shows_the_mean_or_each(kind, steps, layers, tmp_path):
    seen = seen_of(Picture(fine=shares(8 * 8), coarse=shares(4 * 4, seed=1)))
    array = np.full((40, 40, 3), 90, np.uint8)
    Image.fromarray(array).save(tmp_path / "made.png")
    pictures = {"file": tmp_path / "made.png", "image": Image.fromarray(array), "array": array}
    file = tmp_path / "over.png"
    figure = seen.overlay("a", file, picture=pictures.get(kind), steps=steps, layers=layers)
    said = " ".join(text.get_text() for text in figure.findobj() if hasattr(text, "get_text"))
    assert "“a”" in said
    assert ("2 steps" in said) == (steps == "mean")
    assert ("2 layers" in said) == (layers == "mean")
    assert ("step " in said) == ("each" in (steps, layers))
    assert ("1 1 2 2" in said) == (steps == "each")
    assert ("maps.coarse" in said) == (layers == "each")
    with Image.open(file) as picture:
        assert picture.width > 100
