"""What holds for every run: each invariant is a function that says what is wrong, or None.

A new one is a function of a `Ran` here, decorated with `@invariant`, and a run in
`test_invariants.py` that breaks it.
"""

from __future__ import annotations

import csv
import io
import json
import re
import signal
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import PurePosixPath

import numpy as np
from PIL import Image

from attnviz.core.registry import COMMANDS, FORMATS
from fuzz.run import MOST_RESIDENT, Ran, TookTooLong
from fuzz.strategies import is_place, parameters
from tests.samples import RAW

WORK = "a/b/work/"
STATUSES = {0, 1, 2, 3, 4, 130, 128 + signal.SIGTERM}
LONGEST_LINE = 20_000
"""Characters that a line on stderr has at most, where each of a message's is spelt out."""
GONE_ON = "--resume"
"""What the note on an unfinished file says; then, and only then, may one stay."""

INVARIANTS: dict[str, Callable[[Ran], str | None]] = {}
"""Every invariant by name."""


def invariant(check: Callable[[Ran], str | None]) -> Callable[[Ran], str | None]:
    """Register a function that checks every run."""
    INVARIANTS[check.__name__] = check
    return check


def broken_invariants(ran: Ran) -> list[tuple[str, str]]:
    """The invariants that a run breaks, each with what is wrong."""
    return [
        (name, wrong) for name, check in INVARIANTS.items() if (wrong := check(ran)) is not None
    ]


@invariant
def ends_by_itself(ran: Ran) -> str | None:
    """A run ends within its limit of time."""
    return str(ran.error) if isinstance(ran.error, TookTooLong) else None


@invariant
def raises_nothing(ran: Ran) -> str | None:
    """No exception leaves the program."""
    if ran.error is None or isinstance(ran.error, TookTooLong):
        return None
    return f"{type(ran.error).__name__}: {str(ran.error)[:200]}"


@invariant
def ends_with_a_known_status(ran: Ran) -> str | None:
    """The status is 0, 1, 2, 3 (a share of --fail-…), 4, 130 or 143."""
    return None if ran.error or ran.status in STATUSES else f"status {ran.status}"


@invariant
def succeeds_where_it_must(ran: Ran) -> str | None:
    """A valid command line ends with status 0."""
    if not ran.case.valid or ran.error or ran.status == 0:
        return None
    return f"status {ran.status}: {_last_words(ran)}"


@invariant
def says_why_it_failed(ran: Ran) -> str | None:
    """stderr is empty only if nothing failed."""
    return "stderr is empty" if ran.status > 0 and not ran.err.strip() and not ran.error else None


JSON_LINE = '{"schema": 2, "kind": "'
"""How a line on stderr begins after --errors json."""


@invariant
def says_it_plainly(ran: Ran) -> str | None:
    """stderr holds notes and errors: no traceback, no library's warning, no control character."""
    told = ran.err.decode("utf-8", "backslashreplace")
    for line in told.splitlines():
        if re.match(
            r"Traceback |\s+File \"|thread '.*' panicked|.*\bWarning\b.*:|Exception ignored", line
        ):
            return line[:200]
    for line in told.rstrip("\n").split("\n") if told else []:
        if not line.startswith(("attnviz: error: ", "note: ", JSON_LINE)):
            return f"neither a note nor an error: {line[:200]!r}"
        if len(line) > LONGEST_LINE:
            return f"a line of {len(line)} characters on stderr"
    found = RAW.search(told)
    return f"{found[0]!r} on stderr" if found else None


@invariant
def tells_one_error(ran: Ran) -> str | None:
    """A wrong command line gets one line of error and writes nothing; a text may be wrong, too."""
    errors = ran.err.count(b"attnviz: error: ") + ran.err.count(b'"kind": "error"')
    errors -= ran.err.count(b"attnviz: error: line ")
    if ran.status == 2 and not ran.error and (errors != 1 or ran.out):
        return f"{errors} errors and {len(ran.out)} bytes on stdout"
    return None


@invariant
def keeps_the_terminal_clean(ran: Ran) -> str | None:
    """stdout has no control characters: nothing hides, styles or reverses text."""
    if _binary(ran) or _helps(ran):
        return None
    try:
        told = ran.out.decode()
    except UnicodeDecodeError as error:
        return f"stdout is not UTF-8: {error.object[error.start : error.end]!r}"
    found = RAW.search(told)
    return f"{found[0]!r} on stdout" if found else None


@invariant
def writes_its_format(ran: Ran) -> str | None:
    """stdout and every written file are valid in their format."""
    try:
        name = asked_format(ran)
        if ran.status == 0 and ran.out and name and not _helps(ran):
            READERS[name](ran.out)
        for path, data in ran.after.items():
            suffix = PurePosixPath(path).suffix.lower()
            if (
                path.startswith(WORK)
                and path[len(WORK) :] not in ran.case.files
                and not _is_hidden(path)
            ):
                FILES.get(suffix, bytes)(data)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    return None


