"""Attention of every kind, and texts that are hard on whatever shows them."""

import re
import string
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from numpy.typing import NDArray

from attnviz.core.attention_map import (
    LINK_LISTS,
    Attention,
    AttentionMap,
    Focus,
    Link,
    MeasuredLink,
    Provenance,
    Token,
)
from attnviz.core.effects import HeadAt
from attnviz.core.writers import AskedLogits

checked = settings(deadline=None, derandomize=True, max_examples=40)
few = settings(deadline=None, derandomize=True, max_examples=15)

ODD = (
    "\x1b[31m", "\x1b]0;title\x07", "\u202e", "\u2066", "\u200f", "\u061c", "\u200b", "\x00",
    "\x07", "\x85", "\x9b1m", "[bold]", "[/]", "\\[x]", "\t", "\r", "\n", "\u2028", "\ufeff", "é",
    "你好", "مرحبا", "👩\u200d👩\u200d👧", "🇫🇷", "❤\ufe0f", "e\u0301\u0302", '"', "'", ",", ";",
    "\\", "\\n", "=1+1", "–",
)  # fmt: skip

RAW = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\u200b]"
)
"""What must never reach a terminal as it is; line breaks and tabs are the formats' own."""

odd_words = st.one_of(
    st.sampled_from(ODD),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6),
    st.text(string.ascii_letters, min_size=1, max_size=20),
)
odd_texts = (
    st.lists(odd_words, min_size=1, max_size=5)
    .map(" ".join)
    .filter(lambda text: text.strip() and not text.startswith("-"))  # "-" is stdin
)


SPECIAL = Token("<s>", special=True)


def weights_of(shape: tuple[int, int, int, int], seed: int = 0, signed: bool = False) -> np.ndarray:
    """Random weights whose rows sum to 1, or random numbers around 0."""
    drawn = np.random.default_rng(seed).standard_normal(shape)
    if signed:
        return np.tanh(drawn).astype(np.float32)
    raised = np.exp(2 * drawn)
    shares: np.ndarray = raised / raised.sum(axis=-1, keepdims=True)
    return shares.astype(np.float32)


def self_map(
    words: list[str], layers: int = 1, heads: int = 1, seed: int = 0, signed: bool = False
) -> AttentionMap:
    """A map of words over themselves."""
    tokens = tuple(Token(word) for word in words)
    weights = weights_of((layers, heads, len(words), len(words)), seed, signed)
    return AttentionMap("self", tokens, tokens, weights, values="signed" if signed else "share")


def attention_of(*maps: AttentionMap, text: str | None = None, **facts: object) -> Attention:
    """Those maps as one text's attention."""
    focus: Mapping[str, Focus] = facts.pop("focus", {})  # type: ignore[assignment]
    provenance = Provenance("file", "sample", **facts)  # type: ignore[arg-type]
    return Attention(maps, provenance, text=text, focus=focus)


def effects_map() -> AttentionMap:
    """Effects of a causal text in 2 layers of 3 heads, whose first cell has no value anywhere."""
    item = replace(self_map(["<s>", "the", "cat", "sat"], 2, 3, signed=True), stream="causal")
    weights = np.tril(item.weights)
    weights[:, :, 0, 0] = np.nan
    weights[0, 0, 1, 0] = np.nan
    return item.with_weights(weights, unit="nats", query_tokens=(SPECIAL, *item.query_tokens[1:]),
                             key_tokens=(SPECIAL, *item.key_tokens[1:]))  # fmt: skip


def effects() -> Attention:
    """That map as --lens effect leaves it, with links whose effects were told."""
    links = [Link("sat", "cat", 0.9, "0", "1", 3, 2), Link("cat", "<s>", 0.05, "1", "2", 2, 0)]
    pairs = zip(links, (0.5, None), strict=True)
    told = [MeasuredLink("causal", link, 0.25, measured) for link, measured in pairs]
    found = attention_of(effects_map(), text="the cat sat", steps=("lens effect",))
    return replace(
        found, measured=(told[0],), idle=(told[0],), decisive=(told[1],), lens_name="effect"
    )


@st.composite
def tokens(draw: st.DrawFn, count: int) -> tuple[Token, ...]:
    """Tokens with odd texts, places, marks and labels."""
    return tuple(
        Token(
            draw(odd_words),
            start := draw(st.integers(0, 50)),
            start + draw(st.integers(0, 9)),
            draw(st.booleans()),
            draw(st.none() | st.sampled_from(("B-PER", "X", "\u202e"))),
        )
        for _ in range(count)
    )


