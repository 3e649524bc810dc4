"""Why a head looks where it looks, in one text or many, and where an answer appears."""

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np

from attnviz.analyses import select, view
from attnviz.core.attention_map import Attention, Token
from attnviz.core.effects import Effect, HeadAt, Intervention, LinkAt, label_of
from attnviz.core.errors import AttnvizError, UsageError, first_line
from attnviz.core.notices import merge_notices
from attnviz.core.options import Options
from attnviz.core.query import Query
from attnviz.core.records import dataclass, replace
from attnviz.core.registry import SourceKind
from attnviz.core.tokens import text_places
from attnviz.core.writers import ResidualStream, WrittenText
from attnviz.features.ablate.parts import find_parts, measure_parts
from attnviz.features.measures.intervals import means_over
from attnviz.features.targets.words import find_token
from attnviz.features.why import table as tables
from attnviz.features.why.layers import add_parts, read_lens, stream_of_row
from attnviz.features.why.report import LayersReport, LensColumn
from attnviz.features.writers.links import (
    explain_head,
    explain_link,
    follow_circuit,
    list_arguments,
)
from attnviz.features.writers.page import PAGE_LINKS, why_page
from attnviz.features.writers.report import LinkReport, WriterPart
from attnviz.models import Source
from attnviz.models.hugging_face.capture.region import check_part
from attnviz.models.open import open_source, parse_part
from attnviz.renderers import Display
from attnviz.renderers.reports import Data, data_of, draw_by
from attnviz.runs.inputs import TextInput
from attnviz.runs.readers import each_text, query_for
from attnviz.runs.reporting import RunReport, good_results

POSITIONS = 12  # of the layers that are shown by default
MASKS = "[MASK]", "<mask>"  # the first of a text is what a masked language model is asked for
SPLIT = 1024  # positions of the longest text whose logits are split: the split sees every weight


@dataclass(frozen=True, slots=True)
class Why:
    """What is asked about a head."""

    head: str | None = None  # "2.3" or "encoder.2.3"; None: the one that `attnviz self` shows first
    link: str | None = None  # "likes>dogs"; None: the strongest link of the last row between words
    against: str | None = None  # a key to compare with; None: the mean of the visible keys
    mean: bool = False  # whether to take the mean over all links of the head
    layers: bool = False  # whether to follow a prediction along the layers instead
    rows: str | None = None  # positions of the layers, "10-20"; None: the last ones
    attention_only: bool = False  # whether layers hold embeddings and what heads wrote alone
    output: str | None = None  # the output whose change is measured, or whose logit is followed
    html: bool = False  # whether a page is made

    def __post_init__(self) -> None:
        options = {"--head": self.head, "--link": self.link, "--against": self.against}
        for flag, on in (("--layers", self.layers), ("--mean", self.mean)):
            of_one_link = "--link", "--against", "--target"
            others = of_one_link if flag == "--mean" else (*options, "--mean")
            values = {**options, "--mean": self.mean or None, "--target": self.output}
            clash = next((name for name in others if on and values[name] is not None), None)
            if clash is not None:
                raise UsageError(f"{flag} and {clash} contradict each other: give one of them")
        of_layers = {"--rows": self.rows is not None, "--attention-only": self.attention_only}
        for flag in (one for one, is_given in of_layers.items() if is_given):
            if not self.layers:
                raise UsageError(f"{flag} is for --layers: add it, or leave {flag} out")
        if self.html and self.mean:
            raise UsageError("--html shows one link: leave --mean out")
        if self.mean and self.head is None:
            raise UsageError("--mean explains one head: name it by --head L.H")


def find_head(attention: Attention, name: str | None) -> tuple[HeadAt, list[str]]:
    if name is None:
        item = attention.main
        focus = view.first_focus(attention, item)
        layer = focus.layer if focus else item.layers[-1]
        head = item.heads.index(focus.head) if focus else 0
        why = focus.why if focus else "no head says more than the others"
        at = HeadAt(item.stream, layer, head)
        return at, [f"head {at} was chosen ({why}): --head names another"]
    parts = find_parts(attention, heads=[name])
    if len(parts) != 1:
        raise UsageError(f"--head '{name}' names {len(parts)} heads: name one, such as 2.3")
    (effect, _) = parts[0]
    if "head" not in effect.place:
        raise UsageError(f"--head '{name}' names a layer: name one head of it")
    place = effect.place
    return HeadAt(str(place["stream"]), str(place["layer"]), int(place["head"])), []


