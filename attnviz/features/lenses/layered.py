"""Attention with residual connections: the graph of layers for rollout and flow."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.masks import refuse_implied, without_implied
from attnviz.core.attention_map import IMPLIED, Attention, AttentionMap, check_single_tokens
from attnviz.core.errors import UsageError
from attnviz.core.records import dataclass, replace
from attnviz.core.tokens import count_kinds, has_kinds, kinds_in_words

Steps = NDArray[np.float64]  # mixing matrices (layers, positions, positions); rows sum to 1

WITHIN = ("self", "causal", "encoder", "decoder")  # streams of self-attention

BEYOND = {"causal": "causal decoders", "decoder": "causal decoders", "cross": "cross-attention"}
"""Streams that the papers on rollout and flow do not treat."""


def with_residual(weights: NDArray[np.floating]) -> NDArray[np.float64]:
    """Half attention, half residual: rownorm(A + I), the Â of Abnar and Zuidema 2020.

    A is the mean over heads, (…, positions, positions). An empty row becomes a row of I.
    """
    sums = np.asarray(weights, dtype=np.float64) + np.eye(weights.shape[-1])
    return np.asarray(sums / sums.sum(axis=-1, keepdims=True))


@dataclass(frozen=True, slots=True, eq=False)
class LayerGraph:
    """The steps of the stream that attends to itself.

    A decoder also has the mean cross-attention of each layer, (layers, queries, keys), and the
    steps of its encoder.
    """

    within: Steps
    across: NDArray[np.float64] | None = None
    source: Steps | None = None


def layer_graph(attention: Attention) -> LayerGraph:
    """The graph of one text: a decoder with its cross-attention, or one self-attention."""
    attention = without_implied(attention)
    refuse_implied(attention, "this lens")
    streams = {item.stream: item for item in attention.maps}
    if any(item.values == "signed" for item in attention.maps):
        raise UsageError(
            "this lens follows shares of attention, and these weights can be negative: use "
            "--lens raw"
        )
    kinds = [item for item in attention.maps if has_kinds(item)]
    if kinds:
        counts = kinds_in_words(count_kinds(kinds[0].key_tokens))
        raise UsageError(
            f"this lens follows tokens through residual layers, and the keys of stream "
            f"'{kinds[0].stream}' are {counts}: use --lens raw"
        )
    if len(streams) < len(attention.maps):
        raise UsageError("layers of different sizes cannot be joined: use --lens raw")
    if attention.main.stream == "cross":
        absent = [name for name in ("encoder", "decoder") if name not in streams]
        if absent:
            raise UsageError(
                f"this lens needs a complete encoder-decoder, but there is no {absent[0]} stream "
                f"in '{attention.provenance.model}': use --lens raw"
            )
        within, source = _steps(streams["decoder"]), _steps(streams["encoder"])
        return LayerGraph(within, _mean(streams["cross"]), source)
    if attention.main.stream not in WITHIN:
        raise UsageError(
            f"this lens needs a sequence that attends to itself, not stream "
            f"'{attention.main.stream}': use --lens raw"
        )
    return LayerGraph(_steps(attention.main))


def through_lens(
    lens: str,
    attention: Attention,
    maps: tuple[AttentionMap, ...],
    notes: tuple[str, ...] = (),
    settings: dict[str, Any] | None = None,
) -> Attention:
    """The attention with a lens' maps, and the lens in its provenance."""
    result = attention.with_maps(maps, f"lens {lens}", notes=notes, settings=settings)
    return replace(result, lens_name=lens, focus={})


def extension_notes(lens: str, attention: Attention) -> tuple[str, ...]:
    """Notes on what the paper on rollout and flow does not cover."""
    notes = []
    if where := BEYOND.get(attention.main.stream):
        notes.append(
            f"the paper defines {lens} for encoders only, and attnviz extends it to {where}"
        )
    if any(item.stream == IMPLIED for item in attention.maps):
        notes.append(f"{lens} is of the attention alone: stream '{IMPLIED}' is left out")
    return tuple(notes)


def _steps(item: AttentionMap) -> Steps:
    if item.weights.shape[2] != item.weights.shape[3]:
        raise UsageError(
            f"stream '{item.stream}' has other queries than keys: this lens needs a text that "
            "attends to itself"
        )
    return with_residual(_mean(item))


def _mean(item: AttentionMap) -> NDArray[np.float64]:
    check_single_tokens(item, "this lens")
    if list(item.layers) != [str(layer) for layer in range(len(item.layers))]:
        raise UsageError(
            f"stream '{item.stream}' holds layers {', '.join(item.layers)}: "
            "this lens needs all of them, from 0 on"
        )
    return np.asarray(item.weights.mean(axis=1, dtype=np.float64))
