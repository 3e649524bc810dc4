"""Names that lead to a folder, and what is said of those that do not."""

import shutil
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import errors as hub

from attnviz.core.errors import ModelError
from attnviz.models.hugging_face.load.locate import (
    cache_folder,
    display_name,
    find_files,
    list_cached_models,
    locate,
    wanted_files,
)
from attnviz.models.hugging_face.text_model import load_model


@pytest.fixture
def cache(tmp_path, monkeypatch, folder_of):
    """A hub cache with one model of the name "people/tiny"."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--people--tiny"
    shutil.copytree(folder_of("bert"), repository / "snapshots" / "c0ffee")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("c0ffee")
    (tmp_path / "models--people--config-only" / "snapshots" / "1").mkdir(parents=True)
    return tmp_path


def refuse(what, name):
    with pytest.raises(ModelError, match=what) as caught:
        locate(name)
    assert "\n" not in str(caught.value)


def online(monkeypatch, answer):
    """Let the hub answer with an error, or with a list of files."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")

    def ask(self, name, **options):
        raise answer

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", ask)


def http_error(kind):
    error = kind.__new__(kind)
    Exception.__init__(error, "401 Client Error.\nand a long story")
    return error


def test_a_folder_is_itself_and_its_files_are_wanted(tmp_path):
    for name in ("./nope", "a/b/c", "", "a b"):
        refuse("there is no folder", name)
    assert locate(str(tmp_path)) == tmp_path
    refuse("there is no folder", f"{tmp_path}@v2")
    (at := tmp_path / "bert@v2").mkdir()
    assert locate(str(at)) == at
    (tmp_path / "model.safetensors").touch()
    refuse("is a file: give the folder", str(tmp_path / "model.safetensors"))
    read = ["config.json", "tokenizer.json", "model.safetensors"]
    names = [*read, "pytorch_model.bin", "modeling.py", "onnx/model.onnx", "onnx/config.json"]
    assert wanted_files(names, allow_code=False) == read
    assert "modeling.py" in wanted_files(names, allow_code=True)
    names = ["model.safetensors.index.json", "model-1.safetensors", "model-2.safetensors", "a.bin"]
    assert wanted_files(names, allow_code=False) == names[:3]


def test_folders_and_cached_models_are_found(cache, monkeypatch):
    assert locate("people/tiny") == cache / "models--people--tiny" / "snapshots" / "c0ffee"
    assert locate("people/tiny@c0ffee").name == "c0ffee"
    (found,) = list_cached_models()
    assert (str(found), found.model_type, found.revision) == ("people/tiny", "bert", "c0ffee")
    assert found.bytes > 1000
    refuse("HF_HUB_OFFLINE forbids.*Did you mean 'people/tiny'", "people/tinny")
    online(monkeypatch, ConnectionError("[Errno -2] Name or service not known"))
    refuse("hub cannot be reached .*Name or service.*Did you mean", "people/tinny")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (hub.GatedRepoError, "is gated: accept its terms .*hf auth login"),
        (hub.RepositoryNotFoundError, "no model 'some/model' for you; a private one needs"),
        (hub.RevisionNotFoundError, "has no revision 'v9'"),
        (hub.HfHubHTTPError, "the hub refused 'some/model': 401 Client Error$"),
    ],
)
def test_what_the_hub_refuses_is_told_apart(kind, said, cache, monkeypatch):
    online(monkeypatch, http_error(kind))
    refuse(said, "some/model@v9")


def test_the_cache_is_where_and_as_light_as_it_should(tmp_path, monkeypatch):
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    code = "from huggingface_hub.constants import HF_HUB_CACHE; print(HF_HUB_CACHE)"
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert str(cache_folder()) == asked.stdout.strip()
    code = (
        "import sys; from attnviz.models.hugging_face.load.locate import list_cached_models\n"
        "list_cached_models();"
        "print([n for n in ('torch', 'transformers', 'numpy', 'huggingface_hub') "
        "if n in sys.modules])"
    )
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert asked.stdout.strip() == "[]"
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "nope"))
    assert list_cached_models() == []
    assert display_name("some/model", {"_name_or_path": "tiny"}) == "some/model"


def test_caches_in_part_and_unreadable(cache, monkeypatch):
    (snapshot,) = (cache / "models--people--tiny" / "snapshots").iterdir()
    (snapshot / "model.safetensors").rename(snapshot / "model.safetensors.index.json")
    (snapshot / "model.safetensors.index.json").write_text('{"weight_map": {"a": "b.safetensors"}}')
    assert list_cached_models() == []
    assert locate("people/tiny") == snapshot
    online(monkeypatch, ConnectionError("no route"))
    refuse("hub cannot be reached", "people/tiny")

    def refused(*_: object, **__: object) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_dir", refused)
    notes = list[str]()
    assert (list_cached_models(notes.append), list_cached_models()) == ([], [])
    assert notes == [f"the models in '{cache}' are not listed: Permission denied"]


def test_what_loading_reads_is_downloaded(cache, monkeypatch):
    online(monkeypatch, None)
    files = [huggingface_hub.hf_api.RepoSibling(name) for name in ("config.json", "x.onnx")]
    info = type("Info", (), {"siblings": files})()
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *_, **__: info)
    asked = {}

    def fetch(name, **options):
        asked.update(options, name=name)
        return str(cache / "fetched")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    assert locate("some/model@v2") == cache / "fetched"
    assert (asked["name"], asked["revision"]) == ("some/model", "v2")
    assert asked["allow_patterns"] == ["config.json", "model.safetensors"]
    assert find_files("some/model") == (cache / "fetched", ["config.json", "x.onnx"])
    assert asked["allow_patterns"] == ["config.json"]
    online(monkeypatch, None)
    info = type("Info", (), {"siblings": []})()
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *_, **__: info)

    def fail(*_, **__):
        raise OSError("No space left on device\nmore")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    refuse("could not be downloaded: No space left on device$", "some/model")


GENERIC = [
    ("my-bert", {}, "PATH"),
    ("my-bert/model", {}, "my-bert"),
    ("my-bert/checkpoint-500", {}, "my-bert"),
    ("my-bert/output/final", {}, "my-bert"),
    ("models--some--tiny/snapshots/" + "0a" * 20, {}, "some/tiny"),
    ("my-bert/model", {"_name_or_path": "some/tiny"}, "tiny"),
    ("my-bert/best", {"_name_or_path": "./runs/model"}, "my-bert"),
]


@pytest.mark.parametrize(("path", "config", "name"), GENERIC)
def test_a_generic_folder_gets_a_better_name(path, config, name, tmp_path):
    folder = tmp_path / path
    folder.mkdir(parents=True)
    assert display_name(str(folder), config) == (str(folder) if name == "PATH" else name)


def test_an_own_folder_is_shown_as_its_model(copy_of, tmp_path):
    folder = tmp_path / "my-bert" / "model"
    folder.parent.mkdir()
    copy_of("bert").rename(folder)
    shown = load_model(str(folder), device="cpu").provenance
    assert (shown.title, shown.settings["folder"]) == ("my-bert", str(folder))
