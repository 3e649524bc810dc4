"""What a layer's own modules say of its keys.

A declaration is read off the module that calls the kernel: a compressor with its rate, a forward
pass that takes both sides, queries that are parameters. The shape test holds it against the call.
"""

from __future__ import annotations

import inspect
from typing import Any

from attnviz.core.attention_call import AttentionCall
from attnviz.models.hugging_face.capture.key_kinds import KeyLayout, KeyRun, Sides


def compressed_entries(call: AttentionCall, stream: str, sides: Sides) -> KeyLayout | None:
    """Tokens, then entries that each stand for several (DeepSeek-V4).

    An entry closes every `compress_rate` tokens. Where two series overlap, the first of the window
    before and the second of its own make an entry, which so stands for two windows; that of the
    first window for one.
    """
    compressor = getattr(call.module, "compressor", None)
    rate = getattr(compressor, "compress_rate", None)
    if not isinstance(rate, int):
        return None
    keys = sides[stream][1]
    width = _series(compressor)
    spans = tuple(
        (max(entry - width + 1, 0) * rate, (entry + 1) * rate - 1) for entry in range(keys // rate)
    )
    runs = KeyRun("token", keys), KeyRun("compressed", len(spans), spans)
    return KeyLayout(f"compressed-{rate}", runs, (stream,))


def _series(compressor: Any) -> int:
    """How many windows an entry is made of: its projection has a head for each."""
    projection, size = getattr(compressor, "kv_proj", None), getattr(compressor, "head_dim", None)
    features = getattr(projection, "out_features", None)
    return features // size if isinstance(features, int) and isinstance(size, int) else 1


def merged_source(call: AttentionCall, stream: str, sides: Sides) -> KeyLayout | None:
    """A decoder's tokens, then its source's, in one softmax (T5Gemma 2)."""
    if stream != "decoder" or "cross" not in sides:
        return None
    takes = inspect.signature(call.module.forward).parameters
    if "encoder_hidden_states" not in takes or not any("merged" in name for name in takes):
        return None
    runs = KeyRun("token", sides[stream][1]), KeyRun("source", sides["cross"][1])
    return KeyLayout("merged", runs, ("cross", "decoder"))


def blocks_of_layers(call: AttentionCall, _stream: str, _sides: Sides) -> KeyLayout | None:
    """At each position the blocks of layers so far (Inkling 2).

    Queries are parameters, the same at each position, and positions stand where heads do.
    """
    import torch

    query = getattr(call.module, "query", None)
    if not isinstance(query, torch.nn.Parameter) or query.shape[-1] != call.query.shape[-1]:
        return None
    if query.numel() != call.query.shape[2] * query.shape[-1]:
        return None
    return KeyLayout("depth", (KeyRun("layer", call.key.shape[2]),), by_position=True)
