"""The options of how pictures look, and the words in which they are given."""

import re
from typing import Any, Literal, TypedDict, get_args, get_type_hints

from attnviz.core.errors import UsageError, choose
from attnviz.core.options.option import names_in, rare
from attnviz.core.records import dataclass, fields

Width = Literal["single", "double"]
PictureScale = Literal["own", "shared"]
CellValues = Literal["auto", "yes", "no"]


@dataclass(frozen=True, slots=True)
class Look:
    """How every picture looks."""

    style: str | None = rare(
        "look",
        "--style NAME=VALUE,…",
        "Looks of pictures: width=single or double (85 or 178 mm, text at its usual size), "
        "font-size=9 (points, usually 7.5), values=yes or no (numbers in cells), cmap=cividis (a "
        "colour map of matplotlib), scale=own, shared or 0-0.1 (colours up to the largest weight "
        "of each panel, of all, or a number; usually what 99.5 % of the cells reach), dpi=400 "
        "(usually 200), and last title=TEXT or title=no.",
        suggestions=("width=single", "width=double", "values=no", "scale=shared", "title=no"),
    )
    title: str | None = rare(
        "style", "--style title=TEXT", "Title, instead of the model and the head."
    )
    no_title: bool = rare("style", "--style title=no", "Leave out the title and the line under it.")
    width: Width | None = rare("style", "--style width=COLUMN", "A paper's column: {choices}.")
    font_size: float | None = rare(
        "style", "--style font-size=POINTS", "Size of labels, by default 7.5.", min=6, max=16
    )
    values: CellValues = rare(
        "style", "--style values=WHEN", "Numbers in cells: {choices}.", default="auto"
    )
    cmap: str | None = rare("style", "--style cmap=NAME", "Colour map, by matplotlib's name.")
    scale: str | None = rare(
        "style", "--style scale=WHICH", "Where colours end: own, shared or 0-0.1."
    )
    dpi: int | None = rare(
        "style", "--style dpi=N", "Pixels to the inch, by default 200.", min=50, max=1200
    )

    def __post_init__(self) -> None:
        for name, value in parse_style(self.style or "").items():
            object.__setattr__(self, name, value)
        if self.title is not None and self.no_title:
            raise UsageError("title and no_title exclude each other: leave one out")
        for item in fields(self):
            value, ends = getattr(self, item.name), item.metadata["option"]
            if ends.max and value is not None and not ends.min <= value <= ends.max:
                raise UsageError(f"{item.name}={value} is out of range: {ends.min} to {ends.max}")
        if self.scale is not None:
            parse_scale(self.scale)

    @property
    def flags(self) -> dict[str, str]:
        """The given options, each with its name in the shell."""
        return {
            item.name: item.metadata["option"].short
            for item in fields(self)
            if item.name != "style" and getattr(self, item.name) != item.default
        }


class LookOptions(TypedDict, total=False):
    """The fields of `Look` as keywords of Python."""

    title: str | None
    style: str | None
    no_title: bool
    width: Width | None
    font_size: float | None
    values: CellValues
    cmap: str | None
    scale: str | None
    dpi: int | None


def parse_style(text: str) -> dict[str, Any]:
    """The fields of `Look` that "width=single,font-size=9" sets.

    Raises:
        UsageError: an unknown name, or a value that it cannot have.
    """
    items = (item for item in fields(Look) if item.metadata["option"].group == "style")
    names = {item.metadata["option"].usage.split()[1].partition("=")[0]: item for item in items}
    kinds, style = get_type_hints(Look), dict[str, Any]()
    looks, title, words = f",{text}".partition(",title=")
    if title:
        style |= {"no_title": True} if words == "no" else {"title": words}
    for part in filter(None, looks.split(",")):
        name, _, value = part.partition("=")
        item = names[choose(name.strip(), names, "look of --style")]
        choices = names_in(kinds[item.name])
        if choices:
            style[item.name] = choose(value, choices, f"value for --style {name}")
        elif item.metadata["option"].max is None:
            style[item.name] = value
        else:
            kind = int if item.name == "dpi" else float
            try:
                style[item.name] = kind(value)
            except ValueError as error:
                raise UsageError(f"--style {name}={value} is no number") from error
    return style


def parse_scale(text: str) -> tuple[float, float] | None:
    """The ends of a scale such as "0-0.1"; None for "own" and "shared".

    Raises:
        UsageError: it is none of them.
    """
    if text in get_args(PictureScale):
        return None
    number = r"(-?\d*\.?\d+(?:e-?\d+)?)"
    match = re.fullmatch(f"{number}-{number}", text)
    low, high = map(float, match.groups()) if match else (0.0, 0.0)
    if low >= high:
        raise UsageError(f"scale={text} is no scale: write own, shared, or its ends as 0-0.1")
    return low, high
