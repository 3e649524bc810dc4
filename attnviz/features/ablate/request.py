"""One text or many with parts of a model switched off; and how far lenses agree with that."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from attnviz.analyses.group import name_tokens
from attnviz.core import notices, registry
from attnviz.core.attention_map import Attention
from attnviz.core.effects import By, Effect, HeadOutputs, Intervention, label_of
from attnviz.core.errors import InputError, UsageError
from attnviz.core.options import Options
from attnviz.core.records import dataclass, field, replace
from attnviz.features.ablate.faithfulness import TextFaithfulness, faithfulness, lens_report
from attnviz.features.ablate.parts import (
    Each,
    Part,
    each_part,
    find_parts,
    head_places,
    measure_parts,
    predictions,
    replacements,
    together,
)
from attnviz.features.ablate.report import AblationReport
from attnviz.features.ablate.table import ABLATION, LENSES, ablation_json, ablation_npz
from attnviz.features.experiments.texts import explained_by, open_experiment, outputs_of_texts
from attnviz.features.lenses.ask import ask_source, scores_of
from attnviz.features.measures.intervals import means_over
from attnviz.models import Source
from attnviz.models.open import open_source
from attnviz.renderers.reports import Data, data_of, draw_by
from attnviz.runs.inputs import TextInput
from attnviz.runs.pipeline import query_of
from attnviz.runs.readers import each_text
from attnviz.runs.reporting import RunReport, good_results
from attnviz.storage.texts import Text


@dataclass(frozen=True, slots=True)
class Ablation:
    """What to switch off, and how."""

    heads: tuple[str, ...] = ()  # "2.0", "encoder.3.5"; "0" and "0-3" are of `layer`
    links: tuple[str, ...] = ()  # "rouge>red" in every head, or "encoder:the>cat"
    tokens: tuple[str, ...] = ()  # "red", or "red[3]" where there are several
    layer: str | None = None  # "2", "0-2" or "encoder.2", switched off where no heads are named
    each: Each | None = None  # what to switch off one by one instead
    by: By = "zero"  # what takes the place of a head's output
    output: str | None = None  # the output to explain; None: every predicted token, else one output
    seed: int = 0  # of what --by resample draws
    names: Path | None = None  # a file of groups of tokens with names
    lenses: bool = False  # compare each lens with hiding each token instead

    def __post_init__(self) -> None:
        head_places(self.heads, self.layer)
        names = {"head": self.heads, "layer": self.layer, "link": self.links, "token": self.tokens}
        if self.lenses:
            others: dict[str, object] = {**names, "each": self.each, "labels": self.names}
            others["by"] = self.by != "zero"
            refuse_with_lenses({f"--{name}": value for name, value in others.items()})
        if self.joint and self.each:
            clash = next(name for name, value in names.items() if value)
            raise UsageError(
                f"--each {self.each} switches off one after the other, and --{clash} what it "
                "names: give one of them"
            )

    def parts(self, attention: Attention) -> list[Part]:
        """What is switched off in a text; without a name every head."""
        if self.joint:
            return find_parts(attention, self.heads, self.links, self.tokens, self.layer)
        return each_part(attention, self.each or "heads")

    @property
    def joint(self) -> bool:
        """Whether all named parts are also switched off together."""
        return bool(self.heads or self.layer or self.links or self.tokens)


def refuse_with_lenses(others: Mapping[str, object]) -> None:
    """Refuse the options that were given beside --lenses."""
    if clash := next((name for name, value in others.items() if value), None):
        raise UsageError(f"--lenses hides each token by itself: leave {clash} out")


def ablate_text(
    source: Source,
    text: Text,
    request: Ablation,
    others: Sequence[HeadOutputs] = (),
    *,
    whole: bool = True,
) -> AblationReport:
    """What changes in one text; heads put out what they do in `others`, the texts of a reference.

    `whole`: also each prediction, and what the model writes then, which takes far longer.
    """
    experiment = open_experiment(source, query_of(source, text), request.output)
    attention = replace(experiment.attention, id=text.id)
    if request.names is not None:
        attention = name_tokens(attention, request.names)
    parts = request.parts(attention)
    instead = None
    if request.by != "zero":
        own = others or [experiment.head_outputs()]
        instead = replacements(request.by, own, attention, request.seed)
    both = [together(parts)] if request.joint else []
    effects = tuple(measure_parts(experiment, [*parts, *both], instead))
    names = tuple(output.name for output in experiment.outputs)
    every = f"all {len(names)} tokens of the {attention.main.query_side}"
    place = label_of(experiment.outputs[0], attention.main.query_tokens).removeprefix(names[0])
    report = AblationReport(
        caption=f"{attention.provenance.title} · log p of "
        + (every if len(names) > 1 else f"'{names[0]}'{place}"),
        by=request.by,
        effects=effects[: len(parts)],
        together=effects[-1] if both else None,
        predictions=(),
        wrote=None,
        texts=1,
        notes=(*attention.provenance.notes, *_words(attention, parts)),
        maps=attention,
        explained=names,
        reference=len(others),
    )
    if not both or not whole:
        return report
    change = both[0][1]
    rows = predictions(experiment, change, instead)
    before, after = experiment.write(Intervention()), experiment.write(change, instead)
    wrote = None if before is None or after is None else (before, after)
    return replace(report, predictions=rows, wrote=wrote)


def _words(attention: Attention, parts: Sequence[Part]) -> list[str]:
    """Notes on words that are several tokens."""
    texts = {item.key_side: [token.text for token in item.key_tokens] for item in attention.maps}
    notes = []
    for part, change in parts:
        if len(change.tokens) > 1:
            pieces = " ".join(texts[at.side][at.position] for at in change.tokens)
            count = len(change.tokens)
            notes.append(f"'{part.label}' is {count} tokens, hidden together: '{pieces}'")
        if len(change.links) > 1:
            notes.append(
                f"'{part.label}' is {len(change.links)} links between tokens, cut together"
            )
    return notes


@dataclass(eq=False)
class AblationStudy:
    """Effects over many texts: of named parts, else of all parts with the same label."""

    effects: dict[str | int, list[Effect]] = field(default_factory=lambda: defaultdict(list))
    together: list[Effect] = field(default_factory=list)
    first: AblationReport | None = None
    texts: int = 0
    notes: tuple[str, ...] = ()

    def add(self, report: AblationReport) -> None:
        self.first = self.first or report
        self.texts += 1
        self.notes = notices.merge_notices((*self.notes, *report.notes))
        for number, effect in enumerate(report.effects):
            key = effect.label if report.together is None else number
            self.effects[key].append(replace(effect, of_outputs=()))
        if report.together is not None:
            self.together.append(report.together)

    def report(self) -> AblationReport:
        """Means over the texts, with 95 % intervals."""
        assert self.first is not None
        if self.texts == 1:
            return self.first
        names = self.first.explained
        side = self.first.maps.main.query_side
        what = f"all tokens of the {side}" if len(names) > 1 else "one output"
        maps = self.first.maps
        title = maps.provenance.title
        return replace(
            self.first,
            caption=f"{title} · log p of {what} · mean over {self.texts} texts",
            effects=tuple(mean_effect(own) for own in self.effects.values()),
            together=mean_effect(self.together) if self.together else None,
            predictions=(),
            wrote=None,
            texts=self.texts,
            notes=self.notes,
            maps=replace(maps, provenance=replace(maps.provenance, notes=self.notes)),
            explained=(),
        )


def mean_effect(effects: Sequence[Effect]) -> Effect:
    """The mean effect of a part over texts; its place keeps what is the same in all."""
    texts, *numbers = means_over(np.array([one.effect for one in effects]))
    mean, low, high = map(float, numbers)
    interval = (low, high) if texts > 1 else None
    first, *others = (one.place.items() for one in effects)
    place = {name: at for name, at in first if all((name, at) in other for other in others)}
    return Effect(effects[0].label, effects[0].kind, place, mean, interval, int(texts))


def check_reference(request: Ablation, *, has_reference: bool) -> None:
    """Refuse a reference that is not used, and --by resample without one."""
    if has_reference and request.by == "zero":
        raise UsageError("--reference gives what --by mean and resample put in: add --by mean")
    if request.by == "resample" and not has_reference:
        raise UsageError("--by resample draws positions from other texts: add --reference FILE")


def report_ablation(
    request: Ablation,
    texts: TextInput,
    command: registry.Command,
    options: Options,
    report: RunReport,
    *,
    reference: TextInput | None = None,
    top: int = 10,
    single: bool = True,
) -> None:
    """Report what changes in each text, or the means over several.

    `reference` holds texts that --by mean and resample take positions from; `top` is the number of
    effects in a table; `single` keeps each text's own effects for JSON lines.
    """
    source = open_source(options.origin, command, with_head="exact")
    others = [] if reference is None else outputs_of_texts(source, reference)
    study, lines = AblationStudy(), list[str]()
    # A name that one text does not contain is an error of that text: another may contain it.
    has_names = request.links or request.tokens or request.output
    own = (InputError, UsageError) if has_names else (InputError,)

    def effects_in(text: Text) -> AblationReport:
        # Of several texts only means are shown, unless each has a line of its own.
        return ablate_text(source, text, request, others, whole=single or not study.texts)

    outcomes = each_text(texts.open(), effects_in, own)
    for _, effects in good_results(outcomes, report, texts.total):
        for note in effects.notes:
            report.hold(note)
        study.add(effects)
        if single:
            lines.append(ablation_json(effects))
    if study.texts:
        report.add(_effects_data(study.report(), top, lines))
    report.finish(f"{study.texts} text{'s' if study.texts != 1 else ''}")


def _effects_data(report: AblationReport, top: int, lines: list[str]) -> Data:
    pictures, kinds = (
        {"bars": "attnviz.features.ablate.picture:effect_bars"},
        {one.kind for one in report.every},
    )
    if kinds == {"head"}:
        pictures["grid"] = "attnviz.features.ablate.picture:effect_grid"
    elif kinds == {"token"}:
        pictures["highlight"] = "attnviz.features.ablate.picture:effect_words"
    return data_of(
        *(report, *ABLATION, top),
        lines=lambda: "".join(lines),
        arrays=partial(ablation_npz, report),
        figures={name: partial(draw_by, function, report) for name, function in pictures.items()},
        notes=report.notes,
    )


def report_lenses(
    texts: TextInput, command: registry.Command, seed: int, options: Options, report: RunReport
) -> None:
    """Report how each lens's scores of tokens agree with hiding these tokens."""
    source = open_source(options.origin, command, with_head=True)

    def agreement_of(text: Text) -> TextFaithfulness:
        query = query_of(source, text)
        experiment = open_experiment(source, query, options.choice.explain)
        scores = scores_of(explained_by(experiment), partial(ask_source, source, query))
        return faithfulness(scores, seed)

    results = each_text(texts.open(), agreement_of)
    agreements = [one for _, one in good_results(results, report, texts.total)]
    if agreements:
        result = lens_report(agreements)
        report.add(data_of(result, *LENSES))
        for note in result.provenance.notes:
            report.say(note)
    report.finish(f"{len(agreements)} text{'s' if len(agreements) != 1 else ''}")
