"""Sinks: keys that hold much of the attention of most rows whatever they say, and what is left.

In most models special tokens ([CLS], <eos>) and the first token take most of the attention (Clark
et al. 2019, section 3.2; Xiao et al. 2023, section 3.1).
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses import masks
from attnviz.analyses.folds import OnKeys, OnOne, sums_on
from attnviz.analyses.words import word_partition
from attnviz.core.attention_map import KINDS, TEXTUAL, Attention, AttentionMap, Token
from attnviz.core.measures import SinkShares
from attnviz.core.tokens import (
    BEYOND_UNIFORM,
    SINK_SHARE,
    begins_causal,
    count_kinds,
    first_is_sink,
    is_mark,
    run_of,
)

THRESHOLD = 0.3
"""The mean attention above which a key is a sink of a head (Gu et al. 2024, section 3)."""


def sink_scores(subject: masks.MeasuredMap) -> tuple[masks.Numbers, masks.Numbers]:
    """Mean attention that each key gets from the rows that see it (Gu et al. 2024, section 3).

    α_k = Σ_{i≥k} A_ik / (T − k) in a causal map of T tokens. Of the heads and of uniform attention.
    """
    counts = np.maximum(subject.seen_by, 1)[:, None]
    heads, uniform = (np.asarray(own[0] / counts) for own in subject.columns)
    return heads, uniform


def sinks_of(subject: masks.MeasuredMap) -> NDArray[np.bool_]:
    """Whether each key is a sink of each head, shape (layers, heads, keys).

    A key that passes the threshold under uniform attention, as in a short text, is no sink.
    """
    heads, uniform = sink_scores(subject)
    return np.asarray(well_seen(subject) & (heads > THRESHOLD) & (uniform <= THRESHOLD))


def well_seen(subject: masks.MeasuredMap) -> NDArray[np.bool_]:
    rows = subject.rows.sum(axis=-1, keepdims=True)
    return np.asarray((2 * subject.seen_by >= rows)[:, None])


def held_by_special(item: AttentionMap) -> float:
    """The share of the text rows' attention that special tokens receive."""
    rows = item.weights[:, :, run_of(text_rows(item.query_tokens))]
    return _share(rows, list(map(is_mark, item.key_tokens)))


def held_by_kinds(item: AttentionMap) -> dict[str, float]:
    """What keys of each kind receive of the text rows' attention; empty where all are tokens."""
    kinds = count_kinds(item.key_tokens)
    if list(kinds) == ["token"]:
        return {}
    rows = item.weights[:, :, run_of(text_rows(item.query_tokens))]
    return {kind: _share(rows, [one.kind == kind for one in item.key_tokens]) for kind in kinds}


def kinds_in_line(item: AttentionMap) -> str:
    """One line: what keys of each kind hold; empty where all are of one."""
    by_kind = held_by_kinds(item)
    if len(by_kind) < 2:
        return ""
    parts = (f"{KINDS.get(kind, kind)} {percent(share)}" for kind, share in by_kind.items())
    return f"of what goes to keys: {', '.join(parts)}"


def held_by_first(item: AttentionMap) -> float:
    """The share of attention that the first token of a causal text receives from those behind."""
    later = [place for place in text_rows(item.query_tokens) if place]
    rows = item.weights[:, :, run_of(later)]
    return _share(rows, [not place for place in range(len(item.key_tokens))])


def learned_part(attention: Attention, item: AttentionMap) -> float | None:
    """What a learned sink takes of a text's rows; None: there is none, or columns are left out."""
    cut = item.starts[1] or any(" dropped" in step for step in attention.provenance.steps)
    if not attention.learned_sink or cut or item.values != "share":
        return None
    text = run_of(text_rows(item.query_tokens))
    return max(1 - float(item.weights[:, :, text].sum(axis=-1, dtype=np.float64).mean()), 0.0)


