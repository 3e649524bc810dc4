"""How good the model is on pairs it never saw: nats a token, and chrF of its translations."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from attnviz.models.light.network import Weights
from attnviz.models.pocket.model import (
    TranslatorSizes,
    embed_pieces,
    predict_pieces,
    run_decoder,
    run_encoder,
)
from attnviz.models.pocket.text import END, LANGUAGE, PAD
from training.batches import IGNORED
from training.corpus import Pair
from training.objective import waves

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tokenizers import Tokenizer
    from torch import Tensor

AT_ONCE = 64
"""Sentences in a batch."""


class Evaluation:
    """Measures one model; everything on torch, without gradients."""

    def __init__(
        self, weights: Weights, sizes: TranslatorSizes, tokenizer: Tokenizer, device: str = "cpu"
    ) -> None:
        self.weights, self.sizes, self.tokenizer, self.device = weights, sizes, tokenizer, device

    @torch.no_grad()
    def nats(self, pairs: list[Pair], to: str = "fr") -> float:
        """Mean nats a token, <eos> included, with the decoder reading the right prefix.

        Args:
            pairs: unseen ones.
            to: the target language; the source is the other.
        """
        nats = tokens = 0.0
        pairs = sorted(pairs, key=lambda pair: len(pair.en))
        for start in range(0, len(pairs), AT_ONCE):
            some = pairs[start : start + AT_ONCE]
            memory, mask = self._read([pair.en if to == "fr" else pair.fr for pair in some])
            written = self._ids([pair.fr if to == "fr" else pair.en for pair in some])
            target = self._side_by_side([[LANGUAGE[to], *ids] for ids in written], PAD)
            expected = self._side_by_side([[*ids, END] for ids in written], IGNORED)
            scores = self._scores(target, memory, mask)
            nats += cross_entropy(
                scores.flatten(0, 1), expected.flatten(), ignore_index=IGNORED, reduction="sum"
            ).item()
            tokens += int((expected != IGNORED).sum())
        return nats / tokens

    @torch.no_grad()
    def translate(self, texts: list[str], to: str = "fr", longest: int = 80) -> list[str]:
        """Each text in the other language, one likeliest piece after the other."""
        written: dict[int, str] = {}
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        for start in range(0, len(order), AT_ONCE):
            some = order[start : start + AT_ONCE]
            memory, mask = self._read([texts[number] for number in some])
            target = torch.full((len(some), 1), LANGUAGE[to], device=self.device)
            ended = torch.zeros(len(some), dtype=torch.bool, device=self.device)
            while target.shape[1] < longest and not ended.all():
                best = self._scores(target, memory, mask, last=True)[:, -1].argmax(-1)
                best = torch.where(ended, END, best)
                ended |= best == END
                target = torch.cat([target, best[:, None]], dim=1)
            for number, ids in zip(some, target[:, 1:].tolist(), strict=True):
                written[number] = self.tokenizer.decode(ids)
        return [written[number] for number in range(len(texts))]

    def _ids(self, texts: list[str]) -> list[list[int]]:
        return [one.ids for one in self.tokenizer.encode_batch(texts, add_special_tokens=False)]

    def _side_by_side(self, rows: list[list[int]], filler: int) -> Tensor:
        table: NDArray[np.int64] = np.full((len(rows), max(map(len, rows))), filler)
        for number, row in enumerate(rows):
            table[number, : len(row)] = row
        return torch.from_numpy(table).to(self.device)

    def _embed(self, ids: Tensor) -> Tensor:
        positions = waves(ids.shape[1], self.sizes.size, self.device)
        embedded: Tensor = embed_pieces(self.weights["embedding.weight"][ids], positions)
        return embedded

    def _read(self, texts: list[str]) -> tuple[Tensor, Tensor]:
        source = self._side_by_side([[*ids, END] for ids in self._ids(texts)], PAD)
        mask = (source != PAD)[:, None, None, :]
        return run_encoder(self.weights, self.sizes, self._embed(source), mask=mask)[0], mask

    def _scores(
        self, target: Tensor, memory: Tensor, mask: Tensor, *, last: bool = False
    ) -> Tensor:
        states = run_decoder(self.weights, self.sizes, self._embed(target), memory, mask=mask)[0]
        scores: Tensor = predict_pieces(self.weights, states[:, -1:] if last else states).float()
        return scores


def chrf(evaluation: Evaluation, pairs: list[Pair]) -> dict[str, Any]:
    """ChrF of the greedy French of every English sentence (Popović 2015), from 0 to 100.

    Returns:
        "chrf" against every French translation, "chrf_one_reference" against the first alone, and
        sacrebleu's signature.
    """
    from sacrebleu.metrics.chrf import CHRF

    references: dict[str, list[str]] = defaultdict(list)
    for pair in pairs:
        references[pair.en].append(pair.fr)
    written = evaluation.translate(list(references))
    most = max(map(len, references.values()))
    streams: Any = [  # sacrebleu takes None where a sentence has fewer translations
        [(texts[number] if number < len(texts) else None) for texts in references.values()]
        for number in range(most)
    ]
    metric, single = CHRF(), CHRF()
    return {
        "chrf": round(metric.corpus_score(written, streams).score, 1),
        "chrf_one_reference": round(single.corpus_score(written, streams[:1]).score, 1),
        "signature": str(metric.get_signature()),
    }


def measure(evaluation: Evaluation, pairs: list[Pair]) -> dict[str, Any]:
    """Every figure that unseen pairs give; without sacrebleu those of chrF are left out."""
    figures: dict[str, Any] = {
        "unseen_pairs": len(pairs),
        "nats_en_fr": round(evaluation.nats(pairs, "fr"), 3),
        "nats_fr_en": round(evaluation.nats(pairs, "en"), 3),
    }
    try:
        figures.update(chrf(evaluation, pairs))
    except ImportError:
        figures["chrf"] = "not measured: sacrebleu is not installed (pip install 'attnviz[train]')"
    return figures