def find_link(
    attention: Attention, at: HeadAt, name: str | None
) -> tuple[tuple[int, int], list[str]]:
    item = attention.map_of(at.stream)
    weights = item.weights[item.layers.index(at.layer), at.head]
    if name is not None:
        streams = {one.stream for one in attention.maps}
        plain = name.partition(":")[0] in streams or at.stream == attention.main.stream
        ((_, change),) = find_parts(attention, links=[name if plain else f"{at.stream}:{name}"])
        cells = [(link.query, link.key) for link in change.links if link.stream == at.stream]
        if not cells:
            raise UsageError(f"--link '{name}' is of another stream than head {at}")
        best = max(cells, key=lambda cell: weights[cell])
        ends = f"{item.query_tokens[best[0]].text} → {item.key_tokens[best[1]].text}"
        more = f"'{name}' is {len(cells)} links between tokens: the strongest is {ends}"
        return best, [more] if len(cells) > 1 else []
    words, between_words = text_places(item.query_tokens), select.cells_between_words(item)
    if item.key_side == "picture":
        row, which = 0, f"{item.query_tokens[0].text} to a patch"
        scores = np.full(len(item.key_tokens), -1.0)
        scores[words] = weights[row, words]
    else:
        # After the last mark the text ends, and the shipped models do not predict that.
        with_letters = [n for n in words if any(map(str.isalnum, item.query_tokens[n].text))]
        rows = words if item.stream == "causal" else with_letters or words
        row, which = rows[-1] if rows else len(weights) - 1, "the last word to another word"
        scores = (
            weights[row]
            if between_words is None
            else np.where(between_words[row], weights[row], -1)
        )
    note = f"the strongest link of {which} was chosen: --link names another"
    return (row, int(np.argmax(scores))), [note]


def effect_of(
    source: Source, query: Query, text: WrittenText, link: LinkAt, output: str | None
) -> tuple[tuple[float, str] | None, list[str]]:
    """The exact effect of a link on the prediction of its row, or a note why it is unknown."""
    item = text.attention.map_of(link.stream)
    wants_output, experiment, after = output is not None, None, link.query + 1
    if output is None and text.predicts(link.stream, link.query):
        ahead = item.stream in ("causal", "decoder", "cross")  # a row predicts the token after it
        output = str(after) if ahead and after < len(item.query_tokens) else None
    try:
        if source.lacks("experiment"):
            raise UsageError("no link of this model can be taken away alone")
        experiment = source.experiment(query, output)
        own = experiment.attention.main.query_tokens
        if own != text.attention.main.query_tokens:
            raise UsageError("the model predicts masked words only")
        change = Intervention(links=(link,))
        (effect,) = measure_parts(experiment, [(Effect("", "link", {}, np.nan), change)])
    except AttnvizError as error:
        if wants_output and experiment is None:  # the output that is asked for does not exist
            raise
        return None, [f"the effect of the link is not known: {first_line(error)}"]
    notes = [one.note for one in experiment.outputs if one.note]
    return (effect.effect, label_of(experiment.outputs[0], own)), notes


def why_of_query(source: Source, query: Query, request: Why) -> tuple[LinkReport, WrittenText]:
    """Why a head looks where it looks in one text."""
    trace = source.trace_writers(query)
    attention = trace.attention
    at, notes = find_head(attention, request.head)
    if request.mean:
        return explain_head(trace, at, notes), trace
    link, more = find_link(attention, at, request.link)
    if not trace.sides(at).mask[link]:
        item = attention.map_of(at.stream)
        query_token, key_token = item.query_tokens[link[0]].text, item.key_tokens[link[1]].text
        raise UsageError(
            f"'{query_token}' cannot look at '{key_token}' in head {at}: the model's mask hides it"
        )
    against = None
    if request.against is not None:
        keys = attention.map_of(at.stream).key_tokens
        against = find_token(keys, request.against)
        if against is None:
            raise UsageError(f"--against '{request.against}' is no token of the text")
    place = LinkAt(at.stream, *link, at.layer, at.head)
    effect, unknown = effect_of(source, query, trace, place, request.output)
    notes = [*notes, *more, *unknown]
    return explain_link(trace, at, link, against, effect, notes), trace


