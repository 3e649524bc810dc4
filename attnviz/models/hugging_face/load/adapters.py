"""Adapters (LoRA and similar), merged by peft into the model that they were trained for."""

from pathlib import Path
from typing import Any

from attnviz.core.errors import ModelError
from attnviz.core.records import dataclass
from attnviz.models.hugging_face.load.checkpoint import read_header, read_json
from attnviz.models.hugging_face.load.devices import library_errors
from attnviz.models.hugging_face.load.locate import locate

CONFIG, WEIGHTS, PICKLED = "adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"
PREFIX = "base_model.model."  # what peft puts before the names of a model's own weights


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter whose files are complete."""

    name: str  # as the user asked for it
    folder: Path
    base: str  # the model that its configuration names; may be ""


def find_adapter(name: str, *, allow_pickle: bool = False) -> Adapter:
    """The adapter in a folder or of a hub id; reads only its small files.

    Raises:
        ModelError: there is no adapter, it is incomplete, or its weights are a pickle.
    """
    folder = locate(name)
    if not (folder / CONFIG).is_file():
        raise ModelError(f"'{name}' is no adapter: it has no {CONFIG}")
    config = read_json(folder / CONFIG)
    if (folder / WEIGHTS).is_file():
        read_header(folder / WEIGHTS)
    elif not (folder / PICKLED).is_file():
        raise ModelError(f"'{name}' holds an adapter's configuration but no {WEIGHTS}")
    elif not allow_pickle:
        raise ModelError(
            f"'{name}' holds its weights as a pickle ('{PICKLED}'), which can hide code: give "
            "--allow pickle if you trust it, or use an adapter with safetensors"
        )
    base = config.get("base_model_name_or_path") if isinstance(config, dict) else None
    return Adapter(name, folder, base if isinstance(base, str) else "")


def base_of(adapter: str) -> str:
    """The model that an adapter names; a ModelError if it names none."""
    if base := find_adapter(adapter, allow_pickle=True).base:
        return base
    raise ModelError(f"'{adapter}' does not say which model it is for: give --model ID_OR_FOLDER")


def merge_adapter(model: Any, adapter: Adapter) -> tuple[Any, list[str]]:
    """The model with the adapter merged into its weights, and notes on what was left out.

    Raises:
        ModelError: the adapter is for another model, or cannot be merged.
    """
    try:
        import peft
    except ImportError as error:
        raise ModelError(
            "--adapter needs the package peft: pip install 'attnviz[adapters]'"
        ) from error
    with library_errors(f"the adapter '{adapter.name}' cannot be loaded"):
        config = peft.PeftConfig.from_pretrained(str(adapter.folder))
        weights = peft.load_peft_weights(str(adapter.folder), device="cpu")
    if config.is_prompt_learning:
        raise ModelError(
            f"'{adapter.name}' learns a prompt ({config.peft_type.value}), whose tokens no text "
            "has: adapters that change weights (LoRA and its like) are read"
        )
    modules = {name for name, _ in model.named_modules() if "." in name}
    weights = {name.removeprefix(PREFIX): one for name, one in weights.items()}
    body = f"{model.base_model_prefix}."
    ways = (
        weights,
        {name.removeprefix(body): one for name, one in weights.items()},
        {body + name: one for name, one in weights.items()},
    )
    own_weights = max(
        ways, key=lambda way: sum(_module_of(name, modules) is not None for name in way)
    )
    owners = {name: _module_of(name, modules) for name in own_weights}
    if isinstance(config.target_modules, str):  # a pattern, which may expect the names with a head
        config.target_modules = sorted(set(filter(None, owners.values())))
    # The adapter may hold a trained classifier, which a model loaded for attention does not have.
    heads = sorted({name.split(".")[0] for name, module in owners.items() if module is None})
    config.modules_to_save, config.inference_mode = None, True
    fitting = {PREFIX + name: own_weights[name] for name, module in owners.items() if module}
    with library_errors(f"the adapter '{adapter.name}' does not fit the model"):
        whole = peft.PeftModel(model, config)
        own = peft.get_peft_model_state_dict(whole, save_embedding_layers=False)
    if odd := sorted(fitting.keys() ^ own.keys()):
        raise ModelError(
            f"the adapter '{adapter.name}' does not fit the model: {len(odd)} weights are only on "
            f"one side ({odd[0].removeprefix(PREFIX)})"
        )
    with library_errors(f"the adapter '{adapter.name}' does not fit the model"):
        peft.set_peft_model_state_dict(whole, fitting)
        whole = whole.merge_and_unload(safe_merge=True)
    left_out = f"the adapter also trained {', '.join(heads)}, which is left out"
    return whole.eval(), [left_out] if heads else []


def _module_of(weight: str, modules: set[str]) -> str | None:
    parts = weight.split(".")
    names = (".".join(parts[:length]) for length in range(len(parts) - 1, 1, -1))
    return next((name for name in names if name in modules), None)
