"""attnviz audio: when a speech model listens, and when each word is spoken."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, astuple, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from attnviz.analyses.word_times import ENOUGH, Heads, TimingError, WordClock, timing_errors
from attnviz.cli.commands.listings import listing
from attnviz.cli.options import CHOICE, ORIGIN, with_options
from attnviz.cli.report import Report
from attnviz.cli.sinks import Item
from attnviz.core.errors import UsageError
from attnviz.core.options import Options, map_options, opt
from attnviz.core.query import Query
from attnviz.core.registry import DataKind
from attnviz.models import attend_query
from attnviz.models.open import LOADING, is_shipped, name_of, region_of
from attnviz.runs.outputs import draw, views_of
from attnviz.runs.pictures import as_jpeg
from attnviz.runs.pipeline import apply_choice, check_choice
from attnviz.storage.documents import escape_hidden
from attnviz.storage.texts import check_text
from attnviz.storage.timed_words import TimedWord, as_textgrid, as_vtt, read_timed_words

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL.Image import Image

    from attnviz.renderers.reports import Data

TIMED = ("textgrid", "vtt")
"""Formats of words with times."""


@with_options(
    *("model", "compute", "stream", "heads", "reduce", "special", "group", "long"),
    *("pictures", "lines", "page", "top"),
    writes=("maps", "times", "scores"),
)
def audio(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Recording: .wav, .flac, .ogg, .mp3, ….")
    ],
    text: str | None = opt(
        ORIGIN, "--text TEXT", "What is spoken; without it a model like Whisper writes it."
    ),
    language: str | None = opt(
        ORIGIN,
        "--language NAME",
        "Spoken language (en, french), if the model knows several; default: it decides.",
    ),
    task: str | None = opt(
        ORIGIN,
        "--task NAME",
        "Task for such a model: {choices} (into English).",
        choices=("transcribe", "translate"),
    ),
    start: float = opt(
        ORIGIN, "--start SECONDS", "Where in the recording to begin.", default=0.0, min=0
    ),
    seconds: int = opt(
        ORIGIN,
        "--seconds SECONDS",
        "How many seconds to read at most; Whisper reads 30, AST 10.",
        default=30,
        min=1,
        max=3600,
    ),
    word_times: bool = opt(
        CHOICE, "--word-times", "When each word is spoken, by the heads that the model names."
    ),
    times: Path | None = opt(
        CHOICE,
        "--times FILE",
        "True times of words (.tsv: word, start, end; .TextGrid; .vtt), to see how heads err.",
    ),
    timing_heads: str | None = opt(
        CHOICE, "--timing-heads WHICH", "Heads that time the words: 2.0,3.1."
    ),
    against: str = opt(
        CHOICE,
        "--against SIDE",
        "Whether a row times the token that it predicts (output) or has read (input).",
        default="output",
        choices=("input", "output"),
    ),
    *,
    options: Options,
) -> None:
    """Show when a speech model listens: words over time, above a spectrogram, or time over itself.

    attnviz audio speech.wav --model openai/whisper-tiny --heatmap look.png

    attnviz audio speech.wav --model openai/whisper-tiny --text "The red car" -f textgrid

    attnviz audio speech.wav --model openai/whisper-tiny --times speech.tsv

    attnviz audio speech.wav --model facebook/wav2vec2-base --layer 5 --grid heads.png
    """
    wanted = {options.output.format, (options.output.output or Path()).suffix.lower()[1:]}
    timed = word_times or not wanted.isdisjoint(TIMED)
    kind: DataKind = "scores" if times else "times" if timed else "maps"
    check_request(options, kind, start, timing_heads)
    if text is not None:
        check_text(text)
    true = [] if times is None else read_timed_words(times)
    from attnviz.models.hugging_face.audio.audio import SIDE, load_audio_model
    from attnviz.models.hugging_face.audio.recordings import log_mel, read_recording

    path, choice = Path(file), options.choice
    with Report(options, kind) as report:
        given = read_recording(path, start, seconds)
        given = replace(
            given,
            language=language,
            task=task,
            encoder=choice.stream == "encoder",
            ended=kind != "maps",
        )
        terms = {name: getattr(options.origin, name) for name in LOADING}
        source = load_audio_model(name_of(options.origin), **terms)
        source = replace(source, region=region_of(options.origin))
        said = text or " ".join(word.text for word in true)
        attention = attend_query(source, Query(said, kind="recording", recording=given))
        attention = attention.with_maps(attention.maps, settings={"recording": path.name})
        attention = replace(attention, id=path.stem)
        report.say_of(attention)
        if kind == "maps":
            found = apply_choice(attention, choice)
            views = views_of(found, choice, options.origin.top)
            width = options.output.width
            bands = cache(partial(log_mel, source.cut(given), source.extractor))
            strip = {"heatmap": lambda: draw(found, "heatmap", views, width, above=bands())}
            picture, framed = None, found.main.key_side == SIDE and not source.has_patches
            if source.has_patches and (options.output.html or options.output.open_page):
                picture = {"self": as_jpeg(spectrogram(bands()))}
            report.add(Item(found, views, strip if framed else {}, picture=picture))
        else:
            settings, item = attention.provenance.settings, attention.main
            chosen = None if timing_heads is None else parse_heads(timing_heads)
            heads, why = source.timing_heads(item, chosen)
            report.hold(f"words are timed by heads {spelled(heads)}: {why}")
            median = getattr(source.model.config, "median_filter_width", 7)
            step = settings["seconds of a frame"]
            clock = WordClock(item, attention.text or "", step, start, median, against)
            about: dict[str, Any] = {
                "recording": path.name,
                "text": clock.text,
                "against": against,
                "provenance": asdict(attention.provenance),
            }
            if true:
                report.hold(note := how_chosen(len(true)))
                report.add(errors_data(timing_errors(clock, heads, true), {**about, "note": note}))
            else:
                words = clock.spoken(heads)
                if short := sum(word.end == word.start for word in words):
                    report.hold(f"words that get no time, and no place in a TextGrid: {short}")
                report.add(times_data(words, clock.end, {**about, "heads": heads}))
        report.finish("1 recording")


def check_request(options: Options, kind: DataKind, start: float, timing: str | None) -> None:
    """Find out before a model loads whether everything can be done."""
    if is_shipped(options.origin):
        raise UsageError(
            "a recording needs a speech model: --model ID_OR_FOLDER (Whisper, wav2vec 2.0, …)"
        )
    if not start < 1e6:
        raise UsageError(f"--start {start:g} is no second of a recording")
    check_choice(options.choice)
    if timing is not None:
        parse_heads(timing)
    if kind == "maps" and timing is not None:
        raise UsageError("--timing-heads names heads that time words: add --word-times or --times")
    if kind != "maps" and (given := map_options(options)):
        output, asked = options.output, "--times" if kind == "scores" else "--word-times"
        if output.format in TIMED:
            asked = f"-f {output.format}"
        elif output.output and output.output.suffix.lower()[1:] in TIMED:
            asked = f"-o {output.output}"
        heads = "" if given[0] not in ("--layer", "--head") else ", or choose by --timing-heads"
        raise UsageError(f"{asked} writes times, not maps: leave {given[0]} out{heads}")


def parse_heads(text: str) -> Heads:
    """Layers and heads of "2.0,3.1"."""
    if not re.fullmatch(r"\d{1,4}\.\d{1,4}(,\d{1,4}\.\d{1,4})*", text):
        raise UsageError(f"--timing-heads '{text}' names no heads: write 2.0 or 2.0,3.1")
    pairs = (part.split(".") for part in text.split(","))
    return list(dict.fromkeys((int(layer), int(head)) for layer, head in pairs))


def spelled(heads: Heads) -> str:
    """Such as "2.0,3.1"."""
    return ",".join(f"{layer}.{head}" for layer, head in heads)


def times_data(words: list[TimedWord], end: float, about: dict[str, Any]) -> Data:
    """The times of every word."""
    return replace(
        listing(("word", "start", "end"), [astuple(word) for word in words], titled=True),
        document=lambda: _json({**about, "words": [asdict(word) for word in words]}),
        textgrid=lambda: as_textgrid(words, end),
        vtt=lambda: as_vtt(words),
        value=words,
    )


def how_chosen(count: int) -> str:
    """What is to be known of the best set of that many words."""
    if count < ENOUGH:
        return f"no best set of heads is chosen by {count} words: it takes {ENOUGH} at least"
    half = count // 2
    return (
        f"the best set of heads is chosen by words 1 to {half}, and every error is that of words "
        f"{half + 1} to {count}"
    )


def errors_data(
    found: tuple[TimingError, TimingError | None, list[TimingError]], about: dict[str, Any]
) -> Data:
    """How far the chosen heads, the best set and every head err from the true times."""
    asked, best, every = found
    named = {"as asked": asked} | ({"best set": best} if best else {})
    rows = [*named.items(), *(("", one) for one in every)]
    cells = [(name, spelled(one.heads), one.error, one.start, one.end) for name, one in rows]
    made = listing(("set", "heads", "error", "start_error", "end_error"), cells, titled=True)
    table, heads = made.text, best.heads if best else None
    line = f'\n"alignment_heads": {json.dumps(heads)}\n' if heads else ""
    assert table is not None
    errors = [
        {"name": name, "heads": one.heads, "error": one.error, "start": one.start, "end": one.end}
        for name, one in rows
    ]
    return replace(
        made,
        text=lambda display: table(display) + line,
        document=lambda: _json({**about, "errors": errors, "alignment_heads": heads}),
        value=found,
    )


def spectrogram(bands: NDArray[np.float32]) -> Image:
    """A log-mel spectrogram as a picture, low bands below, strong ones dark."""
    from PIL import Image

    low, high = float(bands.min()), float(bands.max())
    grey = 255 * (1 - (bands[::-1] - low) / (high - low or 1))
    made = Image.fromarray(grey.astype(np.uint8)).convert("RGB")
    return made.resize((4 * made.width, 4 * made.height))


def _json(document: dict[str, Any]) -> str:
    return escape_hidden(json.dumps(document, ensure_ascii=False, indent=2)) + "\n"
