"""The steps joined: a request and texts become attention, labelled, chosen and reduced.

Nothing here knows a terminal or prints; the command line and Python callers share it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, Unpack, cast, get_args

import numpy as np

from attnviz.analyses.group import group_attention, name_tokens
from attnviz.analyses.kv_groups import mean_of_groups
from attnviz.analyses.select import check_selection, parse_reduction, reduce_attention, select
from attnviz.analyses.tokens import label_tokens, parse_special, treat_special
from attnviz.analyses.view import PAIR_STREAMS, is_pair, pair_stream
from attnviz.core import attention_map, registry
from attnviz.core.errors import AttnvizError, InputError, UsageError, choose, first_line, in_short
from attnviz.core.options import Choice, Options, Origin
from attnviz.core.options.look import LookOptions
from attnviz.core.query import Kind, Query
from attnviz.core.records import dataclass, field, fields, replace
from attnviz.core.tokens import tokens_of_pieces
from attnviz.core.values import as_array
from attnviz.models import Source, attend_query
from attnviz.renderers import Views
from attnviz.renderers.reports import Item
from attnviz.runs.outputs import Presentable, draw, page_html, save_figure, views_of
from attnviz.storage.texts import BadText, Text

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike

    from attnviz.core.attention_map import Link
    from attnviz.core.effects import Experiment
    from attnviz.core.writers import LensInputs
    from attnviz.renderers.page.widget import PageWidget

NOTEBOOK_WEIGHTS = 2_500_000  # larger maps (12 × 12 heads at 128 tokens) are pooled in notebooks


Numbers: TypeAlias = "int | str | Sequence[int]"
Value = TypeVar("Value")
Ask: TypeAlias = "Callable[[registry.Needs], LensInputs]"  # more than weights, or an error


@dataclass(frozen=True, slots=True, eq=False)
class AttentionRequest:
    """The request behind a result, so that it can run again."""

    origin: Origin
    command: registry.Command
    text: Text
    attend: Callable[[Origin, registry.Command, Text, Choice], Result]

    def __call__(self, choice: Choice) -> Result:
        """The same text with another choice."""
        return self.attend(self.origin, self.command, self.text, choice)


@dataclass(frozen=True, slots=True, eq=False)
class Result(attention_map.Attention, Presentable):
    """The attention of one text, with its pictures and files; shown as a page in a notebook.

    Attributes:
        choice: what was chosen of it, which says what its pictures open on.
        selection: what is selected in its page in a notebook with anywidget: "stream", "view",
            "heads", and the pinned "query" and "key"; else empty.
        again: what attends to the same text with another choice; None where that is not known.
        item: how it is shown where that is its own, as over a picture; None: as usual.
    """

    choice: Choice = field(default_factory=Choice)
    selection: dict[str, Any] = field(default_factory=dict, init=False)
    again: AttentionRequest | None = None
    item: Item | None = None

    def _results(self) -> tuple[str, registry.DataKind, Sequence[Item]]:
        usual = {name: partial(draw, self, name, self._views) for name in registry.PICTURES}
        item = Item(self, self._views, usual) if self.item is None else self.item
        return "attend", "maps", [replace(item, data=self)]

    @property
    def value(self) -> Result:
        return self

    @property
    def notes(self) -> list[str]:
        """What a reader must know."""
        return list(self.provenance.notes)

    @property
    def errors(self) -> list[AttnvizError]:
        """None: who asks for one text gets its error raised."""
        return []

    def select(
        self, layer: Numbers | None = None, head: Numbers | None = None, **choice: Any
    ) -> Result:
        """A part of it: layers and heads by number or as "0-2"; other fields of `Choice` too."""

        def spell(which: Numbers | None) -> str | None:
            if isinstance(which, str | None):
                return which
            return ",".join(map(str, np.atleast_1d(which)))

        for name in choice:
            choose(name, [item.name for item in fields(Choice)], "option")
        own = Choice(layer=spell(layer), head=spell(head), **choice)
        check_choice(own)
        return replace(apply_choice(self, own), again=self.again)

    def stream(self, name: str) -> Result:
        """One of its streams by name."""
        return self.select(stream=name)

    def words(self) -> Result:
        """The same with the pieces of each word together: sums over keys, means over queries."""
        return self.select(words=True)

    def lens(self, name: str) -> Result:
        """The same text through a lens.

        Raises:
            UsageError: the lens does not apply here, or the maps were not made by `attend`.
        """
        choice = replace(self.choice, lens=name)
        check_choice(choice)
        return apply_choice(self, choice) if self.again is None else self.again(choice)

    def strongest(self, count: int = 10) -> list[Link]:
        """The links of largest weight between words, over all layers and heads, largest first."""
        from attnviz.analyses.select import strongest_links

        return strongest_links(self.main, count)

    def heatmap(self, file: str | Path | None = None, **look: Unpack[LookOptions]) -> Figure:
        """The matrix to see first as a heat map, also written to a .png, .svg or .pdf.

        The look is that of all pictures: width="single" draws for a paper's column of 85 mm.
        """
        return self._draw("heatmap", file, look)

    def grid(self, file: str | Path | None = None, **look: Unpack[LookOptions]) -> Figure:
        """Every head of every layer of the main map, also written to a file if given."""
        return self._draw("grid", file, look)

    def lines(self, file: str | Path | None = None, **look: Unpack[LookOptions]) -> Figure:
        """Tokens joined by lines, also written to a file if given."""
        return self._draw("lines", file, look)

    def browse(self) -> None:
        """Browse it by keys in this terminal, until the reader leaves.

        Raises:
            UsageError: there is no terminal.
            ModelError: textual is not installed.
        """
        again = self.again
        origin, command = (None, "") if again is None else (again.origin, again.command)
        browser = registry.BROWSER.load()(Options(origin or Origin(), self.choice), command)
        browser.add(Item(self, self._views))
        browser.finish()

    def to_dict(self) -> dict[str, Any]:
        """All maps as plain values in the layout that `xarray.Dataset.from_dict` reads."""
        from attnviz.storage.documents import to_dataset

        return to_dataset(self)

    def widget(self) -> PageWidget:
        """The page as a widget, which a notebook shows where anywidget is installed.

        What its reader selects is in the widget's `selection` and in this result's.

        Raises:
            UsageError: anywidget is not installed.
        """
        try:
            from attnviz.renderers.page.widget import PageWidget
        except ImportError as error:
            raise UsageError("widget() needs anywidget: pip install anywidget") from error
        return PageWidget(self._notebook_page(), self.selection)

    def __getstate__(self) -> list[Any]:
        # Functions that attend or draw again may hold a model, and they are no part of the result.
        functions = ("again", "item")
        return [None if one.name in functions else getattr(self, one.name) for one in fields(self)]

    def __repr__(self) -> str:
        item = self.main
        layers, heads, queries, keys = item.weights.shape
        calls = len(self.calls_of(item))
        many = f"{calls} calls × " if calls > 1 else ""
        size = f"{layers} layers × {many}{heads} heads · {queries} × {keys} tokens"
        streams = len({attention_map.stream_of_call(one.stream)[1] for one in self.maps})
        more = f" · {streams} streams" if streams > 1 else ""
        stream = attention_map.stream_of_call(item.stream)[1] if calls > 1 else item.stream
        return f"<Result {stream} · {self.provenance.title} · {size}{more}>"

    @property
    def _views(self) -> Views:
        return views_of(self, self.choice)

    def _draw(self, picture: str, file: str | Path | None, look: LookOptions) -> Figure:
        return save_figure(Item(self, self._views), picture, file, look)

    def _repr_png_(self) -> bytes:
        from attnviz.renderers.figures.figure import figure_bytes

        return figure_bytes(self.heatmap(), ".png")

    def _notebook_page(self) -> str:
        # A notebook saves what it shows, so its pages stay small.
        return page_html(self, most_weights=NOTEBOOK_WEIGHTS, views=self._views)

    def _repr_html_(self) -> str:
        from attnviz.renderers.page import iframe

        return iframe(self._notebook_page())

    def _repr_mimebundle_(self, **formats: Any) -> Any:
        """The widget, where anywidget is installed; else None, for a notebook to ask on."""
        try:
            bundle = self.widget()._repr_mimebundle_(**formats)
        except UsageError:
            return None
        return bundle and ({**bundle[0], "text/plain": repr(self)}, bundle[1])


def from_dict(dataset: Mapping[str, Any]) -> Result:
    """What `Result.to_dict` gave, or `xarray.Dataset.to_dict` of it, as a result again.

    Raises:
        InputError: it is something else.
    """
    from attnviz.storage.documents import from_dataset

    return as_result(from_dataset(dataset), Choice())


def from_numpy(
    weights: ArrayLike | Sequence[Any],
    tokens: Sequence[str] | None = None,
    key_tokens: Sequence[str] | None = None,
    *,
    values: attention_map.Values = "share",
) -> Result:
    """Weights of one's own as a result, to be drawn, measured, compared and saved.

    Args:
        weights: (queries, keys), (heads, queries, keys) or (layers, heads, queries, keys); a batch
            of one may stand before heads. Also the tensors of each layer, as `outputs.attentions`
            of transformers has them, on any device and of any precision.
        tokens: names of the queries, and of the keys unless these have their own; else numbers. Of
            fewer rows than keys, as with a cache, they name the keys, and the last ones the rows.
        key_tokens: names of the keys, where a target attends to a source. Pieces of a tokenizer
            ("Ġthe", "▁the", "##s") are read as its text, and marks ("<s>") are special.
        values: "share" of a row's attention, or "signed" numbers.

    Raises:
        InputError: shapes, ranges or names that do not fit together.
    """
    choose(values, get_args(attention_map.Values), "kind of values")
    if not isinstance(tokens, Iterable | None) or not isinstance(key_tokens, Iterable | None):
        raise UsageError("tokens= and key_tokens= are lists of names")
    try:
        layers = weights if isinstance(weights, list | tuple) else None
        array = as_array(weights) if layers is None else np.stack([*map(as_array, layers)])
    except (ValueError, TypeError, RuntimeError) as error:
        raise InputError(f"the weights are no array: {first_line(error)}") from error
    if array.ndim == 5 and array.shape[1] == 1:  # (layers, a batch of one, heads, queries, keys)
        array = array[:, 0]
    if array.dtype.kind not in "fiu" or not 2 <= array.ndim <= 4:
        raise InputError(f"weights are {array.dtype} of {array.ndim} axes, not numbers of 2 to 4")
    array = array.reshape((1,) * (4 - array.ndim) + array.shape)
    tokens, key_tokens = (None if names is None else [*names] for names in (tokens, key_tokens))
    cross = key_tokens is not None
    sides = ("target", "source") if cross else ("text", "text")
    names = (tokens, key_tokens if cross else tokens)
    if not cross and tokens is not None and len(tokens) == array.shape[3] > array.shape[2]:
        names = (tokens[-array.shape[2] :], tokens)  # rows of the last tokens, as a cache has
    (rows, first), (columns, second) = (
        tokens_of_pieces([str(name) for name in (range(count) if own is None else own)])
        for own, count in zip(names, array.shape[2:], strict=True)
    )
    stream = "cross" if cross else "self"
    item = attention_map.AttentionMap(
        stream, rows, columns, array, values=values, query_side=sides[0], key_side=sides[1]
    )
    provenance = attention_map.Provenance("python", "your own weights")
    attention = attention_map.Attention((item,), provenance, None if cross else second or None)
    if cross:
        attention = replace(attention, source=second or None, target=first or None)
    return as_result(attention, Choice())


def load(file: str | Path) -> list[Result]:
    """Every text's attention in a file that attnviz or another program saved.

    Raises:
        InputError: it cannot be read, or holds no attention that is known.
    """
    from attnviz.storage.matrices import read_bytes
    from attnviz.storage.saved_maps import read_any

    if not isinstance(file, str | Path):
        raise UsageError(f"load needs the name of a file, not {in_short(file)}")
    path = Path(file)
    return [as_result(item, Choice()) for item in read_any(read_bytes(path), f"'{path}'")]


def check_choice(choice: Choice, *, rows: bool = False) -> None:
    """Refuse a choice that could be right for no model, before one is loaded.

    Where each head gets a row (`rows`), the layers have the same heads.
    """
    check_selection(choice.layer, choice.head, rows=rows)
    parse_reduction(choice.reduce)
    choose(choice.lens, ("raw", *registry.LENSES, registry.ALL_LENSES), "lens")
    if choice.explain is not None and not registry.needs_head(choice.lens):
        raise UsageError(
            "--target says what --lens gradient or effect explains: add --lens gradient"
        )
    parse_special(choice.special)
    if choice.kv and choice.lens == registry.ALL_LENSES:
        raise UsageError("--kv takes the mean of heads of one lens: leave --lens all out")
    if group := _group_of(choice):
        from attnviz.analyses.group import check_group

        check_group(group)


def check_kept(origin: Origin, choice: Choice) -> None:
    """Refuse --keep-qk beside a lens: queries and keys explain raw weights only."""
    if origin.keep_qk and choice.lens != "raw":
        raise UsageError(
            f"--keep-qk explains raw weights, not those of --lens {choice.lens}: leave one out"
        )
    if origin.keep_qk and choice.kv:
        raise UsageError("--keep-qk explains weights of query heads: leave --kv out")


NameOfBlocks = Callable[..., attention_map.Attention]  # of an attention, its choice and text


def attend_chunk(
    source: Source,
    chunk: Sequence[Text | BadText],
    choice: Choice,
    command: registry.Command,
    batch_size: int | None = None,
    *,
    measures: NameOfBlocks | None = None,
) -> Iterator[Result | AttnvizError]:
    """Each record's attention in order; a line of a file that fails comes as its error instead.

    The numbers depend on the chunk alone; at most `batch_size` of its texts are read at once;
    None: as many as fit. With `measures`, which names a text's tokens or refuses it, long texts are
    measured in blocks of rows.
    """
    if command == "picture":  # the pictures of a chunk are not held together
        for text in chunk:
            yield result_of(text, lambda one: attend_one(source, one, choice, "picture"))
        return
    queries = [query_of(source, text, command) for text in chunk if isinstance(text, Text)]
    if measures is not None:
        texts = (text for text in chunk if isinstance(text, Text))
        queries = [
            replace(query, in_blocks=partial(measures, choice=choice, text=text))
            for query, text in zip(queries, texts, strict=True)
        ]
    if choice.lens == registry.ALL_LENSES:
        batch_size = 1  # other lenses ask about each text again, while it is cached
    answers = source.attend(queries, batch_size=batch_size)
    contacts = contacts_of(source, choice)
    inputs = None
    if choice.lens != "raw":
        inputs = registry.LENS_QUESTIONS["ask together"].load()(
            *(source, queries, choice.lens, choice.explain, batch_size)
        )

    def view(one: Text) -> Result:
        query = query_of(source, one, command)
        return _view_next(source, query, answers, choice, one, contacts, inputs)

    for text in chunk:
        yield result_of(text, view)


def result_of(record: Text | BadText, make: Callable[[Text], Value]) -> Value | InputError:
    """The result of a record; for a bad line of a file the error instead."""
    if isinstance(record, BadText):
        return record.error
    try:
        return make(record)
    except InputError as error:
        if not record.where:
            raise
        text = str(error)
        return InputError(text if record.where in text else f"{record.where}: {text}")


def attend_one(source: Source, text: Text, choice: Choice, command: registry.Command) -> Result:
    """One text's attention, labelled, selected and reduced as chosen."""
    query = query_of(source, text, command)
    contacts = contacts_of(source, choice)
    return _view_next(source, query, source.attend([query]), choice, text, contacts)


