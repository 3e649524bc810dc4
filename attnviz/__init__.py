"""attnviz: see where a transformer looks, from the command line and from Python."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnviz.attention_map import Attention, AttentionMap, Focus, Provenance, Token
    from attnviz.errors import AttnvizError
    from attnviz.pipeline import Result, attend, load

__version__ = "0.1.0"
__all__ = [
    "Attention",
    "AttentionMap",
    "AttnvizError",
    "Focus",
    "Provenance",
    "Result",
    "Token",
    "attend",
    "load",
]

_HOMES = {
    "Attention": "attention_map",
    "AttentionMap": "attention_map",
    "AttnvizError": "errors",
    "Focus": "attention_map",
    "Provenance": "attention_map",
    "Result": "pipeline",
    "Token": "attention_map",
    "attend": "pipeline",
    "load": "pipeline",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that importing attnviz costs nothing."""
    if name in _HOMES:
        return getattr(import_module(f"attnviz.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'attnviz' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
