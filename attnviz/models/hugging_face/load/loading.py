"""Load a model with its tokenizer or image processor; errors are one line.

Loading refuses where transformers would invent something (an empty tokenizer, random layers) or
ask on the terminal whether to run code.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

from attnviz.core.attention_map import Provenance
from attnviz.core.errors import ModelError, UsageError, did_you_mean, in_short, in_words
from attnviz.core.options import InMemoryModel, InMemoryReader
from attnviz.core.records import dataclass, replace
from attnviz.models.hugging_face.load import adapters, devices
from attnviz.models.hugging_face.load.checkpoint import (
    Checkpoint,
    check_folder,
    check_growth,
    check_sane,
    read_config,
    read_config_file,
)
from attnviz.models.hugging_face.load.family import HEAD, Task, count_left_over, task_of
from attnviz.models.hugging_face.load.imports import quick_imports, quiet, quiet_native
from attnviz.models.hugging_face.load.locate import display_name, locate

# Weights that a checkpoint may lack, because no attention depends on them.
HEADS = re.compile(r"(^|\.)(pooler|lm_head|final_logits_bias)(\.|$)")


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How to load a model."""

    device: str = "auto"  # "auto" (the fastest available), "cpu", "cuda" or "mps"
    dtype: str | None = None  # None: float32 on a CPU, elsewhere as it is stored
    allow_pickle: bool = False  # whether weights may come from a pickle, which can hide code
    allow_code: bool = False  # whether the model's own Python code may run
    device_map: str | None = None  # how accelerate spreads a model over devices
    tokenizer: str | InMemoryReader | None = None  # or processor; None: of the model's folder
    adapter: str | None = None  # folder or hub id of an adapter to merge into the weights


@dataclass(frozen=True, slots=True, eq=False)
class LoadedParts:
    """A model of transformers and its tokenizer or processor."""

    model: Any  # on its device, in evaluation mode
    reader: Any  # tokenizer, image processor, or both in one
    provenance: Provenance
    report: Mapping[str, Any]  # missing and unexpected weights
    task: Task | None  # of a trained head


def load_parts(
    name: str | InMemoryModel,
    options: LoadOptions,
    load_reader: Callable[[Path, str], Any],
    class_of: Callable[[Any], Any],
) -> LoadedParts:
    """A model and its reader, from their folder or as given from Python.

    `load_reader` makes a tokenizer or an image processor from a folder and a name; `class_of`
    chooses the class that loads a configuration's model.
    """
    if isinstance(name, InMemoryModel):
        return parts_in_memory(name.model, name.reader)
    if options.device_map is not None:
        devices.check_spread()
    adapter = None
    if options.adapter is not None:
        adapter = adapters.find_adapter(options.adapter, allow_pickle=options.allow_pickle)
    folder = locate(name, allow_code=options.allow_code)
    checkpoint = check_folder(folder, allow_pickle=options.allow_pickle)
    with quick_imports():
        device = devices.choose_device(options.device)
        import torch
    precision = devices.choose_dtype(options.dtype, device.type, checkpoint.dtypes)
    if options.device_map is None:
        devices.check_fit(
            checkpoint.numbers * devices.BYTES[precision],
            device,
            f"'{name}' in {precision}",
            "use a smaller model, --dtype bfloat16, or --device spread",
        )
    with quiet():
        with quick_imports():
            config, notes = _load_config(checkpoint, name, allow_code=options.allow_code)
            place = options.tokenizer
            if isinstance(place, InMemoryReader):
                reader = place.reader
            else:
                reader = load_reader(locate(place) if place else folder, place or name)
            kind = class_of(config)
        stored_as = describe_quantisation(config)
        # Quantised weights cannot be shared with an eager copy, so this model runs eagerly.
        more: dict[str, Any] = {"attn_implementation": "eager"} if stored_as else {}
        if options.device_map:
            more["device_map"] = options.device_map
        with (
            devices.loading_errors(name),
            redirect_stderr(StringIO()) if stored_as else nullcontext(),
        ):
            model, report = _load_weights(
                kind,
                config,
                folder,
                dtype=getattr(torch, precision),
                use_safetensors=not checkpoint.is_pickle,
                trust_remote_code=options.allow_code,
                **more,
            )
        _check_report(report, name)
        with devices.loading_errors(name):
            # accelerate has placed each layer; `to` would undo that.
            model = (model if options.device_map else model.to(device)).eval()
    settings = {
        "folder": None if (shown_name := display_name(name, checkpoint.config)) == name else name,
        "revision": folder.name if folder.parent.name == "snapshots" else None,
        "tokenizer": None if options.tokenizer is None else str(options.tokenizer),
        "stored_as": stored_as or ", ".join(checkpoint.dtypes) or None,
    }
    if stored_as:
        notes.append(f"its weights are quantised ({stored_as}): attention is that of the result")
    if adapter is not None:
        with quiet():
            model, more_notes = adapters.merge_adapter(model, adapter)
        notes += more_notes
        settings["adapter"] = display_name(adapter.name, {})
    if left_over := count_left_over(report, model):
        notes.append(
            f"the checkpoint holds {left_over} weights of layers that its configuration leaves out"
        )
    plain_provenance = _describe(shown_name, model, settings, notes, is_trained=True)
    task, provenance = _trained_task(model, report, plain_provenance)
    return LoadedParts(model, reader, provenance, report, task)


