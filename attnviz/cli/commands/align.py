"""attnviz align, and `cross` where it is asked for alignments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnviz.analyses.alignment import SYMMETRIZATIONS, Links, pharaoh, read_gold
from attnviz.cli.commands.listings import listing
from attnviz.cli.options import CHOICE, OUTPUT, with_options
from attnviz.core.errors import AttnvizError, InputError
from attnviz.core.options import Options, opt

if TYPE_CHECKING:
    from attnviz.cli.report import Report
    from attnviz.renderers.reports import Data
    from attnviz.runs.many_texts import Record
    from attnviz.runs.word_alignment import Aligned

    Outcome = tuple[Record, Aligned | AttnvizError]

HOW = "How two directions are joined: {choices}."
SYMMETRIZE = opt(CHOICE, "--symmetrize HOW", HOW, choices=tuple(SYMMETRIZATIONS))
SIDE = "Whether a decoder row stands for the token it reads (input) or predicts (output)."
AGAINST = opt(CHOICE, "--against SIDE", SIDE, default="input", choices=("input", "output"))
GOLD = "Correct links, a line a pair (0-0 sure, 1?1 possible), to score every layer and head."
SCORE = opt(OUTPUT, "--score GOLD", GOLD)


def run_alignment(
    pairs: Iterable[Record],
    options: Options,
    file: str | None,
    how: str | None,
    against: str,
    score: Path | None,
    *,
    many: bool,
) -> int:
    """Write the links of each pair, or with a gold file the scores; answers the status."""
    from attnviz.cli.report import Report
    from attnviz.cli.run import count_texts, more_of_stdin, sharing
    from attnviz.models.open import check_origin
    from attnviz.runs.engines import open_engine
    from attnviz.runs.many_texts import chunk_name, with_records, with_shards
    from attnviz.runs.pipeline import check_choice
    from attnviz.runs.word_alignment import AlignChunk
    from attnviz.storage.texts import chunks

    choice = options.choice
    check_choice(choice)
    check_origin(options.origin, "cross")
    gold = None if score is None else read_gold_file(score)
    batch_size = options.many.batch_size
    work = AlignChunk(options.origin, choice.layer, choice.head, how, against, batch_size)
    kind, several = ("alignment", many) if gold is None else ("scores", False)
    total = partial(count_texts, file, "cross", options) if many else None
    with (
        Report(options, kind, many=several) as report,  # type: ignore[arg-type]
        open_engine(*sharing(options)) as engine,
        report.counted(total) as advance,
    ):
        read = chunks(pairs, ready=more_of_stdin(file))
        found = _counting(with_records(with_shards(work, read, engine, chunk_name)), advance)
        if gold is None:
            number, doubtful = -1, []
            for number, (record, aligned) in enumerate(found):
                # One without links gets a line too, so that each stays beside its pair.
                data = links_data(getattr(record, "id", str(number)), aligned)
                if isinstance(aligned, AttnvizError):
                    report.skip(record, aligned)
                    report.add_blank(data)
                else:
                    report.add(data)
                    doubtful += [record] * (not aligned.reliable)
            say_unreliable(doubtful, number + 1, report)
        else:
            write_scores(found, gold, report)
        report.finish("done")
    return report.status


def _counting(found: Iterable[Outcome], advance: Callable[[int], None]) -> Iterator[Outcome]:
    for outcome in found:
        advance(1)
        yield outcome


COLUMNS = ("id", "source_position", "source_word", "target_position", "target_word", "score")
MOST_NAMED = 10
"""Lines that a note names."""


def say_unreliable(records: Sequence[Record], done: int, report: Report) -> None:
    """Name the lines whose links cannot be relied on."""
    if records:
        file = records[0].where.partition(" of ")[2]
        named = [record.where.partition(" of ")[0] for record in records[:MOST_NAMED]]
        more = len(records) - len(named)
        where = f": {', '.join(named)}{f' and {more} more' * (more > 0)} of {file}" if file else ""
        report.say(
            f"the links of {len(records)} of {done} pair{'s' * (done > 1)} are unreliable (both "
            "directions hardly agree, or the pair lies outside what the model was trained for)"
            + where
        )


def links_data(name: str, aligned: Aligned | AttnvizError) -> Data:
    """The links of one pair as data."""
    from attnviz.renderers.data.maps import escape
    from attnviz.renderers.reports import Data
    from attnviz.storage.documents import dump_json

    links: list[tuple[int, int]] | None = None
    texts: tuple[str | None, str | None] = (None, None)
    score, more = None, dict[str, Any]()
    if not isinstance(aligned, AttnvizError):
        links, score = sorted(aligned.links), round(aligned.score, 4)
        texts = (aligned.forward.source, aligned.forward.target)
        more = {"reliable": aligned.reliable, "notes": aligned.forward.provenance.notes}
    source, target = ((text or "").split() for text in texts)
    rows = [(name, str(s), source[s], str(t), target[t], str(score)) for s, t in links or []]
    document = {"id": name, "source": texts[0], "target": texts[1], "links": links, "score": score}
    document |= more
    return Data(
        links=lambda: f"{pharaoh(frozenset(links or []))}\n",
        rows=lambda: "".join("\t".join(map(escape, row)) + "\n" for row in [COLUMNS, *rows]),
        document=lambda: dump_json(document) + "\n",
        value=links,
    )


def write_scores(
    found: Iterable[Outcome], gold: Sequence[tuple[Links, Links]], report: Report
) -> None:
    """Write precision, recall and error of every layer and head, best first, and of all."""
    from attnviz.runs.word_alignment import Scores

    scores, count = Scores(), 0
    for count, (record, aligned) in enumerate(found, 1):
        if count > len(gold):
            raise InputError(f"the gold file has {len(gold)} lines, fewer than there are pairs")
        if isinstance(aligned, AttnvizError):
            report.skip(record, aligned)
        else:
            scores.add(aligned, *gold[count - 1])
    if count < len(gold):
        raise InputError(f"the gold file has {len(gold)} lines for {count} pairs")
    rows = [("as asked", "", scores.chosen), *scores.rows()]
    columns = ("layer", "head", "precision", "recall", "alignment_error")
    cells = [
        (layer, head, score.precision, score.recall, score.error) for layer, head, score in rows
    ]
    report.add(listing(columns, cells, titled=True))


def read_gold_file(path: Path) -> list[tuple[Links, Links]]:
    """The sure and possible links of each line."""
    from attnviz.storage.matrices import read_bytes

    lines = read_bytes(path).decode("utf-8", "replace").splitlines()
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(read_gold(line))
        except InputError as error:
            raise InputError(f"line {number} of '{path}': {error}") from error
    return found


@with_options(
    *("model", "compute", "to", "long", "heads", "reading", "sharing"),
    writes=("alignment", "scores"),
)
def align(
    file: Annotated[
        str,
        typer.Argument(
            help="Pairs: .tsv, .txt (tab or ||| between), .jsonl or .csv, also .gz; - reads stdin."
        ),
    ] = "-",
    symmetrize: str | None = SYMMETRIZE,
    against: str = AGAINST,
    score: Path | None = SCORE,
    *,
    options: Options,
) -> None:
    """Align the words of sentence pairs: one Pharaoh line (0-0 2-1) per pair, in order.

    attnviz align sample_inputs/pairs.tsv --score sample_inputs/pairs.gold

    paste en.txt fr.txt | attnviz align - > links.txt
    """
    from attnviz.cli.inputs import texts_of

    pairs, _ = texts_of([], file, options.many, pairs=True, keep_blank=True)
    raise typer.Exit(run_alignment(pairs, options, file, symmetrize, against, score, many=True))
