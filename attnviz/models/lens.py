"""A text seen through a lens: what the lens needs of a source, and what to say without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from attnviz.core.attention_map import Attention
from attnviz.core.errors import AttentionError, ModelError, UsageError, in_words
from attnviz.core.query import Query
from attnviz.core.registry import LENSES, Needs
from attnviz.models import Explaining, Source, Transforming

if TYPE_CHECKING:
    from attnviz.core.lens_inputs import AttentionGradients, ValueVectors

ALL_LENSES = "all"
"""The name under which every lens is shown side by side."""

Ask: TypeAlias = "Callable[[Needs], AttentionGradients | ValueVectors]"
"""What answers with more than weights, or raises that there is no more."""


def needs_head(lens: str) -> bool:
    """True where what a model predicts will be asked for."""
    return lens == ALL_LENSES or (lens in LENSES and LENSES[lens].needs == "gradients")


def apply_lens(
    lens: str,
    attend: Callable[[], Attention],
    ask: Ask,
    prepare: Callable[[Attention], Attention],
    *,
    insisted: bool = False,
) -> Attention:
    """The attention of a text through a lens ("raw" or a name in `LENSES`), or through "all".

    Raw maps are prepared before they are looked at. Where an explanation is `insisted` on, "all"
    may not leave it out.

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


def every_lens(attention: Attention, ask: Ask, *, insisted: bool = False) -> Attention:
    """The main map through each lens that applies, each a stream called after its lens.

    One that does not apply is left out, and a note says why.
    """
    maps = [replace(attention.main, stream="raw")]
    provenance = attention.provenance
    notes, settings = list(provenance.notes), dict(provenance.settings)
    # What was insisted on is asked for first: if it cannot be had, no other lens works in vain.
    asked: dict[Needs, AttentionGradients | ValueVectors] = {}
    if insisted:
        asked["gradients"] = ask("gradients")
    for name, entry in LENSES.items():
        try:
            given: Attention | AttentionGradients | ValueVectors = attention
            if entry.needs != "weights":
                given = asked[entry.needs] if entry.needs in asked else ask(entry.needs)
            found: Attention = entry.load()(given)
        except (UsageError, ModelError, AttentionError) as error:
            notes.append(f"lens {name} is left out: {error}")
            continue
        maps.append(replace(found.main, stream=name))
        notes += [note for note in found.provenance.notes if note not in notes]
        settings |= found.provenance.settings
    focus = attention.focus.get(attention.main.stream)
    provenance = replace(
        provenance,
        notes=tuple(notes),
        settings=settings,
        steps=(*provenance.steps, "lens all"),
    )
    shown = {"raw": focus} if focus else {}
    return replace(
        attention, maps=tuple(maps), provenance=provenance, lens_name=ALL_LENSES, focus=shown
    )


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
        if not isinstance(source, Transforming):
            raise refuse_values(others)
        return source.values(query)
    if not isinstance(source, Explaining):
        if isinstance(source, Transforming):
            others.append("norm")
        raise UsageError(
            "--lens gradient explains what a model predicts, and here is no model that "
            f"predicts anything: use --lens {in_words(others)}"
        )
    return source.gradients(query, wanted)


def no_model(needs: Needs) -> AttentionGradients | ValueVectors:
    """The answer where only maps are left: a usage error."""
    if needs == "gradients":
        raise UsageError(
            "--lens gradient needs the model, and saved maps hold its weights only: use --lens "
            "rollout or flow here, or 'attnviz self' with --model"
        )
    raise refuse_values(["rollout", "flow"])


def refuse_values(others: list[str]) -> UsageError:
    """The error where the vectors that weights add up are not known."""
    return UsageError(
        "--lens norm needs the vectors that the weights add up, and here are only weights: use "
        f"--lens {in_words(others)}"
    )
