"""Families whose attention is not one share for each pair of tokens, and what it is instead.

Some of them hand something over all the same, that a careless reader would take for weights.
"""

from __future__ import annotations

from typing import Any

from attnviz.errors import AttentionError

NOT_WEIGHTS = {
    "canine": "its characters attend in windows, and its deep layers to every fourth of them only",
    "diffllama": "each head subtracts one attention from another, so that what it mixes is signed",
    "funnel": "its layers pool their tokens, so that rows and columns stand for several",
    "led": "its encoder attends in windows, with a few tokens that see all",
    "longformer": "it attends in windows, with a few tokens that see all",
    "longt5": "its encoder attends in windows or to summaries of blocks",
    "nystromformer": "it goes through landmarks, and hands over only the way to them",
    "pegasus_x": "its encoder attends in blocks, with tokens of its own that see all",
    "prophetnet": "its decoder attends in several streams, for tokens further ahead",
    "reformer": "it attends within buckets of a hash",
    "rwkv": "it is a recurrence",
    "squeezebert": "it hands over scores before the softmax",
    "yoso": "it samples by a hash and has no weights",
}
"""By model type: why what there is cannot be shown as weights."""

BLOCK_SPARSE = ("big_bird", "bigbird_pegasus")


def check_family(config: Any, longest: int) -> None:
    """Refuse a family whose attention is not weights between tokens, before it runs.

    Args:
        config: the model's configuration.
        longest: tokens of the longest side.

    Raises:
        AttentionError: it is such a family, with what it has instead.
    """
    kind = config.model_type
    reason = NOT_WEIGHTS.get(kind)
    if kind in BLOCK_SPARSE and is_sparse(config, longest):
        reason = (
            f"over {longest:,} tokens it attends in blocks, some drawn by chance, and hands over a "
            f"reconstruction that loses some of it; up to {full_until(config):,} it is full"
        )
    if reason:
        raise AttentionError(
            f"architecture '{kind}' has no attention weights between all tokens: {reason}"
        )


def is_sparse(config: Any, longest: int) -> bool:
    """True where BigBird leaves full attention."""
    return config.attention_type == "block_sparse" and longest > full_until(config)


def full_until(config: Any) -> int:
    """The longest text over which BigBird's attention is full."""
    return int((5 + 2 * config.num_random_blocks) * config.block_size)
