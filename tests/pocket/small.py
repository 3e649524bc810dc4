"""A pocket model small enough to build in a test, and sentences written for it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from attnviz.models.pocket.model import TranslatorSizes

SIZES = TranslatorSizes(
    vocabulary=40, size=12, heads=3, feed_forward=20, encoder_layers=2, decoder_layers=2
)

SENTENCES = """\
The red car is fast.	La voiture rouge est rapide.
The blue car is slow.	La voiture bleue est lente.
The red house is big.	La maison rouge est grande.
The blue house is small.	La maison bleue est petite.
I see the cat.	Je vois le chat.
I see the dog.	Je vois le chien.
The cat sleeps.	Le chat dort.
The dog eats.	Le chien mange.
He eats the bread.	Il mange le pain.
She sees the red bread.	Elle voit le pain rouge.
"""


def random_weights(
    sizes: TranslatorSizes = SIZES, seed: int = 0
) -> Mapping[str, NDArray[np.float32]]:
    """Weights of every shape the model needs, none of them zero or one."""
    from training.loop import shapes

    random = np.random.default_rng(seed)
    return {
        name: random.normal(0, 0.3, shape).astype(np.float32)
        for name, shape in shapes(sizes).items()
    }


def small_examples(folder: Path, recipe: Any) -> tuple[Any, Tokenizer]:
    """Training texts of the sentences, by a recipe, and their tokenizer."""
    from training.batches import Examples
    from training.corpus import read_pairs, split_words
    from training.tokenizer import learn_pieces

    (folder / "pairs.txt").write_text(SENTENCES, encoding="utf-8")
    pairs = read_pairs(folder / "pairs.txt")
    tokenizer = Tokenizer.from_str(learn_pieces([p.en for p in pairs] + [p.fr for p in pairs], 90))
    links = [
        np.eye(len(split_words(p.en, "en")), len(split_words(p.fr, "fr")), dtype=np.float16)
        for p in pairs
    ]
    return Examples(tokenizer, pairs, links, recipe), tokenizer
