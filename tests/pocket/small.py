"""A pocket model small enough to build in a test, and sentences written for it."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

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
