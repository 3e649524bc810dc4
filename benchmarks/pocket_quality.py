"""Measure the pocket model: the figures that its card prints.

Run it by hand: `python benchmarks/pocket_quality.py --pairs PAIRS --unseen SENTENCES
--alignments GOLD --treebank CONLLU`. Each file is optional and gives its own figures; they are
printed as JSON, and with `--write` they go into the origin that lies beside the weights.

PAIRS: English<TAB>French lines. SENTENCES: English lines kept out of training. GOLD: JSON lines
with `en` and `fr` (words), `sure` and `possible` (pairs of word numbers) and `in_tatoeba_vocab`.
CONLLU: an English treebank.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from attnviz.analyses.words import merge_attention
from attnviz.features.align.links import (
    Links,
    Score,
    align,
    mutual,
    symmetrize,
    words_only,
)
from attnviz.features.align.request import Aligner
from attnviz.features.treebank.conllu import read_sentences as read_treebank
from attnviz.features.treebank.study import TreebankStudy
from attnviz.models.light.weights import StoredWeights
from attnviz.models.pocket.card import tokenizer_of
from attnviz.models.pocket.model import FOLDER
from attnviz.models.pocket.text import load_piece_tokenizer
from attnviz.models.pocket.translator import load_pocket
from attnviz.storage.texts import Text
from tests.asked import over_itself
from training.card import describe_translator
from training.corpus import read_pairs, read_sentences
from training.evaluation import Evaluation, measure
from training.finish import write_json

WAYS = (
    "forward",
    "reverse",
    "intersection",
    "union",
    "grow-diag-final",
    "grow-diag-final-and",
    "product",
)
RELATIONS = 200
"""Cases below which a relation is too rare to speak of."""


def rate_unseen(folder: Path, pairs: Path, sentences: Path) -> dict[str, Any]:
    """Nats a token and chrF on pairs kept out of training."""
    import torch

    stored = StoredWeights(folder / "weights.safetensors")
    weights = {name: torch.from_numpy(stored[name]) for name in stored}
    kept = set(read_sentences(sentences))
    chosen = [pair for pair in read_pairs(pairs) if pair.en in kept]
    pocket = load_pocket(folder=folder)
    tokenizer = load_piece_tokenizer(tokenizer_of(folder))
    return measure(Evaluation(weights, pocket.sizes, tokenizer), chosen)


def alignments(folder: Path, gold: Path) -> dict[str, Any]:
    """Alignment error rates in per cent by every way to join the two directions."""
    aligner = Aligner(load_pocket(to="fr", folder=folder), load_pocket(to="en", folder=folder))
    found: dict[str, list[Links]] = {way: [] for way in WAYS}
    sure, possible, known = [], [], []
    for line in gold.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        english, french = " ".join(record["en"]), " ".join(record["fr"])
        there = aligner.matrix(aligner.attend(Text("0", english, french)))
        turned = Aligner(aligner.backward, aligner.source)
        back = turned.matrix(turned.attend(Text("0", french, english)))
        forward = align(there.weights[0, 0], there.query_tokens, there.key_tokens)
        reverse = frozenset(
            (source, target)
            for target, source in align(back.weights[0, 0], back.query_tokens, back.key_tokens)
        )
        for way in WAYS[:-1]:
            found[way].append(symmetrize(forward, reverse, way))
        shares = [words_only(m.weights[0, 0], m.query_tokens, m.key_tokens) for m in (there, back)]
        found["product"].append(mutual(shares[0].T * shares[1]))
        sure.append(frozenset(map(tuple, record["sure"])))
        possible.append(frozenset(map(tuple, record["possible"])))
        known.append(record["in_tatoeba_vocab"])
    inside = [number for number, short in enumerate(known) if short]

    def error(links: list[Links], chosen: Any) -> float:
        score = Score()
        for number in chosen:
            score.add(links[number], sure[number], possible[number])
        return round(100 * score.error, 1)

    return {
        "sentences": len(known),
        "sentences_in_vocabulary": len(inside),
        "error": {way: error(found[way], range(len(known))) for way in WAYS},
        "error_in_vocabulary": {way: error(found[way], inside) for way in WAYS},
    }


def roles(folder: Path, treebank: Path) -> dict[str, Any]:
    """What the encoder's heads look at: the best head for each role, with a guess beside it."""
    pocket, causal = load_pocket(folder=folder), load_pocket(folder=folder, causal=True, to="en")
    study, shares = TreebankStudy(), Shares()
    with treebank.open("rb") as lines:
        for sentence in read_treebank(lines, treebank.name):
            attention = over_itself(pocket, sentence.text)
            study.add(sentence, attention)
            words = sentence.text.lower().split()
            shares.add(merge_attention(attention).weights, words)
            shares.add_causal(merge_attention(over_itself(causal, sentence.text)).weights, words)
    report = study.report()
    syntax = []
    for relation in report.relations:
        if relation.count < RELATIONS:
            continue
        best = next(item for item in report.findings if item.relation == relation.name)
        syntax.append(
            {
                "relation": relation.name,
                "toward": best.toward,
                "layer": best.layer,
                "head": best.head,
                "right": round(100 * best.share, 1),
                "fixed_offset": round(100 * relation.by_offset, 1),
                "cases": relation.count,
            }
        )
    return {"sentences": report.sentences, "shares": shares.best(), "syntax": syntax}


