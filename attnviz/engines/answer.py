"""What comes back from a worker: an outcome or an error, and what was announced meanwhile."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic

from attnviz.announce import announce, heard_by
from attnviz.engines import Outcome, Shard
from attnviz.errors import AttnvizError


@dataclass(frozen=True, slots=True)
class Answer(Generic[Outcome]):
    """What the work made of a shard in another process.

    Attributes:
        heard: what it announced, in order.
        outcome: what it gave; None where it raised.
        error: what it raised.
    """

    heard: tuple[str, ...]
    outcome: Outcome | None = None
    error: Exception | None = None

    def taken(self) -> Outcome:
        """The outcome, after what was announced has been announced again here.

        Raises:
            Exception: what the work raised, of the same type and with the same message.
        """
        for text in self.heard:
            announce(text)
        if self.error is not None:
            raise self.error
        return self.outcome  # type: ignore[return-value]  # None only beside an error


def answer(work: Callable[[Shard], Outcome], shard: Shard) -> Answer[Outcome]:
    """Do the work in a worker; whatever goes wrong in it becomes a part of the answer."""
    heard: list[str] = []
    try:
        with heard_by(heard.append):
            outcome = work(shard)
    except Exception as error:
        return Answer(tuple(heard), error=portable(error))
    return Answer(tuple(heard), outcome)


def portable(error: Exception) -> Exception:
    """An error that pickles; one that nobody foresaw with its traceback as a note."""
    if not isinstance(error, AttnvizError):
        error.add_note(f"In a worker:\n{''.join(traceback.format_exception(error))}")
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        # Some errors cannot be made again from their message alone.
        stand_in = RuntimeError(f"{type(error).__name__}: {error}")
        for note in getattr(error, "__notes__", ()):
            stand_in.add_note(note)
        return stand_in
    return error
