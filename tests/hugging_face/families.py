"""The lines of docs/tables/families.md: what attnviz finds by trying each tiny family."""

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from attnviz.core.attention_map import Attention
from attnviz.core.options import InMemoryModel
from attnviz.core.query import Query, Recording
from attnviz.core.registry import LENSES
from attnviz.features.audio.audio_model import AudioModel, load_audio_model
from attnviz.features.models.check import Trial, try_model
from attnviz.features.picture_text.layouts import BY_FAMILY, LAYOUTS
from attnviz.features.picture_text.source import load_picture_text_model
from attnviz.models import attend_query
from attnviz.models.hugging_face.capture.capture import EAGER_ROUTE
from attnviz.models.hugging_face.load.imports import quiet
from tests.features.audio.tiny_speech import RATE, SPEECH_BUILDERS, chirps
from tests.features.picture_text.tiny_pictures import PICTURE_FAMILIES
from tests.features.vision.tiny_vision import picture
from tests.hugging_face.ask import look
from tests.hugging_face.tiny_families import EVERY
from tests.hugging_face.tiny_heads import PATCHES, asked, make

DOC = Path(__file__).parents[2] / "docs" / "tables" / "families.md"
WRITE = "run: python -m tests.hugging_face.families"
COMMANDS = {"text": "self", "pair": "cross, self", "apart": "cross", "joint": "", "speech": "audio"}
"""By what a family reads: the command that shows it; else that of pictures."""
TRIED = tuple(
    name for name in EVERY if name not in PICTURE_FAMILIES and name not in SPEECH_BUILDERS
)
"""The families whose lines are found by a trial; those of the others by their commands' sources."""
PICTURE_COMMAND, TEXT = "image --text", "The red car is fast"
WHY = re.compile(r".*architecture '.*?' (has no attention weights .*?: |gives out .*: )?")
"""What a refusal says before its reason."""


def found_of(name: str) -> Trial:
    """The trial of a family's tiny model with its head."""
    return try_model(asked(name, make(name)))


def line_of(name: str, found: Trial) -> str:
    """The line of a family that was tried."""
    note = WHY.sub("", found.reason) if found.route == "refused" else EVERY[name].note
    command = "" if name in PATCHES else COMMANDS.get(EVERY[name].kind, "image")
    return line(name, command, found, note)


def line(name: str, command: str, found: Trial, note: str) -> str:
    """A line of the table."""
    lenses = "all" if found.lenses == tuple(LENSES) else ", ".join(found.lenses)
    off, splits = ("yes" if one else "" for one in (found.heads_off, found.splits))
    streams = ", ".join(found.streams)
    known = documented().get(name, "||").split("|")[2].strip()  # names are kept in the document
    cells = (f"`{name}`", known, command, found.route, streams, lenses, off, splits, note)
    return "| " + " | ".join(cell or "—" for cell in cells) + " |"


def read_line(found: Sequence[Attention], command: str) -> str:
    """The line of a family whose command shows weights only."""
    settings = found[0].provenance.settings
    kind = str(settings["model_type"])
    eager = EAGER_ROUTE in str([item.provenance.settings["attention"] for item in found])
    streams = dict.fromkeys(one.stream for item in found for one in item.maps)
    note = LAYOUTS[BY_FAMILY[kind]].about if kind in BY_FAMILY else ""
    return line(kind, command, Trial("eager" if eager else "probe", tuple(streams)), note)


def heard_maps(source: AudioModel) -> list[Attention]:
    """A speech model's maps of a recording: of its frames, and of a text if it writes."""
    recording = Recording(chirps(), RATE, 0.0, 1.5, encoder=True)
    asked = [Query("", kind="recording", recording=recording)]
    if source.writes:
        language = "en" if source.model.config.model_type == "whisper" else None
        spoken = replace(recording, encoder=False, language=language)
        asked.insert(0, Query(TEXT, kind="recording", recording=spoken))
    return [attend_query(source, query) for query in asked]


def read_lines(folder: Path) -> Iterator[str]:
    """The lines of the families whose commands are asked, with tiny models in a folder."""
    for name, row in PICTURE_FAMILIES.items():
        made = row.build(folder / name)
        named = made if isinstance(made, InMemoryModel) else str(made)
        source = load_picture_text_model(named, device="cpu")
        yield read_line([look(source, picture(), TEXT)], PICTURE_COMMAND)
    for name, build in SPEECH_BUILDERS.items():
        yield read_line(
            heard_maps(load_audio_model(str(build(folder / name)), device="cpu")), "audio"
        )


@contextmanager
def silence() -> Iterator[None]:
    """Silence transformers' warnings about tiny models."""
    with quiet(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def model_type_of(line: str) -> str:
    """The model type of a line of the table."""
    return line.split("`")[1]


def documented() -> dict[str, str]:
    """The lines of the documentation by model type."""
    lines = DOC.read_text(encoding="utf-8").splitlines()
    return {model_type_of(line): line for line in lines if line.startswith("| `")}


def main() -> None:
    """Write the table into the documentation, in place of the one that is there."""
    torch.set_num_threads(1)
    with silence(), TemporaryDirectory() as folder:
        lines = [line_of(name, found_of(name)) for name in TRIED] + [*read_lines(Path(folder))]
    before, head, _ = re.split(r"(\| model_type .*\n\|[-|]+\n)", DOC.read_text(encoding="utf-8"))
    DOC.write_text(
        before + head + "\n".join(sorted({*lines}, key=model_type_of)) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
