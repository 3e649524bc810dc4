"""Saved maps through the same outputs as fresh ones, one by one."""

import io
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import chain, islice
from pathlib import Path
from typing import Any

from attnviz.commands.command import MAP_PICTURES, PLACES, RECORD, VIEW, Run, command
from attnviz.commands.run import report_all
from attnviz.core.attention_map import Attention
from attnviz.core.errors import InputError
from attnviz.core.options.option import arg
from attnviz.runs.pipeline import apply_choice, check_choice
from attnviz.storage.matrices import read_whole
from attnviz.storage.saved_maps import Opener, open_saved, openers, pick, read_all


def saved_texts(file: str, record: str | None) -> Iterator[Attention]:
    """Every saved text of a file or of stdin, at least one; or those of an id or a number."""
    where, files = "stdin" if file == "-" else f"'{file}'", files_of(file)
    maps = read_all(files) if record is None else iter(pick(files, record, where))
    first = next(maps, None)
    if first is None:
        raise InputError(f"{where} holds no maps")
    return chain([first], maps)


def files_of(file: str) -> list[Opener]:
    """What opens a file of saved maps, its shards, or what stdin holds."""
    if file != "-":
        return openers(Path(file))
    archive = open_saved(io.BytesIO(read_whole(sys.stdin.buffer, "stdin")), "stdin")
    return [lambda: nullcontext(archive)]


@command(*VIEW, *PLACES, draws=MAP_PICTURES)
def render(
    file: str = arg(
        "Saved maps (of shards the common name), arrays or alignments; - is stdin.", default=...
    ),
    *,
    record: str | None = RECORD,
    **options: Any,
) -> Any:
    """Turn saved attention into any other output, without a model.

    attnviz self "The cat sat" -f npz | attnviz render - --grid heads.png

    attnviz self --input sentences.txt -f npz -q | attnviz render - --record 2 -f links
    """
    run = Run("render", options)
    choice = run.options.choice
    check_choice(choice)
    maps = saved_texts(file, record)
    first = list(islice(maps, 2))
    with run.report(many=len(first) > 1) as report:
        texts = (apply_choice(item, choice) for item in chain(first, maps))
        count = report_all(((None, item) for item in texts), report)
        report.say_done(f"{count} text{'s' if count != 1 else ''}")
    return run.result
