"""One run of `attnviz align`, or of `cross` where it is asked for alignments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from attnviz.analyses.alignment import Links, pharaoh, read_gold
from attnviz.cli.commands.listings import listing
from attnviz.cli.options import READING, SHARING, Options, completing, with_options
from attnviz.cli.output import Draft, different, write_bytes
from attnviz.cli.rejects import Failures, failures
from attnviz.cli.run import Notes, more_of_stdin, sharing
from attnviz.core.errors import AttnvizError, InputError, choose
from attnviz.core.notices import notices_to
from attnviz.models.open import check_origin
from attnviz.runs.engines import open_engine
from attnviz.runs.many_texts import AlignChunk, Record, chunk_name, with_records, with_shards
from attnviz.runs.pipeline import check_choice
from attnviz.runs.word_alignment import Aligned, Scores, check_alignment
from attnviz.storage.matrices import read_bytes
from attnviz.storage.texts import chunks

Write = Callable[[bytes], None]
Outcome = tuple[Record, Aligned | AttnvizError]


@dataclass(frozen=True, slots=True)
class Alignment:
    """What was asked of an alignment: how to join directions, and what to score it with."""

    symmetrize: str | None = None
    against: str = "input"
    score: Path | None = None
    score_format: str = "table"


def run_alignment(
    pairs: Iterable[Record], options: Options, asked: Alignment, file: str | None
) -> int:
    """Write a line of links for each pair, or with a gold file the scores; answers the status.

    Raises:
        AttnvizError: nothing could be done.
    """
    check_choice(options.choice)
    check_origin(options.origin, "cross")
    check_alignment(asked.symmetrize, asked.against)
    different(options.output.output, options.many.rejects)
    gold = None if asked.score is None else read_gold_file(asked.score)
    choice, path = options.choice, options.output.output
    work = AlignChunk(
        *(options.origin, choice.layer, choice.head, asked.symmetrize, asked.against),
        options.many.batch_size,
    )
    say = None if options.output.quiet else Notes().say
    with (
        failures(options) as failed,
        Draft(path) if path else nullcontext() as draft,
        open_engine(*sharing(options)) as engine,
        notices_to(say),
    ):
        write = draft.write if draft else write_bytes
        read = chunks(pairs, ready=more_of_stdin(file))
        found = with_records(with_shards(work, read, engine, chunk_name))
        if gold is None:
            write_links(found, failed, write)
        else:
            write_scores(found, failed, gold, asked.score_format, write)
        if draft:
            draft.keep()
    return 1 if failed.count else 0


def write_links(found: Iterable[Outcome], failures: Failures, write: Write) -> None:
    """Write a line for each pair.

    One that could not be aligned gives an empty line, so that every line stays beside its pair.
    """
    for record, aligned in found:
        if isinstance(aligned, AttnvizError):
            failures.add(record, aligned)
            write(b"\n")
        else:
            write(f"{pharaoh(aligned.links)}\n".encode())


def write_scores(
    found: Iterable[Outcome],
    failures: Failures,
    gold: Sequence[tuple[Links, Links]],
    output_format: str,
    write: Write,
) -> None:
    """Write precision, recall and error of every layer and head, best first, and of all as asked.

    Raises:
        InputError: the gold file has not a line for each pair.
    """
    scores, count = Scores(), 0
    for count, (record, aligned) in enumerate(found, 1):
        if count > len(gold):
            raise InputError(f"the gold file has {len(gold)} lines, fewer than there are pairs")
        if isinstance(aligned, AttnvizError):
            failures.add(record, aligned)
        else:
            scores.add(aligned, *gold[count - 1])
    if count < len(gold):
        raise InputError(f"the gold file has {len(gold)} lines for {count} pairs")
    rows = [("as asked", "", scores.chosen), *scores.rows()]
    columns = ("layer", "head", "precision", "recall", "alignment_error")
    cells = [
        (layer, head, *(f"{x:.3f}" for x in (score.precision, score.recall, score.error)))
        for layer, head, score in rows
    ]
    write(listing(columns, cells, output_format, titled=True).encode())


def read_gold_file(path: Path) -> list[tuple[Links, Links]]:
    """The sure and possible links of each line.

    Raises:
        InputError: the file cannot be read, or a line is no links.
    """
    lines = read_bytes(path).decode("utf-8", "replace").splitlines()
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(read_gold(line))
        except InputError as error:
            raise InputError(f"line {number} of '{path}': {error}") from error
    return found


# <align> attnviz align.

WAYS = ("forward", "reverse", "intersection", "union", "grow-diag-final-and", "product")

SymmetrizeOption = Annotated[
    str | None,
    typer.Option(
        "--symmetrize",
        metavar="HOW",
        help="forward, reverse, intersection, union, grow-diag-final-and or product.",
        autocompletion=completing(WAYS),
    ),
]
AgainstOption = Annotated[
    str,
    typer.Option(
        "--against",
        metavar="SIDE",
        help="A decoder row stands for the token it has read (input) or predicts (output).",
        autocompletion=completing(("input", "output")),
    ),
]
ScoreOption = Annotated[
    Path | None,
    typer.Option(
        "--score",
        metavar="GOLD",
        help="Lines of links by hand (0-0 sure, 1?1 possible): score every layer and head.",
    ),
]


FormatOption = Annotated[
    str,
    typer.Option("--format", "-f", metavar="NAME", help="Of --score: table, tsv or json."),
]


@with_options(
    without=(
        *(
            "generate",
            "chat",
            "weights",
            "causal",
            "size",
            "heads",
            "seed",
            "mechanism",
            "lens",
            "explain",
            "stream",
            "reduce",
        ),
        *("over", "labels", "format", "heatmap", "grid", "links", "html", "open_page", "top"),
        *("keep_qk", "group", "words", "rows", "window"),
    ),
    many=(*READING, *SHARING),
)
def align(
    file: Annotated[
        str,
        typer.Argument(
            help="Pairs: .tsv, .txt (tab or ||| between), .jsonl or .csv, also .gz; - reads stdin."
        ),
    ] = "-",
    symmetrize: SymmetrizeOption = None,
    against: AgainstOption = "input",
    score: ScoreOption = None,
    score_format: FormatOption = "table",
    *,
    options: Options,
) -> None:
    """Align the words of sentence pairs: a Pharaoh line (0-0 2-1) a pair, in order.

    attnviz align sample_inputs/pairs.tsv --score sample_inputs/pairs.gold

    paste en.txt fr.txt | attnviz align - > links.txt
    """
    from attnviz.cli.inputs import reading, texts_of

    choose(score_format, ("table", "tsv", "json"), "format")
    pairs, _ = texts_of([], file, pairs=True, keep_blank=True, **reading(options))
    asked = Alignment(symmetrize, against, score, score_format)
    raise typer.Exit(run_alignment(pairs, options, asked, file))