def describe_quantisation(config: Any) -> str:
    """How a checkpoint's weights are quantised ("bitsandbytes, 4 bit"), or "".

    Weights of compressed-tensors are unpacked at loading: the products are the same.
    """
    how = getattr(config, "quantization_config", None)
    if not isinstance(how, dict):
        return ""
    method = str(how.get("quant_method"))
    if method == "compressed-tensors":
        config.quantization_config = {**how, "run_compressed": False}
    finds = r"'load_in_(\d)bit': True|'(?:num_)?bits': (\d+)|'_type': '(\w+Config)'"
    if not (match := re.search(finds, str(how))):
        return method
    return f"{method}, {match[3] or f'{match[1] or match[2]} bit'}"


# Attributes of wrappers (peft, data parallel, compiled) that hold the model; whether to call them.
WRAPPERS = {"get_base_model": True, "module": False, "_orig_mod": False}


def parts_in_memory(model: Any, reader: Any) -> LoadedParts:
    """A model from Python without its wrappers, and its tokenizer; else a UsageError."""
    from transformers import PreTrainedModel

    wrappers: dict[str, bool] = {}
    while not isinstance(model, PreTrainedModel):
        name = next((name for name in WRAPPERS if hasattr(model, name)), None)
        if name is None or name in wrappers:  # a mock has every attribute, at every depth
            raise UsageError(
                f"a {type(model).__name__} is no model of transformers: attnviz.watch sees any "
                "PyTorch module"
            )
        wrappers[name] = True
        model = getattr(model, name)() if WRAPPERS[name] else getattr(model, name)
    if not callable(reader) or isinstance(reader, PreTrainedModel):
        what = "" if reader is None else f", and {in_short(reader)} reads nothing"
        raise UsageError(f"a model from Python needs its tokenizer or processor: tokenizer=…{what}")
    shown_name = model.name_or_path or type(model).__name__
    provenance = _describe(
        shown_name, model, {"wrapped": ", ".join(wrappers) or None}, [], is_trained=None
    )
    task = task_of(model.config, type(model).__name__)
    return LoadedParts(model, reader, provenance, {"missing_keys": []}, task)


def _load_config(checkpoint: Checkpoint, name: str, *, allow_code: bool) -> tuple[Any, list[str]]:
    """The configuration, and notes on what of it cannot be heeded."""
    from transformers import AutoConfig

    if not allow_code:
        _check_known(checkpoint.config, name)
    with devices.loading_errors(name):
        config = AutoConfig.from_pretrained(
            checkpoint.folder,
            local_files_only=True,
            trust_remote_code=allow_code,
            output_attentions=False,  # which some kernels do not allow
        )
    kernel = str(config._attn_implementation or "")
    notes = list[str]()
    if "flash" in kernel and not _has_flash(kernel):
        config._attn_implementation = None
        notes.append(
            f"its configuration asks for {kernel}, which is not installed: another kernel computes "
            "the same weights"
        )
    return config, notes


