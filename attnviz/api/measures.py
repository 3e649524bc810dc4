"""What heads do in texts and corpora."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from attnviz.api import arguments
from attnviz.api.collected import Findings, collect
from attnviz.core.attention_map import Attention
from attnviz.core.errors import UsageError, choose, in_short
from attnviz.core.options import InMemoryMaps, Options
from attnviz.runs import head_measures
from attnviz.runs.corpus import SHOWS, CorpusJournal, CorpusRequest, report_corpus
from attnviz.runs.inputs import TextInput, corpus_input
from attnviz.storage.texts import Text

Maps = Attention | Sequence[Attention]  # results of `attend`, or maps that were loaded


@arguments.public
def heads(
    text: str | arguments.Texts | Maps | None = None,
    *,
    input: str | None = None,  # noqa: A002 - as the option is called
    cross: bool = False,
    no_repeat: bool = False,
    treebank: str | None = None,
    role: str | None = None,
    sort: str = "role",
    effect: bool = False,
    by: head_measures.Instead = "zero",
    writes: bool = False,
    probe: bool = False,
    similar: bool = False,
    **options: Unpack[arguments.HeadsOptions],
) -> Findings:
    """What each head does in some texts, beside what uniform attention would give.

    Args:
        text: a text, a list of texts or pairs, or results of `attend`.
        input: a file of texts instead: .txt (one a line), .jsonl, .csv or .tsv.
        cross: the texts are pairs: measure how targets attend to sources.
        no_repeat: leave out the second run, over random words said twice, that induction needs.
        treebank: a file of sentences with dependencies (.conllu): which head finds which relation.
        role: only heads of this role.
        sort: "role" (the clearest first), "layer", or a measure (the largest first).
        effect: switch off each head by itself, and measure what log p of the output loses.
        by: what a head that is off puts out instead.
        writes: find the tokens that each head argues for most, and how far its weights copy.
        probe: also measure which heads find a needle in random words, and carry the task of
            examples.
        similar: which heads look alike instead.
        options: those of `attnviz heads`, by name.

    Returns:
        One row for each head; pictures "overview" and "scatter".
    """
    request = head_measures.HeadsRequest(
        cross=cross,
        role=role,
        order=sort,
        effect=effect,
        by=by,
        writes=writes,
        probe=probe,
        repeat=not (no_repeat or similar),
        similar=similar,
        compares=True,
    )
    how = arguments.read_options(options)
    maps: Any = tuple(text) if isinstance(text, list | tuple) else (text,)
    if maps and all(isinstance(one, Attention) for one in maps):
        how = replace(how, origin=replace(how.origin, weights=InMemoryMaps(maps)))
        text = [Text(one.id, one.text or one.source or "", one.target) for one in maps]
    head_measures.check_heads(how, request.command)
    if treebank is not None:
        others = {"text": text, "input": input, "role": role, "similar": similar}
        others |= {"no_repeat": no_repeat, "sort": sort != "role", "cross": cross}
        head_measures.check_treebank({**others, "effect": effect, "writes": writes, "probe": probe})
        with collect("heads", "heads", how) as report:
            head_measures.report_relations(treebank, how, report)
        return report.findings
    texts = arguments.read_texts("heads", text, input, how.many, pairs=cross)
    with collect("heads", "heads", how) as report:
        head_measures.report_heads(request, texts, how, report)
    return report.findings


@arguments.public
def corpus(
    file: str | Path | arguments.Texts,
    more: Sequence[str | Path] = (),
    *,
    cross: bool = False,
    show: str = "measures",
    sort: str = "role",
    effect: bool = False,
    by: head_measures.Instead = "zero",
    top: arguments.Positive | None = None,
    frequencies: Path | None = None,
    curve: bool = False,
    atlas: bool = False,
    wiring: bool = False,
    checkpoint: Path | None = None,
    **options: Unpack[arguments.CorpusOptions],
) -> Findings:
    """What each head does over a whole corpus, with intervals.

    Args:
        file: a file of texts, a picture, a folder of pictures, or a list of texts or pairs.
        more: further pictures and folders.
        cross: the texts are pairs of source and target.
        show: what tables and rows hold: measures, positions, classes, pairs or links.
        sort: "role" (the clearest first), "layer", or a measure (the largest first).
        effect: switch off each head by itself, and measure what log p of the output loses.
        by: what a head that is off puts out instead.
        top: heads in tables and rows, the first as sorted; None: all.
        frequencies: a file of words and counts; None: words are as frequent as in the texts.
        curve: also draw the loss while heads are switched off one after another.
        atlas: also make a page with texts in which a head attends strongly, usually and weakly.
        wiring: find which heads read which heads instead, `top` pairs in a table.
        checkpoint: a file beside which the state is kept: the same call after an interruption
            continues from there.
        options: those of `attnviz corpus`, by name.

    Returns:
        One row for each head; pictures "overview" and, if it was asked for, "curve"; with
        `atlas` a page.
    """
    choose(show, SHOWS, "show")
    request = CorpusRequest(
        cross=cross,
        order=sort,
        effect=effect,
        by=by,
        show=show,
        top=top,
        frequencies=frequencies,
        curve=curve,
        samples=atlas,
        wiring=wiring,
    )
    how = arguments.read_options(options)
    inputs = _corpus_of(file, more, how, pairs=cross)
    request.check(inputs, how)
    journal = None
    if checkpoint is not None:
        if inputs.file is None:
            raise UsageError("checkpoint= continues a run over a file: give the texts as a file")
        journal = CorpusJournal(checkpoint, request.question(inputs, how))
        how = replace(how, many=replace(how.many, resume=True))
    with collect("corpus", "corpus", how) as report:
        report_corpus(request, inputs, how, report, journal=journal)
    return report.findings


def _corpus_of(file: Any, more: Sequence[str | Path], how: Options, *, pairs: bool) -> TextInput:
    if isinstance(file, str | Path):
        if not isinstance(more, list | tuple) or not all(isinstance(n, str | Path) for n in more):
            raise UsageError(f"more={in_short(more)} is no list of files")
        return corpus_input([str(one) for one in (file, *more)], how.many, pairs=pairs)
    return arguments.read_texts("corpus", file, None, how.many)
