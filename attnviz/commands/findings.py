"""The results of a Python function, and the report that collects them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

from attnviz.commands.arguments import in_evaluation
from attnviz.core.attention_map import Attention
from attnviz.core.errors import AttnvizError
from attnviz.core.notices import hold, notices_to
from attnviz.core.options import Choice, Options
from attnviz.core.registry import DataKind
from attnviz.renderers import Display
from attnviz.renderers.reports import Data, Item, formats_of
from attnviz.runs.outputs import Presentable
from attnviz.runs.pipeline import Result, as_result
from attnviz.runs.reporting import item_of
from attnviz.storage.texts import BadText, Text


class Findings(Presentable):
    """The results of a function, in every form in which the command line writes them.

    Attributes:
        notes: what a reader must know.
        errors: why records failed.
    """

    def __init__(self, command: str, kind: DataKind) -> None:
        self.command, self.kind = command, kind
        self.items: list[Item] = []
        self.notes: list[str] = []
        self.errors: list[AttnvizError] = []

    def _results(self) -> tuple[str, DataKind, Sequence[Item]]:
        return self.command, self.kind, self.items

    @property
    def value(self) -> Any:
        """The report with its fields; a list where there are several."""
        values = [item.data.value if isinstance(item.data, Data) else None for item in self.items]
        return values[0] if len(values) == 1 else values

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        count = f"{len(self.items)} result{'s' if len(self.items) != 1 else ''}"
        failures = f" · {len(self.errors)} failed" if self.errors else ""
        return f"<Findings {self.command} · {count}{failures}>"

    def _repr_html_(self) -> str:
        import io

        from rich.console import Console
        from rich.text import Text

        display = Display(width=100, many=len(self.items) > 1, colors="truecolor")
        console = Console(record=True, file=io.StringIO(), force_jupyter=False)
        console.print(Text.from_ansi(self.render_as("table", display).decode()), soft_wrap=True)
        return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")


class CollectedReport:
    """A report that keeps results, errors and notes for the caller."""

    def __init__(self, command: str, kind: DataKind, options: Options) -> None:
        self.options, self.notes = options, dict[str, str]()
        self.findings = Findings(command, kind)
        self.formats = tuple(formats_of(kind))  # any may be saved later

    def add(self, result: Attention | Data | Item) -> None:
        self.findings.items.append(item_of(result, self.options))

    add_blank = add

    def add_page(self, page: Callable[[str], str]) -> None:
        """A page that nobody asked for: Python asks a result for its own."""

    def skip(self, record: Text | BadText | None, error: AttnvizError) -> None:
        """Keep the reason why a record failed, or raise it where the run is to stop."""
        if str(self.options.many.on_error) == "stop":
            raise error
        self.findings.errors.append(error)

    def reject(self, lines: bytes, count: int = 1) -> None:
        """Lines of records that failed have no file here."""

    def say(self, text: str) -> None:
        """Keep a note; notes of one kind become one."""
        hold(self.notes, text)

    hold = say

    def progress(
        self, total: Callable[[], int | None] | None
    ) -> AbstractContextManager[Callable[[int], None]]:
        """From Python no progress is shown."""
        return nullcontext(lambda more: None)

    def finish(self, summary: str = "") -> None:
        """Every result is complete."""
        self.findings.notes = list(self.notes.values())


@contextmanager
def collect(command: str, kind: DataKind, options: Options) -> Iterator[CollectedReport]:
    """A report for the work of the block, which has the model to itself meanwhile.

    Raises:
        AttnvizError: every record failed; the first error.
    """
    report = CollectedReport(command, kind, options)
    with in_evaluation(options.origin.model), notices_to(report.say):
        yield report
        report.finish()
    if report.findings.errors and not report.findings.items:
        raise report.findings.errors[0]


def only_result(findings: Findings) -> Result:
    """The attention that was found alone."""
    (item,) = findings.items
    attention = item.attention
    result = attention if isinstance(attention, Result) else as_result(attention, Choice())
    return replace(result, item=item)
