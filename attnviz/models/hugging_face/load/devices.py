"""Where a model runs, in which precision, whether it fits there, and errors of loading and running.

Errors of other libraries become a ModelError of one line; our own bugs keep their traceback.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

from attnviz.core.errors import AttnvizError, ModelError, UsageError, choose, first_line

if TYPE_CHECKING:
    import torch

DEVICES = ("auto", "cpu", "cuda", "mps")
DTYPES = ("float32", "float16", "bfloat16", "float64")
BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8}


def choose_device(name: str) -> torch.device:
    """The device of this name; "auto" is the fastest one available."""
    choose(name, DEVICES, "device")
    import torch

    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        name = next((kind for kind, is_there in there.items() if is_there), "cpu")
    elif not there.get(name, True):
        have = ", ".join(["cpu", *(kind for kind, is_there in there.items() if is_there)])
        raise UsageError(
            f"device '{name}' is not available here (torch {torch.__version__} sees {have}): "
            "choose one of these, or 'auto'"
        )
    return torch.device(name)


def check_spread() -> None:
    """Refuse to spread a model without the package that does it."""
    if not has_accelerate():
        raise ModelError("--device spread needs the package accelerate: pip install 'attnviz[big]'")


def has_accelerate() -> bool:
    """Whether accelerate, which spreads models, is installed."""
    from importlib.util import find_spec

    return find_spec("accelerate") is not None


def computed_dtype(model: Any) -> str:
    """The precision in which a model computes: its own, or that of torch.autocast around it."""
    import torch

    device = model.device.type
    if torch.is_autocast_enabled(device):
        return str(torch.get_autocast_dtype(device)).removeprefix("torch.")
    return str(model.dtype).removeprefix("torch.")


def choose_dtype(name: str | None, device: str, dtypes: tuple[str, ...] = ()) -> str:
    """The precision to compute in: by default float32 on a CPU, elsewhere as it is stored.

    On a CPU half precision is slow and makes errors of weights up to 0.03.
    """
    if name is not None:
        choose(name, DTYPES, "dtype")
        if name == "float64" and device == "mps":
            raise UsageError("device 'mps' has no float64: choose float32, float16 or bfloat16")
        return name
    half = {"F16": "float16", "BF16": "bfloat16"}
    return "float32" if device == "cpu" else half.get(", ".join(dtypes), "float32")


def free_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    import psutil

    return int(psutil.virtual_memory().available)


def check_fit(bytes_needed: int, device: torch.device, what: str, remedy: str) -> None:
    free = free_bytes(device)
    if bytes_needed > free:
        raise NotEnoughMemoryError(
            f"{what} would take about {format_bytes(bytes_needed)}, and {format_bytes(free)} is "
            f"free on '{device.type}': {remedy}"
        )


def format_bytes(number: float) -> str:
    return f"{number / 2**30:,.1f} GiB" if number >= 2**30 else f"{number / 2**20:,.0f} MiB"


class NotEnoughMemoryError(ModelError):
    """The work does not fit into memory; less at once may."""


@contextmanager
def memory_errors(what: str, remedy: str) -> Iterator[None]:
    """Turn running out of memory into one line; each device reports it in its own way."""
    import torch

    try:
        yield
    except (MemoryError, RuntimeError) as error:
        is_typed = isinstance(error, MemoryError | torch.OutOfMemoryError)
        if not is_typed and "allocate memory" not in str(error):
            raise
        raise NotEnoughMemoryError(f"the memory ran out: {what}: {remedy}") from error


@contextmanager
def library_errors(what: str) -> Iterator[None]:
    """Turn any error of another library into one line.

    Put only calls of that library into the block: a bug of attnviz must keep its traceback. Every
    error is caught, since a model's files make libraries raise anything: strict fields, divisions
    by zero, assertions, and panics of Rust, which are no `Exception`.
    """
    try:
        yield
    except (AttnvizError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # panics of Rust are no Exception
        raise ModelError(f"{what}: {first_line(error)}") from error


@contextmanager
def loading_errors(name: str) -> Iterator[None]:
    """Turn errors of loading a model into one line."""
    with (
        library_errors(f"'{name}' cannot be loaded"),
        memory_errors(f"'{name}'", "use a smaller model"),
    ):
        yield


@contextmanager
def running_errors(model: Any, what: str = "text") -> Iterator[None]:
    """Turn errors of running a model into one line."""
    kind = model.config.model_type
    try:
        with memory_errors(f"'{kind}' on '{model.device}'", memory_hint(model, what)):
            yield
    except AttnvizError:
        raise
    except Exception as error:
        usual = RuntimeError, ValueError, LookupError, TypeError, AttributeError
        frames = [frame.f_globals.get("__name__") for frame, _ in walk_tb(error.__traceback__)]
        if not isinstance(error, usual) and str(frames[-1]).startswith("attnviz."):
            raise
        raise ModelError(f"'{kind}' cannot run on this {what}: {first_line(error)}") from error


def smaller_input_hint(what: str) -> str:
    """What to do if a text, a picture or a recording needs too much memory."""
    less = {"text": "give a shorter text", "recording": "give fewer --seconds"}
    return less.get(what, "give a smaller --image-size")


def memory_hint(model: Any, what: str = "text") -> str:
    """What makes a pass fit into memory, by the model's device and precision."""
    options = [smaller_input_hint(what)]
    if model.device.type != "cpu":
        full = BYTES[str(model.dtype).removeprefix("torch.")] > 2
        options += ["--dtype bfloat16"] if full else ["--device spread", "--device cpu"]
    return " or ".join(options)
