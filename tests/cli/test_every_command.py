"""Every command does its plainest work, in the fast tier too (`tests/test_tiers.py` says so)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from attnviz.cli.app import build_command
from attnviz.core.registry import COMMANDS
from attnviz.features.lessons import LESSONS
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
    from tests.features.vision.tiny_vision import VISION_BUILDERS

    return VISION_BUILDERS["vit"](folder)


def speech(folder: Path) -> Path:
    """A tiny model of recordings."""
    from tests.features.audio.tiny_speech import SPEECH_BUILDERS

    return SPEECH_BUILDERS["wav2vec2"](folder)


def late(folder: Path) -> Path:
    """A tiny model of late interaction."""
    from tests.features.match.late_models import colbert

    return colbert(folder / "colbert")


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
    "image": (lambda folder: [SAMPLES / "shapes.png", "--model", vision(folder)], "decides"),
    "audio": (lambda folder: [SAMPLES / "vowels.wav", "--model", speech(folder)], "self"),
    "watch": (lambda folder: ["-o", folder / "a.npz", "--", program(folder)], "done"),
    "match": (lambda folder: ["a cat", "a dog", "--model", late(folder)], "similarity"),
    "browse": (lambda _: ["--help"], "by keys"),  # tests/features/browse sees it do its work
    "heads": (lambda _: ["the cat saw the cat"], "layer"),
    "ablate": (lambda _: ["the cat", "le chat", "--head", "0.0"], "layer 0 head 0"),
    "compare": (lambda folder: [saved(folder), "--head-a", 0, "--head-b", 1], "layer"),
    "why": (lambda _: ["The cat sat down."], "why there"),
    "explain": (lambda _: ["The cat sat down."], "the model says"),
    "sources": (lambda _: ["the cat", "--context", SAMPLES / "sentences.txt"], "the model writes"),
    "cache": (lambda _: ["the cat saw the cat", "--keep", "h2o:3"], "nats a token"),
    "align": (lambda _: [SAMPLES / "pairs.tsv"], "0-0"),
    "steps": (lambda _: [], "softmax"),
    "lesson": (lambda _: ["scaling"], "scaling"),
    "live": (lambda folder: ["-v", "-o", folder / "a.html"], ""),
    "render": (lambda folder: [saved(folder)], "a"),
    "models": (lambda _: [], "pocket"),
    "examples": (lambda folder: [folder / "new"], "pairs.tsv"),
}


@pytest.mark.usefixtures("few_references")
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_does_its_work(command, tmp_path):
    given, said = WORK[command]
    done = attnviz(command, *given(tmp_path))
    assert done.status == 0, done.err
    assert said in done.text.lower(), done.text


def effects_of_heads(folder: Path) -> Path:
    """Saved effects of each head."""
    attnviz("ablate", "the cat", "le chat", "--each", "heads", "-o", folder / "e.json", "-q")
    return folder / "e.json"


def two_samples(folder: Path) -> list[object]:
    """A folder that holds two samples of a training run."""
    for step in (100, 200):
        saved(folder).rename(folder / f"step-{step:08}.npz")
    return [folder]


MODES: dict[str, list[Callable[[Path], list[object]]]] = {
    "self": [lambda _: ["the cat sat", "--lens", "all"], lambda _: ["a b", "--head", "0.1,1.2"]],
    "cross": [lambda _: ["The red car", "La voiture", "--words", "--lens", "effect"]],
    "heads": [
        lambda _: ["the cat saw the cat", "--similar"],
        lambda _: ["a b c", "--effect"],
        lambda _: ["-i", SAMPLES / "pairs.tsv", "--cross", "--effect"],
        lambda _: ["--wiring", "--weights-only"],
        lambda _: ["The red car", "La voiture rouge", "--cross", "--wiring"],
    ],
    "ablate": [
        *(lambda _, each=each: ["the cat", "le chat", "--each", each] for each in
          ("heads", "links", "tokens")),
        lambda _: ["--input", SAMPLES / "pairs.tsv", "--each", "heads"],
    ],
    "compare": [
        lambda _: ["The cat sat", "The dog sat"],
        lambda folder: [effects_of_heads(folder), effects_of_heads(folder)],
        two_samples,
    ],
    "why": [
        lambda _: ["The cat sat down.", "--layers"],
        lambda _: ["The cat sat down.", "--mean", "--head", "0.1"],
        lambda _: ["The red car", "La voiture rouge"],
        lambda _: ["--input", SAMPLES / "sentences.txt", "--mean", "--head", "0.1"],
    ],
    "explain": [
        lambda _: ["Tom likes dogs. Tom likes", "--contrast", "Tom likes cats. Tom likes"],
        lambda _: ["The red car", "La voiture rouge"],
    ],
    "cache": [
        lambda _: ["the cat saw the cat", "--keep", "h2o:0.2,0.5"],
        lambda _: ["--input", SAMPLES / "sentences.txt", "--keep", "recent:3"],
    ],
    "steps": [lambda _: ["the cat sat"], lambda _: ["--example", "cross"]],
    "lesson": [lambda _, name=name: [name] for name in LESSONS if name not in ("training",)],
}  # fmt: skip
"""Further ways to use a command, beside its plainest work."""


def pictures_of(command: str) -> list[str]:
    """The kinds of pictures that a command draws."""
    return [*build_command(command).draws]


@pytest.mark.slow
@pytest.mark.usefixtures("few_references", "coarse")
@pytest.mark.parametrize("command", [name for name in COMMANDS if pictures_of(name)])
def test_pictures_are_drawn_or_refused_in_every_mode(command, tmp_path):
    failures, params = [], build_command(command).params
    for number, mode in enumerate([WORK[command][0], *MODES.get(command, [])]):
        for picture in pictures_of(command):
            folder = tmp_path / f"{number}-{picture}"
            folder.mkdir()
            place = folder / f"drawn.{'gif' if picture == 'gif' else 'png'}"
            own = f"--{picture}" in {name for item in params for name in item.opts}
            option, file = (f"--{picture}", place) if own else ("--picture", f"{picture}:{place}")
            words = [*mode(folder), option, file]
            if "--" in words:  # a program's own options stand behind it
                words = [*words[: words.index("--")], option, file, *mode(folder)[-2:]]
            done = attnviz(command, *words)
            drawn = place.is_file() or any(folder.glob("drawn-*"))
            if done.status not in (0, 2) or (done.status == 0) != drawn or "Traceback" in done.err:
                failures.append((words, done.status, done.err[-200:]))
    assert failures == []
