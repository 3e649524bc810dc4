"""Fingerprints of files and models: a cache entry is valid while they are equal.

Nothing here imports torch: a model is any object with modules, parameters and buffers.
"""

from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any
from weakref import ref

FileFingerprint = tuple[tuple[str | int, ...], ...]


def fingerprint_files(paths: Iterable[Path]) -> FileFingerprint:
    """Name, size, times of the last changes in ns, and inode of each file that exists.

    A program can set the time of a file's content, but not that of its inode (ctime).
    """
    fingerprints = []
    for path in paths:
        with suppress(OSError):  # the code that reads the file reports the error
            facts = path.stat()
            times = facts.st_mtime_ns, facts.st_ctime_ns
            fingerprints.append((str(path), facts.st_size, *times, facts.st_ino))
    return tuple(fingerprints)


class ModelFingerprint:
    """The modules, hooks, parameters and buffers of a model in memory.

    Two fingerprints are equal if these are the same objects, not changed in place between. torch
    does not count changes through `.data`: a cache that copies weights must compare checksums.
    """

    def __init__(self, model: Any) -> None:
        tensors = (*model.named_parameters(), *model.named_buffers())
        self.facts: list[Any] = [(name, *_memory_of(tensor)) for name, tensor in tensors]
        for name, part in model.named_modules():
            hooks = (item for kind in hooks_of(part) for item in kind.items())
            self.facts.append((name, [n for n, hook in hooks if not hasattr(hook, "passing")]))
        # Addresses are not enough: a new tensor may lie where a freed one lay.
        parts = (*model.modules(), *(tensor for _, tensor in tensors))
        self.parts = [ref(part) for part in parts]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ModelFingerprint) or self.facts != other.facts:
            return False
        pairs = zip(self.parts, other.parts, strict=True)
        return all(one() is not None and one() is two() for one, two in pairs)

    __hash__ = None  # type: ignore[assignment]


def _memory_of(tensor: Any) -> tuple[int, int]:
    """A tensor's address and its count of changes; -1 if torch does not know them."""
    try:
        return tensor.data_ptr(), tensor._version
    except RuntimeError:  # a tensor made in inference mode, or of a subclass without storage
        return -1, -1


def model_checksum(model: Any) -> str:
    """A checksum of a model's modules and numbers, equal in every process."""
    import torch

    check = sha256("\n".join(f"{name} {type(one)}" for name, one in model.named_modules()).encode())
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        check.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        if not tensor.is_meta:
            numbers = tensor.detach().cpu().contiguous().reshape(-1)
            check.update(numbers.view(torch.uint8).numpy())
    return check.hexdigest()[:16]


def hooks_of(part: Any) -> list[dict[int, Any]]:
    """One module's hooks by their numbers, which are unique in a process."""
    return [part._forward_pre_hooks, part._forward_hooks]
