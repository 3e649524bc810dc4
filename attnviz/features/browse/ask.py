"""What is browsed, and what its model is asked: maps, what parts do, and why a link is there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count, islice
from typing import Any, NoReturn

import numpy as np

from attnviz.commands.render import files_of
from attnviz.core import errors, notices, options, registry
from attnviz.core.attention_map import Attention
from attnviz.core.effects import HeadAt, Intervention, LinkAt
from attnviz.core.query import Query
from attnviz.core.records import dataclass, replace
from attnviz.features.ablate import parts, report
from attnviz.features.experiments.texts import open_experiment
from attnviz.features.image.request import look_through, sheet_parts
from attnviz.features.why.request import effect_of, lens_until
from attnviz.features.why.table import why_table
from attnviz.features.writers.links import explain_link
from attnviz.models import Source, attend_query
from attnviz.renderers import Display
from attnviz.renderers.printable import nats, printable, two_digits
from attnviz.runs import pipeline, readers
from attnviz.runs.many_texts import source_for
from attnviz.storage.saved_maps import Opener
from attnviz.storage.texts import BadText, Text, check_text

NO_TEXT = Text("", "")


@dataclass(frozen=True, slots=True)
class Subject:
    """What is browsed: a text with the model that reads it, or saved maps, which have none."""

    origin: options.Origin | None = None  # None: saved maps
    kind: registry.SourceKind = "self"
    text: Text = NO_TEXT  # a text or a pair; the file of a picture and what is asked of it
    maps: Callable[[], Attention] | None = None  # opens saved maps
    saved: tuple[str, ...] = ()  # the words of the command that prints saved maps
    source: Any = None  # the model and the query, once they have answered
    query: Any = None

    @property
    def texts(self) -> dict[str, str]:
        text, target = self.text.text, self.text.target
        if self.kind in ("picture", "recording"):
            return {}
        if self.kind == "picture-text":
            return {"text": target or ""}
        is_pair = self.kind == "cross" or target is not None
        return {"source": text, "target": target or ""} if is_pair else {"text": text}

    def with_texts(self, texts: tuple[str, ...]) -> Subject:
        check_text(texts[0])
        text, target = texts[0], next(filter(str.strip, texts[1:]), None)
        if self.kind == "picture-text":
            text, target = self.text.text, texts[0]
        new = replace(self.text, text=text, target=target, messages=(), labels=None)
        return replace(self, text=new)

    def attend(
        self, lens: str = "raw", window: tuple[int, int] | None = None
    ) -> tuple[Subject, Attention]:
        """What has read the text, and the attention of all or of a part of it through a lens."""
        if self.maps is not None:
            return self, self.maps()
        assert self.origin is not None
        notices.notify("reading" if self.source else "opening the model")
        origin, text, kind, choice = self.origin, self.text, self.kind, options.Choice(lens=lens)
        if window is not None:
            origin = replace(origin, window="{}-{}".format(*window))
        head: Any = True if registry.needs_head(lens) else "exact"
        answer: Attention
        source = source_for(origin, kind, with_head=head)
        if kind == "self" or kind == "cross":
            query = pipeline.query_of(source, text, kind)
            answer = pipeline.attend_one(source, text, choice, kind)
        elif (query := readers.query_for(source, text, kind)).picture is None:  # a recording
            answer = pipeline.apply_choice(attend_query(source, query), choice)
        else:
            own = query.picture.lens if lens == "raw" else lens
            query = replace(query, picture=replace(query.picture, lens=own))
            answer = look_through(source, query, choice, None)
        return self if window else replace(self, source=source, query=query), answer

    def through(self, raw: Attention, lens: str) -> Attention:
        """Attention that is there through a lens, for which the model is asked where it is one."""
        if lens == "raw":
            return raw
        if self.origin is None or self.kind == "recording":  # which has lenses of weights alone
            return pipeline.apply_choice(raw, options.Choice(lens=lens))
        return self.attend(lens)[1]

    def pixels(self, attention: Attention) -> dict[str, Any]:
        """For each stream over a picture, the part of it that the patches cover."""
        if self.query is None or self.query.picture is None:
            return {}
        parts = sheet_parts(attention, self.query.picture.images)
        small = {name: part.convert("RGB") for name, part in parts.items()}
        for part in small.values():
            part.thumbnail((512, 512))
        return {name: np.asarray(part) for name, part in small.items()}

    def _whole(self) -> tuple[Source, Query]:
        """The model, reading all of the text: effects and scores need every weight."""
        assert self.origin is not None
        whole = replace(self.origin, max_size=None, rows=None, window=None)
        if whole == self.origin or self.kind == "recording":
            return self.source, self.query
        return source_for(whole, self.kind, with_head="exact"), self.query

    def change(self, off: Intervention, *, maps: bool) -> tuple[Attention | None, str]:
        """The maps with parts off, if asked for, and what that changes of the output, in words."""
        notices.notify("switching off")
        experiment = open_experiment(*self._whole())
        attention = experiment.changed_maps(off) if maps else None
        return attention, effect_words(off, parts.predictions(experiment, off))

    def why(self, link: LinkAt, width: int) -> str:
        notices.notify("taking the score apart")
        source, query = self._whole()
        trace, show = source.trace_writers(query), Display(width)
        at, cell = HeadAt(link.stream, str(link.layer), link.head or 0), (link.query, link.key)
        if not trace.sides(at).mask[cell]:
            raise errors.UsageError("the mask of the model hides this key from the query")
        effect, notes = effect_of(source, query, trace, link, None)
        table = why_table(explain_link(trace, at, cell, None, effect, notes), show)
        return table + lens_until(source, query, link, show)


class Subjects:
    """Several subjects, each read when it is asked for, and kept."""

    def __init__(self, subjects: Iterable[Subject] = ()) -> None:
        self.rest, self.read = iter(subjects), list[Subject]()

    def at(self, number: int) -> Subject | None:
        self.read += islice(self.rest, max(number + 1 - len(self.read), 0))
        return self.read[number] if 0 <= number < len(self.read) else None

    def find(self, name: str | None) -> dict[str, Any]:
        """The first one, or that of an id or else of a number from 0; as fields of a state."""
        for number in count():
            one = self.at(number)
            if one is None or name in (None, one.text.id):
                break
        if one is None and name and name.isdecimal():
            number, one = int(name), self.at(int(name))
        if one is None:
            raise errors.InputError(f"there is no text {name or 'to browse'}")
        return {"subjects": self, "number": number, "subject": one}


def saved_subjects(file: str) -> Iterator[Subject]:
    """Every text of saved maps, whose weights are read when it is seen; - is stdin."""
    for opener in files_of(file):
        with opener() as texts:
            ids = [*texts.ids()]
        for place, name in enumerate(ids):
            words = () if file == "-" else ("render", file)
            yield Subject(text=Text(name, ""), maps=partial(_map_at, opener, place), saved=words)


def _map_at(opener: Opener, place: int) -> Attention:
    with opener() as texts:
        return texts.at(place)


def text_subject(origin: options.Origin, one: Text | BadText, target: str | None = None) -> Subject:
    """A text, or a pair with its own target or another; a line that is bad fails when opened."""
    if isinstance(one, BadText):
        return Subject(maps=partial(_refuse, one.error))
    text = replace(one, target=target or one.target)
    return Subject(origin, "self" if text.target is None else "cross", text)


def _refuse(error: errors.AttnvizError) -> NoReturn:
    raise error


def effect_words(off: Intervention, changes: tuple[report.Prediction, ...]) -> str:
    counts = {"head": len(off.heads), "link": len(off.links), "token": len(off.tokens)}
    what = ", ".join(f"{n} {name}{'s' * (n > 1)}" for name, n in counts.items() if n)
    if not changes:
        return f"{what} off"
    words = [f"{what} off: log p of the output {nats(sum(x.after - x.before for x in changes))}"]
    odds = [(float(np.exp(one.before)), float(np.exp(one.after)), one) for one in changes]
    for before, after, one in sorted(odds, key=lambda row: -abs(row[0] - row[1]))[:3]:
        if abs(before - after) >= 0.005:
            now = one.likeliest_after[0][0] if one.likeliest_after else one.name
            line = f"{printable(one.name)} {two_digits(before)} → {two_digits(after)}"
            words.append(line + f" (now {printable(now)})" * (now != one.name))
    return " · ".join(words)
