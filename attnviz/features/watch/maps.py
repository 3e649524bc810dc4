"""Makes maps of captured calls: calls of the same stream and shape are layers of one map."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from attnviz.core.attention_map import Attention, AttentionMap, Provenance, Token, known_mean
from attnviz.core.errors import AttentionError, UsageError
from attnviz.core.records import dataclass, replace
from attnviz.features.observer.observer import CapturedCall, WatchLog, WatchRequest
from attnviz.models.hugging_face.capture import capture, exact_links
from attnviz.models.hugging_face.capture.region import PooledGrid, TokenBlocks, region_note

COMPILED = "compiled code ran, which cannot be seen: watch(..., eager=True) runs it uncompiled"


@dataclass(frozen=True, slots=True)
class Names:
    """The texts of the tokens, or None; `split`: how many are text, negative: the last ones."""

    queries: Sequence[str] | None = None
    keys: Sequence[str] | None = None
    split: int | None = None


def watched_attention(
    log: WatchLog, item: int, model: str, request: WatchRequest, names: Names
) -> Attention:
    """The maps of one item of the batch.

    Raises:
        AttentionError: nothing was seen or kept, and why.
        UsageError: no map has as many tokens as there are names.
    """
    own = _select_calls(log, item, request, names)
    groups: dict[object, list[CapturedCall]] = {}
    for call in own:
        alike = _stream(call), call.grid, call.weights.shape, _call_number(call, log)
        groups.setdefault(alike, []).append(call)
    maps = tuple(_map_of(group, log, names) for group in groups.values())
    scores = {
        (item.stream, call.path, head): {n: float(own[at]) for n, own in call.scores.items()}
        for item, group in zip(maps, groups.values(), strict=True)
        for call in group
        if call.scores
        for at, head in enumerate(item.heads)
    }
    for what, own_names, axis in (("query", names.queries, 0), ("key", names.keys, 1)):
        lengths = {call.sides[axis] for call in own}
        if own_names is not None and len(own_names) not in lengths:
            raise UsageError(
                f"{len(own_names)} {what} tokens were given, and the maps have "
                f"{', '.join(map(str, sorted(lengths)))} {'queries' if not axis else 'keys'}"
            )
    notes = dict.fromkeys(_notes(own, log, request))
    differences = [call.off for call in own if call.off is not None]
    settings = {"attention": ", ".join(dict.fromkeys(call.route for call in own))}
    if differences:
        most = max(differences)
        settings["checked"] = f"weights × values are the output to {most:.1e}"
    provenance = Provenance(
        source="watched",
        model=model,
        device=own[0].device,
        dtype=own[0].dtype,
        settings=settings,
        notes=tuple(notes),
        versions={"torch": str(torch.__version__)},
    )
    return Attention(maps, provenance, id=str(item), scores=scores)


def _select_calls(
    log: WatchLog, item: int, request: WatchRequest, names: Names
) -> list[CapturedCall]:
    """The captured calls of one item, joint sequences in their quarters."""
    own = [_place_rows(call) for call in log.captures if call.item == item]
    if not own:
        raise AttentionError(next(reasons_for_none(log, request)))
    if names.split is None:
        return own
    parts = [part for call in own for part in _quarters(call, names.split)]
    if len(parts) == len(own):
        lengths = ", ".join(map(str, sorted({call.sides[1] for call in own})))
        raise UsageError(
            f"split={names.split} cuts no map: none is of one sequence longer than that, with keys "
            f"of {lengths} tokens"
        )
    return parts


def _place_rows(call: CapturedCall) -> CapturedCall:
    """A call whose keys are a cache and those of its queries: its rows are the last of the text."""
    (queries, keys), rows = call.sides, call.grid.queries
    before = keys - queries
    if before <= 0 or not call.same_input:
        return call
    grid = replace(call.grid, queries=TokenBlocks(before + rows.start, keys, rows.length))
    own = replace(call, sides=(keys, keys), grid=grid)
    return own if _stream(own) == "causal" else call


def _quarters(call: CapturedCall, split: int) -> list[CapturedCall]:
    """A joint sequence as text-to-text, text-to-image and so on; any other call unchanged."""
    length = call.sides[0]
    if _stream(call) == "cross" or not abs(split) < length:
        return [call]
    cut, block = split % length, call.grid.keys.length
    if cut % block:
        raise UsageError(
            f"split={split} falls into a block of {block} tokens: give a larger max_size ({length} "
            "shows every token)"
        )
    names = ("text", "image") if split > 0 else ("image", "text")
    sides = dict(zip(names, ((0, cut), (cut, length)), strict=True))

    def part(query: str, key: str) -> CapturedCall:
        spans = sides[query], sides[key]
        rows, columns = (slice(first // block, -(-last // block)) for first, last in spans)
        queries, keys = (last - first for first, last in spans)
        return replace(
            call,
            sides=(queries, keys),
            grid=PooledGrid(TokenBlocks(0, queries, block), TokenBlocks(0, keys, block)),
            weights=call.weights[:, rows, columns],
            links=(),
            part=f"{query}-to-{key}",
            scores={},
        )

    return [part(query, key) for query in ("text", "image") for key in ("text", "image")]


def word_maps(
    log: WatchLog, item: int, request: WatchRequest, names: Names, word: str | int, ratio: float
) -> tuple[list[str], list[str], NDArray[np.float32]]:
    """How much each place of a picture attends to a word: modules, calls, and means over heads.

    The means have the shape (modules, calls, rows, columns) of the finest map; a place of a coarser
    map is repeated. They are NaN where a module made fewer calls. `ratio` is height over width.
    """
    if names.keys is None:
        raise UsageError("an overlay needs the text's tokens: watch(..., tokens=[…])")
    places = _places(list(names.keys), word)
    by_call = {}
    for one in _select_calls(log, item, request, names):
        if _stream(one) not in ("cross", "image-to-text") or one.sides[1] != len(names.keys):
            continue
        if one.grid.keys.length > 1 or one.grid.queries.start:
            continue
        shares = one.weights[:, :, places].sum(axis=2, dtype=np.float64)
        shape = _picture_shape(one, ratio)
        by_call[one.path, one.call] = known_mean(shares, 0).reshape(shape).astype(np.float32)
    if not by_call:
        raise UsageError(
            f"no map is of a picture against {len(names.keys)} tokens of text (where both are one "
            "sequence, say how many are text: split=77)"
        )
    modules = list(dict.fromkeys(path for path, _ in by_call))
    calls = sorted({call for _, call in by_call})
    size = [max(shares.shape[side] for shares in by_call.values()) for side in (0, 1)]
    maps = np.full((len(modules), len(calls), *size), np.nan, np.float32)
    for (path, call), shares in by_call.items():
        covering = (np.arange(a) * b // a for a, b in zip(size, shares.shape, strict=True))
        maps[modules.index(path), calls.index(call)] = shares[np.ix_(*covering)]
    return modules, [str(call) for call in calls], maps


def _places(tokens: list[str], word: str | int) -> list[int]:
    """The positions of a word's tokens, for every time that it occurs."""
    if isinstance(word, int):
        if not 0 <= word < len(tokens):
            raise UsageError(f"token {word} does not exist: there are 0 to {len(tokens) - 1}")
        return [word]
    plain = [re.sub("</w>$|^##|^[Ġ▁ ]", "", token).strip().casefold() for token in tokens]
    letters, places = word.replace(" ", "").casefold(), set[int]()
    for first in range(len(plain)):
        joint, end = "", first
        while end < len(plain) and len(joint) < len(letters):
            joint, end = joint + plain[end], end + 1
        if joint == letters and plain[first]:
            places.update(range(first, end))
    if not places:
        raise UsageError(f"'{word}' is not among the tokens: {' '.join(plain)[:200]}")
    return sorted(places)


