"""One lesson by its name, and all forms that it can be written in."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import partial
from typing import Any

from attnviz.core.errors import UsageError
from attnviz.features.lessons import LESSONS
from attnviz.features.lessons.lesson import Lesson
from attnviz.renderers.data import escape
from attnviz.renderers.reports import Data, draw_by
from attnviz.storage import documents, texts


def teach(name: str, values: Mapping[str, Any]) -> Lesson:
    """A lesson with the values that are given for its own; a None is none.

    Raises:
        UsageError: the lesson takes no such value.
    """
    values = {option: value for option, value in values.items() if value is not None}
    if "text" in values:
        texts.check_text(values["text"])
    lesson = LESSONS[name].load()
    parameters = inspect.signature(lesson).parameters
    for option in values:
        if option not in parameters:
            takes = ", ".join(f"--{parameter}" for parameter in parameters)
            raise UsageError(f"--{option} means nothing to lesson '{name}', which takes {takes}")
    result: Lesson = lesson(**values)
    return result


def lesson_data(result: Lesson) -> Data:
    def page(command: str) -> str:
        from attnviz.features.lessons.drawing import lesson_page

        return lesson_page(result, command)

    lines = ["\t".join(escape(str(c)) for c in row) for row in (result.columns, *result.rows)]
    return Data(
        text=result.table,
        rows=lambda: "".join(f"{line}\n" for line in lines),
        document=lambda: documents.report_json("lesson", **result.data()),
        page=page,
        figures={"plot": partial(draw_by, "attnviz.features.lessons.drawing:draw_lesson", result)},
        about=result.title,
        value=result,
    )
