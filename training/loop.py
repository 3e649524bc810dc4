"""How a training run tells where it is: one line on stderr that moves, or plain lines in a log."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch

from attnviz.core.errors import InputError
from attnviz.models.pocket.model import TranslatorSizes

if TYPE_CHECKING:
    from torch import Tensor

Parts = Any
"""A named tuple of losses, in nats: what training follows, then its parts."""
EVERY = 20
"""Steps between two lines where stderr is a file."""


class Reporter:
    """Shows step, losses, speed and the time that remains, smoothed over the last steps."""

    def __init__(self, settings: Settings, done: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeRemainingColumn as Remaining

        self.settings = settings
        self.console = Console(file=sys.stderr)
        self.progress = Progress(
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            Remaining(),
            TextColumn("{task.fields[losses]}"),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self.task = self.progress.add_task(
            "training", total=settings.steps, completed=done, losses=""
        )
        self.means: list[float] = []
        self.before = time.monotonic()
        self.seconds = 0.0

    def __enter__(self) -> Reporter:
        self.progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.progress.stop()

    def note(self, text: str) -> None:
        """Say one thing."""
        self.console.print(text, highlight=False, markup=False)
        self.before = time.monotonic()

    def report(self, run: Run, losses: Parts) -> None:
        """Take in one step and show it, or every so many steps write a line."""
        now = time.monotonic()
        taken, self.before = now - self.before, now
        self.seconds = 0.95 * self.seconds + 0.05 * taken if self.seconds else taken
        values = [value.item() for value in losses]
        old = self.means or values
        self.means = [0.95 * mean + 0.05 * value for mean, value in zip(old, values, strict=True)]
        parts = zip(losses._fields[1:], self.means[1:], strict=True)
        text = f"{' '.join(f'{name} {mean:.3f}' for name, mean in parts)} nats"
        self.progress.update(self.task, completed=run.step, losses=text)
        if not self.console.is_terminal and run.step % EVERY == 0:
            left = (self.settings.steps - run.step) * self.seconds / 60
            self.console.print(
                f"step {run.step} of {self.settings.steps}: {text}; "
                f"{self.seconds:.2f} s a step, {left:.0f} min left",
                highlight=False,
                soft_wrap=True,
            )


# <loop> The training loop: steps, a learning rate that rises and falls, checkpoints to go on from.


@dataclass(frozen=True, slots=True)
class Settings:
    """How a run learns.

    Attributes:
        steps: how many batches.
        rate: the highest learning rate.
        warm_up: steps until it is reached.
        pieces: about how many pieces of the longer side are in a batch.
        seed: of the first weights and of every draw.
        decay: AdamW's pull of the weights towards 0 (Loshchilov & Hutter 2019).
        save_every: steps between checkpoints.
        device: a torch device.
        compiled: fuse the forward pass with torch.compile: minutes to start, then twice the speed.
    """

    steps: int = 30_000
    rate: float = 2e-3
    warm_up: int = 400
    pieces: int = 4000
    seed: int = 0
    decay: float = 0.01
    save_every: int = 200
    device: str = "cpu"
    compiled: bool = False


def learning_rate(settings: Settings, step: int) -> float:
    """The rate at a step: a line up during the warm-up, then half a cosine down to 0."""
    if step < settings.warm_up:
        return settings.rate * (step + 1) / settings.warm_up
    share = (step - settings.warm_up) / max(settings.steps - settings.warm_up, 1)
    return settings.rate * 0.5 * (1 + math.cos(math.pi * min(share, 1.0)))


def first_weights(sizes: TranslatorSizes, seed: int) -> dict[str, Tensor]:
    """Weights before any training: Glorot-uniform maps, zero biases, norms that change nothing."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in shapes(sizes).items():
        if name == "embedding.weight":
            weights[name] = torch.randn(shape, generator=generator) * sizes.size**-0.5
        elif len(shape) == 2:
            bound = math.sqrt(6 / sum(shape))
            weights[name] = (2 * torch.rand(shape, generator=generator) - 1) * bound
        else:
            weights[name] = torch.full(shape, float(name.endswith("norm.weight")))
    return weights


