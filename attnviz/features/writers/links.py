"""Why a head looks at a key, by what earlier parts wrote there, and which tokens it argues for.

With each norm's statistics held, a score is a sum over the writers of its query and of its key
(Elhage 2021). Softmax does not change when a number is added to a row, so parts are shown above
their mean over the visible keys, or above another key's.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.heads import roles_by_place
from attnviz.analyses.masks import MeasuredMap, within_one_text
from attnviz.core import errors, measures, tokens
from attnviz.core.attention_call import AttentionCall
from attnviz.core.attention_map import Attention, AttentionMap
from attnviz.core.effects import Experiment, HeadAt, Intervention, LinkAt, log_probabilities
from attnviz.core.writers import Side, Writer, WrittenText
from attnviz.features.writers.report import LISTED, Knockout, LinkReport, LinkSteps, WriterPart

Numbers = NDArray[np.float64]

NEAR = 1e-4  # parts that miss their sum by more of its size are not shown
TIE = 1e-5  # two sizes that differ by less of their size may change places elsewhere
NOISE = 1e-6  # parts below this share of the largest are rounding
PAIRED = 3  # writers of the key whose parts are split by the query's
CHECKED = 2
ROWS = 3
ARGUMENTS = 10


def score_of(sides: AttentionCall) -> Numbers:
    """The scores before a cap, (…, queries, keys)."""
    scores: Numbers = sides.query.astype(np.float64) @ np.swapaxes(sides.key, -1, -2) * sides.factor
    return scores if sides.position is None else scores + sides.position


def weigh(sides: AttentionCall, scores: Any) -> Any:
    """The weights that scores (…, keys) become, in rows that see the same keys."""
    if sides.cap:
        scores = sides.cap * np.tanh(scores / sides.cap)
    scores = np.where(sides.mask, scores, scores.dtype.type(-np.inf))
    sinks = np.full((1, 1), -np.inf, scores.dtype) if sides.sink is None else sides.sink
    highest = np.maximum(scores.max(axis=-1), sinks.max(axis=-1))[..., None]
    highest = np.where(np.isfinite(highest), highest, 0)
    shares = np.exp(scores - highest)
    total = shares.sum(axis=-1, keepdims=True) + np.exp(sinks - highest).sum(-1, keepdims=True)
    return shares / np.where(total > 0, total, 1)


def contrast_of(sides: AttentionCall, query: int, key: int, against: int | None = None) -> Numbers:
    """Factors that turn scores (queries, keys) into a score minus the mean or another score."""
    factors = np.zeros(sides.mask.shape)
    if against is None:
        factors[query] -= sides.mask[query] / sides.mask[query].sum()
    else:
        factors[query, against] = -1
    factors[query, key] += 1
    return factors


def split_score(
    text: WrittenText, at: HeadAt, sides: AttentionCall, contrast: Numbers
) -> tuple[float, Numbers, Numbers, float | None]:
    """The contrast of scores, its parts by writers of the query and of the key, and position's.

    Raises:
        AttentionError: the parts do not add up, so the model does more than is known of it.
    """
    query, key = sides.query.astype(np.float64), sides.key.astype(np.float64)
    by_query = text.read(at, "query", sides.factor * contrast @ key)
    by_key = text.read(at, "key", sides.factor * contrast.T @ query)
    position = None if sides.position is None else float((contrast * sides.position).sum())
    total = float((contrast * score_of(sides)).sum())
    for side, parts in (("query", by_query), ("key", by_key)):
        check_sum(f"the {side}'s parts of a score", parts, total - (position or 0.0), text)
    return total, without_noise(by_query), without_noise(by_key), position


def without_noise(parts: Numbers) -> Numbers:
    """Parts of a sum, with 0 where rounding alone made one: its sign would differ elsewhere."""
    return np.where(np.abs(parts) < NOISE * np.abs(parts).max(), 0, parts)


def largest_first(sizes: Numbers) -> list[int]:
    """Places by size, the largest first; what rounding alone tells apart stays in its order."""
    order = np.argsort(-sizes, kind="stable")
    falls = -np.diff(sizes[order], prepend=sizes[order][:1])
    groups = np.cumsum(falls > TIE * sizes[order])
    return [int(n) for n in order[np.lexsort((order, groups))]]


def adds_up(parts: Numbers, total: float) -> bool:
    size = max(abs(total), float(np.abs(parts).max()), 1e-3)
    return abs(float(parts.sum()) - total) <= NEAR * size


def check_sum(what: str, parts: Numbers, total: float, text: WrittenText) -> None:
    """Refuse parts that miss their sum."""
    if not adds_up(parts, total):
        model = text.attention.provenance.title
        raise errors.AttentionError(
            f"{what} sum to {parts.sum():.4g} and not to {total:.4g}: attnviz cannot split what "
            f"'{model}' computes into parts"
        )


def clear_roles(attention: Attention) -> dict[HeadAt, measures.Role]:
    """The clearest role of each head, of those that have one."""
    return {
        HeadAt(item.stream, item.layers[layer], head): role
        for item in attention.maps
        for (layer, head), role in roles_by_place(MeasuredMap.of(attention, item)).items()
    }


def role_names(attention: Attention) -> Mapping[HeadAt, str]:
    """The clearest role of each head with its share, of those that have one."""
    return {
        at: f"{role.label} {role.share:.2f}".replace(" 0.", " .")
        for at, role in clear_roles(attention).items()
    }


def name_writer(writer: Writer, main: str) -> str:
    return writer.name if writer.stream == main else f"{writer.stream} {writer.name}"


def rank_parts(
    text: WrittenText, parts: Numbers, main: str, roles: Mapping[HeadAt, str]
) -> tuple[WriterPart, ...]:
    """Every writer that has a part, the largest by size first."""
    ranking = []
    for number in (n for n in largest_first(np.abs(parts)) if parts[n]):
        writer = text.writers[number]
        at = None if writer.head is None else HeadAt(writer.stream, writer.layer, writer.head)
        role = roles.get(at, "") if at else ""
        ranking.append(WriterPart(name_writer(writer, main), float(parts[number]), role))
    return tuple(ranking)


def pair_parts(
    text: WrittenText, at: HeadAt, sides: AttentionCall, contrast: Numbers, by_key: Numbers
) -> tuple[tuple[str, str, float], ...]:
    """The largest parts that a writer of the query and a writer of the key make together."""
    pairs = list[tuple[str, str, float]]()
    numbers = [n for n in largest_first(np.abs(by_key))[:PAIRED] if by_key[n]]
    keys = text.parts(at.stream, at.layer, "key", numbers)
    for number, part in zip(numbers, keys, strict=True):
        direction = sides.factor * contrast @ part[at.head].astype(np.float64)
        by_query = without_noise(text.read(at, "query", direction))
        for other in largest_first(np.abs(by_query))[:PAIRED]:
            names = [name_writer(text.writers[n], at.stream) for n in (other, number)]
            pairs.append((names[0], names[1], float(by_query[other])))
    order = largest_first(np.abs([value for *_, value in pairs]))
    return tuple(pairs[n] for n in order)


def knock_out(
    text: WrittenText,
    at: HeadAt,
    sides: AttentionCall,
    link: tuple[int, int],
    side: Side,
    writer: int,
) -> Knockout:
    """The head's weight on a link if its query or key cannot read one writer."""
    (part,) = text.parts(at.stream, at.layer, side, [writer])
    own, query, key = part[at.head].astype(np.float64), sides.query, sides.key
    loss = own @ key.T if side == "query" else query @ own.T
    estimate = weigh(sides, score_of(sides) - loss * sides.factor)[link]
    new = text.without(at, side, writer).astype(np.float64)
    scores = (new @ key.T if side == "query" else query @ new.T) * sides.factor
    if sides.position is not None:
        scores = scores + sides.position
    name = name_writer(text.writers[writer], at.stream)
    return Knockout(side, name, float(estimate), float(weigh(sides, scores)[link]))


