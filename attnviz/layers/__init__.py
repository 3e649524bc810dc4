"""Torch modules with learned projections over the mechanisms.

Conventions of every layer:

- Batch first, any leading axes: inputs are (…, positions, size).
- A call answers (output, weights), as torch's own attention does; the weights are None unless
  `need_weights=True` asks for them.
- Masks are boolean and True where a query may look: `mask` is (queries, keys), one for each item
  (…, queries, keys), or where there are heads one for each head; `key_mask` is (…, keys) and says
  which keys are no padding. torch's own layers mean the opposite by True.
- A query that may look nowhere has weights of zero, never NaN.
- Dropout falls on the weights, in training only. The weights given back are those applied, so
  while dropout is active their rows need not sum to 1, again as in torch.
"""

from attnviz.layers.causal_attention import CausalAttention
from attnviz.layers.co_attention import CoAttention
from attnviz.layers.co_attention_alternating import AlternatingCoAttention
from attnviz.layers.co_attention_parallel import ParallelCoAttention
from attnviz.layers.co_attention_two_stream import TwoStreamCoAttention
from attnviz.layers.cross_attention import CrossAttention
from attnviz.layers.decoder_block import DecoderBlock
from attnviz.layers.encoder_block import EncoderBlock
from attnviz.layers.feed_forward import FeedForward
from attnviz.layers.linear_attention import LinearAttention
from attnviz.layers.multi_head_attention import MultiHeadAttention
from attnviz.layers.patch_embedding import PatchEmbedding
from attnviz.layers.self_attention import SelfAttention
from attnviz.layers.sequence_classifier import SequenceClassifier
from attnviz.layers.sinusoidal_positions import SinusoidalPositions
from attnviz.layers.summarizer import Summarizer, SummarizerWeights
from attnviz.layers.text_encoder import TextEncoder
from attnviz.layers.token_classifier import TokenClassifier
from attnviz.layers.vision_transformer_block import VisionTransformerBlock

__all__ = [
    "AlternatingCoAttention",
    "CausalAttention",
    "CoAttention",
    "CrossAttention",
    "DecoderBlock",
    "EncoderBlock",
    "FeedForward",
    "LinearAttention",
    "MultiHeadAttention",
    "ParallelCoAttention",
    "PatchEmbedding",
    "SelfAttention",
    "SequenceClassifier",
    "SinusoidalPositions",
    "Summarizer",
    "SummarizerWeights",
    "TextEncoder",
    "TokenClassifier",
    "TwoStreamCoAttention",
    "VisionTransformerBlock",
]
