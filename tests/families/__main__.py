"""`python -m tests.families [TYPE …]`: try every type, or some, and write the tables of documents.

`--kind text` chooses types by what they read, `--turn 3` every tenth from the third on; `--workers
2` runs two processes; `--out FILE` writes the rows there and leaves the documents alone.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.families import pool, tables
from tests.families.types_of import KINDS, all_types, find_type


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.families", description=__doc__)
    parser.add_argument("types", nargs="*")
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--turn", type=int)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--keep", type=Path, help="a file of rows, whatever the source's state")
    asked = parser.parse_args()
    names = asked.types or all_types()
    if asked.turn is not None:
        names = tables.turn(names, asked.turn)
    if asked.kind:
        names = [name for name in names if find_type(name).kind in asked.kind]
    rows = []
    for row in pool.try_types(names, asked.keep or pool.place_of_rows(), asked.workers):
        rows.append(row)
        print(f"{len(rows)}/{len(names)}", tables.line(row), file=sys.stderr, flush=True)
    if asked.out:
        asked.out.write_text("".join(f"{tables.line(row)}\n" for row in rows), encoding="utf-8")
    else:
        tables.write(rows)


if __name__ == "__main__":
    main()
