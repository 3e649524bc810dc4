"""The options that commands share: one spelling, one help text and one default each.

A command takes `options: Options` and says with `@with_options` which it offers; the decorator
gives typer the long signature that it needs to see.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from attnviz.core.options import Choice, Many, Origin
from attnviz.core.registry import FORMATS, LENSES, MECHANISMS


@dataclass(frozen=True, slots=True)
class Output:
    """Where results go.

    Attributes:
        format: what is written to stdout.
        output: a data file; its suffix names its format.
        heatmap: a picture of one matrix.
        grid: a picture of every head.
        links: a picture of two columns of tokens and lines between them.
        html: an interactive page of every map.
        open_page: show that page in a browser.
        quiet: no notes and no progress.
        verbose: say what is being done and how long it took.
    """

    format: str = "table"
    output: Path | None = None
    heatmap: Path | None = None
    grid: Path | None = None
    links: Path | None = None
    html: Path | None = None
    open_page: bool = False
    quiet: bool = False
    verbose: bool = False


@dataclass(frozen=True, slots=True)
class Options:
    """Everything that was asked for by option."""

    origin: Origin
    choice: Choice
    output: Output
    many: Many


def completing(names: Iterable[str]) -> Callable[[str], list[str]]:
    """Shell completion over a fixed list."""
    listed = list(names)
    return lambda incomplete: [name for name in listed if name.startswith(incomplete)]


SUFFIXES = {item.suffix for item in FORMATS.values() if item.suffix}
ORIGIN = "Where attention comes from"
CHOICE = "Which part of it"
OUTPUT = "Where it goes"
MANY = "Many texts"


def _option(panel: str, *names: str, **settings: Any) -> Any:
    return typer.Option(*names, rich_help_panel=panel, **settings)


OPTIONS: dict[str, Any] = {
    "model": _option(
        ORIGIN, "--model", "-m", metavar="ID_OR_FOLDER", help="Hugging Face model, or 'pocket'."
    ),
    "mechanism": _option(
        ORIGIN,
        "--mechanism",
        metavar="NAME",
        help="Untrained own layer; 'attnviz mechanisms' lists them.",
        autocompletion=completing(MECHANISMS),
    ),
    "weights": _option(
        ORIGIN,
        "--weights",
        metavar="FILE",
        help="Your own matrices or a saved map: .npz, .safetensors or .json.",
    ),
    "causal": _option(ORIGIN, "--causal", help="Hide every later token."),
    "generate": _option(
        ORIGIN,
        "--generate",
        metavar="N",
        min=1,
        help="Tokens that the model writes at most; its output is shown with the text.",
    ),
    "chat": _option(
        ORIGIN, "--chat", help="Read the text as a user's turn, by the model's chat template."
    ),
    "to": _option(
        ORIGIN,
        "--to",
        metavar="LANGUAGE",
        help="Language of the target for the pocket model: en or fr.",
        autocompletion=completing(("en", "fr")),
    ),
    "size": _option(ORIGIN, "--size", metavar="N", min=1, help="Features of an own layer."),
    "heads": _option(ORIGIN, "--heads", metavar="N", min=1, help="Heads of an own layer."),
    "seed": _option(ORIGIN, "--seed", metavar="N", min=0, help="Seed of an own layer."),
    "device": _option(
        ORIGIN,
        "--device",
        metavar="NAME",
        help="auto, cpu, cuda or mps.",
        autocompletion=completing(("auto", "cpu", "cuda", "mps")),
    ),
    "device_map": _option(
        ORIGIN,
        "--device-map",
        metavar="HOW",
        help="Spread a model larger than one device: auto, balanced, sequential (accelerate).",
        autocompletion=completing(("auto", "balanced", "sequential")),
    ),
    "dtype": _option(
        ORIGIN,
        "--dtype",
        metavar="NAME",
        help="float32 (the default on a processor), float64, float16 or bfloat16.",
        autocompletion=completing(("float32", "float64", "float16", "bfloat16")),
    ),
    "revision": _option(
        ORIGIN, "--revision", metavar="NAME", help="Branch, tag or commit of a model on the hub."
    ),
    "allow_pickle": _option(
        ORIGIN, "--allow-pickle", help="Load pickled weights of a model that you trust."
    ),
    "allow_code": _option(
        ORIGIN, "--allow-code", help="Run the code that a model you trust brings along."
    ),
    "keep_qk": _option(
        ORIGIN,
        "--keep-qk",
        help="Keep queries and keys, for the query · key view of --html and --open.",
    ),
    "max_size": _option(
        CHOICE,
        "--max-size",
        metavar="N",
        min=1,
        help="Rows and columns of a map at most; a longer text is shown in blocks. Default 1024.",
    ),
    "rows": _option(
        CHOICE, "--rows", metavar="A-B", help="Only tokens A to B attend, counted from 0: exact."
    ),
    "window": _option(
        CHOICE, "--window", metavar="A-B", help="Only tokens A to B attend, and to each other."
    ),
    "lens": _option(
        CHOICE,
        "--lens",
        metavar="NAME",
        help=f"What to make of the weights first: raw, {', '.join(LENSES)}; all shows them all.",
        autocompletion=completing(("raw", *LENSES, "all")),
    ),
    "explain": _option(
        CHOICE,
        "--target",
        metavar="WHAT",
        help="What --lens gradient explains: a class, or a token (by text or number from 0).",
    ),
    "stream": _option(
        CHOICE, "--stream", metavar="NAME", help="One stream: encoder, decoder, cross, …"
    ),
    "layer": _option(
        CHOICE, "--layer", metavar="WHICH", help="Layers from 0: 3, 0,2 or 0-3, last, all."
    ),
    "head": _option(
        CHOICE, "--head", metavar="WHICH", help="Heads from 0: 3, 0,2 or 0-3, last, all."
    ),
    "reduce": _option(
        CHOICE,
        "--reduce",
        metavar="HOW",
        help="Take heads and layers together: none, mean or max.",
        autocompletion=completing(("none", "mean", "max")),
    ),
    "over": _option(
        CHOICE,
        "--over",
        metavar="AXIS",
        help="What --reduce takes together: heads, layers or both.",
        autocompletion=completing(("both", "heads", "layers")),
    ),
    "labels": _option(
        CHOICE,
        "--labels",
        metavar="TEXT",
        help='A label for each token or word, "O" for none: "B-PER O O".',
    ),
    "group": _option(
        CHOICE,
        "--group",
        metavar="WHAT",
        help="Take tokens together: words, sentences, or a file with a piece of text a line.",
        autocompletion=completing(("words", "sentences")),
    ),
    "words": _option(CHOICE, "--words", help="Short for --group words."),
    "special": _option(
        CHOICE,
        "--special",
        metavar="HOW",
        help="Special tokens: keep, drop, or renormalise (rows sum to 1 without them).",
        autocompletion=completing(("keep", "drop", "renormalise")),
    ),
    "format": _option(
        OUTPUT,
        "--format",
        "-f",
        metavar="NAME",
        help=f"What stdout gets: {', '.join(FORMATS)}.",
        autocompletion=completing(FORMATS),
    ),
    "output": _option(
        OUTPUT, "--output", "-o", metavar="FILE", help=f"Data file: {', '.join(sorted(SUFFIXES))}."
    ),
    "heatmap": _option(
        OUTPUT, "--heatmap", metavar="FILE", help="One matrix as a picture: .png, .svg or .pdf."
    ),
    "grid": _option(
        OUTPUT, "--grid", metavar="FILE", help="Every head as a picture: .png, .svg or .pdf."
    ),
    "links": _option(
        OUTPUT,
        "--links",
        metavar="FILE",
        help="Tokens joined by lines, eight heads at most in colours: .png, .svg or .pdf.",
    ),
    "html": _option(
        OUTPUT, "--html", metavar="FILE", help="Everything as one interactive page: .html."
    ),
    "open_page": _option(OUTPUT, "--open", help="Show the interactive page in a browser."),
    "top": _option(
        OUTPUT,
        "--top",
        metavar="N",
        min=0,
        help="Strongest links that -f links lists, without special tokens and the diagonal; of a "
        "text in blocks found for each head, which 0 spares.",
    ),
    "quiet": _option(OUTPUT, "--quiet", "-q", help="No notes and no progress on stderr."),
    "verbose": _option(OUTPUT, "--verbose", "-v", help="Say on stderr what is done, and how fast."),
    "columns": _option(
        MANY,
        "--columns",
        metavar="ROLES",
        help="Columns of a .csv or .tsv, by name or number: text=sentence,id=key.",
    ),
    "input_format": _option(
        MANY,
        "--input-format",
        metavar="NAME",
        help="txt, jsonl, csv or tsv, where no suffix tells (stdin is txt).",
        autocompletion=completing(("txt", "jsonl", "csv", "tsv")),
    ),
    "on_error": _option(
        MANY,
        "--on-error",
        metavar="HOW",
        help="A line that fails: skip it and say so, or stop.",
        autocompletion=completing(("skip", "stop")),
    ),
    "rejects": _option(
        MANY, "--rejects", metavar="FILE", help="Lines that failed, with reasons, as .jsonl."
    ),
    "batch_size": _option(
        MANY,
        "--batch-size",
        metavar="N",
        min=1,
        help="Texts that a model reads at once at most; by default as many as fit.",
    ),
    "workers": _option(
        MANY, "--workers", metavar="N", min=1, help="Processes that share the work."
    ),
    "engine": _option(
        MANY,
        "--engine",
        metavar="NAME",
        help="Who shares out the work: local, or ray (the extra ray).",
        autocompletion=completing(("local", "ray")),
    ),
    "ray_address": _option(
        MANY, "--ray-address", metavar="ADDRESS", help="A Ray cluster to join; else one is started."
    ),
    "shard_size": _option(
        MANY,
        "--shard-size",
        metavar="N",
        min=1,
        help="Texts to a file: -o maps.npz becomes maps-00000.npz, maps-00001.npz, …",
    ),
    "resume": _option(
        MANY, "--resume", help="Go on where an interrupted run with the same -o FILE stopped."
    ),
}


READING = ("columns", "input_format", "on_error", "rejects")
"""Of the options of many texts, those of a command that reads them."""
SHARING = ("batch_size", "workers", "engine", "ray_address")
"""Those of one that shares out the work."""
FILES = ("shard_size", "resume")
"""Those of one whose files can be gone on with."""


def with_options(
    *, without: Iterable[str] = (), many: Iterable[str] = ()
) -> Callable[[Callable[..., None]], Any]:
    """A decorator that gives a command the shared options.

    Args:
        without: the options of one text that it does not offer.
        many: the options of many texts that it offers.
    """
    left_out = {*without, *(item.name for item in fields(Many))} - {*many}

    def decorate(command: Callable[..., None]) -> Any:
        signature = inspect.signature(command, eval_str=True)
        own = [item for item in signature.parameters.values() if item.name != "options"]
        offered = [
            item for half in (Origin, Choice, Output, Many) for item in _parameters(half, left_out)
        ]

        @functools.wraps(command)
        def run(**values: Any) -> None:
            def take(half: Any) -> Any:
                names = [item.name for item in fields(half) if item.name not in left_out]
                return half(**{name: values.pop(name) for name in names})

            origin: Origin = take(Origin)
            if "top" in left_out:  # what is not listed is not looked for
                origin = replace(origin, top=0)
            options = Options(origin, take(Choice), take(Output), take(Many))
            command(**values, options=options)

        parameters = own + offered
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {item.name: item.annotation for item in parameters}
        del run.__wrapped__
        return run

    return decorate


def _parameters(half: Any, left_out: set[str]) -> list[inspect.Parameter]:
    types = get_type_hints(half)
    return [
        inspect.Parameter(
            item.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=item.default,
            annotation=Annotated[types[item.name], OPTIONS[item.name]],
        )
        for item in fields(half)
        if item.name not in left_out
    ]
