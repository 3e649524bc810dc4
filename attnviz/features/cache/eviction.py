"""A cache with rules: which keys are gone at each step, decided as the model would run with it.

A rule turns the weights so far into a score of each key, and the keys with the highest scores stay.
Sinks and recent: Xiao 2024 (StreamingLLM, ICLR). h2o: Zhang 2023 (NeurIPS), half of the budget each
for recent and for heavy tokens. tova: Oren 2024 (EMNLP), the mean over heads. snapkv: Li 2024
(NeurIPS), means over the last queries of a prompt, pooled.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import product

import numpy as np
from numpy.typing import NDArray

from attnviz.core import effects, errors, plugins, registry
from attnviz.core.records import dataclass, field, replace
from attnviz.features.cache.report import CacheState

Cells = NDArray[np.bool_]
Worth = Mapping[str, NDArray[np.float64]]
"""By layer, what later predictions lose without a key, shape (heads or 1, queries, keys)."""
_COUNT, _SHARE = re.compile(r"[1-9]\d{0,8}"), re.compile(r"0?\.\d{1,9}|1\.0*")


@dataclass(frozen=True, slots=True)
class Budget:
    """A rule with how many keys it keeps: a number, or a share of all."""

    name: str
    size: str

    @property
    def row(self) -> registry.Policy:
        """The rule's row."""
        return registry.POLICIES[self.name]

    def keys(self, count: int) -> int:
        """How many of `count` keys it keeps."""
        return size_of(self.size, count)

    def __str__(self) -> str:
        return f"{self.name}:{self.size}"


def size_of(size: str, count: int) -> int:
    """A number, or a share of `count`, as a number from 1 to `count`."""
    number = round(float(size) * count) if "." in size else int(size)
    return max(1, min(number, count))


def is_size(text: str) -> bool:
    """Whether a text is a number, "64", or a share, "0.2"."""
    return bool(_COUNT.fullmatch(text) or _SHARE.fullmatch(text))


def parse_rules(texts: tuple[str, ...] | list[str]) -> list[tuple[Budget, ...]]:
    """The rules of "h2o:0.2,0.5" (one for each budget) or "sinks:4+recent:64" (both together).

    Raises:
        UsageError: an unknown rule, or a budget that is neither a number nor a share.
    """
    rules = list[tuple[Budget, ...]]()
    for text in texts:
        parts = list[list[Budget]]()
        for term in text.split("+"):
            name, _, sizes = term.strip().partition(":")
            errors.choose(name, registry.POLICIES, "rule")
            for size in sizes.split(","):
                if not is_size(size):
                    raise errors.UsageError(
                        f"--keep {text}: '{size}' is no budget: write {name}:64 for 64 keys, or "
                        f"{name}:0.2 for 20 % of them"
                    )
            parts.append([Budget(name, size) for size in sizes.split(",")])
        rules += product(*parts)
    return rules


