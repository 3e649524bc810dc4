"""Attention by dot products: without and with scaling, causal, in one head or several."""

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
    ones = xp.ones((queries, keys), dtype=xp.bool, **device)
    return xp.tril(ones, k=keys - queries)


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
