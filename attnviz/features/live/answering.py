"""Questions about a text or a picture, and answers as plain values, for `live`.

Nothing here knows of HTTP. `openapi.json` describes questions and answers.
"""

import base64
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from io import BytesIO
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta, Struct, structs
from numpy.typing import NDArray

from attnviz.core.attention_map import Attention, AttentionMap
from attnviz.core.effects import (
    Experiment,
    HeadAt,
    Intervention,
    LinkAt,
    TokenAt,
    log_probabilities,
)
from attnviz.core.errors import AttnvizError, InputError, UsageError, choose
from attnviz.core.notices import pause, pauses_between_modules
from attnviz.core.options import LENS_NAMES, Choice, Language, Origin
from attnviz.core.query import Picture, Query
from attnviz.core.records import asdict, dataclass, replace
from attnviz.core.registry import ALL_LENSES, LENSES
from attnviz.features.ablate.parts import each_part
from attnviz.features.experiments.texts import open_experiment
from attnviz.features.explain.request import AnswerRequest, Explainer
from attnviz.features.explain.table import sentences_of
from attnviz.features.image.request import look_through, sheet_parts
from attnviz.features.vision.picture_files import as_jpeg, upright_picture
from attnviz.features.writers.links import explain_link, unfold_link
from attnviz.features.writers.page import shown_report
from attnviz.models import Source
from attnviz.models.open import POCKET, SHIPPED, is_shipped, name_of
from attnviz.renderers.page.data import gap
from attnviz.renderers.printable import printable, printable_texts
from attnviz.runs.many_texts import source_for
from attnviz.runs.outputs import page_data, views_of
from attnviz.runs.pipeline import Result, apply_choice, attend_one, query_of
from attnviz.storage.texts import Text, check_text

MOST_CHARACTERS = 8_000  # most characters of a text: about 2,000 tokens
MOST_TOKENS = 2_000  # most tokens of a text or pair: their weights take a gigabyte before pooling
MOST_WEIGHTS = 8_000_000  # most weights (12 × 12 heads at 235 tokens) before pooling
MOST_OFF = 10_000  # most heads, links or tokens that are off at once
MOST_PICTURE = 16 << 20  # most characters of a picture in base64: 12 MB
PICTURES = ("PNG", "JPEG", "WEBP")  # file formats of pictures, by Pillow's names
PICTURES_BY = "pocket-vit"  # the shipped model that reads pictures


Words = Annotated[str, Meta(max_length=MOST_CHARACTERS)]
Name = Annotated[str, Meta(max_length=300)]
Number = Annotated[int, Meta(ge=0, lt=1 << 31)]
Many = Meta(max_length=MOST_OFF)


class Off(Struct, frozen=True, forbid_unknown_fields=True):
    """Parts that are off, by names in the maps and positions from 0; None: every layer or head."""

    heads: Annotated[list[tuple[Name, Name, Name]], Many] = []
    links: Annotated[list[tuple[Name, Name | None, Name | None, Number, Number]], Many] = []
    tokens: Annotated[list[tuple[Name, Number]], Many] = []


class Question(Struct, frozen=True, forbid_unknown_fields=True):
    """A question about a text, a pair or a picture.

    Attributes:
        id: a number that the answer repeats.
        source: the text, the source of a pair, or the text with a picture.
        target: None: the model writes it, if it can.
        command: "self" or "cross"; None: the model's usual one.
        to: the language of the target; None: the model guesses.
        explain: the output for /explain and for lens effect or gradient: a token by place or text,
            a class, "all".
        picture: a PNG, JPEG or WebP file in base64.
        link: of /why: stream, layer, head, and the positions of query and key.
    """

    source: Words = ""
    target: Words | None = None
    id: Number = 0
    lens: Literal[LENS_NAMES] = "raw"  # type: ignore[valid-type]
    off: Off = Off()
    model: Name | None = None
    command: Literal["self", "cross"] | None = None
    to: Language | None = None
    explain: Name | Number | None = None
    picture: Annotated[str, Meta(max_length=MOST_PICTURE)] | None = None
    link: tuple[Name, Name, Name, Number, Number] | None = None


