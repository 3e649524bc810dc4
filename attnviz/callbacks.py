"""Samples the attention of a model while it trains: every N steps, on one fixed batch.

Use `Recorder` in a loop of your own, `AttentionCallback` with transformers' Trainer, and
`LightningCallback` with Lightning. None of them changes the run: random state, modes, gradients and
results keep their bits. In a run of several processes each of them has one: the first writes, and
the others run the probe batch with it where the parameters are sharded over them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from inspect import signature
from math import isnan
from pathlib import Path
from shutil import which
from typing import Any, Protocol

import numpy as np

from attnviz.core.errors import OutputError, UsageError, reason_of
from attnviz.core.locks import evaluation_mode
from attnviz.core.records import dataclass, replace
from attnviz.features.compare.history import HistoryStudy, check_health, chosen_verdicts
from attnviz.features.compare.report import HISTORY, WINDOW, Verdict
from attnviz.features.compare.request import read_sample, sample_files
from attnviz.features.watch.function import watch
from attnviz.storage import archive, writing

PICTURE = "attention/heads"
"""The name of the picture of all heads in a log; measures are attention/MEASURE/LAYER.HEAD."""
LOGGED = (*HISTORY[:4], "row-entropy", "score-max", "saturated")
"""Of what a sample holds, the measures that go to loggers: there is a number for each head."""
LONGEST_DRAWING = 60
"""Seconds to wait for the last picture."""
INNER = ("tb_writer", "_wandb", "_ml_flow")
"""Attributes in which the integrations of transformers' Trainer keep their logger."""


