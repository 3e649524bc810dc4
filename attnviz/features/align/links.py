"""Word alignments from attention weights, and their error rate.

Symmetrised alignments and the error rate follow Och & Ney 2003 (sections 3.4 and 5.1);
grow-diag-final and grow-diag-final-and follow Koehn 2003 and 2005. A link is a pair (source word,
target word), counted from 0: keys first, as in Pharaoh lines.
"""

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import Token
from attnviz.core.errors import InputError, choose, is_number
from attnviz.core.records import dataclass
from attnviz.core.registry import SYMMETRIZATIONS
from attnviz.core.tokens import text_places

Links = frozenset[tuple[int, int]]


def align(
    weights: NDArray[np.floating], query_tokens: Sequence[Token], key_tokens: Sequence[Token]
) -> Links:
    """A link (key word, query word) from each query word to the key word with the largest weight.

    Special tokens have no number. A row of the weights (queries, keys) with more than half of its
    attention on special tokens has no link.
    """
    shares = words_only(weights, query_tokens, key_tokens)
    if not shares.size:
        return frozenset()
    # A word without a partner attends to the end of the sentence.
    resting = weights.sum(axis=-1)[text_places(query_tokens)] - shares.sum(axis=-1)
    rows = np.flatnonzero(resting <= shares.sum(axis=-1))
    return frozenset((int(shares[row].argmax()), int(row)) for row in rows)


def words_only(
    weights: NDArray[np.floating], query_tokens: Sequence[Token], key_tokens: Sequence[Token]
) -> NDArray[np.floating]:
    """One head's weights without the rows and columns of special tokens."""
    return weights[np.ix_(text_places(query_tokens), text_places(key_tokens))]


def mutual(shares: NDArray[np.floating]) -> Links:
    """Cells (row, column) above 0 that are the largest of their row and of their column."""
    largest = (
        (shares > 0)
        & (shares >= shares.max(axis=0, initial=0, keepdims=True))
        & (shares >= shares.max(axis=1, initial=0, keepdims=True))
    )
    return frozenset((int(row), int(column)) for row, column in np.argwhere(largest))


def symmetrize(forward: Links, reverse: Links, how: str) -> Links:
    """One set of links from two, (source word, target word), by a name of SYMMETRIZATIONS."""
    choose(how, [name for name in SYMMETRIZATIONS if name != "product"], "symmetrization")
    if how.startswith("grow-diag-final"):
        return grow_diag_final(forward, reverse, both=how.endswith("-and"))
    ways = {"forward": forward, "reverse": reverse, "intersection": forward & reverse}
    return ways.get(how, forward | reverse)


_NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def grow_diag_final(forward: Links, reverse: Links, *, both: bool) -> Links:
    """The intersection, grown by neighbouring links of the union, then by links of free words.

    The last step adds a link if one of its words is free, or with `both` (grow-diag-final-and) if
    both are.
    """
    union, links = forward | reverse, set(forward & reverse)
    before = -1
    while before < len(links):
        before = len(links)
        # As in Koehn's code, a link added in this sweep grows in it too if it lies ahead.
        for source, target in sorted(union):
            if (source, target) not in links:
                continue
            for row, column in _NEIGHBOURS:
                link = (source + row, target + column)
                if link in union and _linked_words(link, links) < 2:
                    links.add(link)
    for link in (*sorted(forward), *sorted(reverse)):
        if _linked_words(link, links) < (1 if both else 2):
            links.add(link)
    return frozenset(links)


def _linked_words(link: tuple[int, int], links: Collection[tuple[int, int]]) -> int:
    source_linked = any(source == link[0] for source, _ in links)
    return source_linked + any(target == link[1] for _, target in links)


@dataclass(slots=True)
class Score:
    """Counts over sentences, for precision, recall and the alignment error rate.

    The error rate is 1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|) of predicted links A, sure links S and
    possible links P, which include S.
    """

    links: int = 0
    right: int = 0
    sure: int = 0
    sure_found: int = 0

    def add(self, links: Links, sure: Links, possible: Links) -> None:
        self.links += len(links)
        self.right += len(links & (sure | possible))
        self.sure += len(sure)
        self.sure_found += len(links & sure)

    @property
    def precision(self) -> float:
        """Share of predicted links that are possible; 1 without any."""
        return self.right / self.links if self.links else 1.0

    @property
    def recall(self) -> float:
        """Share of sure links that were predicted; 1 without any."""
        return self.sure_found / self.sure if self.sure else 1.0

    @property
    def error(self) -> float:
        total = self.links + self.sure
        return 1 - (self.right + self.sure_found) / total if total else 0.0


def pharaoh(links: Links) -> str:
    pairs = sorted(links, key=lambda link: (link[1], link[0]))
    return " ".join(f"{source}-{target}" for source, target in pairs)


def read_pharaoh(line: str) -> Links:
    """The links of a Pharaoh line."""
    links = set()
    for part in line.split():
        source, hyphen, target = part.partition("-")
        if not (hyphen and is_number(source) and is_number(target)):
            raise InputError(f"'{part}' is no alignment link: write 'source-target', such as 0-1")
        links.add((int(source), int(target)))
    return frozenset(links)


def read_gold(line: str) -> tuple[Links, Links]:
    """The sure and the possible links of a gold line: "0-0 2-1" sure, "1?1" or "1p1" possible."""
    parts = line.replace("p", "?").split()
    possible = read_pharaoh(" ".join(part.replace("?", "-") for part in parts if "?" in part))
    return read_pharaoh(" ".join(part for part in parts if "?" not in part)), possible
