"""What threads share: whose turn it is with a model, its mode, hooks, settings of the process.

Nothing here imports torch: a model is any object with modules, parameters and buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Lock, RLock, get_ident
from typing import Any
from weakref import WeakValueDictionary

_GUARD = Lock()
_MODEL_LOCKS: WeakValueDictionary[Hashable, Any] = WeakValueDictionary()


@contextmanager
def model_lock(model: Any) -> Iterator[None]:
    """Hold a model, given itself or by its name, so that other threads wait for it.

    The thread that holds it may ask again. A wrapper shares the lock of the model inside.
    """
    key = model
    if not isinstance(model, str | None):
        key = id(next(model.parameters() if is_module(model) else iter(()), model))
    with _GUARD:
        lock = _MODEL_LOCKS.get(key)
        if lock is None:
            lock = _MODEL_LOCKS[key] = RLock()
    with lock:
        yield


def is_module(model: object) -> bool:
    """Whether something has parameters and modules as a module of torch has; a class has not."""
    return hasattr(type(model), "parameters") and hasattr(type(model), "modules")


@contextmanager
def evaluation_mode(model: Any) -> Iterator[None]:
    """Put all modules of a model in evaluation mode, then back; anything else is left alone."""
    modes = {part: part.training for part in model.modules()} if is_module(model) else {}
    for part in modes:
        part.training = False
    try:
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode


def thread_hook(look: Callable[..., Any]) -> Any:
    """A hook that runs in passes of this thread only; eager copies of a model leave it out."""
    thread = get_ident()

    def hook(*args: Any, **named: Any) -> Any:
        return look(*args, **named) if get_ident() == thread else None

    hook.passing = True  # type: ignore[attr-defined]
    return hook


class SharedSetting:
    """A setting of the whole process for blocks of code that may run at once.

    The first block that begins makes the setting, and the last one that ends takes it back.
    """

    def __init__(self, make: Callable[[], AbstractContextManager[Any]]) -> None:
        self.make, self.lock, self.inside = make, RLock(), 0

    def __enter__(self) -> None:
        with self.lock:
            if not self.inside:
                self.setting = self.make()
                self.setting.__enter__()
            self.inside += 1

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.inside -= 1
            if not self.inside:
                self.setting.__exit__(None, None, None)
