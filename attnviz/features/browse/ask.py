"""What a view asks: the model again, files to save, and the command that prints it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attnviz.analyses.select import named_heads
from attnviz.core.attention_map import Attention
from attnviz.core.effects import HeadAt, Intervention, LinkAt, Prediction
from attnviz.core.errors import InputError, UsageError
from attnviz.core.notices import notify
from attnviz.core.options import Choice, Origin
from attnviz.core.query import Picture, Query
from attnviz.core.registry import SourceKind, needs_head
from attnviz.features.ablate.parts import predictions
from attnviz.features.browse.state import State, looks_of
from attnviz.features.experiments.texts import open_experiment
from attnviz.features.image.request import look_through, sheet_parts
from attnviz.features.vision.picture_files import read_picture
from attnviz.features.why.request import effect_of, lens_until
from attnviz.features.why.table import why_table
from attnviz.features.writers.links import explain_link
from attnviz.models import Source, attend_query
from attnviz.renderers import PICTURE_SUFFIXES, Display
from attnviz.renderers.printable import nats, printable, two_digits
from attnviz.runs.many_texts import source_for
from attnviz.runs.pipeline import apply_choice, attend_one, query_of
from attnviz.runs.readers import query_for
from attnviz.storage.saved_maps import Opener
from attnviz.storage.texts import BadText, Text, check_text

COMMANDS = {
    "self": ("self", "--pair"),
    "cross": ("cross", ""),
    "picture": ("image", ""),
    "picture-text": ("image", "--text"),
    "recording": ("audio", "--transcript"),
}
"""The command that prints what a model answers, and its option for the second text."""


class SavedRecord(NamedTuple):
    """Saved maps by their id, and where they lie."""

    id: str
    opener: Opener
    place: int


def records_of(files: list[Opener]) -> Iterator[SavedRecord]:
    """Every text of saved maps, without its weights."""
    for opener in files:
        with opener() as texts:
            ids = [*texts.ids()]
        yield from (SavedRecord(name, opener, place) for place, name in enumerate(ids))


@dataclass
class Asker:
    """A model with a text; or saved maps, which nothing can be asked.

    Attributes:
        origin: where attention comes from; None: saved maps.
        kind: what the model reads.
        text: the text, the pair, or the file of a picture or a recording with what is asked of it.
        saved: the words of the command that prints saved maps.
        records: all texts, or all saved maps, from the first on; number: which of them is seen.
        tell: takes the stage of the work in words.
    """

    origin: Origin | None = None
    kind: SourceKind = "self"
    text: Text | None = None
    saved: tuple[str, ...] = ()
    records: Callable[[], Iterator[Any]] = field(default=lambda: iter(()))
    number: int = 0
    tell: Callable[[str], None] = notify
    source: Source | None = None
    query: Query | None = None

    @property
    def texts(self) -> dict[str, str]:
        """What can be edited, by its name."""
        if self.text is None or self.origin is None or self.kind in ("picture", "recording"):
            return {}
        target = self.text.target
        if self.kind == "picture-text":
            return {"text": target or ""}
        if self.kind == "cross" or target is not None:
            return {"source": self.text.text, "target": target or ""}
        return {"text": self.text.text}

    def with_texts(self, texts: tuple[str, ...]) -> Text:
        """The text that was edited."""
        assert self.text is not None
        check_text(texts[0])
        if self.kind == "picture-text":
            return replace(self.text, target=texts[0])
        target = texts[1] if texts[1:] and texts[1].strip() else None
        return replace(self.text, text=texts[0], target=target, messages=(), labels=None)

    def find(self, record: str | None) -> Any:
        """The first text, or maps; or those of an id, or else of a number from 0."""
        first = None
        for number, one in enumerate(self.records()):
            is_named = record in (None, getattr(one, "id", ""))
            if is_named or (first is None and record == str(number)):
                self.number, first = number, one
            if is_named:
                break
        if first is None:
            raise InputError(f"there is no text {record or 'to browse'}")
        return first

    def move(self, step: int) -> Attention:
        """The attention of the next of several texts, or of the one before."""
        number = self.number + step
        one = next(islice(self.records(), number, None), None) if number >= 0 else None
        if one is None:
            raise UsageError(f"there is no text {'behind' if step > 0 else 'before'} this one")
        self.number = number
        return self.answer_to(one)

    def answer_to(self, one: Text | BadText | SavedRecord) -> Attention:
        """The attention of a text; saved maps are their own."""
        if isinstance(one, BadText):
            raise one.error
        if isinstance(one, Text):
            return self.attend(one)
        self.saved = (
            *self.saved[:2],
            *(("--record", one.id) if self.saved and self.number else ()),
        )
        with one.opener() as texts:
            return texts.at(one.place)

    def attend(
        self,
        text: Text | None = None,
        lens: str = "raw",
        window: tuple[int, int] | None = None,
        *,
        to: str | None = None,
    ) -> Attention:
        """The attention of the text, of another one, or of a part of it, through a lens.

        `to` is the language of the target where it is known, which saves guessing it.
        """
        text, choice, kind = text or self.text, Choice(lens=lens), self.kind
        assert self.origin is not None
        assert text is not None
        origin = replace(self.origin, to=to or self.origin.to)
        if window is not None:
            origin = replace(origin, window="{}-{}".format(*window))
        self.tell("reading" if self.source else "opening the model")
        head: Any = True if needs_head(lens) else "exact"
        source = source_for(origin, kind, with_head=head)
        if kind == "recording":
            query = query_for(source, text, kind)
            answer: Attention = apply_choice(attend_query(source, query), choice)
        elif kind == "picture" or kind == "picture-text":
            # Its own lens is not "raw", since every patch has to attend to every other one.
            pixels, own = read_picture(Path(text.text)), "logits" if lens == "raw" else lens
            query = Query(text.target or "", kind="picture", picture=Picture(pixels, lens=own))
            answer = look_through(source, query, choice, None)
        else:
            query = query_of(source, text, kind)
            answer = attend_one(source, text, choice, kind)
        if window is None:
            self.source, self.query, self.text = source, query, text
        return answer

    def through(self, raw: Attention, lens: str) -> Attention:
        """The same attention through a lens."""
        if lens == "raw":
            return raw
        if self.origin is None or self.kind == "recording":  # which has lenses of weights alone
            return apply_choice(raw, Choice(lens=lens))
        return self.attend(lens=lens)

    def pixels(self, attention: Attention) -> dict[str, Any]:
        """For each stream over a picture, the part of it that the patches cover."""
        small = {}
        if self.query is not None and self.query.picture is not None:
            for name, part in sheet_parts(attention, self.query.picture.images).items():
                copy = part.convert("RGB")
                copy.thumbnail((512, 512))
                small[name] = np.asarray(copy)
        return small

    def _whole(self) -> tuple[Source, Query]:
        """The model, reading all of the text: effects and scores need every weight."""
        assert self.origin is not None
        assert self.source is not None
        assert self.query is not None
        whole, kind = replace(self.origin, max_size=None, rows=None, window=None), self.kind
        if whole == self.origin or kind == "recording":
            return self.source, self.query
        return source_for(whole, kind, with_head="exact"), self.query

    def change(self, off: Intervention, *, maps: bool) -> tuple[Attention | None, str]:
        """The maps with parts off, if asked for, and what that changes of the output, in words."""
        self.tell("switching off")
        experiment = open_experiment(*self._whole())
        attention = experiment.changed_maps(off) if maps else None
        return attention, effect_words(off, predictions(experiment, off))

    def why(self, link: LinkAt, width: int) -> tuple[str, ...]:
        """Why a head looks from a query at a key, as lines."""
        self.tell("taking the score apart")
        source, query = self._whole()
        trace = source.trace_writers(query)
        at, cell = HeadAt(link.stream, str(link.layer), link.head or 0), (link.query, link.key)
        if not trace.sides(at).mask[cell]:
            raise UsageError("the mask of the model hides this key from the query")
        effect, notes = effect_of(source, query, trace, link, None)
        report = explain_link(trace, at, cell, None, effect, notes)
        lens = lens_until(source, query, link, Display(width))
        return tuple((why_table(report, Display(width)) + lens).splitlines())

    def save(self, state: State, name: str) -> str:
        """Write what is seen: the name's suffix decides how; without one, a picture and data."""
        names = [name] if Path(name).suffix else [f"{name}.png", f"{name}.json"]
        files = [Path(one).expanduser() for one in names]
        item = state.part if state.matrix else state.item
        result = apply_choice(replace(state.seen, maps=(item,)), Choice())
        for file in files:
            if file.suffix.lower() not in PICTURE_SUFFIXES:
                result.save(file)
            elif state.over_picture:
                _save_overlay(state, file)
            else:
                result.picture("heatmap" if state.matrix else "grid", file)
        return f"wrote {' and '.join(map(str, files))}"

    def command(self, state: State) -> str:
        """The command that prints this view; empty where there is none."""
        words = [*self.saved]
        if self.origin is not None and self.text is not None:
            command, flag = COMMANDS[self.kind]
            second = [flag, self.text.target] if self.text.target else []
            words = [command, self.text.text, *filter(None, second), *options_of(self.origin)]
        if not words:
            return ""
        item, of_picture = state.item, "picture" in self.kind  # whose command has fewer options
        layer, _ = item.place(state.layer, state.head)
        query = item.query_tokens[state.query]
        many = len(item.heads) * len(item.layers) > 1
        one = bool(named_heads(state.name))  # a lens may have combined heads, or layers too
        options = {
            "--stream": (item.stream, len(state.seen.maps) > 1 and not of_picture),
            "--lens": (state.lens, state.lens != "raw"),
            "--head": (state.name, many and one),
            "--layer": (layer, many and not one and layer.isdecimal()),
            "--special": ("drop", not state.special),
            "--patch": (query.text, item.query_side == "picture" and not query.special),
        }
        for name, (value, applies) in options.items():
            words += [name, value] if applies else []
        words += ["--words"] if state.words and not of_picture else []
        return shlex.join(["attnviz", *words])


