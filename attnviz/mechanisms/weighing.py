"""Attention with another score, weight or output than a plain softmax of products."""

from math import log

from attnviz.core.errors import UsageError
from attnviz.mechanisms.arrays import Array, Mask, namespace, softmax, transpose
from attnviz.mechanisms.formula import (
    Calculation,
    Formula,
    Part,
    in_heads,
    join_outputs,
    logistic,
    scaled_scores,
    weigh_keys,
    weigh_values,
)


@Formula
def additive(
    query: Array, key: Array, value: Array, mask: Mask = None, *, w_score: Array, heads: int = 1
) -> Calculation:
    """Attention scored by a small network of the query plus the key, v · tanh(q + k).

    See Bahdanau 2015, appendix A.1.2, where the query is W_a s and the key U_a h. The arguments are
    those of `multi_head`, and `w_score`: the paper's v_a, shape (head size, 1), for all heads.

    Returns:
        output of shape (…, queries, value size) and weights of shape (…, heads, queries, keys),
        rows summing to 1.
    """
    query, key, value = yield from in_heads(query, key, value, heads)
    units = namespace(query).tanh(query[..., :, None, :] + key[..., None, :, :])
    units = yield Part("hidden", units, "tanh(row of query + key)", "qkf")
    scores = yield Part("scores", (units @ w_score)[..., 0], "hidden @ w_score")
    yield from weigh_values(scores, value, mask, "scores")


@Formula
def soft_cap(
    query: Array, key: Array, value: Array, mask: Mask = None, *, heads: int = 1, cap: float = 50.0
) -> Calculation:
    """Attention whose scores are bent to stay within a cap, cap · tanh(score / cap).

    See Riviere 2024 (Gemma 2), section 2, after Bello 2016. The arguments are those of
    `multi_head`, and the cap.

    Returns:
        output of shape (…, queries, value size) and weights of shape (…, heads, queries, keys),
        rows summing to 1.
    """
    query, key, value = yield from in_heads(query, key, value, heads)
    scores = yield from scaled_scores(query, key)
    scores = cap * namespace(query).tanh(scores / cap)
    formula = f"{cap:g} · tanh(scaled_scores / {cap:g})"
    scores = yield Part("capped_scores", scores, formula)
    yield from weigh_values(scores, value, mask, "capped_scores")


@Formula
def sinks(
    query: Array, key: Array, value: Array, mask: Mask = None, *, sink: Array, heads: int = 1
) -> Calculation:
    """Attention in which a learned sink takes its share of each row and puts nothing out.

    See Xiao 2023, section 3.3 (a sink of 0 is "SoftMax₁"), and OpenAI 2025 (gpt-oss), section 2.1.
    The arguments are those of `multi_head`, and `sink`: its score in each head, shape (heads,).

    Returns:
        output of shape (…, queries, value size) and weights of shape (…, heads, queries, keys),
        rows summing to less than 1.
    """
    xp = namespace(query)
    query, key, value = yield from in_heads(query, key, value, heads)
    scores = yield from scaled_scores(query, key)
    column = xp.broadcast_to(sink[:, None, None], (*scores.shape[:-1], 1))
    if mask is not None:
        mask = xp.broadcast_to(mask, scores.shape)
        mask = xp.concat([mask, xp.ones_like(mask[..., :1])], axis=-1)
    shares = softmax(xp.concat([scores, column], axis=-1), mask)
    condition = "" if mask is None else " where mask"
    formula = f"softmax(scaled_scores{condition}, and sink)"
    yield Part("sink_share", shares[..., -1:], f"{formula}, the sink's column", "qn")
    weights = yield Part("weights", shares[..., :-1], f"{formula}, without the sink")
    yield from join_outputs(weights @ value)


@Formula
def sigmoid(
    query: Array, key: Array, value: Array, mask: Mask = None, *, heads: int = 1
) -> Calculation:
    """Attention that weighs each key by itself, by a sigmoid instead of a softmax.

    See Ramapuram 2024, section 3: the bias −ln(keys) makes a row sum to about 1. The arguments are
    those of `multi_head`; keys that a query may not see do not count.

    Returns:
        output of shape (…, queries, value size) and weights of shape (…, heads, queries, keys),
        each from 0 to 1, rows summing to anything.
    """
    xp = namespace(query)
    query, key, value = yield from in_heads(query, key, value, heads)
    scores = yield from scaled_scores(query, key)
    if mask is None:
        formula, scores = f"scaled_scores − ln {key.shape[-2]}", scores - log(key.shape[-2])
    else:
        mask = xp.broadcast_to(mask, scores.shape)
        count = xp.astype(xp.sum(mask, axis=-1, keepdims=True), scores.dtype)
        scores = scores - xp.log(xp.where(count > 0, count, xp.ones_like(count)))
        formula = "scaled_scores − ln(keys that the row's mask shows, or 1)"
    scores = yield Part("biased_scores", scores, formula)
    weights, formula = logistic(scores), "sigmoid(biased_scores)"
    if mask is not None:
        weights, formula = xp.where(mask, weights, xp.zeros_like(weights)), f"{formula} where mask"
    weights = yield Part("weights", weights, formula)
    yield from join_outputs(weights @ value)