def _has_flash(kernel: str) -> bool:
    """Whether a flash kernel can run here."""
    import torch
    import transformers.utils

    number = re.sub(r"\D", "", kernel) or "2"
    is_there = getattr(transformers.utils, f"is_flash_attn_{number}_available", bool)()
    return bool(is_there) and torch.cuda.is_available()


def load_configuration(path: Path) -> Any:
    """The configuration in a folder or a file, without weights or code of the model."""
    entries = read_config(path) if path.is_dir() else read_config_file(path)
    check_sane(path, entries)
    with quiet():
        from transformers import AutoConfig

        _check_known(entries, str(path))
        with devices.loading_errors(str(path)):
            return AutoConfig.from_pretrained(
                path, local_files_only=True, trust_remote_code=False, output_attentions=False
            )


def _check_known(config: Mapping[str, Any], name: str) -> None:
    import transformers
    from transformers import CONFIG_MAPPING

    kind = config["model_type"]
    if kind in CONFIG_MAPPING:
        return
    if "auto_map" in config:
        files = list(own_files(own_classes(config)))
        runs = f", in {in_words(files, 'and')}" if files else ""
        raise ModelError(
            f"'{name}' needs Python code that comes with it (architecture '{kind}'{runs}): give "
            "--allow code if you trust it"
        )
    raise ModelError(
        f"transformers {transformers.__version__} does not know the architecture '{kind}' of "
        f"'{name}'.{did_you_mean(kind, CONFIG_MAPPING)}"
    )


def own_classes(config: Mapping[str, Any]) -> dict[str, str]:
    """The classes of a model's own code ("file.Class"), by the auto class that loads each."""
    classes = config.get("auto_map")
    classes = classes if isinstance(classes, Mapping) else {}
    return {str(auto): one for auto, one in classes.items() if isinstance(one, str) and "." in one}


def own_files(classes: Mapping[str, str]) -> dict[str, str]:
    """The files that hold such classes, and what is loaded of each; of other repositories too."""
    files = dict[str, str]()
    for one in classes.values():
        repository, _, place = one.rpartition("--")
        module, _, kind = place.rpartition(".")
        file = f"{module.replace('.', '/')}.py{repository and f' of {repository}'}"
        if kind not in files.get(file, "").split(", "):
            files[file] = ", ".join(filter(None, (files.get(file), kind)))
    return files


def load_tokenizer(folder: Path, name: str, *, allow_code: bool) -> Any:
    from transformers import AutoTokenizer

    check_growth(folder)
    missing = ModelError(
        f"'{name}' has no tokenizer: its folder holds none of the files that one is made from "
        "(tokenizer.json, vocab.txt, tokenizer.model, …)"
    )
    try:
        with devices.library_errors(f"the tokenizer of '{name}' cannot be loaded"), quiet_native():
            tokenizer = AutoTokenizer.from_pretrained(
                folder,
                local_files_only=True,
                trust_remote_code=allow_code,
                output_attentions=False,  # of the configuration, which it reads as well
            )
    except ModelError as error:
        if not any(folder.glob("*token*")) and not any(folder.glob("*vocab*")):
            raise missing from error
        raise
    # A class whose files are missing comes out empty. The file tokenizer.json replaces all others;
    # a tokenizer of plain bytes names none.
    files = type(tokenizer).vocab_files_names
    optional = {"tokenizer_config_file", "added_tokens_file", "target_vocab_file"}
    own_files = [file for kind, file in files.items() if kind not in optional | {"tokenizer_file"}]
    own_files = own_files or list(files.values())
    if not (folder / "tokenizer.json").is_file() and not all(
        (folder / file).is_file() for file in own_files
    ):
        raise missing
    return tokenizer


