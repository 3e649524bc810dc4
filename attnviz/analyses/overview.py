"""What a reader sees first of a text: what its heads say of it, and the matrix of one of them.

Words stand for their pieces, special tokens are left out and rows are made to sum to 1, so that the
links of heads are cells of the matrix under them (see `informative` for what a head says).
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from attnviz.analyses.heads import roles_by_place, run_measure
from attnviz.analyses.kv_groups import LIKENESS, groups_in_words, likeness_of, sizes_of
from attnviz.analyses.masks import MeasuredMap
from attnviz.analyses.select import reduce_map, strongest_links
from attnviz.analyses.sinks import held_by_special, sink_shares
from attnviz.analyses.view import describe_run, orientation
from attnviz.analyses.word_links import LEAST_WORDS, WordLinks
from attnviz.core.attention_map import TEXTUAL, Attention, AttentionMap, Link, Token
from attnviz.core.errors import in_words
from attnviz.core.measures import HeadLinks, Overview
from attnviz.core.registry import axis_name
from attnviz.core.tokens import run_of, text_places

MOST_HEADS, MOST_LINKS, MOST_PARTS = 3, 4, 16
HALF = 0.5
Place = tuple[int, int]
_BROKEN = re.compile(r"^\S+(?=\s)")  # the end of a word that began in the part before


def overviews(
    attention: Attention, *, as_chosen: bool = False, each: bool = False
) -> list[Overview]:
    """What is seen first, of `each` head where the reader named them; empty as `overview`."""
    item = attention.main
    if not each or item.weights.shape[:2] == (1, 1):
        return [view] if (view := overview(attention, as_chosen=as_chosen)) else []
    ones = (item.part([layer], [head]) for layer in item.layers for head in item.heads)
    views = (overview(replace(attention, maps=(one,)), as_chosen=True) for one in ones)
    return [view for view in views if view]


def overview(attention: Attention, *, as_chosen: bool = False) -> Overview | None:
    """What is seen first; None of pictures, effects, every lens at once and a text of one word.

    `as_chosen`: the reader chose the heads, so that none comes first for another reason.
    """
    item = attention.main
    picture = "picture" in (item.key_side, item.query_side)
    if picture or attention.lens_name == "all" or item.values != "share" or not item.weights.size:
        return None
    if any(token.kind not in TEXTUAL for token in item.key_tokens):  # words would leave them out
        return None
    if item.is_pooled:
        return _of_blocks(attention, item)
    subject = MeasuredMap(item, attention.texts_of(item))
    subject.group_sizes = sizes_of(attention, item)
    if subject.sums.max() > 1 + 1e-3:  # flows of a rollout are no shares of a row
        return None
    links = WordLinks(subject)
    if len(text_places(links.item.key_tokens)) < 2 or not text_places(links.item.query_tokens):
        return None
    places, note = _places(attention, links, as_chosen=as_chosen)
    sayings: dict[Place, tuple[Link, ...]] = {}
    for place in places:  # each takes a fit of its own, and a large model has a thousand heads
        if len(sayings) < MOST_HEADS and (own := _links_of(links, *place)):
            sayings[place] = own
    top = [*sayings]
    alone = links.item.weights.shape[:2] == (1, 1)
    first = (0, 0) if alone else next(iter(top or places), None)
    matrix, which = _matrix(item, links, first)
    grouped_heads = subject.group_sizes and not alone
    alike = likeness_of(item, run_measure(LIKENESS, subject)) if grouped_heads else {}
    groups = groups_in_words(alike, subject.group_sizes)
    focus = None if as_chosen else attention.focus.get(item.stream)
    if focus and first is not None and _names(item, first) == (focus.layer, focus.head):
        which += f" ({focus.why})"
    return Overview(
        run=describe_run(attention, item),
        shares=_shares_in_words(attention, subject),
        heads=tuple(HeadLinks(*_names(item, place), sayings[place]) for place in top),
        others="" if alone else _others(subject, top),
        note=note,
        map=matrix,
        which=which,
        orientation=orientation(item),
        resting=_resting(links, first),
        order=_order(links, first, matrix),
        numbers=_numbers(item, links.item),
        groups=groups,
    )


def _places(attention: Attention, links: WordLinks, *, as_chosen: bool) -> tuple[list[Place], str]:
    """Heads that say more than an even look, what says most first; and why these are none."""
    item = attention.main
    if attention.provenance.trained is False:
        many = item.weights.shape[:2] != (1, 1)
        return [], "untrained weights: no head says anything of the text" if many else ""
    focus = None if as_chosen else attention.focus.get(item.stream)
    ahead: list[Place] = []
    if focus and focus.layer in item.layers and focus.head in item.heads:
        ahead = [(item.layers.index(focus.layer), item.heads.index(focus.head))]
    lift = links.says(links.item.weights) - links.says(links.uniform)
    order = np.argsort(-lift, axis=None, kind="stable")
    ranks = [tuple(map(int, np.unravel_index(at, lift.shape))) for at in order]
    saying = [(layer, head) for layer, head in ranks if lift[layer, head] > 1e-6]
    note = ""
    if links.count < LEAST_WORDS and lift.size > 1:
        note = "too few words to tell heads apart by more than position"
    elif not saying and lift.size > 1:
        note = "position and popular words explain where every head looks in this text"
    return [*ahead, *(place for place in saying if place not in ahead)], note


def _links_of(links: WordLinks, layer: int, head: int) -> tuple[Link, ...]:
    shares, item = links.shares(layer, head), links.item
    rows, keys = text_places(item.query_tokens), text_places(item.key_tokens)
    return tuple(
        Link(
            item.query_tokens[query].text,
            item.key_tokens[key].text,
            float(shares[query, key]),
            *_names(item, (layer, head)),
            rows.index(query),
            keys.index(key),
        )
        for query, key in links.clear(layer, head)[:MOST_LINKS]
    )


def _of_blocks(attention: Attention, item: AttentionMap) -> Overview:
    """Of a long text the strongest single links of heads, and its parts, which blocks make up."""
    by_head: dict[tuple[str, str], list[Link]] = {}
    for link in strongest_links(item, len(item.links)):
        of_head = by_head.setdefault((link.layer, link.head), [])
        if all(link.key_position != one.key_position for one in of_head):
            of_head.append(link)
    ranks = sorted(
        by_head.items(), key=lambda one: -sum(link.weight for link in one[1][:MOST_LINKS])
    )
    results = [HeadLinks(*name, tuple(links[:MOST_LINKS])) for name, links in ranks[:MOST_HEADS]]
    last = reduce_map(item.part(item.layers[-1:]), "mean", "heads")
    parts = _parts(last, attention.texts_of(item))
    which = f"mean over the heads of {axis_name('layer', item.layers[-1])}"
    chosen_by = "; heads are chosen by their strongest single links" if results else ""
    return Overview(
        run=describe_run(attention, item),
        shares=f"shares of a token's attention{chosen_by}",
        heads=tuple(results),
        others="",
        note="blocks do not show which single links position explains: --rows A-B shows exact rows",
        map=parts,
        which=f"{which}, in parts of the text",
        orientation=orientation(item),
        resting=(),
        order=(),
    )


def _parts(item: AttentionMap, texts: tuple[str, str]) -> AttentionMap:
    """A map of blocks in at most `MOST_PARTS` parts: means over their rows, sums over their keys.

    A part is named by its first token's number and its first words.
    """
    weights, sides = item.weights[0, 0].astype(np.float64), []
    for axis, (tokens, text) in enumerate(
        zip((item.query_tokens, item.key_tokens), texts, strict=True)
    ):
        edges = np.arange(0, len(tokens), -(-len(tokens) // MOST_PARTS))
        weights = np.add.reduceat(weights, edges, axis=axis)
        if axis == 0:
            weights /= np.diff(edges, append=len(tokens))[:, None]
        sides.append(
            tuple(
                Token(
                    f"{item.starts[axis] + edge * item.blocks[axis]} {_beginning(text, start)}",
                    start,
                    tokens[edge].end,
                )
                for edge in edges.tolist()
                for start in [tokens[edge].start]
            )
        )
    return item.with_weights(
        weights[None, None].astype(np.float32),
        query_tokens=sides[0],
        key_tokens=sides[1],
        starts=(0, 0),  # the names have the numbers
    )


def _beginning(text: str, start: int) -> str:
    """The first whole words behind a place of a text."""
    words = text[max(start - 1, 0) : start + 40]
    return " ".join((_BROKEN.sub("", words) if start else words).split()[:3])


def _names(item: AttentionMap, place: Place) -> tuple[str, str]:
    return item.layers[place[0]], item.heads[place[1]]


def _matrix(item: AttentionMap, links: WordLinks, first: Place | None) -> tuple[AttentionMap, str]:
    """The matrix over words of one head, or of the mean of the last layer, and which it is."""
    words = links.item
    if first is None:
        mean = reduce_map(words.part(words.layers[-1:]), "mean", "heads")
        layer, head = 0, 0
        links, words = WordLinks(MeasuredMap(mean)), mean
        which = f"mean over the heads of {axis_name('layer', item.layers[-1])}"
    else:
        layer, head = first
        names = zip(("layer", "head"), item.place(layer, head), strict=True)
        which = " ".join(axis_name(*name) for name in names)
    rows, keys = text_places(words.query_tokens), text_places(words.key_tokens)
    shares = links.shares(layer, head)[rows][:, keys]
    one = words.part([words.layers[layer]], [words.heads[head]])
    return one.with_weights(
        shares[None, None],
        query_tokens=tuple(words.query_tokens[row] for row in rows),
        key_tokens=tuple(words.key_tokens[key] for key in keys),
        starts=(0, 0),  # words have no one number: see `_numbers`
    ), which


def _numbers(item: AttentionMap, words: AttentionMap) -> tuple[int, ...]:
    """The number in the text of each word's first token, of rows that begin later in it."""
    if not item.starts[0]:
        return ()
    places = text_places(words.query_tokens)
    if len(words.query_tokens) < len(item.query_tokens):
        ends = np.maximum.accumulate([token.end for token in item.query_tokens])
        starts = [words.query_tokens[place].start for place in places]
        places = np.searchsorted(ends, starts, side="right").tolist()
    return tuple(item.position(0, place) for place in places)


