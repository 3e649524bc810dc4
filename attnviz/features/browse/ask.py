"""What a view asks: the model again, files to save, and the command that prints it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from attnviz.analyses.effects.ablation import predictions
from attnviz.analyses.select import named_heads
from attnviz.analyses.why import explain_link
from attnviz.core.attention_map import Attention
from attnviz.core.effects import HeadAt, Intervention, LinkAt, Prediction
from attnviz.core.errors import AttnvizError, InputError, UsageError
from attnviz.core.notices import notify, pause
from attnviz.core.options import Choice, Origin
from attnviz.core.query import Picture, Query
from attnviz.features.browse.state import (
    NOTHING,
    State,
    answer,
    go_next,
    looks_of,
    next_lens,
    rank_heads,
    say,
    see,
)
from attnviz.features.image.request import look_through, sheet_parts
from attnviz.features.why.request import effect_of, lens_until
from attnviz.features.why.table import why_table
from attnviz.models import Source, attend_query
from attnviz.models.lens import needs_head, open_experiment, written_of
from attnviz.renderers import PICTURE_SUFFIXES, Display
from attnviz.renderers.printable import nats, printable, two_digits
from attnviz.runs.many_texts import source_for
from attnviz.runs.pipeline import apply_choice, attend_one, query_of
from attnviz.runs.readers import InputKind, open_reader, query_for
from attnviz.storage.pictures import read_picture
from attnviz.storage.texts import BadText, Text, check_text

RESULTS = {"self": "self", "cross": "cross", "picture": "image"}
"""The command that prints what a model answers, by what it is opened for."""
NO_OPTIONS = ("top", "seed")


@dataclass
class Asker:
    """A model with a text; or saved maps, which nothing can be asked.

    Attributes:
        origin: where attention comes from; None: saved maps.
        kind: what the model reads.
        text: the text, the pair, or the file of a picture or a recording with what is asked of it.
        saved: the command that prints saved maps: "render", a file and a record.
        records: all texts, or all saved maps, from the first on; number: which of them is seen.
        tell: takes the stage of the work in words.
    """

    origin: Origin | None = None
    kind: InputKind = "self"
    text: Text | None = None
    saved: tuple[str, ...] = ()
    records: Callable[[], Iterator[Any]] = field(default=lambda: iter(()))
    number: int = 0
    tell: Callable[[str], None] = notify
    source: Source | None = None
    query: Query | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """What can be edited."""
        if self.text is None or self.origin is None:
            return ()
        if self.kind in ("picture", "recording"):
            return ()
        if self.kind == "picture-text":
            return (self.text.target or "",)
        both = self.kind == "cross" or self.text.target is not None
        return (self.text.text, self.text.target or "") if both else (self.text.text,)

    def with_texts(self, texts: tuple[str, ...]) -> Text:
        """The text that was edited."""
        assert self.text is not None
        for text in texts[:1]:
            check_text(text)
        if self.kind == "picture-text":
            return replace(self.text, target=texts[0])
        target = texts[1] if len(texts) > 1 and texts[1].strip() else None
        return replace(self.text, text=texts[0], target=target, messages=(), labels=None)

    def find(self, record: str | None) -> Any:
        """The first text, or maps; or those of an id, or else of a number from 0."""
        fit = None
        for number, one in enumerate(self.records()):
            name = getattr(one, "id", "")
            if record in (None, name) or (fit is None and record == str(number)):
                self.number, fit = number, one
            if record in (None, name):
                break
        if fit is None:
            raise InputError(f"there is no text {record or 'to browse'}")
        return fit

    def move(self, step: int) -> Attention:
        """The attention of the next of several texts, or of the one before."""
        number = self.number + step
        one = next(islice(self.records(), number, None), None) if number >= 0 else None
        if one is None:
            raise UsageError(f"there is no text {'behind' if step > 0 else 'before'} this one")
        self.number = number
        return self.answer_to(one)

    def answer_to(self, one: Any) -> Attention:
        """The attention of a text; saved maps are their own."""
        if isinstance(one, BadText):
            raise one.error
        if isinstance(one, Attention):
            number = ("--record", str(self.number)) if self.saved and self.number else ()
            self.saved = (*self.saved[:2], *number)
            return one
        if self.kind in ("self", "cross"):
            self.kind = "self" if one.target is None else "cross"
        return self.attend(text=one)

    def attend(
        self,
        texts: tuple[str, ...] = (),
        lens: str = "raw",
        window: tuple[int, int] | None = None,
        *,
        to: str | None = None,
        text: Text | None = None,
    ) -> Attention:
        """The attention of the text, of another one, or of a part of it, through a lens.

        `to` is the language of the target where it is known, which saves guessing it.
        """
        assert self.origin is not None
        text = text or (self.with_texts(texts) if texts else self.text)
        assert text is not None
        origin = replace(self.origin, to=to or self.origin.to)
        if window is not None:
            origin = replace(origin, window="{}-{}".format(*window))
        head: Any = True if needs_head(lens) else "exact"
        if self.source is None:
            self.tell("opening the model")
        with pauses_between_modules():
            if self.kind == "recording":
                source = open_reader(origin, "recording", with_head=head)
                query = query_for(source, text, "recording")
                answer: Attention = apply_choice(attend_query(source, query), Choice(lens=lens))
            elif self.kind in ("picture", "picture-text"):
                source = source_for(origin, self.kind, with_head=head)
                # Its own lens is not "raw", since every patch has to attend to every other one.
                picture = Picture(
                    read_picture(Path(text.text)), lens="logits" if lens == "raw" else lens
                )
                query = Query(text.target or "", kind="picture", picture=picture)
                self.tell("looking")
                answer = look_through(source, query, Choice(lens=lens), None)
            else:
                source = source_for(origin, self.kind, with_head=head)
                self.tell("reading")
                kind: Any = self.kind
                query = query_of(source, text, kind)
                answer = attend_one(source, text, Choice(lens=lens), kind)
        if window is None:
            self.source, self.query, self.text = source, query, text
        return answer

    def pixels(self, attention: Attention) -> dict[str, Any]:
        """For each stream over a picture, the part of it that the patches cover."""
        if self.query is None or self.query.picture is None:
            return {}
        parts = sheet_parts(attention, self.query.picture.images)
        small = {}
        for name, part in parts.items():
            copy = part.convert("RGB")
            copy.thumbnail((512, 512))
            small[name] = np.asarray(copy)
        return small

    @property
    def whole(self) -> Source:
        """The model, reading all of the text: effects and scores need every weight."""
        assert self.origin is not None
        assert self.source is not None
        whole = replace(self.origin, max_size=None, rows=None, window=None)
        if whole == self.origin:
            return self.source
        kind: Any = self.kind
        return source_for(whole, kind, with_head="exact")

    def change(self, off: Intervention, *, maps: bool) -> tuple[Attention | None, str]:
        """The maps with parts off, if asked for, and what that changes of the output, in words."""
        assert self.query is not None
        self.tell("switching off")
        with pauses_between_modules():
            experiment = open_experiment(self.whole, self.query)
            attention = experiment.changed_maps(off) if maps else None
            changes = predictions(experiment, off)
        return attention, effect_words(off, changes)

    def why(self, link: LinkAt, width: int) -> tuple[str, ...]:
        """Why a head looks from a query at a key, as lines."""
        assert self.query is not None
        self.tell("taking the score apart")
        with pauses_between_modules():
            trace = written_of(self.whole, self.query)
            at, cell = HeadAt(link.stream, str(link.layer), link.head or 0), (link.query, link.key)
            if not trace.sides(at).visible[cell]:
                raise UsageError("the mask of the model hides this key from the query")
            pause()
            effect, notes = effect_of(self.whole, self.query, trace, link, None)
            report = explain_link(trace, at, cell, None, effect, notes)
            lens = lens_until(self.whole, self.query, link, Display(width))
        return tuple((why_table(report, Display(width)) + lens).splitlines())

    def save(self, state: State, name: str) -> str:
        """Write what is seen: the name's suffix decides how; without one, a picture and data."""
        names = [name] if Path(name).suffix else [f"{name}.png", f"{name}.json"]
        files = [Path(one).expanduser() for one in names]
        item = state.item
        if state.matrix:
            item = item.part([item.layers[state.layer]], [item.heads[state.head]])
        result = apply_choice(replace(state.seen, maps=(item,)), Choice())
        for file in files:
            if file.suffix.lower() not in PICTURE_SUFFIXES:
                result.save(file)
            elif state.over_picture:
                self._save_overlay(state, file)
            else:
                result.picture("heatmap" if state.matrix else "grid", file)
        return f"wrote {' and '.join(map(str, files))}"

    def _save_overlay(self, state: State, file: Path) -> None:
        import attnviz.renderers.figures  # noqa: F401 - first: it loads matplotlib
        from attnviz.renderers.figures.figure import figure_bytes
        from attnviz.renderers.figures.overlay import overlay, picture_crop
        from attnviz.storage.writing import write_file

        item, title = state.item, f"{state.seen.provenance.title} · head {state.name}"
        looks = looks_of(item, state.layer, state.head, state.query)
        crop = picture_crop(state.pictures.get(item.stream))
        figure = overlay(crop, looks, title=title, unit=item.unit, values=item.values)
        write_file(file, figure_bytes(figure, file.suffix))

    def command(self, state: State) -> str:
        """The command that prints this view."""
        words = ["attnviz", *self.saved]
        if self.origin is not None and self.text is not None:
            second = [self.text.target] if self.text.target else []
            command = RESULTS.get(self.kind, "image" if self.kind == "picture-text" else "audio")
            words += [command, self.text.text]
            if self.kind == "picture-text":
                second = ["--text", *second]
            elif self.kind == "self" and second:
                second = ["--pair", *second]
            elif self.kind == "recording" and second:
                second = ["--transcript", *second]
            words += [*second, *options_of(self.origin)]
        if not words[1:]:
            return ""
        item = state.item
        layer, _ = item.place(state.layer, state.head)
        query = item.query_tokens[state.query]
        many = len(item.heads) * len(item.layers) > 1
        of_picture = self.kind in ("picture", "picture-text")  # whose command has fewer options
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
        return shlex.join(words)


