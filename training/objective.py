"""What training makes small: translation, hidden words, and the guided heads' distances.

Translation is cross-entropy with smoothed labels (Szegedy 2016, section 7); hidden words are those
of a masked language model (Devlin 2019); one cross-attention head is led to word alignments by the
cross-entropy between them and its weights (Garg 2019, section 4.2). In the same way one encoder
head is led from a word that occurs twice to its other occurrences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from attnviz.mechanisms.relative import sinusoidal_positions
from attnviz.models.light.network import Weights
from attnviz.models.pocket.model import (
    TranslatorSizes,
    embed_pieces,
    predict_pieces,
    run_decoder,
    run_encoder,
)
from attnviz.models.pocket.text import PAD
from training.batches import IGNORED, Batch

if TYPE_CHECKING:
    from torch import Tensor

GUIDED_LAYER, GUIDED_HEAD = 2, 0
"""The decoder layer and the head of its cross-attention that is led to word alignments."""
REPEATS_LAYER, REPEATS_HEAD = 0, 3
"""The encoder layer and the head that is led to the other occurrences of a piece."""

SMOOTHING = 0.05
GUIDE_SHARE = 1.0
REPEATS_SHARE = 0.2
HIDDEN_SHARE = 0.3


class Losses(NamedTuple):
    """In nats: a token's, what training follows, then the means of its parts."""

    total: Tensor
    translation: Tensor
    guide: Tensor
    hidden: Tensor
    repeats: Tensor


class Tensors(NamedTuple):
    """A batch on a device.

    Attributes:
        source: piece ids, shape (examples, keys).
        target: piece ids, shape (examples, queries).
        expected: piece ids or IGNORED, shape (examples, queries).
        guide: shares, shape (examples, queries, keys).
        hidden_at: places in the flattened source, shape (hidden,).
        hidden: the piece ids there.
        spelling: equal numbers for equal pieces or IGNORED, shape (examples, keys).
    """

    source: Tensor
    target: Tensor
    expected: Tensor
    guide: Tensor
    hidden_at: Tensor
    hidden: Tensor
    spelling: Tensor


def tensors(batch: Batch, device: str) -> Tensors:
    """The batch on a device; two ignored places stand in where nothing is hidden."""
    flat = batch.hidden.ravel()
    places = np.concatenate([[0, 0], np.flatnonzero(flat != IGNORED)])
    hidden = np.concatenate([[IGNORED, IGNORED], flat[flat != IGNORED]])
    arrays = (
        batch.source,
        batch.target,
        batch.expected,
        batch.guide,
        places,
        hidden,
        batch.spelling,
    )
    return Tensors(*(torch.from_numpy(array).to(device) for array in arrays))


def waves(longest: int, size: int, device: str) -> Tensor:
    """The positions' waves on a device, shape (longest, size)."""
    return torch.from_numpy(sinusoidal_positions(longest, size)).to(device)


def losses(weights: Weights, sizes: TranslatorSizes, positions: Tensor, batch: Tensors) -> Losses:
    """Every loss of one batch, by the same forward pass that answers the command line.

    Args:
        weights: learned tensors by name.
        sizes: of the model.
        positions: at least as many waves as the longest text has pieces.
        batch: what `tensors` returns.
    """
    mask = (batch.source != PAD)[:, None, None, :]
    table = weights["embedding.weight"]
    source = embed_pieces(table[batch.source], positions[: batch.source.shape[1]])
    memory, own = run_encoder(weights, sizes, source, mask=mask)
    target = embed_pieces(table[batch.target], positions[: batch.target.shape[1]])
    states, _, cross = run_decoder(weights, sizes, target, memory, mask=mask)
    translation = _mean_loss(
        predict_pieces(weights, states).flatten(0, 1), batch.expected.flatten()
    )
    shares = cross[GUIDED_LAYER][:, GUIDED_HEAD].float()
    guided = torch.clamp(batch.guide.sum(), min=1.0)
    guide = -(batch.guide * torch.log(shares + 1e-6)).sum() / guided
    read = memory.flatten(0, 1)[batch.hidden_at]
    hidden = _mean_loss(predict_pieces(weights, read), batch.hidden)
    repeats = repeats_loss(own[REPEATS_LAYER][:, REPEATS_HEAD].float(), batch.spelling)
    total = translation + GUIDE_SHARE * guide + HIDDEN_SHARE * hidden + REPEATS_SHARE * repeats
    return Losses(total, translation, guide, hidden, repeats)


def repeats_loss(shares: Tensor, spelling: Tensor) -> Tensor:
    """Mean −log of what pieces that occur again give to their other occurrences; 0 without any.

    Args:
        shares: one head's weights, shape (examples, keys, keys), rows summing to 1.
        spelling: equal numbers for equal pieces, IGNORED where nothing is asked for, shape
            (examples, keys).
    """
    same = (spelling[:, :, None] == spelling[:, None, :]) & (spelling != IGNORED)[:, :, None]
    same = same & ~torch.eye(spelling.shape[1], dtype=torch.bool, device=spelling.device)
    asking = same.any(-1)
    given = torch.log((shares * same).sum(-1) + 1e-6)
    return -(given * asking).sum() / torch.clamp(asking.sum(), min=1)


def _mean_loss(scores: Tensor, expected: Tensor) -> Tensor:
    summed = cross_entropy(
        scores.float(), expected, ignore_index=IGNORED, label_smoothing=SMOOTHING, reduction="sum"
    )
    return summed / torch.clamp((expected != IGNORED).sum(), min=1)
