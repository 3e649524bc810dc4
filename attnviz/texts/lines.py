"""Lines of text and of JSON, each made into a text or into what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from attnviz.errors import InputError
from attnviz.texts import BadText, Text, check_text, is_utf8


@dataclass(frozen=True, slots=True)
class Line:
    """A line as it stands in a file, or a row of a table, which may go over several.

    Attributes:
        number: its place among the records, from 0; the id of a text without one.
        line: where it begins in the file, from 1.
        raw: what stands there, without the line's end; bytes that are no UTF-8 are surrogates.
        name: the file's, for messages.
    """

    number: int
    line: int
    raw: str
    name: str

    @property
    def where(self) -> str:
        """How a message names it."""
        return f"line {self.line} of {self.name}"

    @property
    def blank(self) -> bool:
        """Nothing stands there that could be seen."""
        return not self.raw or self.raw.isspace()


LineT = TypeVar("LineT", bound=Line)


def decode_lines(lines: Iterable[bytes]) -> Iterator[str]:
    """Each line with its end; a byte order mark is left out, bytes that are no UTF-8 are kept."""
    for place, line in enumerate(lines):
        yield line.decode("utf-8" if place else "utf-8-sig", "surrogateescape")


def number_lines(lines: Iterable[bytes], name: str) -> Iterator[Line]:
    """Each line of a file with its number."""
    for number, line in enumerate(decode_lines(lines)):
        yield Line(number, number + 1, line.rstrip("\r\n"), name)


def make_texts(
    lines: Iterable[LineT], make: Callable[[LineT], Text], keep_blank: bool
) -> Iterator[Text | BadText]:
    """Each line as a text; one that cannot be used comes as a BadText, and blank ones are left out.

    Args:
        lines: lines or rows.
        make: a line's text; raises InputError where there is none.
        keep_blank: a blank line is a BadText too, for output that stays line by line.
    """
    for line in lines:
        if line.blank and not keep_blank:
            continue
        try:
            if line.blank:
                raise InputError(f"{line.where} is empty")
            if not is_utf8(line.raw):
                raise InputError(f"{line.where} is not valid UTF-8")
            text = make(line)
        except InputError as error:
            yield BadText(line.where, error, line.line, line.raw)
        else:
            yield text


def plain_text(line: Line, pairs: bool) -> Text:
    """The line itself; of a pair, what stands before and after a tab or |||.

    Raises:
        InputError: one of them is blank.
    """
    if not pairs:
        text = check_text(line.raw)
        return Text(str(line.number), text, where=line.where, line=line.line, raw=line.raw)
    source, tab, target = line.raw.partition("\t" if "\t" in line.raw else " ||| ")
    return Text(
        id=str(line.number),
        text=check_text(source, f"source in {line.where}"),
        target=check_text(target, f"target in {line.where}") if tab else None,
        where=line.where,
        line=line.line,
        raw=line.raw,
    )


def json_text(line: Line, pairs: bool, names: Mapping[str, str]) -> Text:
    """The text of an object with "text", or "source" and "target"; perhaps "id" and "labels".

    Args:
        line: one JSON object.
        pairs: source and target are wanted.
        names: other names of these keys.

    Raises:
        InputError: it is no such object.
    """
    from attnviz.storage.json import parse_json

    found = parse_json(line.raw, line.where)
    if not isinstance(found, dict):
        raise InputError(f"{line.where} is no JSON object")
    main = names.get("source", "source") if pairs else names.get("text", "text")
    text = _string(found, main, line.where)
    if text is None:
        raise InputError(f'{line.where} has no "{main}"')
    other = names.get("target", "target")
    target = _string(found, other, line.where) if pairs else None
    identity = found.get(names.get("id", "id"))
    return Text(
        id=str(line.number if identity is None else identity),
        text=check_text(text, f"{main} in {line.where}"),
        target=None if target is None else check_text(target, f"{other} in {line.where}"),
        labels=_labels(found, names.get("labels", "labels"), line.where),
        where=line.where,
        line=line.line,
        raw=line.raw,
    )


def _string(found: dict[str, Any], name: str, where: str) -> str | None:
    value = found.get(name)
    if value is None or isinstance(value, str):
        return value
    raise InputError(f'{where} has a "{name}" that is no text')


def _labels(found: dict[str, Any], name: str, where: str) -> tuple[str, ...] | None:
    labels = found.get(name)
    if labels is None:
        return None
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise InputError(f'{where} has "{name}" that are no list of words')
    return tuple(labels)