def options_of(origin: Origin) -> Iterator[str]:
    """The options of the command line that name an origin."""
    usual = Origin()
    for one in fields(Origin):
        value = getattr(origin, one.name)
        simple = isinstance(value, str | int | float | Path)
        if one.name in NO_OPTIONS or value == getattr(usual, one.name) or not simple:
            continue
        names = one.metadata["option"].names
        yield names[0]
        if value is not True:
            yield str(value)


def effect_words(off: Intervention, changes: tuple[Prediction, ...]) -> str:
    """What parts that are off change of the output."""
    if off == NOTHING:
        return ""
    counts = {"head": off.heads, "link": off.links, "token": off.tokens}
    what = ", ".join(
        f"{len(parts)} {name}{'s' * (len(parts) > 1)}" for name, parts in counts.items() if parts
    )
    if not changes:
        return f"{what} off"
    total = sum(one.after - one.before for one in changes)
    words = [f"{what} off: log p of the output {nats(total)}"]
    odds = [(np.exp(one.before), np.exp(one.after), one) for one in changes]
    order = sorted(odds, key=lambda row: -abs(row[0] - row[1]))
    for before, after, one in [row for row in order if abs(row[0] - row[1]) >= 0.005][:3]:
        line = f"{printable(one.name)} {two_digits(float(before))} → {two_digits(float(after))}"
        if one.likeliest_after and one.likeliest_after[0][0] != one.name and len(words) == 1:
            line += f" (now {printable(one.likeliest_after[0][0])})"
        words.append(line)
    return " · ".join(words)


