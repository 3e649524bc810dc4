"""A text seen through a lens: what the lens needs of a source, and what to say without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from attnviz.core.attention_map import AGREEMENT, Attention
from attnviz.core.effects import label_of
from attnviz.core.errors import AttentionError, InputError, ModelError, UsageError, in_words
from attnviz.core.lens_inputs import NEXT, AttentionGradients
from attnviz.core.plugins import INTERRUPTIONS
from attnviz.core.query import ALL_OUTPUTS, Query
from attnviz.core.registry import LENSES, Needs
from attnviz.models import Experimenting, Source, SupportsGradients, SupportsValues

if TYPE_CHECKING:
    from attnviz.analyses.effects.faithfulness import TokenScores
    from attnviz.core.effects import Experiment
    from attnviz.core.lens_inputs import ValueVectors

MOST_TOKENS = 64
"""Tokens that are hidden one by one beside every lens at most: a batch of runs."""
ALL_LENSES = "all"
"""The name under which every lens is shown side by side."""

Ask: TypeAlias = "Callable[[Needs], AttentionGradients | ValueVectors]"
"""What answers with more than weights, or raises that there is no more."""


PREDICTED: tuple[Needs, ...] = ("gradients", "effects")
"""What lenses need that only a model that predicts something has."""


NAMES = {row.needs: name for name, row in LENSES.items() if not row.package}
"""The lens that is named where what it needs is missing."""


def needs_head(lens: str) -> bool:
    """True where what a model predicts will be asked for."""
    return lens == ALL_LENSES or (lens in LENSES and LENSES[lens].needs in PREDICTED)


def apply_lens(
    lens: str,
    attend: Callable[[], Attention],
    ask: Ask,
    prepare: Callable[[Attention], Attention],
    *,
    insisted: Needs | None = None,
) -> Attention:
    """The attention of a text through a lens ("raw" or a name in `LENSES`), or through "all".

    Raw maps are prepared before they are looked at. What is `insisted` on "all" may not leave out.

    Raises:
        UsageError: the lens does not apply here; the message says why and which does.
    """

    def ask_prepared(needs: Needs) -> AttentionGradients | ValueVectors:
        found = ask(needs)
        return replace(found, attention=prepare(found.attention))

    if lens == ALL_LENSES:
        return every_lens(prepare(attend()), ask_prepared, insisted=insisted)
    if lens != "raw" and LENSES[lens].needs != "weights":
        found: Attention = LENSES[lens].load()(ask_prepared(LENSES[lens].needs))
        return found
    attention = prepare(attend())
    return attention if lens == "raw" else LENSES[lens].load()(attention)


def every_lens(attention: Attention, ask: Ask, *, insisted: Needs | None = None) -> Attention:
    """The main map through each lens that applies, each a stream called after its lens.

    One that does not apply is left out, and a note says why.
    """
    from attnviz.analyses.masks import refuse_implied

    refuse_implied(attention, "--lens all")
    maps = [replace(attention.main, stream="raw")]
    notes, settings = list[str](), dict[str, Any]()
    # What was insisted on is asked for first: if it cannot be had, no other lens works in vain.
    asked: dict[Needs, AttentionGradients | ValueVectors] = {}

    def once(needs: Needs) -> AttentionGradients | ValueVectors:
        if needs not in asked:
            asked[needs] = ask(needs)
        return asked[needs]

    if insisted:
        once(insisted)
    for name, entry in LENSES.items():
        try:
            given = attention if entry.needs == "weights" else once(entry.needs)
            found: Attention = entry.load()(given)
        except INTERRUPTIONS:
            raise
        except BaseException as error:
            if not (entry.package or isinstance(error, UsageError | ModelError | AttentionError)):
                raise
            notes.append(f"lens {name} is left out: {error}")
            continue
        maps.append(replace(found.main, stream=name))
        notes += found.provenance.notes
        settings |= found.provenance.settings
    explained = asked.get("effects")
    if isinstance(explained, AttentionGradients) and explained.experiment is not None:
        note, facts = agreement(explained, once)
        notes.append(note)
        settings |= facts
    notes = [note for note in dict.fromkeys(notes) if note not in attention.provenance.notes]
    made = attention.with_maps(tuple(maps), "lens all", notes=notes, settings=settings)
    focus = attention.focus.get(attention.main.stream)
    return replace(made, lens_name=ALL_LENSES, focus={"raw": focus} if focus else {})


def scores_of(explained: AttentionGradients, ask: Ask) -> TokenScores:
    """What each lens says of each token; the values are those of the text that was run."""
    from attnviz.analyses.effects.faithfulness import token_scores

    own = getattr(explained.experiment, "values", None)  # of a text in which a word is masked
    values: Any = own or partial(ask, "values")
    return token_scores(explained, values)


def agreement(explained: AttentionGradients, ask: Ask) -> tuple[str, dict[str, Any]]:
    """How well each lens agrees with hiding token after token: a note, and a fact to keep."""
    from attnviz.analyses.effects.faithfulness import rank_correlations

    told, found = "no lens is compared with hiding tokens one by one", scores_of(explained, ask)
    if len(found.tokens) > MOST_TOKENS:
        return f"{told}: {len(found.tokens)} are more than {MOST_TOKENS}", {}
    try:
        known = {name: one for name, one in rank_correlations(found).items() if one == one}
    except AttentionError as error:
        return f"{told}: {error}", {}
    if not known:
        return f"{told}: there are too few", {}
    told = ", ".join(f"{name} {value:.2f}" for name, value in known.items())
    note = f"{AGREEMENT} (log p of {found.explained.output}): {told}"
    return note, {AGREEMENT: {name: round(value, 6) for name, value in known.items()}}


def ask_source(
    source: Source, query: Query, needs: Needs, wanted: str | None = None
) -> AttentionGradients | ValueVectors:
    """What a lens needs beyond weights; `wanted` is the output to explain.

    Raises:
        UsageError: the source does not know it.
    """
    if query.kind == "pair":
        raise UsageError("a sentence pair is seen through --lens raw, rollout or flow only")
    others = ["rollout", "flow"] if query.kind == "self" else ["raw"]
    if needs == "values":
        if not isinstance(source, SupportsValues):
            raise refuse_values(others)
        return source.values(query)
    if needs == "effects" and isinstance(source, Experimenting):
        return explained_by(open_experiment(source, query, wanted))
    if needs == "gradients" and wanted == ALL_OUTPUTS:
        raise UsageError(
            "--lens gradient explains one output: name it by --target, or use --lens effect, which "
            "explains them all"
        )
    if needs == "gradients" and isinstance(source, SupportsGradients):
        return source.gradients(query, wanted)
    if isinstance(source, SupportsValues):
        others.append("norm")
    raise UsageError(
        f"--lens {NAMES[needs]} explains what a model predicts, and here is no model that "
        f"predicts anything: use --lens {in_words(others)}"
    )


def open_experiment(source: Source, query: Query, wanted: str | None = None) -> Experiment:
    """The model with a query before it, and what is explained of it.

    By default that is every token that the model predicts from those before it, of a given target
    or of a text; of a model that predicts no such thing its masked word or its class.

    Raises:
        UsageError: the source predicts nothing.
        InputError: the text has no token behind another.
    """
    if not isinstance(source, Experimenting):
        raise UsageError("nothing here predicts anything whose change could be measured")
    if wanted is not None or query.kind not in ("self", "cross"):
        return source.experiment(query, wanted)
    try:
        found = source.experiment(query, ALL_OUTPUTS)
    except UsageError:  # it predicts one thing
        return source.experiment(query)
    if not found.outputs:
        raise InputError(
            f"the model predicts nothing of so short a text: --target {NEXT} explains what comes "
            "after it"
        )
    return found


def explained_by(experiment: Experiment) -> AttentionGradients:
    """How the outputs of an experiment change with each weight."""
    outputs, tokens = experiment.outputs, experiment.attention.main.query_tokens
    return AttentionGradients(
        experiment.attention,
        experiment.gradients(),
        tuple(dict.fromkeys(output.row for output in outputs)),
        label_of(outputs[0], tokens) if len(outputs) == 1 else f"all {len(outputs)} tokens",
        experiment=experiment,
    )


def no_model(needs: Needs) -> AttentionGradients | ValueVectors:
    """The answer where only maps are left: a usage error."""
    if needs in PREDICTED:
        raise UsageError(
            f"--lens {NAMES[needs]} needs the model, and saved maps hold its weights only: use "
            "--lens rollout or flow here, or 'attnviz self' with --model"
        )
    raise refuse_values(["rollout", "flow"])


def refuse_values(others: list[str]) -> UsageError:
    """The error where the vectors that weights add up are not known."""
    return UsageError(
        "--lens norm needs the vectors that the weights add up, and here are only weights: use "
        f"--lens {in_words(others)}"
    )
