"""Folders that cannot be loaded, each told by its files alone."""

import json

import pytest

from attnviz.core.errors import ModelError
from attnviz.models.hugging_face.load.checkpoint import check_folder


def refuse(folder, what, **allowed):
    with pytest.raises(ModelError, match=what) as caught:
        check_folder(folder, **allowed)
    assert "\n" not in str(caught.value)


@pytest.fixture
def weights(copy_of):
    return copy_of("bert") / "model.safetensors"


def split(folder):
    """Leave an index of two files, of which one is there."""
    (folder / "model.safetensors").rename(folder / "a.safetensors")
    names = {"x": "a.safetensors", "y": "b.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))


def test_whole_folders_and_no_models_are_told(folder_of, copy_of, tmp_path):
    found = check_folder(folder_of("bert"))
    assert found.config["model_type"] == "bert"
    assert found.dtypes == ("F32",)
    assert not found.is_pickle
    assert found.numbers > 26 * 32
    refuse(tmp_path, "no config.json: it is empty")
    (tmp_path / "adapter_config.json").write_text("{}")
    refuse(tmp_path, "an adapter only")
    (tmp_path / "adapter_config.json").unlink()
    refuse(copy_of("bert").parent, "did you mean '.*bert'")


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"model_type": 3}'])
def test_a_configuration_must_name_its_architecture(text, weights):
    (weights.parent / "config.json").write_text(text)
    refuse(weights.parent, "not valid JSON" if text == "{" else "names no 'model_type'")


SPOILT = {
    "no weights: it has config.json": lambda file: file.unlink(),
    "is empty": lambda file: file.write_bytes(b""),
    "Git LFS pointer": lambda file: file.write_text("version https://git-lfs.github.com/spec/v1"),
    "not a complete safetensors file": lambda file: file.write_text("<html>404</html>" * 9),
    "lacks 1 of the 2 files .*: b.safetensors": lambda file: split(file.parent),
}


@pytest.mark.parametrize("said", SPOILT)
def test_spoilt_weights_are_refused(said, weights):
    SPOILT[said](weights)
    refuse(weights.parent, said)


@pytest.mark.parametrize("kept", [5, 100, -7])
def test_a_file_cut_short_is_refused(kept, weights):
    weights.write_bytes(weights.read_bytes()[:kept])
    refuse(weights.parent, "is damaged" if kept < 0 else "not a complete safetensors file")


def test_a_pickle_is_refused_unless_asked_for(weights):
    weights.rename(weights.parent / "pytorch_model.bin")
    refuse(weights.parent, "as a pickle .*--allow pickle")
    assert check_folder(weights.parent, allow_pickle=True).is_pickle
