"""A recording read by a speech model: its attention over time, and the times of words."""

from __future__ import annotations

import json
import re
from dataclasses import astuple
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.core import attention_map, query, registry
from attnviz.core.errors import UsageError
from attnviz.core.options import Options, map_options
from attnviz.core.records import asdict, dataclass, replace
from attnviz.features.audio.opening import check_speech, open_speech_model
from attnviz.features.audio.timed_words import TimedWord, as_textgrid, as_vtt, read_timed_words
from attnviz.features.audio.word_times import ENOUGH, Heads, TimingError, WordClock, timing_errors
from attnviz.features.vision.picture_files import as_jpeg
from attnviz.models import attend_query
from attnviz.renderers.reports import Data, Item, listing
from attnviz.runs.outputs import draw, page_html, views_of
from attnviz.runs.pipeline import apply_choice, check_choice
from attnviz.runs.reporting import RunReport, hold_notes
from attnviz.storage import documents, matrices, texts

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL.Image import Image

    from attnviz.core.query import Recording
    from attnviz.features.audio.audio_model import AudioModel
    from attnviz.features.audio.audio_text import AudioTextModel

TIME_FORMATS = ("textgrid", "vtt")  # formats of words with times


@dataclass(frozen=True, slots=True)
class RecordingRequest:
    """What of a recording is read, and what is asked; `attnviz.audio` explains each field."""

    file: Path
    sound: tuple[Any, int] | None = None  # the samples of one in memory, and how many are a second
    text: str | None = None
    language: str | None = None
    task: str | None = None
    start: float = 0.0
    seconds: int = 30
    word_times: bool = False
    times: Path | None = None
    timing_heads: str | None = None  # the heads that time words, "2.0,3.1"
    against: str = "output"

    @property
    def kind(self) -> registry.DataKind:
        """What is reported: errors of times, times, or maps."""
        return "scores" if self.times else "times" if self.word_times else "maps"

    def check(self, options: Options) -> None:
        check_speech(options.origin)
        if not self.start < 1e6:
            raise UsageError(f"--start {self.start:g} is no second of a recording")
        check_choice(options.choice)
        if self.timing_heads is not None:
            parse_heads(self.timing_heads)
        if self.kind == "maps" and self.timing_heads is not None:
            raise UsageError(
                "--timing-heads names heads that time words: add --word-times or --times"
            )
        if self.kind != "maps" and (flags := map_options(options)):
            output, option = options.output, "--times" if self.times else "--word-times"
            if output.format in TIME_FORMATS:
                option = f"-f {output.format}"
            elif output.output and output.output.suffix.lower()[1:] in TIME_FORMATS:
                option = f"-o {output.output}"
            heads = ", or choose by --timing-heads" if flags[0] in ("--layer", "--head") else ""
            raise UsageError(f"{option} writes times, not maps: leave {flags[0]} out{heads}")
        if self.text is not None:
            texts.check_text(self.text)


def report_recording(request: RecordingRequest, options: Options, report: RunReport) -> None:
    """Report maps, times of words, or how far heads err from true times."""
    if request.times is not None:
        matrices.open_file(request.times).close()  # a pipe would wait
    true = [] if request.times is None else read_timed_words(request.times)
    from attnviz.features.audio.recordings import read_recording

    heard = replace(
        read_recording(request.sound or request.file, request.start, request.seconds),
        language=request.language,
        task=request.task,
        encoder=options.choice.stream == "encoder",
        ended=request.kind != "maps",
    )
    source = open_speech_model(options.origin)
    transcript = request.text or " ".join(word.text for word in true)
    attention = attend_query(source, query.Query(transcript, kind="recording", recording=heard))
    attention = attention.with_maps(attention.maps, settings={"recording": request.file.name})
    attention = replace(attention, id=request.file.stem)
    hold_notes(attention, report)
    if request.kind == "maps":
        report.add(_maps_item(attention, source, heard, options))
    else:
        report.add(_times_data(attention, source, request, true, report))
    report.finish("1 recording")


def _maps_item(
    attention: attention_map.Attention,
    source: AudioModel | AudioTextModel,
    heard: Recording,
    options: Options,
) -> Item:
    """The maps, above a spectrogram where the keys are times."""
    from attnviz.features.audio.recordings import log_mel
    from attnviz.features.audio.sound_inputs import SIDE

    result = apply_choice(attention, options.choice)
    views = views_of(result, options.choice, options.origin.top)
    bands = cache(partial(log_mel, source.cut(heard), source.extractor))
    if source.has_patches:
        # Patches of a spectrogram are shown over it, as those of a picture are.
        def page(command: str) -> str:
            pictures = {"self": as_jpeg(spectrogram(bands()))}
            return page_html(result, command, picture=pictures, views=views)

        return Item(result, views, page=page)
    if result.main.key_side != SIDE:
        return Item(result, views)
    return Item(result, views, {"heatmap": lambda: draw(result, "heatmap", views, above=bands())})


