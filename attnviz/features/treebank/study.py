"""Syntactic relations that heads find, beside the best fixed offset (Clark et al. 2019).

Pieces are joined into the treebank's words. A head finds a relation if the dependent attends to its
syntactic head more than to any other word; or, in the other direction, if the syntactic head
attends most to the dependent. Special tokens do not count. The baseline is the best fixed distance
of each relation.
"""

from collections import Counter, defaultdict

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses import masks, view
from attnviz.analyses.words import merge_words
from attnviz.core.attention_map import Attention, AttentionMap, Provenance, Token
from attnviz.core.records import dataclass
from attnviz.features.measures.texts import TextStudy
from attnviz.features.treebank.conllu import ROOT, Sentence

NOTHING = -1  # argmax alone would name the first key of an empty row
TOWARDS = ("head", "dependent")


@dataclass(frozen=True, slots=True)
class Finding:
    """How often one attention head finds one relation of a treebank ("nsubj"), 0 to 1."""

    relation: str
    toward: str  # "head": links point at the syntactic head; or "dependent"
    layer: str
    head: str
    share: float


@dataclass(frozen=True, slots=True)
class Relation:
    """One relation of a treebank, with its number of cases."""

    name: str
    count: int
    offset: int  # the most frequent distance from dependent to head
    by_offset: float  # its share of all cases


@dataclass(frozen=True, slots=True)
class TreebankReport:
    """Which head finds which relation, the most frequent first."""

    caption: str
    sentences: int
    relations: tuple[Relation, ...]
    findings: tuple[Finding, ...]  # each head on each relation and direction, best first
    provenance: Provenance
    notes: tuple[str, ...] = ()


def strongest_words(
    item: AttentionMap, text: str, words: tuple[Token, ...]
) -> tuple[NDArray[np.int64], list[int]]:
    """The word that each word attends to most, by head; and the numbers of words with tokens."""
    by_word = merge_words(item, text, text, words)
    places: dict[tuple[int, int], int] = {}
    for place, token in enumerate(by_word.query_tokens):
        if not token.special:
            places.setdefault((token.start, token.end), place)
    numbers = [number for number, word in enumerate(words) if (word.start, word.end) in places]
    at = [places[words[number].start, words[number].end] for number in numbers]
    weights = by_word.weights[:, :, at][:, :, :, at]
    weights[:, :, range(len(at)), range(len(at))] = 0
    if not at:
        return np.zeros((*weights.shape[:2], 0), dtype=np.int64), numbers
    strongest = np.where(weights.max(axis=-1) > 0, weights.argmax(axis=-1), NOTHING)
    return strongest, numbers


class TreebankStudy(TextStudy):
    """Searches the main map of each sentence for relations."""

    def __init__(self) -> None:
        super().__init__()
        self._right: dict[str, NDArray[np.int64]] = {}
        self._offsets: dict[str, Counter[int]] = defaultdict(Counter)
        self._lost = 0

    def add(self, sentence: Sentence, attention: Attention) -> None:
        masks.check_measurable(attention.main)
        self.count(attention)
        item = attention.main
        in_text = [number for number, word in enumerate(sentence.words) if word.end > word.start]
        words = tuple(sentence.words[number] for number in in_text)
        strongest, numbers = strongest_words(item, sentence.text, words)
        index = {in_text[number]: place for place, number in enumerate(numbers)}
        cases: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for dependent, (head, relation) in enumerate(
            zip(sentence.heads, sentence.relations, strict=True)
        ):
            if head == ROOT:
                continue
            if dependent not in index or head not in index:
                self._lost += 1
                continue
            name = relation.partition(":")[0]
            cases[name].append((index[dependent], index[head]))
            self._offsets[name][head - dependent] += 1
        for name, pairs in cases.items():
            dependents, heads = np.array(pairs).T
            right = [
                (strongest[:, :, dependents] == heads).sum(axis=-1),
                (strongest[:, :, heads] == dependents).sum(axis=-1),
            ]
            self._right[name] = self._right.get(name, 0) + np.stack(right)

    def report(self) -> TreebankReport:
        """Every head on every relation in both directions."""
        rows = [self._relation(name) for name in self._right]
        relations = sorted(rows, key=lambda item: (-item.count, item.name))
        findings = [finding for relation in relations for finding in self._findings(relation)]
        what = "relation" if self._lost == 1 else "relations"
        note = f"{self._lost} {what} left out: a word shares its piece with another"
        return TreebankReport(
            caption=view.describe_run(self.example, self.example.main),
            sentences=self.texts,
            relations=tuple(relations),
            findings=tuple(findings),
            provenance=self.provenance,
            notes=(note,) if self._lost else (),
        )

    def _relation(self, name: str) -> Relation:
        offsets = self._offsets[name]
        count = sum(offsets.values())
        # Ties: the shortest distance, then the one that looks ahead.
        offset = min(offsets, key=lambda apart: (-offsets[apart], abs(apart), -apart))
        return Relation(name, count, offset, offsets[offset] / count)

    def _findings(self, relation: Relation) -> list[Finding]:
        item = self.example.main
        shares = self._right[relation.name] / relation.count
        findings = [
            Finding(relation.name, toward, layer, head, float(shares[way, down, across]))
            for way, toward in enumerate(TOWARDS)
            for down, layer in enumerate(item.layers)
            for across, head in enumerate(item.heads)
        ]
        return sorted(findings, key=lambda finding: -finding.share)
