"""How one output of a transformers model changes with each of its attention weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnviz.attention_map import Attention
from attnviz.errors import AttentionError, ModelError
from attnviz.evidence import Explained
from attnviz.hugging_face.border import running
from attnviz.hugging_face.model import HuggingFaceModel
from attnviz.hugging_face.outputs import Chosen, choose_output
from attnviz.hugging_face.quiet import quiet
from attnviz.hugging_face.tasks import SUFFIXES
from attnviz.hugging_face.whole import (
    Reading,
    as_attention,
    check_reading,
    matrices,
    read_cross,
    read_self,
    run,
)

if TYPE_CHECKING:
    from torch import Tensor

COPIES = 6
"""How often a matrix exists while gradients are taken: weights, scores, both gradients, maps."""


def explain_self(model: HuggingFaceModel, text: str, wanted: str | None = None) -> Explained:
    """What the model predicts from a text, and how that hangs on each weight.

    Args:
        model: one with a head.
        text: what it reads.
        wanted: a class by name or number, a token by text or position; None: what it predicts.

    Raises:
        ModelError: the model has no trained head.
        UsageError: no such class or token.
    """
    if model.family == "encoder–decoder":
        raise ModelError(
            f"'{model.name}' predicts while it writes a target: use 'attnviz cross' for --lens "
            "gradient, or --lens rollout, flow or norm here"
        )
    check_head(model)
    with quiet():
        reading = read_self(model, text)
        return explain(reading, lambda logits: choose_output(model, reading, logits, wanted))


def explain_cross(
    model: HuggingFaceModel, source: str, target: str | None, wanted: str | None = None
) -> Explained:
    """Why an encoder–decoder writes a token of its target, and how that hangs on each weight.

    Args:
        model: an encoder–decoder with a language-model head.
        source: what the encoder reads.
        target: what the decoder reads; None: what it writes by itself.
        wanted: a token of the target by text or position; None: the last.

    Raises:
        AttentionError: the model has no cross-attention.
        ModelError: the model has no trained head.
        UsageError: no such token.
    """
    with quiet():
        reading = read_cross(model, source, target)
        check_head(model)
        return explain(reading, lambda logits: choose_output(model, reading, logits, wanted))


def check_head(model: HuggingFaceModel) -> None:
    """Refuse a model whose logits would be random.

    Raises:
        ModelError: it was saved without the head that its architecture has.
    """
    undecided = type(model.model).__name__.endswith(tuple(SUFFIXES)) and model.task is None
    silent = model.model.can_generate() and not model.can_generate
    if undecided or silent:
        raise ModelError(
            f"'{model.name}' lacks the weights of its head, whose outputs would be random: use "
            "--lens rollout, flow or norm"
        )


def explain(reading: Reading, choose: Callable[[Any], Chosen]) -> Explained:
    """One forward and one backward pass over a text or a picture.

    Args:
        reading: what is read.
        choose: says which of the logits (None where there are none) is explained.

    Raises:
        ModelError: no logits, or the matrices would not fit into memory.
        AttentionError: weights that no gradient reaches.
        UsageError: no such class or token.
    """
    import torch

    check_reading(reading, COPIES)
    with running(reading.part, reading.what), torch.enable_grad():
        output = run(reading)
        layers = matrices(output, reading)
        attention = as_attention(reading, layers)
        chosen = choose(getattr(output, "logits", None))
        flat = [layer for found in layers.values() for layer in found if layer is not None]
        slopes = slopes_of(chosen.score, flat, reading)
    gradients = like(attention, slopes)
    positions = chosen.positions or read_from(slopes[-1], gradients)
    return Explained(attention, gradients, positions, chosen.name, chosen.probability)


def slopes_of(score: Tensor, weights: list[Tensor], reading: Reading) -> list[NDArray[Any]]:
    """∂score/∂weights of each layer, shape (heads, queries, keys).

    Raises:
        AttentionError: the weights handed over are copies that the score does not hang on.
    """
    import torch

    grown = all(layer.requires_grad for layer in weights)
    slopes = torch.autograd.grad(score, weights, allow_unused=True) if grown else (None,)
    if any(slope is None for slope in slopes):
        raise AttentionError(
            f"architecture '{reading.part.config.model_type}' hands out copies of its weights, "
            "which no gradient reaches: use --lens rollout, flow or norm"
        )
    return [slope[0].float().cpu().numpy() for slope in slopes if slope is not None]


def like(attention: Attention, slopes: list[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
    """The layers' gradients stacked as the maps' weights are."""
    rest, stacked = iter(slopes), list[NDArray[Any]]()
    for item in attention.maps:
        stacked.append(np.stack([next(rest) for _ in item.layers]))
    return tuple(stacked)


def read_from(last: NDArray[Any], gradients: tuple[NDArray[Any], ...]) -> tuple[int, ...]:
    """The positions that a classifier reads: those whose last attention its score hangs on.

    Whether it reads [CLS], the last token or the mean of all is so seen, not looked up.
    """
    rows = np.flatnonzero(np.any(last != 0, axis=(0, 2)))
    return tuple(rows.tolist()) or tuple(range(last.shape[1]))
