"""attnviz: see where a transformer looks, from the command line and from Python."""

TYPE_CHECKING = False  # typing is not loaded for this: until a run answers Ctrl-C, little may pass
if TYPE_CHECKING:
    from attnviz.core.attention_map import Attention, AttentionMap, Focus, Provenance, Token
    from attnviz.core.errors import AttnvizError
    from attnviz.runs.pipeline import Result, attend, load
    from attnviz.runs.watching import Watched, watch

__version__ = "0.1.0"
__all__ = [
    "Attention",
    "AttentionMap",
    "AttnvizError",
    "Focus",
    "Provenance",
    "Result",
    "Token",
    "Watched",
    "attend",
    "load",
    "watch",
]

_HOMES = {
    "Attention": "core.attention_map",
    "AttentionMap": "core.attention_map",
    "AttnvizError": "core.errors",
    "Focus": "core.attention_map",
    "Provenance": "core.attention_map",
    "Result": "runs.pipeline",
    "Token": "core.attention_map",
    "Watched": "runs.watching",
    "attend": "runs.pipeline",
    "load": "runs.pipeline",
    "watch": "runs.watching",
}


def __getattr__(name: str) -> object:
    """Load a public name when it is first used, so that importing attnviz costs nothing."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"attnviz.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'attnviz' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