@contextmanager
def pauses_between_modules() -> Iterator[None]:
    """Let work be given up before each module of torch, as it is within models that numpy runs."""
    if "torch" not in sys.modules:
        yield
        return
    from torch.nn.modules.module import register_module_forward_pre_hook

    hook = register_module_forward_pre_hook(pause)
    try:
        yield
    finally:
        hook.remove()


class EndedError(KeyboardInterrupt):
    """The reader no longer waits for the answer."""


Change = Callable[[State], State]


def work_of(asker: Asker, state: State, job: str, value: Any) -> Change:
    """Do what was asked and return what it makes of the state by then."""
    try:
        return WORK[job](asker, state, value)
    except AttnvizError as error:
        return partial(say, text=str(error))
    except MemoryError:
        return partial(say, text="not enough memory for that")
    except OSError as error:
        return partial(say, text=f"cannot do that: {error.strerror or error}")


def _attend(asker: Asker, state: State, texts: tuple[str, ...], to: str | None = None) -> Change:
    attention = asker.attend(texts, to=to)
    fields: dict[str, Any] = {"texts": texts, "lens": "raw", "window": False}
    fields["pictures"] = asker.pixels(attention)
    return lambda now: answer(now, attention, **fields)


def _type(asker: Asker, state: State, texts: tuple[str, ...]) -> Change:
    # While a pair is typed its languages stay.
    direction = str(state.raw.provenance.settings.get("direction", ""))
    return _attend(asker, state, texts, direction.partition(" to ")[2] or None)


