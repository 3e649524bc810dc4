"""What heads learn: one layer that is trained while you wait, and induction heads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnviz.core.errors import UsageError
from attnviz.features.lessons.lesson import Curves, Heat, Lesson, check_range
from attnviz.models.pocket.text import END

if TYPE_CHECKING:
    from torch import Tensor

    from attnviz.core.attention_call import AttentionCall
    from attnviz.features.pocket_lm.language_model import CausalPocket

DRAWS, WORD, FEWEST, COMMON = 8, re.compile("▁[a-z]{3,8}"), 100, 3000
"""Random words are pieces that match WORD, of the most common ones: numbers FEWEST to COMMON."""
SYMBOLS, HEADS, BATCH, MOST_STEPS, LOOKS = 10, 2, 64, 5000, 10


def training_lesson(length: int = 10, steps: int = 300, seed: int = 0) -> Lesson:
    """A small model learns to reverse a sequence: its heads, step by step.

    One layer of `attnviz.layers` with two heads reads random digits and learns to write them
    backwards: position i needs position length − 1 − i. Numbers are means over unseen sequences.

    A row holds, for each evaluation: the steps taken, the loss (nats per digit), the share of
    digits that are right, and for each head its share of attention on the position that is needed.
    """
    check_range("length", length, 2, 24)
    check_range("steps", steps, 1, MOST_STEPS)
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        looks = _train(length, steps)
    at = [step for step, *_ in looks]
    losses, right, *on_target = (
        list(one) for one in zip(*(numbers for _, numbers, _ in looks), strict=True)
    )
    places = list(map(str, range(length)))
    better = int(np.argmax([one[-1] for one in on_target]))
    solved_at = next((step for step, share in zip(at, right, strict=True) if share > 0.99), None)
    result = f"more than 99% of the digits are right after {solved_at} steps"
    if solved_at is None:
        result = f"no more than {right[-1]:.0%} of the digits are right after {steps} steps"
    samples = [
        look for look in looks if look[0] in {at[0], at[len(at) * 2 // 5], at[len(at) // 2], at[-1]}
    ]
    gap = np.full((length, 1), np.nan)
    maps = [part for _, _, weights in samples for part in (weights[better], gap)][:-1]
    return Lesson(
        f"training · one layer learns to reverse {length} digits, {HEADS} heads, seed {seed}",
        {"step": at, "loss": losses, "right": right}
        | {f"head_{head}_on_needed": share for head, share in enumerate(on_target)},
        (
            f"The layer starts with nearly uniform attention: {1 / length:.0%} of it is on the "
            f"position that is needed, and {right[0]:.0%} of the digits are right by chance.",
            f"Position i needs position {length - 1} − i; head {better} ends with "
            f"{on_target[better][-1]:.0%} of its attention there, and {result}.",
            "Loss and attention change together: training only says which digits are wrong, and "
            "the heads find out where to look.",
        ),
        "Vaswani 2017 (Attention is all you need); the task is that of Lippe 2022 (UvA deep "
        "learning tutorial 6)",
        (
            Heat(
                f"head {better} after {', '.join(str(look[0]) for look in samples)} steps",
                np.hstack(maps),
                places,
                [""] * (len(samples) * (length + 1) - 1),
            ),
            Curves("loss", "step", "nats a digit", {"_loss": (at, losses)}),
            Curves(
                "attention on the position that is needed",
                "step",
                "share of a row's attention",
                {f"head {head}": (at, share) for head, share in enumerate(on_target)},
                top=1.05,
            ),
        ),
    )


def _train(length: int, steps: int) -> list[tuple[int, list[float], Any]]:
    """For each evaluation of a new model: the step, its numbers and its heads."""
    import torch
    from torch.nn.functional import cross_entropy

    from attnviz.features.layers.task_models import TokenClassifier

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
            targets, heads = unseen.flip(-1) - 1, weights[0].mean(0)
            loss = cross_entropy(logits.flatten(0, 1), targets.flatten())
            right = (logits.argmax(-1) == targets).float().mean()
            on_target = heads.flip(-1).diagonal(dim1=-2, dim2=-1).mean(-1)
            looks.append((step, [float(loss), float(right), *map(float, on_target)], heads.numpy()))
        inputs = batch(BATCH)
        loss = cross_entropy(model(inputs)[0].flatten(0, 1), (inputs.flip(-1) - 1).flatten())
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return looks


def induction_lesson(length: int = 16, seed: int = 0) -> Lesson:
    """A previous-token head feeds an induction head; cut the first, the second dies.

    The shipped model pocket-lm reads random words, and then the same words again. We measure which
    heads do it, then switch each off (its output becomes 0). Numbers are means over eight draws;
    the first word of the repetition does not count, since nothing predicts it.

    A row holds, for each run: what is switched off; the loss over the words (nats per piece) and
    over their repetition, and the share of these that it predicts; the attention of the first head
    on the previous piece, and of the second on the piece after the earlier copy.
    """
    check_range("length", length, 4, 40)
    from attnviz.features.pocket_lm.language_model import load_pocket_lm

    model = load_pocket_lm()
    random = np.random.default_rng(seed)
    vocabulary = [n for n in range(FEWEST, COMMON) if WORD.fullmatch(model.piece(n))]
    draws = [random.choice(vocabulary, length, replace=False).tolist() for _ in range(DRAWS)]
    usual = _read_twice(model, draws)
    layers, heads = usual.before.shape
    first, second = (divmod(int(scores.argmax()), heads) for scores in (usual.before, usual.again))
    other = (second[0], int(usual.again[second[0]].argmin()))
    cuts = {"nothing": None, "previous": first, "induction": second, "another": other}
    runs = {name: _read_twice(model, draws, cut) for name, cut in cuts.items()}
    once, again = (
        [float(run.losses[half].mean()) for run in runs.values()]
        for half in (slice(length), slice(length + 1, None))
    )
    behind = [float(run.again[second]) for run in runs.values()]
    off = [f"{name} {_head_name(cut)}" if cut else name for name, cut in cuts.items()]
    words = [model.piece(number).removeprefix("▁") for number in draws[0]]
    names = ["<eos>", *words, *words]
    places = np.arange(1, 2 * length + 1)
    return Lesson(
        f"induction · pocket-lm reads {length} random words twice, {layers} layers × {heads} "
        f"heads, seed {seed}",
        {
            "switched_off": off,
            "first_time_loss": once,
            "again_loss": again,
            "copied": [run.copy_share for run in runs.values()],
            "on_piece_before": [float(run.before[first]) for run in runs.values()],
            "on_piece_behind_copy": behind,
        },
        (
            f"Head {_head_name(first)} gives {usual.before[first]:.0%} of its attention to the "
            "previous piece, so each position knows what it follows. Head "
            f"{_head_name(second)} looks for a position that follows an earlier copy of its own "
            f"word ({usual.again[second]:.0%} of its attention) and predicts the word there.",
            f"So words that it has seen once cost {again[0]:.2f} nats instead of {once[0]:.2f}, "
            f"and it predicts {usual.copy_share:.0%} of them, though their order is random.",
            f"With the first head off, the second still runs but gives only {behind[1]:.0%} to the "
            f"right place, and the loss is {again[1]:.2f}. Without the second it is "
            f"{again[2]:.2f}; without another head of its layer, {again[3]:.2f}.",
        ),
        "Elhage 2021 (A mathematical framework for transformer circuits), induction heads; Olsson "
        "2022 (In-context learning and induction heads)",
        (
            Heat(f"induction head {_head_name(second)}", usual.weights[second], names, names),
            Heat(
                f"the same, head {_head_name(first)} switched off",
                runs["previous"].weights[second],
                names,
                names,
            ),
            Curves(
                "loss piece by piece",
                "piece",
                "nats",
                {
                    f"without {name}" if n else "whole model": (places, run.losses)
                    for n, (name, run) in enumerate(zip(off[:3], runs.values(), strict=False))
                },
            ),
        ),
    )


def circuit_lesson(text: str = "Tom likes dogs. Mary likes cats. Tom likes") -> Lesson:
    """The induction circuit in four steps, each measured and then taken away.

    The model inside pocket-lm reads a text whose end stood in it before. The head of its last layer
    that argues most for what is predicted is the second head, and the head that wrote most into the
    key of its strongest link is the first.

    A row holds, for each step: what happens, how much of it there is and in which unit, and the
    probability of the predicted token if this step is taken away (1 row more: nothing is).
    """
    from attnviz.core.effects import HeadAt, Intervention, LinkAt, log_probabilities
    from attnviz.core.query import Query
    from attnviz.features.pocket_lm.language_model import load_pocket_lm
    from attnviz.features.writers.links import explain_link

    query, model = Query(text), load_pocket_lm()
    trace, experiment = model.trace_writers(query), model.experiment(query)
    item = trace.attention.main
    row, layer = len(item.query_tokens) - 1, item.layers[-1]
    places = [HeadAt(item.stream, layer, head) for head in range(len(item.heads))]
    links = [(at, int(item.weights[-1, at.head, row, 1:].argmax()) + 1) for at in places]
    reports = [explain_link(trace, at, (row, key)) for at, key in links if key < row]
    if not reports:
        raise UsageError("--text: the last token looks at no other word: give a longer text")
    report = max(reports, key=lambda one: one.argument or 0.0)
    assert report.link
    assert report.predicted
    assert report.argument is not None
    second, key = report.head, report.link[1]
    heads = [one for one in report.key if one.writer[0].isdigit()]
    first = HeadAt.parse(heads[0].writer, item.stream)
    weights = item.weights[item.layers.index(first.layer), first.head]
    behind = int(weights[key].argmax())
    cuts = [
        Intervention(),
        Intervention(links=(LinkAt(item.stream, key, behind, first.layer, first.head),)),
        Intervention(heads=(first,)),
        Intervention(links=(LinkAt(item.stream, row, key, second.layer, second.head),)),
        Intervention(heads=(second,)),
    ]
    chances = np.exp(log_probabilities(experiment, cuts)[:, 0]).tolist()
    names = [token.text for token in item.query_tokens]
    answer = report.predicted[0]
    one, two = (_head_name((int(at.layer), at.head)) for at in (first, second))
    rest = next((c for c in report.checks if c.side == "key" and c.writer == heads[0].writer), None)
    alone = "" if rest is None else f" Its weight would be {rest.measured:.2f}."
    return Lesson(
        f"circuit · pocket-lm reads '{text}' and predicts {answer}",
        {
            "step": ["whole", "1 look back", "2 into a key", "3 look there", "4 argue"],
            "head": ["", one, one, two, two],
            "measured": [
                report.predicted[1],
                float(weights[key, behind]),
                heads[0].value,
                report.weight,
                report.argument,
            ],
            "unit": ["probability", "weight", "of the score", "weight", "logit"],
            "probability_without": chances,
        },
        (
            f"Head {one} gives {weights[key, behind]:.2f} of its attention at '{names[key]}' to "
            f"'{names[behind]}', which stands before it, and writes there what it saw.",
            f"Head {two} looks for that: of the {report.contrast:.1f} by which the score of "
            f"'{names[key]}' is above the mean, {heads[0].value:.1f} is what {one} wrote.{alone}",
            f"What it brings back argues for '{answer}', {report.argument:+.1f} of a logit of "
            f"{report.logit or 0.0:.1f}. Without step 1, 2, 3 or 4 the probability is not "
            f"{chances[0]:.2f} but {chances[1]:.2f}, {chances[2]:.2f}, {chances[3]:.2f} and "
            f"{chances[4]:.2f}.",
        ),
        "Elhage 2021 (A mathematical framework for transformer circuits); Olsson 2022 (In-context "
        "learning and induction heads)",
        (
            Heat(f"1. head {one}", weights, names, names),
            Heat(f"3. head {two}", item.weights[-1, second.head], names, names),
        ),
    )


def _head_name(head: tuple[int, int]) -> str:
    return f"{head[0]}.{head[1]}"


class _Run(NamedTuple):
    losses: NDArray[Any]  # of each piece, the mean over the draws
    copy_share: float  # of the repetition, how much is predicted
    before: NDArray[Any]  # share of each layer and head on the previous piece
    again: NDArray[Any]  # on the piece after the earlier copy
    weights: NDArray[Any]  # the weights over the first draw


def _read_twice(
    model: CausalPocket, draws: list[list[int]], cut: tuple[int, int] | None = None
) -> _Run:
    """Run the model over each sequence twice in a row, with one head off or none."""
    size, name = model.sizes.size // model.sizes.heads, ""
    if cut is not None:
        name = model.streams["causal"].format(cut[0])
        features = np.arange(model.sizes.size) // size == cut[1]

    def watch(layer: AttentionCall) -> Any:
        return np.where(features, 0, layer.output) if layer.path == name else layer.output

    losses, right, maps = [], [], []
    for draw in draws:
        ids, length = [END, *draw, *draw], len(draw)
        states, shares = model.forward(model.weights, model.inputs(ids), watch)
        scores = np.asarray(model.scores(model.weights, states[:-1]), dtype=np.float64)
        top = scores.max(axis=-1)
        total = top + np.log(np.exp(scores - top[:, None]).sum(axis=-1))
        losses.append(total - scores[np.arange(2 * length), ids[1:]])
        right.append((scores.argmax(axis=-1) == ids[1:])[length + 1 :])
        maps.append(np.stack(shares["causal"]))
    weights = np.stack(maps).mean(axis=0)
    before = weights.diagonal(-1, -2, -1).mean(axis=-1)
    again = weights.diagonal(1 - length, -2, -1)[..., 2:].mean(axis=-1)
    return _Run(np.mean(losses, axis=0), float(np.mean(right)), before, again, maps[0])
