"""Attention by dot products: without and with scaling, causal, in one head or several.

Heads may share keys and values: in groups, all of them, or through one small latent vector.
"""

from attnviz.mechanisms.arrays import Array, Dropout, Mask, namespace, transpose
from attnviz.mechanisms.formula import (
    Calculation,
    Formula,
    Part,
    combine_masks,
    in_heads,
    weigh_keys,
    weigh_values,
)
from attnviz.mechanisms.formula import join_heads as join_heads
from attnviz.mechanisms.formula import scaled_scores as scaled_scores
from attnviz.mechanisms.formula import size_of_head as size_of_head
from attnviz.mechanisms.formula import split_heads as split_heads
from attnviz.mechanisms.relative import Pairs, turn_pairs


@Formula
def scaled(
    query: Array, key: Array, value: Array, mask: Mask = None, *, dropout: Dropout | None = None
) -> Calculation:
    """Scaled dot-product attention: scores divided by the root of the head size.

    See Vaswani 2017, section 3.2.1.

    Args:
        query: shape (…, queries, head size).
        key: shape (…, keys, head size).
        value: shape (…, keys, value size).
        mask: where a query may look; None: everywhere.
        dropout: applied to the weights before they meet the values; None: nothing is dropped.

    Returns:
        output (…, queries, value size) and weights (…, queries, keys); rows sum to 1.
    """
    scores = yield from scaled_scores(query, key)
    weights = yield from weigh_keys(scores, mask, "scaled_scores", dropout)
    yield Part("output", weights @ value, "weights @ value", "qf")


@Formula
def naive(
    query: Array, key: Array | None = None, value: Array | None = None, mask: Mask = None
) -> Calculation:
    """Attention of the inputs over themselves, without projections or scaling.

    softmax(X Xᵀ) X: the "dot" score of Luong 2015 over the inputs as they are.

    Args:
        query: inputs, shape (…, queries, size).
        key: inputs to look at, shape (…, keys, size); None: the queries themselves.
        value: what is mixed, shape (…, keys, size); None: the keys.
        mask: where a query may look; None: everywhere.

    Returns:
        output (…, queries, size) and weights (…, queries, keys); rows sum to 1.
    """
    key = query if key is None else key
    yield from single_head.calculation(query, key, key if value is None else value, mask)


@Formula
def single_head(
    query: Array, key: Array, value: Array, mask: Mask = None, *, dropout: Dropout | None = None
) -> Calculation:
    """Attention of one head over projected inputs, without scaling.

    See Luong 2015, section 3.1, the "dot" score. The shapes are those of `scaled`.
    """
    scores = yield Part("scores", query @ transpose(key), "query @ keyᵀ")
    weights = yield from weigh_keys(scores, mask, "scores", dropout)
    yield Part("output", weights @ value, "weights @ value", "qf")


LOWER = "1 where key position ≤ query position"


def causal_mask(scores_like: Array, queries: int, keys: int) -> Array:
    """True on and below the diagonal, shape (queries, keys), in the given array's kind.

    With more keys than queries the queries are the last positions, as in a model that continues
    from a cache: the last query sees every key.
    """
    xp = namespace(scores_like)
    device = {} if xp.__name__ == "numpy" else {"device": scores_like.device}
    return xp.tril(xp.ones((queries, keys), dtype=xp.bool, **device), k=keys - queries)


@Formula
def causal(
    query: Array, key: Array, value: Array, mask: Mask = None, *, dropout: Dropout | None = None
) -> Calculation:
    """Scaled dot-product attention in which no position sees a later one.

    See Vaswani 2017, section 3.2.3, masking in the decoder. The shapes are those of `scaled`; a
    mask comes on top of the causal one. Weights above the diagonal are 0.
    """
    triangle = causal_mask(query, query.shape[-2], key.shape[-2])
    addition = "" if mask is None else ", and as given"
    formula = f"{LOWER}{addition}"
    mask = yield Part("mask", combine_masks(mask, triangle), formula)
    yield from scaled.calculation(query, key, value, mask, dropout=dropout)


@Formula
def multi_head(
    query: Array,
    key: Array,
    value: Array,
    mask: Mask = None,
    *,
    heads: int,
    dropout: Dropout | None = None,
) -> Calculation:
    """Scaled dot-product attention in several heads at once, joined again.

    Each head sees its own slice of the features; scores are divided by the root of the head's size,
    not of the whole (Vaswani 2017, section 3.2.2). Projections before and after are the caller's.

    Args:
        query: shape (…, queries, size).
        key: shape (…, keys, size).
        value: shape (…, keys, value size).
        mask: boolean, broadcastable to (…, heads, queries, keys), True where a query may look.
        heads: how many; must divide both sizes.
        dropout: applied to the weights before they meet the values; None: nothing is dropped.

    Returns:
        output (…, queries, value size) and weights (…, heads, queries, keys); rows sum to 1.
    """
    query, key, value = yield from in_heads(query, key, value, heads)
    scores = yield from scaled_scores(query, key)
    yield from weigh_values(scores, value, mask, dropout=dropout)


@Formula
def cross(
    query: Array,
    key: Array,
    value: Array,
    mask: Mask = None,
    *,
    heads: int = 1,
    dropout: Dropout | None = None,
) -> Calculation:
    """Multi-head attention of one sequence's queries over another's keys and values.

    See Vaswani 2017, section 3.2.3, encoder–decoder attention. The shapes are those of
    `multi_head`; keys and values come from the sequence that is attended to.
    """
    yield from multi_head.calculation(query, key, value, mask, heads=heads, dropout=dropout)


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
        latents, of_value = (
            one / (xp.mean(one * one, axis=-1, keepdims=True) + 1e-6) ** 0.5 * latent_scale
            for one in (latents, of_value)
        )
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
