"""Torch modules with learned projections over the mechanisms.

Conventions of every layer, which their own docstrings do not repeat:

- Batch first, any leading axes: inputs are (…, positions, size).
- A call returns (output, weights), as torch's own attention does. The weights are
  (…, heads, queries, keys), without `heads` where a layer has one head; they are None unless
  `need_weights=True` asks for them.
- Masks are boolean and True where a query may look: `mask` is (queries, keys), one for each item
  (…, queries, keys), or one for each head; `key_mask` is (…, keys) and False for padding. torch's
  own layers mean the opposite by True. Numbers to add to scores are a UsageError.
- A query that may look nowhere has weights of zero, never NaN.
- `size` is the features of a position, `hidden_size` those inside a feed-forward network (None:
  four times as many). `heads` must divide the size that they share; else it is a UsageError.
- `bias` lets the projections add a constant. `dropout` is a share from 0 to 1. In training it
  applies to the weights, and in blocks also to the output of each part. A call returns the weights
  that it applied, so with dropout their rows need not sum to 1, as in torch.
"""

from attnviz.features.layers.attention import CausalAttention as CausalAttention
from attnviz.features.layers.attention import CrossAttention as CrossAttention
from attnviz.features.layers.attention import LinearAttention as LinearAttention
from attnviz.features.layers.attention import MultiHeadAttention as MultiHeadAttention
from attnviz.features.layers.attention import SelfAttention as SelfAttention
from attnviz.features.layers.blocks import DecoderBlock as DecoderBlock
from attnviz.features.layers.blocks import EncoderBlock as EncoderBlock
from attnviz.features.layers.blocks import FeedForward as FeedForward
from attnviz.features.layers.blocks import PatchEmbedding as PatchEmbedding
from attnviz.features.layers.blocks import SinusoidalPositions as SinusoidalPositions
from attnviz.features.layers.blocks import VisionTransformerBlock as VisionTransformerBlock
from attnviz.features.layers.co_attention import AlternatingCoAttention as AlternatingCoAttention
from attnviz.features.layers.co_attention import CoAttention as CoAttention
from attnviz.features.layers.co_attention import ParallelCoAttention as ParallelCoAttention
from attnviz.features.layers.co_attention import TwoStreamCoAttention as TwoStreamCoAttention
from attnviz.features.layers.task_models import SequenceClassifier as SequenceClassifier
from attnviz.features.layers.task_models import Summarizer as Summarizer
from attnviz.features.layers.task_models import SummarizerWeights as SummarizerWeights
from attnviz.features.layers.task_models import TextEncoder as TextEncoder
from attnviz.features.layers.task_models import TokenClassifier as TokenClassifier

__all__ = sorted(name for name in globals() if name[0].isupper())
