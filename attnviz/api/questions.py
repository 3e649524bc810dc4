"""Questions: what changes without a part, or between two texts or models."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from attnviz.analyses.effects.ablation import Each
from attnviz.analyses.view import is_pair
from attnviz.api import arguments
from attnviz.api.collected import Findings, collect
from attnviz.core.attention_map import Attention
from attnviz.core.effects import By
from attnviz.core.errors import UsageError
from attnviz.core.options import Options
from attnviz.core.registry import Command
from attnviz.models.open import check_origin
from attnviz.features.ablate.request import (
    Ablation,
    check_reference,
    refuse_with_lenses,
    report_ablation,
    report_lenses,
)
from attnviz.runs.inputs import TextInput, given_texts
from attnviz.runs.pipeline import Result
from attnviz.runs.readers import InputKind, read_file_argument

Parts = str | Sequence[str | tuple[str | int, ...]] | None
"""Names of heads ("2.0", (2, 0)), links ("rouge>red", ("rouge", "red")) or tokens ("red[3]")."""


def _read_question(
    function: str, text: Any, target: str | None, file: str | None, options: Mapping[str, Any]
) -> tuple[Options, TextInput, Command]:
    """The options, the texts, and the command that reads them; a result brings its own model."""
    record = None
    if isinstance(text, Attention):
        if not isinstance(text, Result) or text.again is None:
            raise UsageError("only what attend() gave can be run again: give its text and model")
        # What the caller gives wins over what the result was made with.
        names, origin = arguments.ExperimentOptions.__optional_keys__, text.again.origin
        own = {name: getattr(origin, name) for name in names if hasattr(origin, name)}
        record = text.again.text if is_pair(text) or text.again.text.messages else None
        text, target, options = text.source or text.text, text.target, {**own, **options}
    elif arguments.is_conversation(text) and target is file is None:
        record, options = arguments.conversation_of(text), {"chat": True, **options}
    how = arguments.read_options(options)
    if record is not None:
        return how, given_texts(record), "self"
    single = isinstance(text, str) and target is None and file is None
    command: Command = "self" if single else "cross"  # files and lists may hold pairs
    texts = arguments.read_texts(function, text, file, how.many, target=target, pairs=not single)
    check_origin(how.origin, command)
    return how, texts, command


Names = str | list[str] | tuple[str, ...] | None
"""One or several: rules, files."""


@arguments.public
def ablate(
    text: str | arguments.Texts | Result | None = None,
    target: str | None = None,
    *,
    input: str | None = None,  # noqa: A002 - as the option is called
    layer: str | None = None,
    heads: Parts = None,
    links: Parts = None,
    tokens: Parts = None,
    each: Each | None = None,
    by: By = "zero",
    reference: str | Path | arguments.Texts | None = None,
    lenses: bool = False,
    seed: arguments.NotNegative = 0,
    top: arguments.Positive = 10,
    **options: Unpack[arguments.ExperimentOptions],
) -> Findings:
    """What changes when heads, links or tokens are switched off.

    Args:
        text: a text, the source of a pair, a list of texts or pairs, or a result of `attend`.
        target: the target of a pair.
        input: a file of texts instead.
        layer: layers to switch off: 2, "0-3", "last", "encoder.2"; with `heads` their layers.
        heads: heads to switch off: "2.0", (2, 0), "encoder.3.5"; or "3" of each layer chosen.
        links: links to cut in every head: "rouge>red", ("rouge", "red"), "encoder:the>cat".
        tokens: tokens, or words of several, to hide from all others: "red", "red[3]".
        each: switch everything of a kind off, one by one.
        by: what a head puts out instead; the mean is over the text's positions, or those of
            `reference`, from which "resample" draws.
        reference: texts, or a file of them, whose positions are taken.
        lenses: how far each lens can be trusted instead: its scores of tokens beside hiding them.
        seed: seed of what "resample" draws, and of the random scores beside lenses.
        top: effects that the table lists.
        options: those of `attnviz ablate`, by name.

    Returns:
        One row for each effect; pictures "bars" and, of every head or token, "grid" or "highlight".
    """
    how, texts, command = _read_question("ablate", text, target, input, options)
    request = Ablation(
        heads=arguments.name_parts("heads", heads, "."),
        links=arguments.name_parts("links", links, ">"),
        tokens=arguments.name_parts("tokens", tokens, ""),
        layer=layer,
        each=each,
        by=by,
        output=how.choice.explain,
        seed=seed,
        names=how.choice.token_groups,
        lenses=lenses,
    )
    if lenses:
        refuse_with_lenses({"reference": reference})
        with collect("ablate", "lenses", how) as report:
            report_lenses(texts, command, seed, how, report)
        return report.findings
    others = read_reference("ablate", reference, how)
    check_reference(request, has_reference=others is not None)
    with collect("ablate", "ablation", how) as report:
        report_ablation(request, texts, command, how, report, reference=others, top=top)
    return report.findings


def read_reference(function: str, reference: Any, how: Options) -> TextInput | None:
    if reference is None:
        return None
    name = str(reference) if isinstance(reference, str | Path) else None
    return arguments.read_texts(function, None if name else reference, name, how.many, pairs=True)


def read_written(
    function: str, text: Any, target: str | None, file: str | None, options: Mapping[str, Any]
) -> tuple[Options, TextInput, InputKind]:
    """The options, texts or a file, and what reads them."""
    if (inputs := read_file_argument(text, target)) and file is None:
        return arguments.read_options(options), *inputs
    return _read_question(function, text, target, file, options)