def _picture_shape(call: CapturedCall, ratio: float) -> tuple[int, int]:
    """Rows and columns of a picture whose places, in blocks within its rows, are the queries."""
    count, block = call.sides[0], call.grid.queries.length
    divisors = (rows for rows in range(1, count + 1) if count % rows == 0)
    rows = min(divisors, key=lambda rows: abs(math.log(rows * rows / (count * ratio))))
    if abs(math.log(rows * rows / (count * ratio))) > math.log(1.25) or count // rows % block:
        raise UsageError(
            f"{count} queries of '{call.path}', in blocks of {block}, are no picture with sides of "
            f"{ratio:.2f} to 1: give picture= with the right ones, or max_size={count}"
        )
    return rows, count // rows // block


def _stream(call: CapturedCall) -> str:
    """The kind of attention, by the inputs of queries and keys, and by the zeros in the weights."""
    if call.part:
        return call.part
    queries, keys = call.sides
    if queries != keys:
        return "cross"
    rows, columns = call.grid.queries, call.grid.keys
    first = (rows.start - columns.start) // columns.length
    if keys > 1 and not np.triu(call.weights, 1 + first).any():
        return "causal"
    return "self" if call.same_input else "cross"


def _map_of(group: Sequence[CapturedCall], log: WatchLog, names: Names) -> AttentionMap:
    first, stream = group[0], _stream(group[0])
    sides = ("target", "source") if stream == "cross" else ("text", "text")
    pair = [names.queries, names.keys]
    if first.part:
        sides = (first.part.partition("-to-")[0], first.part.partition("-to-")[2])
        pair = [names.keys if side == "text" else None for side in sides]
    elif stream != "cross":  # of one text the names of either side serve both
        pair = [
            next((one for one in pair if one is not None and len(one) == first.sides[0]), None)
        ] * 2
    tokens = {
        side: _tokens(one, length)
        for side, one, length in zip(sides, pair, first.sides, strict=True)
    }
    stack = capture.Captured(
        stream,
        tuple(member.path for member in group),
        np.stack([member.weights for member in group]),
        first.grid,
        tuple(member.links for member in group) if first.links else (),
    )
    item = capture.as_map(stack, tokens, *sides)
    call = _call_number(first, log)
    return replace(
        item,
        stream=item.stream if call is None else f"call {call} · {item.stream}",
        query_tokens=_number_blocks(item.query_tokens, first.grid.queries, pair[0]),
        key_tokens=_number_blocks(item.key_tokens, first.grid.keys, pair[1]),
    )


