"""attnviz models, and how a command writes a list of names."""

from dataclasses import replace
from typing import Any

from attnviz.cli.places import note
from attnviz.commands.command import ORIGIN, Run, command
from attnviz.core.errors import UsageError, choose
from attnviz.core.options.option import arg, opt
from attnviz.core.registry import MECHANISMS
from attnviz.renderers.reports import Data, listing


def _mechanisms() -> Data:
    """The attention mechanisms, with the commands that offer them."""
    rows = [
        (
            name,
            " ".join(row.commands),
            f"{row.summary} (from {row.package})" if row.package else row.summary,
        )
        for name, row in MECHANISMS.items()
    ]
    return listing("mechanisms", ("mechanism", "commands", "summary"), rows)


def _model_facts(name: str) -> Data:
    """What is known of a model: a line for each fact, an object in JSON."""
    from attnviz.features.models.check import check_model
    from attnviz.storage.documents import report_json

    facts = check_model(name)
    rows = [(fact, _format_fact(fact, value)) for fact, value in facts.items()]
    document = report_json("facts", **facts)
    return replace(listing("facts", ("fact", "value"), rows), document=lambda: document)


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


@command(writes="listing")
def models(
    name: str | None = arg("Shipped model whose card to print, such as pocket."),
    *,
    check: str | None = opt(
        ORIGIN,
        "--check ID_OR_FOLDER",
        "Say what attnviz can show of a Hugging Face model, without loading its weights.",
    ),
    mechanisms: bool = opt(
        ORIGIN, "--mechanisms", "List instead the names of --mechanism: untrained layers."
    ),
    **options: Any,
) -> Any:
    """List the models found on this machine: the shipped ones and the Hugging Face cache.

    attnviz models pocket-lm

    attnviz models --check bert-base-uncased

    attnviz models --mechanisms -f json | jq .rows[0]
    """
    run = Run("models", options)
    if mechanisms:
        if clash := "NAME" if name is not None else "--check" if check is not None else "":
            raise UsageError(f"--mechanisms lists mechanisms: leave {clash} out")
        return run.write(_mechanisms())
    from attnviz.models.pocket.card import CARDS, card_of, summary_of

    if check is not None:
        if name is not None:
            raise UsageError(
                f"--check looks at a model, and NAME '{name}' prints a card: give one of them"
            )
        if check in CARDS:
            raise UsageError(f"'{check}' is inside: 'attnviz models {check}' prints its card")
        return run.write(_model_facts(check))
    if name is not None:
        choose(name, CARDS, "model with a card")
        from attnviz.storage.documents import report_json

        text = card_of(name)
        document = report_json("card", model=name, card=text)
        return run.write(Data(text=lambda display: text, document=lambda: document))
    from attnviz.models.hugging_face.load.locate import list_cached_models

    rows = [(one, "shipped", summary_of(one)) for one in CARDS]
    others = list_cached_models(None if run.options.output.quiet else note)
    rows += [(str(item), "hugging face", item.model_type or "") for item in others]
    return run.write(listing("models", ("model", "from", "about"), rows))
