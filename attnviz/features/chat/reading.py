"""Read which parts of a chat a model looks at: sums over keys as they come, no whole matrix."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attnviz.analyses import words
from attnviz.analyses.group import WAYS, Axis, group_numbers, read_groups
from attnviz.analyses.select import select
from attnviz.core import errors, options, query
from attnviz.core.attention_map import Attention, AttentionMap, Token
from attnviz.core.records import dataclass, replace
from attnviz.core.tokens import split_sentences
from attnviz.features.chat import report
from attnviz.features.chat.places import TOOLS, Prompt, Span, names_of, read_prompt
from attnviz.models.hugging_face.capture.capture import capture, capture_notes, with_routes
from attnviz.models.hugging_face.capture.region import PooledGrid, Region, parts_between
from attnviz.models.hugging_face.inputs.encoding import EncodedQuery, encode
from attnviz.models.hugging_face.load.imports import quiet
from attnviz.models.hugging_face.text_model import HuggingFaceModel
from attnviz.storage.texts import Text

Numbers = NDArray[np.float64]
ASSISTANT, NEXT, REST = "assistant", "(next token)", "rest"
INVENTED = 5  # a note tells of words that a template adds: at least so many in a row


@dataclass(frozen=True, slots=True)
class ChatLayout:
    """A chat as tokens: the part of each, and the rows that look."""

    tokens: tuple[Token, ...]
    text: str
    names: tuple[str, ...]  # of the parts, the template last
    part_of: NDArray[np.int64]  # of each token
    rows: tuple[tuple[str, int, int], ...]  # its text, its first token and one past its last
    unit: str
    looks: str
    has_answer: bool
    written: bool
    notes: tuple[str, ...]


def read_chat(
    source: HuggingFaceModel, record: Text, choice: options.Choice, *, pieces: bool
) -> report.ChatReport:
    """The parts of a conversation that its answer, or else its last turn, looks at.

    Raises:
        InputError: it is no conversation that the model can read.
        UsageError: the model is to write after an assistant's turn.
    """
    writes = source.max_new_tokens is not None
    if writes and record.messages[-1].role == ASSISTANT:
        raise errors.UsageError(
            "the chat ends in an assistant's turn, and --generate would write after it: leave "
            "--generate out, or leave out that turn"
        )
    prompt = read_prompt(record.messages, record.tools, source.render)
    with quiet():
        encoding = encode(source, query.Query(prompt.text, rendered=True))
        layout = _layout(prompt, encoding, record, choice, pieces=pieces, writes=writes)
        attention, first = _read(source, encoding, layout)
    own = select(attention, choice.stream, choice.layer, choice.head)
    return _report(record, layout, attention, own, first)


def _layout(
    prompt: Prompt,
    encoding: EncodedQuery,
    record: Text,
    choice: options.Choice,
    *,
    pieces: bool,
    writes: bool,
) -> ChatLayout:
    """The parts and rows of a chat."""
    tokens, text = encoding.tokens["text"], encoding.attention.text or ""
    names, spans = [*prompt.names], [*prompt.spans]
    if writes:
        names = [*names_of([*(one.role for one in record.messages), ASSISTANT])]
        spans.append(((len(prompt.text), len(text)),))
    owners = _owners(tokens, spans)
    if writes:  # special tokens that it wrote cover no character
        owners[int(encoding.attention.provenance.settings["prompt tokens"]) :] = len(spans) - 1
    is_answer = writes or record.messages[-1].role == ASSISTANT
    rows, unit = _rows(
        tokens, text, spans[-1], owners == len(spans) - 1, choice.group, pieces=pieces
    )
    notes = [*prompt.missing, *_template_words(tokens, text, [*spans, prompt.tools], record)]
    if is_answer and not rows:
        raise errors.InputError(f"the answer is not in the prompt: {'; '.join(prompt.missing)}")
    looks = names[-1]
    if not is_answer:
        rows.append((NEXT, len(tokens) - 1, len(tokens)))
        notes.append(
            f"the chat has no answer yet: {looks}, its last turn, looks, and {NEXT} is the end of "
            "the prompt, from where an answer would begin; --generate N writes one"
        )
    if prompt.tools:
        names.append(TOOLS)
        own = _owners(tokens, [*spans, prompt.tools])
        owners = np.where(owners < 0, own, owners)
    if choice.group is not None and choice.group not in WAYS:
        names, owners = _groups_of_file(Path(choice.group), tokens, text, owners)
    present = [number for number in range(len(names)) if (owners == number).any()]
    part_of = np.full(len(tokens), len(present))
    for place, number in enumerate(present):
        part_of[owners == number] = place
    every = (*(names[number] for number in present), report.TEMPLATE)
    return ChatLayout(tokens, text, every, part_of, tuple(rows), unit, looks, is_answer, writes,
                  tuple(notes))  # fmt: skip


def _owners(tokens: Sequence[Token], spans: Sequence[Sequence[Span]]) -> NDArray[np.int64]:
    """The message that holds most of each token; -1: none does."""
    places = sorted((first, end, n) for n, own in enumerate(spans) for first, end in own)
    owners = np.full(len(tokens), -1)
    at = 0
    for number, token in enumerate(tokens):
        if token.special or token.end <= token.start:
            continue
        while at < len(places) and places[at][1] <= token.start:
            at += 1
        overlaps = [
            (min(end, token.end) - max(first, token.start), n)
            for first, end, n in places[at : at + 3]
            if first < token.end and end > token.start
        ]
        if overlaps:
            owners[number] = max(overlaps)[1]
    return owners


def _rows(
    tokens: Sequence[Token],
    text: str,
    spans: Sequence[Span],
    own: NDArray[np.bool_],
    group: str | None,
    *,
    pieces: bool,
) -> tuple[list[tuple[str, int, int]], str]:
    """The rows of the last message: its sentences, of fewer than two its words, or its tokens."""
    places = np.flatnonzero(own).tolist()
    if pieces:
        return [(tokens[n].text, n, n + 1) for n in places], "tokens"
    mine = [tokens[n] for n in places]
    by_sentence, units = True, _units(text, spans, split_sentences)
    if group == "words" or (group != "sentences" and len(units) < 2):
        by_sentence, units = False, _units(text, spans, words.split_marks)
    units = words.cut_at_special(words.words_of(mine, text, units), tokens) if mine else ()
    first, stop = (places[0], places[-1] + 1) if places else (0, 0)
    every = words.word_numbers(tokens[first:stop], text, units)  # special tokens cut words
    numbers = [every[place - first] for place in places]
    rows = list[tuple[str, int, int]]()
    for number, run in groupby(zip(places, numbers, strict=True), lambda one: one[1]):
        at = [place for place, _ in run]
        cuts = [n for n in range(1, len(at)) if at[n] != at[n - 1] + 1]
        for start, end in zip([0, *cuts], [*cuts, len(at)], strict=True):
            first, last = at[start], at[end - 1] + 1
            name = tokens[first].text if number is None else units[number].text
            rows.append((name, first, last))
    return rows, "sentences" if by_sentence else "words"


def _units(
    text: str, spans: Sequence[Span], split: Callable[[str], Sequence[Token]]
) -> Sequence[Token]:
    """The sentences or words of a message, cut within its spans."""
    return [
        replace(one, start=one.start + first, end=one.end + first)
        for first, end in spans
        for one in split(text[first:end])
    ]


def _groups_of_file(
    path: Path, tokens: tuple[Token, ...], text: str, owners: NDArray[np.int64]
) -> tuple[list[str], NDArray[np.int64]]:
    """The groups of a file as parts; what else the messages hold is the rest."""
    lists = read_groups(path)
    if len(lists) > 1:
        raise errors.InputError(f"'{path}' groups a source and a target, but this is one text")
    names, groups = zip(*lists[0], strict=True)
    numbers = group_numbers(tokens, text, groups, Axis(tokens))
    own = np.array([-1 if number is None else number for number in numbers])
    own[(own < 0) & (owners >= 0)] = len(names)
    return [*names, REST], own


def _template_words(
    tokens: Sequence[Token], text: str, spans: Sequence[Sequence[Span]], record: Text
) -> list[str]:
    """What the template itself says: a system prompt that nobody gave, a date."""
    said = [one for own in spans for one in own]
    said += [(one.start, one.end) for one in tokens if one.special and one.end > one.start]
    at, notes = 0, []
    for first, end in [*sorted(said), (len(text), len(text))]:
        words_here = text[at:first].split()
        if len(words_here) >= INVENTED:
            short = " ".join(words_here)
            short = short if len(short) <= 60 else f"{short[:59]}…"
            notes.append(f"the template adds words of its own, which count as template: “{short}”")
        at = max(at, end)
    return notes[:3]


def _read(
    source: HuggingFaceModel, encoding: EncodedQuery, layout: ChatLayout
) -> tuple[Attention, dict[tuple[str, str], Numbers]]:
    """What each row gives each part, as maps of rows × parts, and what it gives the first token."""
    edges = [0, 1, *(np.flatnonzero(np.diff(layout.part_of)) + 1).tolist(), len(layout.tokens)]
    keys = parts_between(sorted({*edges}))
    cuts = sorted({edge for _, *ends in layout.rows for edge in ends})
    queries = parts_between(cuts)
    places = [cuts.index(first) for _, first, _ in layout.rows]
    ((stream, _),) = encoding.axes.items()
    captures = capture(
        encoding.part,
        source.tensors(encoding.inputs, encoding.part),
        encoding.sides,
        region=Region(links=0),
        grids={stream: PooledGrid(queries, keys)},
    )
    fold = np.zeros((keys.blocks, len(layout.names)))
    fold[np.arange(keys.blocks), [layout.part_of[first] for first, _ in keys.spans]] = 1
    maps, firsts = list[AttentionMap](), dict[tuple[str, str], Numbers]()
    for item in captures:
        weights = item.weights[:, :, places].astype(np.float64)
        maps.append(
            AttentionMap(
                item.stream,
                tuple(Token(name) for name, *_ in layout.rows),
                tuple(Token(name) for name in layout.names),
                (weights @ fold).astype(np.float32),
                layers=item.layers,
                heads=item.heads,
                key_side="parts",
            )
        )
        names = ((layer, head) for layer in maps[-1].layers for head in maps[-1].heads)
        firsts |= dict(zip(names, weights[..., 0].reshape(-1, len(places)), strict=True))
    provenance = with_routes(encoding.attention.provenance, [item.route for item in captures])
    whole = [replace(item, grid=None) for item in captures]
    notes = (*provenance.notes, *capture_notes(whole, encoding.sides))
    provenance = replace(provenance, notes=notes)
    return replace(encoding.attention, maps=tuple(maps), provenance=provenance), firsts


def _report(
    record: Text,
    layout: ChatLayout,
    attention: Attention,
    own: Attention,
    firsts: Mapping[tuple[str, str], Numbers],
) -> report.ChatReport:
    """The report of the heads that were chosen."""
    names = [item.place(layer, head) for item in own.maps
             for layer in range(len(item.layers)) for head in range(len(item.heads))]  # fmt: skip
    shares = np.concatenate([one.weights.reshape(-1, *one.weights.shape[2:]) for one in own.maps])
    shares = shares.astype(np.float64)
    sizes = np.array([last - first for _, first, last in layout.rows], dtype=float)
    by_head = np.average(shares, axis=1, weights=sizes)
    mean, total = shares.mean(axis=0), by_head.mean(axis=0)
    even = _even_shares(layout, causal=attention.maps[0].stream == "causal")
    first = np.mean([np.average(firsts[name], weights=sizes) for name in names])
    differences = np.abs(by_head - total).sum(axis=1) / 2
    order = sorted(range(len(names)), key=lambda n: (-round(float(differences[n]), 9), n))
    with np.errstate(divide="ignore", invalid="ignore"):
        over = np.where(even > 0, total / even, np.nan)
    parts = tuple(
        report.ChatPart(
            name,
            int((layout.part_of == number).sum()),
            _beginning(layout, number),
            *map(float, (total[number], even[number], over[number])),
        )
        for number, name in enumerate(layout.names)
    )
    provenance = own.provenance
    return report.ChatReport(
        caption=f"{provenance.title} · chat of {len(layout.tokens):,} tokens",
        id=record.id,
        tokens=len(layout.tokens),
        heads_shown=f"layer {names[0][0]} head {names[0][1]}"
        if len(names) == 1
        else f"mean of {len(names)} heads",
        looks=layout.looks,
        unit=layout.unit,
        has_answer=layout.has_answer,
        written=layout.written,
        first_token=float(first),
        parts=parts,
        rows=tuple(
            report.ChatRow(text, start, stop - start, tuple(own.tolist()))
            for (text, start, stop), own in zip(layout.rows, mean, strict=True)
        ),
        heads=tuple(
            report.ChatHead(*names[n], tuple(by_head[n].tolist()), float(differences[n]))
            for n in order
        ),
        notes=(*layout.notes, *provenance.notes),
        provenance=provenance,
    )


def _even_shares(layout: ChatLayout, *, causal: bool) -> Numbers:
    """What each part would get if each token of a row looked evenly at all that it sees."""
    rows = np.concatenate([np.arange(first, last) for _, first, last in layout.rows])
    sees = rows + 1 if causal else np.full(len(rows), len(layout.tokens))
    counts = (
        np.searchsorted(np.flatnonzero(layout.part_of == part), sees)
        for part in range(len(layout.names))
    )
    return np.array([(own / sees).mean() for own in counts])


def _beginning(layout: ChatLayout, part: int) -> str:
    own = [layout.tokens[n] for n in np.flatnonzero(layout.part_of == part)]
    at = [one for one in own if one.end > one.start]
    if layout.names[part] == report.TEMPLATE or not at:
        return " ".join(dict.fromkeys(one.text for one in own))[: report.BEGINNING]
    text = layout.text[at[0].start : at[-1].end]
    return " ".join(text[: 2 * report.BEGINNING].split())[: report.BEGINNING]
