"""Every example of a command's help runs as it is printed, in a folder with the files of examples.

Models of the hub that examples name stand in the folder under their names, tiny and random.
"""

import os
import pty
import shutil
import warnings
from pathlib import Path

import pytest

from tests.invoke import attnviz
from tests.test_readme import outcome
from tests.test_site import reference

pytestmark = [pytest.mark.models, pytest.mark.slow]

EXAMPLES = {page.name: page.examples for page in (reference.main_page(), *reference.pages())}
PROGRAMS = ("jq", "sort", "head")
SCREENS = {"browse": (b"\x1b[?1049h", b"q"), "live": (b"http://", b"\x03")}
"""Commands that wait for their user: what they show once they are there, and what ends them."""


def whisper(folder: Path) -> None:
    from tests.features.audio.tiny_speech import SPEECH_BUILDERS

    SPEECH_BUILDERS["whisper"](folder)


def wav2vec2(folder: Path) -> None:
    from tests.features.audio.tiny_speech import SPEECH_BUILDERS

    SPEECH_BUILDERS["wav2vec2"](folder)


def captioner(folder: Path) -> None:
    from tests.features.picture_text.tiny_pictures import PICTURE_FAMILIES

    PICTURE_FAMILIES["vision-encoder-decoder"].build(folder)


def bert(folder: Path) -> None:
    from tests.hugging_face import tiny_models

    tiny_models.bert(folder)


def colbert(folder: Path) -> None:
    from tests.features.match import late_models

    late_models.colbert(folder)


HUB = {
    "colbert-ir/colbertv2.0": colbert,
    "openai/whisper-tiny": whisper,
    "facebook/wav2vec2-base": wav2vec2,
    "microsoft/trocr-small-printed": captioner,
    "bert-base-uncased": bert,
}


def build_named(command: str, folder: Path) -> None:
    """Make the models of the hub that a command names."""
    for model, build in HUB.items():
        if f" {model}" in command and not (folder / model).exists():
            build(folder / model)


def on_screen(command: str, folder: Path, ready: bytes, end: bytes) -> tuple[int, bytes]:
    """The status of a command that waits on a terminal until keys end it, and what it showed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which wait
        process, terminal = pty.fork()
    if not process:
        os.chdir(folder)
        os.execvpe(
            "bash", ["bash", "-c", command], os.environ | {"BROWSER": "true", "TERM": "xterm"}
        )
    shown = b""
    try:
        while chunk := os.read(terminal, 65536):
            shown += chunk
            if end and ready in shown:
                os.write(terminal, end)
                end = b""
    except OSError:
        pass  # Linux answers so once the last writer has gone.
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), shown


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_of_help_run_as_they_are_printed(name, tmp_path):
    attnviz("examples", tmp_path)
    for example in EXAMPLES[name]:
        if lacking := [one for one in PROGRAMS if one in example and not shutil.which(one)]:
            pytest.skip(f"{lacking[0]} is not installed")
        build_named(example, tmp_path)
        if name in SCREENS and " -o " not in example:
            status, shown = on_screen(example, tmp_path, *SCREENS[name])
            assert status in (0, 130), shown
        else:
            found, status = outcome(example, tmp_path)
            assert not status, f"{example}\n{found}"