def weight_at_distance(item: AttentionMap, at: HeadAt, link: tuple[int, int]) -> float | None:
    """The weight at the link's distance that three quarters of the head's other rows exceed.

    None where fewer than half of the rows, or than three, have a key at this distance: where a text
    says everything twice, a head that looks for the same word looks at one distance too.
    """
    if not within_one_text(item):
        return None
    weights = item.weights[item.layers.index(at.layer), at.head]
    others = np.delete(np.diagonal(weights, link[1] - link[0]), min(link))
    enough = len(others) >= max(ROWS, len(weights) / 2)
    return float(np.quantile(others, 0.25)) if enough else None


def explain_link(
    text: WrittenText,
    at: HeadAt,
    link: tuple[int, int],
    against: int | None = None,
    effect: tuple[float, str] | None = None,
    notes: Sequence[str] = (),
    roles: Mapping[HeadAt, str] | None = None,
) -> LinkReport:
    """Why a head looks from a query at a key, and what it brings back.

    `effect` is that of the link, in nats, and the output it is measured on; `roles` are the
    attention's, if they are known already.
    """
    query, key = link
    attention = text.attention
    item = attention.map_of(at.stream)
    sides = text.sides(at)
    contrast = contrast_of(sides, query, key, against)
    total, by_query, by_key, position = split_score(text, at, sides, contrast)
    roles = role_names(attention) if roles is None else roles
    largest = [
        (abs(parts[n]), side, n)
        for side, parts in (("key", by_key), ("query", by_query))
        for n in largest_first(np.abs(parts))[: CHECKED + 1]
        if parts[n] and text.writers[n].kind != "bias"
    ]
    order = largest_first(np.array([size for size, *_ in largest]))[:CHECKED]
    checks = [
        knock_out(text, at, sides, link, side, n)  # type: ignore[arg-type]
        for _, side, n in (largest[place] for place in order)
    ]
    weights = weigh(sides, score_of(sides))
    arguments = arguments_of(text, at, sides, [(query, key, float(weights[link]))])
    ends = tokens.token_label(item.query_tokens, query), tokens.token_label(item.key_tokens, key)
    than = f"the mean of the {int(sides.mask[query].sum())} visible keys"
    return LinkReport(
        caption=f"{attention.provenance.title} · {at.stream} layer {at.layer} head {at.head} · "
        f"{ends[0]} → {ends[1]}",
        head=at,
        link=link,
        ends=ends,
        links=1,
        weight=float(weights[link]),
        score=float(score_of(sides)[link]),
        contrast=total,
        against=than if against is None else tokens.token_label(item.key_tokens, against),
        query=rank_parts(text, by_query, at.stream, roles),
        key=rank_parts(text, by_key, at.stream, roles),
        pairs=pair_parts(text, at, sides, contrast, by_key),
        position=position,
        at_distance=weight_at_distance(item, at, link),
        checks=tuple(checks),
        effect=effect[0] if effect else None,
        output=effect[1] if effect else "",
        notes=(*attention.provenance.notes, *notes),
        provenance=attention.provenance,
        **arguments,
    )