def _times_data(
    attention: attention_map.Attention,
    source: AudioModel | AudioTextModel,
    request: RecordingRequest,
    true: list[TimedWord],
    report: RunReport,
) -> Data:
    settings, item = attention.provenance.settings, attention.main
    own_heads = parse_heads(request.timing_heads) if request.timing_heads else None
    heads, why = source.timing_heads(item, own_heads)
    report.hold(f"words are timed by heads {head_names(heads)}: {why}")
    median = getattr(source.model.config, "median_filter_width", 7)
    step = settings["seconds of a frame"]
    clock = WordClock(item, attention.text or "", step, request.start, median, request.against)
    about: dict[str, Any] = {
        "recording": request.file.name,
        "text": clock.text,
        "against": request.against,
        "provenance": asdict(attention.provenance),
    }
    if true:
        report.hold(note := selection_note(len(true)))
        return errors_data(timing_errors(clock, heads, true), {**about, "note": note})
    words = clock.word_times(heads)
    if short := sum(word.end == word.start for word in words):
        report.hold(f"words that get no time, and no place in a TextGrid: {short}")
    return times_data(words, clock.end, {**about, "heads": as_objects(heads)})


def parse_heads(text: str) -> Heads:
    if not re.fullmatch(r"\d{1,4}\.\d{1,4}(,\d{1,4}\.\d{1,4})*", text):
        raise UsageError(f"--timing-heads '{text}' names no heads: write 2.0 or 2.0,3.1")
    pairs = (part.split(".") for part in text.split(","))
    return list(dict.fromkeys((int(layer), int(head)) for layer, head in pairs))


def head_names(heads: Heads) -> str:
    """Such as "2.0,3.1"."""
    return ",".join(f"{layer}.{head}" for layer, head in heads)


def as_objects(heads: Heads) -> list[dict[str, int]]:
    """Heads as documents have them."""
    return [{"layer": layer, "head": head} for layer, head in heads]


def times_data(words: list[TimedWord], end: float, about: dict[str, Any]) -> Data:
    """The times of every word."""
    return replace(
        listing(
            "times", ("word", "start", "end"), [astuple(word) for word in words], headings=True
        ),
        document=lambda: documents.report_json("times", **about, words=words),
        textgrid=lambda: as_textgrid(words, end),
        vtt=lambda: as_vtt(words),
        value=words,
    )


def selection_note(count: int) -> str:
    """A note on how far the best set of heads can be trusted, by the number of words."""
    if count < ENOUGH:
        return f"no best set of heads is chosen by {count} words: it takes {ENOUGH} at least"
    half = count // 2
    return (
        f"the best set of heads is chosen by words 1 to {half}, and every error is that of words "
        f"{half + 1} to {count}"
    )


def errors_data(
    results: tuple[TimingError, TimingError | None, list[TimingError]], about: dict[str, Any]
) -> Data:
    """How far the chosen heads, the best set and every head err from the true times."""
    own, best, every = results
    sets = {"as asked": own} | ({"best set": best} if best else {})
    rows = [*sets.items(), *(("", one) for one in every)]
    cells = [(name, head_names(one.heads), one.error, one.start, one.end) for name, one in rows]
    data = listing(
        "time-errors", ("set", "heads", "error", "start_error", "end_error"), cells, headings=True
    )
    table, heads = data.text, best.heads if best else None
    line = f'\n"alignment_heads": {json.dumps(heads)}\n' if heads else ""
    assert table is not None
    errors = [
        {
            "name": name,
            "heads": as_objects(one.heads),
            "error": one.error,
            "start": one.start,
            "end": one.end,
        }
        for name, one in rows
    ]
    return replace(
        data,
        text=lambda display: table(display) + line,
        document=lambda: documents.report_json(
            "time errors", **about, errors=errors, alignment_heads=heads and as_objects(heads)
        ),
        value=results,
    )


def spectrogram(bands: NDArray[np.float32]) -> Image:
    """A log-mel spectrogram as a picture, low bands below, strong ones dark."""
    from PIL import Image

    low, high = float(bands.min()), float(bands.max())
    grey = 255 * (1 - (bands[::-1] - low) / (high - low or 1))
    image = Image.fromarray(grey.astype(np.uint8)).convert("RGB")
    return image.resize((4 * image.width, 4 * image.height))
