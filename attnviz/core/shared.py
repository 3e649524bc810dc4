"""Models and files that calls and threads share: the state they are in, and whose turn it is.

What is kept of a model or a file is kept with its state, and used again only while that is the
same. Nothing here needs torch: a model is whatever has modules, parameters and buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from threading import Lock, RLock, get_ident
from typing import Any
from weakref import WeakValueDictionary, ref

FileState = tuple[tuple[str, int, int, int], ...]


def files_state(paths: Iterable[Path]) -> FileState:
    """Name, size, time of the last change in ns, and inode of each file that can be asked."""
    found = []
    for path in paths:
        with suppress(OSError):  # who reads it says what is wrong
            facts = path.stat()
            found.append((str(path), facts.st_size, facts.st_mtime_ns, facts.st_ino))
    return tuple(found)


class ModelState:
    """The modules, hooks, parameters and buffers that a model in memory has now.

    Two states are equal where these are the very same, with no change in place between them.
    torch counts such changes, but not those written through `.data`: what has copies of numbers
    needs another sign, what shares them does not.
    """

    def __init__(self, model: Any) -> None:
        named = (*model.named_parameters(), *model.named_buffers())
        self.facts: list[Any] = [(name, *_memory_of(tensor)) for name, tensor in named]
        for name, part in model.named_modules():
            hooks = (item for kind in hooks_of(part) for item in kind.items())
            self.facts.append((name, [n for n, hook in hooks if not hasattr(hook, "passing")]))
        # An address says little: what is made later may lie where something lay before.
        parts = (*model.modules(), *(tensor for _, tensor in named))
        self.parts = [ref(part) for part in parts]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ModelState) or self.facts != other.facts:
            return False
        pairs = zip(self.parts, other.parts, strict=True)
        return all(one() is not None and one() is two() for one, two in pairs)

    __hash__ = None  # type: ignore[assignment]


def _memory_of(tensor: Any) -> tuple[int, int]:
    """Where the numbers of a tensor lie, and how often they were changed; -1: torch cannot tell."""
    try:
        return tensor.data_ptr(), tensor._version
    except RuntimeError:  # made in inference mode, or of a kind of its own
        return -1, -1


def model_checksum(model: Any) -> str:
    """A checksum of a model's modules and all its numbers, the same in every process."""
    import torch

    found = sha256("\n".join(f"{name} {type(one)}" for name, one in model.named_modules()).encode())
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        if not tensor.is_meta:
            numbers = tensor.detach().cpu().contiguous().reshape(-1)
            found.update(numbers.view(torch.uint8).numpy())
    return found.hexdigest()[:16]


_GUARD = Lock()
_TURNS: WeakValueDictionary[Hashable, Any] = WeakValueDictionary()


@contextmanager
def in_turn(model: Any) -> Iterator[None]:
    """Wait until no other thread works with a model, given itself or by its name, then have it.

    Who has it may ask for it again. A wrapper shares the turn of the model inside.
    """
    key = model
    if not isinstance(model, str | None):
        key = id(next(model.parameters() if is_module(model) else iter(()), model))
    with _GUARD:
        turn = _TURNS.get(key)
        if turn is None:
            turn = _TURNS[key] = RLock()
    with turn:
        yield


def is_module(model: object) -> bool:
    """Whether something has parameters and modules as a module of torch does; no class does."""
    return hasattr(type(model), "parameters") and hasattr(type(model), "modules")


@contextmanager
def in_evaluation_mode(model: Any) -> Iterator[None]:
    """Have all modules of a model in evaluation mode meanwhile; what is no module has none."""
    modes = {part: part.training for part in model.modules()} if is_module(model) else {}
    for part in modes:
        part.training = False
    try:
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode


def own_thread(look: Callable[..., Any]) -> Any:
    """A hook for passes of this thread, which those of other threads and copies do not meet."""
    thread = get_ident()

    def hook(*args: Any, **named: Any) -> Any:
        return look(*args, **named) if get_ident() == thread else None

    hook.passing = True  # type: ignore[attr-defined]
    return hook


def hooks_of(part: Any) -> list[dict[int, Any]]:
    """The hooks of one module by their numbers, which no two hooks of a process share."""
    return [part._forward_pre_hooks, part._forward_hooks]


class Together:
    """A setting of the whole process for blocks of code that may run at once.

    The first block in makes it, and the last one out takes it back.
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