def _lens(asker: Asker, state: State, name: str) -> Change:
    refusals = []
    while name != state.lens:
        try:
            if name == "raw":
                attention: Attention = state.raw
            elif asker.origin is None:
                attention = apply_choice(state.raw, Choice(lens=name))
            else:
                attention = asker.attend(lens=name)
        except AttnvizError as error:
            refusals.append(f"{name}: {error}")
            name = next_lens(name, live=asker.origin is not None)
            continue
        message = "left out " + "; ".join(refusals) if refusals else ""
        return lambda now: answer(now, attention, raw=now.raw, lens=name, message=message)
    return partial(say, text=refusals[0] if refusals else "there is no other lens")


def _off(asker: Asker, state: State, off: Intervention) -> Change:
    if off == NOTHING:
        return lambda now: see(now, base=now.raw, off=off, effect="", lens="raw")
    # Maps of a text in blocks would be too large: only the effect is told.
    whole = not state.raw.main.is_pooled and not state.window
    attention, words = asker.change(off, maps=whole)
    if attention is None:
        return lambda now: replace(now, off=off, effect=words)
    return lambda now: see(now, base=attention, off=off, effect=words, lens="raw")


def _record(asker: Asker, state: State, step: int) -> Change:
    attention = asker.move(step)
    fields: dict[str, Any] = {"texts": asker.texts, "lens": "raw", "window": False}
    fields |= {"pictures": asker.pixels(attention), "message": f"text {asker.number}"}
    return lambda now: answer(now, attention, **fields)


def _why(asker: Asker, state: State, link: LinkAt) -> Change:
    lines = asker.why(link, max(state.size[0] - 2, 40))
    return lambda now: replace(now, mode="page", page=lines, scroll=0)


def _rank(asker: Asker, state: State, first: bool) -> Change:  # noqa: FBT001 - a row of a table
    order, name = rank_heads(state), ("rank", state.stream)
    state.memo[name] = order

    def change(now: State) -> State:
        if name not in now.memo:  # other maps are seen by now
            return now
        return go_next(replace(now, layer=-1) if first else now)

    return change


def _see(asker: Asker, state: State, changes: dict[str, bool]) -> Change:
    new = see(state, **changes)
    return lambda now: replace(new, size=now.size) if now.base is state.base else now


def _save(asker: Asker, state: State, lines: tuple[str, ...]) -> Change:
    return partial(say, text=asker.save(state, lines[0]))


def _window(asker: Asker, state: State, window: tuple[int, int] | None) -> Change:
    attention = asker.attend(window=window)
    return lambda now: answer(now, attention, window=window is not None, lens="raw")


WORK: dict[str, Callable[[Asker, State, Any], Change]] = {
    "attend": _attend,
    "type": _type,
    "lens": _lens,
    "off": _off,
    "why": _why,
    "rank": _rank,
    "see": _see,
    "save": _save,
    "window": _window,
    "record": _record,
}
"""What each request does, in a thread of its own."""
