"""One text or many with parts of a model switched off: the run behind `attnviz ablate`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from attnviz.analyses.ablation import (
    Each,
    Part,
    each_part,
    measured_parts,
    named_parts,
    predictions,
    replacements,
    together,
)
from attnviz.core.effects import (
    AblationReport,
    By,
    Change,
    Effect,
    Experiment,
    HeadOutputs,
    Prediction,
)
from attnviz.core.errors import UsageError, choose
from attnviz.core.query import Kind, Query
from attnviz.core.registry import FORMATS, Command
from attnviz.models import Source
from attnviz.models.lens import open_experiment
from attnviz.models.open import open_source
from attnviz.renderers import Display
from attnviz.renderers.reports import Data, as_bytes, format_of
from attnviz.renderers.text.effects import ablation_json, ablation_table, ablation_tsv
from attnviz.runs.pipeline import Result, split_options, written
from attnviz.storage.texts import Text, check_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attnviz.core.attention_map import Attention


@dataclass(frozen=True, slots=True)
class Ablation:
    """What to switch off, and how.

    Attributes:
        heads: "2.0" of the main stream, or "encoder.3.5".
        links: "rouge>red" in every head of the main stream, or "encoder:the>cat".
        tokens: "red", or "red[3]" where there are several.
        each: what to switch off one by one instead.
        by: what takes the place of a head's output.
        wanted: the output to explain; None: all of a given target, else one.
        seed: of what --by resample draws.
    """

    heads: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    each: Each | None = None
    by: By = "zero"
    wanted: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        choose(self.by, get_args(By), "replacement")
        if self.each is not None:
            choose(self.each, get_args(Each), "kind of parts")
        named = self.heads or self.links or self.tokens
        if named and self.each:
            raise UsageError(
                "--each switches everything of a kind off one by one: leave --head, --link and "
                "--token out"
            )

    def parts(self, attention: Attention) -> list[Part]:
        """What is switched off in a text; without a name every head."""
        if self.heads or self.links or self.tokens:
            return named_parts(attention, self.heads, self.links, self.tokens)
        return each_part(attention, self.each or "heads")

    def check_reference(self, *, given: bool) -> None:
        """Refuse texts to take positions from where none is taken, or none where one has to be."""
        if given and self.by == "zero":
            raise UsageError("--reference gives what --by mean and resample put in: add --by mean")
        if self.by == "resample" and not given:
            raise UsageError("--by resample draws positions from other texts: add --reference FILE")

    @property
    def joint(self) -> bool:
        """Whether what was named is also switched off all at once."""
        return bool(self.heads or self.links or self.tokens)


def ablate_text(
    source: Source, text: Text, asked: Ablation, banks: Sequence[HeadOutputs] = ()
) -> AblationReport:
    """What changes in one text; heads are replaced from the `banks` of a reference, if any."""
    return ablate_experiment(_experiment(source, text, asked), asked, banks)


def head_outputs(source: Source, text: Text, asked: Ablation) -> HeadOutputs:
    """What each head puts out at the positions of a text."""
    return _experiment(source, text, replace(asked, wanted=None)).head_outputs()


def _experiment(source: Source, text: Text, asked: Ablation) -> Experiment:
    kind: Kind = "self" if text.target is None else "cross"
    return open_experiment(source, Query(text.text, text.target, kind), asked.wanted)


def ablate_experiment(
    experiment: Experiment, asked: Ablation, banks: Sequence[HeadOutputs] = ()
) -> AblationReport:
    """What changes in one experiment."""
    attention = experiment.attention
    parts = asked.parts(attention)
    instead = None
    if asked.by != "zero":
        queries = {item.stream: item.weights.shape[2] for item in attention.maps}
        instead = replacements(asked.by, banks or [experiment.head_outputs()], queries, asked.seed)
    effects = measured_parts(experiment, parts, instead)
    joint, wrote = None, None
    seen: tuple[Prediction, ...] = ()
    if asked.joint:
        both = together(parts)
        (joint,) = measured_parts(experiment, [both], instead)
        seen = predictions(experiment, both[1], instead)
        before, after = experiment.write(Change()), experiment.write(both[1], instead)
        wrote = None if before is None or after is None else (before, after)
    output = experiment.outputs[0].name if len(experiment.outputs) == 1 else ""
    explained = f"'{output}'" if output else f"all {len(experiment.outputs)} tokens of the target"
    return AblationReport(
        f"{attention.provenance.title} · log p of {explained}",
        asked.by,
        tuple(effects),
        joint,
        seen,
        wrote,
        1,
        attention.provenance.notes,
        attention,
    )


@dataclass(eq=False)
class AblationStudy:
    """The effects of parts of the same names over many texts."""

    found: dict[str, list[Effect]] = field(default_factory=lambda: defaultdict(list))
    together: list[Effect] = field(default_factory=list)
    first: AblationReport | None = None
    texts: int = 0

    def add(self, report: AblationReport) -> None:
        """Take in the report of one text."""
        self.first = self.first or report
        self.texts += 1
        for effect in report.effects:
            self.found[effect.label].append(effect)
        if report.together is not None:
            self.together.append(report.together)

    def report(self) -> AblationReport:
        """Means over the texts, with 95 % intervals."""
        assert self.first is not None
        if self.texts == 1:
            return self.first
        return replace(
            self.first,
            caption=f"{self.first.maps.provenance.title} · mean over {self.texts} texts",
            effects=tuple(mean_effect(own) for own in self.found.values()),
            together=mean_effect(self.together) if self.together else None,
            predictions=(),
            wrote=None,
            texts=self.texts,
        )


def mean_effect(effects: Sequence[Effect]) -> Effect:
    """The mean of a part's effects over texts, with its interval."""
    values = np.array([effect.effect for effect in effects])
    known = values[np.isfinite(values)]
    mean = float(known.mean()) if len(known) else float("nan")
    return replace(effects[0], effect=mean, interval=None, texts=len(known), of_outputs=())