def layers_of_query(source: Source, query: Query, request: Why) -> LayersReport:
    """What would be predicted after each layer at some positions, and the parts of one logit."""
    targets, end, notes = dict[int, int](), None, list[str]()
    if request.output is not None and not source.lacks("experiment"):
        (output, *_) = source.experiment(query, request.output).outputs
        targets, end = {output.row: output.number}, output.row
        notes += [output.note] if output.note else []

    stream, trace = _read_stream(source, query, request, end)
    columns = read_lens(stream, targets, attention_only=request.attention_only)
    last = next((one for one in columns if one.position in targets), None)
    if targets and last is None:
        raise UsageError(
            f"--target is predicted at token {end}, which --rows {request.rows} leaves out"
        )
    last = last or columns[-1]
    about = (*stream.provenance.notes, *notes)
    report = _lens_report(stream, columns, last, about, attention_only=request.attention_only)
    if request.attention_only:
        return report
    if trace is not None:  # it predicts once
        report = replace(report, tokens=len(columns))
    left_out = "what each layer adds to a logit is left out"
    if len(stream.tokens) > SPLIT:
        return replace(
            report, notes=(*report.notes, f"{left_out} of a text of more than {SPLIT:,} tokens")
        )
    try:
        trace = trace or source.trace_writers(query)
        choice = targets.get(last.position, int(trace.logits(last.position).argmax()))
        return add_parts(report, trace, last.position, choice)
    except AttnvizError as error:
        return replace(report, notes=(*report.notes, f"{left_out}: {first_line(error)}"))


def lens_until(source: Source, query: Query, link: LinkAt, show: Display) -> str:
    """The lens at the last positions up to the query of a link; "" where nothing is predicted."""
    if link.stream == "encoder":
        return ""
    stream = source.read_stream(query, partial(_choose, None, link.query))
    if stream is None:
        return ""
    columns = read_lens(stream, {})
    report = replace(_lens_report(stream, columns, columns[-1]), tokens=len(columns))
    return "\n" + tables.layers_table(report, show)


def _lens_report(
    stream: ResidualStream,
    columns: tuple[LensColumn, ...],
    last: LensColumn,
    notes: tuple[str, ...] = (),
    *,
    attention_only: bool = False,
) -> LayersReport:
    """What is predicted after each layer; nothing yet of what adds to the logit of the `last`."""
    alone = " of attention alone" if attention_only else ""
    return LayersReport(
        caption=f"{stream.provenance.title} · logit lens{alone}",
        choice=last.choice,
        position=last.token,
        columns=columns,
        tokens=len(stream.tokens),
        attention_only=attention_only,
        rows=(),
        other=None,
        logit=None,
        heads=(),
        notes=notes,
        provenance=stream.provenance,
    )


def _read_stream(
    source: Source, query: Query, request: Why, end: int | None
) -> tuple[ResidualStream, WrittenText | None]:
    """The stream at the positions to show; of a model that predicts a class, one and its trace."""
    choose = partial(_choose, request.rows, end)
    stream = source.read_stream(query, choose, attention_only=request.attention_only)
    if stream is not None:
        return stream, None
    if request.attention_only or request.rows is not None:
        flag = "--attention-only" if request.attention_only else "--rows"
        raise UsageError(f"{flag} needs a model that predicts a token at each position")
    trace = source.trace_writers(query)
    item = trace.attention.main
    words = text_places(item.query_tokens)
    row = end if end is not None else words[-1] if words else 0
    row = row if trace.predicts(item.stream, row) else 0
    if not trace.predicts(item.stream, row):
        raise UsageError("the model predicts nothing here, so no logit can be followed")
    return stream_of_row(trace, row), trace


def _choose(rows: str | None, end: int | None, tokens: Sequence[Token]) -> range:
    """The rows A-B, or the last ones up to an end: a masked token, else the last word."""
    if rows is not None:
        first, last = check_part(parse_part(rows, "--rows"), len(tokens), "--rows")
        return range(first, last + 1)
    masks = [n for n, one in enumerate(tokens) if one.text in MASKS]
    ends = [end, *masks[:1], *text_places(tokens)[-1:], 0]
    stop = next(one for one in ends if one is not None) + 1
    return range(max(stop - POSITIONS, 0), stop)


