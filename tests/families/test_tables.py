"""The table of every model type: its lines and counts, and a tenth tried anew each day."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.families import packages, tables
from tests.families.rows import Row
from tests.families.types_of import all_types, find_type
from tests.patience import HUNG

WRITE = "run: nox -s families -- "


def test_a_line_says_what_was_found():
    row = Row("llama", "text", "works", attention=True, route="probe", streams="causal")
    assert tables.line(row) == "| `llama` | text | works | probe | causal | — | — |"
    assert tables.result_of(tables.line(row)) == "works"
    refused = Row("one", "text", "refused", attention=True, reason="a | b")
    assert tables.cells_of(tables.line(refused))[-1] == "a \\| b"
    without = Row("mamba", "text", "works", attention=False, difference=0.5)
    assert tables.line(without) == "| `mamba` | text | works, no softmax | — | — | 5e-01 | — |"


def test_counts_are_those_of_the_lines():
    page = tables.PAGE.read_text(encoding="utf-8")
    found = tables.COUNTS.search(page)
    assert found is not None
    assert found[0] == tables.counts(tables.documented().values()), WRITE


def test_what_a_type_reads_is_found_without_a_list():
    kinds = {
        name: find_type(name).kind for name in ("llama", "t5", "vit", "llava", "whisper", "vits")
    }
    assert [*kinds.values()] == ["text", "pair", "picture", "picture-text", "audio", "other"]
    assert find_type("instructblip_vision_model").kind in ("part", "picture")


@pytest.mark.slow
def test_a_tenth_of_the_types_is_as_the_table_says(tmp_path: Path):
    turn = datetime.now(UTC).timetuple().tm_yday % tables.TURNS
    rows = tmp_path / "rows.md"
    words = ["--turn", str(turn), "--workers", "2", "--out", str(rows)]
    words += ["--keep", str(tmp_path / "rows.jsonl")]
    subprocess.run([sys.executable, "-m", "tests.families", *words], check=True, timeout=HUNG)
    there, wrong = tables.documented(), []
    for line in rows.read_text(encoding="utf-8").splitlines():
        name = line.split("`")[1]
        said = tables.result_of(there.get(name, line))
        assert tables.result_of(line) != "foreign error", line
        if packages.SAID in there.get(name, "") and not packages.are_there():
            continue  # `nox -s families` installs what it needs
        if said not in (tables.result_of(line), "not tried"):
            wrong.append((line, there[name]))
    assert not wrong, WRITE + " ".join(line.split("`")[1] for line, _ in wrong)
    tried = tables.turn(all_types(), turn)
    assert {*tried} & {*there}, "the table is of another transformers"
