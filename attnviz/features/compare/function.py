"""The function of Python: attnviz.compare."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack

from attnviz.api import arguments
from attnviz.api.collected import Findings, collect
from attnviz.core.attention_map import Attention
from attnviz.core.effects import SavedEffects
from attnviz.core.errors import UsageError, in_short
from attnviz.core.options import InMemoryMaps, Options
from attnviz.features.compare import request
from attnviz.features.compare.history import check_health, chosen_verdicts
from attnviz.storage.saved_maps import read_effects


@arguments.public
def compare(
    a: str | Path | Attention | Findings,
    b: str | Path | Attention | Findings | None = None,
    *,
    model_a: str | None = None,
    model_b: str | None = None,
    adapter_a: str | None = None,
    adapter_b: str | None = None,
    layer_a: str | None = None,
    layer_b: str | None = None,
    head_a: str | None = None,
    head_b: str | None = None,
    top: arguments.Positive = 10,
    fail_above: arguments.Nats | None = None,
    fail_on: str | None = None,
    **options: Unpack[arguments.CompareOptions],
) -> Findings:
    """What changed between two attentions, or over a training run.

    Args:
        a: a text, a saved map or saved effects by name, a result of `attend`, what `ablate` found,
            or a folder of samples that `attnviz.callbacks` took: step-00000100.npz, ….
        b: the other; None: the same text or map. Of a run another run, shown beside the first.
        model_a: model of A, instead of `model`.
        model_b: model of B.
        adapter_a: adapter of A's model.
        adapter_b: adapter of B's model.
        layer_a: layers of A, instead of `layer`.
        layer_b: layers of B.
        head_a: heads of A, instead of `head`.
        head_b: heads of B.
        top: heads and links to name.
        fail_above: raise an error if a head or an effect changed more, in nats; of a run, if a head
            drifted more between the last two samples.
        fail_on: raise an error if a head of a run has one of these verdicts
            ("collapsed,saturating").
        options: those of `attnviz compare`, by name.

    Returns:
        One row for each head or effect; of attention the pictures "heatmap" and "grid". Of a run
        one for each step and head; the pictures "plot" and "gif"; a page with a slider.
    """
    how = arguments.read_options(options)
    origins = (
        {"model": model_a, "adapter": adapter_a},
        {"model": model_b, "adapter": adapter_b},
    )
    choices = {"layer": layer_a, "head": head_a}, {"layer": layer_b, "head": head_b}
    first = _side("a", a)
    second = first if b is None else _side("b", b)
    folders = [first] if b is None else [first, second]
    if request.check_runs(folders, how, (*origins, *choices), {"--fail-on": fail_on}):
        return _compare_runs(list(map(str, folders)), how, fail_above, fail_on)
    sides = request.sides_of((first, second), how, origins, choices)
    effects = request.saved_effects(sides, how)
    with collect("compare", "comparison" if effects is None else "changes", how) as report:
        if effects is None:
            data, changes = request.map_changes(sides, top)
        else:
            data, changes = request.effect_changes(effects, top)
        report.add(data)
    request.check_changes(changes, "heads" if effects is None else "effects", fail_above)
    return report.findings


def _compare_runs(
    folders: Sequence[str], how: Options, fail_above: float | None, fail_on: str | None
) -> Findings:
    bad = chosen_verdicts(fail_on)
    with collect("compare", "history", how) as report:
        item, histories = request.training_history(folders, how.choice)
        report.add(item)
    for one in histories:
        check_health(one.verdicts, bad)
        request.check_changes(request.last_drifts(one), "heads", fail_above)
    return report.findings


def _side(name: str, value: Any) -> str | InMemoryMaps | SavedEffects:
    """What is compared, in the form in which a run takes it."""
    if isinstance(value, Attention):
        return InMemoryMaps((value,))
    if isinstance(value, Findings) and value.kind == "ablation":
        effects = read_effects(value.render_as("json"), name)
        assert effects is not None
        return effects
    if not isinstance(value, str | Path):
        raise UsageError(f"{name}={in_short(value)} is no text and no name of a file")
    return str(value)