def model_class(config: Any, *, with_head: bool = False) -> Any:
    """The class that loads a model; this imports its architecture's code.

    A classifier keeps its head. Any other encoder–decoder keeps its language-model head, which
    writes a missing target.
    """
    import transformers
    from transformers import (
        MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
        MODEL_MAPPING,
        AutoModel,
        AutoModelForSeq2SeqLM,
    )

    task = task_of(config)
    writes = config.is_encoder_decoder and type(config) in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING
    if writes and task is None:
        MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING.get(type(config), None)
        return AutoModelForSeq2SeqLM
    MODEL_MAPPING.get(type(config), None)
    own = _own_class(config)
    needs_own = with_head or type(config) not in MODEL_MAPPING
    if needs_own and own is not None:
        return own
    return AutoModel if task is None else getattr(transformers, task.loader)


def _own_class(config: Any) -> Any:
    """The class of transformers that a configuration names, if it is of its type; else None."""
    import transformers

    own = getattr(transformers, (config.architectures or [""])[0], None)
    writer = transformers.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING.get(type(config), None)
    is_own = getattr(own, "config_class", None) is type(config) or (own and own is writer)
    return own if is_own else None


def _load_weights(
    kind: Any, config: Any, folder: Path, **more: Any
) -> tuple[Any, Mapping[str, Any]]:
    """A model of a class, and which weights were missing.

    Some checkpoints' weights get their names of today only where the class that the configuration
    names loads them: its inner model is taken then.
    """
    from transformers import PreTrainedModel

    facts = {"local_files_only": True, "output_loading_info": True, **more}
    own = _own_class(config)
    if hasattr(own, "load_speakers"):  # its loader reads voices too, and cannot give a report
        load = inspect.getattr_static(PreTrainedModel, "from_pretrained").__func__
        pair: tuple[Any, Mapping[str, Any]] = load(own, folder, config=config, **facts)
        return pair
    model, report = kind.from_pretrained(folder, config=config, **facts)
    if _lacking(report) and own is not None and type(model) is not own:
        whole, whole_report = own.from_pretrained(folder, config=config, **facts)
        if not _lacking(whole_report):
            return whole.base_model, whole_report
    return model, report


def _lacking(report: Mapping[str, Any]) -> list[str]:
    """The weights that a checkpoint lacks and attention depends on."""
    return sorted(
        key for key in report["missing_keys"] if not HEADS.search(key) and not HEAD.match(key)
    )


def _check_report(report: Mapping[str, Any], name: str) -> None:
    missing = _lacking(report)
    if missing:
        raise ModelError(
            f"'{name}' lacks {len(missing)} weights that its configuration asks for "
            f"({', '.join(missing[:2])}{', …' if len(missing) > 2 else ''}): they would be random"
        )


def _trained_task(
    model: Any, report: Mapping[str, Any], provenance: Provenance
) -> tuple[Task | None, Provenance]:
    task = task_of(model.config)
    if task is None or not any(HEAD.match(key) for key in report["missing_keys"]):
        return task, provenance
    lacking = "the checkpoint lacks the weights of its classifier: what it decides is not shown"
    return None, replace(provenance, notes=(*provenance.notes, lacking))


def _describe(
    name: str,
    model: Any,
    more: Mapping[str, str | None],
    notes: Sequence[str],
    *,
    is_trained: bool | None,
) -> Provenance:
    import torch
    import transformers

    dtype = devices.computed_dtype(model)
    spread = getattr(model, "hf_device_map", None)
    settings = {
        **more,
        "architecture": type(model).__name__,
        "model_type": model.config.model_type,
        "attention": model.config._attn_implementation,
        "devices": ", ".join(sorted({str(place) for place in spread.values()})) if spread else None,
    }
    half = (
        f"computed in {dtype}: rows sum to 1 roughly, and weights may be off by a few hundredths "
        "where scores are large; --dtype float32 is more exact"
    )
    notes = [*([half] if dtype in {"float16", "bfloat16"} else []), *notes]
    return Provenance(
        source="hugging face",
        model=name,
        trained=is_trained,
        device=model.device.type,
        dtype=dtype,
        settings={key: value for key, value in settings.items() if value is not None},
        notes=tuple(notes),
        versions={"torch": str(torch.__version__), "transformers": transformers.__version__},
    )
