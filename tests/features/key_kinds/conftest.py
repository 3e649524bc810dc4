"""Small models whose keys are not all tokens, each made once."""

import pytest
import transformers
from transformers import CONFIG_MAPPING

from attnviz.models.hugging_face.text_model import load_model
from tests.features.key_kinds.tiny import save


@pytest.fixture(scope="session")
def kind_folder(tmp_path_factory):
    made = {}

    def folder(kind):
        if kind not in CONFIG_MAPPING:
            pytest.skip(f"transformers {transformers.__version__} has no '{kind}'")
        if kind not in made:
            made[kind] = save(tmp_path_factory.mktemp("kinds") / kind, kind)
        return made[kind]

    return folder


@pytest.fixture(scope="session")
def kind_model(kind_folder):
    made = {}

    def model(kind):
        if kind not in made:
            made[kind] = load_model(str(kind_folder(kind)), device="cpu")
        return made[kind]

    return model
