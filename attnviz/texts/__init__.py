"""Texts as they come in: from arguments, a text file, JSON lines or stdin, one at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from attnviz.errors import InputError


@dataclass(frozen=True, slots=True)
class Text:
    """One text, or one pair of texts, to attend to.

    Attributes:
        id: its own name, or its number in the input counted from 0.
        text: the text; of a pair, the source.
        target: of a pair, the target; None where it is to be made by the model.
        labels: a label for each token, if given.
        where: how to name it in a message ("line 3 of 'a.jsonl'"); empty for an argument.
    """

    id: str
    text: str
    target: str | None = None
    labels: tuple[str, ...] | None = None
    where: str = ""


@dataclass(frozen=True, slots=True)
class BadText:
    """A line that could not be used, and why."""

    where: str
    error: InputError


def check_text(text: str, what: str = "text") -> str:
    """The text where it can be attended to.

    Raises:
        InputError: it is blank, or held bytes that are no UTF-8.
    """
    if not text.strip():
        raise InputError(f"the {what} is empty")
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise InputError(f"the {what} is not valid UTF-8")
    return text


def read_lines(
    lines: Iterable[bytes], name: str, *, json: bool, pairs: bool, keep_blank: bool = False
) -> Iterator[Text | BadText]:
    """Each line as a text; a line that cannot be used comes as a BadText, and blank ones are left.

    Args:
        lines: raw lines of a file or of stdin.
        name: the file's, for messages.
        json: each line is a JSON object with "text", or "source" and "target"; optionally "id" and
            "labels".
        pairs: source and target are wanted; plain lines hold them separated by a tab or by |||.
        keep_blank: a blank line is a BadText too, for output that stays line by line.
    """
    for number, line in enumerate(lines, 1):
        where = f"line {number} of {name}"
        try:
            decoded = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            if decoded.strip():
                yield (_from_json if json else _from_line)(decoded, str(number - 1), where, pairs)
            elif keep_blank:
                yield BadText(where, InputError(f"{where} is empty"))
        except UnicodeDecodeError:
            yield BadText(where, InputError(f"{where} is not valid UTF-8"))
        except InputError as error:
            yield BadText(where, error)


def _from_line(line: str, identity: str, where: str, pairs: bool) -> Text:
    if not pairs:
        return Text(identity, check_text(line), where=where)
    source, tab, target = line.partition("\t" if "\t" in line else " ||| ")
    source = check_text(source, f"source in {where}")
    checked = check_text(target, f"target in {where}") if tab else None
    return Text(identity, source, checked, where=where)


def _from_json(line: str, identity: str, where: str, pairs: bool) -> Text:
    from attnviz.storage.json import parse_json

    found = parse_json(line, where)
    if not isinstance(found, dict):
        raise InputError(f"{where} is no JSON object")
    needed = "source" if pairs else "text"
    text = _string(found, needed, where)
    if text is None:
        raise InputError(f'{where} has no "{needed}"')
    target = _string(found, "target", where) if pairs else None
    return Text(
        id=str(found.get("id", identity)),
        text=check_text(text, f"{needed} in {where}"),
        target=None if target is None else check_text(target, f"target in {where}"),
        labels=_labels(found.get("labels"), where),
        where=where,
    )


def _string(found: dict[str, Any], name: str, where: str) -> str | None:
    value = found.get(name)
    if value is None or isinstance(value, str):
        return value
    raise InputError(f'{where} has a "{name}" that is no text')


def _labels(labels: Any, where: str) -> tuple[str, ...] | None:
    if labels is None:
        return None
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise InputError(f'{where} has "labels" that are no list of words')
    return tuple(labels)
