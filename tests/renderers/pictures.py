"""Maps to draw, and what the tests of both pictures look for."""

import numpy as np

from attnviz.core.attention_map import AttentionMap, Token
from attnviz.core.options.look import Look
from attnviz.renderers.figures.figure import fit_width
from attnviz.renderers.look import drawing


def tokens(count):
    return tuple(Token(f"word{position}") for position in range(count))


def shares(*shape, sharpness=3.0, seed=0):
    scores = np.random.default_rng(seed).normal(scale=sharpness, size=shape)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True)).astype(np.float32)


def map_of(weights, queries=None, keys=None, **fields):
    weights = np.asarray(weights, dtype=np.float32)
    weights = weights.reshape((1,) * (4 - weights.ndim) + weights.shape)
    queries = queries or tokens(weights.shape[2])
    return AttentionMap("self", queries, keys or tokens(weights.shape[3]), weights, **fields)


def picture_and_bar(figure):
    """The axes with the image, and those of the colour bar; a figure has no others."""
    picture, bar = figure.axes
    assert bar.get_label() == "colour bar"
    return picture, bar


def pixels(figure, axes):
    """Where axes lie: left, bottom, width, height in pixels."""
    return axes.get_position().transformed(figure.transFigure).bounds


def fitted(draw, shown, width, **words):
    """A picture as wide as a column."""
    with drawing(Look(width=width)):
        return fit_width(draw, shown, **words)