def report_why(
    request: Why, texts: TextInput, command: SourceKind, options: Options, report: RunReport
) -> None:
    """Report on each text, or the mean over several."""
    source = open_source(options.origin, command, with_head="exact")
    if request.layers:
        all_layers = each_text(
            texts.open(),
            lambda text: layers_of_query(source, query_for(source, text, command), request),
        )
        for _, layers in good_results(all_layers, report, texts.total):
            _add(report, layers.notes, _layers_data(layers))
        report.finish("text")
        return
    links: list[LinkReport] = []
    last: WrittenText | None = None
    results = each_text(
        texts.open(), lambda text: why_of_query(source, query_for(source, text, command), request)
    )
    for record, (one, trace) in good_results(results, report, texts.total):
        if request.mean:
            if links and (one.head != links[0].head):
                one = explain_head(trace, links[0].head, one.notes)
            links.append(replace(one, provenance=links[0].provenance if links else one.provenance))
            last = trace
        else:
            _add(report, one.notes, _why_data(one, getattr(record, "id", "0"), trace))
    if links and last is not None:
        mean = mean_reports(links, last)
        _add(report, mean.notes, _why_data(mean))
    report.finish(f"{len(links) or 1} text{'s' if len(links) > 1 else ''}")


def _add(report: RunReport, notes: Iterable[str], data: Data) -> None:
    for note in notes:
        report.say(note)
    report.add(data)


def _layers_data(report: LayersReport) -> Data:
    def page(command: str) -> str:
        from attnviz.features.why.page import layers_page

        return layers_page(report, command)

    plot = partial(draw_by, "attnviz.features.why.picture:layers_picture", report)
    return data_of(report, *tables.LAYERS, figures={"plot": plot}, page=page)


def _why_data(report: LinkReport, name: str = "", trace: WrittenText | None = None) -> Data:
    def page(command: str) -> str:
        assert trace is not None
        circuit = follow_circuit(trace, report, PAGE_LINKS)
        return why_page(circuit, trace.attention, command)

    return data_of(
        *(report, tables.why_table, tables.why_tsv, partial(tables.why_json, name=name)),
        arrays=partial(tables.why_npz, report),
        page=page if trace is not None else None,
        figures={"plot": partial(draw_by, "attnviz.features.why.picture:why_picture", report)},
    )


def mean_reports(reports: Sequence[LinkReport], text: WrittenText) -> LinkReport:
    """The mean over texts of what `explain_head` found, with 95 % intervals."""
    if len(reports) == 1:
        return reports[0]
    first = reports[0]

    def combine(side: str) -> tuple[WriterPart, ...]:
        names = dict.fromkeys(one.writer for report in reports for one in getattr(report, side))
        rows = [{one.writer: one for one in getattr(report, side)} for report in reports]
        parts = []
        for name in names:
            values = np.array([row[name].value if name in row else 0.0 for row in rows])
            _, mean, low, high = means_over(values)
            role = next((row[name].role for row in rows if name in row), "")
            parts.append(WriterPart(name, float(mean), role, (float(low), float(high))))
        return tuple(sorted(parts, key=lambda one: -abs(one.value)))

    pairs: dict[tuple[str, str], float] = {}
    for report in reports:
        for query, key, value in report.pairs:
            pairs[query, key] = pairs.get((query, key), 0.0) + value / len(reports)
    logits = [report.logits for report in reports if report.logits is not None]
    mean = np.mean(logits, axis=0) if logits else None
    positions = [report.position for report in reports if report.position is not None]
    texts = f"mean over {len(reports)} texts, weighted by attention"
    return replace(
        first,
        caption=f"{first.caption.rpartition(' · ')[0]} · {texts}",
        links=sum(report.links for report in reports),
        texts=len(reports),
        weight=float(np.mean([report.weight for report in reports])),
        contrast=float(np.mean([report.contrast for report in reports])),
        query=combine("query"),
        key=combine("key"),
        pairs=tuple(sorted(((*names, v) for names, v in pairs.items()), key=lambda p: -abs(p[2]))),
        position=float(np.mean(positions)) if positions else None,
        arguments=() if mean is None else list_arguments(text, mean),
        logits=mean,
        value=(),
        value_of="",
        notes=merge_notices(note for report in reports for note in report.notes),
    )
