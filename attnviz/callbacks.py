"""Samples the attention of a model while it trains: every N steps, on one fixed batch.

Use `Recorder` in a loop of your own, `AttentionCallback` with transformers' Trainer, and
`LightningCallback` with Lightning. None of them changes the run: random state, modes, gradients and
results keep their bits.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.analyses.compare import HistoryStudy
from attnviz.core.errors import UsageError, reason_of
from attnviz.core.locks import evaluation_mode
from attnviz.runs.changes import read_sample, sample_files
from attnviz.runs.watching import watch
from attnviz.storage.archive import dump_archive
from attnviz.storage.writing import output_errors, write_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURE = "attention/heads"
"""The name of the picture of all heads in a log; measures are attention/MEASURE/LAYER.HEAD."""
INNER = ("tb_writer", "_wandb", "_ml_flow")
"""Attributes in which the integrations of transformers' Trainer keep their logger."""


class Recorder:
    """Reads a probe batch every N steps: saves its maps, and logs their measures.

    In a run of several processes only one should have a recorder. A model whose parameters are
    sharded over them cannot be sampled.

    Args:
        model: an `nn.Module`. It is called in evaluation mode: model(**probe_batch) for a mapping,
            model(*probe_batch) for a tuple or list, else model(probe_batch).
        probe_batch: the same at every sample; its tensors are moved to the model's device.
        folder: each sample becomes a file there, as step-00000100.npz. A resumed run continues in
            its folder: samples of later steps stay until the run reaches them and replaces them.
        every: steps from one sample to the next; other steps do nothing. `finish()` samples the
            last step of a run, and the callbacks call it.
        max_size: the most tokens on a side of a map; longer maps are kept and measured in blocks.
        only: patterns of module paths, as `watch` takes them.
        tokens: names for queries and keys.
        batch: which item of the probe batch is read.
        call: runs the model instead: call(model, probe_batch).
        loggers: a SummaryWriter, a run of Weights & Biases, mlflow, a logger of Lightning, or a
            trainer that has some; or a list of these. None: the open runs of Weights & Biases and
            MLflow. They get a step's scalars together with what is logged next.

    Raises:
        UsageError: an option out of its range.
    """

    def __init__(  # noqa: PLR0913 - what a caller may choose, by name
        self,
        model: Any,
        probe_batch: Any,
        folder: str | Path,
        *,
        every: int = 100,
        max_size: int = 256,
        only: str | Sequence[str] | None = None,
        tokens: Sequence[str] | None = None,
        batch: int = 0,
        call: Callable[[Any, Any], Any] | None = None,
        loggers: Any = None,
    ) -> None:
        if every < 1:
            raise UsageError(f"every={every} is too small: 1 or more")
        self.model, self.probe, self.folder, self.every = model, probe_batch, Path(folder), every
        self.wanted: dict[str, Any] = {
            "max_size": max_size,
            "only": only,
            "tokens": tokens,
            "batch": batch,
        }
        self.call, self.loggers = _call if call is None else call, loggers
        self.study = HistoryStudy()
        self.done: int | None = None
        self.last: int | None = None
        self.noted = set[str]()

    def step(self, number: int) -> Path | None:
        """Take a sample if the step is due, and return its file.

        An error never ends the training. A warning tells why there is no sample, once for each
        reason, and the next sample is tried again.
        """
        self.last = number
        return None if number % self.every else self._take(number)

    def finish(self) -> Path | None:
        """Take a sample of the last step if it has none, and return its file."""
        return None if self.last is None else self._take(self.last)

    def _take(self, number: int) -> Path | None:
        if number == self.done:
            return None
        first, self.done = self.done is None, number
        try:
            if first:
                self._resume(number)
            return self._sample(number)
        except Exception as error:  # no memory, a full disk, a logger, the model on the probe
            why = reason_of(error)
            if why not in self.noted:
                self.noted.add(why)
                warnings.warn(f"no sample at step {number:,}: {why}", stacklevel=3)
            return None

    def _resume(self, number: int) -> None:
        with output_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        there = sample_files(self.folder)
        later = [step for step in there if step > number]
        if later:
            warnings.warn(
                f"'{self.folder}' holds samples of later steps (to {later[-1]:,}) of an earlier "
                "run: each stays until this run replaces it",
                stacklevel=4,
            )
        if earlier := [step for step in there if step < number]:
            self.study.add(earlier[-1], read_sample(there[earlier[-1]]))

    def _sample(self, number: int) -> Path:
        import torch

        device = next((one.device for one in self.model.parameters()), torch.device("cpu"))
        with _protect_run(self.model, device), watch(self.model, eager=True, **self.wanted) as seen:
            self.call(self.model, _on(device, self.probe))
        result = seen.attention()
        settings = {**result.provenance.settings, "step": number}
        about = replace(result.provenance, settings=settings)
        result = replace(result, id=f"step {number}", provenance=about)
        self.study.add(number, result)
        path = self.folder / f"step-{number:08d}.npz"
        write_file(path, dump_archive([result]))
        if loggers := open_loggers(self.loggers):
            figure = result.grid()
            figure.set_dpi(100)  # a board shows small pictures, and drawing is what logging costs
            for logger in loggers:
                _log(logger, number, self._scalars(number), figure)
        return path

    def _scalars(self, number: int) -> dict[str, float]:
        found = self.study.values[number]
        several = len({stream for stream, _, _ in found}) > 1
        named = {
            f"attention/{name}/{f'{stream}/' if several else ''}{layer}.{head}": value
            for (stream, layer, head), values in found.items()
            for name, value in values.items()
            if not isnan(value)
        }
        # MLflow allows no other characters.
        return {re.sub(r"[^\w. /-]", "_", name): value for name, value in named.items()}


