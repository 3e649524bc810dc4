"""attnviz heads."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from attnviz.cli.destinations import PAGES
from attnviz.cli.options import BY_HELP, CHOICE, ORIGIN, OUTPUT, with_options
from attnviz.cli.report import Report
from attnviz.core.errors import UsageError
from attnviz.core.options import Options, opt, rare
from attnviz.features.corpus.study import CorpusJournal
from attnviz.features.heads import corpus
from attnviz.features.heads import request as head_measures
from attnviz.features.measures.study import ORDERS, ROLES
from attnviz.features.pruning.curve import Instead
from attnviz.features.treebank.request import report_relations
from attnviz.features.wiring.request import PAIRS, report_weights, report_wiring
from attnviz.models.open import brings_tokens
from attnviz.runs.inputs import TextInput, corpus_input, given_texts, texts_of
from attnviz.runs.readers import read_file_argument
from attnviz.runs.resumable import can_resume
from attnviz.storage.texts import Text


@with_options(
    *("model", "compute", "mechanism", "weights", "causal", "generate", "long"),
    *("stream", "heads", "labels", "special", "to", "show", "look", "reading"),
    *("sharing", "scores"),
    also=("resume",),
    writes=("heads", "corpus", "wiring"),
    rare=("generate", "to", "special", "show", "top"),
    draws={
        "overview": "all heads: roles and measures, or with --wiring what they read",
        "scatter": "heads in a plane, close if they attend alike",
        "curve": "the loss while heads are switched off one after another, with --effect",
    },
)
def heads(
    text: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TEXT]...",
            help="Texts, each in quotes; - reads stdin. Several give means with intervals.",
        ),
    ] = None,
    input_file: list[str] | None = opt(
        "Options",
        "--input -i FILE",
        "Read a corpus: .txt (one text a line), .jsonl, .csv, .tsv, each also .gz; - is stdin. Or "
        "a picture, or a folder of pictures. Repeatable.",
    ),
    cross: bool = opt(
        ORIGIN, "--cross", "The texts are pairs: measure how each target attends to its source."
    ),
    no_repeat: bool = rare(
        ORIGIN,
        "--no-repeat",
        "Skip the second run over repeated random words, which induction is measured on.",
    ),
    treebank: str | None = rare(
        ORIGIN,
        "--treebank FILE",
        "Sentences with dependencies (.conllu), to show which head finds which relation.",
    ),
    role: str | None = opt(
        CHOICE, "--role NAME", "Only heads with this role: {choices}.", choices=ROLES
    ),
    order: str = opt(
        CHOICE,
        "--sort NAME",
        "Order of the heads: role (clearest first), layer, or a measure (largest first).",
        default="role",
        choices=ORDERS,
    ),
    statistics: str = opt(
        CHOICE,
        "--statistics WHAT",
        "What the table of a corpus holds: {choices}. json and npz hold all of it.",
        default="measures",
        choices=corpus.STATISTICS,
    ),
    top: int | None = opt(
        CHOICE,
        "--top N",
        "How many heads (with --wiring: pairs) to list; by default all heads, 20 pairs.",
        min=1,
    ),
    effect: bool = opt(
        CHOICE,
        "--effect",
        "Switch off each head by itself and measure the drop in log p of the output, in nats.",
    ),
    by: Instead = rare(CHOICE, "--by HOW", BY_HELP, default="zero"),
    writes: bool = rare(
        CHOICE, "--writes", "Show the tokens that each head argues for most, by their logits."
    ),
    probe: bool = rare(
        CHOICE,
        "--probe",
        "Also measure which heads find a word again, and which carry a task from examples.",
    ),
    similar: bool = opt(
        CHOICE, "--similar", "Show instead which heads attend alike, by Jensen-Shannon divergence."
    ),
    wiring: bool = opt(
        CHOICE,
        "--wiring",
        "Show instead which heads read which heads: what moves if one cannot read another.",
    ),
    weights_only: bool = rare(
        CHOICE, "--weights-only", "Compare the weights alone for --wiring, without a text."
    ),
    frequencies: Path | None = rare(
        CHOICE,
        "--frequencies FILE",
        "How frequent words are: word, tab, count on each line. By default counted in the corpus.",
    ),
    atlas: Path | None = opt(
        OUTPUT,
        "--atlas PAGE",
        "Page to browse all heads, with texts in which each attends strongly, usually, weakly.",
    ),
    *,
    options: Options,
) -> None:
    """Show what each head does in a text or a corpus, and what uniform attention would give.

    Of several texts each number is a mean over them, with a 95 % interval.

    attnviz heads "The cat sat on the mat" --role previous-token -f tsv

    attnviz heads -i sentences.txt --statistics positions

    attnviz heads -i sentences.txt -o heads.npz --atlas atlas.html

    attnviz heads -i pairs.tsv --cross --effect --sort effect --picture curve:curve.png

    attnviz heads "Tom likes dogs. Mary likes cats. Tom likes" --wiring --model pocket-lm

    attnviz heads --treebank relations.conllu
    """
    options.choice.check_names()
    output, pictures = options.output, options.pictures
    request = head_measures.HeadsRequest(
        cross=cross,
        role=role,
        order=order,
        effect=effect,
        writes=writes,
        probe=probe,
        by=by,
        repeat=not no_repeat and bool(not similar or any(pictures.values())),
        similar=similar,
        compares=bool(similar or pictures["scatter"]),
        statistics=statistics,
        top=top,
        frequencies=frequencies,
        overview=bool(pictures["overview"] or output.show),
        curve=pictures["curve"] is not None,
        atlas=atlas is not None,
        archive=output.format == "npz" or getattr(output.output, "suffix", "") == ".npz",
    )
    modes: dict[str, object] = {
        "--role": role,
        "--similar": similar,
        "--sort": order != "role",
        "--effect": effect,
    }
    modes |= {"--writes": writes, "--probe": probe, "--no-repeat": no_repeat, "--atlas": atlas}
    modes |= {"--statistics": statistics != "measures", "--frequencies": frequencies}
    texts, files = text or [], input_file or []
    of_texts = {"TEXT": texts, "--input": files}
    if treebank is not None:
        others = {**of_texts, **modes, "--picture": output.picture, "--wiring": wiring}
        head_measures.check_alone("--treebank", {**others, "--cross": cross, "--top": top})
        head_measures.check_heads(options, request.command)
        with Report(options, "heads") as report:
            report_relations(treebank, options, report)
        raise typer.Exit(report.status)
    if weights_only and not wiring:
        raise UsageError("--weights-only compares weights for --wiring: add it")
    if wiring:
        others = {f"--picture {name}:FILE": pictures[name] for name in ("scatter", "curve")}
        others |= {"--special": options.choice.special != "keep", "--resume": options.many.resume}
        others["--labels"] = options.choice.token_groups or options.choice.labels
        head_measures.check_alone("--wiring", {**modes, **others})
        if weights_only:
            head_measures.check_alone("--weights-only", of_texts)
        head_measures.check_heads(options, request.command)
        options = replace(options, pictures={"plot": pictures["overview"]})
        file = read_file_argument(files[0], None) if len(files) == 1 else None
        with Report(options, "wiring") as report:
            if weights_only:
                report_weights(top or PAIRS, options, report)
            else:
                inputs, kind = file or (_inputs(texts, files, options, cross=cross), None)
                kind = kind or corpus.command_of(request, inputs)
                report_wiring(inputs, kind, top or PAIRS, options, report)
        raise typer.Exit(report.status)
    inputs = _inputs(texts, files, options, cross=cross)
    if request.reads_corpus(inputs):
        report = _report_corpus(request, inputs, options, atlas)
    else:
        head_measures.check_heads(options, request.command)
        if options.many.resume:
            raise NOT_RESUMED
        with Report(options, "heads") as report:
            head_measures.report_heads(request, inputs, options, report)
    raise typer.Exit(report.status)


NOT_RESUMED = UsageError(
    "--resume continues an interrupted run: give the texts as a file, and -o FILE, --picture FILE "
    "or --atlas PAGE"
)


def _inputs(texts: list[str], files: list[str], options: Options, *, cross: bool) -> TextInput:
    if texts and files:
        raise UsageError("both TEXT and --input were given: give one")
    if files:
        return corpus_input(files, options.many, pairs=cross)
    if cross and len(texts) > 2:
        raise UsageError("--cross takes one source and one target: give more by --input FILE")
    # A file of weights can bring its own tokens.
    if brings_tokens(options.origin) and not texts:
        return given_texts(Text("0", ""))
    return texts_of(texts, None, options.many, pairs=cross)


def _report_corpus(
    request: head_measures.HeadsRequest, inputs: TextInput, options: Options, atlas: Path | None
) -> Report:
    corpus.check_corpus(request, inputs, options)
    if atlas is not None:
        if atlas.suffix.lower() not in PAGES:
            raise UsageError(f"--atlas '{atlas}' names no page: end it in {' or '.join(PAGES)}")
        values = tuple((name, value) for name, value in options.given if name != "atlas")
        options = replace(options, given=values, output=replace(options.output, html=atlas))
    places = (options.output.output, *options.pictures.values(), atlas)
    output_file = next((path for path in places if path), None)
    journal = None
    if output_file is not None and can_resume(output_file) and inputs.file is not None:
        journal = CorpusJournal(output_file, corpus.question_of(request, inputs, options))
    elif options.many.resume:
        raise NOT_RESUMED
    with Report(options, "corpus") as report:
        corpus.report_corpus(request, inputs, options, report, journal=journal)
    return report
