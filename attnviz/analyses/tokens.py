"""Labels of tokens, and ways to treat special tokens and sinks.

In most models special tokens ([CLS], <eos>) and the first token take most of the attention (Clark
et al. 2019, section 3.2; Xiao et al. 2023, section 3.1) and hide the links between words. A picture
that leaves them out silently would show attention that is not there, so a note says it.

A first token that is a word has a place in the text: its row and column stay, and are empty.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.folds import OnKeys, OnOne, sums_on
from attnviz.analyses.lenses.layered import map_shares
from attnviz.analyses.masks import MeasuredMap, uniform_attention, visible_keys, within_one_text
from attnviz.analyses.words import with_tokens, word_numbers, word_partition
from attnviz.core.attention_map import (
    IMPLIED,
    Attention,
    AttentionMap,
    MeasuredLink,
    Token,
    check_single_tokens,
)
from attnviz.core.errors import InputError, UsageError, choose
from attnviz.core.measures import SinkShares
from attnviz.core.options import Special, names_in
from attnviz.core.tokens import (
    BEYOND_UNIFORM,
    SINK_SHARE,
    begins_causal,
    first_is_sink,
    run_of,
    text_places,
    without_first,
)


def label_tokens(attention: Attention, labels: Sequence[str]) -> Attention:
    """Put a label on each token that stands for text; "O" is no label.

    The labels are one for each such token, or one for each word. In a pair, the main map's queries
    get them, or its keys if all queries are special.

    Raises:
        InputError: the number of labels is neither that of tokens nor that of words.
    """
    main = attention.main
    check_single_tokens(main, "labelling")
    side, tokens = main.query_side, main.query_tokens
    part = side == main.key_side and len(main.key_tokens) > len(tokens)
    if part or all(token.special for token in tokens):
        side, tokens = main.key_side, main.key_tokens
    return with_tokens(attention, {side: _label(tokens, labels, attention.text_of(side))})


def _label(tokens: Sequence[Token], labels: Sequence[str], text: str) -> tuple[Token, ...]:
    plain = text_places(tokens)
    numbers = [number or 0 for number in word_numbers([tokens[place] for place in plain], text)]
    if len(labels) == len(plain):
        numbers = list(range(len(plain)))
    elif not (numbers and text) or len(labels) != numbers[-1] + 1:
        raise InputError(
            f"{len(labels)} labels for {len(plain)} tokens: "
            + " ".join(tokens[place].text for place in plain)[:200]
        )
    with_labels = list(tokens)
    for place, number in zip(plain, numbers, strict=True):
        label = labels[number]
        with_labels[place] = replace(tokens[place], label=None if label == "O" else label)
    return tuple(with_labels)


def check_special(how: str) -> None:
    """Refuse an unknown way to treat special tokens with a UsageError."""
    choose(how, names_in(Special), "way to treat special tokens")


def treat_special(attention: Attention, how: str) -> Attention:
    """Every map without its special tokens; a note gives their share.

    "keep" changes nothing. "drop" leaves out the rows and columns of special tokens, except on an
    axis of special tokens only, and what the first token of a causal text gets where it is a sink;
    rows then sum to their attention to other text. "renormalise" also scales rows to sum to 1, so
    that a learned sink has no share either; a row without attention to other text is 0.

    Raises:
        UsageError: "renormalise" of signed values.
    """
    if how == "keep":
        return attention
    steps, notes = _steps_and_notes(attention, how)
    if not steps:
        return attention.with_maps(attention.maps, notes=notes)
    for item in attention.maps:
        check_single_tokens(item, f"--special {how}")
    maps = tuple(
        # The rows of implied matrices are signed: they cannot be scaled to sum to 1.
        _remove_special(
            item, "drop" if item.stream == IMPLIED and item is not attention.main else how
        )
        for item in attention.maps
    )
    before = {item.stream: item for item in attention.maps}

    def move_link(one: MeasuredLink) -> MeasuredLink | None:
        item, link = before.get(one.stream), one.link
        if item is None:
            return None
        rows, columns = map(_text_places, (item.query_tokens, item.key_tokens))
        if link.query_position not in rows or link.key_position not in columns:
            return None
        query, key = rows.index(link.query_position), columns.index(link.key_position)
        return replace(one, link=replace(link, query_position=query, key_position=key))

    return attention.with_maps(maps, *steps, notes=notes).with_links(move_link)


def _steps_and_notes(attention: Attention, how: str) -> tuple[list[str], list[str]]:
    """What is done to maps without special tokens and sinks, and what these held."""
    shares = ", ".join(
        f"{_percent(held_by_special(item))} of {item.stream}"
        for item in attention.maps
        if item.values == "share" and len(_text_places(item.key_tokens)) < len(item.key_tokens)
    )
    action, sums = "dropped", "sum to less than 1"
    if how == "renormalise":
        action, sums = "dropped, rows to 1", "were made to sum to 1 again"
    steps, notes = list[str](), list[str]()
    if shares:
        steps.append(f"special tokens {action} ({shares})")
        notes.append(f"special tokens were left out; they held {shares}; rows {sums}")
    if sinks := [item for item in attention.maps if first_is_sink(item)]:
        names = ", ".join(dict.fromkeys(f"'{item.key_tokens[0].text}'" for item in sinks))
        amounts = ", ".join(f"{_percent(held_by_first(item))} of {item.stream}" for item in sinks)
        steps.append(f"special first token {names} {action} ({amounts})")
        notes.append(
            f"the first token ({names}) is a sink and was left out; it held {amounts}; rows "
            f"{sums}, and its own row is empty: it sees nothing else"
        )
    sink = _learned_share(attention, attention.main) if how == "renormalise" else None
    if sink is not None:
        notes.append(f"a learned sink held {_percent(sink)}; rows {sums}")
    rows = (side for item in attention.maps for side in (item.query_tokens, item.key_tokens))
    special = any(token.special for row in rows for token in row)
    if not (special or notes):
        first = ", and the first is no sink" if begins_causal(attention.main) else ""
        notes.append(f"no token is known to be special{first}: none was left out")
    if not steps and (special or how == "renormalise"):
        steps.append(f"special tokens {action}")
    return steps, notes


def held_by_special(item: AttentionMap) -> float:
    """The share of the text rows' attention that special tokens receive."""
    rows = item.weights[:, :, run_of(_text_places(item.query_tokens))]
    return _share(rows, [token.special for token in item.key_tokens])