def sink_shares(
    attention: Attention, subject: masks.MeasuredMap | None = None
) -> SinkShares | None:
    """What goes to sinks in the main map, and where the rest goes; None: it is not known.

    `subject`: the map prepared for measures. What special tokens get is told of the rows of words,
    all else of the rows of tokens.

    Of blocks, of a picture, of what is no share and of weights that were not learned it is not.
    """
    item = attention.main
    picture = "picture" in (item.key_side, item.query_side)
    if attention.in_blocks:
        return None if picture else _shares_in_blocks(attention)
    of_tokens = any(token.kind in TEXTUAL for token in item.key_tokens)  # else of layers
    are_shares = of_tokens and item.values == "share" and item.query_side != "output"
    if item.is_pooled or picture or not are_shares:
        return None
    sums = subject.sums if subject else item.weights.sum(axis=-1, dtype=np.float64)
    if attention.provenance.trained is False or attention.lens_name != "raw" or sums.max() > 1.001:
        return None
    special = any(map(is_mark, item.key_tokens))
    causal = begins_causal(item) and bool(item.weights[..., 0].any())
    learned_share = learned_part(attention, item)
    if not (special or causal) and learned_share is None:
        return None
    is_sink = subject.first_is_sink if subject else first_is_sink(item)
    own = subject or masks.MeasuredMap(item, attention.texts_of(item)) if special else None
    shares = SinkShares(
        special=held_by_special(own.words.item) if own else None,
        first=held_by_first(item) if causal else None,
        first_is_sink=is_sink,
        learned=learned_share,
        first_token=item.key_tokens[0].text if causal else "",
    )
    if not masks.within_one_text(item):
        return shares
    rows, keys = (
        run_of([place for place in text_rows(side) if place or not is_sink])
        for side in (item.query_tokens, item.key_tokens)
    )
    cells = item.weights[:, :, rows][..., keys]
    total = float(cells.sum(dtype=np.float64))
    before, itself = (
        float(np.diagonal(cells, offset, -2, -1).sum(dtype=np.float64)) / total if total else 0.0
        for offset in (-1, 0)
    )
    return replace(shares, before=before, itself=itself)


def _shares_in_blocks(attention: Attention) -> SinkShares | None:
    own: SinkShares | None = attention.in_blocks[0].shares
    if own is None or attention.provenance.trained is False:
        return None
    own = replace(own, learned=own.learned if attention.learned_sink else None)
    return None if own.special is own.first is own.learned is None else own


