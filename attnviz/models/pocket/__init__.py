"""The small trained encoder–decoder that ships with the package."""

from attnviz.models.pocket.source import Pocket, load_pocket

__all__ = ["Pocket", "load_pocket"]
