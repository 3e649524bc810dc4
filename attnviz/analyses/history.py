"""Heads over the steps of a training run: one text, measured at each sample."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from attnviz.analyses.compare import divergences
from attnviz.analyses.heads import measure_heads, rows_of
from attnviz.analyses.view import describe_run
from attnviz.core.attention_map import Attention, AttentionMap
from attnviz.core.measures import DRIFT, HISTORY, History

Head = tuple[str, str, str]
"""Stream, layer and head by name."""


class HistoryStudy:
    """Measures of samples in the order of their steps."""

    def __init__(self) -> None:
        self.last: Attention | None = None
        self.roles: dict[int, dict[Head, str]] = {}
        self.values: dict[int, dict[Head, dict[str, float]]] = {}
        self.notes: dict[str, None] = {}

    def add(self, step: int, attention: Attention) -> None:
        """Measure one sample, and the drift of its heads since the sample before.

        In a map of blocks, a block counts as a token.
        """
        before = {_place(item): item for item in self.last.maps} if self.last else {}
        self.roles[step], self.values[step] = {}, {}
        for number, item in enumerate(attention.maps):
            if item.is_pooled:
                rows, columns = item.blocks
                self._say(f"maps hold blocks of {rows} × {columns} tokens: measures are of blocks")
            found = measure_heads(replace(item, blocks=(1, 1), starts=(0, 0), links=()))
            drift = self._drift(before.get(_place(item)), item)
            # Calls of other sizes have maps of their own: number those of one stream.
            same = [one.stream for one in attention.maps[:number]].count(item.stream)
            stream = f"{item.stream} {same + 1}" if same else item.stream
            own = {DRIFT: drift} | {name: one.values for name, one in found.items()}
            even = {name: one.uniform for name, one in found.items() if one.uniform is not None}
            for row in rows_of((stream, item.layers, item.heads), own, even):
                head = row.stream, row.layer, row.head
                self.roles[step][head] = row.roles[0].name if row.roles else ""
                self.values[step][head] = {one: row.values.get(one, math.nan) for one in HISTORY}
        self.last = attention

    def _drift(self, before: AttentionMap | None, item: AttentionMap) -> np.ndarray:
        if before is None or before.weights.shape != item.weights.shape:
            if self.last is not None:
                self._say("some maps have no fellow in the sample before: they have no drift")
            return np.full(item.weights.shape[:2], np.nan)
        drift, notes = divergences(before.weights, item.weights)
        for note in notes:
            self._say(note)
        return drift

    def _say(self, note: str) -> None:
        self.notes[note] = None

    def report(self) -> History:
        """The history of all samples; there must be one."""
        assert self.last is not None
        heads = tuple(dict.fromkeys(head for step in self.values.values() for head in step))
        missing = dict.fromkeys(HISTORY, math.nan)
        first, last = min(self.values), max(self.values)
        several = f"{len(self.values)} samples, steps {first:,} to {last:,}"
        caption = describe_run(self.last, self.last.main)
        return History(
            f"{caption} · {several if first != last else f'one sample, of step {first:,}'}",
            tuple(self.values),
            heads,
            tuple(tuple(of.get(head, "") for head in heads) for of in self.roles.values()),
            {
                name: np.array(
                    [[of.get(head, missing)[name] for head in heads] for of in self.values.values()]
                )
                for name in HISTORY
            },
            self.last.provenance,
            tuple(self.notes),
        )


def _place(item: AttentionMap) -> object:
    return item.stream, item.layers, item.heads, item.query_tokens, item.key_tokens, item.blocks
