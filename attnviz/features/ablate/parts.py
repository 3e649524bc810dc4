"""Find parts of a model by name, and switch them off together or one by one."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.select import check_selection, select
from attnviz.core.attention_map import Attention, AttentionMap, Token
from attnviz.core.effects import (
    By,
    Effect,
    Experiment,
    HeadAt,
    HeadOutputs,
    Intervention,
    LinkAt,
    TokenAt,
    effects_of,
)
from attnviz.core.errors import InputError, UsageError, did_you_mean
from attnviz.core.tokens import token_label
from attnviz.features.ablate.report import Prediction

Each = Literal["heads", "layers", "links", "tokens", "groups"]
Part = tuple[Effect, Intervention]  # a part, effect still NaN, and what switches it off

LIKELIEST = 5
_NUMBERED = re.compile(r"(.+)\[(\d{1,9})\]", re.DOTALL)
_HEAD = re.compile(r"(?:(.+)\.)?(\d{1,9}\.\d{1,9})")
_LAYER = re.compile(r"(?:(.*[^\d,.-].*)\.)?([^.]*)")


def find_parts(
    attention: Attention,
    heads: Sequence[str] = (),
    links: Sequence[str] = (),
    tokens: Sequence[str] = (),
    layer: str | None = None,
) -> list[Part]:
    """The parts with these names: head "2.0", link "rouge>red", token "red[3]".

    A word of several tokens names all of them, unless one token has its spelling.

    Raises:
        UsageError: no part has the name, or several have; the message lists them.
    """
    return [
        *(part for place in head_places(heads, layer) for part in _heads(attention, *place)),
        *(_link(attention, name) for name in links),
        *(_token(attention, name) for name in tokens),
    ]


def head_places(
    heads: Sequence[str], layer: str | None
) -> list[tuple[str | None, str | None, str | None]]:
    """Stream, layers and heads of each choice by --head and --layer.

    A head is "2.0" or "encoder.2.0", or with layers "0" or "0-3"; a layer is "2" or "encoder.2".

    Raises:
        UsageError: the choice is not valid for any model.
    """
    stream = None
    if layer is not None and (match := _LAYER.fullmatch(layer)):
        stream, layer = match.groups()
    places = []
    for name in (one.strip() for several in heads for one in several.split(",")):
        match = _HEAD.fullmatch(name)
        places.append((match[1], layer, match[2]) if match else (stream, layer, name))
    if layer is not None and not heads:
        places.append((stream, layer, None))
    for _, layers, head in places:
        check_selection(layers, head)
    return places


def each_part(attention: Attention, each: Each) -> list[Part]:
    """Every head, layer, link (in all heads of its stream at once) or token of a text."""
    if each == "tokens":
        sides = _sides(attention)
        return [
            token_part(sides, side, place) for side in sides for place in range(len(sides[side]))
        ]
    if each == "groups":
        return _named_groups(attention)
    parts = list[Part]()
    for item in attention.maps:
        if each == "links":
            cells = np.argwhere(item.weights.max(axis=(0, 1)) > 0)
            parts += [link_part(item, int(query), int(key)) for query, key in cells]
        elif each == "layers":
            parts += [layer_part(item, layer) for layer in item.layers]
        else:
            parts += [head_part(item, at, n) for at in item.layers for n in range(len(item.heads))]
    return parts


def _named_groups(attention: Attention) -> list[Part]:
    """The tokens of each name, hidden together."""
    sides, parts = _sides(attention), dict[str, list[Part]]()
    for side, tokens in sides.items():
        for place, token in enumerate(tokens):
            if token.label is not None:
                parts.setdefault(token.label, []).append(token_part(sides, side, place))
    if not parts:
        raise UsageError("--each groups needs names for tokens: --labels FILE")
    return [_as_one(own, name) for name, own in parts.items()]


def head_part(item: AttentionMap, layer: str, head: int) -> Part:
    label, change = f"{item.stream} layer {layer} head {head}", HeadAt(item.stream, layer, head)
    return _part("head", label, Intervention((change,)), stream=item.stream, layer=layer, head=head)


def layer_part(item: AttentionMap, layer: str) -> Part:
    label = f"{item.stream} layer {layer}"
    heads = tuple(HeadAt(item.stream, layer, head) for head in range(len(item.heads)))
    return _part("layer", label, Intervention(heads), stream=item.stream, layer=layer)


def link_part(item: AttentionMap, query: int, key: int) -> Part:
    ends = token_label(item.query_tokens, query), token_label(item.key_tokens, key)
    change = Intervention(links=(LinkAt(item.stream, query, key),))
    label = f"{ends[0]} → {ends[1]} ({item.stream})"
    return _part("link", label, change, stream=item.stream, query=query, key=key)


def token_part(sides: Mapping[str, Sequence[Token]], side: str, position: int) -> Part:
    """A token of a side, hidden as a key."""
    label = token_label(sides[side], position) + (f" ({side})" if len(sides) > 1 else "")
    change = Intervention(tokens=(TokenAt(side, position),))
    return _part("token", label, change, side=side, position=position)


def _part(kind: str, label: str, change: Intervention, **place: str | int) -> Part:
    return Effect(label, kind, place, np.nan), change


def measure_parts(
    experiment: Experiment, parts: Sequence[Part], instead: HeadOutputs | None = None
) -> list[Effect]:
    """The effect of each part alone."""
    losses = effects_of(experiment, [change for _, change in parts], instead)
    return [
        replace(part, effect=float(row.sum()), of_outputs=tuple(row.tolist()))
        for (part, _), row in zip(parts, losses, strict=True)
    ]


def together(parts: Sequence[Part], label: str = "all of them together") -> Part:
    """All parts at once."""
    return _part("together", label, sum((change for _, change in parts), Intervention()))


def predictions(
    experiment: Experiment, change: Intervention, instead: HeadOutputs | None = None
) -> tuple[Prediction, ...]:
    before, after = experiment.run([Intervention(), change], instead)
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
    by: By, texts: Sequence[HeadOutputs], attention: Attention, seed: int = 0
) -> HeadOutputs | None:
    """The outputs that replace heads: means over the positions of the texts, or random positions.

    One generator draws a position for each query of a layer; the heads of the layer share it. It
    runs through the layers in the order of the attention's maps, as the table of all heads does.

    Raises:
        InputError: no text has one of the streams.
    """
    if by == "zero":
        return None
    for stream in dict.fromkeys(item.stream for item in attention.maps):
        if not any(place[0] == stream for outputs in texts for place in outputs):
            raise InputError(
                f"the texts of --reference have no stream '{stream}' to take from: give pairs for "
                "a pair, single texts for a single one"
            )
    rows_of = {
        place: np.concatenate([outputs[place] for outputs in texts if place in outputs], axis=1)
        for place in dict.fromkeys(place for outputs in texts for place in outputs)
    }
    if by == "mean":
        return {place: rows.mean(axis=1, keepdims=True) for place, rows in rows_of.items()}
    generator = np.random.default_rng(seed)
    drawn_outputs = {}
    for item in attention.maps:
        for layer in item.layers:
            rows = rows_of[item.stream, layer]
            drawn_outputs[item.stream, layer] = rows[
                :, generator.integers(rows.shape[1], size=item.weights.shape[2])
            ]
    return drawn_outputs


def _heads(
    attention: Attention, stream: str | None, layer: str | None, head: str | None
) -> list[Part]:
    """The chosen heads; the chosen layers as wholes if `head` is None."""
    stream = stream or attention.main.stream
    maps = select(attention, stream, layer, head).maps
    whole = {name: one for one in attention.maps if one.stream == stream for name in one.layers}
    if head is None:
        return [layer_part(whole[name], name) for one in maps for name in one.layers]
    return [
        head_part(whole[name], name, whole[name].heads.index(number))
        for one in maps
        for name in one.layers
        for number in one.heads
    ]


def _link(attention: Attention, name: str) -> Part:
    option, item, pair = f"--link '{name}'", attention.main, name
    stream, colon, rest = name.partition(":")
    if colon and stream in {one.stream for one in attention.maps}:
        item, pair = attention.map_of(stream), rest
    places = [place for place, letter in enumerate(pair) if letter == ">"]
    ends = [(pair[:place], pair[place + 1 :]) for place in places if 0 < place < len(pair) - 1]
    if not ends:
        raise UsageError(
            f'{option} is no link: write QUERY>KEY, such as "rouge>red", or STREAM:QUERY>KEY'
        )
    texts = attention.texts_of(item)
    for query, key in ends:  # a token may have the sign in itself: "<fr>><fr>"
        if _places(item.query_tokens, texts[0], query) and _places(item.key_tokens, texts[1], key):
            break
    else:
        query, key = ends[0]
    queries = _positions(attention, item.query_side, item.query_tokens, query, option)
    keys = _positions(attention, item.key_side, item.key_tokens, key, option)
    parts = [link_part(item, one, other) for one in queries for other in keys]
    return _as_one(parts, f"{query} → {key} ({item.stream})")


def _token(attention: Attention, name: str) -> Part:
    sides, option = _sides(attention), f"--token '{name}'"
    holding = [side for side in sides if _places(sides[side], attention.text_of(side), name)]
    prefix, colon, rest = name.partition(":")
    if len(holding) > 1:
        ways = " or ".join(f"{side}:{name}" for side in holding)
        raise UsageError(f"{option} is in the {' and the '.join(holding)}: write {ways}")
    if colon and prefix in sides and not holding:
        side, word = prefix, rest
    else:
        side, word = holding[0] if holding else next(iter(sides)), name
    places = _positions(attention, side, sides[side], word, option)
    where = f" ({side})" if len(sides) > 1 else ""
    return _as_one([token_part(sides, side, place) for place in places], f"{word}{where}")


def _sides(attention: Attention) -> dict[str, tuple[Token, ...]]:
    return {item.key_side: item.key_tokens for item in attention.maps}


def _as_one(parts: Sequence[Part], label: str) -> Part:
    """One part for all tokens of a word; it has the place of the first token."""
    if len(parts) == 1:
        return parts[0]
    return replace(parts[0][0], label=label), together(parts)[1]


def _places(tokens: Sequence[Token], text: str, name: str) -> list[range]:
    """The tokens with this spelling; where there are none, the runs of tokens that spell it."""
    match = _NUMBERED.fullmatch(name)
    for word, number in ((name, None), *([(match[1], int(match[2]))] if match else [])):
        spelt = [
            range(place, place + 1)
            for place, one in enumerate(tokens)
            if word in (one.text, one.text.removeprefix("##"), _source_of(one, text) or one.text)
        ]
        if not spelt:
            starts = [place for place in range(len(tokens)) if _source_of(tokens[place], text)]
            runs = (run for place in starts if (run := _run(tokens, text, place, word)))
            # Runs with one end differ by a blank piece in front: the shortest comes last.
            spelt = [*{run[-1]: run for run in runs}.values()]
        runs_of_word = [run for run in spelt if number in (None, run[0])]
        if runs_of_word:
            return runs_of_word
    return []


def _source_of(token: Token, text: str) -> str:
    return text[token.start : token.end].strip()


def _run(tokens: Sequence[Token], text: str, first: int, word: str) -> range | None:
    """The tokens that together spell a word, from the first one on; None: they do not."""
    for last in range(first + 1, len(tokens)):
        spelling = text[tokens[first].start : tokens[last].end].strip()
        if spelling == word and not tokens[last].special:
            return range(first, last + 1)
        if not word.startswith(spelling):
            return None
    return None


def _positions(
    attention: Attention, side: str, tokens: Sequence[Token], name: str, option: str
) -> range:
    runs = _places(tokens, attention.text_of(side), name)
    if len(runs) == 1:
        return runs[0]
    texts = [token.text for token in tokens]
    if runs:
        ways = " or ".join(f"{name}[{run[0]}]" for run in runs)
        raise UsageError(f"{option}: '{name}' stands {len(runs)} times in the {side}: write {ways}")
    names = ", ".join(texts[:30]) + (", …" if len(texts) > 30 else "")
    raise UsageError(
        f"{option}: there is no token '{name}' in the {side}, but {names}."
        f"{did_you_mean(name, texts)}"
    )
