"""What a command found, for Python: the same data, tables and pictures as in the shell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.cli.sinks import Item
from attnviz.core.errors import AttnvizError, UsageError, choose, in_words
from attnviz.core.registry import DataKind
from attnviz.renderers import Display
from attnviz.renderers.reports import Data, format_of, formats_of, make_renderer, render_all
from attnviz.runs.outputs import save_figure
from attnviz.storage.writing import write_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


class Findings:
    """What a command found, in every form that the shell could have written it.

    Attributes:
        value: the report itself, with its fields; of several results a list.
        notes: what a reader must know.
        errors: why records came to nothing.
    """

    def __init__(self, command: str) -> None:
        self.command = command
        self.kind: DataKind = "listing"
        self.items: list[Item] = []
        self.notes: list[str] = []
        self.errors: list[AttnvizError] = []

    def add(self, item: Item) -> None:
        """Take one more result in."""
        self.items.append(item)

    def finish(self) -> None:
        """Nothing more: every result is complete."""

    @property
    def value(self) -> Any:
        """The report with its fields; a list where there are several."""
        values = [item.data.value if isinstance(item.data, Data) else None for item in self.items]
        return values[0] if len(values) == 1 else values

    def table(self, width: int = 100, rows: int = 0) -> str:
        """A table for the eye, at most so many columns wide; `rows` at most, 0: all."""
        return self._written("table", Display(width, many=len(self.items) > 1, rows=rows)).decode()

    def to_json(self) -> Any:
        """Everything as plain values: what the shell writes as JSON."""
        return json.loads(self._written("json"))

    def to_rows(self) -> list[dict[str, str]]:
        """The rows that the shell writes, by column."""
        header, *rows = (line.split("\t") for line in self._written("tsv").decode().splitlines())
        return [dict(zip(header, row, strict=True)) for row in rows]

    def to_pandas(self) -> DataFrame:
        """The rows as a data frame, numbers as numbers.

        Raises:
            UsageError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise UsageError("to_pandas() needs pandas: pip install pandas") from error
        import io

        tsv = io.BytesIO(self._written("tsv"))
        return pandas.read_csv(tsv, sep="\t", quoting=3, keep_default_na=False, na_values=[""])

    def picture(self, name: str = "", file: str | Path | None = None) -> Figure:
        """A picture by its name, by default the first, also written to a file if given."""
        figures = self.items[0].figures if self.items else {}
        if not figures:
            raise UsageError(f"{self.command} draws no picture")
        name = choose(name or next(iter(figures)), figures, "picture")
        return save_figure(figures[name](), file, name)

    def save(self, file: str | Path) -> None:
        """Write the data; the suffix names the format.

        Raises:
            UsageError: a suffix that is no format's.
        """
        write_file(Path(file), self._written(format_of(Path(file), self.kind)))

    def _written(self, name: str, display: Display | None = None) -> bytes:
        formats = formats_of(self.kind)
        if name == "table":
            name = next(iter(formats))
        if name not in formats:
            raise UsageError(f"{self.command} gives no {name}, but {in_words(formats)}")
        many = len(self.items) > 1
        renderer = make_renderer(name, display or Display(many=many), self.kind)
        return render_all(renderer, ((item.data, item.views) for item in self.items))

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        told = f"{len(self.items)} result{'s' * (len(self.items) != 1)}"
        failed = f" · {len(self.errors)} failed" if self.errors else ""
        return f"<Findings {self.command} · {told}{failed}>"

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(self.table())}</pre>"
