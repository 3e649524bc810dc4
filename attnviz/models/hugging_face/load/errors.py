"""Other libraries import fast and say nothing, and their errors become one line (a ModelError).

A bug of attnviz itself keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from attnviz.core.errors import AttnvizError, ModelError
from attnviz.models.hugging_face.load.devices import BYTES, memory_errors


@contextmanager
def quick_imports() -> Iterator[None]:
    """Import without the garbage collector, which would walk a million living objects for nothing.

    It saves about a fifth of the time that torch and transformers take to import. Modules
    stay until the end, so later collections and the one at exit pass over them too.
    """
    import gc

    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collecting:
            gc.enable()


@contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers' log lines and progress bars, and Python's warnings, for a while."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with quick_imports():
            logging: Any = import_module("transformers.utils.logging")
        level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            yield
        finally:
            logging.set_verbosity(level)
            if bars:
                logging.enable_progress_bar()


def first_line(error: BaseException) -> str:
    """What an error of another library says, cut to one line."""
    lines = str(error).strip().splitlines()
    return lines[0].strip().rstrip(".") if lines else type(error).__name__


@contextmanager
def loading(name: str) -> Iterator[None]:
    """Turn what transformers and its parts raise while they load a model into one line."""
    from pickle import UnpicklingError

    from safetensors import SafetensorError

    foreign = (OSError, ValueError, RuntimeError, LookupError, TypeError, AttributeError)
    try:
        with memory_errors(f"'{name}'", "use a smaller model"):
            yield
    except AttnvizError:
        raise
    except (*foreign, ImportError, EOFError, UnpicklingError, SafetensorError) as error:
        raise ModelError(f"'{name}' cannot be loaded: {first_line(error)}") from error


@contextmanager
def running(model: Any, what: str = "text") -> Iterator[None]:
    """Turn what a transformers model raises while it runs into one line."""
    kind = model.config.model_type
    try:
        with memory_errors(f"'{kind}' on '{model.device}'", remedy(model, what)):
            yield
    except (RuntimeError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ModelError(f"'{kind}' cannot run on this {what}: {first_line(error)}") from error


def remedy(model: Any, what: str = "text") -> str:
    """What makes a model's pass fit, as far as its device and precision leave room."""
    options = ["give a shorter text" if what == "text" else "give a smaller --image-size"]
    if model.device.type != "cpu":
        wide = BYTES[str(model.dtype).removeprefix("torch.")] > 2
        options += ["--dtype bfloat16"] if wide else ["--device-map auto", "--device cpu"]
    return " or ".join(options)