@dataclass(slots=True)
class QuestionResult:
    """A model's reading of a question, with the question's pictures."""

    source: Source
    query: Query
    result: Result
    pictures: dict[str, bytes] | None = None


class Answers:
    """Answers questions, one at a time.

    Attributes:
        origin: the default model and its options.
        doing: the current stage of work, in words.
    """

    def __init__(self, origin: Origin) -> None:
        self.origin, self.doing, self.hooks = origin, "", ExitStack()
        self.explainer: Explainer | None = None  # of the last question, with its other texts read

    @property
    def default_model(self) -> str:
        """The name of the default model."""
        return str(name_of(self.origin) if self.origin.adapter else self.origin.model or POCKET)

    def models(self, note: Callable[[str], None] | None = None) -> list[dict[str, Any]]:
        """The models to choose from: the default, those that ship, those in the cache.

        `note` is told why the cache cannot be read.
        """
        from attnviz.models.hugging_face.load.locate import list_cached_models
        from attnviz.models.pocket.card import summary_of

        own = self.default_model
        rows = {own: ("given", "")} | {name: ("shipped", summary_of(name)) for name in SHIPPED}
        others = list_cached_models(note)
        rows |= {str(one): ("hugging face", one.model_type or "") for one in others}
        return [
            {"name": name, "from": place, "about": about, "default": name == own}
            for name, (place, about) in rows.items()
        ]

    def pictures(self) -> dict[str, bytes]:
        """A sample picture for each offered model that reads only pictures."""
        from attnviz.features.vision.pocket_vit import FOLDER
        from attnviz.models.hugging_face.load.locate import (
            list_cached_models,
            locate,
            reads_pictures_alone,
        )

        folders = {PICTURES_BY: FOLDER} | {one.name: one.folder for one in list_cached_models()}
        if not is_shipped(self.origin):
            folders[self.default_model] = locate(str(name_of(self.origin)))
        sample = (FOLDER / "sample.png").read_bytes()
        return {name: sample for name, folder in folders.items() if reads_pictures_alone(folder)}

    def attend(self, question: Question) -> dict[str, Any]:
        """The maps for the page, the predictions, and their changes."""
        with self.hooks:
            start = time.perf_counter()
            read = self._read(question)
            answer = self._predictions(question, read)
            self._stage("packing the weights")
            views = views_of(read.result)
            document, blobs = page_data(
                read.result, most_weights=MOST_WEIGHTS, picture=read.pictures, views=views
            )
            for item, page_map in zip(read.result.maps, document["maps"], strict=True):
                for axis, tokens in (("queries", item.query_tokens), ("keys", item.key_tokens)):
                    # The page does not need a token's place in its text; a saved document does.
                    if page_map[axis]["block"] == 1:
                        for one, token in zip(page_map[axis]["tokens"], tokens, strict=True):
                            one |= {"start": token.start, "end": token.end}
            answer["seconds"] = round(time.perf_counter() - start, 4)
            return {"id": question.id, "document": document, "blobs": blobs, "answer": answer}

    def ablate(self, question: Question) -> dict[str, Any]:
        """The effect of each head on log p of the predictions, in nats; other parts may be off."""
        with self.hooks:
            start = time.perf_counter()
            read = self._read(question)
            experiment = open_experiment(read.source, read.query)
            off = _change(experiment.attention, question.off)
            streams, count = list[dict[str, Any]](), 0
            parts = [change for _, change in each_part(experiment.attention, "heads")]
            for item in experiment.attention.maps:
                values = []
                for _ in item.layers:  # one batch for each layer, to show progress
                    some = [off + one for one in parts[count : count + len(item.heads)]]
                    self._stage(f"heads off one by one: {count} of {len(parts)}")
                    totals = log_probabilities(experiment, [off, *some]).sum(axis=1)
                    before, *after = totals.tolist()
                    values.append([before - one for one in after])
                    count += len(some)
                axes = {"layers": list(item.layers), "heads": list(item.heads)}
                streams.append({"stream": item.stream, **axes, "values": values})
            notes = _new_notes(experiment.attention.provenance.notes)
            seconds = round(time.perf_counter() - start, 4)
            return {"id": question.id, "streams": streams, "notes": notes, "seconds": seconds}

    def why(self, question: Question) -> dict[str, Any]:
        """Why a head looks from a query at a key, and what it brings back, with nothing off."""
        with self.hooks:
            start = time.perf_counter()
            if question.link is None:
                raise UsageError("name a link: stream, layer, head, query and key")
            read = self._read(structs.replace(question, lens="raw", explain=None))
            self._stage("taking the score apart")
            trace = read.source.trace_writers(read.query)
            (link,) = _change(trace.attention, Off(links=[question.link])).links
            at, cell = HeadAt(link.stream, str(link.layer), link.head or 0), (link.query, link.key)
            if not trace.sides(at).mask[cell]:
                raise UsageError("the query does not see this key, which comes later")
            report = shown_report(explain_link(trace, at, cell))
            self._stage("cutting the link")
            experiment = None
            with suppress(AttnvizError):  # a model that predicts nothing
                experiment = open_experiment(read.source, read.query)
            steps = printable_texts(asdict(unfold_link(trace, at, cell, experiment)))
            seconds = round(time.perf_counter() - start, 4)
            return {"id": question.id, "report": report, "steps": steps, "seconds": seconds}

    def explain(self, question: Question) -> dict[str, Any]:
        """What decided an output, in sentences with the parts that they name, with nothing off."""
        with self.hooks:
            start = time.perf_counter()
            if question.picture is not None:
                raise UsageError("what decided an answer is explained of texts alone")
            read = self._read(structs.replace(question, lens="raw", explain=None))
            output = None if question.explain is None else str(question.explain)
            explainer = self.explainer
            if explainer is None or explainer.source is not read.source:
                explainer = Explainer(read.source, AnswerRequest(), None)
            self.explainer = replace(explainer, request=AnswerRequest(output))
            self._stage("searching for what decided it")
            report, _ = self.explainer.explain_query(read.query)
            claims = [printable_texts(one.document()) for one in sentences_of(report)]
            how = f"heads that are off put out {report.reference.partition(' (--')[0]}"
            notes = [printable(note) for note in (how, *report.notes)]
            seconds = round(time.perf_counter() - start, 4)
            return {"id": question.id, "claims": claims, "notes": notes, "seconds": seconds}

    def _stage(self, doing: str) -> None:
        pause()
        self.doing = doing

    def _read(self, question: Question) -> QuestionResult:
        """Run the question's model and lens."""
        origin = self._origin(question)
        self._stage(f"loading {question.model or self.default_model}")
        explain = None if question.explain is None else str(question.explain)
        choice = Choice(lens=question.lens, explain=explain)
        if question.picture is not None:
            return self._read_picture(question, question.picture, origin, choice)
        source = source_for(origin, "self", with_head=True)
        if not is_shipped(origin):
            self.hooks.enter_context(pauses_between_modules())  # an abandoned question stops
        text = Text("0", check_text(question.source, "source"), question.target)
        if question.target is not None:
            check_text(question.target, "target")
        check_tokens(source, text)
        family = getattr(source, "family", "")
        two = family == "encoder–decoder" or (is_shipped(origin) and not origin.model)
        usual: Literal["self", "cross"] = "cross" if two else "self"
        command = question.command or usual
        self._stage("reading")
        return QuestionResult(
            source, query_of(source, text, command), attend_one(source, text, choice, command)
        )

    def _read_picture(
        self, question: Question, picture: str, origin: Origin, choice: Choice
    ) -> QuestionResult:
        if is_shipped(origin) and (origin.model != PICTURES_BY or question.source):
            what = "text with a picture" if origin.model == PICTURES_BY else "pictures"
            raise UsageError(f"'{origin.model or POCKET}' reads no {what}: ask another model")
        if question.lens == ALL_LENSES:
            raise UsageError("a picture is seen through one lens at a time")
        try:
            file = BytesIO(base64.b64decode(picture, validate=True))
        except ValueError as error:
            raise InputError("the picture is no base64") from error
        image = upright_picture(file, "the picture", PICTURES)
        if is_shipped(origin):
            source = source_for(origin, "self")
        else:
            source = source_for(origin, "picture-text" if question.source else "picture")
            self.hooks.enter_context(pauses_between_modules())  # an abandoned question stops
        self._stage("looking")
        query = Query(question.source, kind="picture", picture=Picture(image, lens=question.lens))
        attention = look_through(source, query, choice, None)
        parts = sheet_parts(attention, [image]).items()
        files = {name: as_jpeg(part) for name, part in parts}
        return QuestionResult(source, query, apply_choice(attention, Choice()), files)

    def _origin(self, question: Question) -> Origin:
        """The question's model and its options."""
        name = question.model or self.default_model
        if name not in (self.default_model, *SHIPPED):
            choose(name, [one["name"] for one in self.models()], "model")
        if name == self.default_model and name != POCKET:
            return self.origin
        # The user allowed pickles and code for the default model only.
        free = replace(self.origin, allow=None, adapter=None)
        alone: Any = "auto" if free.device_map else free.device
        if name == POCKET:
            return replace(free, model=None, device=alone, to=question.to)
        return replace(free, model=name, device=alone if name in SHIPPED else free.device)

    def _predictions(self, question: Question, read: QuestionResult) -> dict[str, Any]:
        """The predictions; with parts off, also their changes and those of the maps."""
        result, off = read.result, question.off
        direction = str(result.provenance.settings.get("direction", ""))
        language, _, to = direction.partition(" to ")
        answer: dict[str, Any] = {"language": language or None, "to": to or None}
        answer |= {"written": printable(result.target or ""), "pieces": [], "changed": None}
        answer["notes"] = []
        changes = [Intervention()]
        try:
            self._stage("predicting")
            experiment = open_experiment(read.source, read.query)
            own = {item.stream for item in experiment.attention.maps}
            if own.isdisjoint(item.stream for item in result.maps):
                raise UsageError("the page shows a part of the maps that the model predicts with")
            if off.heads or off.links or off.tokens:
                changes.append(_change(experiment.attention, off))
            rows = log_probabilities(experiment, changes)
        except WrongPlaceError:
            raise
        except AttnvizError as error:
            answer["notes"] = [printable(f"nothing can be switched off: {error}")]
            return answer
        answer["notes"] = _new_notes(experiment.attention.provenance.notes, result.provenance.notes)
        answer["pieces"] = _pieces(experiment, rows[0])
        if len(changes) > 1:
            self._change_maps(experiment, changes[1], read, answer)
            if result.target is None:
                answer["written"] = printable(experiment.write(Intervention()) or "")
            answer["changed"] = {
                "written": printable(experiment.write(changes[1]) or ""),
                "pieces": _pieces(experiment, rows[1]),
                "total": float(rows[1].sum()),
                "effect": float((rows[0] - rows[1]).sum()),
            }
        return answer

    def _change_maps(
        self,
        experiment: Experiment,
        change: Intervention,
        read: QuestionResult,
        answer: dict[str, Any],
    ) -> None:
        """Replace the maps by those after the change, or note why they stay."""
        lens = read.result.choice.lens
        self._stage("switching off")
        try:
            if lens != "raw" and (lens == ALL_LENSES or LENSES[lens].needs != "weights"):
                raise UsageError(f"lens {lens} is not worked out with parts switched off")
            attention = replace(experiment.changed_maps(change), id=read.result.id)
            read.result = apply_choice(attention, Choice(lens=lens))
        except AttnvizError as error:
            answer["notes"].append(printable(f"the maps are of the model as it is: {error}"))


