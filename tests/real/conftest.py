"""Real trained weights and spoken sentences; what cannot be had here is skipped, with a word."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.real.speech import Spoken, speak
from tests.real.weights import NotToBeHadError, model_folder

SENTENCES = (
    "Every morning the children walk to school with their teacher and they sing songs about "
    "animals. A large truck stopped behind a bakery while the driver was looking around for "
    "another address. Nobody knew the answer."
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test in this folder reads real weights, some of which are made first."""
    for item in items:
        if item.nodeid.startswith("tests/real/"):
            item.add_marker("real")
            item.add_marker("slow")


def folder_of(kind: str) -> Path:
    """A model's folder, or a word why it cannot be had here."""
    try:
        return model_folder(kind)
    except NotToBeHadError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def halves() -> dict[str, float]:
    """The half precisions that torch's kernel can attend in, and how far weights may be off.

    It packs bfloat16 for a processor's own instructions, even where ATEN_CPU_CAPABILITY forbids
    them, and fails.
    """
    query = torch.ones(1, 1, 512, 64, dtype=torch.bfloat16)
    try:
        torch.nn.functional.scaled_dot_product_attention(query, query, query)
    except RuntimeError:
        return {"float16": 0.02}
    return {"bfloat16": 0.15, "float16": 0.02}


@pytest.fixture(scope="session")
def whisper() -> Path:
    """Whisper tiny.en."""
    return folder_of("whisper")


@pytest.fixture(scope="session")
def dinov2() -> Path:
    """DINOv2 ViT-S/14."""
    return folder_of("dinov2")


@pytest.fixture(scope="session")
def say() -> Any:
    """What speaks a text: `tests.real.speech.speak`."""
    if shutil.which("espeak-ng") is None:
        pytest.skip("no espeak-ng on this machine: apt-get install espeak-ng to test speech")
    return speak


@pytest.fixture(scope="session")
def spoken(say: Any, tmp_path_factory: pytest.TempPathFactory) -> Spoken:
    """36 words in three sentences, and the times at which each is spoken."""
    return say(SENTENCES, tmp_path_factory.mktemp("speech") / "speech.wav")
