"""Small sizes for a configuration, by the names under which transformers keeps them.

All widths are one, and all heads, so that parts which must agree do. No name of a family is in it.
What these names do not make runnable, `attnviz.features.models.shrink` finds by trial.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

WIDTH, HEADS, FEWER, INNER, WORDS, CELLS = 64, 4, 2, 96, 1024, 8
"""Widths, heads, heads of keys, inner widths, words, and patches along a side of a picture."""
HEAD = WIDTH // HEADS

SIZES: list[tuple[str, int | Callable[[int], int]]] = [
    (r"patch_embed_hidden_size|merged_hidden_size|max_image_size|min_image_size", lambda n: n),
    (r"(.*_)?vocab_size(_.*)?|unpadded_vocab_size", lambda size: min(size, WORDS)),
    (r".*_token(_ids?|_index|s?_id)|.*_(patch|start|end|col)_id", lambda one: one % (WORDS - 24)),
    (r"q_lora_rank|kv_lora_rank|.*_lowrank|.*_per_layer_input|latent_dim_head", 16),
    (r"qk_(rope|nope)_head_dim|rotary_dim", HEAD // 2),
    (r"(moe|shared_expert|.*expert.*)_intermediate_size|expert_.*(size|dim)", 32),
    (r".*intermediate_(size|dim)|.*ffn_dim|.*_?mlp_dim|d_ff|ffn_hidden_size|.*linear_units", INNER),
    (r"linear_num_key_heads", FEWER),
    (r"(mamba_)?n_groups", lambda many: min(many, FEWER)),
    (r"(.*_)?(num_)?((attention|value)_)?heads?|.*_n_heads?|n_heads?", HEADS),
    (r"(.*_)?(head_dim|d_head|d_kv|dim_head)", HEAD),
    (r"(.*_)?hidden_size(s)?|(.*_)?(d_model|embed_dim|n_embd|hidden_dim|projection_dim)", WIDTH),
    (
        r"((vision|text|audio)_)?(output|project|projection|projector_(input|output)|out|model|conv"
        r"|embedding|condition|adapter_in|adapter_out|in)_(dim|size)|dim",
        WIDTH,
    ),
    (r"(n_routed_experts|(.*_)?num_(local_)?experts)", 4),
    (r"(.*_)?num_experts_per_tok|moe_topk|moe_k|.*top_k(_experts)?", lambda few: min(few, 2)),
    (r"n_group|topk_group|first_k_dense_replace|(moe_)?(num|n)_shared_experts", 1),
    (r"num_kv_shared_layers", 0),
    (r"num_filters", lambda many: min(many, 4)),
    (r"max_position_embeddings|n_positions", lambda most: min(most, 2048)),
]
ABSENT = {"sliding_window": 16, "head_dim": HEAD, "image_token_id": 5, "video_token_id": 6}
PIXELS = ("image_size", "mm_tokens_per_image", "vision_soft_tokens_per_image")
"""Patterns of names of whole numbers, and their small value; the first that fits counts."""
KEYS = re.compile(r"(.*_)?(num_)?(kv_heads|key_value_heads|kv_n_heads)")
OF_QUERIES = re.compile(r"(num_)?(attention_)?heads|n_heads?")
DEPTH = re.compile(r"(.*_)?(num_)?(hidden_)?(layers|depth|n_layer|num_blocks)|.*_num_layers|[lrx]_layers")  # fmt: skip  # noqa: E501
NO_DEPTH = re.compile(r".*(residual|lstm|conv|adapter|feat_extract|nextn|kv_shared|wavenet|predictor|net|timestamp|global).*layers|max_window_layers")  # fmt: skip  # noqa: E501
NUMBERED = re.compile(r".*(_layers?|_indexe?s?|_indices)")
"""Names of lists that number layers."""


def small_sizes(
    numbers: dict[str, Any], sections: int = 0, *, pictures: bool = False
) -> dict[str, Any]:
    """The configuration's numbers with small sizes.

    Args:
        numbers: those of a configuration.
        sections: how many numbers of a head rotary positions of time, height and width turn.
        pictures: leave the sizes of pictures as they are.
    """
    side = next(patches(numbers), 16)
    before = next(sides(numbers), None)
    made = _small(numbers, 0 if pictures else side)
    if sections:
        _turn(made, sections)
    after = next(sides(made), None)
    if before and after and "image_grid_pinpoints" in numbers:
        made["image_grid_pinpoints"] = [
            [length * after // before for length in one] for one in numbers["image_grid_pinpoints"]
        ]
    return made


def patches(numbers: Any) -> Iterator[int]:
    """The sides of patches, that of the first part first."""
    if isinstance(numbers, dict):
        own = numbers.get("patch_size")
        own = own[0] if isinstance(own, list) and own else own
        if isinstance(own, int):
            yield own
        for one in numbers.values():
            yield from patches(one)


def sides(numbers: Any) -> Iterator[int]:
    """The sides of pictures."""
    if isinstance(numbers, dict):
        if isinstance(own := numbers.get("image_size"), int):
            yield own
        for one in numbers.values():
            yield from sides(one)


def _small(numbers: dict[str, Any], side: int) -> dict[str, Any]:
    if numbers.get("model_type") == "timm_wrapper":
        return dict(numbers)  # another library's own sizes
    if side:
        side = next(patches({"patch_size": numbers.get("patch_size")}), side)
    made = {name: _small_value(name, value, numbers, side) for name, value in numbers.items()}
    _cut_depth(made, numbers)
    if numbers.get("head_dim") and numbers["head_dim"] == numbers.get("qk_rope_head_dim"):
        made["head_dim"] = made["qk_rope_head_dim"]
    if "intermediate_layers_indices" in made:
        made["vision_output_dim"] = WIDTH * (1 + len(made["intermediate_layers_indices"]))
    _fewer_sections(made, numbers)
    return made


def _small_value(name: str, value: Any, numbers: dict[str, Any], side: int) -> Any:
    if isinstance(value, dict) and name not in ("id2label", "label2id"):
        return _small(value, side)
    if value is None:
        return ABSENT.get(name)
    if name in PIXELS:
        small = CELLS * side if name == "image_size" else (CELLS // 2) ** 2
        small = small if side and value else value
        return [small] * 2 if isinstance(value, list) and side else small
    if name == "downsample_channels":
        return [*value[:-1], WIDTH]  # the last is the width of what reads them
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return _small_number(name, value, numbers)
    return None if name == "dtype" else value


def _small_number(name: str, value: int, numbers: dict[str, Any]) -> int:
    width = numbers.get("hidden_size") or 0
    if KEYS.fullmatch(name):
        queries = (one for key, one in numbers.items() if OF_QUERIES.fullmatch(key))
        most = max((one for one in queries if isinstance(one, int)), default=0)
        return FEWER if value < most else HEADS
    if name == "intermediate_size" and value == 4 * width:
        return 4 * WIDTH
    small = small_size(name, value)
    agrees = small == value == width and "position" not in name
    return WIDTH if agrees else small


def small_size(name: str, value: int) -> int:
    """A small number in place of one under a name; itself where no pattern fits."""
    for pattern, small in SIZES:
        if re.fullmatch(pattern, name):
            return small(value) if callable(small) else small
    return value


def _cut_depth(made: dict[str, Any], numbers: dict[str, Any]) -> None:
    """A layer of each kind, at least two; lists as long as the depth are cut with it."""
    least = 2
    for name, depth in numbers.items():
        whole = isinstance(depth, int) and not isinstance(depth, bool) and depth > 2
        if not whole or not DEPTH.fullmatch(name) or NO_DEPTH.fullmatch(name):
            continue
        lists = {k: v for k, v in numbers.items() if isinstance(v, list) and len(v) == depth}
        by_kind = [value for value in lists.values() if len({*map(str, value)}) < depth]
        kinds = [str(kind) for kind in zip(*by_kind, strict=True)] or [""] * depth
        first = {kinds.index(kind) for kind in kinds}
        layers = sorted(first if len(first) > 1 else {0, 1})
        made[name], least = len(layers), max(least, len(layers))
        made |= {
            key: [*range(len(layers))] if value == [*range(depth)] else [value[n] for n in layers]
            for key, value in lists.items()
        }
        if own := made.get("per_layer_config"):
            by_number = {int(key): value for key, value in own.items()}
            kept = {n: by_number[layer] for n, layer in enumerate(layers) if layer in by_number}
            made["per_layer_config"] = {str(n): value for n, value in kept.items()}
        for key in lists:
            numbers = {**numbers, key: None}
    for name, value in numbers.items():
        if isinstance(value, list) and value and NUMBERED.fullmatch(name):
            whole = all(isinstance(one, int) and not isinstance(one, bool) for one in value)
            if whole and max(map(abs, value)) >= least:
                kept = (min(max(one, -least), least - 1) for one in value)
                made[name] = list(dict.fromkeys(kept))
        elif isinstance(value, int) and NUMBERED.fullmatch(name) and "layer" in name and value < -2:
            made[name] = -2


def _fewer_sections(made: dict[str, Any], numbers: dict[str, Any]) -> None:
    """Sections of rotary positions that turn as large a part of a smaller head."""
    name = "qk_rope_head_dim" if "qk_rope_head_dim" in numbers else "head_dim"
    of = made.get("rope_parameters")
    sections = of.get("mrope_section") if isinstance(of, dict) else None
    if sections and numbers.get(name):
        whole = sum(sections) * made[name] // numbers[name]
        each = whole // 3
        of["mrope_section"] = [whole - 2 * each, each, each]


def _turn(made: dict[str, Any], sections: int) -> None:
    """Sections of rotary positions by time, height and width."""
    for name, value in made.items():
        if name in ("rope_parameters", "rope_scaling") and isinstance(value, dict):
            each = sections // 3
            value["mrope_section"] = [sections - 2 * each, each, each]
        elif isinstance(value, dict):
            _turn(value, sections)
