"""Which words of a pair translate each other, as cross-attention says, read both ways round."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses.select import reduce_map, select
from attnviz.analyses.words import merge_attention
from attnviz.core.attention_map import Attention, AttentionMap, check_single_tokens
from attnviz.core.errors import AttnvizError, InputError, UsageError, choose
from attnviz.core.notices import notify
from attnviz.core.options import Options
from attnviz.core.query import Query
from attnviz.core.records import dataclass, field, replace
from attnviz.core.registry import SYMMETRIZATIONS
from attnviz.features.align.links import (
    Links,
    Score,
    align,
    mutual,
    pharaoh,
    read_gold,
    symmetrize,
    words_only,
)
from attnviz.models import Source
from attnviz.models.open import check_origin, is_shipped
from attnviz.renderers.data import escape
from attnviz.renderers.reports import Data, listing
from attnviz.runs.engines.shards import Engine
from attnviz.runs.inputs import TextInput
from attnviz.runs.many_texts import (
    Chunk,
    Record,
    SourceWork,
    chunk_name,
    engine_for,
    source_for,
    with_records,
    with_shards,
)
from attnviz.runs.pipeline import check_choice
from attnviz.runs.reporting import RunReport
from attnviz.storage.columns import columns_of
from attnviz.storage.documents import report_json
from attnviz.storage.matrices import read_bytes
from attnviz.storage.texts import BadText, Text, chunks

_OTHER_LANGUAGE = {"en": "fr", "fr": "en"}
"""The language that a translation into one comes from."""

AGAINST = ("input", "output")  # a decoder's row stands for the token it has read, or predicts


DOUBTFUL = 0.5
"""Score of two directions below which links are mostly wrong: on ALIBI, and on it with foreign
words, those pairs have an alignment error of 65 % and more, and pairs above 0.8 of 7 %."""


@dataclass(frozen=True, slots=True, eq=False)
class AlignedPair:
    """A pair's links, and the target's attention over the source, in words."""

    links: Links
    forward: Attention
    # how sure the links are, from 0 to 1. Read both ways: how far the directions agree, 2 × links
    # of both / (links of one + links of the other). One way: their mean weight
    score: float
    reliable: bool  # False: the directions disagree, or the pair is unlike the training data


@dataclass(frozen=True, slots=True, eq=False)
class Aligner:
    """A model as a word aligner."""

    source: Source
    backward: Source  # the model for the other direction; the same one unless a language is fixed
    # a name of SYMMETRIZATIONS; None: "intersection" if it translates both ways, else "forward"
    how: str | None = None
    against: str = "input"
    layer: str | None = None  # layers to read; None: the one in focus, else all. `head` likewise
    head: str | None = None
    notes: dict[str, None] = field(default_factory=dict)  # the model's notes so far

    def __post_init__(self) -> None:
        if self.how is not None:
            choose(self.how, SYMMETRIZATIONS, "symmetrization")
        choose(self.against, AGAINST, "side to align against")

    def align(
        self, pairs: Sequence[Text], batch_size: int | None = None
    ) -> Iterator[AlignedPair | InputError]:
        """The links of each pair, (source word, target word), words being runs between spaces."""
        reverse = [
            pair if pair.target is None else replace(pair, text=pair.target, target=pair.text)
            for pair in pairs
        ]
        backward: Iterator[Attention | InputError] | None = None
        for number, forward in enumerate(self._read(self.source, pairs, batch_size)):
            if isinstance(forward, InputError):
                if backward is not None:
                    next(backward)
                yield forward
                continue
            # Only of this direction: in the other one the target is called the source.
            self.notes.update(dict.fromkeys(forward.provenance.notes))
            usual = "intersection" if forward.two_way else "forward"
            how = self.how or usual
            there = self.matrix(forward)
            if how == "forward":
                links, weights = _one_way(there), words_of(there).T
                score = sum(float(weights[link]) for link in links) / max(len(links), 1)
                yield AlignedPair(links, forward, score, not forward.outside)
                continue
            if backward is None:
                # A target that the model wrote is known only now.
                text, target = forward.target or "", pairs[number].text
                reverse[number] = replace(reverse[number], text=text, target=target)
                backward = self._read(self.backward, reverse[number:], batch_size)
            back = next(backward)
            if isinstance(back, InputError):
                yield back
            else:
                yield _join_directions(how, forward, there, self.matrix(back))

    def _read(
        self, source: Source, pairs: Sequence[Text], batch_size: int | None = None
    ) -> Iterator[Attention | InputError]:
        complete = [pair for pair in pairs if pair.target is not None or not pair.where]
        answers = source.attend(
            [Query(pair.text, pair.target, "cross") for pair in complete], batch_size=batch_size
        )
        for pair in pairs:
            if pair.target is None and pair.where:
                yield InputError("an alignment needs a source and a target, separated by a tab")
                continue
            answer = next(answers)
            yield answer if isinstance(answer, InputError) else self._in_words(answer)

    def _in_words(self, attention: Attention) -> Attention:
        if attention.main.stream != "cross":
            raise UsageError(f"'{attention.provenance.model}' gives no cross-attention to align by")
        cross = shift_rows(attention.main) if self.against == "output" else attention.main
        return merge_attention(replace(attention, maps=(cross,)))

    def matrix(self, attention: Attention) -> AttentionMap:
        """The one matrix that links are read from: the chosen layers and heads, averaged."""
        focus = attention.focus.get("cross")
        layer, head = self.layer, self.head
        if focus and layer is None and head is None:
            layer, head = focus.layer, focus.head
        return reduce_map(select(attention, None, layer, head).main, "mean", "both")


def shift_rows(item: AttentionMap) -> AttentionMap:
    """The map with each row set against the token that it predicts: the next one."""
    return item.with_weights(item.weights[:, :, :-1], query_tokens=item.query_tokens[1:])


def _join_directions(
    how: str, attention: Attention, forward: AttentionMap, back: AttentionMap
) -> AlignedPair:
    """The links of both directions, and how far these agree."""
    one = _one_way(forward)
    other = frozenset((source, target) for target, source in _one_way(back))
    score = 2 * len(one & other) / max(len(one) + len(other), 1)
    if how == "product":
        links = mutual(words_of(forward).T * words_of(back))
    else:
        links = other if how == "reverse" else symmetrize(one, other, how)
    return AlignedPair(links, attention, score, score >= DOUBTFUL and not attention.outside)


def words_of(item: AttentionMap) -> NDArray[np.floating]:
    """The weights of the first head between words, (query words, key words)."""
    return words_only(item.weights[0, 0], item.query_tokens, item.key_tokens)


def _one_way(item: AttentionMap) -> Links:
    check_single_tokens(item, "alignment")
    return align(item.weights[0, 0], item.query_tokens, item.key_tokens)


@dataclass(slots=True)
class Scores:
    """The score of every layer and head, forward only, and of the links that the aligner gives."""

    heads: dict[tuple[str, str], Score] = field(default_factory=dict)
    aligner: Score = field(default_factory=Score)

    def add(self, pair: AlignedPair, sure: Links, possible: Links) -> None:
        """Count one pair with its gold links."""
        self.aligner.add(pair.links, sure, possible)
        item = pair.forward.main
        for layer, of_layer in zip(item.layers, item.weights, strict=True):
            for head, weights in zip(item.heads, of_layer, strict=True):
                score = self.heads.setdefault((layer, head), Score())
                score.add(align(weights, item.query_tokens, item.key_tokens), sure, possible)

    def rows(self) -> Iterable[tuple[str, str, Score]]:
        """Layer, head and score, the best first."""
        entries = sorted(self.heads.items(), key=lambda entry: entry[1].error)
        return ((layer, head, score) for (layer, head), score in entries)


@dataclass(frozen=True, slots=True)
class AlignChunk(SourceWork):
    """The work on a chunk of pairs whose words are to be aligned, as `Aligner` takes it."""

    layer: str | None = None
    head: str | None = None
    how: str | None = None
    against: str = "input"
    batch_size: int | None = None

    def __call__(self, chunk: Chunk) -> list[AlignedPair | AttnvizError]:
        """The alignment of each record, or why it has none."""
        source = self.source_for("cross")
        own, backward = self.origin, source
        if own.to is not None:
            other = own.from_ or _OTHER_LANGUAGE[own.to]
            backward = source_for(replace(own, from_=own.from_ and own.to, to=other), "cross")
        aligner = Aligner(source, backward, self.how, self.against, self.layer, self.head)
        pairs = [record for record in chunk if isinstance(record, Text)]
        results = aligner.align(pairs, self.batch_size)
        outcomes: list[AlignedPair | AttnvizError] = []
        for record in chunk:
            outcome = record.error if isinstance(record, BadText) else next(results)
            if isinstance(record, Text) and record.where and isinstance(outcome, InputError):
                outcome = type(outcome)(f"{record.where}: {outcome}")
            outcomes.append(outcome)
        for text in aligner.notes:
            notify(text)
        return outcomes


def check_alignment(options: Options, how: str | None, against: str) -> AlignChunk:
    """The work on a chunk of pairs; wrong options are refused before a model loads."""
    choice = options.choice
    check_choice(choice)
    origin = options.origin
    check_origin(origin, "cross")
    if not is_shipped(origin) and (origin.from_ is None) != (origin.to is None):
        raise UsageError("each pair is read both ways: give both --from CODE and --to CODE")
    what = choice.layer, choice.head, how, against, options.many.batch_size
    return AlignChunk(origin, *what)


def _align_all(
    work: AlignChunk, texts: TextInput, engine: Engine
) -> Iterator[tuple[Record, AlignedPair | AttnvizError]]:
    read = chunks(texts.open(), ready=texts.ready)
    return with_records(with_shards(work, read, engine, chunk_name))


def report_links(work: AlignChunk, texts: TextInput, options: Options, report: RunReport) -> None:
    """Report the links of each pair; one without links gets a blank, so that lines stay in step."""
    count, doubtful = 0, list[Record]()
    with engine_for(options.many) as engine, report.progress(texts.total) as advance:
        for record, outcome in _align_all(work, texts, engine):
            advance(1)
            data = links_data(getattr(record, "id", str(count)), outcome)
            count += 1
            if isinstance(outcome, AttnvizError):
                report.skip(record, outcome)
                report.add_blank(data)
                continue
            report.add(data)
            if not outcome.reliable:
                doubtful.append(record)
    say_unreliable(doubtful, count, report)
    report.finish("done")


MOST_NAMED = 10  # lines that a note names


def say_unreliable(records: Sequence[Record], count: int, report: RunReport) -> None:
    """Name the lines whose links are not reliable."""
    if records:
        file = records[0].where.partition(" of ")[2]
        names = [record.where.partition(" of ")[0] for record in records[:MOST_NAMED]]
        more = f" and {len(records) - len(names)} more" if len(records) > len(names) else ""
        where = f": {', '.join(names)}{more} of {file}" if file else ""
        pairs = f"{count} pair{'s' if count > 1 else ''}"
        report.say(
            f"the links of {len(records)} of {pairs} are unreliable (both "
            "directions hardly agree, or the pair lies outside what the model was trained for)"
            + where
        )


def links_data(name: str, pair: AlignedPair | AttnvizError) -> Data:
    """The links of one pair as data."""
    links: list[tuple[int, int]] | None = None
    texts: tuple[str | None, str | None] = (None, None)
    score, more = None, dict[str, Any]()
    if not isinstance(pair, AttnvizError):
        links, score = sorted(pair.links), round(pair.score, 4)
        texts = (pair.forward.source, pair.forward.target)
        more = {"reliable": pair.reliable, "notes": pair.forward.provenance.notes}
    source, target = ((text or "").split() for text in texts)
    rows = [(name, str(s), source[s], str(t), target[t], str(score)) for s, t in links or []]
    about = {"id": name, "source": texts[0], "target": texts[1], "links": links, "score": score}
    return Data(
        links=lambda: f"{pharaoh(frozenset(links or []))}\n",
        rows=lambda: "".join(
            "\t".join(map(escape, row)) + "\n" for row in [columns_of("alignment"), *rows]
        ),
        document=lambda: report_json("alignment", **about, **more),
        value=links,
    )


def report_scores(
    work: AlignChunk,
    gold: Sequence[tuple[Links, Links]],
    texts: TextInput,
    options: Options,
    report: RunReport,
) -> None:
    """Report precision, recall and error of every layer and head, best first, and of all."""
    scores, count = Scores(), 0
    with engine_for(options.many) as engine, report.progress(texts.total) as advance:
        for count, (record, outcome) in enumerate(_align_all(work, texts, engine), 1):
            advance(1)
            if count > len(gold):
                raise InputError(f"the gold file has {len(gold)} lines, fewer than there are pairs")
            if isinstance(outcome, AttnvizError):
                report.skip(record, outcome)
            else:
                scores.add(outcome, *gold[count - 1])
    if count < len(gold):
        raise InputError(f"the gold file has {len(gold)} lines for {count} pairs")
    rows = [("as asked", "", scores.aligner), *scores.rows()]
    columns = ("layer", "head", "precision", "recall", "alignment_error")
    cells = [
        (layer, head, score.precision, score.recall, score.error) for layer, head, score in rows
    ]
    report.add(listing("scores", columns, cells, headings=True))
    report.finish("done")


def read_gold_file(path: Path) -> list[tuple[Links, Links]]:
    """The sure and possible links of each line."""
    lines = read_bytes(path).decode("utf-8", "replace").splitlines()
    links = []
    for number, line in enumerate(lines, 1):
        try:
            links.append(read_gold(line))
        except InputError as error:
            raise InputError(f"line {number} of '{path}': {error}") from error
    return links
