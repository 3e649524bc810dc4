"""Copies of a model's own code lie in a folder of the tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where transformers copies code that comes with a model; no network is asked."""
    folder = tmp_path_factory.mktemp("modules")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(folder))
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.syspath_prepend(str(folder))
        yield folder