def _save_overlay(state: State, file: Path) -> None:
    import attnviz.renderers.figures  # noqa: F401 - first: it loads matplotlib
    from attnviz.features.image.overlay import overlay, picture_crop
    from attnviz.renderers.figures.figure import figure_bytes
    from attnviz.storage.writing import write_file

    item, title = state.item, f"{state.seen.provenance.title} · head {state.name}"
    looks = looks_of(item, state.layer, state.head, state.query)
    crop = picture_crop(state.pictures.get(item.stream))
    figure = overlay(crop, looks, title=title, unit=item.unit, values=item.values)
    write_file(file, figure_bytes(figure, file.suffix))


def options_of(origin: Origin) -> Iterator[str]:
    """The options of the command line that name an origin."""
    for one in fields(Origin):
        value, names = getattr(origin, one.name), one.metadata["option"].names
        simple = isinstance(value, str | int | float | Path)
        if simple and value != getattr(Origin(), one.name) and one.name not in ("top", "seed"):
            yield from names[:1] if value is True else (names[0], str(value))


def effect_words(off: Intervention, changes: tuple[Prediction, ...]) -> str:
    """What parts that are off change of the output."""
    counts = {"head": off.heads, "link": off.links, "token": off.tokens}
    what = ", ".join(
        f"{len(parts)} {name}{'s' * (len(parts) > 1)}" for name, parts in counts.items() if parts
    )
    if not changes:
        return f"{what} off"
    total = sum(one.after - one.before for one in changes)
    words = [f"{what} off: log p of the output {nats(total)}"]
    odds = [(float(np.exp(one.before)), float(np.exp(one.after)), one) for one in changes]
    odds = sorted(odds, key=lambda row: -abs(row[0] - row[1]))[:3]
    for before, after, one in odds:
        if abs(before - after) >= 0.005:
            line = f"{printable(one.name)} {two_digits(before)} → {two_digits(after)}"
            now = one.likeliest_after[0][0] if one.likeliest_after else one.name
            words.append(line if now == one.name else f"{line} (now {printable(now)})")
    return " · ".join(words)