@dataclass(eq=False)
class CacheRun:
    """A stream whose cache holds what rules keep; fulfils `attnviz.core.effects.Eviction`.

    At each step a query sees the keys that are held and its own, then the rules choose from them.
    With a budget of B a query sees B keys, its own among them; `sinks`, and a rule that decides
    once, keep B. A key stays if any of the rules keeps it.

    Attributes:
        keys: how many the stream has.
        prompt: the number of queries that see every key.
        grows: whether each query adds its own key.
        worth: what `best` ranks by.
        optional: keys that may go; None: all.
        alone: the layer and head that the rules act in alone; None: all of them.
    """

    rules: tuple[Budget, ...]
    stream: str
    keys: int
    prompt: int
    grows: bool = True
    seed: int = 0
    worth: Worth | None = None
    optional: Cells | None = None
    alone: tuple[str, int] | None = None
    label: str = ""
    hidden_cells: dict[str, Cells] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.label or "+".join(map(str, self.rules))

    @property
    def name(self) -> str:
        """The rules without their budgets."""
        return re.sub(r":[^+]*", "", str(self))

    def hide(self, layer: str, dense: effects.LayerWeights) -> Cells:
        """The cells whose key the rules drop, from the layer's weights with all keys."""
        cells = np.zeros(dense.weights.shape, dtype=np.bool_)
        if self.alone is None:
            cells = self._dropped_cells(layer, dense)
        elif self.alone[0] == layer:
            head = self.alone[1]
            cells[head] = self._dropped_cells(layer, dense)[head]
        self.hidden_cells[layer] = cells
        return cells

    def only(self, layer: str, head: int) -> CacheRun:
        """The same rules in one head alone."""
        return replace(self, alone=(layer, head), hidden_cells={})

    def _dropped_cells(self, layer: str, dense: effects.LayerWeights) -> Cells:
        heads, queries, keys = dense.weights.shape
        members, start = heads // dense.caches, max(self.prompt, 1)
        worth = np.zeros((dense.caches, queries, keys))
        if self.worth is not None:
            each = np.broadcast_to(self.worth[layer], dense.weights.shape)
            worth = each.reshape(dense.caches, members, queries, keys).sum(axis=1)
        # A name is no number in a model with stages: its letters seed as well.
        chances = np.random.default_rng([self.seed, *layer.encode()]).random((dense.caches, keys))
        weights = np.zeros((dense.caches, queries, keys))
        off = np.zeros(weights.shape, dtype=np.bool_)
        cache = np.tile(np.arange(keys) < (start if self.grows else keys), (dense.caches, 1))
        whole = dense.weights[:, :start].reshape(dense.caches, members, -1, keys)
        weights[:, :start] = whole.mean(axis=1)
        key_sums, lasting = weights.sum(axis=1), dict[int, Cells]()
        for step in range(start - 1, queries):
            last = step + 1 if self.grows else keys
            if step >= start:
                if self.grows:
                    cache[:, step] = True
                off[:, step, :last] = ~cache[:, :last]
                own = dense.weights[:, step] * np.repeat(cache, members, axis=0)
                total = own.sum(axis=-1, keepdims=True) + dense.sinks[:, step, None]
                own = np.divide(own, total, out=np.zeros(own.shape), where=total > 0)
                weights[:, step] = own.reshape(dense.caches, members, keys).mean(axis=1)
                key_sums += weights[:, step]
            keep = np.zeros_like(cache)
            for number, rule in enumerate(self.rules):
                if number not in lasting:
                    state = CacheState(
                        weights[:, : step + 1, :last],
                        key_sums[:, :last],
                        cache[:, :last],
                        self._room(rule),
                        self.grows,
                        chances[:, :last],
                        worth[:, step, :last],
                    )
                    new = np.zeros_like(cache)
                    new[:, :last] = self._choose(rule, state)
                    if rule.row.once:
                        new[:, last:] = True  # what comes later stays
                        lasting[number] = new
                    keep |= new
                else:
                    keep |= lasting[number]
            cache &= keep
            if len(lasting) == len(self.rules):
                off[:, start:, :last] = ~cache[:, None, :last]
                break
        return np.repeat(off, members, axis=0)

    def _room(self, rule: Budget) -> int:
        """How many keys a rule may keep after a step."""
        room = rule.keys(self.keys if self.optional is None else int(self.optional.sum()))
        own = self.grows and self.optional is None  # the next query's key counts
        return room - (own and not rule.row.beside and not rule.row.once)

    def _choose(self, rule: Budget, state: CacheState) -> Cells:
        """The held keys with the highest scores; of equal ones the later."""
        among = state.held
        if self.optional is not None:
            among = among & self.optional[: among.shape[1]]
        excess = int(among.sum(axis=1).max()) - state.room
        if excess <= 0:
            return state.held
        scores = np.asarray(rule.row.load()(state), dtype=np.float64)
        if scores.shape != state.held.shape:
            shapes = f"{scores.shape}, not (heads, keys) = {state.held.shape}"
            raise plugins.PluginError(f"the rule '{rule.name}' returns scores of shape {shapes}")
        scores = np.where(among, scores, np.inf)
        members = state.held.copy()
        if excess == 1 and (among.sum(axis=1) > state.room).all():
            members[np.arange(len(members)), scores.argmin(axis=1)] = False
            return members
        order = np.argsort(scores, axis=1, kind="stable")
        for head, own in enumerate(order):
            over = max(int(among[head].sum()) - state.room, 0)
            members[head, own[:over]] = False
        return members


Scores = NDArray[np.float64]
OBSERVED, POOLED = 32, 5
"""Queries at the end of a prompt that snapkv averages over, and keys that it averages together."""


def sinks(cache: CacheState) -> Scores:
    """The first tokens."""
    return -recent(cache)


def recent(cache: CacheState) -> Scores:
    """The last tokens."""
    return np.broadcast_to(np.arange(cache.held.shape[1], dtype=np.float64), cache.held.shape)


def h2o(cache: CacheState) -> Scores:
    """Half the last tokens, half those that received most attention."""
    return _last(cache, cache.room // 2, cache.received)


def heavy(cache: CacheState) -> Scores:
    """The tokens that received most attention, and the last."""
    return _last(cache, 1, cache.received)


def tova(cache: CacheState) -> Scores:
    """The tokens that the last query attends to most."""
    return np.broadcast_to(cache.weights[:, -1].mean(axis=0), cache.held.shape)


def snapkv(cache: CacheState) -> Scores:
    """Of a prompt the tokens that its last queries attend to most."""
    window = min(OBSERVED, max(cache.room // 2, 1))
    window_means = cache.weights[:, -window:].mean(axis=1)
    if cache.grows:  # the window's own keys stay in any case
        window_means = window_means[:, :-window]
    wide = np.pad(window_means, ((0, 0), (POOLED // 2, POOLED // 2)))
    means = np.lib.stride_tricks.sliding_window_view(wide, POOLED, axis=1).mean(axis=-1)
    if not cache.grows:
        return np.asarray(means)
    return np.pad(means, ((0, 0), (0, window)), constant_values=np.inf)


def random(cache: CacheState) -> Scores:
    """Tokens drawn by chance."""
    return cache.drawn


def best(cache: CacheState) -> Scores:
    """The tokens whose loss costs later predictions most, each measured."""
    return cache.worth


def _last(cache: CacheState, count: int, others: Scores) -> Scores:
    """The last tokens above all others."""
    places = np.arange(cache.held.shape[1])
    return np.where(places > places[-1] - count, np.inf, others)
