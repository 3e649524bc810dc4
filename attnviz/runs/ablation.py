"""One text or many with parts of a model switched off: the run behind `attnviz ablate`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from attnviz.analyses.effects.ablation import (
    Each,
    Part,
    each_part,
    head_places,
    measured_parts,
    named_parts,
    predictions,
    replacements,
    together,
)
from attnviz.analyses.measures.intervals import means_over
from attnviz.core.effects import (
    AblationReport,
    By,
    Effect,
    HeadOutputs,
    Intervention,
    label_of,
)
from attnviz.core.errors import UsageError
from attnviz.core.notices import merged
from attnviz.core.query import Query
from attnviz.models import Source
from attnviz.models.lens import open_experiment
from attnviz.storage.texts import Text

if TYPE_CHECKING:
    from attnviz.core.attention_map import Attention


@dataclass(frozen=True, slots=True)
class Ablation:
    """What to switch off, and how.

    Attributes:
        heads: "2.0" of the main stream, or "encoder.3.5"; "0" and "0-3" are of the layers chosen.
        links: "rouge>red" in every head of the main stream, or "encoder:the>cat".
        tokens: "red", or "red[3]" where there are several.
        layer: "2", "0-2" or "encoder.2", switched off where no heads are named.
        each: what to switch off one by one instead.
        by: what takes the place of a head's output.
        wanted: the output to explain; None: every token that is predicted, else one output.
        seed: of what --by resample draws.
    """

    heads: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    layer: str | None = None
    each: Each | None = None
    by: By = "zero"
    wanted: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        head_places(self.heads, self.layer)
        named = {"head": self.heads, "layer": self.layer, "link": self.links, "token": self.tokens}
        if self.joint and self.each:
            clash = next(name for name, value in named.items() if value)
            raise UsageError(
                f"--each {self.each} switches off one after the other, and --{clash} what it "
                "names: give one of them"
            )

    def parts(self, attention: Attention) -> list[Part]:
        """What is switched off in a text; without a name every head."""
        if self.joint:
            return named_parts(attention, self.heads, self.links, self.tokens, self.layer)
        return each_part(attention, self.each or "heads")

    @property
    def joint(self) -> bool:
        """Whether what was named is also switched off all at once."""
        return bool(self.heads or self.layer or self.links or self.tokens)


def ablate_text(
    source: Source, text: Text, asked: Ablation, banks: Sequence[HeadOutputs] = ()
) -> AblationReport:
    """What changes in one text; heads are replaced from the `banks` of a reference, if any."""
    experiment = open_experiment(source, query_for(text), asked.wanted)
    attention = replace(experiment.attention, id=text.id)
    parts = asked.parts(attention)
    instead = None
    if asked.by != "zero":
        own = banks or [experiment.head_outputs()]
        instead = replacements(asked.by, own, attention, asked.seed)
    both = [together(parts)] if asked.joint else []
    effects = tuple(measured_parts(experiment, [*parts, *both], instead))
    names = tuple(output.name for output in experiment.outputs)
    every = f"all {len(names)} tokens of the {attention.main.query_side}"
    place = label_of(experiment.outputs[0], attention.main.query_tokens).removeprefix(names[0])
    found = AblationReport(
        caption=f"{attention.provenance.title} · log p of "
        + (every if len(names) > 1 else f"'{names[0]}'{place}"),
        by=asked.by,
        effects=effects[: len(parts)],
        together=effects[-1] if both else None,
        predictions=(),
        wrote=None,
        texts=1,
        notes=(*attention.provenance.notes, *_words(attention, parts)),
        maps=attention,
        explained=names,
        reference=len(banks),
    )
    if not both:
        return found
    change = both[0][1]
    seen = predictions(experiment, change, instead)
    before, after = experiment.write(Intervention()), experiment.write(change, instead)
    wrote = None if before is None or after is None else (before, after)
    return replace(found, predictions=seen, wrote=wrote)


def _words(attention: Attention, parts: Sequence[Part]) -> list[str]:
    """What a reader must know of words that are several tokens."""
    texts = {item.key_side: [token.text for token in item.key_tokens] for item in attention.maps}
    found = []
    for part, change in parts:
        if len(change.tokens) > 1:
            pieces = " ".join(texts[at.side][at.position] for at in change.tokens)
            told = f"{len(change.tokens)} tokens, hidden together: '{pieces}'"
            found.append(f"'{part.label}' is {told}")
        if len(change.links) > 1:
            found.append(
                f"'{part.label}' is {len(change.links)} links between tokens, cut together"
            )
    return found


def query_for(text: Text) -> Query:
    """What a model is asked about a text, or about both of a pair."""
    return Query(text.text, text.target, "self" if text.target is None else "cross")


@dataclass(eq=False)
class AblationStudy:
    """The effects over many texts: of parts as they were named, or else of those called alike."""

    found: dict[str | int, list[Effect]] = field(default_factory=lambda: defaultdict(list))
    together: list[Effect] = field(default_factory=list)
    first: AblationReport | None = None
    texts: int = 0
    notes: tuple[str, ...] = ()

    def add(self, report: AblationReport) -> None:
        """Take in the report of one text."""
        self.first = self.first or report
        self.texts += 1
        self.notes = merged((*self.notes, *report.notes))
        for number, effect in enumerate(report.effects):
            key = effect.label if report.together is None else number
            self.found[key].append(replace(effect, of_outputs=()))
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
            effects=tuple(mean_effect(own) for own in self.found.values()),
            together=mean_effect(self.together) if self.together else None,
            predictions=(),
            wrote=None,
            texts=self.texts,
            notes=self.notes,
            maps=replace(maps, provenance=replace(maps.provenance, notes=self.notes)),
            explained=(),
        )


def mean_effect(effects: Sequence[Effect]) -> Effect:
    """The mean of a part's effects over texts, with what of its place is the same in all."""
    texts, *numbers = means_over(np.array([one.effect for one in effects]))
    mean, low, high = map(float, numbers)
    interval = (low, high) if texts > 1 else None
    first, *others = (one.place.items() for one in effects)
    place = {name: at for name, at in first if all((name, at) in other for other in others)}
    return Effect(effects[0].label, effects[0].kind, place, mean, interval, int(texts))
