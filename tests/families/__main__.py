"""`python -m tests.families [TYPE …]`: try every type, or some, and write the tables of documents.

`--kind text` chooses types by what they read, `--turn 3` every tenth from the third on;
`--workers 2` runs two processes; `--out FILE` writes the rows there and leaves the documents
alone. What cannot be built is tried again with the packages of `tests.families.packages`, if they
are there.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from tests.families import packages, pool, tables
from tests.families.rows import Row
from tests.families.types_of import KINDS, all_types, find_type

UNLOADED = "cannot be loaded"
"""What a row says of a processor that needs a package to be read from its files."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.families", description=__doc__)
    parser.add_argument("types", nargs="*")
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--turn", type=int)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--keep", type=Path, help="a file of rows, whatever the source's state")
    parser.add_argument("--with-packages", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.with_packages:
        packages.use()
    names = asked.types or all_types()
    if asked.turn is not None:
        names = tables.turn(names, asked.turn)
    if asked.kind:
        names = [name for name in names if find_type(name).kind in asked.kind]
    keep = asked.keep or pool.place_of_rows()
    rows = []
    for row in pool.try_types(names, keep, asked.workers):
        rows.append(row)
        print(f"{len(rows)}/{len(names)}", tables.line(row), file=sys.stderr, flush=True)
    if not asked.with_packages and packages.are_there():
        again = [row.name for row in rows if row.status == "not built" or UNLOADED in row.reason]
        rows = [*with_packages(again, keep, asked.workers, {row.name: row for row in rows})]
    if asked.out:
        asked.out.write_text("".join(f"{tables.line(row)}\n" for row in rows), encoding="utf-8")
    else:
        tables.write(rows)


def with_packages(
    names: list[str], keep: Path, workers: int, rows: dict[str, Row]
) -> Iterable[Row]:
    """The rows, with those of types that packages let be built."""
    place = keep.with_suffix(".packages.jsonl")
    words = [
        "--with-packages",
        "--keep",
        str(place),
        "--workers",
        str(workers),
        "--out",
        os.devnull,
    ]
    if names:
        subprocess.run([sys.executable, "-m", "tests.families", *words, *names], check=True)
    for name, row in pool.kept(place).items():
        if name not in names:
            continue
        if row.status != "not built" or row.reason != rows[name].reason:
            said = "; ".join(filter(None, (row.reason, packages.SAID)))
            rows[name] = replace(row, reason=said)
    return rows.values()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("broken: the same command goes on from here") from None
