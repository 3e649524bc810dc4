"""The pocket model's two stacks: a pre-norm encoder and decoder with one embedding.

An encoder–decoder transformer (Vaswani 2017, section 3) with normalisation before each part
(Xiong 2020) and one embedding for source, target and output (Press & Wolf 2017).
"""

from dataclasses import dataclass, replace

from attnviz.mechanisms.arrays import Array
from attnviz.models.light.network import LayerPart, Shape, Watch, Weights, linear_map, run_layers

PROJECTIONS = "query", "key", "value", "output"
MAPS = " ".join(PROJECTIONS)


@dataclass(frozen=True, slots=True)
class TranslatorSizes:
    """Pieces known, features of a position and of a feed-forward block, heads and layers."""

    vocabulary: int = 8000
    size: int = 192
    heads: int = 6
    feed_forward: int = 768
    encoder_layers: int = 4
    decoder_layers: int = 4

    @property
    def encoder(self) -> Shape:
        """The encoder's shape."""
        return Shape(
            "encoder.{}",
            LayerPart("self_attention", MAPS, before="self_attention_norm"),
            LayerPart("feed_forward", "in out", before="feed_forward_norm"),
            last_norm="encoder_norm",
            size=self.size,
            heads=self.heads,
            layers=self.encoder_layers,
        )

    @property
    def decoder(self) -> Shape:
        """The decoder's shape."""
        return replace(
            self.encoder,
            layer="decoder.{}",
            cross=LayerPart("cross_attention", MAPS, before="cross_attention_norm"),
            last_norm="decoder_norm",
            layers=self.decoder_layers,
            causal=True,
        )


def embed_pieces(pieces: Array, positions: Array) -> Array:
    """Rows of the embedding (…, positions, size), scaled, plus the positions' waves."""
    return pieces * (0.5 * pieces.shape[-1] ** 0.5) + positions


def run_encoder(
    weights: Weights,
    sizes: TranslatorSizes,
    inputs: Array,
    mask: Array | None = None,
    watch: Watch | None = None,
    first: int = 0,
) -> tuple[Array, list[Array]]:
    """The encoder's states of an embedded source, and each layer's weights."""
    return run_layers(weights, sizes.encoder, inputs, mask=mask, watch=watch, first=first)[:2]


def run_decoder(
    weights: Weights,
    sizes: TranslatorSizes,
    inputs: Array,
    memory: Array,
    mask: Array | None = None,
    watch: Watch | None = None,
    first: int = 0,
) -> tuple[Array, list[Array], list[Array]]:
    """The decoder's states of an embedded target (…, queries, size), its own weights and cross.

    The mask hides positions of the memory; no position of the target sees a later one.
    """
    return run_layers(weights, sizes.decoder, inputs, memory, mask=mask, watch=watch, first=first)


def predict_pieces(weights: Weights, states: Array, embedding: str = "embedding") -> Array:
    """Scores of every piece (…, vocabulary) for states (…, size), by the transposed embedding."""
    return linear_map(weights, embedding, states)