def shapes(sizes: TranslatorSizes) -> dict[str, tuple[int, ...]]:
    """The shape of every learned array by name."""
    found: dict[str, tuple[int, ...]] = {"embedding.weight": (sizes.vocabulary, sizes.size)}

    def maps(name: str, outputs: int, inputs: int) -> None:
        found[f"{name}.weight"], found[f"{name}.bias"] = (outputs, inputs), (outputs,)

    def norm(name: str) -> None:
        found[f"{name}.weight"] = found[f"{name}.bias"] = (sizes.size,)

    sides = (
        ("encoder", sizes.encoder_layers, ("self_attention",)),
        ("decoder", sizes.decoder_layers, ("self_attention", "cross_attention")),
    )
    for side, layers, attentions in sides:
        for layer in (f"{side}.{number}" for number in range(layers)):
            for attention in attentions:
                norm(f"{layer}.{attention}_norm")
                for part in ("query", "key", "value", "output"):
                    maps(f"{layer}.{attention}.{part}", sizes.size, sizes.size)
            norm(f"{layer}.feed_forward_norm")
            maps(f"{layer}.feed_forward.in", sizes.feed_forward, sizes.size)
            maps(f"{layer}.feed_forward.out", sizes.size, sizes.feed_forward)
        norm(f"{side}_norm")
    return found


class Run:
    """A training run that can be stopped after any step and gone on with."""

    def __init__(
        self,
        settings: Settings,
        weights: dict[str, Tensor],
        losses: Callable[[dict[str, Tensor], Any], Parts],
    ) -> None:
        """Begin a run.

        Args:
            settings: how it learns.
            weights: to start from.
            losses: of the weights on a batch; the first of them is what training follows.
        """
        self.settings, self.losses, self.step = settings, losses, 0
        self.weights = {
            name: array.float().to(settings.device).requires_grad_()
            for name, array in weights.items()
        }
        fused = settings.device in ("cpu", "cuda")
        self.optimizer = torch.optim.AdamW(
            list(self.weights.values()), lr=settings.rate, weight_decay=settings.decay, fused=fused
        )

    def learn(self, batch: Any) -> Parts:
        """One step over one batch.

        Raises:
            InputError: the loss is no number any more.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.settings, self.step)
        device = self.settings.device
        with torch.autocast(device, torch.bfloat16, enabled=device != "mps"):
            found = self.losses(self.weights, batch)
        if not math.isfinite(found[0].item()):
            raise InputError(f"the loss is not finite at step {self.step}: lower the learning rate")
        torch.autograd.backward(found[0])
        torch.nn.utils.clip_grad_norm_(self.weights.values(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        return type(found)(*(value.detach() for value in found))

    def follow(
        self,
        source: Iterator[Any],
        folder: Path,
        report: Callable[[Run, Parts], None],
        last: int,
    ) -> None:
        """Learn up to a step, report each one, and save a checkpoint every so often and there."""
        while self.step < last:
            report(self, self.learn(next(source)))
            if self.step % self.settings.save_every == 0 or self.step == last:
                self.save(folder)

    def save(self, folder: Path) -> None:
        """Write a checkpoint, whole or not at all."""
        state = {
            "weights": {name: array.detach().cpu() for name, array in self.weights.items()},
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
        }
        unfinished = folder / "checkpoint.unfinished"
        torch.save(state, unfinished)
        unfinished.replace(folder / "checkpoint.pt")
        line = {"step": self.step, "time": round(time.time()), **asdict(self.settings)}
        (folder / "checkpoint.json").write_text(json.dumps(line, indent=1) + "\n")

    def resume(self, folder: Path) -> None:
        """Go on from the folder's checkpoint.

        Raises:
            InputError: there is none.
        """
        path = folder / "checkpoint.pt"
        if not path.is_file():
            raise InputError(f"'{path}' does not exist: nothing to resume")
        state: dict[str, Any] = torch.load(path, weights_only=True)
        with torch.no_grad():
            for name, array in state["weights"].items():
                self.weights[name].copy_(array)
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]
