"""What differs between model families, asked of the model itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

Family = Literal["encoder-only", "decoder-only", "encoder–decoder"]

UNLIMITED = 10**9
"""Tokenizers that know no limit name a huge one (1e30)."""


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
    """How many tokens a model reads, specials included; None where nothing limits it.

    Beyond its learned positions a model fails; beyond what its tokenizer names it was never
    trained.
    """
    limits = [tokenizer.model_max_length]
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if positions:
        limits.append(positions - reserved_positions(model))
    known = [int(limit) for limit in limits if 0 < limit < UNLIMITED]
    return min(known, default=None)


def reserved_positions(model: Any) -> int:
    """Positions that no token gets: RoBERTa and its kin count from one past the padding's."""
    for name, part in model.named_modules():
        padding = getattr(part, "padding_idx", None)
        if name.endswith("position_embeddings") and padding is not None:
            return int(padding) + 1
    return 0


def left_over_layers(report: Mapping[str, Any], model: Any) -> int:
    """How many weights of a checkpoint are of layers beyond those that were loaded."""
    kinds = {numberless(key) for key in model.state_dict() if numberless(key) != key}
    return sum(numberless(key) in kinds for key in report["unexpected_keys"])


def numberless(key: str) -> str:
    """A weight's name with "#" for its layer."""
    return re.sub(r"\.\d+\.", ".#.", key)