@Formula
def differential(
    query: Array,
    key: Array,
    value: Array,
    mask: Mask = None,
    *,
    balance: Array,
    heads: int = 1,
    start: float = 0.2,
) -> Calculation:
    """Attention as the difference of two softmaxes, so that what both see cancels out.

    See Ye 2024, equations 1 to 3. The first half of a head's features makes the first softmax, the
    second half the other. The arguments are those of `multi_head`, and `balance`, the paper's λ_q1,
    λ_k1, λ_q2 and λ_k2, shape (4, head size / 2): λ is exp(λ_q1 · λ_k1) − exp(λ_q2 · λ_k2) + start.
    The start is the paper's λ_init, 0.8 − 0.6 exp(−0.3 · layer), layers counted from 0.

    Returns:
        output of shape (…, queries, value size), each head's scaled to a mean square of 1 and by
        1 − start, and signed weights of shape (…, heads, queries, keys), rows summing to 1 − λ.
    """
    xp = namespace(query)
    query, key, value = yield from in_heads(query, key, value, heads)
    size = query.shape[-1]
    if size % 2:
        raise UsageError(f"differential attention halves its heads: {size} features are odd")
    softmaxes = []
    for name, part in (("first", slice(size // 2)), ("second", slice(size // 2, None))):
        scores = query[..., part] @ transpose(key[..., part]) / (size // 2) ** 0.5
        formula = f"the {name} half of query @ keyᵀ / √{size // 2}"
        scores = yield Part(f"{name}_scores", scores, formula)
        condition = "" if mask is None else " where mask"
        formula = f"softmax({name}_scores{condition})"
        softmaxes.append((yield Part(f"{name}_weights", softmax(scores, mask), formula)))
    products = xp.exp(xp.sum(balance[0::2] * balance[1::2], axis=-1))
    factor = (products[0] - products[1] + start)[None, None]
    formula = f"exp(balance's rows 0 · 1) − exp(rows 2 · 3) + {start:.3g}"
    factor = yield Part("lambda", factor, formula, "nn")
    formula = "first_weights − lambda · second_weights"
    weights = yield Part("weights", softmaxes[0] - factor * softmaxes[1], formula)
    output = yield Part("mixed", weights @ value, "weights @ value", "qf")
    square = xp.mean(output * output, axis=-1, keepdims=True)
    formula = f"mixed / √(its mean square + 10⁻⁵) · {1 - start:.3g}"
    yield from join_outputs(output / (square + 1e-5) ** 0.5 * (1 - start), formula)


@Formula
def gated(
    query: Array, key: Array, value: Array, mask: Mask = None, *, gate: Array, heads: int = 1
) -> Calculation:
    """Scaled dot-product attention whose output passes a gate that each query sets itself.

    See Qiu 2025, section 2.2 (as in Qwen3-Next). The shapes are those of `multi_head`, and
    `gate`: from 0 to 1, shape (…, queries, value size), sigmoid(X W) of the queries' inputs.
    """
    query, key, value = yield from in_heads(query, key, value, heads)
    scores = yield from scaled_scores(query, key)
    weights = yield from weigh_keys(scores, mask, "scaled_scores")
    output = yield from join_outputs(weights @ value, name="mixed")
    yield Part("output", output * gate, "mixed · gate", "qf")


@Formula
def online(
    query: Array, key: Array, value: Array, mask: Mask = None, *, heads: int = 1, tile: int = 2
) -> Calculation:
    """Scaled dot-product attention tile by tile, with a running maximum and sum of each row.

    See Milakov 2018, and Dao 2022 (FlashAttention), section 3.1: it holds only one tile of keys at
    a time and gives the result of the whole softmax. The shapes are those of `multi_head`; a
    `tile` is a number of keys.
    """
    xp = namespace(query)
    query, key, value = yield from in_heads(query, key, value, heads)
    scores = yield from scaled_scores(query, key)
    if mask is not None:
        scores = xp.where(mask, scores, -xp.inf)
    highest = xp.full_like(scores[..., :1], -xp.inf)
    total, output = 0 * query[..., :1], 0 * (query[..., :1] * value[..., :1, :])
    states: list[tuple[Array, Array, Array]] = []
    for first in range(0, scores.shape[-1], tile):
        part = scores[..., first : first + tile]
        higher = xp.maximum(highest, xp.max(part, axis=-1, keepdims=True))
        level = xp.where(higher > -xp.inf, higher, xp.zeros_like(higher))
        fade, shares = xp.exp(highest - level), xp.exp(part - level)
        total = total * fade + xp.sum(shares, axis=-1, keepdims=True)
        output = output * fade + shares @ value[..., first : first + tile, :]
        highest = higher
        states.append((level, total, output))
    tail = "" if mask is None else " where mask"
    maxima, totals, outputs = (list(column) for column in zip(*states, strict=True))
    formula = f"the largest of scaled_scores{tail} so far, {tile} keys a tile; 0 before any is seen"
    yield Part("running_maximum", xp.concat(maxima, axis=-1), formula, "qt")
    formula = f"Σ exp(scaled_scores{tail} − running_maximum)"
    formula = f"what it was · exp(−rise of running_maximum) + {formula}"
    yield Part("running_sum", xp.concat(totals, axis=-1), formula, "qt")
    formula = "as running_sum, with each exp(…) times value's row"
    yield Part("running_output", xp.stack(outputs, axis=-3), formula, "tqf")
    total = xp.where(total > 0, total, xp.ones_like(total))
    formula, empty = "the last running_sum", "" if mask is None else ", 0 where that is 0"
    weights = f"exp(scaled_scores{tail} − the last running_maximum) / {formula}{empty}"
    yield Part("weights", xp.exp(scores - maxima[-1]) / total, weights)
    yield from join_outputs(output / total, f"the last running_output / {formula}{empty}")
