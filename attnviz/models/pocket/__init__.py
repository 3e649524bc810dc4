"""The small trained encoder–decoder that ships with the package."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnviz.models.pocket.source import Pocket, load_pocket

__all__ = ["Pocket", "load_pocket"]


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used: the card needs no numpy."""
    if name not in __all__:
        raise AttributeError(f"module 'attnviz.models.pocket' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module("attnviz.models.pocket.source"), name)
