"""Short lists of names: attnviz mechanisms, attnviz models."""

from dataclasses import replace
from typing import Annotated, Any

import typer

from attnviz.cli.options import ORIGIN, with_options
from attnviz.cli.places import note, write_bytes
from attnviz.core.errors import UsageError, choose
from attnviz.core.options import Options, opt
from attnviz.core.registry import MECHANISMS
from attnviz.renderers.reports import Data, listing


def write_listing(data: Data, options: Options) -> None:
    """Write a list of names as a command's result."""
    from attnviz.cli.report import Report

    with Report(options, "listing") as report:
        report.add(data)
        report.finish("listed")


@with_options(writes="listing")
def mechanisms(*, options: Options) -> None:
    """List the attention mechanisms, with the commands that offer them.

    attnviz mechanisms

    attnviz mechanisms -f json | jq .[0]
    """
    rows = [
        (
            name,
            " ".join(row.commands),
            f"{row.summary} (from {row.package})" if row.package else row.summary,
        )
        for name, row in MECHANISMS.items()
    ]
    write_listing(listing(("mechanism", "commands", "summary"), rows), options)


def _model_facts(name: str) -> Data:
    """What is known of a model: a line for each fact, an object in JSON."""
    from attnviz.models.hugging_face.check import check_model
    from attnviz.storage.documents import dump_json

    facts = check_model(name)
    rows = [(fact, _format_fact(fact, value)) for fact, value in facts.items()]
    document = dump_json(facts) + "\n"
    return replace(listing(("fact", "value"), rows), document=lambda: document)


def _format_fact(fact: str, value: Any) -> str:
    """A fact in words."""
    from attnviz.models.hugging_face.load.devices import format_bytes

    if isinstance(value, dict):
        return ", ".join(f"{name} {layers} × {heads}" for name, (layers, heads) in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(value) or "none"
    if isinstance(value, int):
        return format_bytes(value) if fact.startswith("bytes") else f"{value:,}"
    return value or "—"


@with_options(writes="listing")
def models(
    name: Annotated[
        str | None, typer.Argument(help="Shipped model whose card to print, such as pocket.")
    ] = None,
    check: str | None = opt(
        ORIGIN,
        "--check ID_OR_FOLDER",
        "Say what attnviz can show of a Hugging Face model, without loading its weights.",
    ),
    *,
    options: Options,
) -> None:
    """List the models found on this machine: the shipped ones and the Hugging Face cache.

    attnviz models pocket-lm

    attnviz models --check ./my-model
    """
    from attnviz.models.pocket.card import CARDS, card_of, summary_of

    if check is not None:
        if name is not None:
            raise UsageError(
                f"--check looks at a model, and NAME {name} prints a card: give one of them"
            )
        if check in CARDS:
            raise UsageError(f"'{check}' is inside: 'attnviz models {check}' prints its card")
        write_listing(_model_facts(check), options)
        return
    if name is not None:
        choose(name, CARDS, "model with a card")
        from attnviz.storage.documents import dump_json

        text = card_of(name)
        document = dump_json({"model": name, "card": text}) + "\n"
        write_listing(Data(text=lambda display: text, document=lambda: document), options)
        return
    from attnviz.models.hugging_face.load.locate import list_cached_models

    rows = [(one, "shipped", summary_of(one)) for one in CARDS]
    others = list_cached_models(None if options.output.quiet else note)
    rows += [(str(item), "hugging face", item.model_type or "") for item in others]
    write_listing(listing(("model", "from", "about"), rows), options)


@with_options(writes="listing")
def schema(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A document, such as heads.")
    ] = None,
    *,
    options: Options,
) -> None:
    """Print the JSON Schema of a document.

    Without NAME it lists all documents that are written.

    attnviz schema

    attnviz schema heads > heads.schema.json
    """
    import json

    from attnviz.storage.layouts import LAYOUTS, json_schema

    if name is None:
        rows = [(one, layout.summary) for one, layout in LAYOUTS.items()]
        write_listing(listing(("name", "summary"), rows), options)
        return
    document = json.dumps(json_schema(choose(name, LAYOUTS, "document")), indent=2) + "\n"
    write_listing(Data(text=lambda display: document, document=lambda: document), options)


@with_options(report=("said",))
def skill(*, options: Options) -> None:
    """Print a short guide for programs.

    It says which command answers which question, and how to keep answers small.

    attnviz skill

    attnviz skill > SKILL.md
    """
    from importlib.resources import files

    write_bytes(files("attnviz.cli").joinpath("skill.md").read_bytes())
