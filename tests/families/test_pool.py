"""A run of trials that is broken goes on where it was."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.families.pool import kept
from tests.patience import HUNG, wait_until

TYPES = ("gpt2", "bert", "t5")


@pytest.mark.slow
def test_a_broken_run_goes_on_where_it_was(tmp_path: Path):
    rows, lines = tmp_path / "rows.jsonl", tmp_path / "lines.md"
    words = [sys.executable, "-m", "tests.families", *TYPES, "--workers", "2"]
    words += ["--keep", str(rows), "--out", str(lines)]
    run = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: bool(kept(rows)))
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=HUNG)
    before = kept(rows)
    assert before
    if len(before) < len(TYPES):  # else the machine was faster than the signal
        assert run.returncode == 1
        assert said.endswith("broken: the same command goes on from here\n")
    rows.write_text(rows.read_text() + '{"name": "t5", "ki')  # a line that was cut
    subprocess.run(words, check=True, timeout=HUNG)
    whole = [json.loads(one) for one in rows.read_text().splitlines() if one.endswith("}")]
    assert sorted(one["name"] for one in whole) == sorted(TYPES)
    assert {one["status"] for one in whole} == {"works"}
    assert len(lines.read_text().splitlines()) == len(TYPES)
