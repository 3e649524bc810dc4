"""Labels of a person's or a model's making on the tokens of a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from attnviz.attention_map import Attention, Token, check_single_tokens
from attnviz.errors import InputError


def label_tokens(attention: Attention, labels: Sequence[str]) -> Attention:
    """The attention with a label on each token that stands for text; "O" stays without.

    Labels follow the words of the text: a word in several pieces needs one label only, which all
    its pieces carry.

    Of a pair, the main map's queries are labelled, or its keys where no query stands for text.

    Raises:
        InputError: neither as many labels as tokens nor as many as words.
    """
    main = attention.main
    check_single_tokens(main, "labelling")
    side, tokens = main.query_side, main.query_tokens
    if all(token.special for token in tokens):
        side, tokens = main.key_side, main.key_tokens
    text = {"source": attention.source, "target": attention.target}.get(side, attention.text)
    labelled = _label(tokens, labels, text or "")
    maps = tuple(
        replace(
            item,
            query_tokens=labelled if item.query_side == side else item.query_tokens,
            key_tokens=labelled if item.key_side == side else item.key_tokens,
        )
        for item in attention.maps
    )
    return replace(attention, maps=maps)


def _label(tokens: Sequence[Token], labels: Sequence[str], text: str) -> tuple[Token, ...]:
    plain = [place for place, token in enumerate(tokens) if not token.special]
    words = _word_numbers([tokens[place] for place in plain], text) if text else []
    if len(labels) == len(plain):
        words = list(range(len(plain)))
    elif not words or len(labels) != words[-1] + 1:
        raise InputError(
            f"{len(labels)} labels for {len(plain)} tokens: "
            + " ".join(tokens[place].text for place in plain)[:200]
        )
    labelled = list(tokens)
    for place, word in zip(plain, words, strict=True):
        label = labels[word]
        labelled[place] = replace(tokens[place], label=None if label == "O" else label)
    return tuple(labelled)


def _word_numbers(tokens: Sequence[Token], text: str) -> list[int]:
    """The number of the space-separated word that each token lies in."""
    numbers: list[int] = []
    for token in tokens:
        inside = text[: token.start + 1] if token.start < len(text) else text
        numbers.append(max(len(inside.split()) - 1, 0))
    return numbers
