"""attnviz: see where a transformer looks, from the command line and from Python."""

from typing import TYPE_CHECKING

from attnviz.core import __version__ as __version__

if TYPE_CHECKING:
    # What editors and type checkers see; at run time each name is loaded when it is first used.
    from attnviz import callbacks as callbacks
    from attnviz.api.attention import attend as attend
    from attnviz.api.attention import attend_many as attend_many
    from attnviz.api.attention import unload as unload
    from attnviz.api.collected import Findings as Findings
    from attnviz.core.attention_map import Attention as Attention
    from attnviz.core.attention_map import AttentionMap as AttentionMap
    from attnviz.core.attention_map import Focus as Focus
    from attnviz.core.attention_map import Provenance as Provenance
    from attnviz.core.attention_map import Token as Token
    from attnviz.core.errors import AttnvizError as AttnvizError
    from attnviz.features.ablate.function import ablate as ablate
    from attnviz.features.ablate.hooks import ablate_heads as ablate_heads
    from attnviz.features.align.function import align as align
    from attnviz.features.audio.function import audio as audio
    from attnviz.features.cache.function import cache as cache
    from attnviz.features.compare.function import compare as compare
    from attnviz.features.explain.function import explain as explain
    from attnviz.features.heads.function import heads as heads
    from attnviz.features.image.function import image as image
    from attnviz.features.lessons.function import lesson as lesson
    from attnviz.features.sources.function import sources as sources
    from attnviz.features.steps.function import steps as steps
    from attnviz.features.watch.function import Watched as Watched
    from attnviz.features.watch.function import watch as watch
    from attnviz.features.why.function import why as why
    from attnviz.runs.pipeline import Result as Result
    from attnviz.runs.pipeline import from_dict as from_dict
    from attnviz.runs.pipeline import from_numpy as from_numpy
    from attnviz.runs.pipeline import load as load

_PLACES = {
    "api.attention": "attend attend_many unload",
    "api.collected": "Findings",
    "features.heads.function": "heads",
    "callbacks": "callbacks",
    "core.attention_map": "Attention AttentionMap Focus Provenance Token",
    "core.errors": "AttnvizError",
    "features.ablate.function": "ablate",
    "features.ablate.hooks": "ablate_heads",
    "features.align.function": "align",
    "features.audio.function": "audio",
    "features.cache.function": "cache",
    "features.compare.function": "compare",
    "features.explain.function": "explain",
    "features.image.function": "image",
    "features.lessons.function": "lesson",
    "features.sources.function": "sources",
    "features.steps.function": "steps",
    "features.watch.function": "Watched watch",
    "features.why.function": "why",
    "runs.pipeline": "Result from_dict from_numpy load",
}
"""The modules that public names come from."""
_HOMES = {name: place for place, names in _PLACES.items() for name in names.split()}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    """Load a public name when it is first used, so that importing attnviz costs nothing."""
    if name in _HOMES:
        from importlib import import_module

        module = import_module(f"attnviz.{_HOMES[name]}")
        return module if name == "callbacks" else getattr(module, name)
    raise AttributeError(f"module 'attnviz' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
