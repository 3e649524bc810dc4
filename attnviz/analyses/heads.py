"""Every measure of every head: averaged over texts, named by role, sorted and picked."""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from attnviz.analyses.masks import MeasuredMap, check_measurable
from attnviz.core import attention_map, notices, registry
from attnviz.core.measures import EFFECT, HeadMeasure, Role
from attnviz.core.plugins import INTERRUPTIONS, error_line

NOWHERE: Mapping[str, str] = MappingProxyType({})
HeadEffects = Mapping[tuple[str, str, str], float]
CLEAR = 0.5  # a role is named from half way between uniform attention (0) and all attention (1)


def roles_of(
    values: Mapping[str, float], uniform: Mapping[str, float], rests_on: Mapping[str, str] = NOWHERE
) -> tuple[Role, ...]:
    """The roles of one head by its measures and uniform attention's; most heads have none.

    What a head does where it can comes first, then where it rests; the clearest first of each.
    `rests_on` names the token of a role, where it is a known special token.
    """
    roles = {
        name: Role(name, values[name], uniform[name], entry.role, rests_on.get(name, ""))
        for name, entry in registry.MEASURES.items()
        if entry.role and name in values
    }
    roles = {name: role for name, role in roles.items() if role.lift >= CLEAR}
    if "first-token" in roles:
        # Most of a row goes to each of the two, so the first token is special: [CLS] has one role.
        roles.pop("special-token", None)
    return tuple(sorted(roles.values(), key=rank_of))


def rank_of(role: Role) -> tuple[bool, float]:
    return role.kind == "rests", -role.lift


def measure_heads(
    item: attention_map.AttentionMap | MeasuredMap,
    *,
    repeated: bool | None = None,
    effects: HeadEffects | None = None,
) -> dict[str, HeadMeasure]:
    """Every measure that says something of a map, by name, and its heads' effects, if any.

    With `repeated` only what is read off a repeated sequence; where it is False only the others.

    Raises:
        UsageError: a map of signed values, which are no shares.
        InputError: a map of blocks of tokens.
    """
    subject = item if isinstance(item, MeasuredMap) else MeasuredMap(item)
    check_measurable(subject.item)
    measures = {
        name: run_measure(name, subject)
        for name, entry in registry.MEASURES.items()
        if repeated is None or entry.repeated == repeated
    }
    measures[EFFECT] = effect_of(subject.item, effects) if effects else None
    return {name: measure for name, measure in measures.items() if measure is not None}


def run_measure(name: str, subject: MeasuredMap) -> HeadMeasure | None:
    """One measure; None if it does not apply to the map, or if a plug-in's code fails."""
    entry = registry.MEASURES.get(name)
    if entry is None:  # its feature is not there
        return None
    try:
        measure: HeadMeasure | None = entry.load()(subject)
    except INTERRUPTIONS:
        raise
    except BaseException as error:  # a plug-in may raise SystemExit too
        if not entry.package:
            raise
        notices.notify(f"measure {name} of {entry.package} is left out: {error_line(error)}")
        return None
    return measure


def effect_of(item: attention_map.AttentionMap, effects: HeadEffects) -> HeadMeasure:
    """The exact effects of a map's heads; uniform attention has none."""
    values = np.array(
        [
            [effects.get((item.stream, layer, head), math.nan) for head in item.heads]
            for layer in item.layers
        ]
    )
    ends = ("the output is likelier without the head", "the output needs the head")
    return HeadMeasure(EFFECT, "nats", *ends, values, np.full(values.shape, np.nan))


def roles_by_place(subject: MeasuredMap) -> dict[tuple[int, int], Role]:
    """The clearest role of each head by its place (layer, head), of those that have one."""
    measures = {
        name: measure
        for name, entry in registry.MEASURES.items()
        if entry.role and (measure := run_measure(name, subject)) is not None
    }
    item, roles = subject.item, {}
    resting = resting_places(item)
    for layer, head in np.ndindex(item.weights.shape[:2]):
        own, even = (
            {name: float(side[layer, head]) for name, side in sides.items()}
            for sides in (
                {name: one.values for name, one in measures.items()},
                {name: one.uniform for name, one in measures.items() if one.uniform is not None},
            )
        )
        if clear := roles_of(own, even, resting):
            roles[layer, head] = clear[0]
    return roles


def resting_places(item: Any) -> dict[str, str]:
    """For each resting role the special token that heads rest on."""
    special = [token.text for token in item.key_tokens if token.special]
    places = {"special-token": special[0]} if len({*special}) == 1 else {}
    return places | ({"first-token": special[0]} if item.key_tokens[0].special else {})
