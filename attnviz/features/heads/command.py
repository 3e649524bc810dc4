"""attnviz heads."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from attnviz.cli.destinations import PAGES
from attnviz.commands.arguments import Texts, read_texts
from attnviz.commands.command import BY_HELP, CHOICE, ORIGIN, OUTPUT, Run, command
from attnviz.commands.findings import Findings
from attnviz.core.attention_map import Attention
from attnviz.core.errors import UsageError, choose, in_short
from attnviz.core.options import InMemoryMaps
from attnviz.core.options.option import arg, opt, rare
from attnviz.features.corpus.study import CorpusJournal
from attnviz.features.heads import corpus
from attnviz.features.heads.request import HeadsRequest, check_alone, check_heads, report_heads
from attnviz.features.measures.study import ORDERS, ROLES
from attnviz.features.pruning.curve import Instead
from attnviz.features.treebank.request import report_relations
from attnviz.features.wiring.request import PAIRS, report_weights, report_wiring
from attnviz.models.open import brings_tokens
from attnviz.runs.inputs import TextInput, corpus_input, given_texts, texts_of
from attnviz.runs.readers import read_file_argument
from attnviz.runs.resumable import can_resume
from attnviz.storage.texts import Text

Maps = Attention | Sequence[Attention]  # results of `attend`, or maps that were loaded
Files = str | Path | Sequence[str | Path]


@command(
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
    text: str | Texts | Maps | None = arg(
        "Texts, each in quotes; - reads stdin. Several give means with intervals.",
        "[TEXT]...",
        shell=list[str] | None,
        python="a text, a list of texts or pairs, or results of `attend`. Of a list each number is "
        "a mean over its texts, with an interval.",
    ),
    *,
    input: Files | None = opt(  # noqa: A002 - as the option is called
        "Options",
        "--input -i FILE",
        "Read a corpus: .txt (one text a line), .jsonl, .csv, .tsv, each also .gz; - is stdin. Or "
        "a picture, or a folder of pictures. Repeatable.",
        shell=list[str] | None,
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
    sort: str = opt(
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
    atlas: Path | bool | None = opt(
        OUTPUT,
        "--atlas PAGE",
        "Page to browse all heads, with texts in which each attends strongly, usually, weakly.",
        shell=Path | None,
        python="also make a page with texts in which a head attends strongly, usually and weakly.",
    ),
    prune_curve: bool = False,
    checkpoint: Path | None = None,
    **options: Any,
) -> Findings:
    """Show what each head does in a text or a corpus, and what uniform attention would give.

    Of several texts each number is a mean over them, with a 95 % interval.

    attnviz heads "The cat sat on the mat" --role previous-token -f tsv

    attnviz heads -i sentences.txt --statistics positions

    attnviz heads -i sentences.txt -o heads.npz --atlas atlas.html

    attnviz heads -i pairs.tsv --cross --effect --sort effect --picture curve:curve.png

    attnviz heads "Tom likes dogs. Mary likes cats. Tom likes" --wiring --model pocket-lm

    attnviz heads --treebank relations.conllu

    Args:
        prune_curve: also draw the loss while heads are switched off one after another.
        checkpoint: a file beside which the state is kept: the same call after an interruption
            continues from there.

    Returns:
        One row for each head; pictures "overview" and, of one text, "scatter", of a corpus, if it
        was asked for, "curve"; with `atlas` a page. With `wiring` one row for each pair and side;
        the picture "plot".
    """
    run = Run("heads", options)
    how, pictures = run.options, run.options.pictures
    how.choice.check_names()
    choose(statistics, corpus.STATISTICS, "statistics")
    output = how.output
    request = HeadsRequest(
        cross=cross,
        role=role,
        order=sort,
        effect=effect,
        writes=writes,
        probe=probe,
        by=by,
        repeat=not no_repeat and bool(not similar or any(pictures.values())),
        similar=similar,
        compares=bool(similar or pictures.get("scatter")),
        statistics=statistics,
        top=top,
        frequencies=frequencies,
        overview=bool(pictures.get("overview") or output.show),
        curve=prune_curve or pictures.get("curve") is not None,
        atlas=bool(atlas),
        archive=output.format == "npz" or getattr(output.output, "suffix", "") == ".npz",
    )
    modes: dict[str, object] = {"role": role, "similar": similar, "sort": sort != "role"}
    modes |= {"effect": effect, "writes": writes, "probe": probe, "no_repeat": no_repeat}
    modes |= {"atlas": atlas, "statistics": statistics != "measures", "frequencies": frequencies}
    modes = {run.spell(name): value for name, value in modes.items()}
    of_texts = {"TEXT" if run.in_shell else "text": text, run.spell("input"): input}
    if treebank is not None:
        others: dict[str, object] = {"--picture": output.picture, "prune_curve": prune_curve}
        others |= {run.spell("wiring"): wiring, run.spell("cross"): cross, run.spell("top"): top}
        check_alone(run.spell("treebank"), {**of_texts, **modes, **others})
        check_heads(how, request.command)
        with run.report("heads") as report:
            report_relations(treebank, how, report)
        return run.result
    if weights_only and not wiring:
        raise UsageError("--weights-only compares weights for --wiring: add it")
    if wiring:
        others = {f"--picture {name}:FILE": pictures.get(name) for name in ("scatter", "curve")}
        others |= {"--special": how.choice.special != "keep", "--resume": how.many.resume}
        others |= {"--labels": how.choice.token_groups or how.choice.labels}
        shell = others if run.in_shell else {"prune_curve": prune_curve}
        check_alone(run.spell("wiring"), {**modes, **shell})
        return _report_wiring(
            run, request, text, input, of_texts=of_texts, weights_only=weights_only
        )
    inputs = _inputs(run, text, input, cross=cross)
    if request.reads_corpus(inputs):
        return _report_corpus(run, request, inputs, atlas, checkpoint)
    if checkpoint is not None:
        raise NO_CHECKPOINT
    if not run.in_shell:
        request = replace(request, compares=True if similar else None)
    check_heads(run.options, request.command)
    if how.many.resume:
        raise NOT_RESUMED
    with run.report("heads") as report:
        report_heads(request, inputs, run.options, report)
    return run.result


NOT_RESUMED = UsageError(
    "--resume continues an interrupted run: give the texts as a file, and -o FILE, --picture FILE "
    "or --atlas PAGE"
)
NO_CHECKPOINT = UsageError("checkpoint= continues a run over a file: give the texts as a file")


def _report_wiring(
    run: Run,
    request: HeadsRequest,
    text: Any,
    files: Any,
    *,
    of_texts: Mapping[str, object],
    weights_only: bool,
) -> Findings:
    """Show which heads read which, in texts or by the weights alone."""
    if weights_only:
        check_alone(run.spell("weights_only"), of_texts)
    check_heads(run.options, request.command)
    picture, top = run.options.pictures.get("overview"), request.top or PAIRS
    run.options = replace(run.options, pictures={"plot": picture})
    names = [files] if isinstance(files, str | Path) else files or []
    file = read_file_argument(str(names[0]), None) if run.in_shell and len(names) == 1 else None
    if weights_only:
        with run.report("wiring") as report:
            report_weights(top, run.options, report)
        return run.result
    if not run.in_shell:
        inputs = _inputs(run, text, files, cross=request.cross)
        if isinstance(run.options.origin.weights, InMemoryMaps):
            raise UsageError("wiring= follows what a model writes: give a text and its model")
        corpus.check_corpus(request, inputs, run.options)
    with run.report("wiring") as report:
        inputs, kind = file or (_inputs(run, text, files, cross=request.cross), None)
        kind = kind or corpus.command_of(request, inputs)
        report_wiring(inputs, kind, top, run.options, report)
    return run.result


def _inputs(run: Run, text: Any, files: Any, *, cross: bool) -> TextInput:
    """The texts, the corpus, or the maps that were given."""
    many = run.options.many
    maps: Any = tuple(text) if isinstance(text, list | tuple) else (text,)
    if maps and all(isinstance(one, Attention) for one in maps):
        origin = replace(run.options.origin, weights=InMemoryMaps(maps))
        run.options = replace(run.options, origin=origin)
        return given_texts(
            *(Text(one.id, one.text or one.source or "", one.target) for one in maps)
        )
    if not (files is None or text is None):
        both = "TEXT and --input" if run.in_shell else "text= and input="
        raise UsageError(f"both {both} were given: give one")
    if files is not None:
        names = files if isinstance(files, list | tuple) else [files]
        if not names or not all(isinstance(name, str | Path) for name in names):
            raise UsageError(f"input={in_short(files)} is no file and no list of files")
        return corpus_input([str(name) for name in names], many, pairs=cross)
    if not run.in_shell:
        return read_texts("heads", text, None, many, pairs=cross)
    if cross and len(text or []) > 2:
        raise UsageError("--cross takes one source and one target: give more by --input FILE")
    # A file of weights can bring its own tokens.
    if brings_tokens(run.options.origin) and not text:
        return given_texts(Text("0", ""))
    return texts_of(text or [], None, many, pairs=cross)


def _report_corpus(
    run: Run,
    request: HeadsRequest,
    inputs: TextInput,
    atlas: Any,
    checkpoint: Path | None,
) -> Findings:
    options = run.options
    corpus.check_corpus(request, inputs, options)
    if isinstance(atlas, Path):
        if atlas.suffix.lower() not in PAGES:
            raise UsageError(f"--atlas '{atlas}' names no page: end it in {' or '.join(PAGES)}")
        values = tuple((name, value) for name, value in options.given if name != "atlas")
        options = replace(options, given=values, output=replace(options.output, html=atlas))
    places = (options.output.output, *options.pictures.values(), atlas, checkpoint)
    file = next((path for path in places if isinstance(path, Path)), None)
    journal = None
    if checkpoint is not None and inputs.file is None:
        raise NO_CHECKPOINT
    if file is not None and inputs.file is not None and (checkpoint or can_resume(file)):
        journal = CorpusJournal(file, corpus.question_of(request, inputs, options))
    elif options.many.resume:
        raise NOT_RESUMED
    if checkpoint is not None:
        options = replace(options, many=replace(options.many, resume=True))
    run.options = options
    with run.report("corpus") as report:
        corpus.report_corpus(request, inputs, options, report, journal=journal)
    return run.result
