"""What reads a text, a pair, or the file of a picture or a recording that an argument names."""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal, cast

from attnviz.core.errors import AttnvizError, InputError
from attnviz.core.options import Origin
from attnviz.core.query import Query
from attnviz.core.registry import FILE_QUERIES, SourceKind
from attnviz.models import Source
from attnviz.models.open import is_shipped
from attnviz.runs import many_texts, pipeline, reporting
from attnviz.runs.inputs import PICTURES, RECORDINGS, TextInput, given_texts
from attnviz.storage.texts import BadText, Text


def kind_of_file(name: str) -> Literal["picture", "recording"] | None:
    """Whether a text names the file of a picture or of a recording."""
    suffixes: dict[Literal["picture", "recording"], tuple[str, ...]]
    suffixes = {"picture": PICTURES, "recording": RECORDINGS}
    for kind, ends in suffixes.items():
        # os.path, since Path.is_file() raises where a text is longer than a name can be.
        if name.lower().endswith(ends) and os.path.isfile(name):  # noqa: PTH113
            return kind
    return None


def read_file_argument(text: object, target: str | None) -> tuple[TextInput, SourceKind] | None:
    """The picture or recording that an argument names, and what reads it; else None."""
    kind = kind_of_file(text) if isinstance(text, str) else None
    if not isinstance(text, str) or kind is None or (kind == "picture" and target is not None):
        return None
    return given_texts(Text("0", text, target)), kind


def query_for(source: Source, text: Text, kind: SourceKind) -> Query:
    """The query for a text, a pair, or the file that an argument names; a text is no path."""
    if kind == "recording":
        return cast("Query", FILE_QUERIES[kind].load()(Path(text.text), text.target or ""))
    if kind in ("picture", "picture-text"):
        # Its lens is not "raw", since every patch has to attend to every other one.
        query = cast("Query", FILE_QUERIES["picture"].load()(Path(text.text), lens="logits"))
        return replace(query, text=text.target or "")
    return pipeline.query_of(source, text)


INSIDE = "pocket-lm answers, the model inside that continues a text; --model names another"


def by_decoder(origin: Origin, report: reporting.RunReport) -> Origin:
    """The origin, with the model inside that continues a text where no other is named."""
    if origin.model is not None or not is_shipped(origin):
        return origin
    report.say(INSIDE)
    return replace(origin, model="pocket-lm")


def each_text(
    records: Iterable[many_texts.Record],
    make: Callable[[Text], many_texts.Value],
    own: tuple[type[AttnvizError], ...] = (AttnvizError,),
) -> Iterator[tuple[many_texts.Record, many_texts.Value | AttnvizError]]:
    """Each record with its result, or with an error of the classes in `own`."""
    for record in records:
        if isinstance(record, BadText):
            yield record, record.error
            continue
        try:
            yield record, make(record)
        except own as error:
            if not record.where:
                raise
            yield record, InputError(f"{record.where}: {error}")
