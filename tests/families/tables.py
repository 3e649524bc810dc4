"""The tables of the documents: a line for each type, and how many of each kind work."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.families.rows import NEAR, Row

ROOT = Path(__file__).parents[2]
LINES = ROOT / "docs" / "tables" / "types.md"
PAGE = ROOT / "docs" / "families.md"
HEAD = "| model_type | reads | result | route | streams | off eager by | why |\n|---|---|---|---|---|---|---|\n"  # noqa: E501
TURNS = 10
AIMS = {"text": 95, "pair": 95, "picture": 85, "video": 85, "picture-text": 80, "audio": 80}
"""Percent of each kind's types with attention that shall work."""
COUNTS = re.compile(r"(?<=<!-- counts -->\n).*?(?=<!-- /counts -->)", re.DOTALL)


def turn(names: Sequence[str], number: int) -> list[str]:
    """Every tenth name, from a number on."""
    return [*names][number % TURNS :: TURNS]


def line(row: Row) -> str:
    """A line of the table."""
    off = (
        "—"
        if row.difference is None
        else "0"
        if row.difference <= NEAR
        else f"{row.difference:.0e}"
    )
    result = row.status if row.attention or row.status != "works" else "works, no softmax"
    reads = "—" if row.kind == "part" else row.kind
    cells = f"`{row.name}`", reads, result, row.route, row.streams, off, row.reason
    return "| " + " | ".join((one or "—").replace("|", "\\|") for one in cells) + " |"


def documented() -> dict[str, str]:
    """The lines of the table by type."""
    if not LINES.exists():
        return {}
    lines = LINES.read_text(encoding="utf-8").splitlines()
    return {one.split("`")[1]: one for one in lines if one.startswith("| `")}


def result_of(line: str) -> str:
    """What a line says of a type: its result."""
    return cells_of(line)[2]


def cells_of(line: str) -> list[str]:
    """The cells of a line, the first counted from 0."""
    return [one.strip() for one in re.split(r"(?<!\\)\|", line)[1:-1]]


def write(rows: Iterable[Row]) -> None:
    """Put lines into the table in place of those that are there, and count anew."""
    lines = documented() | {row.name: line(row) for row in rows}
    before = LINES.read_text(encoding="utf-8").split("| model_type |")[0]
    body = "".join(f"{lines[name]}\n" for name in sorted(lines))
    LINES.write_text(before + HEAD + body, encoding="utf-8")
    counted = counts(lines.values())
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(COUNTS.sub(lambda _: counted, page), encoding="utf-8")


def counts(lines: Iterable[str]) -> str:
    """How many types of each kind work, as a table."""
    made = "| reads | types with attention | work | refused | not built | work, % |\n|---|---|---|---|---|---|\n"  # noqa: E501
    cells = [cells_of(one) for one in lines]
    for kind in ("text", "pair", "picture", "picture-text", "audio", "video"):
        own = [one[2] for one in cells if one[1] == kind]
        works, refused, missing = (own.count(one) for one in ("works", "refused", "not built"))
        attend = works + refused + missing
        share = f"{100 * works // attend}" if attend else "—"
        made += f"| {kind} | {attend} | {works} | {refused} | {missing} | {share} |\n"
    return made
