"""Small maps with known numbers, for pages."""

from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import (
    Attention,
    AttentionMap,
    Focus,
    Projections,
    Provenance,
    Token,
)
from attnviz.core.measures import HeadMeasure
from attnviz.renderers.page import page

HOSTILE = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(2)>",
    "\"'`${alert(3)}",
    "<!--",
    "line\u2028and\u2029paragraph",
    "\u202eright to left\u202c",
    "\x1b[31mred",
    "\ud800",
    " ",
    "猫",
    "القطة",
    "👩‍👩‍👧",
    "x" * 10_000,
)


def softmax_rows(*shape: int, seed: int = 0, spread: float = 2.0) -> NDArray[np.float32]:
    """Rows that sum to 1, some sharp and some flat."""
    scores = np.random.default_rng(seed).normal(size=shape) * spread
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return (powers / powers.sum(axis=-1, keepdims=True)).astype(np.float32)


def placed(pieces: list[str]) -> tuple[tuple[Token, ...], str]:
    """Tokens with their places; a piece that starts with ## continues the word before it."""
    tokens, text = [], ""
    for piece in pieces:
        if piece.startswith("["):
            tokens.append(Token(piece, special=True))
            continue
        word = piece.removeprefix("##")
        text += " " if text and not piece.startswith("##") else ""
        tokens.append(Token(piece, len(text), len(text) + len(word)))
        text += word
    return tuple(tokens), text


def encoder(layers: int = 2, heads: int = 3) -> Attention:
    """A text with specials and a word in two pieces; layer 1 head 2 in focus."""
    tokens, text = placed(["[CLS]", "the", "profes", "##sor", "read", "it", "[SEP]"])
    item = AttentionMap("encoder", tokens, tokens, softmax_rows(layers, heads, 7, 7))
    focus = {"encoder": Focus(str(layers - 1), str(heads - 1), "the sharpest")}
    provenance = Provenance("file", "sample", True, notes=("made up",))
    return Attention((item,), provenance, text, focus=focus)


WORDS = (None, 0, 1, 1, 2, 3, None)
"""Which word each token of `encoder` belongs to."""


def previous_token(attention: Attention) -> HeadMeasure:
    """Mean share on the token before, and nothing known of the first head."""
    values = np.diagonal(attention.weights, -1, 2, 3).mean(axis=-1, dtype=np.float64)
    values[0, 0] = np.nan
    return HeadMeasure("previous-token", "share", "never", "always", values)


def encoder_page(**options: Any) -> str:
    """The page of `encoder` with words and a measure."""
    attention = encoder()
    return page(
        attention, measures={0: [previous_token(attention)]}, words={0: (WORDS, WORDS)}, **options
    )


def pair() -> Attention:
    """A translation in three streams."""
    keys, source = placed(["the", "red", "car", "[end]"])
    queries, target = placed(["la", "voiture", "rouge", "[end]", "[end]"])
    maps = (
        AttentionMap(
            "cross",
            queries,
            keys,
            softmax_rows(2, 2, 5, 4, seed=1),
            query_side="target",
            key_side="source",
        ),
        AttentionMap(
            "encoder",
            keys,
            keys,
            softmax_rows(2, 2, 4, 4, seed=2),
            query_side="source",
            key_side="source",
        ),
        AttentionMap(
            "affinity",
            queries,
            keys,
            np.tanh(np.random.default_rng(3).normal(size=(1, 1, 5, 4))).astype(np.float32),
            values="signed",
            unit="affinity, from -1 to 1",
            query_side="target",
            key_side="source",
        ),
    )
    return Attention(maps, Provenance("file", "pair", None), source=source, target=target)


def hostile() -> Attention:
    """Tokens that would run, break or hide, if they were markup."""
    tokens = tuple(Token(text) for text in HOSTILE)
    count = len(tokens)
    item = AttentionMap("self", tokens, tokens, softmax_rows(1, 2, count, count))
    provenance = Provenance("file", HOSTILE[0], None, notes=(HOSTILE[1],))
    return Attention((item,), provenance, " ".join(HOSTILE[:4]), id=HOSTILE[2])


def random_map(layers: int, heads: int, tokens: int) -> Attention:
    """Even random rows: what packs worst."""
    weights = np.random.default_rng(0).random((layers, heads, tokens, tokens), dtype=np.float32)
    weights /= weights.sum(axis=-1, keepdims=True)
    words = tuple(Token(f"word{place}") for place in range(tokens))
    item = AttentionMap("encoder", words, words, weights)
    return Attention((item,), Provenance("file", "random"))


def with_projections() -> tuple[Attention, Projections]:
    """Weights that are the softmax of queries times keys."""
    random = np.random.default_rng(4)
    query, key = random.normal(size=(2, 1, 2, 4, 8)).astype(np.float32)
    scores = np.einsum("lhqd,lhkd->lhqk", query, key) / np.sqrt(8)
    powers = np.exp(scores)
    weights = powers / powers.sum(axis=-1, keepdims=True)
    tokens, text = placed(["red", "green", "blue", "white"])
    item = AttentionMap("encoder", tokens, tokens, weights.astype(np.float32))
    kept = Projections(query, key, 8**-0.5, item.layers, item.heads)
    return Attention((item,), Provenance("file", "kept"), text), kept


def picture() -> tuple[Attention, bytes]:
    """Four patches behind one special token."""
    from matplotlib.image import imsave

    file = BytesIO()
    imsave(file, np.random.default_rng(0).random((32, 32, 3)), format="png")
    tokens = (Token("[CLS]", special=True), *(Token(f"patch {n}") for n in range(4)))
    item = AttentionMap(
        "encoder",
        tokens,
        tokens,
        softmax_rows(1, 2, 5, 5, seed=5),
        query_side="image",
        key_side="image",
    )
    return Attention((item,), Provenance("file", "vision")), file.getvalue()