def unfold_link(
    text: WrittenText, at: HeadAt, link: tuple[int, int], experiment: Experiment | None
) -> LinkSteps:
    """One weight of a head from its query and key to the change of log p when its link is cut."""
    query, key = link
    sides, changes = text.sides(at), None
    scores = score_of(sides)
    if experiment is not None:
        cut = Intervention(links=(LinkAt(at.stream, query, key, at.layer, at.head),))
        before, after = log_probabilities(experiment, [Intervention(), cut])
        names = (output.name for output in experiment.outputs)
        changes = tuple(zip(names, (after - before).tolist(), strict=True))
    rows = zip(scores[query].tolist(), sides.mask[query].tolist(), strict=True)
    return LinkSteps(
        query=tuple(sides.query[query].tolist()),
        key=tuple(sides.key[key].tolist()),
        value=tuple(sides.value[key].tolist()),
        factor=sides.factor,
        position=None if sides.position is None else float(sides.position[link]),
        cap=sides.cap,
        scores=tuple(score if visible else None for score, visible in rows),
        weights=tuple(weigh(sides, scores)[query].tolist()),
        changes=changes,
    )


def follow_circuit(text: WrittenText, first: LinkReport, most: int) -> list[LinkReport]:
    """A link, the strongest links of the heads that wrote most at its ends, …: `most` in all."""
    roles, reports = role_names(text.attention), [first]
    places = {(first.head, first.link)}
    for report in reports:
        for at, row in _writers_of(text, report):
            item = text.attention.map_of(at.stream)
            weights = item.weights[item.layers.index(at.layer), at.head, row]
            link = row, int(np.argmax(weights))
            if len(reports) == most:
                return reports
            if (at, link) not in places and weights[link[1]] > 0:
                places.add((at, link))
                reports.append(explain_link(text, at, link, roles=roles))
    return reports


def _writers_of(text: WrittenText, report: LinkReport) -> Iterator[tuple[HeadAt, int]]:
    """The heads among a report's largest parts, each with the row at which it wrote."""
    main = report.head.stream
    heads = {name_writer(one, main): one for one in text.writers if one.head is not None}
    for side, row in zip((report.query, report.key), report.link or (), strict=False):
        for part in side[:LISTED]:
            if (writer := heads.get(part.writer)) is not None:
                yield HeadAt(writer.stream, writer.layer, writer.head or 0), row