@invariant
def leaves_inputs_alone(ran: Ran) -> str | None:
    """Inputs do not change; only outputs of an earlier run may be replaced."""
    for name, data in ran.case.files.items():
        if not isinstance(data, bytes) or name.startswith("old"):
            continue
        if ran.after.get(WORK + name) != data:
            return f"'{PurePosixPath(name).suffix}' input was {'changed' if WORK + name in ran.after else 'removed'}"  # noqa: E501  # fmt: skip
    return None


@invariant
def writes_nowhere_else(ran: Ran) -> str | None:
    """A new file is one that an option names, or a numbered file or a shard of it."""
    words = ran.case.argv
    asked = [PurePosixPath(word) for word in (*words, *(w.partition("=")[2] for w in words))]
    names = {(place.stem, place.suffix) for place in asked} | {(place.name, "") for place in asked}
    for path in ran.after:
        inside = path.removeprefix(WORK)
        if inside in ran.case.files or _is_hidden(path) or path.startswith("tmp/"):
            continue
        new = PurePosixPath(path)
        if words[0] == "examples" and (new.parent.name, "") in names:  # it fills a folder
            continue
        whole = {new.stem, re.sub(r"-\d+$", "", new.stem)}
        if not any((stem, new.suffix) in names for stem in whole) and (new.name, "") not in names:
            return f"'{new.suffix}' file that nobody asked for"
    return None


@invariant
def writes_what_was_asked(ran: Ran) -> str | None:
    """A run with status 0 has written every file that options name."""
    command, *words = ran.case.argv
    if ran.status or ran.error or _helps(ran) or "--" in words or command not in COMMANDS:
        return None
    places = [set(item.opts) for item in parameters(command) if is_place(item)]
    new = [PurePosixPath(path) for path, data in ran.after.items() if data != b"old"]
    made = {path.name for path in new}
    made |= {re.sub(r"-\d+$", "", path.stem) + path.suffix for path in new}
    for names in places:
        given = [value for option, value in pairwise(words) if option in names]
        # Of an option that is given twice, by whatever name, the last one counts.
        if (
            given
            and not given[-1].startswith("/dev/")
            and PurePosixPath(given[-1]).name not in made
        ):
            return f"{min(names)} made no file"
    return None


@invariant
def leaves_nothing_behind(ran: Ran) -> str | None:
    """No file in the making stays, unless it is said that it can be continued.

    A journal stays where it has to say that records failed.
    """
    if GONE_ON in ran.err.decode("utf-8", "replace"):
        return None
    left = [
        path
        for path in ran.after
        if _is_hidden(path)
        and path.removeprefix(WORK) not in ran.case.files
        and not (ran.status == 1 and path.endswith(".journal"))
    ]
    if "--open" not in ran.case.argv:
        left += [path for path in ran.after if path.startswith("tmp/")]
    kinds = sorted(
        {re.sub(r"[A-Za-z0-9_]{8}$", "", PurePosixPath(path).name)[-20:] for path in left}
    )
    return f"left: {kinds}" if left else None


@invariant
def ignores_no_empty_value(ran: Ran) -> str | None:
    """An option whose value is empty is a mistake in the command line."""
    last = {name: value for name, *value in ran.case.groups[1:]}  # which of two is heeded
    empty = [name for name, value in last.items() if value == [""] and name[:1] == "-"]
    if ran.error or ran.status == 2 or not empty or "--" in ran.case.argv:
        return None
    return f"{empty[0]} '' is heeded with status {ran.status}"


@invariant
def picks_fields_that_exist(ran: Ran) -> str | None:
    """A field of --fields is one that documents have."""
    argv = ran.case.argv
    wrong = ("--fields", "head.layer") in pairwise(argv) or ("--fields", "no.x") in pairwise(argv)
    wrong = wrong and not _helps(ran)
    return f"status {ran.status}, {ran.out[:99]!r}" if wrong and ran.status == 0 else None


@invariant
def stays_small(ran: Ran) -> str | None:
    """Memory stays below a limit."""
    return f"{ran.resident >> 20} MiB" if ran.resident > MOST_RESIDENT else None


@invariant
def asks_no_network(ran: Ran) -> str | None:
    """No run opens a connection."""
    if any(word.startswith("ray:") for word in ran.case.argv):
        return None
    return ", ".join(sorted({act for act in ran.acts if act.startswith("socket.")})) or None


@invariant
def runs_nothing_foreign(ran: Ran) -> str | None:
    """A run executes no code of a file, no pickle and no other program, unless an option asks."""
    asked = {word for word in ran.case.argv if word in TRUSTING}
    acts = {act for act in ran.acts if not act.startswith("socket.")} if not asked else ()
    return ", ".join(sorted(acts)) or None


