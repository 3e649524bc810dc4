"""attnviz cache."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnviz.commands import arguments, findings
from attnviz.commands.command import CHOICE, SEED, Run, command
from attnviz.core.errors import UsageError
from attnviz.core.options.option import arg, opt, rare
from attnviz.core.registry import SourceKind
from attnviz.features.cache.request import CacheRequest, report_cache
from attnviz.features.experiments import questions
from attnviz.runs import inputs, pipeline, readers
from attnviz.storage.texts import Text


@command(
    *("model", "compute", "causal", "generate", "to", "chat", "stream", "look", "page", "reading"),
    writes="cache",
    draws={
        "plot": "nats over keys, a line for each rule",
        "heatmap": "the head that keeps least under the first rule, dropped keys struck out",
    },
)
def cache(
    text: str | arguments.Texts | Mapping[str, arguments.Texts] | pipeline.Result | None = arg(
        "Text, the source text of a pair, or a picture.",
        python="a text, the source of a pair, a picture's file, a list of texts or pairs, lists by "
        "the kind of their texts, or a result of `attend`.",
    ),
    target: str | None = arg("Target text of a pair, or what a picture is asked."),
    *,
    input: questions.Names = opt(  # noqa: A002 - as the option is called
        "Options",
        "--input -i FILE",
        "Read texts from a file (.txt, .jsonl, .csv, .tsv). Repeatable: a kind of text each.",
        shell=list[str] | None,
    ),
    keep: questions.Names = opt(
        CHOICE,
        "--keep RULE",
        "Rule that says which keys stay: h2o:0.2 (20 % of them), h2o:0.1,0.2,0.5, "
        "sinks:4+recent:64; one of sinks, recent, window, h2o, heavy, tova, snapkv, random, best. "
        "Repeatable.",
        shell=list[str] | None,
    ),
    prompt: str | int | float | None = opt(
        CHOICE,
        "--prompt N",
        "Tokens, or their share, that are read with all keys first; by default half of a text, of "
        "a pair's target one.",
        shell=str | None,
    ),
    per_head: bool = opt(
        CHOICE, "--per-head", "Also measure each rule in each head alone, a run each."
    ),
    seed: int = rare(CHOICE, "--seed N", SEED, default=0, min=0),
    **options: Any,
) -> findings.Findings:
    """Show what it costs if a cache holds fewer keys, by rules of thumb and by measured effect.

    attnviz cache "Tom likes dogs. Mary likes cats. Tom likes" --keep sinks:1+recent:3 --keep h2o:4

    attnviz cache --input notes.txt --input sentences.txt --keep best:0.2,0.5 --picture c.png

    attnviz cache "The red car is fast." "La voiture rouge est rapide." --keep tova:3

    Returns:
        A `CacheReport`; the pictures "plot" and, of one text, "heatmap".
    """
    run = Run("cache", options)
    rules, names = arguments.name_parts("keep", keep, ""), arguments.name_parts("input", input, "")
    if names and run.options.pictures.get("heatmap") is not None:
        raise UsageError("--picture heatmap:FILE shows one text: leave --input out, and give TEXT")
    kinds, kind = _read_kinds(run, text, target, names)
    start = None if prompt is None else str(prompt)
    request = CacheRequest(rules, start, run.options.choice.stream, per_head, seed)
    with run.report("cache") as report:
        report_cache(request, kinds, kind, run.options, report)
    return run.result


def _read_kinds(
    run: Run, text: Any, target: str | None, names: tuple[str, ...]
) -> tuple[list[tuple[str, inputs.TextInput]], SourceKind]:
    """The texts of each kind by its name, and what reads them.

    Raises:
        UsageError: files of the same name, whose texts could not be told apart.
    """
    if isinstance(text, str) and target is not None and readers.kind_of_file(text) == "picture":
        run.options = run.without_files()
        return [("", inputs.given_texts(Text("0", text, target)))], "picture-text"
    groups: list[tuple[str, Any, str | None]] = [("", text, None)]
    if names:
        groups = [(Path(name).stem, text, name) for name in names]
        if len({name for name, *_ in groups}) < len(names):
            one = groups[0][0]
            raise UsageError(f"--input names '{one}' twice: kinds of text are told apart by name")
    elif isinstance(text, Mapping):
        groups = [(name, own, None) for name, own in text.items()]
    if not groups:
        raise UsageError("cache needs texts: there is no kind of them")
    kinds = [(name, *questions.read_written(run, own, target, file)) for name, own, file in groups]
    return [(name, texts) for name, texts, _ in kinds], kinds[0][2]