def _call_number(call: CapturedCall, log: WatchLog) -> int | None:
    """The number of its call, where the module made several."""
    return call.call if log.calls[call.path] > 1 else None


def _tokens(names: Sequence[str] | None, length: int) -> tuple[Token, ...]:
    if names is None or len(names) != length:
        names = list(map(str, range(length)))
    return tuple(map(Token, names))


def _number_blocks(
    tokens: tuple[Token, ...], axis: TokenBlocks, names: Sequence[str] | None
) -> tuple[Token, ...]:
    """Tokens without names in blocks, each named by its first and last number."""
    if axis.length == 1 or (names is not None and len(names) >= axis.stop):
        return tokens
    spans = ((first, stop - 1) for first, stop in axis.spans)
    return tuple(Token(f"{first}–{last}" if last > first else str(first)) for first, last in spans)


def _notes(own: Sequence[CapturedCall], log: WatchLog, request: WatchRequest) -> Iterator[str]:
    yield from _notes_on_kept(own, log, request)
    yield from filter(None, (region_note(call.grid, call.sides) for call in own))
    for skip in dict.fromkeys(call.skip for call in own):
        some = [call.links for call in own if call.skip == skip]
        if most := max((len(head) for links in some for head in links), default=0):
            yield exact_links.links_note(most, skip)
    yield from notes_on_reading(own, log)
    if log.unsure:
        yield (
            f"{log.unsure} calls have batch and heads on one axis, and the number of heads is not "
            "known: one head is shown, as if it were an item (a module's num_heads would say it)"
        )
    yield from failures_of(log)
    if log.overflow:
        yield f"{log.overflow} further calls were not kept: their maps would not fit into max_bytes"
    if log.ran_compiled:
        yield COMPILED


def notes_on_reading(own: Sequence[CapturedCall], log: WatchLog) -> Iterator[str]:
    """What could not be compared with the output, and what is no attention."""
    dropouts = sum(call.had_dropout for call in own)
    if dropouts:
        yield (
            f"{dropouts} of {len(own)} calls ran with dropout: their weights are those before it, "
            "and could not be compared with the output"
        )
    other = sum(call.off is None and not call.had_dropout for call in own)
    if other:
        yield f"{other} of {len(own)} calls could not be compared with the output"
    yield from _refusals(log)


def failures_of(log: WatchLog) -> Iterator[str]:
    """Which modules could not be read, and why."""
    for path, why in log.failures.items():
        yield f"attention of '{path}' could not be read: {why}"


def _notes_on_kept(
    own: Sequence[CapturedCall], log: WatchLog, request: WatchRequest
) -> Iterator[str]:
    """How many calls are kept, and whose scores are not known."""
    most = max(log.calls.values())
    kept_calls = max(Counter(call.path for call in own).values())
    if isinstance(request.calls, int) and kept_calls < -(-most // request.every):
        yield f"{kept_calls} of {most} calls are kept, spread from the first to the last"
    unknown = list(dict.fromkeys(call.path for call in own if not call.scores))
    if request.scores and unknown:
        more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
        yield (
            f"scores before the softmax are not known of {', '.join(unknown[:3])}{more}: the "
            "function that computes them does more, or hides them"
        )


def _refusals(log: WatchLog) -> Iterator[str]:
    """How many softmaxes were no attention between tokens, by the reason."""
    return (f"{count} {why}" for why, count in log.refusals.items() if count)


def reasons_for_none(log: WatchLog, request: WatchRequest) -> Iterator[str]:
    """Why there is no map, the most telling reason first."""
    yield from failures_of(log)
    if log.overflow:
        yield f"none of {log.overflow} maps fits into max_bytes={request.most_bytes:,}"
    if log.ran_compiled:
        yield COMPILED
    if refusals := "; ".join(_refusals(log)):
        yield refusals
    if log.calls:
        paths = ", ".join([*log.calls][:5])
        yield (
            f"none of the calls seen is wanted (only={', '.join(request.only) or '*'}); they were "
            f"made by {paths}{', …' if len(log.calls) > 5 else ''}"
        )
    if log.softmaxes:
        yield (
            f"no attention was seen: {log.softmaxes} softmaxes ran, but the program "
            "multiplied none of them directly with values; they may belong to a classifier or a "
            "gate, or the program changed their weights before the product"
        )
    yield (
        "no attention was seen: nothing ran in the block, or nothing that has a softmax over keys "
        "(one written out as exponentials is not recognised)"
    )