def explain_head(text: WrittenText, at: HeadAt, notes: Sequence[str] = ()) -> LinkReport:
    """Why a head looks where it looks, as the mean over its rows, weighted by attention."""
    attention = text.attention
    sides = text.sides(at)
    # Factors that turn scores into the mean over rows of the attended minus the mean score.
    sizes = sides.mask.sum(axis=-1, keepdims=True)
    usual = sides.mask / np.maximum(sizes, 1)
    factors: Numbers = (weigh(sides, score_of(sides)) - usual) / max(int((sizes > 1).sum()), 1)
    contrast = np.where(sizes > 1, factors, 0)
    total, by_query, by_key, position = split_score(text, at, sides, contrast)
    roles = role_names(attention)
    weights = weigh(sides, score_of(sides))
    rows = [int(row) for row in np.flatnonzero(contrast.any(axis=-1))]
    cells = [(i, int(j), float(weights[i, j])) for i in rows for j in np.flatnonzero(weights[i])]
    return LinkReport(
        caption=f"{attention.provenance.title} · {at.stream} layer {at.layer} head {at.head} · "
        f"mean over {len(rows)} rows, weighted by attention",
        head=at,
        links=len(cells),
        weight=float((weights[rows] ** 2).sum(axis=-1).mean()) if rows else np.nan,
        contrast=total,
        against="the mean of each row's visible keys",
        query=rank_parts(text, by_query, at.stream, roles),
        key=rank_parts(text, by_key, at.stream, roles),
        pairs=pair_parts(text, at, sides, contrast, by_key),
        position=position,
        notes=(*attention.provenance.notes, *notes),
        provenance=attention.provenance,
        **arguments_of(text, at, sides, cells),
    )


def arguments_of(
    text: WrittenText, at: HeadAt, sides: AttentionCall, cells: Sequence[tuple[int, int, float]]
) -> dict[str, Any]:
    """The report's fields on what links (query, key, weight) argue for, a mean over queries."""
    report = dict[str, Any]()
    outputs: dict[int, Numbers] = {}
    for row, key, weight in cells:
        if text.predicts(at.stream, row):
            outputs[row] = outputs.get(row, 0.0) + weight * sides.value[key].astype(np.float64)
    if not outputs:
        return report
    logits = text.argue(at, outputs) / len(outputs)
    report["logits"] = logits
    if not logits.any():  # a class is read from other positions
        return report
    order = np.argsort(-logits, kind="stable")
    report["arguments"] = list_arguments(text, logits)
    best = int(order[0])
    directions = np.zeros(sides.value.shape)
    place = at.stream, at.layer
    slopes = {row: text.slopes(row, best)[place][at.head] / len(outputs) for row in outputs}
    for row, key, weight in cells:
        if row in slopes:
            directions[key] += weight * slopes[row]
    by_value = text.read(at, "value", directions)
    check_sum("the value's parts of an argument", by_value, float(logits[best]), text)
    report["value"] = rank_parts(text, by_value, at.stream, {})
    report["value_of"] = text.spell(best)
    if len(outputs) == 1:
        (row,) = outputs
        whole = text.logits(row)
        likeliest = int(whole.argmax())
        shares = np.exp(whole - whole.max())
        report["predicted"] = text.spell(likeliest), float(shares[likeliest] / shares.sum())
        report["argument"] = float(logits[likeliest])
        report["rank"] = int((logits > logits[likeliest]).sum()) + 1
        report["logit"] = float(whole[likeliest] - whole.mean())
    return report


def list_arguments(text: WrittenText, logits: Numbers) -> tuple[measures.Argument, ...]:
    """The choices with the largest logits, then those with the lowest."""
    order = np.argsort(-logits, kind="stable")
    most = min(ARGUMENTS, len(order) // 2)
    ends = [*order[:most], *order[len(order) - most :]]
    return tuple(measures.Argument(text.spell(int(n)), float(logits[n])) for n in ends)


class ArgumentStudy:
    """The tokens that each head argues for most: the mean logits of its output."""

    def __init__(self) -> None:
        self._sums: dict[HeadAt, Numbers] = {}
        self._counts: dict[HeadAt, int] = {}
        self._text: WrittenText | None = None

    def add(self, text: WrittenText) -> None:
        self._text = text
        for item in text.attention.maps:
            places = range(len(item.query_tokens))
            rows = [row for row in places if text.predicts(item.stream, row)]
            for place, layer in enumerate(item.layers) if rows else ():
                for head, weights in enumerate(item.weights[place]):
                    at = HeadAt(item.stream, layer, head)
                    mixtures = weights.astype(np.float64) @ text.sides(at).value
                    logits = text.argue(at, {row: mixtures[row] for row in rows})
                    self._sums[at] = self._sums.get(at, 0.0) + logits / len(rows)
                    self._counts[at] = self._counts.get(at, 0) + 1

    def arguments(self, at: HeadAt) -> tuple[measures.Argument, ...]:
        """The choices that a head argues for most, largest first; empty if the head has none."""
        if at not in self._sums or self._text is None:
            return ()
        arguments = list_arguments(self._text, self._sums[at] / self._counts[at])
        return arguments[: len(arguments) // 2]
