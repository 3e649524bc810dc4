"""attnviz align, and `cross` where it is asked for alignments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnviz.cli.app import complain
from attnviz.cli.listing import listing
from attnviz.cli.options import READING, SHARING, Options, completing, with_options
from attnviz.cli.output import Draft, note, write_bytes
from attnviz.errors import InputError, choose
from attnviz.texts import BadText, Text

if TYPE_CHECKING:
    from attnviz.analyses.alignment import Links
    from attnviz.word_alignment import Aligner

Write = Callable[[bytes], None]
OTHER = {"en": "fr", "fr": "en"}
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
        str, typer.Argument(help="Pairs (.tsv, .txt, .jsonl), tab or ||| between; - reads stdin.")
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
    from attnviz.cli.input import texts_of

    choose(score_format, ("table", "tsv", "json"), "format")
    pairs, _ = texts_of([], file, pairs=True, keep_blank=True)
    asked = Alignment(symmetrize, against, score, score_format)
    raise typer.Exit(run_alignment(pairs, options, asked))


@dataclass(frozen=True, slots=True)
class Alignment:
    """What was asked of an alignment: how to join directions, and what to score it with."""

    symmetrize: str | None = None
    against: str = "input"
    score: Path | None = None
    score_format: str = "table"


def run_alignment(pairs: Iterable[Text | BadText], options: Options, asked: Alignment) -> int:
    """Write a line of links for each pair, or with a gold file the scores; answers the status.

    Raises:
        AttnvizError: nothing could be done.
    """
    from attnviz.pipeline import check_choice
    from attnviz.sources.open import check_origin, open_source
    from attnviz.word_alignment import Aligner

    check_choice(options.choice)
    check_origin(options.origin, "cross")
    gold = None if asked.score is None else read_gold_file(asked.score)
    path = options.output.output
    with Draft(path) if path else nullcontext() as draft:
        write = draft.write if draft else write_bytes
        source = open_source(options.origin, "cross")
        other = OTHER.get(options.origin.to or "")
        backward = open_source(replace(options.origin, to=other), "cross") if other else source
        aligner = Aligner(
            source=source,
            backward=backward,
            how=asked.symmetrize,
            against=asked.against,
            layer=options.choice.layer,
            head=options.choice.head,
        )
        if gold is None:
            failed = write_links(aligner, pairs, write)
        else:
            failed = write_scores(aligner, pairs, gold, asked.score_format, write)
        if draft:
            draft.keep()
    if not options.output.quiet:
        for text in aligner.notes:
            note(text)
    return 1 if failed else 0


def write_links(aligner: Aligner, pairs: Iterable[Text | BadText], write: Write) -> int:
    """Write a line for each pair; answers how many could not be aligned.

    These give an empty line, so that every line stays beside its pair.
    """
    from attnviz.analyses.alignment import pharaoh

    failed = 0
    for pair in pairs:
        links = links_or_complaint(aligner, pair)
        failed += links is None
        write(f"{pharaoh(links or frozenset())}\n".encode())
    return failed


def links_or_complaint(aligner: Aligner, pair: Text | BadText) -> Links | None:
    """The pair's links, or None and a line on stderr that says why there are none."""
    try:
        if isinstance(pair, BadText):
            raise pair.error
        return aligner.links(pair)
    except InputError as error:
        known = isinstance(pair, BadText) or not pair.where
        complain(str(error) if known else f"{pair.where}: {error}")
        return None


def write_scores(
    aligner: Aligner,
    pairs: Iterable[Text | BadText],
    gold: Sequence[tuple[Links, Links]],
    output_format: str,
    write: Write,
) -> int:
    """Write precision, recall and error of every layer and head, best first, and of all as asked.

    Raises:
        InputError: the gold file has not a line for each pair.
    """
    from attnviz.word_alignment import Scores

    scores, failed, count = Scores(aligner), 0, 0
    for count, pair in enumerate(pairs, 1):
        if count > len(gold):
            raise InputError(f"the gold file has {len(gold)} lines, fewer than there are pairs")
        links = links_or_complaint(aligner, pair)
        if links is None or isinstance(pair, BadText):
            failed += 1
        else:
            scores.add(pair, links, *gold[count - 1])
    if count < len(gold):
        raise InputError(f"the gold file has {len(gold)} lines for {count} pairs")
    rows = [("as asked", "", scores.chosen), *scores.rows()]
    columns = ("layer", "head", "precision", "recall", "alignment_error")
    cells = [
        (layer, head, *(f"{x:.3f}" for x in (score.precision, score.recall, score.error)))
        for layer, head, score in rows
    ]
    write(listing(columns, cells, output_format, titled=True).encode())
    return failed


def read_gold_file(path: Path) -> list[tuple[Links, Links]]:
    """The sure and possible links of each line.

    Raises:
        InputError: the file cannot be read, or a line is no links.
    """
    from attnviz.analyses.alignment import read_gold
    from attnviz.storage.matrices import read_bytes

    lines = read_bytes(path).decode("utf-8", "replace").splitlines()
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(read_gold(line))
        except InputError as error:
            raise InputError(f"line {number} of '{path}': {error}") from error
    return found
