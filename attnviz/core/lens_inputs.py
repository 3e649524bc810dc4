"""What lenses need beyond weights, as arrays: gradients, and the vectors that weights add up."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.core.attention_map import Attention, Token, check_finite
from attnviz.core.errors import UsageError, in_words, is_number

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnviz.core.effects import Experiment

BLOCK = 256
"""Keys whose vectors exist at once: all of them would take heads × keys × size numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class AttentionGradients:
    """One output of a model, and how it changes with each attention weight.

    Attributes:
        attention: the raw maps of every layer.
        gradients: for each map ∂output/∂weight, of the shape of its weights.
        positions: queries of the main map that the output is read from, one or more.
        output: what the output is called: a class, or the token predicted.
        probability: the model's own, where its outputs are scores of a choice.
        experiment: what the gradients were taken of, to be run with links cut; None: a score.
    """

    attention: Attention
    gradients: tuple[NDArray[np.floating[Any]], ...]
    positions: tuple[int, ...]
    output: str
    probability: float | None = None
    experiment: Experiment | None = None

    def __post_init__(self) -> None:
        for item, found in zip(self.attention.maps, self.gradients, strict=True):
            dtype = self.attention.provenance.dtype
            check_finite(found, item.stream, item.layers, item.heads, dtype, "the gradient")


@dataclass(frozen=True, slots=True, eq=False)
class ValueVectors:
    """What each head makes of each key before its weight scales it, fₕ(xⱼ), as inner products.

    Attributes:
        attention: the raw maps of every layer.
        products: for each map ⟨fₕ(xⱼ), f₉(xⱼ)⟩ for heads h and g, float64 of shape (layers, keys,
            heads, heads).
        projected: True where f includes the output projection W_O; False where it is not known and
            f is a head's value alone, which makes products of two different heads 0.
    """

    attention: Attention
    products: tuple[NDArray[np.float64], ...]
    projected: bool

    def __post_init__(self) -> None:
        for item, found in zip(self.attention.maps, self.products, strict=True):
            of_heads, dtype = found.swapaxes(1, 2), self.attention.provenance.dtype
            check_finite(of_heads, item.stream, item.layers, item.heads, dtype, "the value vector")


def inner_products(
    value: NDArray[np.floating[Any]], projection: NDArray[np.floating[Any]] | None
) -> NDArray[np.float64]:
    """⟨fₕ(xⱼ), f₉(xⱼ)⟩ of one layer, with fₕ(xⱼ) = vₕⱼ W_Oₕ; shape (keys, heads, heads).

    Values with their bias have the shape (heads, keys, head size), W_O that of (heads × head size,
    size). Without W_O heads are set side by side as they are, so that products of two different
    heads are 0.
    """
    heads, keys, head_size = value.shape
    if projection is None:
        squares = (value.astype(np.float64) ** 2).sum(axis=-1).T
        return np.asarray(squares[:, :, None] * np.eye(heads))
    slices = projection.astype(np.float64).reshape(heads, head_size, -1)
    found = np.empty((keys, heads, heads))
    for start in range(0, keys, BLOCK):
        block = slice(start, start + BLOCK)
        made = (value[:, block] @ slices).swapaxes(0, 1)
        found[block] = made @ made.swapaxes(1, 2)
    return found


NEXT = "next:"
"""What stands before a word that is explained as the token to come, whatever the text holds."""
_NUMBERED = re.compile(r"(.+)\[(\d{1,9})\]", re.DOTALL)


def find_token(tokens: Sequence[Token], wanted: str, first: int = 0, also: str = "") -> int | None:
    """A token by its text, its text and position ("red[3]") or its position; None: there is none.

    `first` is 1 for a model that predicts the next token: it does not predict the first one it
    reads, but one after the last. `also` is how to name what else may be meant by the word.

    Raises:
        UsageError: several things may be meant.
    """
    places = [
        place
        for place, token in enumerate(tokens)
        if wanted in (token.text, token.text.removeprefix("##")) and place >= first
    ]
    if len(places) + bool(places and also) > 1:
        stands = f"stands {len(places)} times" if len(places) > 1 else "stands"
        names = [f"{wanted}[{place}]" for place in places] + [also] * bool(also)
        more = ", and something else may be meant by it" if also else ""
        more = ", and it may be what comes next" if also.startswith(NEXT) else more
        raise UsageError(
            f"--target '{wanted}' {stands} in the text{more}: write "
            + in_words(f"--target '{name}'" for name in names)
        )
    if places:
        return places[0]
    numbered = _NUMBERED.fullmatch(wanted)
    if numbered and find_token(tokens[int(numbered[2]) :][:1], numbered[1]) is not None:
        return int(numbered[2]) if int(numbered[2]) >= first else None
    if is_number(wanted) and first <= int(wanted) < len(tokens) + first:
        return int(wanted)
    return None


def place_to_explain(
    tokens: Sequence[Token],
    wanted: str,
    first: int,
    number_of: Callable[[str], int | None],
    open_place: tuple[str, int],
) -> tuple[int, int | None] | None:
    """Where a model's prediction is wanted, and of what piece of its vocabulary; None: nowhere.

    A piece of None is the token that stands there, or else the likeliest. `number_of` answers which
    piece a word is, if it is one. The open place is what a word that the text does not hold is
    explained at, with what names it: ("next:", 7); "" where a word of the text can only be that.
    """
    name, end = open_place
    if name and wanted.startswith(name):
        word = wanted.removeprefix(name)
        number = number_of(word) if word else None
        return (end, number) if number is not None or not word else None
    number = None if is_number(wanted) else number_of(wanted)
    also = f"{name}{wanted}" if name and number is not None else ""
    found = find_token(tokens, wanted, first, also)
    if found is not None:
        return found, None
    return None if number is None else (end, number)


def last_word(tokens: Sequence[Token]) -> int:
    """The last token that stands for text, if it can be one with a letter or a digit in it."""
    plain = [place for place, token in enumerate(tokens) if not token.special]
    worded = [place for place in plain if any(map(str.isalnum, tokens[place].text))]
    return (worded or plain or [len(tokens) - 1])[-1]
