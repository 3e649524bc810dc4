"""Attention of made-up texts, for the tests of what is kept of a corpus."""

import numpy as np

from attnviz.core.attention_map import Attention, AttentionMap, Provenance, Token

WORDS = ("the", "cat", "sat", "on", "a", "mat", "dog", "and")


def text_of(number: int) -> str:
    """A sentence of three to eight words."""
    generator = np.random.default_rng([1, number])
    return " ".join(generator.choice(WORDS, size=generator.integers(3, 9))) + "."


def tokens_of(text: str) -> tuple[Token, ...]:
    """[CLS], the words, the full stop."""
    found = [Token("[CLS]", special=True)]
    place = 0
    for word in text[:-1].split():
        place = text.index(word, place)
        found.append(Token(word, place, place + len(word)))
        place += len(word)
    return (*found, Token(".", len(text) - 1, len(text)))


def attention_of(number: int, *, layers: int = 2, heads: int = 2) -> Attention:
    """A softmax over random scores."""
    text = text_of(number)
    tokens = tokens_of(text)
    shape = (layers, heads, len(tokens), len(tokens))
    scores = np.random.default_rng([2, number]).normal(scale=2, size=shape)
    weights = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    item = AttentionMap("self", tokens, tokens, weights.astype(np.float32))
    return Attention((item,), Provenance("file", "made up"), text=text, id=f"line-{number}")
