"""Pretrained models: load, tokenize and read out attention."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnviz.models.hugging_face.load.locate import CachedModel, list_cached_models
    from attnviz.models.hugging_face.source import HuggingFaceModel, load_model

__all__ = ["CachedModel", "HuggingFaceModel", "list_cached_models", "load_model"]

_HOMES = {
    "CachedModel": "load.locate",
    "HuggingFaceModel": "source",
    "list_cached_models": "load.locate",
    "load_model": "source",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used: listing the cache needs neither numpy nor torch."""
    if name in _HOMES:
        return getattr(import_module(f"attnviz.models.hugging_face.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'attnviz.models.hugging_face' has no attribute '{name}'")
