"""A model's name becomes a folder: a path, then the local cache, then, where allowed, the hub.

transformers asks the hub first and, without a network, gives up after 46 seconds of retries.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from attnviz.core.errors import ModelError, UsageError, did_you_mean
from attnviz.models.hugging_face.load.cache import (
    WEIGHT_NAMES,
    cache_folder,
    cached_snapshot,
    is_complete,
    is_offline,
    list_cached_models,
)
from attnviz.models.hugging_face.load.errors import first_line

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
PATIENCE = 10.0
"""Seconds to wait for the hub's answer."""


def locate(name: str, revision: str | None = None, *, allow_code: bool = False) -> Path:
    """The folder that holds a model's files, downloaded where they have to be.

    Args:
        name: a folder, or an id on the hub.
        revision: a branch, a tag or a commit; of a hub model only.
        allow_code: whether to fetch the model's own Python files too.

    Raises:
        ModelError: there is no such folder, or no such model within reach.
        UsageError: a revision was asked of a folder.
    """
    path = Path(name).expanduser()
    if name and path.is_dir():
        if revision is not None:
            raise UsageError(f"'{name}' is a folder, which has no revision '{revision}'")
        return path
    if path.is_file():
        raise ModelError(f"'{name}' is a file: give the folder it lies in, or a model id")
    if not HUB_ID.fullmatch(name):
        raise ModelError(f"there is no folder '{name}', and no model id is written like that")
    folder = cached_snapshot(name, revision)
    if folder and is_complete(folder):
        return folder
    if folder and is_offline():
        return folder  # in part; what checks it can say what is missing
    if is_offline():
        raise ModelError(
            f"'{name}' is neither a folder nor in the local cache '{cache_folder()}', and "
            f"HF_HUB_OFFLINE forbids to ask the hub.{guess(name)}"
        )
    return download(name, revision, allow_code=allow_code)


def guess(name: str) -> str:
    """A cached model with a name like this one, as a sentence."""
    return did_you_mean(name, [model.name for model in list_cached_models()])


def download(name: str, revision: str | None, *, allow_code: bool) -> Path:
    """Fetch what is needed to load a model into the local cache, and return the folder.

    Raises:
        ModelError: the hub cannot be reached, or does not give out this model.
    """
    import sys
    from logging import ERROR

    from huggingface_hub import snapshot_download
    from huggingface_hub.utils import logging
    from huggingface_hub.utils.tqdm import disable_progress_bars, enable_progress_bars

    # The hub's warnings (no token, slow transfer) are not the user's business here.
    level = logging.get_verbosity()
    logging.set_verbosity(ERROR)
    if not sys.stderr.isatty():
        disable_progress_bars()
    try:
        info = ask_hub(name, revision)
        files = wanted_files([item.rfilename for item in info.siblings or []], allow_code)
        return Path(snapshot_download(name, revision=revision, allow_patterns=files))
    except OSError as error:
        raise ModelError(f"'{name}' could not be downloaded: {first_line(error)}") from error
    finally:
        logging.set_verbosity(level)
        enable_progress_bars()


def ask_hub(name: str, revision: str | None) -> ModelInfo:
    """What the hub knows of a model, asked once.

    Raises:
        ModelError: it does not know it, keeps it locked, or does not answer.
    """
    from huggingface_hub import HfApi
    from huggingface_hub import errors as hub

    log_in = "'hf auth login' or the variable HF_TOKEN"
    try:
        return HfApi().model_info(name, revision=revision, timeout=PATIENCE)
    except hub.GatedRepoError as error:
        raise ModelError(
            f"'{name}' is gated: accept its terms at https://huggingface.co/{name}, then log in "
            f"with {log_in}"
        ) from error
    except hub.RevisionNotFoundError as error:
        raise ModelError(f"'{name}' has no revision '{revision}'") from error
    except hub.RepositoryNotFoundError as error:
        raise ModelError(
            f"the hub has no model '{name}' for you; a private one needs {log_in}.{guess(name)}"
        ) from error
    except hub.HfHubHTTPError as error:
        raise ModelError(f"the hub refused '{name}': {first_line(error)}") from error
    # The HTTP client's own errors have changed their names between versions of the hub's library.
    except Exception as error:
        raise ModelError(
            f"'{name}' is neither a folder nor in the local cache '{cache_folder()}', and the hub "
            f"cannot be reached ({first_line(error)}).{guess(name)}"
        ) from error


def wanted_files(names: list[str], allow_code: bool) -> list[str]:
    """Of a hub model's files those that loading reads: the best weights and all small ones."""
    top = [name for name in names if "/" not in name]
    suffixes = (".json", ".txt", ".model", ".spm", ".jinja", ".tiktoken", ".codes")
    small = [name for name in top if name.endswith(suffixes) and not name.endswith(".index.json")]
    code = [name for name in top if name.endswith(".py") and allow_code]
    best = next((name for name in WEIGHT_NAMES if name in top), "model.safetensors")
    kind = "." + best.removesuffix(".index.json").rpartition(".")[2]
    weights = [best]
    if best.endswith(".index.json"):
        stem = best.split(".")[0]
        weights += [name for name in top if name.startswith(stem) and name.endswith(kind)]
    return small + code + weights