def ablation_data(report: AblationReport, top: int) -> Data:
    """A report in every form that the command writes; its table lists `top` effects."""

    def drawn(name: str) -> Figure:
        from attnviz.renderers.figures import effects

        kind = {"grid": "head", "words": "token"}.get(name)
        if kind is not None and all(one.kind != kind for one in report.effects):
            raise UsageError(f"the picture '{name}' shows each {kind}: give each='{kind}s'")
        figure: Figure = getattr(effects, f"effect_{name}")(report)
        return figure

    return Data(
        text=lambda display: ablation_table(report, top, display),
        rows=lambda: ablation_tsv(report),
        document=lambda: ablation_json(report),
        figures={name: partial(drawn, name) for name in ("bars", "grid", "words")},
    )


@dataclass(frozen=True, slots=True, eq=False)
class AblationResult(AblationReport):
    """What changes when parts of a model are switched off, with its table, pictures and files."""

    def table(self, top: int = 10) -> str:
        """The effects, the `top` largest first, then what the outputs and the text have become."""
        return ablation_table(self, top, Display())

    def save(self, file: str | Path) -> None:
        """Write the data; the suffix names the format.

        Raises:
            UsageError: a suffix that is no format's.
        """
        path = Path(file)
        renderer: Any = FORMATS[format_of(path, "ablation")].load_report()(Display())
        data = [renderer.add(ablation_data(self, len(self.effects)), tuple), renderer.finish()]
        path.write_bytes(b"".join(map(as_bytes, data)))

    def bars(self, file: str | Path | None = None) -> Figure:
        """Every effect as a bar, also written to a .png, .svg or .pdf if given."""
        return self._draw("bars", file)

    def grid(self, file: str | Path | None = None) -> Figure:
        """Every head coloured by its effect, also written to a file if given."""
        return self._draw("grid", file)

    def words(self, file: str | Path | None = None) -> Figure:
        """The text coloured by the effect of its tokens, also written to a file if given."""
        return self._draw("words", file)

    def _draw(self, picture: str, file: str | Path | None) -> Figure:
        return written(ablation_data(self, 0).figures[picture](), file)


def ablate(  # noqa: PLR0913 (as many as the command has options)
    text: str | Result,
    target: str | None = None,
    *,
    heads: Sequence[str | tuple[str | int, ...]] = (),
    links: Sequence[str | tuple[str, str]] = (),
    tokens: Sequence[str] = (),
    each: Each | None = None,
    by: By = "zero",
    reference: Sequence[str | tuple[str, str]] = (),
    explain: str | None = None,
    seed: int = 0,
    **options: Any,
) -> AblationResult:
    """What changes when heads, links or tokens are switched off: in nats, log p with − without.

    Args:
        text: the text, or the source of a pair; or what `attend` gave, to ask its model (loaded
            again) about the same text.
        target: the target of a pair; all its tokens are explained.
        heads: "2.0" or (2, 0) of the main stream, "encoder.3.5" or ("encoder", 3, 5).
        links: "rouge>red" or ("rouge", "red"), cut in every head of the main stream.
        tokens: "red", or "red[3]" where there are several, hidden from all others.
        each: switch everything of a kind off one by one instead; without any name every head.
        by: what a head puts out instead: zeros, its mean over positions, or positions drawn.
        reference: texts, or pairs, whose positions `by` takes; without them those of the text.
        explain: a class or a token (by text or number from 0) instead of what is explained.
        seed: of the positions drawn.
        options: the fields of `attnviz.core.options.Origin` (model, device, …) by name.

    Returns:
        `.effects`, `.together`, `.predictions`, `.wrote`, `.table()`, `.save()`, `.bars()`,
        `.grid()`, `.words()`.

    Raises:
        AttnvizError: what the command line would say in one line.
    """

    def listed(given: Any) -> Any:
        return [given] if isinstance(given, str) else given

    wanted = explain
    if isinstance(text, Result):
        if target is not None or options:
            raise UsageError("a result has its own target and options: give its text to use others")
        if text.origin is None or text.query is None or text.query.kind not in ("self", "cross"):
            raise UsageError("only what attend() gave of one text or a pair can be asked again")
        origin, query = text.origin, text.query
        wanted = explain or text.choice.explain
        asked_text = Text(text.id, query.text, text.target if query.kind == "cross" else None)
    else:
        origin, choice = split_options(options)
        if choice != type(choice)():
            raise UsageError("effects are of the whole model: leave layer, head, lens, … out")
        asked_text = _checked((text, target) if target is not None else text)
    asked = Ablation(
        tuple(one if isinstance(one, str) else ".".join(map(str, one)) for one in listed(heads)),
        tuple(one if isinstance(one, str) else ">".join(one) for one in listed(links)),
        tuple(listed(tokens)),
        each,
        by,
        wanted,
        seed,
    )
    asked.check_reference(given=bool(reference))
    command: Command = "self" if asked_text.target is None else "cross"
    source = open_source(origin, command, with_head=True)
    banks = [head_outputs(source, _checked(one), asked) for one in listed(reference)]
    found = ablate_text(source, asked_text, asked, banks)
    known = {item.name: getattr(found, item.name) for item in fields(AblationReport)}
    return AblationResult(**known)


def _checked(text: str | tuple[str, str]) -> Text:
    source, target = (text, None) if isinstance(text, str) else text
    return Text("0", check_text(source), target and check_text(target, "target"))