def _call(model: Any, batch: Any) -> Any:
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, tuple | list) else model(batch)


def _on(device: Any, batch: Any) -> Any:
    if isinstance(batch, Mapping):
        return {name: _on(device, one) for name, one in batch.items()}
    if isinstance(batch, tuple | list):
        return [_on(device, one) for one in batch]
    return batch.to(device) if hasattr(batch, "to") else batch


@contextmanager
def _protect_run(model: Any, device: Any) -> Iterator[None]:
    """Evaluation without gradients, after which modes and random state are restored."""
    import torch

    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.no_grad(), evaluation_mode(model):
        yield


def open_loggers(given: Any) -> list[Any]:
    """The loggers among what was given, or the open runs where nothing was."""
    if given is None:
        wandb, mlflow = map(sys.modules.get, ("wandb", "mlflow"))
        running = getattr(mlflow, "active_run", lambda: None)()
        return [one for one in (getattr(wandb, "run", None), running and mlflow) if one]
    if hasattr(given, "callback_handler"):  # transformers' Trainer
        given = given.callback_handler.callbacks
    given = getattr(given, "loggers", given)  # Lightning's
    found = []
    for one in given if isinstance(given, list | tuple) else [given]:
        inner = next((name for name in INNER if hasattr(one, name)), None)
        found.append(getattr(one, inner) if inner else one)
    known = ("add_scalar", "log_metrics", "log")
    return [one for one in found if any(hasattr(one, name) for name in known)]


def _log(logger: Any, step: int, values: Mapping[str, float], figure: Figure) -> None:
    """Log to a SummaryWriter, a run of Weights & Biases, mlflow or a logger of Lightning."""
    inner = getattr(logger, "experiment", None)  # the logger that Lightning's wraps
    if hasattr(logger, "add_scalar"):
        for name, value in values.items():
            logger.add_scalar(name, value, step)
    elif hasattr(logger, "log_metrics"):
        logger.log_metrics(dict(values), step=step)
    else:  # commit=False: the training decides when a step of Weights & Biases is complete
        image = getattr(sys.modules.get("wandb"), "Image", lambda picture: picture)
        picture = image(_pixels(figure))
        if hasattr(logger, "define_metric"):
            logger.define_metric("attention/*", step_metric="attention/step")
        logger.log({**values, "attention/step": step, PICTURE: picture}, commit=False)
    writer = inner or logger
    if hasattr(writer, "add_figure"):
        writer.add_figure(PICTURE, figure, step)
    elif hasattr(writer, "log_figure"):
        run = [logger.run_id] if inner else []
        writer.log_figure(*run, figure, f"{PICTURE}-{step:08d}.png")
    elif hasattr(logger, "log_image"):
        logger.log_image(PICTURE, [_pixels(figure)], step)


def _pixels(figure: Any) -> Any:
    """A figure as Weights & Biases takes it: it knows only pyplot's own figures."""
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())


class _Callback:
    def __init__(self, probe_batch: Any, folder: str | Path, **options: Any) -> None:
        self.given, self.options = (probe_batch, folder), options
        Recorder(None, probe_batch, folder, **options)  # so that wrong options fail at once
        self.recorder: Recorder | None = None

    def begin(self, model: Any, step: int, **options: Any) -> None:
        self.recorder = Recorder(model, *self.given, **{**options, **self.options})
        self.recorder.step(step)

    def take_step(self, step: int) -> None:
        if self.recorder is not None:
            self.recorder.step(step)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        if self.recorder is not None:
            self.recorder.finish()


class _OfTrainer(_Callback):
    """The options are those of `Recorder`; `loggers` may be the Trainer."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **about: Any) -> None:
        if state.is_world_process_zero:
            self.begin(about["model"], state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **about: Any) -> None:
        self.take_step(state.global_step)


class _OfLightning(_Callback):
    """The options are those of `Recorder`; it logs to the loggers of the Lightning trainer."""

    def on_train_start(self, trainer: Any, module: Any) -> None:
        if trainer.is_global_zero:
            self.begin(module, trainer.global_step, loggers=trainer)

    def on_train_batch_end(self, trainer: Any, module: Any, *about: Any) -> None:
        self.take_step(trainer.global_step)


CLASSES: dict[str, tuple[type, tuple[str, ...], str]] = {
    "AttentionCallback": (_OfTrainer, ("transformers",), "TrainerCallback"),
    "LightningCallback": (_OfLightning, ("lightning.pytorch", "pytorch_lightning"), "Callback"),
}
"""Classes made on first use: their events, the packages that may have the base, and its name."""


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in CLASSES:
        raise AttributeError(f"module 'attnviz.callbacks' has no attribute '{name}'")
    events, packages, base = CLASSES[name]
    # The package that the program has imported goes first.
    for package in sorted(packages, key=lambda one: one not in sys.modules):
        try:
            bases = events, getattr(import_module(package), base)
        except ImportError:
            continue
        about = {"__doc__": events.__doc__, "__module__": __name__}
        return globals().setdefault(name, type(name, bases, about))
    raise UsageError(f"{name} needs {' or '.join(packages)}: install it first")
