"""Find the folder of a model: a path, else the local cache, else (unless offline) the hub.

In Hugging Face's cache `models--ORGANISATION--NAME/refs/REVISION` names a commit, and
`snapshots/COMMIT` holds its files. We read it ourselves because the hub's library takes long to
import, and because transformers asks the hub first and retries for 46 seconds without a network.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnviz.core.errors import ModelError, did_you_mean, first_line
from attnviz.core.records import dataclass

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo

WEIGHT_NAMES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
"""Files of weights, best first; an index names the files of a model that has several."""
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
PATIENCE = 10.0  # seconds to wait for the hub
GENERIC = re.compile(
    r"(pytorch_)?models?|best([_-]model)?|final([_-]model)?|outputs?|results?|snapshots?|"
    r"(last|checkpoints?)([_-].*)?|[0-9a-f]{40}",
    re.IGNORECASE,
)
"""Names of folders that say nothing about their model."""


@dataclass(frozen=True, slots=True)
class CachedModel:
    """A model in the local cache."""

    name: str  # its id on the hub
    model_type: str  # "" if its configuration names none
    revision: str  # a commit
    folder: Path
    bytes: int  # of all its files

    def __str__(self) -> str:
        return self.name


def locate(name: str, *, allow_code: bool = False) -> Path:
    """The folder with a model's files, downloaded if it is not on this machine.

    Behind an id and @ stands a revision: a branch, a tag or a commit.
    """
    path = Path(name)
    try:
        path = path.expanduser()
        is_folder = bool(name) and path.is_dir()
    except (OSError, RuntimeError) as error:  # a name too long, a user who is not there
        raise ModelError(f"there can be no folder '{name[:80]}': {first_line(error)}") from error
    if is_folder:
        return path
    if path.is_file():
        raise ModelError(f"'{name}' is a file: give the folder it lies in, or a model id")
    name, at, revision = name.partition("@")
    if not HUB_ID.fullmatch(name) or (at and not revision):
        raise ModelError(f"there is no folder '{name}', and no model id is written like that")
    folder = _cached_snapshot(name, revision or None)
    if folder and (_is_complete(folder) or _is_offline()):
        return folder  # offline it may be incomplete: check_folder says what is missing
    if _is_offline():
        raise ModelError(
            f"'{name}' is neither a folder nor in the local cache '{cache_folder()}', and "
            f"HF_HUB_OFFLINE forbids to ask the hub.{_guess(name)}"
        )
    return _download(name, revision or None, allow_code=allow_code)[0]


def find_files(name: str) -> tuple[Path, list[str]]:
    """A folder with a model's small files, and the names of all its files; downloads no weights."""
    if HUB_ID.fullmatch(name) and not Path(name).is_dir() and not _is_offline():
        snapshot = _cached_snapshot(name)
        if not (snapshot and _is_complete(snapshot)):
            return _download(name, None, weights=False)
    folder = locate(name)
    return folder, sorted(path.name for path in folder.iterdir())


def display_name(name: str, config: Mapping[str, Any]) -> str:
    """A model's name as given, or a better one for a folder such as "./my-bert/checkpoint-500".

    Then it is the name in the configuration, else the nearest parent folder with a telling name.
    """
    path = Path(name).expanduser()
    if not path.is_dir():
        return name
    path = path.resolve()
    if not GENERIC.fullmatch(path.name):
        return name
    own = Path(str(config.get("_name_or_path") or "")).name
    candidates = [own, *(parent.name for parent in path.parents)]
    plain = (item.removeprefix("models--").replace("--", "/") for item in candidates if item)
    return next((item for item in plain if not GENERIC.fullmatch(item)), name)


def cache_folder() -> Path:
    """The hub cache, by the variables that Hugging Face's libraries use."""
    caches = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    home = os.environ.get("HF_HOME", f"{caches}/huggingface")
    cache = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    return Path(os.path.expandvars(cache or f"{home}/hub")).expanduser()


def _is_offline() -> bool:
    switch = os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or ""
    return switch.upper() in {"1", "ON", "YES", "TRUE"}


def _cached_snapshot(name: str, revision: str | None = None) -> Path | None:
    """The cached folder of a hub id at a branch, tag or commit, or None."""
    repository = cache_folder() / f"models--{name.replace('/', '--')}"
    reference = repository / "refs" / (revision or "main")
    try:
        commit = reference.read_text().strip() if reference.is_file() else revision
        # A file with anything but a commit could point outside of the cache.
        folder = repository / "snapshots" / commit if commit and HUB_ID.fullmatch(commit) else None
        return folder if folder and folder.is_dir() else None
    except (OSError, ValueError):
        return None


def _is_complete(folder: Path) -> bool:
    weights = next((folder / name for name in WEIGHT_NAMES if (folder / name).is_file()), None)
    if weights is None or not (folder / "config.json").is_file():
        return False
    if not weights.name.endswith(".index.json"):
        return True
    weight_map = _read_object(weights).get("weight_map", {})
    names = weight_map.values() if isinstance(weight_map, dict) else []
    return all(isinstance(name, str) and (folder / name).is_file() for name in names)