@st.composite
def maps(draw: st.DrawFn, stream: str) -> AttentionMap:
    """A map of any small shape, with its layers and heads under any name."""
    shape = tuple(draw(st.integers(1, 4)) for _ in range(4))
    signed = draw(st.booleans())
    names = st.sampled_from(("0", "7", "mean", "max", "\u202e"))
    return AttentionMap(
        stream,
        draw(tokens(shape[2])),
        draw(tokens(shape[3])),
        weights_of(shape, draw(st.integers(0, 99)), signed),  # type: ignore[arg-type]
        layers=tuple(draw(names) for _ in range(shape[0])),
        heads=tuple(draw(names) for _ in range(shape[1])),
        values="signed" if signed else "share",
        unit=draw(st.sampled_from(("share of a row's attention", "affinity", "é"))),
        query_side=draw(st.sampled_from(("text", "source", "target", "summary"))),
        key_side=draw(st.sampled_from(("text", "source", "target"))),
    )


@st.composite
def attentions(draw: st.DrawFn) -> Attention:
    """One text's attention with everything that may travel with it."""
    streams = draw(st.lists(st.sampled_from(("self", "cross", "a/b", "é")), min_size=1, max_size=3))
    small = st.none() | odd_texts
    return Attention(
        tuple(draw(maps(stream)) for stream in streams),
        Provenance(
            draw(st.sampled_from(("file", "own layer"))),
            draw(odd_words),
            draw(st.none() | st.booleans()),
            settings=draw(
                st.dictionaries(st.text("ab", min_size=1), st.integers(0, 9) | odd_words)
            ),
            steps=tuple(draw(st.lists(odd_words, max_size=2))),
            notes=tuple(draw(st.lists(odd_words, max_size=2))),
            versions={"numpy": "2"},
        ),
        focus=draw(st.sampled_from(({}, {"self": Focus("0", "0", "it is named")}))),
        text=draw(small),
        source=draw(small),
        target=draw(small),
        id=draw(odd_words),
    )


def same(one: Attention, other: Attention) -> bool:
    """True where nothing at all differs, to the last bit of a weight."""
    facts = ("provenance", "focus", "text", "source", "target", "id", *LINK_LISTS)
    return (
        len(one.maps) == len(other.maps)
        and all(same_map(*pair) for pair in zip(one.maps, other.maps, strict=True))
        and all(getattr(one, name) == getattr(other, name) for name in facts)
    )


def same_map(one: AttentionMap, other: AttentionMap) -> bool:
    """True where neither weights nor anything about them differs."""
    facts = set(AttentionMap.__dataclass_fields__) - {"weights"}
    return (
        one.weights.dtype == other.weights.dtype == np.float32
        and one.weights.tobytes() == other.weights.tobytes()
        and all(getattr(one, name) == getattr(other, name) for name in facts)
    )


def notes_of(figure: Figure) -> tuple[str, ...]:
    """The notes at a figure's foot, each on one line."""
    return tuple(
        text.get_text().replace("\n", " ") for text in figure.texts if text.get_gid() == "note"
    )


@dataclass
class FlatText:
    """A written text in which every value, and every head's slope, is 1."""

    attention: Attention

    def sides(self, at: HeadAt) -> SimpleNamespace:
        keys = len(self.attention.map_of(at.stream).key_tokens)
        return SimpleNamespace(value=np.ones((keys, 1)))

    def slopes(self, row: int, choice: int) -> dict[tuple[str, str], NDArray[np.float64]]:
        return {
            (item.stream, layer): np.ones((len(item.heads), 1))
            for item in self.attention.maps
            for layer in item.layers
        }

    def logits(self, row: int) -> NDArray[np.float64]:
        return np.array([0.0, 2.0])

    def logit_parts(self, row: int, choice: int) -> NDArray[np.float64]:
        return np.array([1.0])

    def spell(self, choice: int) -> str:
        return "ab"[choice]


def asked_logits(attention: Attention) -> AskedLogits:
    """What the lens of logits is given: the second choice, from the second row."""
    return AskedLogits(attention, FlatText(attention), {1: 1})  # type: ignore[arg-type]
