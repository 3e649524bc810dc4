"""What a study of heads keeps of its texts: how many they are, the first, and all notes."""

from dataclasses import replace

from attnviz.analyses.view import describe_run
from attnviz.core.attention_map import Attention, Provenance
from attnviz.core.notices import merge_notices


class TextStudy:
    """Texts read one after another; each counts the same."""

    def __init__(self) -> None:
        self.texts = 0
        self.first: Attention | None = None
        self.notes: tuple[str, ...] = ()

    def count(self, attention: Attention) -> None:
        self.first = self.first or attention
        self.texts += 1
        self.notes = merge_notices((*self.notes, *attention.provenance.notes))

    @property
    def example(self) -> Attention:
        """The first text, whose run, streams and heads are those of all."""
        assert self.first is not None
        return self.first

    @property
    def provenance(self) -> Provenance:
        return replace(self.example.provenance, notes=self.notes)

    def caption(self, others: str = "") -> str:
        """The run, and how many texts the report averages; `others` stands between."""
        many = f" · mean over {self.texts} texts" if self.texts > 1 else ""
        return describe_run(self.example, self.example.main) + others + many
