"""Many pairs whose words are to be aligned, window by window like any other texts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from attnviz.announce import announce
from attnviz.errors import AttnvizError
from attnviz.many_texts import Record, Window, opened
from attnviz.request import Origin
from attnviz.texts import BadText, Text
from attnviz.word_alignment import Aligned, Aligner

OTHER = {"en": "fr", "fr": "en"}
"""The language that a translation into one comes from."""


@dataclass(frozen=True, slots=True)
class AlignWindow:
    """Work on one window of pairs whose words are to be aligned, likewise.

    Attributes:
        origin: where attention comes from.
        layer: layers to read; None: the one in focus, else all.
        head: heads to read, likewise.
        how: how two directions are joined; None: as the model is made for.
        against: what a decoder's row stands for: "input" or "output".
        batch_size: pairs that a model reads at once at most; None: as many as fit.
    """

    origin: Origin
    layer: str | None = None
    head: str | None = None
    how: str | None = None
    against: str = "input"
    batch_size: int | None = None

    def __call__(self, window: Window) -> list[Aligned | AttnvizError]:
        """What becomes of each record.

        Raises:
            AttnvizError: what would fail for every pair.
        """
        source = opened(self.origin, "cross")
        other = OTHER.get(self.origin.to or "")
        backward = opened(replace(self.origin, to=other), "cross") if other else source
        aligner = Aligner(source, backward, self.how, self.against, self.layer, self.head)
        pairs = [record for record in window if isinstance(record, Text)]
        aligned = aligner.align(pairs, self.batch_size)
        found = [_placed(r, r.error if isinstance(r, BadText) else next(aligned)) for r in window]
        for text in aligner.notes:
            announce(text)
        return found


def _placed(record: Record, found: Aligned | AttnvizError) -> Aligned | AttnvizError:
    """What became of a record; an error says whose it is."""
    if isinstance(found, Aligned) or isinstance(record, BadText) or not record.where:
        return found
    return type(found)(f"{record.where}: {found}")