Predictor = Callable[[attention_map.Attention], attention_map.Attention]  # of contacts, by heads


def contacts_of(source: Source, choice: Choice) -> Predictor | None:
    """What predicts contacts from this source's heads, fitted; None: nobody asks for them."""
    if choice.contacts is None:
        return None
    if choice.lens != "raw":
        raise UsageError(f"--contacts reads raw weights: leave --lens {choice.lens} out")
    model = registry.CONTACTS.load()(
        choice.contacts, lambda text: attend_query(source, Query(text))
    )
    predictor: Predictor = model.predict
    return predictor


def query_of(source: Source, text: Text, command: registry.Command | None = None) -> Query:
    """The query for a text, a pair or the picture whose file is named; None: the source's usual.

    Raises:
        UsageError: the text is a conversation, and the source has no chat template for it.
    """
    if command == "picture":
        return cast("Query", registry.FILE_QUERIES[command].load()(Path(text.text)))
    alone = command in (None, "self") and getattr(source, "chat_template", False)
    if text.messages and not alone:
        raise UsageError(
            "messages are read by a chat template: add --chat and --model, to a command of one text"
        )
    kind: Kind = command or "self"
    if text.target is not None and kind == "self":
        kind = "pair" if command or getattr(source, "joins_pairs", False) else "cross"
    return Query(text.text, text.target, kind, messages=text.messages, tools=text.tools)