def held_by_first(item: AttentionMap) -> float:
    """The share of attention that the first token of a causal text receives from those behind."""
    later = [place for place in _text_places(item.query_tokens) if place]
    rows = item.weights[:, :, run_of(later)]
    return _share(rows, [not place for place in range(len(item.key_tokens))])


def _learned_share(attention: Attention, item: AttentionMap) -> float | None:
    """What a learned sink takes of a text's rows; None: there is none, or columns are left out."""
    cut = item.starts[1] or any(" dropped" in step for step in attention.provenance.steps)
    if not attention.learned_sink or cut or item.values != "share":
        return None
    text = run_of(_text_places(item.query_tokens))
    rows = item.weights[:, :, text].sum(axis=-1, dtype=np.float64)
    return max(1 - float(rows.mean()), 0.0)


def sink_shares(attention: Attention, subject: MeasuredMap | None = None) -> SinkShares | None:
    """What goes to sinks in the main map, and where the rest goes; None: it is not known.

    `subject`: the map prepared for measures. What special tokens get is told of the rows of words,
    all else of the rows of tokens.

    Of blocks, of a picture, of what is no share and of weights that were not learned it is not.
    """
    item = attention.main
    picture = "picture" in (item.key_side, item.query_side)
    if attention.in_blocks:
        return None if picture else _shares_in_blocks(attention)
    if item.is_pooled or picture or item.values != "share" or item.query_side == "output":
        return None
    sums = item.weights.sum(axis=-1, dtype=np.float64)
    if attention.provenance.trained is False or attention.lens_name != "raw" or sums.max() > 1.001:
        return None
    special = any(token.special for token in item.key_tokens)
    causal = begins_causal(item) and bool(item.weights[..., 0].any())
    learned_share = _learned_share(attention, item)
    if not (special or causal) and learned_share is None:
        return None
    is_sink = first_is_sink(item)
    words = (subject or MeasuredMap(item, attention.texts_of(item))).words
    shares = SinkShares(
        special=held_by_special(words.item) if special else None,
        first=held_by_first(item) if causal else None,
        first_is_sink=is_sink,
        learned=learned_share,
        first_token=item.key_tokens[0].text if causal else "",
    )
    if not within_one_text(item):
        return shares
    rows, keys = (
        run_of([place for place in _text_places(side) if place or not is_sink])
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


def sink_shares_by_rows(subject: MeasuredMap) -> SinkShares:
    """The same, by what each row gives to some keys, of a text that is read in blocks of rows.

    What a learned sink takes is what rows leave, if there is one.
    """
    item = subject.item
    text = [
        np.array([not x.special for x in side]) for side in (item.query_tokens, item.key_tokens)
    ]
    places, one_text = np.flatnonzero(text[1]), within_one_text(item)
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
    words = np.array(word_partition(item.query_tokens, subject.texts[0]).groups)
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


def mean_shares(texts: Sequence[SinkShares]) -> SinkShares | None:
    """The means over texts, each share over those that have it."""
    if not texts:
        return None

    def mean(name: str) -> float | None:
        values = [x for one in texts if (x := getattr(one, name)) is not None]
        return sum(values) / len(values) if values else None

    names = {one.first_token for one in texts}
    return SinkShares(
        **{name: mean(name) for name in ("special", "first", "learned", "before", "itself")},
        first_is_sink=2 * sum(one.first_is_sink for one in texts) > len(texts),
        first_token=texts[0].first_token if len(names) == 1 else "",
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
    parts = [f"on {name} {_percent(x)}" for name, x in holders.items() if x is not None]
    line = f"attention {', '.join(parts)}"
    if shares.before is not None and shares.itself is not None:
        line += (
            f"; of the rest {_percent(shares.before)} goes to the token before and "
            f"{_percent(shares.itself)} to the token itself"
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
    special = np.array([token.special for token in item.key_tokens])
    share = _notable_share(item, special)
    if share and in_words:
        return ()
    if share:
        names = dict.fromkeys(f"'{token.text}'" for token in item.key_tokens if token.special)
        return (
            f"special tokens ({', '.join(list(names)[:3])}) hold {share:.0%} of the attention "
            "shown: --special drop leaves them out",
        )
    place = int(item.weights.sum(axis=(0, 1, 2)).argmax())
    if not place and (not item.begins or (in_words and first_is_sink(item))):
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


def _remove_special(item: AttentionMap, how: str) -> AttentionMap:
    if how == "renormalise" and item.values == "signed":
        raise UsageError(
            f"stream '{item.stream}' holds signed values, which cannot be made to sum to 1: "
            "use --special drop"
        )
    item = without_first(item) if first_is_sink(item) else item
    queries, keys = _text_places(item.query_tokens), _text_places(item.key_tokens)
    weights = item.weights[:, :, queries][..., keys]
    if how == "renormalise":
        weights = map_shares(weights)
    return item.with_weights(
        weights,
        query_tokens=tuple(item.query_tokens[place] for place in queries),
        key_tokens=tuple(item.key_tokens[place] for place in keys),
        begins=item.begins and not keys[0],
    )


def _percent(share: float) -> str:
    return "under 1%" if 0 < share < 0.005 else f"{share:.0%}"


def _text_places(tokens: Sequence[Token]) -> list[int]:
    """The places of an axis that stand for text; all places if none does."""
    return text_places(tokens) or list(range(len(tokens)))


def _notable_share(item: AttentionMap, keys: NDArray[np.bool_]) -> float:
    """The share of attention on some columns; 0 if it is small, all of it, or close to chance."""
    share = _share(item.weights, keys)
    uniform = _share(uniform_attention(visible_keys(item))[:, None], keys)
    return share if SINK_SHARE <= share < 1 and share >= BEYOND_UNIFORM * uniform else 0.0


def _share(weights: NDArray[np.floating], keys: Sequence[bool] | NDArray[np.bool_]) -> float:
    by_key = weights.sum(axis=(0, 1, 2), dtype=np.float64)
    total = by_key.sum()
    return float(by_key[np.asarray(keys, dtype=bool)].sum() / total) if total else 0.0
