"""Values from Python, checked as the shell would check what is typed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from attnviz.core.errors import InputError, UsageError, choose, first_line, in_short, in_words
from attnviz.core.options import InMemory
from attnviz.core.records import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Range:
    """What a number may be."""

    min: float | None = None
    max: float | None = None


FITS: dict[Any, Any] = {
    bool: bool,
    int: int,
    float: (int, float),
    str: (str, int, Path),
    Path: (str, Path),
}
"""What may be given for an option of a type."""
SEVERAL = (Sequence[str], tuple[int, int])  # types of several values, which msgspec checks


def is_utf8(text: str) -> bool:
    """Whether the text can be written as UTF-8: it holds no half of a surrogate pair."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_option_text(name: str, value: object) -> None:
    """Refuse an option's text that is empty or, where it names no file, no UTF-8."""
    if not isinstance(value, str):
        return
    if not value:
        raise UsageError(f"{name} is empty: give a value, or leave it out")
    if not is_utf8(value) and not os.path.lexists(value):
        raise UsageError(f"{name} is not valid UTF-8")


def check_value(name: str, value: Any, annotation: Any, about: Any = None) -> Any:
    """A value from Python as an option takes it; `about` has its `min` and `max`.

    What an annotation of other types holds is left to the function itself.

    Raises:
        UsageError: it is of another kind, or out of its range; the message says what it may be.
    """
    if get_origin(annotation) is Annotated:
        annotation, about = get_args(annotation)[:2]
    types = [annotation]
    if get_origin(annotation) in (Union, UnionType):
        types = [one for one in get_args(annotation) if one is not type(None)]
        if value is None and len(types) < len(get_args(annotation)):
            return None
    if get_origin(types[0]) is Annotated:  # as in Positive | None
        types[0], about = get_args(types[0])[:2]
    convertible = all(one in (*FITS, *SEVERAL) or get_origin(one) is Literal for one in types)
    if isinstance(about, str) or isinstance(value, InMemory) or not convertible:
        return value
    if Sequence[str] in types:  # a text is one of its letters, whereas a number would fit str too
        types = [one for one in types if one is not str]
    for one in types:
        if (result := _convert(one, value, name)) is not None:
            return check_range(name, result, about) if one in (int, float) else result
    words = in_words(
        str(getattr(one, "__name__", one) if one not in SEVERAL else one) for one in types
    )
    words = words.replace("collections.abc.", "")
    raise UsageError(f"{name}={in_short(value)} is no {words}")


def _convert(kind: Any, value: Any, name: str) -> Any:
    """The value as the first type that fits; None: no type fits."""
    if get_origin(kind) is Literal:
        return choose(value, get_args(kind), name) if isinstance(value, str) else None
    if kind in SEVERAL:
        from msgspec import MsgspecError, convert

        try:
            plain = value.tolist() if hasattr(value, "tolist") else value
            return convert([*plain] if isinstance(plain, str) else plain, kind)
        except (MsgspecError, ValueError):
            return None
    if kind is str and isinstance(value, list | tuple):
        return (" " if name == "labels" else ",").join(map(str, value))
    if kind in (int, float) and getattr(value, "shape", None) == ():  # of numpy or torch
        value = value.item()
    fits = isinstance(value, bool) is (kind is bool) and isinstance(value, FITS[kind])
    if not fits or (kind is Path and not _names_file(value)):
        return None
    return kind(value) if kind in (str, Path) else value


def _names_file(value: str | Path) -> bool:
    try:
        return b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        return False


def as_array(one: Any) -> NDArray[Any]:
    """An array, or a tensor of any device and precision, with or without a gradient.

    Raises:
        InputError: it is no array, as rows of different lengths.
    """
    import numpy as np

    try:
        if hasattr(one, "detach"):
            one = one.detach().cpu()
            one = one.float() if one.is_floating_point() and one.element_size() < 4 else one
        return np.asarray(one)
    except (ValueError, TypeError, RuntimeError) as error:
        raise InputError(f"{in_short(one)} is no array: {first_line(error)}") from error


def check_range(name: str, value: float, about: Any) -> float:
    """The number, or an error if it lies outside the `min` and `max` of `about`."""
    least, most = getattr(about, "min", None), getattr(about, "max", None)
    if (least is not None and value < least) or (most is not None and value > most):
        ends = f"at least {least}" if most is None else f"{least} to {most}"
        raise UsageError(f"{name}={value} is out of range: {ends}")
    return value