def check_tokens(source: Any, text: Text) -> None:
    """Refuse a text that would fill the memory.

    Raises:
        InputError: text and target have more than `MOST_TOKENS`.
    """
    encode, tokenizer = (getattr(source, name, None) for name in ("encode_text", "tokenizer"))
    if encode is None:
        if not hasattr(tokenizer, "is_fast"):  # a shipped model: it reads few tokens, or none
            return
        from attnviz.models.hugging_face.inputs.tokenization import tokenize

        encode = partial(tokenize, tokenizer)
    count = sum(len(encode(one).ids) for one in (text.text, text.target) if one)
    if count > MOST_TOKENS:
        raise InputError(f"the text has {count:,} tokens: {MOST_TOKENS:,} are read at most, cut it")


class WrongPlaceError(UsageError):
    """A part to switch off does not exist."""


def _change(attention: Attention, off: Off) -> Intervention:
    """The intervention that switches parts off; a WrongPlaceError if one does not exist."""
    maps = {item.stream: item for item in attention.maps}
    sides = {item.key_side: len(item.key_tokens) for item in attention.maps}
    heads = tuple(
        HeadAt(stream, layer, _head(_map(maps, stream, layer), head))
        for stream, layer, head in off.heads
    )
    links = []
    for stream, layer, head, query, key in off.links:
        item = _map(maps, stream, layer)
        ends = ("query", query, item.query_tokens), ("key", key, item.key_tokens)
        for what, at, tokens in ends:
            if at >= len(tokens):
                last = len(tokens) - 1
                raise WrongPlaceError(f"there is no {what} {at} in stream '{stream}': 0 to {last}")
        links.append(LinkAt(stream, query, key, layer, None if head is None else _head(item, head)))
    for side, position in off.tokens:
        if position >= sides.get(side, 0):
            there = ", ".join(f"{name} 0 to {count - 1}" for name, count in sides.items())
            raise WrongPlaceError(f"there is no token {position} of side '{side}': {there}")
    return Intervention(heads, tuple(links), tuple(TokenAt(*token) for token in off.tokens))


