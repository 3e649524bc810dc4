"""attnviz: see where a transformer looks, from the command line and from Python.

Types of the public names stand in `__init__.pyi`.
"""

__version__ = "0.1.0"
_PLACES = {
    "callbacks": "callbacks",
    "cli.findings": "Findings",
    "cli.functions": "ablate align attend attend_many audio compare corpus heads history image "
    "lenses lesson steps unload",
    "core.attention_map": "Attention AttentionMap Focus Provenance Token",
    "core.errors": "AttnvizError",
    "models.hugging_face.ablated": "ablated",
    "runs.pipeline": "Result from_dict from_numpy load",
    "runs.watching": "Watched watch",
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
