"""What differs between model families, and which of them are refused."""

import re
from collections.abc import Mapping
from typing import Any, Literal

from attnviz.core.errors import AttentionError, ModelError

Family = Literal["encoder-only", "decoder-only", "encoder–decoder"]

UNLIMITED = 10**9  # tokenizers that know no limit name a huge one (1e30)


def family_of(model: Any) -> Family:
    """Which of the three transformer shapes a model has."""
    from transformers.models.auto import modeling_auto as auto

    config = model.config
    if config.is_encoder_decoder:
        return "encoder–decoder"
    kind = config.model_type
    writes = kind in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    fills_in = kind in auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    causal = any(getattr(part, "is_causal", None) is True for part in model.modules())
    is_decoder = getattr(config, "is_decoder", False) or causal or (writes and not fills_in)
    return "decoder-only" if is_decoder else "encoder-only"


def reading_limit(model: Any, tokenizer: Any) -> int | None:
    """How many tokens a model reads, special ones included; None if there is no limit.

    A model fails beyond its learned positions, and was not trained beyond its tokenizer's limit.
    """
    limits = [tokenizer.model_max_length]
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if positions:
        limits.append(positions - _reserved_positions(model))
    for limit in limits:
        if isinstance(limit, bool) or not isinstance(limit, int | float):
            raise ModelError(
                f"the model's folder says that it reads {limit!r} tokens (model_max_length, "
                "max_position_embeddings): that is no number"
            )
    finite = [int(limit) for limit in limits if 0 < limit < UNLIMITED]
    return min(finite, default=None)


def _reserved_positions(model: Any) -> int:
    """Unused positions: RoBERTa-like models count from one past the padding's."""
    for name, part in model.named_modules():
        padding = getattr(part, "padding_idx", None)
        if name.endswith("position_embeddings") and padding is not None:
            return int(padding) + 1
    return 0


def count_left_over(report: Mapping[str, Any], model: Any) -> int:
    """How many weights of a checkpoint belong to layers that the configuration leaves out."""
    kinds = {_without_number(key) for key in model.state_dict() if _without_number(key) != key}
    return sum(_without_number(key) in kinds for key in report["unexpected_keys"])


def _without_number(key: str) -> str:
    return re.sub(r"\.\d+\.", ".#.", key)


NOT_WEIGHTS = {
    "canine": "its characters attend in windows, and its deep layers to every fourth of them only",
    "diffllama": "each head subtracts one attention from another, so that what it mixes is signed",
    "funnel": "its layers pool their tokens, so that rows and columns stand for several",
    "led": "its encoder attends in windows, with a few tokens that see all",
    "longformer": "it attends in windows, with a few tokens that see all",
    "longt5": "its encoder attends in windows or to summaries of blocks",
    "nystromformer": "it goes through landmarks, and gives out only the way to them",
    "pegasus_x": "its encoder attends in blocks, with tokens of its own that see all",
    "prophetnet": "its decoder attends in several streams, for tokens further ahead",
    "reformer": "it attends within buckets of a hash",
    "rwkv": "it is a recurrence",
    "squeezebert": "it gives out scores before the softmax",
    "yoso": "it samples by a hash and has no weights",
}
"""By model type: why its attention is no weights between tokens, even if it gives some out."""

BLOCK_SPARSE = ("big_bird", "bigbird_pegasus")


def check_family(config: Any, longest: int) -> None:
    """Refuse a family whose attention is no weights between tokens, before it runs."""
    kind = config.model_type
    reason = NOT_WEIGHTS.get(kind)
    if kind in BLOCK_SPARSE and config.attention_type == "block_sparse":
        full = int((5 + 2 * config.num_random_blocks) * config.block_size)
        if longest > full:
            reason = (
                f"over {longest:,} tokens it attends in blocks, some drawn by chance, and gives "
                f"out a reconstruction that loses some of it; up to {full:,} it is full"
            )
    if reason:
        raise AttentionError(
            f"architecture '{kind}' has no attention weights between all tokens: {reason}"
        )