class Recorder:
    """Reads a probe batch every N steps: saves its maps, and logs their measures.

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
        loggers: a SummaryWriter, a run of Weights & Biases or trackio, mlflow, a logger of
            Lightning, an `AttentionLogger` of your own, or a trainer that has some; or a list of
            these. None: the open runs of Weights & Biases, MLflow and trackio. They get a step's
            scalars at once, and its picture when another process has drawn it.
        on_verdict: called with each new `Verdict` on a head ("collapsed", …); what it raises ends
            the training.
        fail_on: verdicts that end the training with a `HealthError`: "collapsed,saturating".

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
        on_verdict: Callable[[Verdict], Any] | None = None,
        fail_on: str | Sequence[str] = (),
    ) -> None:
        if every < 1:
            raise UsageError(f"every={every} is too small: 1 or more")
        import torch

        is_wrapped = isinstance(model, torch.nn.parallel.DistributedDataParallel)
        self.model = model.module if is_wrapped else model
        self.probe, self.folder, self.every = probe_batch, Path(folder), every
        self.options: dict[str, Any] = {
            "max_size": max_size,
            "only": only,
            "tokens": tokens,
            "batch": batch,
        }
        self.call, self.loggers = _call if call is None else call, loggers
        self.study = HistoryStudy()
        self.latest: int | None = None
        self.last: int | None = None
        self.notes = set[str]()
        self.on_verdict, self.fail_on = on_verdict, chosen_verdicts(fail_on)
        self.verdicts = set[tuple[str, Any]]()
        self.renderers = dict[int, subprocess.Popen[bytes]]()
        self.start: float | None = None
        self.spent = 0.0

    def step(self, number: int) -> Path | None:
        """Take a sample if the step is due, and return its file.

        An error never ends the training. A warning tells why there is no sample, once for each
        reason, and the next sample is tried again.

        Raises:
            HealthError: a head has a verdict of `fail_on`.
        """
        self.last = number
        self.start = time.perf_counter() if self.start is None else self.start
        return None if number % self.every else self._take(number)

    def finish(self) -> Path | None:
        """Sample the last step if it has no sample, say what sampling cost, and return the file."""
        if self.last is None or self.start is None:
            return None
        file = self._take(self.last)
        if self.is_first:
            took = time.perf_counter() - self.start
            print(f"sampling took {self.spent / took:.1%} of {took:,.1f} s", file=sys.stderr)
            self._send_pictures(wait=True)
        self.start = None
        return file

    @property
    def is_first(self) -> bool:
        """Whether this is the first of the processes, which writes and logs."""
        return _rank() == 0

    def _take(self, number: int) -> Path | None:
        if number == self.latest or not (self.is_first or _is_sharded(self.model)):
            return None
        first, self.latest = self.latest is None, number
        start, file = time.perf_counter(), None
        try:
            if not self.is_first:  # the parameters of each layer are gathered from all processes
                self._run()
                return None
            if first:
                self._resume(number)
            file = self._sample(number)
        except Exception as error:  # no memory, a full disk, a logger, the model on the probe
            self._note(f"no sample at step {number:,}", error)
        finally:
            self.spent += time.perf_counter() - start
        if file is not None:
            self._judge()
        return file

    def _note(self, what: str, error: Exception) -> None:
        why = reason_of(error)
        if why not in self.notes:
            self.notes.add(why)
            warnings.warn(f"{what}: {why}", stacklevel=4)

    def _judge(self) -> None:
        """Tell of new verdicts; what comes of it may end the training, for that was asked for."""
        if self.on_verdict is None and not self.fail_on:
            return
        start = time.perf_counter()
        try:
            verdicts = self.study.report().verdicts
        except Exception as error:
            self._note("no verdicts", error)
            return
        before, self.verdicts = self.verdicts, {(one.name, one.head) for one in verdicts}
        self.spent += time.perf_counter() - start
        for one in verdicts:
            if self.on_verdict is not None and (one.name, one.head) not in before:
                self.on_verdict(one)
        check_health(verdicts, self.fail_on)

    def _resume(self, number: int) -> None:
        with writing.output_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        there = sample_files(self.folder)
        later = [step for step in there if step > number]
        if later:
            warnings.warn(
                f"'{self.folder}' holds samples of later steps (to {later[-1]:,}) of an earlier "
                "run: each stays until this run replaces it",
                stacklevel=4,
            )
        for step in [step for step in there if step < number][-WINDOW:]:
            self.study.add(step, read_sample(there[step]))

    def _run(self, watching: Any = None) -> Any:
        """Run the probe batch, and return what is seen."""
        import torch

        device = next((one.device for one in self.model.parameters()), torch.device("cpu"))
        with _protect_run(self.model, device), watching or nullcontext() as log:
            self.call(self.model, _on(device, self.probe))
        return log

    def _sample(self, number: int) -> Path:
        watching = watch(self.model, eager=True, calls="all", scores=True, **self.options)
        result = self._run(watching).attention()
        settings = {**result.provenance.settings, "step": number}
        about = replace(result.provenance, settings=settings)
        result = replace(result, id=f"step {number}", provenance=about)
        self.study.add(number, result)
        path = self.folder / f"step-{number:08d}.npz"
        writing.write_file(path, archive.dump_archive([result]))
        self._send_pictures()
        if loggers := open_loggers(self.loggers):
            values = self._scalars(number)
            for logger in loggers:
                logger.log(values, None, number)
            self.renderers[number] = _draw(path)
        return path

    def _send_pictures(self, *, wait: bool = False) -> None:
        """Log the pictures that are drawn by now; `wait`: all of them."""
        for number, process in [*self.renderers.items()]:
            try:
                if wait:
                    process.wait(LONGEST_DRAWING)
                if process.poll() is None:
                    continue
                del self.renderers[number]
                picture = self.folder / f"step-{number:08d}.png"
                if process.returncode:
                    raise OutputError(f"the process that draws it ended with {process.returncode}")
                for logger in open_loggers(self.loggers):
                    logger.log({}, picture, number)
            except Exception as error:
                self._note(f"no picture of step {number:,}", error)

    def _scalars(self, number: int) -> dict[str, float]:
        heads = self.study.values[number]
        several = len({stream for stream, _, _ in heads}) > 1
        scalars = {
            f"attention/{name}/{f'{stream}/' if several else ''}{layer}.{head}": value
            for (stream, layer, head), values in heads.items()
            for name, value in values.items()
            if name in LOGGED and not isnan(value)
        }
        # MLflow allows no other characters.
        return {re.sub(r"[^\w. /-]", "_", name): value for name, value in scalars.items()}


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


def _rank() -> int:
    """The number of this process among those of the run; 0 where it is the only one."""
    import torch.distributed as processes

    return processes.get_rank() if processes.is_available() and processes.is_initialized() else 0


def _is_sharded(model: Any) -> bool:
    """Whether the parameters are spread over the processes, so that each must run the model."""
    if not {"torch.distributed.fsdp", "torch.distributed.tensor"} & {*sys.modules}:
        return False
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.tensor import DTensor

    parts = any(isinstance(one, FullyShardedDataParallel) for one in model.modules())
    return parts or any(isinstance(one, DTensor) for one in model.parameters())


def _draw(path: Path) -> subprocess.Popen[bytes]:
    """Start a process that draws the heads of a sample beside it, and disturbs no other."""
    command = [sys.executable, "-m", "attnviz", "render", str(path), "--format", "none", "--quiet"]
    command += ["--grid", str(path.with_suffix(".png")), "--style", "dpi=100"]
    patient = ["nice", "-n", "19"] if which("nice") else []
    places = os.pathsep.join(one for one in sys.path if one)
    return subprocess.Popen(
        [*patient, *command],
        env={**os.environ, "PYTHONPATH": places},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


class AttentionLogger(Protocol):
    """What a logger of your own must have; `Recorder` makes one of each of the others."""

    def log(self, scalars: Mapping[str, float], picture: Path | None, step: int) -> Any:
        """Take a step's numbers by name, or later its picture, a PNG file."""


