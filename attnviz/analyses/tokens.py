"""Labels of tokens, and ways to treat special tokens and sinks.

In most models special tokens ([CLS], <eos>) and the first token take most of the attention (Clark
et al. 2019, section 3.2; Xiao et al. 2023, section 3.1) and hide the links between words. A picture
that leaves them out silently would show attention that is not there, so a note says it.

A first token that is a word has a place in the text: its row and column stay, and are empty.
"""

from collections.abc import Sequence
from dataclasses import replace

from attnviz.analyses import sinks
from attnviz.analyses.masks import map_shares
from attnviz.analyses.words import with_tokens, word_numbers
from attnviz.core.attention_map import (
    BETWEEN_SIDES,
    IMPLIED,
    KINDS,
    SPECIAL,
    Attention,
    AttentionMap,
    MeasuredLink,
    Token,
    check_single_tokens,
)
from attnviz.core.errors import InputError, UsageError, choose, in_words
from attnviz.core.options import Special
from attnviz.core.options.option import names_in
from attnviz.core.tokens import (
    begins_causal,
    count_kinds,
    first_is_sink,
    is_mark,
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


def parse_special(special: str) -> tuple[str, tuple[str, ...]]:
    """What happens to which kinds of keys: "drop:compressed,source" drops two kinds.

    Raises:
        UsageError: an unknown way or kind, or kinds that are kept.
    """
    how, colon, names = special.partition(":")
    choose(how, names_in(Special), "value of --special")
    if colon and how == "keep":
        raise UsageError(f"--special {special}: kinds are dropped or renormalised: drop:{names}")
    kinds = [one.strip() for one in names.split(",")] if colon else [SPECIAL]
    for kind in kinds:
        choose(kind, (SPECIAL, *KINDS), "kind of key")
    return how, tuple(dict.fromkeys(kinds))


def treat_special(attention: Attention, how: str, kinds: tuple[str, ...] = (SPECIAL,)) -> Attention:
    """Every map without its special tokens, or keys of other kinds; a note gives their share.

    "keep" changes nothing. "drop" leaves out the rows and columns of special tokens, except on an
    axis of special tokens only, and what the first token of a causal text gets where it is a sink;
    rows then sum to their attention to other text. "renormalise" also scales rows to sum to 1, so
    that a learned sink has no share either; a row without attention to other text is 0.

    `kinds` are names in `KINDS`, or "special". Where only keys of one text are left, these are
    tokens again: the map without its compressed tokens is one of the text over itself.

    Raises:
        UsageError: "renormalise" of signed values; kinds of which no map has a key, or no other.
    """
    if how == "keep":
        return attention
    if others := [kind for kind in kinds if kind != SPECIAL]:
        attention, steps, notes = _without_kinds(attention, how, others)
        attention = attention.with_maps(attention.maps, *steps, notes=notes)
        if SPECIAL not in kinds:
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
        rows, columns = map(sinks.text_rows, (item.query_tokens, item.key_tokens))
        if link.query_position not in rows or link.key_position not in columns:
            return None
        query, key = rows.index(link.query_position), columns.index(link.key_position)
        return replace(one, link=replace(link, query_position=query, key_position=key))

    return attention.with_maps(maps, *steps, notes=notes).with_links(move_link)


def _without_kinds(
    attention: Attention, how: str, kinds: Sequence[str]
) -> tuple[Attention, list[str], list[str]]:
    """Maps without keys of some kinds, what was done, and a note on what these held."""
    there = dict.fromkeys(kind for item in attention.maps for kind in count_kinds(item.key_tokens))
    for kind in kinds:
        if kind not in there:
            raise UsageError(f"no key is of the kind '{kind}': there are {in_words(there, 'and')}")
    maps, shares = list[AttentionMap](), list[str]()
    for item in attention.maps:
        counts = count_kinds(item.key_tokens)
        own = [kind for kind in kinds if kind in counts]
        if not own or (len(counts) == 1 and item is not attention.main):
            maps.append(item)
            continue
        if len(own) == len(counts):
            raise UsageError(
                f"--special {how}:{','.join(kinds)} leaves no key of stream '{item.stream}': "
                f"all are of the kind {in_words(own, 'and')}"
            )
        check_single_tokens(item, f"--special {how}")
        by_kind = sinks.held_by_kinds(item)
        shares += (f"{KINDS[kind]} {sinks.percent(by_kind[kind])} of {item.stream}" for kind in own)
        maps.append(_cut_kinds(attention, item, how, own))
    sums = "sum to less than 1" if how == "drop" else "were made to sum to 1 again"
    action = "dropped" if how == "drop" else "dropped, rows to 1"
    names = in_words([KINDS[kind] for kind in kinds], "and")
    notes = [f"left out: {', '.join(shares)}; rows {sums}"]
    sink = sinks.learned_part(attention, attention.main) if how == "renormalise" else None
    if sink is not None:
        notes.append(f"a learned sink held {sinks.percent(sink)}; rows {sums}")
    return replace(attention, maps=tuple(maps)), [f"{names} {action}"], notes


def _cut_kinds(
    attention: Attention, item: AttentionMap, how: str, kinds: Sequence[str]
) -> AttentionMap:
    """A map without keys of some kinds."""
    if how == "renormalise" and item.values == "signed":
        raise UsageError(
            f"stream '{item.stream}' holds signed values, which cannot be made to sum to 1: "
            "use --special drop"
        )
    places = [place for place, one in enumerate(item.key_tokens) if one.kind not in kinds]
    weights = item.weights[..., places]
    tokens = [item.key_tokens[place] for place in places]
    sides = item.key_side.split(BETWEEN_SIDES)
    names = dict(zip(count_kinds(item.key_tokens), sides, strict=False))
    left = [*count_kinds(tokens)]
    if left == ["source"]:  # its places are those in the source again
        length = len(attention.text_of(names["token"])) if "token" in names else 0
        shift = length + 1 if length else 0
        tokens = [_move_back(token, shift) for token in tokens]
    return item.with_weights(
        map_shares(weights) if how == "renormalise" else weights,
        key_tokens=tuple(tokens),
        key_side=BETWEEN_SIDES.join(names.get(kind, item.key_side) for kind in left),
    )


def _move_back(token: Token, shift: int) -> Token:
    has_place = token.end > token.start
    start, end = (token.start - shift, token.end - shift) if has_place else (0, 0)
    return replace(token, start=start, end=end, kind="token")


def _steps_and_notes(attention: Attention, how: str) -> tuple[list[str], list[str]]:
    """What is done to maps without special tokens and sinks, and what these held."""
    shares = ", ".join(
        f"{sinks.percent(sinks.held_by_special(item))} of {item.stream}"
        for item in attention.maps
        if item.values == "share" and len(sinks.text_rows(item.key_tokens)) < len(item.key_tokens)
    )
    action, sums = "dropped", "sum to less than 1"
    if how == "renormalise":
        action, sums = "dropped, rows to 1", "were made to sum to 1 again"
    steps, notes = list[str](), list[str]()
    if shares:
        steps.append(f"special tokens {action} ({shares})")
        notes.append(f"special tokens were left out; they held {shares}; rows {sums}")
    if cut := [item for item in attention.maps if first_is_sink(item)]:
        names = ", ".join(dict.fromkeys(f"'{item.key_tokens[0].text}'" for item in cut))
        parts = ((sinks.percent(sinks.held_by_first(item)), item.stream) for item in cut)
        amounts = ", ".join(f"{share} of {stream}" for share, stream in parts)
        steps.append(f"special first token {names} {action} ({amounts})")
        notes.append(
            f"the first token ({names}) is a sink and was left out; it held {amounts}; rows "
            f"{sums}, and its own row is empty: it sees nothing else"
        )
    sink = sinks.learned_part(attention, attention.main) if how == "renormalise" else None
    if sink is not None:
        notes.append(f"a learned sink held {sinks.percent(sink)}; rows {sums}")
    rows = (side for item in attention.maps for side in (item.query_tokens, item.key_tokens))
    special = any(is_mark(token) for row in rows for token in row)
    if not (special or notes):
        first = ", and the first is no sink" if begins_causal(attention.main) else ""
        notes.append(f"no token is known to be special{first}: none was left out")
    if not steps and (special or how == "renormalise"):
        steps.append(f"special tokens {action}")
    return steps, notes


def _remove_special(item: AttentionMap, how: str) -> AttentionMap:
    if how == "renormalise" and item.values == "signed":
        raise UsageError(
            f"stream '{item.stream}' holds signed values, which cannot be made to sum to 1: "
            "use --special drop"
        )
    item = without_first(item) if first_is_sink(item) else item
    queries, keys = sinks.text_rows(item.query_tokens), sinks.text_rows(item.key_tokens)
    weights = item.weights[:, :, queries][..., keys]
    if how == "renormalise":
        weights = map_shares(weights)
    return item.with_weights(
        weights,
        query_tokens=tuple(item.query_tokens[place] for place in queries),
        key_tokens=tuple(item.key_tokens[place] for place in keys),
        begins=item.begins and not keys[0],
    )
