"""A campaign: many random runs, the classes of what went wrong, and the smallest run of each.

`python -m fuzz.campaign RUNS [--seed N] [--processes N] [--into FOLDER]`; the same seed and
number of processes draw the same command lines. Status 1 where anything went wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"

from hypothesis import HealthCheck, Phase, assume, given, seed, settings

from fuzz import world
from fuzz.invariants import broken_invariants
from fuzz.run import Case, Ran, run, tidy
from fuzz.strategies import cases
from tests.patience import HUNG

CHUNK = 250
"""Runs between two lines of the log; each chunk has a seed of its own."""
ONE_PROCESS = 2500
"""Runs of one process, then a new one takes over: libraries keep half a megabyte of each run."""
SILENT = 2 * HUNG
"""Seconds without a finished chunk after which a process counts as hung."""
SMALLER = 30
"""Seconds for making a failure smaller."""
VALID_SHARE = 0.2
"""The least share of runs that must succeed."""


def class_of(ran: Ran, name: str, wrong: str) -> str:
    """What a failure has in common with others of its kind."""
    if ran.error is not None:
        return f"{name}: {type(ran.error).__name__} in {ran.frame}"
    if name == "says_it_plainly":
        wrong = re.sub(r"^.*/", "", wrong)
    return f"{name}: {ran.case.argv[0][:20]}: {re.sub(r'[0-9]+', '0', wrong)[:80]}"


def failures(case: Case) -> tuple[Ran, dict[str, str]]:
    """A run, and the classes of what it breaks with what is wrong."""
    ran = run(case)
    return ran, {class_of(ran, name, wrong): wrong for name, wrong in broken_invariants(ran)}


def smaller(case: Case, kind: str) -> Case:
    """The smallest case that fails in the same way: without some words, files or stdin."""
    until = time.monotonic() + SMALLER

    def still(other: Case) -> bool:
        return time.monotonic() < until and kind in failures(other)[1]

    for place in range(len(case.groups) - 1, -1, -1):
        fewer = replace(case, groups=(*case.groups[:place], *case.groups[place + 1 :]))
        if len(case.groups) > 1 and still(fewer):
            case = fewer
    for name in case.files:
        fewer = replace(case, files={key: data for key, data in case.files.items() if key != name})
        if still(fewer):
            case = fewer
    for first in (1, 2, 3):
        group = case.groups[0]
        short = replace(case, groups=((*group[:first], *(word[:1] for word in group[first : first + 1]), *group[first + 1 :]), *case.groups[1:]))  # noqa: E501  # fmt: skip
        if len(group) > first and short != case and still(short):
            case = short
    return case


class Tally:
    """The counts of a process."""

    def __init__(self) -> None:
        self.runs = self.valid = 0
        self.statuses: Counter[int] = Counter()
        self.commands: Counter[str] = Counter()
        self.seconds = 0.0
        self.classes: Counter[str] = Counter()
        self.found: dict[str, dict[str, str]] = {}

    def take(self, case: Case, log: Path) -> None:
        """Run a case and count it."""
        # If a run ends this process, its parent reads here which run it was.
        log.with_suffix(".now").write_bytes(pickle.dumps(case))
        ran, wrong = failures(case)
        self.runs += 1
        self.valid += case.valid
        self.statuses[ran.status] += 1
        self.commands[case.argv[0] if case.argv and case.argv[0] in COMMANDS else "?"] += 1
        for kind, told in wrong.items():
            self.classes[kind] += 1
            if kind not in self.found:
                least = smaller(case, kind)
                self.found[kind] = {"wrong": told, "line": least.line}
                # An earlier process of the same log may have kept some already.
                folders = (log.parent / f"{number:03}-{log.stem}" for number in count(1))
                keep(least, next(one for one in folders if not one.exists()), kind)

    def counts(self) -> dict[str, object]:
        """The counts as JSON."""
        return {
            name: dict(value) if isinstance(value, Counter) else value
            for name, value in vars(self).items()
        }


def keep(case: Case, folder: Path, kind: str) -> None:
    """Save the files of a failure, with the line that shows it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "RUN").write_text(f"# {kind}\n{case.line}\n", "utf-8", "backslashreplace")
    if case.stdin:
        (folder / "STDIN").write_bytes(case.stdin)
    for name, data in case.files.items():
        if isinstance(data, bytes):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)


