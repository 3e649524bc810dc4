"""What a head is called for: the shares in which it clearly beats an even look."""

from __future__ import annotations

from collections.abc import Mapping

from attnviz.measures import Role
from attnviz.registry import MEASURES

CLEAR = 0.5
"""A role is named from half of the way on between an even look (0) and nothing else (1)."""

ROLES = tuple(name for name, entry in MEASURES.items() if entry.role)


def roles_of(values: Mapping[str, float], uniform: Mapping[str, float]) -> tuple[Role, ...]:
    """The roles of one head, the clearest first; most heads have none.

    Args:
        values: its measures by name; those that make no role are left aside, and so is NaN.
        uniform: what uniform attention gives, likewise.
    """
    found = (Role(name, values[name], uniform[name]) for name in ROLES if name in values)
    return tuple(sorted((role for role in found if role.lift >= CLEAR), key=_unclear))


def _unclear(role: Role) -> float:
    return -role.lift