def _view_next(
    source: Source,
    query: Query,
    answers: Iterator[attention_map.Attention | InputError],
    choice: Choice,
    text: Text,
    contacts: Predictor | None = None,
    inputs: Iterator[LensInputs | InputError] | None = None,
) -> Result:
    """The next of the answers through a lens, which may ask the source for more about it."""

    def attend() -> attention_map.Attention:
        answer: attention_map.Attention = _take(answers)
        if answer.projections:
            answer = registry.LENS_QUESTIONS["steps"].load()(source, query, answer)
        return answer

    def ask(needs: registry.Needs) -> LensInputs:
        own_inputs: LensInputs
        if inputs is None:
            ask_source = registry.LENS_QUESTIONS["ask"].load()
            own_inputs = ask_source(source, query, needs, choice.explain)
        else:
            own_inputs = _take(inputs)
        return own_inputs

    result = _choose_from(attend, ask, choice, text, contacts)
    if query.kind == "cross" and query.target is None:
        own = "no target was given: the model wrote it"
        provenance = replace(result.provenance, notes=(*result.provenance.notes, own))
        result = replace(result, provenance=provenance)
    return result


def _take(answers: Iterator[Any]) -> Any:
    """The next answer; an error that stands in its place is raised."""
    answer = next(answers)
    if isinstance(answer, InputError):
        # A new one: the old belongs to the iterator, and would tie this run's files to it.
        raise type(answer)(str(answer)) from answer
    return answer