def work(runs: int, first: int, log: Path) -> None:
    """Do the runs of one process, with a line in the log after each chunk."""
    tally, number, seen = Tally(), 0, set[int]()
    world.make()
    began = time.process_time()
    with log.open("a", encoding="utf-8", errors="backslashreplace") as file:
        while tally.runs < min(runs, ONE_PROCESS):
            chunk = min(CHUNK, runs - tally.runs)

            @seed(first + number)
            @settings(
                max_examples=chunk,
                database=None,
                deadline=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(cases())
            def attempt(case: Case) -> None:
                # Hypothesis often draws an example again; it does not count as a new run.
                assume(hash(case.key) not in seen)
                seen.add(hash(case.key))
                tally.take(case, log)

            attempt()
            number += 1
            tidy()
            tally.seconds = time.process_time() - began
            file.write(json.dumps(tally.counts()) + "\n")
            file.flush()


def main(arguments: list[str] | None = None) -> int:
    """Distribute the runs to processes, watch them, report, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("runs", type=int)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--into", type=Path, default=Path(".fuzz"))
    parser.add_argument("--log", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.log:
        work(asked.runs, asked.seed, asked.log.absolute())
        os._exit(0)
    shutil.rmtree(asked.into, ignore_errors=True)
    asked.into.mkdir(parents=True)
    print(f"seed {asked.seed}", flush=True)
    began = time.monotonic()
    logs = [asked.into / f"{number}.log" for number in range(asked.processes)]
    lost = watch(logs, asked.runs // asked.processes, asked.seed)
    return report(logs, lost, time.monotonic() - began)


def watch(logs: list[Path], runs: int, first: int) -> list[str]:
    """Run all processes; returns the command line of each that died or hung."""
    starts = {log: first + 1_000_000 * number for number, log in enumerate(logs)}
    running = {log: start(log, runs, starts[log]) for log in logs}
    lost, told = [], time.monotonic()
    while running:
        time.sleep(1)
        for log, process in list(running.items()):
            now = log.with_suffix(".now")
            silent = now.exists() and time.time() - now.stat().st_mtime > SILENT
            if silent:
                process.send_signal(signal.SIGKILL)
            if process.poll() is None and not silent:
                continue
            del running[log]
            left = runs - sum(item["runs"] for item in end_counts(log))
            if process.wait() == 0 and left > 0:
                running[log] = again(log, left, starts)
            elif process.returncode != 0:
                how = "hung" if silent else f"ended with {process.returncode}"
                case = pickle.loads(now.read_bytes()) if now.exists() else Case(((),))
                lost.append(f"{how}: {case.line}")
                keep(case, log.parent / f"lost-{len(lost):02}", how)
                if left > 0 and len(lost) < 20:
                    running[log] = again(log, left, starts)
        if time.monotonic() - told > 60:
            told = time.monotonic()
            print(summary(logs), flush=True)
    return lost


def again(log: Path, left: int, starts: dict[Path, int]) -> subprocess.Popen[bytes]:
    """Start a process for the remaining runs, with a new seed; the counts so far stay."""
    starts[log] += 10_000
    with log.open("a") as file:
        file.write("\n")
    return start(log, left, starts[log])


def start(log: Path, runs: int, first: int) -> subprocess.Popen[bytes]:
    """A process of the campaign."""
    words = [
        sys.executable,
        "-m",
        "fuzz.campaign",
        str(runs),
        "--seed",
        str(first),
        "--log",
        str(log),
    ]
    return subprocess.Popen(words, stdin=subprocess.DEVNULL)


def end_counts(log: Path) -> list[dict[str, object]]:
    """The last counts of each process that wrote a log; an empty line parts them."""
    if not log.exists():
        return []
    parts = log.read_text("utf-8").split("\n\n")
    return [json.loads(part.strip().splitlines()[-1]) for part in parts if part.strip()]


def total(logs: Iterable[Path], name: str) -> Counter[str]:
    """The sum of a count over all processes."""
    found: Counter[str] = Counter()
    for log in logs:
        for counts in end_counts(log):
            value = counts[name]
            found.update(value if isinstance(value, dict) else {"": value})
    return found


def summary(logs: list[Path]) -> str:
    """How far a campaign has come, in a line."""
    runs, seconds = total(logs, "runs")[""], total(logs, "seconds")[""]
    classes = total(logs, "classes")
    return (
        f"{runs} runs, {runs / max(seconds, 1e-9):.0f} a second of a processor, "
        f"{total(logs, 'valid')['']} valid; "
        f"{len(classes)} classes in {sum(classes.values())} failures"
    )


def report(logs: list[Path], lost: list[str], seconds: float) -> int:
    """Print the failures and return the exit status."""
    found: dict[str, dict[str, str]] = {}
    for log in logs:
        for counts in end_counts(log):
            found |= counts["found"]  # type: ignore[operator]
    for kind, times in total(logs, "classes").most_common():
        print(f"\n{times} × {kind}\n  {found[kind]['wrong'][:300]}\n  {found[kind]['line'][:600]}")
    for line in lost:
        print(f"\na process {line[:600]}")
    runs, valid = total(logs, "runs")[""], total(logs, "valid")[""]
    print(f"\n{summary(logs)}; {seconds:.0f} s")
    print("statuses", dict(total(logs, "statuses")), "commands", dict(total(logs, "commands")))
    few = runs >= CHUNK and valid < VALID_SHARE * runs  # the share of a few is luck
    if few:
        print(f"only {valid} of {runs} runs were valid: at least {VALID_SHARE:.0%} are wanted")
    return 1 if found or lost or few else 0


from attnviz.core.registry import COMMANDS  # noqa: E402 - after the environment is set

if __name__ == "__main__":
    sys.exit(main())