def _map(maps: dict[str, AttentionMap], stream: str, layer: str | None) -> AttentionMap:
    if stream not in maps:
        raise WrongPlaceError(f"there is no stream '{stream}': {', '.join(maps)}")
    if layer is not None and layer not in maps[stream].layers:
        names = ", ".join(maps[stream].layers)
        raise WrongPlaceError(f"there is no layer '{layer}' in stream '{stream}': {names}")
    return maps[stream]


def _head(item: AttentionMap, head: str) -> int:
    if head not in item.heads:
        names = ", ".join(item.heads)
        raise WrongPlaceError(f"there is no head '{head}' in stream '{item.stream}': {names}")
    return item.heads.index(head)


def _pieces(experiment: Experiment, row: NDArray[np.float64]) -> list[dict[str, Any]]:
    """Each output with the space before it in running text, and its log p."""
    attention = experiment.attention
    tokens, text = attention.main.query_tokens, attention.text_of(attention.main.query_side)
    pieces = []
    for output, logp in zip(experiment.outputs, row.tolist(), strict=True):
        at = output.position
        inside = at is not None and 0 < at < len(tokens)
        before = gap(tokens[at - 1], tokens[at], text) if at is not None and inside else " "
        piece = {"text": printable(output.name), "gap": before, "position": at, "logp": logp}
        pieces.append(piece)
    return pieces


def _new_notes(notes: Sequence[str], known_notes: Sequence[str] = ()) -> list[str]:
    return [printable(note) for note in notes if note not in known_notes]
