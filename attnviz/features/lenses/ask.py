"""Lenses over a query: they ask its source for what they need, and say what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import AGREEMENT, Attention, AttentionMap
from attnviz.core.effects import Experiment, HeadAt
from attnviz.core.errors import (
    AttentionError,
    InputError,
    ModelError,
    UsageError,
    first_line,
    in_words,
)
from attnviz.core.lens_inputs import AttentionGradients
from attnviz.core.plugins import INTERRUPTIONS
from attnviz.core.query import ALL_OUTPUTS, Query
from attnviz.core.registry import ALL_LENSES, LENSES, PREDICTED, Needs
from attnviz.core.writers import AskedLogits, LensInputs, WrittenText
from attnviz.features.experiments.texts import explained_by, open_experiment
from attnviz.features.lenses.effect import effects_of_maps
from attnviz.features.lenses.logits import logits
from attnviz.features.lenses.token_scores import TokenScores
from attnviz.models import (
    Source,
    refuse_values,
)

MOST_TOKENS = 64  # the most tokens that `--lens all` hides one by one: one batch of runs

Ask: TypeAlias = "Callable[[Needs], LensInputs]"  # more than weights, or an error

NAMES = {row.needs: name for name, row in LENSES.items() if not row.package}
"""The lens to name where a need is not met."""


def apply_lens(
    lens: str,
    attend: Callable[[], Attention],
    ask: Ask | None,
    prepare: Callable[[Attention], Attention],
    target: str | None = None,
) -> tuple[Attention, Experiment | None]:
    """The attention of a text through a lens or "all", and the experiment that one lens measures.

    `ask` gives what is needed beyond weights; None: there is no model. `prepare` changes raw maps
    first. "all" may not leave out what explains a `target`.

    Raises:
        UsageError: the lens does not apply here; the message says why and which does.
    """
    ask = ask or no_model

    def ask_prepared(needs: Needs) -> LensInputs:
        inputs = ask(needs)
        return replace(inputs, attention=prepare(inputs.attention))

    if lens == ALL_LENSES:
        first: Needs | None = None if target is None else "gradients"
        first = "effects" if target == ALL_OUTPUTS else first
        return every_lens(prepare(attend()), ask_prepared, insist=first), None
    needs = LENSES[lens].needs
    inputs: Any = prepare(attend()) if needs == "weights" else ask_prepared(needs)
    return LENSES[lens].load()(inputs), getattr(inputs, "experiment", None)


def every_lens(attention: Attention, ask: Ask, *, insist: Needs | None = None) -> Attention:
    """The main map through each lens, a stream each; a note says why a lens does not apply."""
    from attnviz.analyses.masks import refuse_implied

    refuse_implied(attention, "--lens all")
    maps = [replace(attention.main, stream="raw")]
    notes, settings = list[str](), dict[str, Any]()
    # A lens that must work runs first: if it fails, no other lens has run for nothing.
    answers: dict[Needs, LensInputs] = {}

    def once(needs: Needs) -> LensInputs:
        if needs not in answers:
            answers[needs] = ask(needs)
        return answers[needs]

    if insist:
        once(insist)
    for name, entry in LENSES.items():
        try:
            inputs = attention if entry.needs == "weights" else once(entry.needs)
            result: Attention = entry.load()(inputs)
        except INTERRUPTIONS:
            raise
        except BaseException as error:  # a plug-in may raise SystemExit too
            if not (entry.package or isinstance(error, UsageError | ModelError | AttentionError)):
                raise
            notes.append(f"lens {name} is left out: {error}")
            continue
        maps.append(replace(result.main, stream=name))
        notes += result.provenance.notes
        settings |= result.provenance.settings
    effects = answers.get("effects")
    if isinstance(effects, AttentionGradients) and effects.experiment is not None:
        note, facts = measure_agreement(effects, once)
        notes.append(note)
        settings |= facts
    notes = [note for note in dict.fromkeys(notes) if note not in attention.provenance.notes]
    whole = attention.with_maps(tuple(maps), "lens all", notes=notes, settings=settings)
    focus = attention.focus.get(attention.main.stream)
    return replace(whole, lens_name=ALL_LENSES, focus={"raw": focus} if focus else {})


def scores_of(effects: AttentionGradients, ask: Ask) -> TokenScores:
    """Each lens's score of each token."""
    from attnviz.features.lenses.token_scores import token_scores

    # The pocket encoder masks the explained word, so its values are those of the masked text.
    own = getattr(effects.experiment, "values", None)
    values: Any = own or partial(ask, "values")
    writers: Any = partial(ask, "writers")
    return token_scores(effects, values, writers)


def measure_agreement(effects: AttentionGradients, ask: Ask) -> tuple[str, dict[str, Any]]:
    """The rank correlation of each lens with hiding tokens one by one: a note and a setting."""
    from attnviz.features.lenses.token_scores import rank_correlations

    missing, scores = "no lens is compared with hiding tokens one by one", scores_of(effects, ask)
    if len(scores.tokens) > MOST_TOKENS:
        return f"{missing}: {len(scores.tokens)} are more than {MOST_TOKENS}", {}
    try:
        correlations = {name: one for name, one in rank_correlations(scores).items() if one == one}
    except AttentionError as error:
        return f"{missing}: {error}", {}
    if not correlations:
        return f"{missing}: there are too few", {}
    values = ", ".join(f"{name} {value:.2f}" for name, value in correlations.items())
    note = f"{AGREEMENT} (log p of {scores.inputs.output}): {values}"
    return note, {AGREEMENT: {name: round(value, 6) for name, value in correlations.items()}}


