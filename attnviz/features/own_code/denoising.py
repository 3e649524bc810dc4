"""Text written by denoising: LLaDA's schedule with low-confidence remasking (Nie et al. 2025).

All tokens to write begin as mask tokens. At each step the model reads the whole text, predicts
every masked token, and keeps those that it is surest of; the others stay masked (section 2.4 and
algorithm 5 of arXiv:2502.09992, at temperature 0 and in one block).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from attnviz.core.attention_map import Token
from attnviz.core.records import dataclass, replace

MOST_STEPS = 32  # more tokens are written several at a step


@dataclass(frozen=True, slots=True)
class Step:
    """A step: the ids that the model read, and by place the id that it wrote there."""

    read: tuple[int, ...]
    written: dict[int, int]

    @property
    def after(self) -> list[int]:
        """The ids after it."""
        return [self.written.get(place, one) for place, one in enumerate(self.read)]


def counts_of(tokens: int, steps: int) -> list[int]:
    """How many tokens each step writes: equally many, and the first ones one more."""
    return [tokens // steps + (step < tokens % steps) for step in range(steps)]


def denoise(
    logits_of: Callable[[list[int], int], Any],
    prompt: Sequence[int],
    tokens: int,
    mask: int,
    *,
    one_before: bool = False,
) -> list[Step]:
    """The steps in which a model writes so many tokens behind a prompt.

    Args:
        logits_of: of ids and the number of a step, from 0, the scores (ids, vocabulary).
        mask: the mask token, which is never written.
        one_before: whether a token is predicted at the place before it, as in models that were
            made of causal ones (Dream).
    """
    import torch

    ids, steps = [*prompt, *[mask] * tokens], list[Step]()
    open_places = list(range(len(prompt), len(ids)))
    for number, count in enumerate(counts_of(tokens, min(tokens, MOST_STEPS))):
        logits = logits_of(ids, number).double()
        if one_before:
            logits = torch.cat([logits[:1], logits[:-1]])
        shares = torch.softmax(logits[open_places], -1)
        shares[:, mask] = -1
        surest, best = shares.max(-1)
        order = torch.argsort(surest, descending=True, stable=True)[:count].tolist()
        new = {open_places[at]: int(best[at]) for at in order}
        steps.append(Step(tuple(ids), new))
        ids = steps[-1].after
        open_places = [place for place in open_places if place not in new]
    return steps


def chosen_steps(steps: int, most: int) -> list[int]:
    """At most so many steps, spread from the first to the last."""
    return sorted(
        {*np.linspace(0, steps - 1, min(steps, max(most, 2))).round().astype(int).tolist()}
    )


def tokens_at(step: Step, tokens: Sequence[Token], mask: tuple[int, str]) -> tuple[Token, ...]:
    """The tokens that a step reads: of a text that is whole in the end, some masked.

    A masked token covers no characters. Where this step writes, its label is what it writes.
    """
    number, name = mask

    def is_open(place: int) -> bool:
        own = tokens[place].piece
        return step.read[place] == number and (own is None or own[0] != number)

    return tuple(
        replace(
            token,
            text=name,
            end=token.start,
            special=False,
            piece=mask,
            label=tokens[place].text if place in step.written else None,
        )
        if is_open(place)
        else token
        for place, token in enumerate(tokens)
    )
