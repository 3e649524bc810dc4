"""Measure where the text models inside stop being reliable: by length, and by foreign words.

Run it by hand: `python benchmarks/pocket_limits.py --pairs PAIRS --unseen SENTENCES
--alignments GOLD --foreign German=FILE --foreign Czech=FILE`. What is measured is printed as JSON;
with `--write` it goes into the origins beside the weights, and into the pocket model's card.

PAIRS, SENTENCES and GOLD are those of `pocket_quality.py`; a foreign FILE holds one sentence a
line. The shipped figures were made with the first sentences of Debian's packages fortunes-de,
fortunes-cs, fortunes-es and fortunes-it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from attnviz.features.align.links import Score
from attnviz.features.align.request import Aligner
from attnviz.features.pocket_lm.language_model import load_pocket_lm
from attnviz.models.pocket.card import CARDS
from attnviz.models.pocket.text import RELIABLE, SHORT
from attnviz.models.pocket.translator import Pocket, load_pocket
from attnviz.storage.texts import Text
from tests.asked import over_itself
from training import causal_figures
from training.card import describe_translator
from training.corpus import read_pairs, read_sentences
from training.finish import write_json

LENGTHS = (25, 50, 75, 100, 1000)
SHARES = (0, 0.1, 0.2, 0.3, 0.5, 1)
PLACES = 10
"""Positions that are averaged over."""


def positions(
    source: Any, texts: Sequence[str], where: tuple[int, int], ahead: int, most: int
) -> list[float]:
    """The share that a head (layer, head) gives to the piece so far ahead, by tens of positions."""
    found: list[list[float]] = [[] for _ in range(0, most, PLACES)]
    for text in texts:
        weights = over_itself(source, text).main.weights[where]
        rows = np.arange(max(0, -ahead), min(len(weights), most) - max(0, ahead))
        for row, share in zip(rows, weights[rows, rows + ahead], strict=True):
            found[row // PLACES].append(float(share))
    return [round(float(np.mean(shares)), 2) for shares in found]


def chains(sentences: Sequence[str], pieces: Callable[[str], int], most: int) -> list[str]:
    """Fifty texts of sentences one after the other, each of at least so many pieces."""
    random, found = Random(0), []
    for _ in range(50):
        text = random.choice(sentences)
        while pieces(text) < most:
            text = f"{text} {random.choice(sentences)}"
        found.append(text)
    return found


def read_gold(path: Path) -> list[dict[str, Any]]:
    """The pairs of a gold file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def error_of(aligner: Aligner, records: Sequence[dict[str, Any]]) -> float:
    """The alignment error rate in per cent, of the links that both directions find."""
    score = Score()
    for record in records:
        links = aligner.links(Text("0", " ".join(record["en"]), " ".join(record["fr"])))
        sure, possible = (frozenset(map(tuple, record[name])) for name in ("sure", "possible"))
        score.add(links, sure, possible)  # type: ignore[arg-type]
    return round(100 * score.error, 1)


def pieces_of(pocket: Pocket, record: dict[str, Any]) -> int:
    """Pieces of the longer side."""
    return max(len(pocket.encode_text(" ".join(record[side])).ids) for side in ("en", "fr"))


def replace_words(record: dict[str, Any], words: Sequence[str], share: float) -> dict[str, Any]:
    """The pair with a share of its English words replaced."""
    random = Random(" ".join(record["en"]))
    english = [
        random.choice(words) if word.isalpha() and random.random() < share else word
        for word in record["en"]
    ]
    return record | {"en": english}


def foreign(pocket: Pocket, texts: Sequence[str]) -> dict[str, float]:
    """The per cent of texts whose language is called unknown, and that are judged at all."""
    read = pocket.judge([pocket.encode_text(text) for text in texts])
    short = [len(text.beginning().text) < SHORT * len(text.ids[:RELIABLE]) for text in read]
    return {
        "texts": len(texts),
        "unknown": round(100 * float(np.mean([text.is_foreign for text in read])), 1),
        "judged": round(100 * float(np.mean(short)), 1),
    }


def main() -> None:
    """Measure, print, and write where asked."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    for name in ("--pairs", "--unseen", "--alignments"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--foreign", action="append", required=True, metavar="NAME=FILE")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    pocket, causal = load_pocket(), load_pocket_lm()
    kept = read_sentences(asked.unseen)
    pairs = [pair for pair in read_pairs(asked.pairs) if pair.en in set(kept)]
    languages = {"English": kept, "French": [pair.fr for pair in pairs]}
    for one in asked.foreign:
        name, _, file = one.partition("=")
        languages[name] = Path(file).read_text(encoding="utf-8").splitlines()
    aligner = Aligner(load_pocket(to="fr"), load_pocket(to="en"))
    gold = [(pieces_of(pocket, record), record) for record in read_gold(asked.alignments)]
    first = next(iter(asked.foreign)).partition("=")[0]
    words = [word for text in languages[first] for word in text.split() if word.isalpha()]
    short = [record for pieces, record in gold if pieces <= RELIABLE]
    texts = chains(kept, lambda text: len(pocket.encode_text(text).ids), 110)
    limits = {
        "next": positions(pocket, texts, (1, 3), 1, 110),
        "previous": positions(pocket, texts, (3, 5), -1, 110),
        "lengths": [
            [most, error_of(aligner, [one for pieces, one in gold if least < pieces <= most])]
            for least, most in zip((0, *LENGTHS), LENGTHS, strict=False)
        ],
        "replaced by": first,
        "replaced": [
            [share, error_of(aligner, [replace_words(one, words, share) for one in short])]
            for share in SHARES
        ],
        "languages": {name: foreign(pocket, texts) for name, texts in languages.items()},
    }
    texts = chains(kept, lambda text: len(over_itself(causal, text).tokens), 160)
    places = positions(causal, texts, (1, 1), -1, 160)
    print(json.dumps({"pocket": limits, "pocket-lm": places}, indent=2, ensure_ascii=False))
    if asked.write:
        for name, figures in (("pocket", {"limits": limits}), ("pocket-lm", {"places": places})):
            path = CARDS[name] / "origin.json"
            origin = json.loads(path.read_text(encoding="utf-8"))
            origin["figures"].update(figures)
            if name == "pocket":
                origin |= describe_translator(origin, CARDS[name])
            else:
                origin |= causal_figures.describe_causal(origin, causal.sizes, CARDS[name])
            write_json(origin, path)


if __name__ == "__main__":
    main()
