"""Makes maps of captured calls: calls of the same stream and shape are layers of one map."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from attnviz.core.attention_map import (
    Attention,
    AttentionMap,
    Provenance,
    Token,
    known_mean,
)
from attnviz.core.errors import AttentionError, UsageError
from attnviz.models.hugging_face.capture.capture import Captured, as_map
from attnviz.models.hugging_face.capture.exact_links import links_note
from attnviz.models.hugging_face.capture.region import PooledGrid, TokenBlocks, region_note

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnviz.models.watch.observer import CapturedCall, WatchLog, WatchRequest

COMPILED = "compiled code ran, which cannot be seen: watch(..., eager=True) runs it uncompiled"


@dataclass(frozen=True, slots=True)
class Names:
    """The texts of the tokens, or None; `split`: how many are text, negative: the last ones."""

    queries: Sequence[str] | None = None
    keys: Sequence[str] | None = None
    split: int | None = None


def watched_attention(
    seen: WatchLog, item: int, model: str, wanted: WatchRequest, names: Names
) -> Attention:
    """The maps of one item of the batch.

    Raises:
        AttentionError: nothing was seen or kept, and why.
        UsageError: no map has as many tokens as there are names.
    """
    own = _select_calls(seen, item, wanted, names)
    groups: dict[object, list[CapturedCall]] = {}
    for kept in own:
        alike = _stream(kept), kept.grid, kept.weights.shape, _call_number(kept, seen)
        groups.setdefault(alike, []).append(kept)
    maps = tuple(_map_of(group, seen, names) for group in groups.values())
    scores = {
        (item.stream, kept.path, head): {n: float(own[at]) for n, own in kept.scores.items()}
        for item, group in zip(maps, groups.values(), strict=True)
        for kept in group
        if kept.scores
        for at, head in enumerate(item.heads)
    }
    _check_names(own, names)
    notes = dict.fromkeys(_notes(own, seen, wanted))
    compared = [kept.off for kept in own if kept.off is not None]
    settings = {"attention": ", ".join(dict.fromkeys(kept.route for kept in own))}
    if compared:
        most = max(compared)
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
    seen: WatchLog, item: int, wanted: WatchRequest, names: Names
) -> list[CapturedCall]:
    """The captured calls of one item, joint sequences in their quarters."""
    own = [kept for kept in seen.kept if kept.item == item]
    if not own:
        raise AttentionError(next(_reasons_for_none(seen, wanted)))
    if names.split is None:
        return own
    parts = [part for kept in own for part in _quarters(kept, names.split)]
    if len(parts) == len(own):
        lengths = ", ".join(map(str, sorted({kept.sides[1] for kept in own})))
        raise UsageError(
            f"split={names.split} cuts no map: none is of one sequence longer than that, with keys "
            f"of {lengths} tokens"
        )
    return parts


def _quarters(kept: CapturedCall, split: int) -> list[CapturedCall]:
    """A joint sequence as text-to-text, text-to-image and so on; any other call unchanged."""
    length = kept.sides[0]
    if _stream(kept) == "cross" or not abs(split) < length:
        return [kept]
    cut, block = split % length, kept.grid.keys.length
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
            kept,
            sides=(queries, keys),
            grid=PooledGrid(TokenBlocks(0, queries, block), TokenBlocks(0, keys, block)),
            weights=kept.weights[:, rows, columns],
            links=(),
            part=f"{query}-to-{key}",
            scores={},
        )

    return [part(query, key) for query in ("text", "image") for key in ("text", "image")]


def word_maps(
    seen: WatchLog, item: int, wanted: WatchRequest, names: Names, word: str | int, ratio: float
) -> tuple[list[str], list[str], NDArray[np.float32]]:
    """How much each place of a picture attends to a word: modules, calls, and means over heads.

    The means have the shape (modules, calls, rows, columns) of the finest map; a place of a coarser
    map is repeated. They are NaN where a module made fewer calls. `ratio` is height over width.
    """
    if names.keys is None:
        raise UsageError("an overlay needs the text's tokens: watch(..., tokens=[…])")
    places = _places(list(names.keys), word)
    found = {}
    for kept in _select_calls(seen, item, wanted, names):
        if _stream(kept) not in ("cross", "image-to-text") or kept.sides[1] != len(names.keys):
            continue
        if kept.grid.keys.length > 1 or kept.grid.queries.start:
            continue
        shares = kept.weights[:, :, places].sum(axis=2, dtype=np.float64)
        shape = _picture_shape(kept, ratio)
        found[kept.path, kept.call] = known_mean(shares, 0).reshape(shape).astype(np.float32)
    if not found:
        raise UsageError(
            f"no map is of a picture against {len(names.keys)} tokens of text (where both are one "
            "sequence, say how many are text: split=77)"
        )
    modules = list(dict.fromkeys(path for path, _ in found))
    calls = sorted({call for _, call in found})
    size = [max(shares.shape[side] for shares in found.values()) for side in (0, 1)]
    maps = np.full((len(modules), len(calls), *size), np.nan, np.float32)
    for (path, call), shares in found.items():
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
    wanted, places = word.replace(" ", "").casefold(), set[int]()
    for first in range(len(plain)):
        joined, end = "", first
        while end < len(plain) and len(joined) < len(wanted):
            joined, end = joined + plain[end], end + 1
        if joined == wanted and plain[first]:
            places.update(range(first, end))
    if not places:
        raise UsageError(f"'{word}' is not among the tokens: {' '.join(plain)[:200]}")
    return sorted(places)


def _picture_shape(kept: CapturedCall, ratio: float) -> tuple[int, int]:
    """Rows and columns of a picture whose places, in blocks within its rows, are the queries."""
    count, block = kept.sides[0], kept.grid.queries.length
    divisors = (rows for rows in range(1, count + 1) if count % rows == 0)
    rows = min(divisors, key=lambda rows: abs(math.log(rows * rows / (count * ratio))))
    if abs(math.log(rows * rows / (count * ratio))) > math.log(1.25) or count // rows % block:
        raise UsageError(
            f"{count} queries of '{kept.path}', in blocks of {block}, are no picture with sides of "
            f"{ratio:.2f} to 1: give picture= with the right ones, or max_size={count}"
        )
    return rows, count // rows // block


def _stream(kept: CapturedCall) -> str:
    """The kind of attention, by the inputs of queries and keys, and by the zeros in the weights."""
    if kept.part:
        return kept.part
    queries, keys = kept.sides
    if queries != keys:
        return "cross"
    rows, columns = kept.grid.queries, kept.grid.keys
    first = (rows.start - columns.start) // columns.length
    if queries > 1 and not np.triu(kept.weights, 1 + first).any():
        return "causal"
    return "self" if kept.same_input else "cross"


def _map_of(group: Sequence[CapturedCall], seen: WatchLog, names: Names) -> AttentionMap:
    first, stream = group[0], _stream(group[0])
    sides = ("target", "source") if stream == "cross" else ("text", "text")
    given = [names.queries, names.keys]
    if first.part:
        sides = (first.part.partition("-to-")[0], first.part.partition("-to-")[2])
        given = [names.keys if side == "text" else None for side in sides]
    elif stream != "cross":  # of one text the names of either side serve both
        given = [
            next((one for one in given if one is not None and len(one) == first.sides[0]), None)
        ] * 2
    tokens = {
        side: _tokens(one, length)
        for side, one, length in zip(sides, given, first.sides, strict=True)
    }
    captured = Captured(
        stream,
        tuple(kept.path for kept in group),
        np.stack([kept.weights for kept in group]),
        first.grid,
        tuple(kept.links for kept in group) if first.links else (),
    )
    made = as_map(captured, tokens, *sides)
    call = _call_number(first, seen)
    return replace(
        made,
        stream=made.stream if call is None else f"call {call} · {made.stream}",
        query_tokens=_number_blocks(made.query_tokens, first.grid.queries, given[0]),
        key_tokens=_number_blocks(made.key_tokens, first.grid.keys, given[1]),
    )


def _call_number(kept: CapturedCall, seen: WatchLog) -> int | None:
    """The number of its call, where the module made several."""
    return kept.call if seen.calls[kept.path] > 1 else None


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


def _check_names(own: Sequence[CapturedCall], names: Names) -> None:
    for what, given, axis in (("query", names.queries, 0), ("key", names.keys, 1)):
        lengths = {kept.sides[axis] for kept in own}
        if given is not None and len(given) not in lengths:
            raise UsageError(
                f"{len(given)} {what} tokens were given, and the maps have "
                f"{', '.join(map(str, sorted(lengths)))} {'queries' if not axis else 'keys'}"
            )


def _notes(own: Sequence[CapturedCall], seen: WatchLog, wanted: WatchRequest) -> Iterator[str]:
    yield from _notes_on_kept(own, seen, wanted)
    yield from filter(None, (region_note(kept.grid, kept.sides) for kept in own))
    for ignored in dict.fromkeys(kept.ignored for kept in own):
        some = [kept.links for kept in own if kept.ignored == ignored]
        if most := max((len(head) for links in some for head in links), default=0):
            yield links_note(most, ignored)
    dropped = sum(kept.dropped for kept in own)
    if dropped:
        yield (
            f"{dropped} of {len(own)} calls ran with dropout: their weights are those before it, "
            "and could not be compared with the output"
        )
    other = sum(kept.off is None and not kept.dropped for kept in own)
    if other:
        yield f"{other} of {len(own)} calls could not be compared with the output"
    yield from _refusals(seen)
    if seen.unsure:
        yield (
            f"{seen.unsure} calls have batch and heads on one axis, and the number of heads is not "
            "known: one head is shown, as if it were an item (a module's num_heads would say it)"
        )
    for path, why in seen.failures.items():
        yield f"attention of '{path}' could not be read: {why}"
    if seen.dropped:
        yield f"{seen.dropped} further calls were not kept: their maps would not fit into max_bytes"
    if seen.compiled:
        yield COMPILED


def _notes_on_kept(
    own: Sequence[CapturedCall], seen: WatchLog, wanted: WatchRequest
) -> Iterator[str]:
    """How many calls are kept, and whose scores are not known."""
    made = max(seen.calls.values())
    kept_calls = max(Counter(kept.path for kept in own).values())
    if isinstance(wanted.calls, int) and kept_calls < -(-made // wanted.every):
        yield f"{kept_calls} of {made} calls are kept, spread from the first to the last"
    unknown = [kept.path for kept in own if not kept.scores]
    if wanted.scores and unknown:
        yield (
            f"scores before the softmax are not known of {_few(unknown)}: the function that "
            "computes them does more, or hides them"
        )


def _few(paths: Sequence[str]) -> str:
    """The first of some paths, and how many more there are."""
    own = list(dict.fromkeys(paths))
    return ", ".join(own[:3]) + (f" and {len(own) - 3} more" if len(own) > 3 else "")


def _refusals(seen: WatchLog) -> Iterator[str]:
    """How many softmaxes were no attention between tokens, by the reason."""
    return (f"{count} {why}" for why, count in seen.refused.items() if count)


def _reasons_for_none(seen: WatchLog, wanted: WatchRequest) -> Iterator[str]:
    """Why there is no map, the most telling reason first."""
    for path, why in seen.failures.items():
        yield f"attention of '{path}' could not be read: {why}"
    if seen.dropped:
        yield f"none of {seen.dropped} maps fits into max_bytes={wanted.most_bytes:,}"
    if seen.compiled:
        yield COMPILED
    if refusals := "; ".join(_refusals(seen)):
        yield refusals
    if seen.calls:
        paths = ", ".join([*seen.calls][:5])
        yield (
            f"none of the calls seen is wanted (only={', '.join(wanted.only) or '*'}); they were "
            f"made by {paths}{', …' if len(seen.calls) > 5 else ''}"
        )
    if seen.softmaxes:
        yield (
            f"no attention was seen: {seen.softmaxes} softmaxes ran, and none of them met values "
            "in a product as it was (a classifier's, a gate's, weights that were normalised again)"
        )
    yield (
        "no attention was seen: nothing ran in the block, or nothing that has a softmax over keys "
        "(one written out as exponentials is not recognised)"
    )
