"""attnviz compare."""

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from attnviz.cli.stderr import complain
from attnviz.commands.command import CHOICE, ORIGIN, OUTPUT, Run, command
from attnviz.commands.findings import Findings
from attnviz.core.attention_map import Attention
from attnviz.core.effects import SavedEffects
from attnviz.core.errors import HealthError, UsageError, in_short
from attnviz.core.options import InMemoryMaps
from attnviz.core.options.option import arg, opt, rare
from attnviz.features.compare import history, request
from attnviz.features.compare.report import RULES, History
from attnviz.storage.saved_maps import read_effects

Side = str | Path | Attention | Findings


@command(
    *("model", "compute", "mechanism", "causal", "generate", "chat", "long"),
    *(
        "lens",
        "explain",
        "stream",
        "heads",
        "reduce",
        "special",
        "group",
        "pictures",
        "show",
        "look",
        "page",
    ),
    also=["from_"],
    writes=("comparison", "changes", "history"),
    rare=("generate", "special", "words"),
    draws={
        "plot": "every head of a run over its steps",
        "gif": "its chosen head over the steps, or the one that drifts most",
    },
)
def compare(
    a: Side = arg(
        "A text, a saved map (.npz, .json, .safetensors), saved effects (.npz, .json), or a folder "
        "of samples of a training run.",
        default=...,
        shell=str,
        python="a text, a saved map or saved effects by name, a result of `attend`, what `ablate` "
        "found, or a folder of samples that `attnviz.callbacks` took: step-00000100.npz, ….",
    ),
    b: Side | None = arg("The other side; default: A with other options.", shell=str | None),
    *,
    model_a: str | None = opt(ORIGIN, "--model-a ID_OR_FOLDER", "Model of A, instead of --model."),
    model_b: str | None = opt(ORIGIN, "--model-b ID_OR_FOLDER", "Model of B, instead of --model."),
    adapter_a: str | None = rare(ORIGIN, "--adapter-a ID_OR_FOLDER", "Adapter of A's model."),
    adapter_b: str | None = rare(ORIGIN, "--adapter-b ID_OR_FOLDER", "Adapter of B's model."),
    layer_a: str | None = rare(CHOICE, "--layer-a WHICH", "Layers of A, instead of --layer."),
    layer_b: str | None = rare(CHOICE, "--layer-b WHICH", "Layers of B, instead of --layer."),
    head_a: str | None = rare(CHOICE, "--head-a WHICH", "Heads of A, instead of --head."),
    head_b: str | None = rare(CHOICE, "--head-b WHICH", "Heads of B, instead of --head."),
    top: int = opt(OUTPUT, "--top N", "How many heads and links to name.", default=10, min=1),
    fail_above: float | None = rare(
        OUTPUT,
        "--fail-above NATS",
        "Exit with 1 if a head's divergence (0: none, 0.693: all) or an effect's change is larger; "
        "of a run its drift between the last two samples.",
        min=0,
    ),
    fail_on: str | None = rare(
        OUTPUT,
        "--fail-on NAMES",
        "Exit with 3 if a head of a run is one of these: " + ", ".join(RULES) + ".",
    ),
    follow: bool = rare(
        OUTPUT,
        "--follow",
        "Go on while a run trains: write all again with each new sample.",
        hidden=True,
    ),
    **options: Any,
) -> Findings:
    """Show what changed between two attentions, or over a training run.

    A and B may be two texts, models, heads or saved maps, or two files of `attnviz ablate`. A alone
    may be a folder of samples that attnviz.callbacks saved: it shows what happens to which heads
    since which step; two folders are two runs.

    attnviz compare "The cat sat on the mat" "The dog sat on the mat"

    attnviz compare "The cat sat" "The dog sat" --heatmap change.png --fail-above 0.5

    attnviz compare "The cat sat on the mat" --head-a 0.3 --head-b 3.5

    python training_run.py samples && attnviz compare samples --picture heads.png

    attnviz compare samples --fail-on collapsed,saturating

    Returns:
        One row for each head or effect; of attention the pictures "heatmap" and "grid". Of a run
        one for each step and head; the pictures "plot" and "gif"; a page with a slider.
    """
    run = Run("compare", options)
    origins = (
        {"model": model_a, "adapter": adapter_a},
        {"model": model_b, "adapter": adapter_b},
    )
    choices = {"layer": layer_a, "head": head_a}, {"layer": layer_b, "head": head_b}
    of_runs = {"--fail-on": fail_on, "--follow": follow, "--picture": run.options.output.picture}
    first = _side("a", a)
    second = first if b is None else _side("b", b)
    folders = [first] if b is None else [first, second]
    is_run = request.check_runs(folders, run.options, (*origins, *choices), of_runs)
    names = ("plot", "gif") if is_run else ("heatmap", "grid")
    pictures = run.options.pictures
    how = run.options = replace(run.options, pictures={name: pictures.get(name) for name in names})
    if is_run:
        return _follow_runs(run, list(map(str, folders)), fail_above, fail_on, follow=follow)
    sides = request.sides_of((first, second), how, origins, choices)
    effects = request.saved_effects(sides, how)
    with run.report("comparison" if effects is None else "changes") as report:
        if effects is None:
            data, changes = request.map_changes(sides, top)
        else:
            data, changes = request.effect_changes(effects, top)
        report.add(data)
        report.finish("compared")
    request.check_changes(changes, "heads" if effects is None else "effects", fail_above)
    return run.result


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


def _follow_runs(
    run: Run,
    folders: Sequence[str],
    fail_above: float | None,
    fail_on: str | None,
    *,
    follow: bool,
) -> Findings:
    """Show what heads did over one training run or two, again with each new sample if asked for."""
    bad = history.chosen_verdicts(fail_on)
    while True:
        before = _newest(folders)
        with run.report("history") as report:
            item, histories = request.training_history(folders, run.options.choice)
            counts = [len(one.steps) for one in histories]
            if fail_above is not None and not follow and min(counts) < 2:
                raise UsageError("--fail-above compares two samples, and there is one")
            if follow and sys.stdout.isatty():
                typer.echo("\033[H\033[J", nl=False)
            report.add(item)
            report.finish(" and ".join(f"{n} sample{'s' if n != 1 else ''}" for n in counts))
        _check(run, histories, bad, fail_above)
        if not follow:
            return run.result
        while _newest(folders) == before:
            time.sleep(1)


def _check(run: Run, histories: Sequence[History], bad: Sequence[str], most: float | None) -> None:
    """End with an error where a head has a bad verdict, or has drifted further than that."""
    try:
        for one in histories:
            history.check_health(one.verdicts, bad)
    except HealthError as error:
        if not run.in_shell:
            raise
        for line in str(error).splitlines():
            complain(line)
        raise typer.Exit(error.status) from error
    for one in histories:
        if len(one.steps) > 1:  # the first sample of a run that is followed has drifted from none
            request.check_changes(request.last_drifts(one), "heads", most)


def _newest(folders: Sequence[str]) -> list[tuple[str, float]]:
    """What tells whether a sample was added or replaced since."""
    paths = (path for folder in folders for path in Path(folder).glob("step-*.npz"))
    return sorted((path.name, path.stat().st_mtime) for path in paths)