def _order(links: WordLinks, first: Place | None, matrix: AttentionMap) -> tuple[int, ...]:
    rows = len(matrix.query_tokens)
    if first is None:
        return tuple(range(rows))
    text = text_places(links.item.query_tokens)
    return tuple(np.argsort(-links.peaks[2][first][text], kind="stable").tolist())


def _resting(links: WordLinks, first: Place | None) -> tuple[Link, ...]:
    """Words that give special tokens more than half, the most first."""
    if first is None:
        return ()
    item = links.item
    special = [place for place, token in enumerate(item.key_tokens) if token.special]
    weights = item.weights[*first]
    results = []
    for row, token in enumerate(item.query_tokens):
        word = not token.special and any(map(str.isalnum, token.text))
        if word and special and weights[row, special].sum() > HALF:
            key = max(special, key=lambda at: float(weights[row, at]))
            share = float(weights[row, special].sum())
            name = item.key_tokens[key].text
            results.append(Link(token.text, name, share, *_names(item, first), row, key))
    return tuple(sorted(results, key=lambda link: -link.weight))


def _shares_in_words(attention: Attention, subject: MeasuredMap) -> str:
    """What the numbers are, and what was left out or scaled for rows to sum to 1."""
    item = subject.words.item
    whose = "a row's" if any("group" in step for step in attention.provenance.steps) else "a word's"
    text = f"shares of {whose} attention"
    if attention.main.starts[0]:
        text += "; a row has the number of its first token"
    text_rows = run_of(text_places(item.query_tokens))
    rows = item.weights[:, :, text_rows].sum(axis=-1, dtype=np.float64)
    sums = rows[~np.isnan(rows)]
    mass = float(sums.mean()) if sums.size else 1.0
    shares = sink_shares(attention, subject)
    learned_sink = shares.learned if shares else None
    if mass < 0.99 and learned_sink is None:  # tokens were left out before
        text += f"; rows hold {mass:.0%}, and are scaled to sum to 1"
    special = [token.special for token in item.key_tokens]
    parts = [f"special tokens ({held_by_special(item):.0%})"] if any(special) else []
    if shares and shares.first_is_sink:
        parts.append(f"the first token ('{shares.first_token}', {shares.first:.0%}, a sink)")
    if learned_sink is not None:
        parts.append(f"a learned sink ({learned_sink:.0%})")
    if parts:
        return f"{text}; {in_words(parts, 'and')} left out, rows sum to 1"
    if shares and shares.first is not None:
        text += f"; the first token holds {shares.first:.0%}, no sink"
    return text


def _others(subject: MeasuredMap, top: Sequence[Place]) -> str:
    """What the other heads do, by their clearest roles."""
    item = subject.item
    roles = roles_by_place(subject)
    rest = [place for place in np.ndindex(item.weights.shape[:2]) if place not in top]
    if not rest:
        return ""
    names = [roles[place].label.replace("-", " ") for place in rest if place in roles]
    counts = [f"{count} {name}" for name, count in Counter(names).most_common()]
    counts = [text.replace(" rests on", " rest on") for text in counts]
    if without := len(rest) - len(names):
        counts.append(f"{without} mixed")
    who = f"the other {len(rest)}" if top else f"of {len(rest)} heads"
    if len(rest) == 1 and top:
        return f"the other head: {counts[0].partition(' ')[2]}".replace(" rest on", " rests on")
    return f"{who}: {', '.join(counts)}"
