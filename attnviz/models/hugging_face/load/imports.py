"""transformers and its dependencies, imported fast and kept quiet."""

import gc
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from importlib import import_module
from pathlib import Path
from threading import RLock
from types import FunctionType, ModuleType
from typing import Any

from attnviz.core.locks import SharedSetting


@contextmanager
def quick_imports() -> Iterator[None]:
    """Import without the garbage collector: a fifth faster for torch and transformers.

    The collector would walk a million objects that stay alive. `freeze` keeps later collections,
    and the one at exit, from walking them too.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collecting:
            gc.enable()


class LazyCompiler(ModuleType):
    """A stand-in for `torch._dynamo` that loads the real one at the first other attribute.

    transformers only marks functions for the compiler, and no model here runs by it. Without the
    stand-in loading a tiny BERT takes 4.0 s of CPU time, with it 3.5 s. Marks are repeated when
    the compiler loads.
    """

    _marks: list[Callable[[Any], Any]]

    def allow_in_graph(self, function: Any) -> Any:
        self._marks.append(lambda compiler: compiler.allow_in_graph(function))
        return function

    def assume_constant_result(self, function: Any) -> Any:
        self._marks.append(lambda compiler: compiler.assume_constant_result(function))
        return function

    def disable(self, function: Any = None, *how: Any, **settings: Any) -> Any:
        """Mark a function as never compiled, also for the compiler once it loads."""
        if function is None:
            return lambda target: self.disable(target, *how, **settings)
        if not isinstance(function, FunctionType):
            return self.__getattr__("disable")(function, *how, **settings)
        run = [function]

        @wraps(function)
        def run_without_compiler(*args: Any, **options: Any) -> Any:
            return run[0](*args, **options)

        self._marks.append(
            lambda compiler: run.__setitem__(0, compiler.disable(function, *how, **settings))
        )
        return run_without_compiler

    def __getattr__(self, name: str) -> Any:
        """Load the compiler, but not for names that Python looks up in every module."""
        spec, marks = self.__spec__, self._marks
        if spec is None or spec.loader is None or (name[:2] == "__" and name != "__path__"):
            raise AttributeError(name)
        self.__class__ = ModuleType  # type: ignore[assignment]
        self.__path__ = list(spec.submodule_search_locations or ())
        spec.loader.exec_module(self)
        for mark in marks:
            mark(self)
        return getattr(self, name)


def import_transformers() -> None:
    """Import transformers without its duplicate work at start-up."""
    if "transformers" in sys.modules:
        return
    if "torch._dynamo" not in sys.modules:
        _put_off_compiler()
    import transformers

    # transformers reads its 1,600 model files twice, again for `transformers.models`: 0.3 s.
    tools: Any = import_module("transformers.utils.import_utils")
    read = getattr(tools, "create_import_structure_from_path", None)
    if read is None:
        return
    folder = Path(str(transformers.__file__)).parent / "models"
    tools.create_import_structure_from_path = lambda path: read(
        folder if Path(path) == folder / "__init__.py" else path
    )
    try:
        import_module("transformers.models")
    finally:
        tools.create_import_structure_from_path = read


def _put_off_compiler() -> None:
    from importlib.util import find_spec, module_from_spec

    spec = find_spec("torch._dynamo")
    if spec is None:
        return
    module = sys.modules[spec.name] = module_from_spec(spec)
    # transformers imports this submodule alone; any other asks for `__path__`, which loads all.
    with suppress(ImportError):
        import_module("torch._dynamo._trace_wrapped_higher_order_op")
    del module.__path__
    module.__dict__["_marks"] = []
    module.__class__ = LazyCompiler


def quiet() -> SharedSetting:
    """Silence logs and progress bars of transformers and its dependencies, and warnings."""
    return _QUIET


@contextmanager
def _silence() -> Iterator[None]:
    import logging as any_logging

    level = any_logging.root.manager.disable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with quick_imports():
            import_transformers()
            logging: Any = import_module("transformers.utils.logging")
        bars = logging.is_progress_bar_enabled()
        logging.disable_progress_bar()
        any_logging.disable(max(level, any_logging.WARNING))
        try:
            yield
        finally:
            any_logging.disable(level)
            if bars:
                logging.enable_progress_bar()


_QUIET, _NATIVE = SharedSetting(_silence), RLock()


@contextmanager
def quiet_native(*, notes: bool = True) -> Iterator[None]:
    """Keep native code's prints off stdout, which is data, and Rust's panics off stderr.

    Other text on stderr is written afterwards, unless `notes` is False.
    """
    is_panic = False
    with _NATIVE, tempfile.TemporaryFile() as stderr, Path(os.devnull).open("wb") as nowhere:
        before = [os.dup(number) for number in (1, 2)]
        os.dup2(nowhere.fileno(), 1)
        os.dup2(stderr.fileno(), 2)
        try:
            yield
        except BaseException as error:
            is_panic = type(error).__name__ == "PanicException"
            raise
        finally:
            for number, copy in enumerate(before, 1):
                os.dup2(copy, number)
                os.close(copy)
            stderr.seek(0)
            if notes and not is_panic and (text := stderr.read()):
                os.write(2, text)
