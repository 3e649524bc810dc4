"""The function of Python: what changes when parts are switched off."""

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from attnviz.api import arguments
from attnviz.api.collected import Findings, collect
from attnviz.api.questions import read_question, read_reference
from attnviz.core.effects import By
from attnviz.features.ablate.parts import Each
from attnviz.features.ablate.request import (
    Ablation,
    check_reference,
    refuse_with_lenses,
    report_ablation,
    report_lenses,
)
from attnviz.runs.pipeline import Result

Parts = str | Sequence[str | tuple[str | int, ...]] | None
"""Names of heads ("2.0", (2, 0)), links ("rouge>red", ("rouge", "red")) or tokens ("red[3]")."""


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
    how, texts, command = read_question("ablate", text, target, input, options)
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
