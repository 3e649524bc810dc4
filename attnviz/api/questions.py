"""Questions about attention: what changes without a part, and between two texts or models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack

from attnviz.analyses.effects.ablation import Each
from attnviz.api.arguments import (
    Nats,
    NotNegative,
    Positive,
    Texts,
    name_parts,
    public,
    read_options,
    read_texts,
)
from attnviz.api.asked_again import asked_again
from attnviz.api.collected import Findings, collecting
from attnviz.api.options import CompareOptions, ExperimentOptions
from attnviz.core.attention_map import Attention
from attnviz.core.effects import By, SavedEffects
from attnviz.core.errors import UsageError, in_short
from attnviz.core.options import InMemoryMaps, Width
from attnviz.models.open import check_origin
from attnviz.runs.ablation import Ablation, check_reference, report_ablation
from attnviz.runs.comparing import (
    check_changes,
    effects_compared,
    maps_compared,
    saved_effects,
    sides_of,
)
from attnviz.runs.pipeline import Result
from attnviz.storage.saved import read_effects

Parts = str | Sequence[str | tuple[str | int, ...]] | None
"""Names of heads ("2.0", (2, 0)), links ("rouge>red", ("rouge", "red")) or tokens ("red[3]")."""


@public
def ablate(
    text: str | Texts | Result | None = None,
    target: str | None = None,
    *,
    input: str | None = None,  # noqa: A002 - as the option is called
    heads: Parts = None,
    links: Parts = None,
    tokens: Parts = None,
    each: Each | None = None,
    by: By = "zero",
    reference: str | Path | Texts | None = None,
    seed: NotNegative = 0,
    top: Positive = 10,
    **options: Unpack[ExperimentOptions],
) -> Findings:
    """What changes when heads, links or tokens are switched off.

    Args:
        text: a text, the source of a pair, a list of texts or pairs, or a result of `attend`.
        target: the target of a pair.
        input: a file of texts instead.
        heads: heads to switch off: "2.0", (2, 0), "encoder.3.5".
        links: links to cut in every head: "rouge>red", ("rouge", "red"), "encoder:the>cat".
        tokens: tokens, or words of several, to hide from all others: "red", "red[3]".
        each: switch everything of a kind off, one by one.
        by: what a head puts out instead; the mean is over the text's positions, or those of
            `reference`, from which "resample" draws.
        reference: texts, or a file of them, whose positions are taken.
        seed: seed of what "resample" draws.
        top: effects that the table lists.
        options: those of `attnviz ablate`, by name.

    Returns:
        A row an effect; pictures "bars" and, of every head or token, "grid" or "words".
    """
    again = asked_again(text, target, options)
    how = read_options(again.options)
    asked = Ablation(
        heads=name_parts("heads", heads, "."),
        links=name_parts("links", links, ">"),
        tokens=name_parts("tokens", tokens, ""),
        each=each,
        by=by,
        wanted=how.choice.explain,
        seed=seed,
    )
    command = again.command(input)
    pairs = command == "cross"
    texts = read_texts("ablate", again.text, input, how.many, target=again.target, pairs=pairs)
    check_origin(how.origin, command)
    others = None
    if reference is not None:
        name = str(reference) if isinstance(reference, str | Path) else None
        others = read_texts("ablate", None if name else reference, name, how.many, pairs=True)
    check_reference(asked, given=others is not None)
    with collecting("ablate", "ablation", how) as report:
        report_ablation(asked, texts, command, how, report, reference=others, top=top)
    return report.found


@public
def compare(
    a: str | Attention | Findings,
    b: str | Attention | Findings | None = None,
    *,
    model_a: str | None = None,
    model_b: str | None = None,
    revision_a: str | None = None,
    revision_b: str | None = None,
    adapter_a: str | None = None,
    adapter_b: str | None = None,
    layer_a: str | None = None,
    layer_b: str | None = None,
    head_a: str | None = None,
    head_b: str | None = None,
    top: Positive = 10,
    fail_above: Nats | None = None,
    width: Width | None = None,
    **options: Unpack[CompareOptions],
) -> Findings:
    """What changed between two attentions, or between two ablations.

    Args:
        a: a text, a saved map or saved effects by name, a result of `attend`, or what `ablate`
            found.
        b: the other; None: the same text or map.
        model_a: model of A, instead of `model`.
        model_b: model of B.
        revision_a: revision of A's model.
        revision_b: revision of B's model.
        adapter_a: adapter of A's model.
        adapter_b: adapter of B's model.
        layer_a: layers of A, instead of `layer`.
        layer_b: layers of B.
        head_a: heads of A, instead of `head`.
        head_b: heads of B.
        top: heads and links to name.
        fail_above: raise an error if a head or an effect changed more, in nats.
        width: the column that pictures are laid out for.
        options: those of `attnviz compare`, by name.

    Returns:
        A row a head, or an effect; of attention the pictures "heatmap" and "grid".
    """
    how = read_options(options)
    origins = (
        {"model": model_a, "revision": revision_a, "adapter": adapter_a},
        {"model": model_b, "revision": revision_b, "adapter": adapter_b},
    )
    choices = {"layer": layer_a, "head": head_a}, {"layer": layer_b, "head": head_b}
    first = _side("a", a)
    sides = sides_of((first, first if b is None else _side("b", b)), how, origins, choices)
    effects = saved_effects(sides)
    with collecting("compare", "comparison" if effects is None else "changes", how) as report:
        if effects is None:
            data, changes = maps_compared(sides, top, width)
        else:
            data, changes = effects_compared(effects, top)
        report.add(data)
    check_changes(changes, "heads" if effects is None else "effects", fail_above)
    return report.found


def _side(name: str, given: Any) -> str | InMemoryMaps | SavedEffects:
    """What is compared, in the form in which a run takes it."""
    if isinstance(given, Attention):
        return InMemoryMaps((given,))
    if isinstance(given, Findings) and given.kind == "ablation":
        effects = read_effects(given.written("json"), name)
        assert effects is not None
        return effects
    if not isinstance(given, str):
        raise UsageError(f"{name}={in_short(given)} is no text and no name of a file")
    return given
