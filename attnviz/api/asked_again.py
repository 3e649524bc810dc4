"""A text for an experiment: given itself, or by a result whose model is asked again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from attnviz.api.options import ExperimentOptions
from attnviz.core.attention_map import Attention
from attnviz.core.errors import UsageError
from attnviz.core.registry import Command
from attnviz.runs.pipeline import Result


@dataclass(frozen=True, slots=True)
class AskedText:
    """A text or texts, a target, and the options of their model."""

    text: Any
    target: str | None
    options: Mapping[str, Any]

    def command(self, file: str | None) -> Command:
        """The command that reads them: files and lists may hold pairs."""
        several = self.text is not None and not isinstance(self.text, str)
        return "cross" if self.target is not None or file is not None or several else "self"


def asked_again(text: Any, target: str | None, options: ExperimentOptions) -> AskedText:
    """The text with its options; a result gives both, as far as options do not say otherwise."""
    if not isinstance(text, Attention):
        return AskedText(text, target, options)
    if not isinstance(text, Result) or text.again is None:
        raise UsageError("only what attend() gave can be run again: give its text and model")
    origin, taken = text.again.origin, ExperimentOptions.__annotations__
    known = {name: getattr(origin, name) for name in taken if hasattr(origin, name)}
    return AskedText(text.source or text.text, text.target, {**known, **options})