def sink_shares_by_rows(subject: masks.MeasuredMap) -> SinkShares:
    """The same, by what each row gives to some keys, of a text that is read in blocks of rows.

    What a learned sink takes is what rows leave, if there is one.
    """
    item = subject.item
    text = [
        np.array([not x.special for x in side]) for side in (item.query_tokens, item.key_tokens)
    ]
    places, one_text = np.flatnonzero(text[1]), masks.within_one_text(item)
    before = np.full(len(text[0]), -1)
    itself = before.copy()
    if one_text:
        before[places[1:]], itself[places] = places[:-1], places
    targets = (
        OnKeys(~text[1]),
        OnKeys(text[1]),
        OnOne(np.zeros(len(text[0]), dtype=int)),
        OnOne(before),
        OnOne(itself),
    )
    rows, _ = subject.by_row("on sinks", lambda block: sums_on(block, targets), len(targets))
    special, rest, first, back, own = rows.sum(axis=(1, 2))  # of each row
    causal, drops = subject.begins_causal, subject.first_is_sink
    runs = subject.partition if one_text else word_partition(item.query_tokens, subject.texts[0])
    words = np.array(runs.groups)
    of_words = np.array([np.bincount(words, x * text[0]) for x in (special, special + rest)])
    of_words /= np.bincount(words)
    cells = text[0].copy()
    cells[0] = False
    of_first = first[cells].sum(), (special + rest)[cells].sum()
    if drops:
        rest, back, own = rest - first, back - first * (before == 0), own - first * (itself == 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        near = [float(x[text[0]].sum() / rest[text[0]].sum()) for x in (back, own)]
        holders = float(of_words[0].sum() / of_words[1].sum()), float(of_first[0] / of_first[1])
    return SinkShares(
        special=None if text[1].all() else holders[0],
        first=holders[1] if causal else None,
        first_is_sink=drops,
        learned=max(1 - float(subject.sums[:, :, text[0]].mean()), 0.0),
        before=near[0] if one_text else None,
        itself=near[1] if one_text else None,
        first_token=item.key_tokens[0].text if causal else "",
    )


def sinks_in_words(shares: SinkShares | None) -> str:
    """One line: what goes to sinks, and where the rest goes; empty where nothing is known."""
    if shares is None:
        return ""
    verdict = "a sink" if shares.first_is_sink else "no sink"
    name = f"'{shares.first_token}', " if shares.first_token else ""
    holders = {
        "special tokens": shares.special,
        f"the first token ({name}{verdict})": shares.first,
        "a learned sink": shares.learned,
    }
    parts = [f"on {name} {percent(x)}" for name, x in holders.items() if x is not None]
    line = f"attention {', '.join(parts)}"
    if shares.before is not None and shares.itself is not None:
        line += (
            f"; of the rest {percent(shares.before)} goes to the token before and "
            f"{percent(shares.itself)} to the token itself"
        )
    return line


def notable_holders(attention: Attention, *, in_words: bool = False) -> tuple[str, ...]:
    """A note if special tokens or a sink hold much of the main map.

    What is shown `in_words` leaves special tokens out, and says so itself.

    A sink is a key that takes the attention of most rows whatever they say. Untrained models and
    attributions to an output have none.
    """
    item = attention.main
    if (
        item.is_pooled
        or item.query_side == "output"
        or item.values != "share"
        or attention.provenance.trained is False
        or not item.weights.sum()
    ):
        return ()
    textual = np.array([token.kind in TEXTUAL for token in item.key_tokens])
    special = np.array([*map(is_mark, item.key_tokens)])
    share = _notable_share(item, special)
    if share and in_words:
        return ()
    if share:
        tokens = zip(item.key_tokens, special.tolist(), strict=True)
        names = dict.fromkeys(f"'{token.text}'" for token, own in tokens if own)
        return (
            f"special tokens ({', '.join(list(names)[:3])}) hold {share:.0%} of the attention "
            "shown: --special drop leaves them out",
        )
    place = int((item.weights.sum(axis=(0, 1, 2)) * textual).argmax())
    is_gone = not item.begins or (in_words and first_is_sink(item))
    if not textual[place] or (not place and is_gone):
        return ()
    # A sink needs several rows that agree.
    rows = len(item.query_tokens)
    if rows > 1 and (share := _notable_share(item, np.arange(len(special)) == place)):
        position = item.position(1, place)
        name = f"'{item.key_tokens[place].text}'"
        # Groups in a part of a text have no numbers: what stands before the part is not known.
        before = attention.text_of(item.key_side)[: item.key_tokens[0].start]
        if item.starts[1] or not before.strip():
            name = f"{f'token {position}' if position else 'the first token'} ({name})"
        drop = ": --special drop leaves it out" if not place and first_is_sink(item) else ""
        return (f"{name} holds {share:.0%} of the attention shown: a sink{drop}",)
    return ()


def percent(share: float) -> str:
    return "under 1%" if 0 < share < 0.005 else f"{share:.0%}"


def text_rows(tokens: Sequence[Token]) -> list[int]:
    """The places of an axis without special tokens; all places if none is left.

    Keys of another kind stay: these are left out by their names.
    """
    left = [place for place, token in enumerate(tokens) if not is_mark(token)]
    return left or list(range(len(tokens)))


def _notable_share(item: AttentionMap, keys: NDArray[np.bool_]) -> float:
    """The share of attention on some columns; 0 if it is small, all of it, or close to chance."""
    share = _share(item.weights, keys)
    uniform = _share(masks.uniform_attention(masks.visible_keys(item))[:, None], keys)
    return share if SINK_SHARE <= share < 1 and share >= BEYOND_UNIFORM * uniform else 0.0


def _share(weights: NDArray[np.floating], keys: Sequence[bool] | NDArray[np.bool_]) -> float:
    by_key = weights.sum(axis=(0, 1, 2), dtype=np.float64)
    total = by_key.sum()
    return float(by_key[np.asarray(keys, dtype=bool)].sum() / total) if total else 0.0
