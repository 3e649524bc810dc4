"""attnviz: see where a transformer looks, from the command line and from Python."""

from typing import TYPE_CHECKING

from attnviz.core import __version__ as __version__

if TYPE_CHECKING:
    # What editors and type checkers see; at run time each name is loaded when it is first used.
    from attnviz import callbacks as callbacks
    from attnviz.commands.attend import attend as attend
    from attnviz.commands.attend import attend_many as attend_many
    from attnviz.commands.attend import unload as unload
    from attnviz.commands.findings import Findings as Findings
    from attnviz.core.attention_map import Attention as Attention
    from attnviz.core.attention_map import AttentionMap as AttentionMap
    from attnviz.core.attention_map import Focus as Focus
    from attnviz.core.attention_map import Provenance as Provenance
    from attnviz.core.attention_map import Token as Token
    from attnviz.core.errors import AttnvizError as AttnvizError
    from attnviz.features.ablate.command import ablate as ablate
    from attnviz.features.ablate.hooks import ablate_heads as ablate_heads
    from attnviz.features.align.command import align as align
    from attnviz.features.audio.command import audio as audio
    from attnviz.features.cache.command import cache as cache
    from attnviz.features.compare.command import compare as compare
    from attnviz.features.explain.command import explain as explain
    from attnviz.features.heads.command import heads as heads
    from attnviz.features.image.command import image as image
    from attnviz.features.lessons.command import lesson as lesson
    from attnviz.features.match.command import match as match
    from attnviz.features.sources.command import sources as sources
    from attnviz.features.steps.command import steps as steps
    from attnviz.features.watch.function import Watched as Watched
    from attnviz.features.watch.function import watch as watch
    from attnviz.features.why.command import why as why
    from attnviz.runs.pipeline import Result as Result
    from attnviz.runs.pipeline import from_dict as from_dict
    from attnviz.runs.pipeline import from_numpy as from_numpy
    from attnviz.runs.pipeline import load as load

_PLACES = {
    "commands.attend": "attend attend_many unload",
    "commands.findings": "Findings",
    "features.heads.command": "heads",
    "callbacks": "callbacks",
    "core.attention_map": "Attention AttentionMap Focus Provenance Token",
    "core.errors": "AttnvizError",
    "features.ablate.command": "ablate",
    "features.ablate.hooks": "ablate_heads",
    "features.align.command": "align",
    "features.audio.command": "audio",
    "features.cache.command": "cache",
    "features.compare.command": "compare",
    "features.explain.command": "explain",
    "features.image.command": "image",
    "features.lessons.command": "lesson",
    "features.match.command": "match",
    "features.sources.command": "sources",
    "features.steps.command": "steps",
    "features.watch.function": "Watched watch",
    "features.why.command": "why",
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