def _read_object(path: Path) -> dict[str, Any]:
    """A JSON file's entries, none if it is broken: loading the model reports that."""
    import json

    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError):
        return {}
    return entries if isinstance(entries, dict) else {}


def reads_pictures_alone(folder: Path) -> bool:
    """Whether a model's folder can prepare pictures and cannot split texts."""
    names = {path.name for path in folder.iterdir()}
    texts = any(
        name.startswith(("tokenizer", "vocab")) or name.endswith(".model") for name in names
    )
    return "preprocessor_config.json" in names and not texts


def list_cached_models(note: Callable[[str], None] | None = None) -> list[CachedModel]:
    """Every model that is whole in the local cache; `note` is told why that cannot be read."""
    cache = cache_folder()
    try:
        repositories = sorted(cache.glob("models--*")) if cache.is_dir() else []
    except OSError as error:
        if note is not None:
            note(f"the models in '{cache}' are not listed: {error.strerror}")
        return []
    names = [path.name.removeprefix("models--").replace("--", "/") for path in repositories]
    snapshots = ((name, _cached_snapshot(name)) for name in names)
    return [_describe(name, path) for name, path in snapshots if path and _is_complete(path)]


def _describe(name: str, folder: Path) -> CachedModel:
    model_type = str(_read_object(folder / "config.json").get("model_type", ""))
    # A file may be a link to a blob that was removed.
    files = [path for path in folder.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    return CachedModel(name, model_type, folder.name, folder, size)


def _guess(name: str) -> str:
    return did_you_mean(name, [model.name for model in list_cached_models()])


def _download(
    name: str, revision: str | None, *, allow_code: bool = False, weights: bool = True
) -> tuple[Path, list[str]]:
    """The downloaded folder, and the names of all files that the hub has."""
    from logging import ERROR

    from huggingface_hub import snapshot_download
    from huggingface_hub.utils import logging
    from huggingface_hub.utils.tqdm import disable_progress_bars, enable_progress_bars

    # The hub warns of missing tokens and slow transfers, which do not concern this run.
    level = logging.get_verbosity()
    logging.set_verbosity(ERROR)
    if not sys.stderr.isatty():
        disable_progress_bars()
    try:
        info = _ask_hub(name, revision)
        names = [item.rfilename for item in info.siblings or []]
        files = wanted_files(names, allow_code=allow_code, weights=weights)
        return Path(snapshot_download(name, revision=revision, allow_patterns=files)), names
    except OSError as error:
        raise ModelError(f"'{name}' could not be downloaded: {first_line(error)}") from error
    finally:
        logging.set_verbosity(level)
        enable_progress_bars()


def _ask_hub(name: str, revision: str | None) -> ModelInfo:
    from huggingface_hub import HfApi
    from huggingface_hub import errors as hub

    log_in = "'hf auth login' or the variable HF_TOKEN"
    refusals = {
        hub.GatedRepoError: f"'{name}' is gated: accept its terms at "
        f"https://huggingface.co/{name}, then log in with {log_in}",
        hub.RevisionNotFoundError: f"'{name}' has no revision '{revision}'",
        hub.RepositoryNotFoundError: f"the hub has no model '{name}' for you; a private one needs "
        f"{log_in}.{_guess(name)}",
    }
    try:
        return HfApi().model_info(name, revision=revision, timeout=PATIENCE)
    # The HTTP client's error classes differ between versions of the hub's library.
    except Exception as error:
        reason = first_line(error)
        other = (
            f"the hub refused '{name}': {reason}"
            if isinstance(error, hub.HfHubHTTPError)
            else f"'{name}' is neither a folder nor in the local cache '{cache_folder()}', and the "
            f"hub cannot be reached ({reason}).{_guess(name)}"
        )
        texts = (text for kind, text in refusals.items() if isinstance(error, kind))
        raise ModelError(next(texts, other)) from error


def loaded_files(folder: Path, *, allow_code: bool = False) -> list[Path]:
    """The files in a folder that loading a model or an adapter reads."""
    with suppress(OSError):
        names = sorted(path.name for path in folder.iterdir() if path.name[0] != ".")
        adapter = [name for name in names if name.startswith("adapter_model.")]
        return [folder / name for name in wanted_files(names, allow_code=allow_code) + adapter]
    return []


def wanted_files(names: list[str], *, allow_code: bool, weights: bool = True) -> list[str]:
    """The files of a hub model that loading reads: the best weights and all small files."""
    top = [name for name in names if "/" not in name]
    suffixes = (".json", ".txt", ".model", ".spm", ".jinja", ".tiktoken", ".codes")
    small = [name for name in top if name.endswith(suffixes) and not name.endswith(".index.json")]
    code = [name for name in top if name.endswith(".py") and allow_code]
    if not weights:
        return small + code
    best = next((name for name in WEIGHT_NAMES if name in top), "model.safetensors")
    kind = "." + best.removesuffix(".index.json").rpartition(".")[2]
    large = [best]
    if best.endswith(".index.json"):
        stem = best.split(".")[0]
        large += [name for name in top if name.startswith(stem) and name.endswith(kind)]
    return small + code + large
