"""Induction and duplicate-token heads, measured on a repeated text (Elhage 2021, Olsson 2022).

In a random list of L words that comes twice, only copying predicts the second half. The token at
position i also stands at i − L; an induction head attends to the token after that, i − L + 1.
"""

from __future__ import annotations

import random

import numpy as np

from attnviz.analyses.masks import MeasuredMap, within_one_text
from attnviz.core.attention_map import Token
from attnviz.core.measures import HeadMeasure
from attnviz.core.tokens import text_places

_WORDS = (
    "apple arm baby bag ball bank bed bird blue boat book bottle box bread bridge brother cake car "
    "cat chair cheese child city coat coffee cold cow cup day dog door dream ear egg eye face farm "
    "fire fish flower foot friend garden girl glass green hand hat head horse house ice key king "
    "knife lake letter light milk money moon mother mouth music name night nose paper park pen "
    "queen rain red ring river road room salt school sea ship shoe sky snow song star stone street "
    "sugar summer sun table tea time town train tree water wind window winter woman wood world"
)
WORDS = tuple(_WORDS.split())
"""Short common words: most tokenizers have one token for each."""


def repeated_words(count: int = 24, seed: int = 0) -> str:
    """Different words in random order, twice."""
    words = " ".join(random.Random(seed).sample(WORDS, count))
    return f"{words} {words}"


SHORTEST = 4
"""Fewest repeated tokens."""


def induction(subject: MeasuredMap) -> HeadMeasure | None:
    """On a repeated sequence, share that goes to the token after the earlier copy.

    Mean of A[i, i − L + 1] over the second copy. That diagonal also crosses the last token of the
    first copy, which has nothing to repeat yet.
    """
    return _copying(subject, "induction", 1, "the token after the earlier copy")


def duplicate(subject: MeasuredMap) -> HeadMeasure | None:
    """On a repeated sequence, share that goes to the earlier copy of the token.

    Mean of A[i, i − L] over the second copy.
    """
    return _copying(subject, "duplicate", 0, "the earlier copy of the token")


def repetition(tokens: tuple[Token, ...]) -> tuple[list[int], list[int]]:
    """Positions at the end of a text that repeat the tokens before them, and those positions.

    Special tokens do not count.
    """
    places = text_places(tokens)
    texts = [tokens[place].text for place in places]
    best, period = 0, 0
    for shift in range(SHORTEST, len(texts) // 2 + 1):
        run = 0
        while run < shift and texts[-1 - run] == texts[-1 - run - shift]:
            run += 1
        if run > best:
            best, period = run, shift
    # The first token of the text has no space before it, so its pieces may differ in the second
    # copy.
    if best < max(SHORTEST, period - 1):
        return [], []
    second = range(len(places) - best, len(places))
    return [places[at] for at in second], [places[at - period] for at in second]


def _copying(subject: MeasuredMap, name: str, step: int, what: str) -> HeadMeasure | None:
    if not within_one_text(subject.item):
        return None
    tokens = subject.item.query_tokens
    later, earlier = repetition(tokens)
    targets = np.zeros((len(tokens), len(tokens)), dtype=bool)
    targets[later, np.array(earlier, dtype=int) + step] = True
    return subject.share_on(name, targets, (f"never {what}", f"only {what}"))
