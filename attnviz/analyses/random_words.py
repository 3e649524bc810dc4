"""A random list of words written twice: nothing but copying can foretell its second half."""

from __future__ import annotations

import random

_WORDS = (
    "apple arm baby bag ball bank bed bird blue boat book bottle box bread bridge brother cake car "
    "cat chair cheese child city coat coffee cold cow cup day dog door dream ear egg eye face farm "
    "fire fish flower foot friend garden girl glass green hand hat head horse house ice key king "
    "knife lake letter light milk money moon mother mouth music name night nose paper park pen "
    "queen rain red ring river road room salt school sea ship shoe sky snow song star stone street "
    "sugar summer sun table tea time town train tree water wind window winter woman wood world"
)
WORDS = tuple(_WORDS.split())
"""Short common words, which most tokenizers keep whole."""


def repeated_words(count: int = 24, seed: int = 0) -> str:
    """Different words in random order, and the same again.

    Args:
        count: words in one copy.
        seed: of their choice and order.
    """
    words = " ".join(random.Random(seed).sample(WORDS, count))
    return f"{words} {words}"
