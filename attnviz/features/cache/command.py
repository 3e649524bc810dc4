"""attnviz cache."""

from typing import Annotated

import typer

from attnviz.cli.options import CHOICE, SEED, with_options
from attnviz.cli.report import Report
from attnviz.core.errors import UsageError
from attnviz.core.options import Options, opt, rare
from attnviz.features.cache.request import CacheRequest, read_kinds, report_cache


@with_options(
    *("model", "compute", "causal", "generate", "to", "chat", "stream", "look", "page", "reading"),
    writes="cache",
    draws={
        "plot": "nats over keys, a line for each rule",
        "heatmap": "the head that keeps least under the first rule, dropped keys struck out",
    },
)
def cache(
    text: Annotated[
        str | None, typer.Argument(help="Text, the source text of a pair, or a picture.")
    ] = None,
    target: Annotated[
        str | None, typer.Argument(help="Target text of a pair, or what a picture is asked.")
    ] = None,
    input_file: list[str] | None = opt(
        "Options",
        "--input -i FILE",
        "Read texts from a file (.txt, .jsonl, .csv, .tsv). Repeatable: a kind of text each.",
    ),
    keep: list[str] | None = opt(
        CHOICE,
        "--keep RULE",
        "Rule that says which keys stay: h2o:0.2 (20 % of them), h2o:0.1,0.2,0.5, "
        "sinks:4+recent:64; one of sinks, recent, window, h2o, heavy, tova, snapkv, random, best. "
        "Repeatable.",
    ),
    prompt: str | None = opt(
        CHOICE,
        "--prompt N",
        "Tokens, or their share, that are read with all keys first; by default half of a text, of "
        "a pair's target one.",
    ),
    per_head: bool = opt(
        CHOICE, "--per-head", "Also measure each rule in each head alone, a run each."
    ),
    seed: int = rare(CHOICE, "--seed N", SEED, default=0, min=0),
    *,
    options: Options,
) -> None:
    """Show what it costs if a cache holds fewer keys, by rules of thumb and by measured effect.

    attnviz cache "Tom likes dogs. Mary likes cats. Tom likes" --keep sinks:1+recent:3 --keep h2o:4

    attnviz cache --input notes.txt --input sentences.txt --keep best:0.2,0.5 --picture c.png

    attnviz cache "The red car is fast." "La voiture rouge est rapide." --keep tova:3
    """
    request = CacheRequest(tuple(keep or ()), prompt, options.choice.stream, per_head, seed)
    if options.pictures["heatmap"] is not None and input_file:
        raise UsageError("--picture heatmap:FILE shows one text: leave --input out, and give TEXT")
    kinds, kind, options = read_kinds(text, target, input_file or [], options)
    with Report(options, "cache") as report:
        report_cache(request, kinds, kind, options, report)
    raise typer.Exit(report.status)