def apply_choice(attention: attention_map.Attention, choice: Choice) -> Result:
    """Saved attention as chosen, as far as weights alone allow."""
    return _choose_from(lambda: attention, None, choice, Text(attention.id, ""))


def _choose_from(
    attend: Callable[[], attention_map.Attention],
    ask: Ask | None,
    choice: Choice,
    text: Text,
    contacts: Predictor | None = None,
) -> Result:
    """The attention labelled, through a lens, selected, without special tokens, grouped, reduced.

    What is asked for is done in this order; the text gives its id and labels.
    """

    def prepare(attention: attention_map.Attention) -> attention_map.Attention:
        if attention.in_blocks:
            check_in_blocks(attention, choice)
            return replace(attention, id=text.id)
        return name_as_chosen(attention, choice, text)

    experiment: Experiment | None = None
    if choice.lens == "raw":
        attention = prepare(attend())
    else:
        apply_lens = registry.LENS_QUESTIONS["apply"].load()
        attention, experiment = apply_lens(choice.lens, attend, ask, prepare, choice.explain)
    if contacts is not None:
        attention = contacts(attention)
    if choice.stream in PAIR_STREAMS and is_pair(attention):
        attention = pair_stream(attention, choice.stream)
    attention = mean_of_groups(attention) if choice.kv else attention
    attention = select(attention, choice.stream, choice.layer, choice.head)
    if experiment is not None and not choice.kv:
        with_links = registry.LENS_QUESTIONS["links"].load()
        attention = with_links(attention, experiment, choice.check)
    attention = treat_special(attention, *parse_special(choice.special))
    group = _group_of(choice)
    if group is not None:
        attention = group_attention(attention, group)
    return as_result(reduce_attention(attention, *parse_reduction(choice.reduce)), choice)


