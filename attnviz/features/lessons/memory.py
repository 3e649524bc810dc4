"""The key-value cache: its size, and heads that share keys and values."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attnviz.core.errors import ModelError
from attnviz.features.lessons.lesson import SENTENCE, Curves, Heat, Lesson, byte_size, check_range
from attnviz.mechanisms.dot_product import causal, grouped_query, join_heads, multi_head

SHOWN = 8  # steps that are drawn, and computed with and without a cache
LONGEST = 1 << 24
LLAMA_3 = "32 layers, 8 key-value heads of 128 (the shape of Llama 3 8B)"


class CacheShape(NamedTuple):
    """The cache of some layers of one kind."""

    layers: int
    numbers: int  # how many numbers one layer keeps for a position
    window: int  # the most positions it keeps; 0: all
    all_heads: int  # how many numbers it would keep if every head had its own keys and values
    how: str


def cache_lesson(length: int = 8192, config: Path | None = None) -> Lesson:
    """The key-value cache: what is computed again without it, and its bytes.

    A model that writes needs the keys and values of all earlier positions at every step. They do
    not change, so a cache keeps them. Its size follows from `config`, a configuration (a folder, or
    its config.json); no weights are read.

    A row holds, for each length: positions whose keys and values were computed without and with a
    cache, the bytes of the cache, and its bytes if every head had its own keys and values and no
    layer had a window.
    """
    check_range("length", length, 1, LONGEST)
    llama = (CacheShape(32, 2 * 8 * 128, 0, 2 * 32 * 128, LLAMA_3),)
    kinds, width, name = cache_of(config) if config is not None else (llama, 2, "a decoder")
    lengths = sorted({*(2**power for power in range(25) if 2**power < length), length})
    sizes = [
        width * sum(k.layers * k.numbers * min(count, k.window or count) for k in kinds)
        for count in lengths
    ]
    whole = [width * sum(k.layers * k.all_heads * count for k in kinds) for count in lengths]
    without = [count * (count + 1) // 2 for count in lengths]
    each = width * sum(k.layers * k.numbers for k in kinds)
    comparison = f"it would be {byte_size(whole[-1])} if all heads kept their own"
    if sizes[-1] == whole[-1]:
        comparison = "every head keeps its own, of all positions"
    steps = [str(step) for step in range(1, SHOWN + 1)]
    work = np.tril(np.ones((SHOWN, SHOWN)))
    gap = np.full((SHOWN, 1), np.nan)
    apart = np.where(work > 0, 0.25 + 0.75 * np.eye(SHOWN), np.nan)
    layers = " + ".join(k.how for k in kinds)
    query, key, value = np.random.default_rng(0).standard_normal((3, SHOWN, 16))
    again = causal(query, key, value)[0]
    once = [
        causal(query[step : step + 1], key[: step + 1], value[: step + 1])[0][0]
        for step in range(SHOWN)
    ]
    return Lesson(
        f"cache · {name} of {layers}, {8 * width}-bit",
        {
            "length": lengths,
            "computed_without": without,
            "computed_with": lengths,
            "cache_bytes": sizes,
            "unshared_bytes": whole,
        },
        (
            f"Without a cache every step computes all keys and values again: to write {length:,} "
            f"tokens a layer computes {without[-1]:,} of them, and {length:,} with a cache.",
            f"The result is the same: over {SHOWN} steps, the outputs with and without a cache "
            f"differ by {float(np.abs(again - once).max()):.0e} at most.",
            f"The price is memory: {byte_size(each)} for a token, {byte_size(sizes[-1])} for a "
            f"text of {length:,} tokens; {comparison}.",
        ),
        "Shazeer 2019 (Fast transformer decoding), section 2; Pope 2022 (Efficiently scaling "
        "transformer inference), section 3.3",
        (
            Heat(
                "keys and values, without and with a cache; rows are steps",
                np.hstack([np.where(work > 0, 1.0, np.nan), gap, apart]),
                steps,
                [*steps, "", *steps],
                "computed at this step 1, read 0.25",
            ),
            Curves(
                "what the cache holds",
                "tokens",
                "MiB",
                {
                    "this model": (lengths, [size / 2**20 for size in sizes]),
                    "all heads, no window": (lengths, [size / 2**20 for size in whole]),
                },
                doubling=True,
                tenfold=True,
            ),
        ),
    )


def cache_of(model: Path) -> tuple[tuple[CacheShape, ...], int, str]:
    """The caches of a configuration's layers, the bytes of a number, and the model's type.

    Raises:
        ModelError: a file that is no configuration, or one of a model without attention heads.
    """
    from attnviz.models.hugging_face.load.loading import load_configuration

    config = load_configuration(model)
    name = config.model_type
    config = config.get_text_config(decoder=True)
    heads = _first_number(config, "num_attention_heads", "n_head", "num_heads")
    layers = _first_number(config, "num_hidden_layers", "n_layer", "num_layers")
    if not heads or not layers:
        raise ModelError(f"'{model}' names no attention heads: a '{name}' has no such cache")
    size = _first_number(config, "head_dim", "d_kv") or config.hidden_size // heads
    rank, rotary_size = (
        _first_number(config, "kv_lora_rank"),
        _first_number(config, "qk_rope_head_dim"),
    )
    groups = _first_number(config, "num_key_value_heads", "num_kv_heads") or heads
    # Falcon names a number of groups also where `multi_query` overrides it.
    newer = getattr(config, "new_decoder_architecture", False)
    if getattr(config, "multi_query", False) and not newer:
        groups = 1
    numbers, all_heads, how = 2 * groups * size, 2 * heads * size, f"{groups} key-value heads"
    if groups == heads:
        how = f"{heads} heads"
    how += f" of {size}"
    if rank:
        key_size = rotary_size + _first_number(config, "qk_nope_head_dim")
        numbers, all_heads = (
            rank + rotary_size,
            heads * (key_size + _first_number(config, "v_head_dim")),
        )
        how = f"a latent of {rank} and {rotary_size} turned"
    window = _first_number(config, "sliding_window", "attention_chunk_size")
    if getattr(config, "use_sliding_window", True) is False:
        window = 0
    usual = "sliding_attention" if window else "full_attention"
    types = list(getattr(config, "layer_types", None) or [usual] * layers)
    types = types[: len(types) - _first_number(config, "num_kv_shared_layers")]
    shapes = []
    for kind in dict.fromkeys(types):
        count, near = types.count(kind), window if kind != "full_attention" else 0
        if kind in ("full_attention", "sliding_attention", "chunked_attention"):
            limit = f", window {near:,}" if near else ""
            shapes.append(
                CacheShape(count, numbers, near, all_heads, f"{count} layers, {how}{limit}")
            )
        else:
            note = f"{count} layers of '{kind}', whose state is not counted"
            shapes.append(CacheShape(count, 0, 0, 0, note))
    dtype = str(getattr(config, "dtype", None) or "16").removesuffix("_fn")
    width = next((bits // 8 for bits in (64, 32, 16, 8) if str(bits) in dtype), 2)
    return tuple(shapes), width, name


def _first_number(config: Any, *names: str) -> int:
    """The first positive whole number that a configuration has under one of the names; else 0."""
    values = (getattr(config, name, None) for name in names)
    return next((one for one in values if isinstance(one, int) and one > 0), 0)


def groups_lesson(text: str = SENTENCE) -> Lesson:
    """Heads that share keys and values: memory against what is lost.

    The heads of pocket's encoder are made to share keys and values: by their mean, as in Ainslie
    2023, or by a latent vector, the best of its size for both projections (their largest singular
    values). Nothing is trained again, and each layer keeps its usual inputs.

    A row holds, for each way to share: the heads that have their own keys and values, the numbers
    kept for a position in a layer, their share of the full number, and the mean change of a layer's
    output as a share of its length.
    """
    from attnviz.core.attention_call import AttentionCall
    from attnviz.models.pocket.model import run_encoder
    from attnviz.models.pocket.translator import Pocket

    pocket, passes = Pocket(), list[AttentionCall]()

    def watch(layer: AttentionCall) -> Any:
        passes.append(layer)
        return layer.output

    heads, size = pocket.sizes.heads, pocket.sizes.size
    ids = pocket.encode_text(text).ids
    run_encoder(pocket.weights, pocket.sizes, pocket.embed(ids), watch=watch)

    norm = np.linalg.norm

    def change(outputs: list[Any]) -> float:
        pairs = zip(outputs, passes, strict=True)
        return float(np.mean([norm(one - by.output) / norm(by.output) for one, by in pairs]))

    def share_by_mean(count: int) -> list[Any]:
        return [
            grouped_query(
                join_heads(by.query),
                *(_mean_of_groups(join_heads(one), heads, count) for one in (by.key, by.value)),
                heads=heads,
            )[0]
            for by in passes
        ]

    def share_by_latent(rank: int) -> list[Any]:
        outputs = []
        for by in passes:
            names = [f"{by.path}.{name}" for name in ("key", "value")]
            weight = np.concatenate([pocket.weights[f"{name}.weight"] for name in names])
            bias = np.concatenate([pocket.weights[f"{name}.bias"] for name in names])
            basis = np.linalg.svd(weight, full_matrices=False)[0][:, :rank]
            cache = np.concatenate([join_heads(by.key), join_heads(by.value)], axis=-1)
            both = (cache - bias) @ basis @ basis.T + bias
            query, key, value = join_heads(by.query), both[..., :size], both[..., size:]
            outputs.append(multi_head(query, key, value, heads=heads)[0])
        return outputs

    counts = [count for count in range(heads, 0, -1) if heads % count == 0]
    names = {heads: "multi-head", 1: "multi-query"}
    numbers_of = {count: 2 * size * count // heads for count in counts}
    changes = [change(share_by_mean(count)) for count in counts]
    ranks = [numbers_of[count] for count in counts[1:]]
    losses = [change(share_by_latent(rank)) for rank in ranks]
    numbers = [*numbers_of.values(), *ranks]
    reads = np.full((heads, sum(counts) + len(counts) - 1), np.nan)
    columns = list[str]()
    for count in counts:
        first = len(columns) + (1 if columns else 0)
        reads[:, first : first + count] = np.kron(np.eye(count), np.ones((heads // count, 1)))
        columns += [*[""] * (first - len(columns)), *map(str, range(count))]
    return Lesson(
        f"groups · the {heads} heads of pocket's encoder made to share keys and values",
        {
            "kind": [*(names.get(count, "grouped") for count in counts), *["latent"] * len(ranks)],
            "key_value_heads": [*counts, *[heads] * len(ranks)],
            "numbers_kept": numbers,
            "share_kept": [number / numbers_of[heads] for number in numbers],
            "output_change": [*changes, *losses],
        },
        (
            f"Each of {heads} heads keeps its own keys and values: {numbers_of[heads]} numbers for "
            "a position in a layer. Groups of heads share them, and memory shrinks with the number "
            "of groups.",
            f"Sharing by the mean, without training, changes the output of a layer by "
            f"{changes[1]:.0%} with {counts[1]} groups and by {changes[-1]:.0%} with one, so "
            "models are trained with groups from the start or trained again.",
            f"A latent is one vector from which all heads compute their keys and values: "
            f"{ranks[0]} numbers lose {losses[0]:.0%}, since keys and values both come from the "
            f"same {size}; {ranks[-1]} lose {losses[-1]:.0%}.",
        ),
        "Shazeer 2019 (multi-query), section 3; Ainslie 2023 (GQA), section 2; Liu 2024 "
        "(DeepSeek-V2), section 2.1",
        (
            Heat(
                "which keys and values (columns) each head reads",
                reads,
                [f"head {head}" for head in range(heads)],
                columns,
                "1: reads them",
            ),
            Curves(
                "what sharing changes",
                "numbers kept for a position",
                "change of a layer's output / its length",
                {"in groups": ([*numbers_of.values()], changes), "latent": (ranks, losses)},
            ),
        ),
    )


def _mean_of_groups(inputs: Any, heads: int, count: int) -> Any:
    """Keys or values (positions, size) of `count` groups, each the mean of its heads."""
    positions, size = inputs.shape
    by_group = inputs.reshape(positions, count, heads // count, size // heads)
    return by_group.mean(axis=2).reshape(positions, -1)
