"""The pocket model as a source of attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from attnviz.core.attention_map import Attention
from attnviz.core.errors import InputError, UsageError, choose
from attnviz.core.lens_inputs import AttentionGradients, ValueVectors
from attnviz.core.query import Query
from attnviz.models.kinds import attend_each
from attnviz.models.pocket.model import FOLDER, PocketModel
from attnviz.models.pocket.passes import attend, attend_batches, encode_query
from attnviz.models.pocket.text import LANGUAGE, EncodedQuery

CACHED = 4
"""Encoded queries that are kept for whoever asks about the same texts again."""


def load_pocket(
    *,
    causal: bool = False,
    to: str | None = None,
    device: str = "auto",
    dtype: str | None = None,
    keep_qk: bool = False,
    folder: Path = FOLDER,
) -> Pocket:
    """The small trained English–French encoder–decoder that ships with the package.

    Args:
        causal: a text's attention is the decoder's, in which no position sees a later one.
        to: the target language, "en" or "fr"; None: guessed from the text.
        device: "auto" and "cpu" run on numpy; "cuda" and "mps" on torch.
        dtype: "float32" (also None) or "float64", on torch "float16" and "bfloat16" too.
        keep_qk: keep queries and keys beside the weights.
        folder: where its files lie.

    Raises:
        UsageError: an unknown language, device or precision.
        ModelError: files that cannot be read.
    """
    if to is not None:
        choose(to, LANGUAGE, "language")
    device, dtype = check_backend(device, dtype)
    return Pocket(folder, causal=causal, to=to, device=device, dtype=dtype, keep_qk=keep_qk)


def check_backend(device: str, dtype: str | None) -> tuple[str, str]:
    """The device and precision to run with.

    Raises:
        UsageError: an unknown name, a device that this machine lacks, or a precision it cannot use.
    """
    choose(device, ("auto", "cpu", "cuda", "mps"), "device")
    if device in ("auto", "cpu"):
        return "cpu", choose(dtype or "float32", ("float32", "float64"), "dtype on the cpu")
    import torch

    if not (torch.cuda.is_available() if device == "cuda" else torch.mps.is_available()):
        raise UsageError(f"device '{device}' is not available on this machine: use cpu")
    return device, choose(dtype or "float32", ("float32", "float16", "bfloat16"), "dtype")


class Pocket(PocketModel):
    """The pocket model, loaded; fulfils `attnviz.models.Source`, `Explaining` and `Transforming`.

    A text's attention ("self") has the stream "encoder", or with `causal` the decoder's "causal";
    a pair's ("cross") the streams "cross", "encoder" and "decoder", where a missing target is the
    model's own translation. In a map whose rows belong to the decoder, row 0 is the target
    language's tag, and every other row is that of the piece it has just read, not of the piece it
    is about to predict.
    """

    def __init__(self, folder: Path = FOLDER, *, keep_qk: bool = False, **options: Any) -> None:
        super().__init__(folder, **options)
        self.keep_qk = keep_qk
        self._encoded: dict[Query, EncodedQuery] = {}

    def attend(
        self, queries: Sequence[Query], *, batch_size: int | None = None
    ) -> Iterator[Attention | InputError]:
        """The maps of each query in order, or why it has none: a text that is blank or too long.

        Args:
            queries: of the kinds "self" and "cross".
            batch_size: queries that are read at once at most; None: as many as fit.

        Raises:
            UsageError: another kind of query.
        """
        if len(queries) == 1 or batch_size == 1:
            return attend_each(self._attend_one, queries)
        return attend_batches(self, queries, batch_size, self._finish)

    def gradients(self, query: Query, wanted: str | None = None) -> AttentionGradients:
        """The gradients of a masked word, or of a piece that the decoder writes.

        Raises:
            UsageError: no such token, or another kind of query.
            InputError: a text that is blank or too long.
        """
        from attnviz.models.pocket.lens_inputs import gradients_of

        return gradients_of(self, self._encode(query), self._attend_one(query), wanted)

    def values(self, query: Query) -> ValueVectors:
        """The values of each piece, through each head's slice of the output projection.

        Raises:
            UsageError: another kind of query.
            InputError: a text that is blank or too long.
        """
        from attnviz.models.pocket.lens_inputs import value_vectors

        return value_vectors(self, self._encode(query), self._attend_one(query))

    def _attend_one(self, query: Query) -> Attention:
        encoded = self._encode(query)
        return self._finish(encoded, attend(self, [encoded])[0])

    def _encode(self, query: Query) -> EncodedQuery:
        """The query as the model reads it, from the cache where it was read just now."""
        if query not in self._encoded:
            while len(self._encoded) >= CACHED:
                del self._encoded[next(iter(self._encoded))]
            self._encoded[query] = encode_query(self, query)
        return self._encoded[query]

    def _finish(self, query: EncodedQuery, attention: Attention) -> Attention:
        """The attention with its queries and keys, where they are wanted."""
        if not self.keep_qk:
            return attention
        from attnviz.models.pocket.lens_inputs import with_projections

        return with_projections(self, query, attention)