class Shares:
    """Mean shares of attention that words give to words at a place, over all sentences."""

    KINDS = (
        "previous word",
        "next word",
        "same word elsewhere",
        "sentence end",
        "same word earlier",
    )
    CAUSAL = "same word earlier"

    def __init__(self) -> None:
        self.sums = {kind: np.zeros(1) for kind in self.KINDS}
        self.even = dict.fromkeys(self.KINDS, 0.0)
        self.counts = dict.fromkeys(self.KINDS, 0)

    def add(self, weights: Any, words: list[str]) -> None:
        """Take in one sentence's weights over words and <eos>, (layers, heads, words + 1, …)."""
        count = len(words)
        row, column = np.indices((count, count))
        text = np.array(words)
        masks = {
            "previous word": column == row - 1,
            "next word": column == row + 1,
            "same word elsewhere": (text[:, None] == text[None, :]) & (row != column),
        }
        for kind, mask in masks.items():
            asking = mask.any(axis=1)
            self._take(kind, (weights[:, :, :count, :count] * mask).sum(-1)[:, :, asking])
            self.even[kind] += float(mask.sum() / (count + 1))
        self._take("sentence end", weights[:, :, :count, count])
        self.even["sentence end"] += count / (count + 1)

    def add_causal(self, weights: Any, words: list[str]) -> None:
        """Take in one sentence's causal weights over the tag and its words."""
        count = len(words)
        row, column = np.indices((count, count))
        text = np.array(words)
        mask = (text[:, None] == text[None, :]) & (column < row)
        asking = mask.any(axis=1)
        self._take(self.CAUSAL, (weights[:, :, 1:, 1:] * mask).sum(-1)[:, :, asking])
        self.even[self.CAUSAL] += float((mask.sum(axis=1) / (np.arange(count) + 2)).sum())

    def _take(self, kind: str, shares: Any) -> None:
        self.sums[kind] = self.sums[kind] + shares.sum(axis=-1)
        self.counts[kind] += shares.shape[-1]

    def best(self) -> list[dict[str, Any]]:
        """For each kind the head with the largest share, and what an even look would give."""
        found = []
        for kind in self.KINDS:
            means = self.sums[kind] / self.counts[kind]
            layer, head = np.unravel_index(means.argmax(), means.shape)
            found.append(
                {
                    "role": kind,
                    "stream": "causal" if kind == self.CAUSAL else "encoder",
                    "layer": str(layer),
                    "head": str(head),
                    "share": round(float(means.max()), 3),
                    "even": round(self.even[kind] / self.counts[kind], 3),
                }
            )
        return found


def main() -> None:
    """Measure what was given, print it, and write it where asked."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--pairs", type=Path)
    parser.add_argument("--unseen", type=Path)
    parser.add_argument("--alignments", type=Path)
    parser.add_argument("--treebank", type=Path)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    figures: dict[str, Any] = {}
    if asked.pairs and asked.unseen:
        figures["unseen"] = rate_unseen(asked.folder, asked.pairs, asked.unseen)
    if asked.alignments:
        figures["alignment"] = alignments(asked.folder, asked.alignments)
    if asked.treebank:
        figures["roles"] = roles(asked.folder, asked.treebank)
    print(json.dumps(figures, indent=2))
    if asked.write:
        path = asked.folder / "origin.json"
        origin = json.loads(path.read_text(encoding="utf-8"))
        origin["figures"].update(figures)
        write_json(origin | describe_translator(origin, asked.folder), path)


if __name__ == "__main__":
    main()
