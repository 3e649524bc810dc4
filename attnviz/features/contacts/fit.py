"""Contacts of a protein from attention: a regression over heads, fitted on a few structures.

Each head's map is made symmetric and loses its average product (APC, Dunn 2008, Bioinformatics): a
cell minus its row's sum times its column's, over the sum of all. A logistic regression with an L1
penalty then weighs the heads (Rao 2021, ICLR, section 3). Pairs nearer than `APART` are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import Attention
from attnviz.core.errors import InputError, UsageError
from attnviz.core.records import dataclass
from attnviz.core.tokens import text_places
from attnviz.storage import documents, matrices

APART, PENALTY, NAMED = 6, 0.15, 3
"""Residues from one to the other of a pair at least, the regression's C, and heads in a note."""
Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Structure:
    """A sequence's heads at each pair of residues (pairs, heads), and whether these touch."""

    features: Numbers
    touches: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class ContactModel:
    """A regression over heads.

    Attributes:
        precision: of as many of the likeliest pairs as there are contacts, the share that touches:
            the mean over structures, each predicted from the others; NaN for a single one.
    """

    weights: Numbers
    bias: float
    heads: tuple[str, ...]
    structures: int
    precision: float

    def predict(self, attention: Attention) -> Attention:
        """A map of one head: the probability that two residues touch, 0 for near pairs."""
        features, places = pair_features(attention)
        item = attention.main
        scores = features @ self.weights + self.bias
        chances = np.zeros(item.weights.shape[2:])
        for (i, j), score in zip(combinations(places, 2), scores, strict=True):
            if places.index(j) - places.index(i) >= APART:
                chances[i, j] = chances[j, i] = 1 / (1 + np.exp(-score))
        strongest = np.argsort(-abs(self.weights))[:NAMED]
        parts = (f"{self.heads[n]} {self.weights[n]:+.1f}" for n in strongest if self.weights[n])
        heads = ", ".join(parts) or "none"
        precision = f"of the likeliest pairs in structures left out {self.precision:.0%} touch"
        note = (
            f"contacts: a regression over {len(self.heads)} heads, fitted on {self.structures} "
            f"structure{'s' if self.structures > 1 else ''}; heads that weigh most: {heads}; "
            + (precision if self.structures > 1 else "not checked: that takes a second structure")
        )
        contacts = item.with_weights(
            chances[None, None].astype(np.float32),
            unit="probability of a contact",
            layers=("contacts",),
            heads=("0",),
        )
        return attention.with_maps((contacts,), "contacts", notes=[note])


def pair_features(attention: Attention) -> tuple[Numbers, list[int]]:
    """Each head at each pair of residues (pairs, heads), and the residues' positions."""
    item = attention.main
    places = text_places(item.key_tokens)
    if item.query_side != item.key_side or len(places) <= APART:
        raise InputError(f"contacts need one sequence of more than {APART} residues")
    weights = item.weights[..., places, :][..., places].astype(np.float64)
    maps = weights.reshape(-1, len(places), len(places))
    maps = maps + maps.swapaxes(1, 2)
    product = maps.sum(axis=2)[:, :, None] * maps.sum(axis=1)[:, None]
    maps = maps - product / maps.sum(axis=(1, 2))[:, None, None]
    return maps[:, *np.triu_indices(len(places), 1)].T, list(places)


def fit_contacts(path: Path, attend: Callable[[str], Attention]) -> ContactModel:
    """A regression fitted on the sequences of a file and their contacts.

    Raises:
        UsageError: scikit-learn is not installed.
        InputError: the file does not hold sequences with contacts.
    """
    try:
        from sklearn.linear_model import LogisticRegression
    except ImportError as error:
        raise UsageError("--contacts needs scikit-learn: pip install scikit-learn") from error

    def fit(some: Sequence[Structure]) -> Any:
        features = np.concatenate([one.features for one in some])
        touches = np.concatenate([one.touches for one in some])
        model = LogisticRegression(l1_ratio=1.0, C=PENALTY, solver="liblinear")
        return model.fit(features, touches)

    structures, heads = list[Structure](), tuple[str, ...]()
    for sequence, contacts in _read(path):
        attention = attend(sequence)
        item = attention.main
        heads = tuple(f"{layer}.{head}" for layer in item.layers for head in item.heads)
        structures.append(_structure(attention, contacts, path))
    whole = fit(structures)
    precisions = [
        _precision(one, fit([other for other in structures if other is not one]))
        for one in structures
        if len(structures) > 1
    ]
    return ContactModel(
        whole.coef_[0],
        float(whole.intercept_[0]),
        heads,
        len(structures),
        float(np.mean(precisions)) if precisions else np.nan,
    )


def _structure(attention: Attention, contacts: set[tuple[int, int]], path: Path) -> Structure:
    features, places = pair_features(attention)
    pairs = list(combinations(range(len(places)), 2))
    wide = np.array([j - i >= APART for i, j in pairs])
    touches = np.array([pair in contacts for pair in pairs])
    if max(map(max, contacts)) >= len(places) or not touches[wide].any():
        raise InputError(
            f"'{path}' has a sequence of {len(places)} tokens without a contact {APART} or more "
            "apart, or with one beyond its end"
        )
    return Structure(features[wide], touches[wide])


def _precision(one: Structure, model: Any) -> float:
    order = np.argsort(-model.decision_function(one.features), kind="stable")
    return float(one.touches[order[: one.touches.sum()]].mean())


def _read(path: Path) -> Iterator[tuple[str, set[tuple[int, int]]]]:
    lines = matrices.read_bytes(path).decode("utf-8", "replace").splitlines()
    structures = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"line {number} of '{path}'"
        record: Any = documents.parse_json(line.encode(), where)
        try:
            pairs = {(min(i, j), max(i, j)) for i, j in record["contacts"]}
            sequence = record["sequence"]
            assert isinstance(sequence, str)
            assert pairs
            assert all(type(n) is int and n >= 0 for pair in pairs for n in pair)
        except (AssertionError, KeyError, TypeError, ValueError) as error:
            form = '{"sequence": "MKTAYIAKQR", "contacts": [[0, 8], [1, 9]]}'
            raise InputError(f"{where} is no structure such as {form}") from error
        structures += 1
        yield sequence, pairs
    if not structures:
        raise InputError(f"'{path}' holds no structure")
