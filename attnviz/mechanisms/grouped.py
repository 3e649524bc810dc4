"""Heads that share keys and values: in groups, all of them, or through one small latent vector."""

from attnviz.mechanisms.arrays import Array, Mask, namespace, transpose
from attnviz.mechanisms.formula import (
    Calculation,
    Formula,
    Part,
    in_heads,
    scaled_scores,
    split_heads,
    weigh_values,
)
from attnviz.mechanisms.relative import Pairs, turn_pairs


@Formula
def grouped_query(
    query: Array, key: Array, value: Array, mask: Mask = None, *, heads: int = 1
) -> Calculation:
    """Attention whose heads share keys and values in groups.

    See Ainslie 2023, section 2.2. The shapes are those of `multi_head`, but keys and values
    (…, keys, groups × head size) are narrower; their size gives the number of groups.
    """
    xp = namespace(query)
    groups = key.shape[-1] * heads // query.shape[-1]
    query, key, value = yield from in_heads(query, key, value, heads, groups)
    if 1 < groups < heads:  # a single group is shared without being repeated
        key, value = (xp.repeat(side, heads // groups, axis=-3) for side in (key, value))
    scores = yield from scaled_scores(query, key)
    yield from weigh_values(scores, value, mask)


@Formula
def multi_query(
    query: Array, key: Array, value: Array, mask: Mask = None, *, heads: int = 1
) -> Calculation:
    """Attention whose heads all share the same keys and values.

    See Shazeer 2019, section 3.1. The shapes are those of `multi_head`, but keys and values are
    those of one head, (…, keys, head size).
    """
    yield from grouped_query.calculation(query, key, value, mask, heads=heads)


@Formula
def latent(  # noqa: PLR0913 - the paper's matrices by name
    query: Array,
    key: Array,
    value: Array,
    mask: Mask = None,
    *,
    heads: int = 1,
    w_query: Array,
    w_turned_query: Array,
    w_latent: Array,
    w_up_key: Array,
    w_up_value: Array,
    w_turned_key: Array,
    latent_scale: Array | None = None,
    pairs: Pairs = "neighbours",
) -> Calculation:
    """Attention whose keys and values unfold from one small latent vector a position (MLA).

    See Liu 2024 (DeepSeek-V2), sections 2.1.2 and 2.1.3: a cache holds only the latent and one
    turned key that all heads share. Query, key and value are inputs before any projection,
    (…, positions, size); value is usually key.

    `w_query` has the shape (size, heads × head size), `w_latent` (size, latent size), `w_up_key`
    and `w_up_value` (latent size, heads × head size); what is turned by position comes from
    `w_turned_query` (size, heads × turned size) and `w_turned_key` (size, turned size). With
    `latent_scale` (latent size,) the latent gets a mean square of 1 and is multiplied by it, as in
    the models; the paper's equations have none.

    Returns:
        output of shape (…, queries, heads × value size) and weights of shape (…, heads, queries,
        keys), rows summing to 1.
    """
    xp = namespace(query)
    formula = "query @ w_turned_query"
    query_place = yield Part("position_query", query @ w_turned_query, formula, "qf")
    place = yield Part("position_key", key @ w_turned_key, "key @ w_turned_key", "kf")
    latents, formula = key @ w_latent, "key @ w_latent"
    of_value = latents if value is key else value @ w_latent
    if latent_scale is not None:
        latents, of_value = (_normalise(xp, one) * latent_scale for one in (latents, of_value))
        formula += ", scaled to a mean square of 1"
    latents = yield Part("latent", latents, formula, "kf")
    of_value = latents if value is key else of_value
    keys = yield Part("key", latents @ w_up_key, "latent @ w_up_key", "kf")
    values = yield Part("value", of_value @ w_up_value, "latent @ w_up_value", "kf")
    queries = yield Part("query", query @ w_query, "query @ w_query", "qf")
    queries, keys, values = yield from in_heads(queries, keys, values, heads)
    query_place, place = split_heads(query_place, heads), split_heads(place, 1)
    names = f"position_query{f' in {heads} heads' if heads > 1 else ''}", "position_key"
    query_place, place = yield from turn_pairs(query_place, place, 10000.0, pairs, names)
    scores = yield Part("scores", queries @ transpose(keys), "query @ keyᵀ")
    formula = "turned_query @ turned_keyᵀ"
    more = yield Part("position_scores", query_place @ transpose(place), formula)
    size = queries.shape[-1] + place.shape[-1]
    scores = (scores + more) / size**0.5
    scores = yield Part("scaled_scores", scores, f"(scores + position_scores) / √{size}")
    yield from weigh_values(scores, values, mask)


def _normalise(xp: Array, vectors: Array) -> Array:
    """Vectors whose mean square is 1 (RMSNorm)."""
    return vectors / (xp.mean(vectors * vectors, axis=-1, keepdims=True) + 1e-6) ** 0.5
