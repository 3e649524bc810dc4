"""What an indexer makes of each key before it keeps the best ones (DeepSeek-V3.2, V4, GLM-5).

The scores are what the indexer's own top-k is taken of, read as it runs; nothing is computed anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from attnviz.core.attention_map import Attention, AttentionMap, check_single_tokens
from attnviz.core.errors import UsageError
from attnviz.core.locks import thread_hook
from attnviz.core.options import INDEXER
from attnviz.models.hugging_face.capture.kernel import layer_names

HIDDEN = -1e30
"""Scores below are of keys that the query may not see."""


@contextmanager
def watch_indexers(model: Any) -> Iterator[dict[str, Any]]:
    """By path, what each indexer of a model chooses by, and how many keys it keeps of a query.

    The scores of the last pass in a block of code, (queries, keys), of a batch of one. A key that a
    query may not see has no score: NaN.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    scores = dict[str, Any]()

    class _TopK(TorchFunctionMode):
        """Records what a top-k is taken of while an indexer runs."""

        def __init__(self, path: str) -> None:
            super().__init__()
            self.path = path

        def __torch_function__(
            self, function: Any, _types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = function(*args, **(kwargs or {}))
            if getattr(function, "__name__", "") == "topk" and args[0].ndim == 3:
                rows = args[0][0].detach().float().cpu()
                rows = rows.masked_fill(rows < HIDDEN, torch.nan).numpy()
                scores[self.path] = rows, result.indices.shape[-1]
            return result

    def begin(mode: Any) -> Any:
        return thread_hook(lambda *_: mode.__enter__() and None)

    def end(mode: Any) -> Any:
        return thread_hook(lambda *_: mode.__exit__(None, None, None))

    with ExitStack() as hooks:
        for path, part in model.named_modules():
            if path.rpartition(".")[2] == INDEXER:
                mode = _TopK(path)
                hooks.enter_context(part.register_forward_pre_hook(begin(mode)))
                hooks.enter_context(part.register_forward_hook(end(mode)))
        yield scores


def with_scores(attention: Attention, scores: Mapping[str, Any], kind: str) -> Attention:
    """The attention with a map of the scores of each kind of keys, behind its other maps.

    Args:
        scores: as `watch_indexers` gives them.
        kind: the architecture.

    Raises:
        UsageError: no indexer ran, or its keys are none of a layer's.
    """
    if not scores:
        raise UsageError(f"--stream indexer: no indexer chooses keys in architecture '{kind}'")
    by_stream: dict[str, list[tuple[str, Any]]] = {}
    names = layer_names(list(scores))
    for name, (rows, _) in zip(names, scores.values(), strict=True):
        item = next((one for one in attention.maps if name in one.layers), None)
        if item is None:
            raise UsageError(f"--stream indexer: layer {name} has no map of its attention")
        by_stream.setdefault(item.stream, []).append((name, rows))
    maps = [_map_of(attention.map_of(name), rows) for name, rows in by_stream.items()]
    most = max(count for _, count in scores.values())
    note = (
        f"stream '{INDEXER}' has scores, no attention: its layer keeps the best of them, at most "
        f"{most} a query"
    )
    return attention.with_maps((*attention.maps, *maps), notes=[note])


def _map_of(item: AttentionMap, layers: list[tuple[str, Any]]) -> AttentionMap:
    """The scores of layers of one map: over its tokens, or over its compressed tokens."""
    check_single_tokens(item, "--stream indexer")
    names, rows = zip(*layers, strict=True)
    entries = tuple(one for one in item.key_tokens if one.kind == "compressed")
    keys, side = (entries, "compressed") if entries else (item.key_tokens, item.key_side)
    first = item.starts[0]
    weights = np.stack(rows)[:, None, first : first + len(item.query_tokens)]
    if weights.shape[-1] != len(keys):
        raise UsageError(
            f"--stream indexer: it scores {weights.shape[-1]:,} keys, and layer {names[0]} has "
            f"{len(keys):,} that it could choose"
        )
    return replace(
        item,
        stream=INDEXER,
        key_tokens=keys,
        key_side=side,
        weights=weights,
        layers=names,
        heads=("score",),
        values="signed",
        unit="the indexer's score before top-k",
        links=(),
    )
