"""Every command does its plainest work, in the fast tier too (`tests/test_tiers.py` says so)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from attnviz.cli.app import COMMANDS
from tests.invoke import OWN, attnviz

SAMPLES = Path(__file__).parents[2] / "sample_inputs"

Work = tuple[Callable[[Path], list[object]], str]
"""What a command is given, in a folder of its own, and a line of what it answers."""


def saved(folder: Path) -> Path:
    """A map of "a b" over itself."""
    attnviz("self", "a b", *OWN, "-o", folder / "a.npz", "-q")
    return folder / "a.npz"


def samples(folder: Path) -> list[object]:
    """A folder that holds one sample of a training run."""
    saved(folder).rename(folder / "step-00000100.npz")
    return [folder]


def vision(folder: Path) -> Path:
    """A tiny model of pictures."""
    from tests.hugging_face.tiny_vision import VISION_BUILDERS

    return VISION_BUILDERS["vit"](folder)


def speech(folder: Path) -> Path:
    """A tiny model of recordings."""
    from tests.hugging_face.tiny_speech import SPEECH_BUILDERS

    return SPEECH_BUILDERS["wav2vec2"](folder)


def program(folder: Path) -> Path:
    """A program that attends."""
    (folder / "program.py").write_text(
        "import torch\nq = torch.ones(1, 2, 3, 4)\n"
        "torch.nn.functional.scaled_dot_product_attention(q, q, q)\nprint('done')\n"
    )
    return folder / "program.py"


WORK: dict[str, Work] = {
    "self": (lambda _: ["the cat sat"], "cat"),
    "cross": (lambda _: ["The red car", "La voiture rouge"], "rouge"),
    "co": (lambda _: ["what is red", "a car"], "affinity"),
    "image": (lambda folder: [SAMPLES / "shapes.png", "--model", vision(folder)], "decides"),
    "audio": (lambda folder: [SAMPLES / "vowels.wav", "--model", speech(folder)], "self"),
    "watch": (lambda folder: ["-o", folder / "a.npz", "--", program(folder)], "done"),
    "serve": (lambda _: ["--help"], "/openapi.json"),  # tests/serve sees it do its work
    "heads": (lambda _: ["the cat saw the cat"], "layer"),
    "corpus": (lambda _: [SAMPLES / "sentences.txt", *OWN], "texts"),
    "ablate": (lambda _: ["the cat", "le chat", "--head", "0.0"], "layer 0 head 0"),
    "compare": (lambda folder: [saved(folder), "--head-a", 0, "--head-b", 1], "layer"),
    "history": (samples, "entropy"),
    "why": (lambda _: ["The cat sat down."], "why there"),
    "explain": (lambda _: ["The cat sat down."], "the model says"),
    "sources": (lambda _: ["the cat", "--context", SAMPLES / "sentences.txt"], "the model writes"),
    "cache": (lambda _: ["the cat saw the cat", "--keep", "h2o:3"], "nats a token"),
    "wiring": (lambda _: ["The cat sat down."], "←"),
    "lenses": (lambda _: ["The cat sat down."], "one text decides little"),
    "align": (lambda _: [SAMPLES / "pairs.tsv"], "0-0"),
    "steps": (lambda _: [], "softmax"),
    "lesson": (lambda _: ["scaling"], "scaling"),
    "live": (lambda folder: ["-v", "-o", folder / "a.html"], ""),
    "render": (lambda folder: [saved(folder)], "a"),
    "mechanisms": (lambda _: [], "multi-head"),
    "models": (lambda _: [], "pocket"),
    "schema": (lambda _: ["heads"], "heads"),
    "skill": (lambda _: [], "attnviz for programs"),
}


@pytest.mark.usefixtures("few_references")
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_does_its_work(command, tmp_path):
    given, said = WORK[command]
    done = attnviz(command, *given(tmp_path))
    assert done.status == 0, done.err
    assert said in done.text.lower(), done.text
