"""Errors of other libraries become a ModelError of one line; our own bugs keep their traceback."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from attnviz.core.errors import AttnvizError, ModelError, first_line
from attnviz.models.hugging_face.load.devices import BYTES, memory_errors


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
        if not isinstance(error, usual) and _raised_here(error):
            raise
        raise ModelError(f"'{kind}' cannot run on this {what}: {first_line(error)}") from error


def _raised_here(error: BaseException) -> bool:
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is not None and str(last.tb_frame.f_globals.get("__name__")).startswith("attnviz.")


def smaller_input_hint(what: str) -> str:
    """What to do if a text, a picture or a recording needs too much memory."""
    less = {"text": "give a shorter text", "recording": "give fewer --seconds"}
    return less.get(what, "give a smaller --image-size")


def memory_hint(model: Any, what: str = "text") -> str:
    """What makes a pass fit into memory, by the model's device and precision."""
    options = [smaller_input_hint(what)]
    if model.device.type != "cpu":
        full = BYTES[str(model.dtype).removeprefix("torch.")] > 2
        options += ["--dtype bfloat16"] if full else ["--device-map auto", "--device cpu"]
    return " or ".join(options)
