"""What a smaller cache costs: rules over texts, by kind of text, reported."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from statistics import fmean
from typing import TYPE_CHECKING, Final

import numpy as np

from attnviz.core import errors, notices, registry
from attnviz.core.options import Options
from attnviz.core.records import asdict, dataclass, replace
from attnviz.features.cache.cost import CachedText, mean_cost, measure_rules
from attnviz.features.cache.eviction import Budget, is_size, parse_rules
from attnviz.features.cache.report import CacheReport
from attnviz.features.cache.table import cache_table, cache_tsv
from attnviz.features.experiments.texts import open_experiment
from attnviz.models import Source
from attnviz.models.open import is_shipped, open_source
from attnviz.renderers.reports import Data, data_of
from attnviz.runs import inputs, readers, reporting
from attnviz.runs.readers import INSIDE, each_text
from attnviz.storage.documents import dump_json
from attnviz.storage.texts import Text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attnviz.core.attention_map import Attention

PICTURE: Final = "picture"
BOUND = (
    "best tries several choices of keys on each text (by measured effect, by estimated effect in "
    "each head, and each rule that decides at every step) and takes the cheapest; it looks ahead, "
    "and a better set may exist"
)
OWN = (
    "own selection: the keys that the model itself chooses, and the attention over all earlier "
    "keys that goes to them; rules act on these"
)

NO_RULE = errors.UsageError('cache needs a rule: --keep "sinks:4+recent:64", --keep h2o:0.2')


@dataclass(frozen=True, slots=True)
class CacheRequest:
    """What is asked about caches; `attnviz.cache` explains each field."""

    keep: tuple[str, ...]
    prompt: str | None = None
    stream: str | None = None
    per_head: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        once = any(one.row.once for rule in self.rules for one in rule)
        if self.prompt == "0" and once:
            raise errors.UsageError("snapkv decides after a prompt: leave --prompt 0 out")
        if self.prompt not in (None, "0") and not is_size(self.prompt or ""):
            raise errors.UsageError(
                f"--prompt {self.prompt} is neither a number of tokens, as 64, nor a share, as 0.5"
            )

    @property
    def rules(self) -> list[tuple[Budget, ...]]:
        """Each rule with each of its budgets."""
        return parse_rules(self.keep)


@dataclass(eq=False)
class CacheStudy:
    """What rules cost in texts of several kinds."""

    request: CacheRequest
    reads: registry.SourceKind
    texts: int = 0
    notes: tuple[str, ...] = ()
    first: Attention | None = None

    def __post_init__(self) -> None:
        self.by_kind = defaultdict[str, list[CachedText]](list)

    def measure(self, source: Source, text: Text) -> tuple[CachedText, Attention]:
        """What each rule costs in one text."""
        request = self.request
        optional, prompt = None, request.prompt
        query = readers.query_for(source, text, self.reads)
        experiment = open_experiment(source, query)
        if self.reads == "picture-text":
            tokens = experiment.attention.main.key_tokens
            optional = np.array([token.label == PICTURE for token in tokens])
            prompt = prompt or str(experiment.outputs[0].position)
        costs = measure_rules(
            experiment,
            request.rules,
            stream=request.stream,
            prompt=prompt,
            per_head=request.per_head,
            seed=request.seed,
            optional=optional,
        )
        return costs, replace(experiment.attention, id=text.id)

    def add(self, kind: str, text: CachedText, attention: Attention) -> None:
        """Take in one text."""
        self.first = self.first or attention
        self.notes = notices.merge_notices((*self.notes, *attention.provenance.notes))
        self.by_kind[kind].append(text)
        self.texts += 1

    def report(self) -> CacheReport:
        """The means over texts of each kind."""
        assert self.first is not None
        stream = next(iter(self.by_kind.values()))[0].item.stream
        count = f" · {self.texts} texts" if self.texts > 1 else ""
        looks_ahead = any(one.row.measured for rule in self.request.rules for one in rule)
        own = any(not one.run.rules for texts in self.by_kind.values() for one in texts[0].costs)
        return CacheReport(
            caption=f"{self.first.provenance.title} · what a smaller cache costs · {stream}{count}",
            stream=stream,
            prompt=self._prompt(),
            full={kind: fmean(one.full for one in own) for kind, own in self.by_kind.items()},
            counted={kind: sum(one.counted for one in own) for kind, own in self.by_kind.items()},
            rules=tuple(
                mean_cost(kind, own[0].item, [one.costs[number] for one in own])
                for kind, own in self.by_kind.items()
                for number in range(len(own[0].costs))
            ),
            texts=self.texts,
            notes=(*self.notes, *([BOUND] if looks_ahead else []), *([OWN] if own else [])),
            provenance=self.first.provenance,
        )

    def _prompt(self) -> str:
        counts = sorted({one.prompt for own in self.by_kind.values() for one in own})
        if counts == [0]:
            return "rules act from the first token on"
        some = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        some += " token is" if counts == [1] else " tokens are"
        place = " on the picture's tokens" if self.reads == "picture-text" else ""
        return f"the first {some} read with all keys, then rules act{place}"


def report_cache(
    request: CacheRequest,
    texts: Sequence[tuple[str, inputs.TextInput]],
    kind: registry.SourceKind,
    options: Options,
    report: reporting.RunReport,
) -> None:
    """Report what rules cost in texts of one or several kinds, each with its name."""
    origin = options.origin
    inside = origin.model is None and is_shipped(origin)

    @cache
    def source_for(*, pair: bool) -> Source:
        if inside and not pair:
            report.say(INSIDE)
            return open_source(replace(origin, model="pocket-lm"), "self", with_head="exact")
        return open_source(origin, kind, with_head="exact")

    def measure(text: Text) -> tuple[CachedText, Attention]:
        return study.measure(source_for(pair=text.target is not None), text)

    if not request.keep and is_shipped(origin):
        raise NO_RULE
    study = CacheStudy(request, kind)
    last: tuple[CachedText, Attention] | None = None
    for name, some in texts:
        results = each_text(some.open(), measure)
        for _, last in reporting.good_results(results, report, some.total):
            if not last[0].costs:  # only a model that selects keys itself needs no rule
                raise NO_RULE
            study.add(name, *last)
    if study.texts and last is not None:
        summary = study.report()
        report.add(_cache_data(summary, *last))
    report.finish(f"{study.texts} text{'s' if study.texts != 1 else ''}")


def _cache_data(report: CacheReport, text: CachedText, attention: Attention) -> Data:
    def plot() -> Figure:
        from attnviz.features.cache.picture import cost_curves

        return cost_curves(report)

    def page(command: str) -> str:
        from attnviz.features.cache.picture import cache_page
        from attnviz.renderers.figures.figure import figure_bytes

        pictures = []
        for number, one in enumerate(text.costs if report.texts == 1 else ()):
            pictures.append((str(one.run), figure_bytes(draw(number), ".svg")))
        lines = len({(one.kind, one.name) for one in report.rules}) < len(report.rules)
        curves = figure_bytes(plot(), ".svg") if lines or report.texts > 1 else b""
        return cache_page(report, curves, pictures, command)

    def draw(number: int = 0) -> Figure:
        from attnviz.features.cache.picture import struck_heatmap
        from attnviz.renderers.figures.figure import fit_width

        run, mass = text.costs[number].run, text.costs[number].mass
        layer, head = map(int, np.unravel_index(mass.argmin(), mass.shape))
        name = text.item.layers[layer]
        item = text.item.part([name], [text.item.heads[head]])
        return fit_width(
            struck_heatmap,
            item,
            absent=run.hidden_cells[name][head],
            title=f"{attention.provenance.title} · {run} · layer {name} head {head}",
            subtitle=f"weights with all keys, those gone struck out: {mass[layer, head]:.0%} of "
            "the attention stays, the least of all heads",
        )

    figures = {"plot": plot} | ({"heatmap": draw} if report.texts == 1 else {})
    return data_of(
        *(report, cache_table, cache_tsv, "cache"),
        figures=figures,
        page=page,
        about=dump_json(asdict(report.provenance)),
        notes=report.notes,
    )
