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
from attnviz.features.corpus.study import CorpusJournal
from attnviz.features.heads import request as head_measures
from attnviz.features.heads.corpus import (
    STATISTICS,
    check_corpus,
    command_of,
    question_of,
    report_corpus,
)
from attnviz.features.pruning.curve import Instead
from attnviz.features.treebank.request import report_relations
from attnviz.features.wiring.request import PAIRS, report_weights, report_wiring
from attnviz.runs.inputs import TextInput, corpus_input, given_texts
from attnviz.storage.texts import Text

Maps = Attention | Sequence[Attention]  # results of `attend`, or maps that were loaded


@arguments.public
def heads(
    text: str | arguments.Texts | Maps | None = None,
    *,
    input: str | Path | Sequence[str | Path] | None = None,  # noqa: A002 - as the option is called
    cross: bool = False,
    no_repeat: bool = False,
    treebank: str | None = None,
    role: str | None = None,
    sort: str = "role",
    statistics: str = "measures",
    top: arguments.Positive | None = None,
    effect: bool = False,
    by: Instead = "zero",
    writes: bool = False,
    probe: bool = False,
    similar: bool = False,
    wiring: bool = False,
    weights_only: bool = False,
    frequencies: Path | None = None,
    prune_curve: bool = False,
    atlas: bool = False,
    checkpoint: Path | None = None,
    **options: Unpack[arguments.HeadsOptions],
) -> Findings:
    """What each head does in a text or a corpus, beside what uniform attention would give.

    Args:
        text: a text, a list of texts or pairs, or results of `attend`. Of a list each number is a
            mean over its texts, with an interval.
        input: a corpus instead: a file of texts (.txt, one a line, .jsonl, .csv or .tsv), a picture
            or a folder of pictures, or several of these.
        cross: the texts are pairs: measure how targets attend to sources.
        no_repeat: leave out the second run, over random words said twice, that induction needs.
        treebank: a file of sentences with dependencies (.conllu): which head finds which relation.
        role: only heads of this role.
        sort: "role" (the clearest first), "layer", or a measure (the largest first).
        statistics: what tables and rows of a corpus hold: measures, positions, classes, pairs or
            links.
        top: heads in tables and rows, the first as sorted, or pairs of heads; None: all, 20 pairs.
        effect: switch off each head by itself, and measure what log p of the output loses.
        by: what a head that is off puts out instead.
        writes: find the tokens that each head argues for most, and how far its weights copy.
        probe: also measure which heads find a needle in random words, and carry the task of
            examples.
        similar: which heads look alike instead.
        wiring: which heads read which heads instead: what moves if one cannot read another.
        weights_only: compare the weights alone for `wiring`, without a text.
        frequencies: a file of words and counts; None: words are as frequent as in the corpus.
        prune_curve: also draw the loss while heads are switched off one after another.
        atlas: also make a page with texts in which a head attends strongly, usually and weakly.
        checkpoint: a file beside which the state is kept: the same call after an interruption
            continues from there.
        options: those of `attnviz heads`, by name.

    Returns:
        One row for each head; pictures "overview" and, of one text, "scatter", of a corpus, if it
        was asked for, "curve"; with `atlas` a page. With `wiring` one row for each pair and side;
        the picture "plot".
    """
    choose(statistics, STATISTICS, "statistics")
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
        statistics=statistics,
        top=top,
        frequencies=frequencies,
        curve=prune_curve,
        atlas=atlas,
    )
    how = arguments.read_options(options)
    of_texts = {"text": text, "input": input}
    others = {"role": role, "similar": similar, "no_repeat": no_repeat, "sort": sort != "role"}
    others |= {"effect": effect, "writes": writes, "probe": probe, "atlas": atlas}
    others |= {"statistics": statistics != "measures", "prune_curve": prune_curve}
    if treebank is not None:
        head_measures.check_alone(
            "treebank", {**of_texts, **others, "cross": cross, "wiring": wiring}
        )
        head_measures.check_heads(how, request.command)
        with collect("heads", "heads", how) as report:
            report_relations(treebank, how, report)
        return report.findings
    if weights_only and not wiring:
        raise UsageError("weights_only= compares weights for wiring=True: add it")
    if wiring:
        head_measures.check_alone("wiring", others)
    if weights_only:
        head_measures.check_alone("weights_only", of_texts)
        with collect("heads", "wiring", how) as report:
            report_weights(top or PAIRS, how, report)
        return report.findings
    maps: Any = tuple(text) if isinstance(text, list | tuple) else (text,)
    if maps and all(isinstance(one, Attention) for one in maps):
        if wiring:
            raise UsageError("wiring= follows what a model writes: give a text and its model")
        how = replace(how, origin=replace(how.origin, weights=InMemoryMaps(maps)))
        records = [Text(one.id, one.text or one.source or "", one.target) for one in maps]
        inputs = given_texts(*records)
    else:
        inputs = _read_inputs(text, input, how, pairs=cross)
    if wiring:
        check_corpus(request, inputs, how)
        with collect("heads", "wiring", how) as report:
            report_wiring(inputs, command_of(request, inputs), top or PAIRS, how, report)
        return report.findings
    if request.reads_corpus(inputs):
        return _measure_corpus(request, inputs, how, checkpoint)
    if checkpoint is not None:
        raise NO_CHECKPOINT
    request = replace(request, compares=True if request.similar else None)
    head_measures.check_heads(how, request.command)
    with collect("heads", "heads", how) as report:
        head_measures.report_heads(request, inputs, how, report)
    return report.findings


NO_CHECKPOINT = UsageError("checkpoint= continues a run over a file: give the texts as a file")


def _read_inputs(text: Any, files: Any, how: Options, *, pairs: bool) -> TextInput:
    if files is None:
        return arguments.read_texts("heads", text, None, how.many, pairs=pairs)
    if text is not None:
        raise UsageError("both text= and input= were given: give one")
    names = files if isinstance(files, list | tuple) else [files]
    if not names or not all(isinstance(name, str | Path) for name in names):
        raise UsageError(f"input={in_short(files)} is no file and no list of files")
    return corpus_input([str(name) for name in names], how.many, pairs=pairs)


def _measure_corpus(
    request: head_measures.HeadsRequest, inputs: TextInput, how: Options, checkpoint: Path | None
) -> Findings:
    check_corpus(request, inputs, how)
    journal = None
    if checkpoint is not None:
        if inputs.file is None:
            raise NO_CHECKPOINT
        journal = CorpusJournal(checkpoint, question_of(request, inputs, how))
        how = replace(how, many=replace(how.many, resume=True))
    with collect("heads", "corpus", how) as report:
        report_corpus(request, inputs, how, report, journal=journal)
    return report.findings
