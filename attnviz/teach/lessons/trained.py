"""What training makes of heads: a toy model that learns before one's eyes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.teach.lessons.lesson import Curves, Heat, Lesson, between

if TYPE_CHECKING:
    from torch import Tensor

SYMBOLS, HEADS, BATCH, MOST_STEPS, LOOKS = 10, 2, 64, 5000, 10


def training(length: int = 10, steps: int = 300, seed: int = 0) -> Lesson:
    """A small model learns to reverse a sequence: its heads, step by step.

    One layer of `attnviz.layers` with two heads sees random digits and is to say them backwards:
    position i has to find position length − 1 − i. Numbers are means over sequences that it has
    not been trained on.

    Returns:
        A row a look: steps taken, the loss (nats a digit), the share of digits that are right, and
        how much of each head's attention lies on the position that is needed.
    """
    between("length", length, 2, 24)
    between("steps", steps, 1, MOST_STEPS)
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        looks = _train(length, steps)
    rows = tuple((step, *numbers) for step, numbers, _ in looks)
    at = [step for step, *_ in looks]
    places = list(map(str, range(length)))
    last = looks[-1][1]
    better = int(np.argmax(last[2:]))
    learned = next((row[0] for row in rows if row[2] > 0.99), None)
    told = f"more than 99% of the digits are right after {learned} steps"
    if learned is None:
        told = f"no more than {last[1]:.0%} of the digits are right after {steps} steps"
    chosen = [
        look for look in looks if look[0] in {at[0], at[len(at) * 2 // 5], at[len(at) // 2], at[-1]}
    ]
    gap = np.full((length, 1), np.nan)
    maps = [part for _, _, weights in chosen for part in (weights[better], gap)][:-1]
    return Lesson(
        f"training · one layer learns to reverse {length} digits, {HEADS} heads, seed {seed}",
        ("step", "loss", "right", *(f"head_{head}_on_needed" for head in range(HEADS))),
        rows,
        (
            f"The layer starts with nearly even looks: {1 / length:.0%} of them fall on the "
            f"position that is needed, and {rows[0][2]:.0%} of the digits are right by chance.",
            f"What is needed for position i stands at {length - 1} − i; head {better} ends with "
            f"{last[2 + better]:.0%} of its attention there, and {told}.",
            "Loss and looks change together: nobody told the heads where to look, only which "
            "digits were wrong.",
        ),
        "Vaswani 2017 (Attention is all you need); the task is that of Lippe 2022 (UvA deep "
        "learning tutorial 6)",
        (
            Heat(
                f"head {better} after {', '.join(str(look[0]) for look in chosen)} steps",
                np.hstack(maps),
                places,
                [""] * (len(chosen) * (length + 1) - 1),
            ),
            Curves("loss", "step", "nats a digit", {"_loss": (at, [row[1] for row in rows])}),
            Curves(
                "attention on the position that is needed",
                "step",
                "share of a row's attention",
                {f"head {h}": (at, [row[3 + h] for row in rows]) for h in range(HEADS)},
                top=1.05,
            ),
        ),
    )


def _train(length: int, steps: int) -> list[tuple[int, list[float], Any]]:
    """What a fresh model has learned at each look: the step, its numbers and its heads."""
    import torch
    from torch.nn.functional import cross_entropy

    from attnviz.layers import TokenClassifier

    model = TokenClassifier(SYMBOLS + 1, SYMBOLS, size=32, heads=HEADS, layers=1, dropout=0.0)
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)

    def batch(count: int) -> Tensor:
        return torch.randint(1, SYMBOLS + 1, (count, length))  # 0 is padding

    unseen, looks = batch(256), []
    wanted_at = {round(steps * (look / LOOKS) ** 2) for look in range(LOOKS + 1)}
    for step in range(steps + 1):
        if step in wanted_at:
            with torch.inference_mode():
                logits, weights = model(unseen, need_weights=True)
            wanted, heads = unseen.flip(-1) - 1, weights[0].mean(0)
            loss = cross_entropy(logits.flatten(0, 1), wanted.flatten())
            right = (logits.argmax(-1) == wanted).float().mean()
            needed = heads.flip(-1).diagonal(dim1=-2, dim2=-1).mean(-1)
            looks.append((step, [float(loss), float(right), *map(float, needed)], heads.numpy()))
        given = batch(BATCH)
        loss = cross_entropy(model(given)[0].flatten(0, 1), (given.flip(-1) - 1).flatten())
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return looks
