"""Parts of a model by name, switched off together and one by one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.effects import effects_of
from attnviz.core.attention_map import Attention, AttentionMap, Token
from attnviz.core.effects import (
    By,
    Change,
    Effect,
    Experiment,
    HeadAt,
    HeadOutputs,
    LinkAt,
    Prediction,
    TokenAt,
)
from attnviz.core.errors import UsageError, did_you_mean

Each = Literal["heads", "layers", "links", "tokens"]
Part = tuple[Effect, Change]
"""What a part is called, its effect still unknown, and what switches it off."""

LIKELIEST = 5
_NUMBERED = re.compile(r"(.+)\[(\d+)\]")
_HEAD = re.compile(r"(?:(.+)\.)?(\d+)\.(\d+)")


def named_parts(
    attention: Attention,
    heads: Sequence[str] = (),
    links: Sequence[str] = (),
    tokens: Sequence[str] = (),
) -> list[Part]:
    """The parts that were named: heads "2.0" or "encoder.3.5", links "rouge>red", tokens "red[3]".

    Raises:
        UsageError: there is none of that name, or several; the message says what there is.
    """
    return [
        *(_head(attention, name) for name in heads),
        *(_link(attention, name) for name in links),
        *(_token(attention, name) for name in tokens),
    ]


def each_part(attention: Attention, each: Each) -> list[Part]:
    """Every head, layer, link (in all heads of its stream at once) or token of a text."""
    found = list[Part]()
    if each == "tokens":
        sides = {item.key_side: item.key_tokens for item in attention.maps}
        return [
            token_part(sides, side, place) for side in sides for place in range(len(sides[side]))
        ]
    for item in attention.maps:
        if each == "links":
            seen = np.argwhere(item.weights.max(axis=(0, 1)) > 0)
            found += [link_part(item, int(query), int(key)) for query, key in seen]
        for layer in item.layers if each != "links" else ():
            if each == "heads":
                found += [head_part(item, layer, head) for head in range(len(item.heads))]
            else:
                found.append(layer_part(item, layer))
    return found


def head_part(item: AttentionMap, layer: str, head: int) -> Part:
    """One head."""
    place: dict[str, str | int] = {"stream": item.stream, "layer": layer, "head": head}
    label = f"{item.stream} layer {layer} head {head}"
    return Effect(label, "head", place, np.nan), Change((HeadAt(item.stream, layer, head),))


def layer_part(item: AttentionMap, layer: str) -> Part:
    """Every head of a layer."""
    heads = tuple(HeadAt(item.stream, layer, head) for head in range(len(item.heads)))
    place: dict[str, str | int] = {"stream": item.stream, "layer": layer}
    return Effect(f"{item.stream} layer {layer}", "layer", place, np.nan), Change(heads)


def link_part(item: AttentionMap, query: int, key: int) -> Part:
    """A link in every head of a stream."""
    tokens = item.query_tokens[query].text, item.key_tokens[key].text
    place: dict[str, str | int] = {"stream": item.stream, "query": query, "key": key}
    label = f"{tokens[0]} → {tokens[1]} ({item.stream})"
    return Effect(label, "link", place, np.nan), Change(links=(LinkAt(item.stream, query, key),))


def token_part(sides: Mapping[str, Sequence[Token]], side: str, position: int) -> Part:
    """A token of a side, hidden as a key."""
    token = sides[side][position]
    where = f" ({side})" if len(sides) > 1 else ""
    place: dict[str, str | int] = {"side": side, "position": position}
    label = f"{token.text}[{position}]{where}"
    return Effect(label, "token", place, np.nan), Change(tokens=(TokenAt(side, position),))


def measured_parts(
    experiment: Experiment, parts: Sequence[Part], instead: HeadOutputs | None = None
) -> list[Effect]:
    """Each part switched off by itself."""
    found = effects_of(experiment, [change for _, change in parts], instead)
    return [
        replace(part, effect=float(row.sum()), of_outputs=tuple(row.tolist()))
        for (part, _), row in zip(parts, found, strict=True)
    ]


def together(parts: Sequence[Part]) -> Part:
    """All parts at once."""
    change = Change()
    for _, one in parts:
        change = change.joined(one)
    return Effect("all of them together", "together", {}, np.nan), change


def predictions(
    experiment: Experiment, change: Change, instead: HeadOutputs | None = None
) -> tuple[Prediction, ...]:
    """Every output as the model is and after a change."""
    before, after = experiment.run([Change(), change], instead)
    return tuple(
        Prediction(
            output.name,
            output.position,
            float(before[place, output.number]),
            float(after[place, output.number]),
            _likeliest(experiment, before[place]),
            _likeliest(experiment, after[place]),
        )
        for place, output in enumerate(experiment.outputs)
    )


def _likeliest(
    experiment: Experiment, scores: NDArray[np.floating]
) -> tuple[tuple[str, float], ...]:
    if np.isnan(scores).any():
        return ()
    best = np.argsort(-scores, kind="stable")[:LIKELIEST]
    return tuple((experiment.spell(int(n)), float(np.exp(scores[n]))) for n in best)


def replacements(
    by: By, banks: Sequence[HeadOutputs], queries: dict[str, int], seed: int = 0
) -> HeadOutputs | None:
    """What takes the place of heads: their means over the positions of texts, or positions drawn.

    `queries` says how many rows each stream needs.
    """
    if by == "zero":
        return None
    joined = {place: np.concatenate([bank[place] for bank in banks], axis=1) for place in banks[0]}
    if by == "mean":
        return {place: rows.mean(axis=1, keepdims=True) for place, rows in joined.items()}
    generator = np.random.default_rng(seed)
    return {
        place: rows[:, generator.integers(rows.shape[1], size=queries[place[0]])]
        for place, rows in joined.items()
    }


def _head(attention: Attention, name: str) -> Part:
    item, layer, head = _named_head(attention, name)
    return head_part(item, layer, head)


def _named_head(attention: Attention, name: str) -> tuple[AttentionMap, str, int]:
    match = _HEAD.fullmatch(name)
    if match is None:
        raise UsageError(
            f"--head '{name}' is no head: write LAYER.HEAD, or STREAM.LAYER.HEAD, such as 2.0"
        )
    stream, layer, head = match[1] or attention.main.stream, match[2], int(match[3])
    items = [item for item in attention.maps if item.stream == stream]
    if not items:
        known = dict.fromkeys(item.stream for item in attention.maps)
        raise UsageError(
            f"--head '{name}': there is no stream '{stream}', but {', '.join(known)}."
            f"{did_you_mean(stream, known)}"
        )
    for item in items:
        if layer in item.layers and head < len(item.heads):
            return item, layer, head
    item = items[0]
    raise UsageError(
        f"there is no head {layer}.{head} in stream '{stream}': layers {item.layers[0]} to "
        f"{items[-1].layers[-1]}, heads 0 to {len(item.heads) - 1}"
    )


def _link(attention: Attention, name: str) -> Part:
    item, pair = attention.main, name
    stream, colon, rest = name.partition(":")
    if colon and stream in {one.stream for one in attention.maps}:
        item, pair = attention.stream(stream), rest
    query, arrow, key = pair.partition(">")
    if not (query and arrow and key):
        raise UsageError(
            f"--link '{name}' is no link: write QUERY>KEY, such as \"rouge>red\", or "
            "STREAM:QUERY>KEY"
        )
    option = f"--link '{name}'"
    return link_part(
        item,
        _position(item.query_tokens, query, option, item.query_side),
        _position(item.key_tokens, key, option, item.key_side),
    )


def _token(attention: Attention, name: str) -> Part:
    sides = {item.key_side: item.key_tokens for item in attention.maps}
    holding = [side for side in sides if list(_places(sides[side], name))]
    option = f"--token '{name}'"
    if len(holding) > 1:
        named = " or ".join(
            f"{side}:{sides[side][place].text}"
            for side in holding
            for place in list(_places(sides[side], name))[:1]
        )
        raise UsageError(f"{option} is in the {' and the '.join(holding)}: write {named}")
    stated, colon, rest = name.partition(":")
    if colon and stated in sides and not holding:
        return token_part(sides, stated, _position(sides[stated], rest, option, stated))
    side = holding[0] if holding else next(iter(sides))
    return token_part(sides, side, _position(sides[side], name, option, side))


def _places(tokens: Sequence[Token], name: str) -> Iterator[int]:
    numbered = _NUMBERED.fullmatch(name)
    for place, token in enumerate(tokens):
        spelt = (token.text, token.text.removeprefix("##"))
        if name in spelt or (numbered and numbered[1] in spelt and int(numbered[2]) == place):
            yield place


def _position(tokens: Sequence[Token], name: str, option: str, side: str) -> int:
    places = list(_places(tokens, name))
    texts = [token.text for token in tokens]
    if len(places) == 1:
        return places[0]
    if places:
        named = " or ".join(f"{texts[place]}[{place}]" for place in places)
        raise UsageError(
            f"{option}: '{name}' stands {len(places)} times in the {side}: write {named}"
        )
    listed = ", ".join(texts[:30]) + (", …" if len(texts) > 30 else "")
    raise UsageError(
        f"{option}: there is no token '{name}' in the {side}, but {listed}."
        f"{did_you_mean(name, texts)}"
    )
