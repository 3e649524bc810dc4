"""How far heads look, and how much of it position leaves unexplained.

Distances, in tokens or in patches, include special tokens: a sink is part of what a head does.
A head that always attends to the token before, or to one key, is alike for every text:
`informative` measures what is left.
"""

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.folds import OnKeys
from attnviz.analyses.masks import MeasuredMap, Numbers, within_one_text
from attnviz.analyses.word_fold import word_fold
from attnviz.analyses.word_links import LEAST_WORDS, WordLinks
from attnviz.core.attention_map import AttentionMap, known_mean
from attnviz.core.measures import HeadMeasure
from attnviz.core.tokens import patch_places, text_places

FAR = 64
"""Tokens beyond which attention is called distant."""


def distance(subject: MeasuredMap) -> HeadMeasure | None:
    """Mean distance between a token and the tokens it attends to, in tokens.

    Mean over the rows i of Σ_j a_ij |i − j| / Σ_j a_ij.
    """
    return _weigh_offsets(subject, "distance", ("only itself", "only the far end"), 1)


def offset(subject: MeasuredMap) -> HeadMeasure | None:
    """Mean signed distance, negative towards the past.

    Mean over the rows i of Σ_j a_ij (j − i) / Σ_j a_ij.
    """
    return _weigh_offsets(subject, "offset", ("only the past", "only what follows"), 0)


def distant(subject: MeasuredMap) -> HeadMeasure | None:
    """Share that goes further than 64 tokens, to text behind the first token.

    Sinks are left out: special tokens and the first token. None where no row sees so far.
    """
    item = subject.item
    if not within_one_text(item) or patch_places(item.key_tokens) is not None:
        return None
    text = np.array([not token.special for token in item.key_tokens])
    text[0] = False
    ends = ("only near tokens and sinks", "only far text")
    return subject.share_on("distant", OnKeys(text, FAR), ends)


def _weigh_offsets(
    subject: MeasuredMap, name: str, ends: tuple[str, str], which: int
) -> HeadMeasure | None:
    length = len(subject.item.key_tokens)
    in_line = within_one_text(subject.item) and patch_places(subject.item.key_tokens) is None
    if not in_line or length < 2:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        pairs = zip(subject.offsets, subject.row_sums, strict=True)
        heads, uniform = (subject.mean(apart[which] / sums, subject.rows) for apart, sums in pairs)
    return subject.compare(name, "tokens", ends, (heads, uniform), top=length - 1)


def patch_distance(subject: MeasuredMap) -> HeadMeasure | None:
    """Mean distance between a patch of a picture and those it attends to, in patches.

    Mean over the patches of Σ_j a_ij times the distance of patches i and j (Dosovitskiy 2020, fig.
    7). The class token has no place: its row and column are left out, and what is left of each row
    is made to sum to 1 again. Times the side of a patch it is a distance in pixels.
    """
    item = subject.item
    places = patch_places(item.key_tokens)
    if places is None or not within_one_text(item):
        return None
    patches = text_places(item.key_tokens)
    apart = np.linalg.norm(places[:, None] - places, axis=-1)

    def formula(weights: NDArray[np.floating]) -> Numbers:
        between = weights[:, :, patches][:, :, :, patches].astype(np.float64)
        sums = between.sum(axis=-1)
        ways = np.einsum("lhij,ij->lhi", between, apart)
        # A patch that attends to nothing but the class token has no distance.
        attending = sums > 0
        return known_mean(np.where(attending, ways / np.where(attending, sums, 1.0), np.nan))

    ends = ("only itself", "only the far corner")
    return subject.measure("patch-distance", "patches", ends, formula, top=float(apart.max()))


def informative(subject: MeasuredMap) -> HeadMeasure | None:
    """How much of where a head looks neither distance nor popular keys explain, in nats.

    The sum of the gains above 0.02 (see `WordLinks`) over the number of words.
    """
    if isinstance(subject.item, AttentionMap):
        links = WordLinks(subject)
        if links.count < LEAST_WORDS:
            return None
        heads, uniform = links.says(links.item.weights), links.says(links.uniform)
        most = links.visible.sum(axis=-1).max()
    else:
        fold = word_fold(subject)
        drop = subject.first_is_sink
        if fold is None or fold.count(drop=drop) < LEAST_WORDS:
            return None
        heads, (uniform, most) = subject.fold("words", lambda: fold)
    ends = ("distance and popular keys explain all", "neither of them explains any word's look")
    # The table is no worse than an even look, and what a row loses is less than a nat.
    top = float(np.log(most)) + 1
    return subject.compare("informative", "nats", ends, (heads, uniform), top)
