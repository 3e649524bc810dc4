"""Locks, modes and hooks of models that several threads share, and settings of the process.

Nothing here imports torch: a model is any object with modules, parameters and buffers.
"""

from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Lock, RLock, get_ident
from typing import Any
from weakref import WeakValueDictionary

_GUARD = Lock()
_MODEL_LOCKS: WeakValueDictionary[Hashable, Any] = WeakValueDictionary()


@contextmanager
def model_lock(model: Any) -> Iterator[None]:
    """Lock a model, or the name of a model; the same thread may lock it again."""
    # The first parameter identifies a module, so a wrapper shares the lock of the model inside.
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
    return hasattr(type(model), "parameters") and hasattr(type(model), "modules")


@contextmanager
def evaluation_mode(model: Any) -> Iterator[None]:
    """Put all modules of a model in evaluation mode, then restore their modes."""
    modes = {part: part.training for part in model.modules()} if is_module(model) else {}
    for part in modes:
        part.training = False
    try:
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode


def thread_hook(look: Callable[..., Any]) -> Any:
    """A hook that runs only in this thread, so that copies of a model do not inherit it."""
    thread = get_ident()

    def hook(*args: Any, **options: Any) -> Any:
        return look(*args, **options) if get_ident() == thread else None

    hook.passing = True  # type: ignore[attr-defined]
    return hook


class SharedSetting:
    """A setting of the process: the first block sets it, the last one restores it."""

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