def open_loggers(choice: Any) -> list[AttentionLogger]:
    """The loggers among what was given, or the open runs where nothing was."""
    if choice is None:
        wandb, mlflow, trackio = map(sys.modules.get, ("wandb", "mlflow", "trackio.context_vars"))
        running = getattr(mlflow, "active_run", lambda: None)()
        trackio_run = getattr(trackio, "current_run", None)
        runs = getattr(wandb, "run", None), running and mlflow, trackio_run and trackio_run.get()
        return [_KnownLogger(one) for one in runs if one]
    if hasattr(choice, "callback_handler"):  # transformers' Trainer
        choice = choice.callback_handler.callbacks
    choice = getattr(choice, "loggers", choice)  # Lightning's
    loggers = list[Any]()
    for one in choice if isinstance(choice, list | tuple) else [choice]:
        inner = next((name for name in INNER if hasattr(one, name)), None)
        loggers.append(getattr(one, inner) if inner else one)
    methods = ("add_scalar", "log_metrics", "log")
    return [
        one if _takes_pictures(one) else _KnownLogger(one)
        for one in loggers
        if any(hasattr(one, name) for name in methods)
    ]


def _takes_pictures(one: Any) -> bool:
    try:
        return "picture" in signature(one.log).parameters
    except (AttributeError, TypeError, ValueError):
        return False


@dataclass(frozen=True)
class _KnownLogger:
    """A SummaryWriter, a run of Weights & Biases or trackio, mlflow, or a logger of Lightning."""

    own: Any

    def log(self, scalars: Mapping[str, float], picture: Path | None, step: int) -> None:
        if scalars:
            self._numbers(dict(scalars), step)
        if picture is not None:
            self._picture(picture, step)

    @property
    def package(self) -> str:
        return type(self.own).__module__.partition(".")[0]

    def _numbers(self, scalars: dict[str, float], step: int) -> None:
        if hasattr(self.own, "add_scalar"):
            for name, value in scalars.items():
                self.own.add_scalar(name, value, step)
        elif hasattr(self.own, "log_metrics"):
            self.own.log_metrics(scalars, step=step)
        elif self.package == "trackio":
            self.own.log(scalars, step=step)
        else:  # commit=False: the training decides when a step of Weights & Biases is complete
            if hasattr(self.own, "define_metric"):
                self.own.define_metric("attention/*", step_metric="attention/step")
            self.own.log({**scalars, "attention/step": step}, commit=False)

    def _picture(self, picture: Path, step: int) -> None:
        inner = getattr(self.own, "experiment", None)  # the logger that Lightning's wraps
        writer = inner or self.own
        if hasattr(writer, "add_image"):
            from PIL import Image

            with Image.open(picture) as picture_file:
                pixels = np.asarray(picture_file.convert("RGB"))
            writer.add_image(PICTURE, pixels, step, dataformats="HWC")
        elif hasattr(writer, "log_artifact"):
            run = [self.own.run_id] if inner else []
            writer.log_artifact(*run, str(picture), PICTURE)
        elif hasattr(self.own, "log_image"):
            self.own.log_image(PICTURE, [str(picture)], step)
        elif self.package == "trackio":
            self.own.log({PICTURE: sys.modules["trackio"].Image(str(picture))}, step=step)
        elif not hasattr(self.own, "log_metrics"):
            image = getattr(sys.modules.get("wandb"), "Image", lambda file: file)
            row = {PICTURE: image(str(picture)), "attention/step": step}
            self.own.log(row, commit=False)


class _Callback:
    def __init__(self, probe_batch: Any, folder: str | Path, **options: Any) -> None:
        self.arguments, self.options = (probe_batch, folder), options
        Recorder(None, probe_batch, folder, **options)  # so that wrong options fail at once
        self.recorder: Recorder | None = None

    def begin(self, model: Any, step: int, **options: Any) -> None:
        self.recorder = Recorder(model, *self.arguments, **{**options, **self.options})
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
        if state.is_world_process_zero or _rank() > 0:
            self.begin(about["model"], state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **about: Any) -> None:
        self.take_step(state.global_step)


class _OfLightning(_Callback):
    """The options are those of `Recorder`; it logs to the loggers of the Lightning trainer."""

    def on_train_start(self, trainer: Any, module: Any) -> None:
        if trainer.is_global_zero or _rank() > 0:
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
