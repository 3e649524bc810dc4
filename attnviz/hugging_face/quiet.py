"""Other libraries import fast and say nothing: stderr belongs to what attnviz has to say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any


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