def name_as_chosen(
    attention: attention_map.Attention, choice: Choice, text: Text
) -> attention_map.Attention:
    """The attention of a text with its id, and its tokens labelled as chosen."""
    labels = tuple(choice.labels.split()) if choice.labels else text.labels
    attention = replace(attention, id=text.id)
    attention = label_tokens(attention, labels) if labels else attention
    if choice.token_groups is not None:
        attention = name_tokens(attention, choice.token_groups)
    return attention


def check_in_blocks(attention: attention_map.Attention, choice: Choice) -> None:
    """Refuse what changes whole maps of a text that was read in blocks of rows."""
    if choice.special != "keep":
        length = len(attention.in_blocks[0].key_tokens)
        raise InputError(
            f"--special {choice.special} needs whole maps, and a text of {length:,} tokens is "
            "read in blocks of rows: leave it out, or give a text of at most 1,024 tokens"
        )


def _group_of(choice: Choice) -> str | None:
    if choice.words and choice.group not in (None, "words"):
        raise UsageError(f"--words and --group {choice.group} contradict each other: give one")
    return "words" if choice.words else choice.group


def as_result(attention: attention_map.Attention, choice: Choice) -> Result:
    """The same attention with its pictures and files, and what was chosen of it."""
    values = {item.name: getattr(attention, item.name) for item in fields(attention_map.Attention)}
    return Result(**values, choice=choice)


def keep_scores(options: Options) -> Options:
    """The options with which sources keep what scores are measured of, where these are wanted."""
    origin = options.origin
    return replace(options, origin=replace(origin, keep_qk=origin.scores or origin.keep_qk))
