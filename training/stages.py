"""The stages of a training run, from the text file to the files that ship."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.models.light.weights import StoredWeights
from attnviz.models.pocket.card import tokenizer_of
from attnviz.models.pocket.model import TranslatorSizes
from attnviz.models.pocket.text import load_piece_tokenizer
from training.aligner import Aligner
from training.batches import Batch, Examples, Recipe, batches
from training.corpus import Pair, leave_out, read_pairs, read_sentences, split_words
from training.finish import weights_in
from training.loop import Reporter, Run, Settings, first_weights
from training.objective import Losses, losses, tensors, waves
from training.tokenizer import learn_pieces, with_rewrites

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor


def train(asked: Namespace, sizes: TranslatorSizes | None = None) -> None:
    """Train as the command line asks.

    Args:
        asked: its options.
        sizes: of the model, but for its vocabulary; None: those of the shipped one.

    Raises:
        InputError: a file that cannot be read, or a run that cannot be gone on with.
    """
    asked.output.mkdir(parents=True, exist_ok=True)
    pairs = read_pairs(asked.data)
    unseen = read_sentences(asked.unseen) if asked.unseen else []
    seen = leave_out(pairs, unseen)
    tokenizer = prepare_tokenizer(asked.start_from, seen, asked.output)
    recipe = Recipe()
    settings = settings_of(asked)
    sizes = replace(
        sizes or TranslatorSizes(), vocabulary=load_piece_tokenizer(tokenizer).get_vocab_size()
    )
    weights = start(asked.start_from, sizes, settings)
    run = Run(settings, weights, translation(sizes, settings, recipe.longest + 1))
    if asked.resume:
        run.resume(asked.output)
    with Reporter(settings, run.step) as reporter:
        reporter.note(f"{len(seen)} pairs; aligning their words")
        examples = Examples(load_piece_tokenizer(tokenizer), seen, align(seen), recipe)
        source = batches(examples, settings.seed, run.step, settings.pieces)
        if not follow(run, source, reporter, asked):
            return
    from training.finish import finish

    finish(
        asked,
        settings,
        recipe,
        run.weights,
        sizes,
        [pair for pair in pairs if pair.en in set(unseen)],
    )


def settings_of(asked: Namespace) -> Settings:
    """How the command line asks to learn."""
    return Settings(
        steps=asked.steps,
        rate=asked.rate,
        warm_up=asked.warm_up,
        pieces=asked.pieces,
        seed=asked.seed,
        decay=asked.decay,
        save_every=asked.save_every,
        device=asked.device,
        compiled=asked.compile,
    )


def follow(run: Run, source: Iterator[Any], reporter: Reporter, asked: Namespace) -> bool:
    """Learn as many steps as asked for; whether the run has come to its end."""
    last = min(run.settings.steps, asked.stop_after or run.settings.steps)
    run.follow(source, asked.output, reporter.report, last)
    if run.step < run.settings.steps:
        reporter.note(f"stopped after step {run.step}: --resume goes on")
    return run.step == run.settings.steps


def translation(
    sizes: TranslatorSizes, settings: Settings, longest: int
) -> Callable[[dict[str, Tensor], Batch], Losses]:
    """The losses of the weights on a batch, whose longest text has so many pieces."""
    import torch

    positions = waves(longest, sizes.size, settings.device)
    found = torch.compile(losses, dynamic=True) if settings.compiled else losses
    return lambda weights, batch: found(weights, sizes, positions, tensors(batch, settings.device))


def align(pairs: list[Pair]) -> list[NDArray[np.float16]]:
    """How sure the aligner is of each link between the words of each pair."""
    aligner = Aligner([(split_words(pair.en, "en"), split_words(pair.fr, "fr")) for pair in pairs])
    aligner.train()
    return aligner.links()


def prepare_tokenizer(start_from: Path | None, pairs: list[Pair], output: Path) -> Path:
    """Where the run's tokenizer lies: taken from the start, or learned from the pairs."""
    path = output / "tokenizer.json"
    if start_from:
        document = tokenizer_of(start_from).read_text(encoding="utf-8")
    else:
        document = learn_pieces([text for pair in pairs for text in (pair.en, pair.fr)])
    path.write_text(with_rewrites(document), encoding="utf-8")
    return path


def start(
    start_from: Path | None,
    sizes: Any,
    settings: Settings,
    first: Callable[[Any, int], dict[str, Tensor]] = first_weights,
) -> dict[str, Tensor]:
    """The weights that the first step changes: those of a folder, or the `first` ones."""
    if start_from is None:
        return first(sizes, settings.seed)
    import torch

    stored = StoredWeights(weights_in(start_from))
    return {name: torch.from_numpy(stored.raw(name).copy()) for name in stored}