TRUSTING = {"--allow", "--open", "--workers", "watch"}
"""What asks for a file's code, a browser, or processes, which send each other
pickles."""


def _last_words(ran: Ran) -> str:
    return ran.err.decode("utf-8", "replace").strip().split("\n")[-1][:200]


def _is_hidden(path: str) -> bool:
    # What is hidden because it was asked for is a result.
    return PurePosixPath(path).name.startswith(".") and PurePosixPath(path).name not in (".json",)


def _helps(ran: Ran) -> bool:
    return any(word in ("--help", "--help-all", "-h") for word in ran.case.argv)


def asked_format(ran: Ran) -> str | None:
    """What --format asks for; None: nothing, so that stdout is for the eye."""
    argv = ran.case.argv
    if "--diagram" in argv:
        return None
    found = None
    for option, value in pairwise(argv):
        if option in ("-f", "--format"):
            found = value
    return found if found in FORMATS else None


def _binary(ran: Ran) -> bool:
    name = asked_format(ran)
    return bool(name and FORMATS[name].binary)


# Readers raise where the bytes are not what they are called.


def _json(data: bytes) -> None:
    json.loads(data)


def _json_lines(data: bytes) -> None:
    for line in data.splitlines():
        json.loads(line)


def _rows(data: bytes) -> None:
    lines = data.decode().split("\n")
    widths = {line.count("\t") for line in lines[:-1]}
    assert lines[-1] == "", "the last line does not end"
    assert len(widths) == 1, f"rows of {sorted(widths)} tabs"


def _comma_rows(data: bytes) -> None:
    widths = {len(row) for row in csv.reader(io.StringIO(data.decode()), strict=True)}
    assert len(widths) == 1, f"rows of {sorted(widths)} fields"


def _archive(data: bytes) -> None:
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        for name in archive.files:
            archive[name]


def _parquet(data: bytes) -> None:
    import pyarrow.parquet as pq

    pq.read_table(io.BytesIO(data))


def _links(data: bytes) -> None:
    for line in data.decode().splitlines():
        assert re.fullmatch(r"(\d+-\d+( \d+-\d+)*)?", line), f"no links: {line[:80]!r}"


def _grid(data: bytes) -> None:
    assert data.decode().startswith('File type = "ooTextFile"\n'), "no TextGrid"


def _cues(data: bytes) -> None:
    assert data.decode().startswith("WEBVTT\n"), "no WebVTT"


def _nothing(data: bytes) -> None:
    assert not data, "something was written"


def _text(data: bytes) -> None:
    data.decode()


def _picture(data: bytes) -> None:
    Image.open(io.BytesIO(data)).load()


def _svg(data: bytes) -> None:
    for item in ElementTree.fromstring(data).iter():
        assert not item.tag.endswith("script"), "a script in a picture"
        for name, value in item.attrib.items():
            asks = name.endswith("href") and not value.startswith(("#", "data:"))
            assert not asks, f"a picture that asks for {value[:80]!r}"
            assert not name.startswith("on"), f"a picture that acts: {name}"


def _pdf(data: bytes) -> None:
    assert data.startswith(b"%PDF-"), "no PDF"
    assert data.rstrip().endswith(b"%%EOF"), "a PDF without its end"
    assert b"/JavaScript" not in data, "a script in a PDF"


class _Page(HTMLParser):
    """Refuses whatever a page would ask a network for, and tags that no page of ours holds."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("iframe", "object", "embed", "base", "form"), f"<{tag}> in a page"
        for name, value in attrs:
            asks = name in ("src", "href", "action", "srcset") and not (value or "").startswith(("#", "data:"))  # noqa: E501  # fmt: skip
            assert not asks, f"a page that asks for {str(value)[:80]!r}"
            assert not name.startswith("on"), f"a page that acts: {name}"


def page(data: bytes) -> None:
    """Refuse a page that makes requests, or that has a tag which came from a token."""
    text = data.decode()
    reader = _Page()
    reader.feed(text)
    reader.close()
    assert text.rstrip().endswith("</html>"), "a page without its end"


READERS: dict[str, Callable[[bytes], None]] = {
    "json": _json,
    "jsonl": _json_lines,
    "csv": _comma_rows,
    "tsv": _rows,
    "npz": _archive,
    "parquet": _parquet,
    "pharaoh": _links,
    "textgrid": _grid,
    "vtt": _cues,
    "none": _nothing,
    **dict.fromkeys(("table", "heatmap", "grid", "links"), _text),
}
"""What reads each format; a new one without a reader fails in `test_invariants.py`."""
FILES: dict[str, Callable[[bytes], object]] = {
    **{
        entry.suffix: READERS[name]
        for name, entry in FORMATS.items()
        if entry.suffix and name not in ("table", "pharaoh")
    },
    ".txt": _text,
    ".png": _picture,
    ".svg": _svg,
    ".pdf": _pdf,
    ".html": page,
    ".htm": page,
}