def ask_source(source: Source, query: Query, needs: Needs, target: str | None = None) -> LensInputs:
    """The lens's needs beyond weights; `target` is the output to explain.

    Raises:
        UsageError: the source does not know it.
    """
    if needs == "values":
        return source.values(query)
    if needs == "gradients" and target == ALL_OUTPUTS:
        raise UsageError(
            "--lens gradient explains one output: name it by --target, or use --lens effect, which "
            "explains them all"
        )
    if source.lacks("trace_writers" if needs == "writers" else "experiment"):
        others = ["rollout", "flow"] if query.kind in ("self", "pair") else ["raw"]
        raise UsageError(
            f"--lens {NAMES[needs]} explains what a model predicts, and this source predicts "
            f"nothing: use --lens {in_words(others + ['norm'] * (not source.lacks('values')))}"
        )
    if needs == "writers":
        return ask_logits(source, query, target)
    if needs == "effects":
        return explained_by(open_experiment(source, query, target))
    return source.gradients(query, target)


def ask_together(
    source: Source,
    queries: Sequence[Query],
    lens: str,
    target: str | None = None,
    batch_size: int | None = None,
) -> Iterator[LensInputs | InputError] | None:
    """What a lens needs of each query, in order; None: `ask_source` is asked about each alone."""
    needs = LENSES[lens].needs if lens in LENSES else "weights"
    if len(queries) < 2:
        return None
    if needs == "values":
        return source.many_values(queries, batch_size)
    if needs == "gradients" and target != ALL_OUTPUTS:
        return source.many_gradients(queries, target, batch_size)
    return None


def ask_logits(source: Source, query: Query, target: str | None = None) -> AskedLogits:
    """A query with what each part wrote, and the choices to explain: what each row predicts.

    Raises:
        UsageError: the model predicts nothing here.
    """
    logits_of_text = likeliest_choices(source.trace_writers(query))
    if target is None or source.lacks("experiment"):
        return logits_of_text
    outputs = source.experiment(query, target).outputs
    choices = {one.row: one.number for one in outputs if one.row in logits_of_text.choices}
    return replace(logits_of_text, choices=choices or logits_of_text.choices)


def likeliest_choices(text: WrittenText) -> AskedLogits:
    """What each row of a text predicts; a UsageError if the model predicts nothing here."""
    main = text.attention.main
    rows = [row for row in range(len(main.query_tokens)) if text.predicts(main.stream, row)]
    if not rows:
        raise UsageError("--lens logits needs logits, and the model predicts nothing here")
    return AskedLogits(text.attention, text, {row: int(text.logits(row).argmax()) for row in rows})


def keep_steps(source: Source, query: Query, attention: Attention) -> Attention:
    """The attention with what follows its weights, beside the queries and keys that were kept.

    Values, what each link adds to a logit, and its first-order effect, as far as the source knows.
    """
    sides: dict[str, dict[str, Any]] = {name: {} for name in attention.projections}
    notes, words = [], dict[int, str]()

    def take(name: str, arrays: Iterable[tuple[AttentionMap, NDArray[Any]]]) -> None:
        for item, array in arrays:
            same = [one for one in attention.maps if one.stream == item.stream]
            # An encoder that predicts a masked word has read another text.
            if same and same[0].key_tokens == item.key_tokens and item.stream in sides:
                sides[item.stream][name] = array.astype(np.float32)

    try:
        text = source.trace_writers(query)
        take("value", ((item, _values_of(text, item)) for item in text.attention.maps))
        choices = likeliest_choices(text)
        take("writes", ((item, item.weights) for item in logits(choices).maps))
        words |= {row: text.spell(choice) for row, choice in choices.choices.items()}
    except (UsageError, AttentionError, ModelError) as error:
        notes.append(f"what links write is left out of the page: {first_line(error)}")
    try:
        effects = explained_by(open_experiment(source, query))
        take("effects", zip(effects.attention.maps, effects_of_maps(effects), strict=True))
    except (UsageError, InputError, AttentionError, ModelError) as error:
        notes.append(f"effects of links are left out of the page: {first_line(error)}")
    projections = {
        name: replace(one, **sides[name], predicted=words if "writes" in sides[name] else {})
        for name, one in attention.projections.items()
    }
    return replace(attention.with_maps(attention.maps, notes=notes), projections=projections)


def _values_of(text: WrittenText, item: AttentionMap) -> NDArray[np.floating]:
    """The values of each head of a map, (layers, heads, keys, head size)."""
    return np.stack(
        [
            np.stack([text.sides(HeadAt(item.stream, at, n)).value for n in range(len(item.heads))])
            for at in item.layers
        ]
    )


def no_model(needs: Needs) -> LensInputs:
    """The error for a lens that needs a model where only maps are given."""
    if needs in PREDICTED:
        raise UsageError(
            f"--lens {NAMES[needs]} needs the model, and saved maps hold its weights only: use "
            "--lens rollout or flow here, or 'attnviz self' with --model"
        )
    raise refuse_values(["rollout", "flow"])
