"""What attnviz can do with a model, found by trying a small copy of it with random weights.

The check loads no weights and runs no code that comes with the model. It captures the attention of
the copy, applies every lens to it, and switches one head off.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from math import prod
from pathlib import Path
from typing import Any

import torch

from attnviz.analyses.masks import without_implied
from attnviz.core import options, registry
from attnviz.core.attention_map import IMPLIED, Attention, Provenance, Token
from attnviz.core.effects import HeadAt, Intervention, PredictedToken
from attnviz.core.errors import AttentionError, AttnvizError, ModelError, first_line
from attnviz.core.records import dataclass, replace
from attnviz.core.writers import WrittenText
from attnviz.features.audio.recordings import load_extractor
from attnviz.features.detection.detector import queries_of
from attnviz.features.experiments import kernel, outputs, texts
from attnviz.features.lenses.ask import apply_lens, likeliest_choices
from attnviz.features.models.shrink import SmallCopy
from attnviz.features.picture_text.layouts import BY_FAMILY, image_token_of
from attnviz.features.vision import pictures, vision_model
from attnviz.features.vision.light_vision import open_light_vision
from attnviz.features.writers.links import explain_head
from attnviz.models.hugging_face.capture import implied, passes, region
from attnviz.models.hugging_face.capture.capture import EAGER_ROUTE, capture, without_cache
from attnviz.models.hugging_face.capture.kernel import eager_copy, watch_kernels
from attnviz.models.hugging_face.eager import value_vectors
from attnviz.models.hugging_face.inputs.encoding import EncodedQuery, axes_of
from attnviz.models.hugging_face.light_opening import open_light
from attnviz.models.hugging_face.load import imports, loading, locate
from attnviz.models.hugging_face.load.checkpoint import Checkpoint, check_folder, read_config
from attnviz.models.hugging_face.load.devices import BYTES, library_errors
from attnviz.models.hugging_face.load.family import check_family, reading_limit
from attnviz.models.hugging_face.loaded_model import input_names
from attnviz.models.hugging_face.text_model import load_model
from attnviz.models.light.network import UnknownArchitecture

FEW = (2_000_000, 8_000_000, 50_000_000)  # weights of the copies that are tried in turn
TOKENS = 12  # of the text that the copy reads


@dataclass(frozen=True, slots=True)
class Trial:
    """What a trial of a model showed."""

    route: str  # "probe", "eager", "implied" (no attention, but layers that mix) or "refused"
    streams: tuple[str, ...] = ()
    lenses: tuple[str, ...] = ()  # the lenses that work
    heads_off: bool = False  # whether heads can be switched off one by one
    splits: bool = False  # whether scores split into what each part of the model wrote
    reason: str = ""  # why it is refused


def try_model(request: outputs.ExperimentRequest) -> Trial:
    """Capture a model's attention, apply every lens, and switch off a head."""
    from attnviz.features.writers.recorded_text import RecordedText

    encoding, part = request.encoding, request.encoding.part
    try:
        if vision_model.window_layers(request.model):
            _trace(request)
            return Trial("probe", ("self",))
        captures = capture(part, request.inputs, encoding.sides, with_mixers=True)
    except AttnvizError as error:
        if "pixel_values" in request.inputs and _succeeds(_trace, request):
            return Trial("probe", ("self",))
        return Trial("refused", reason=str(error))
    attention = encoding.build_attention(captures)
    streams = tuple(dict.fromkeys(item.stream for item in attention.maps))
    if streams == (IMPLIED,):
        return Trial("implied", streams)
    experiment = cache(lambda: kernel.experiment_of(request))
    explain = cache(lambda: texts.explained_by(experiment()))

    read = replace(encoding, inputs=request.inputs)
    writers = cache(lambda: RecordedText(replace(read, part=eager_copy(request.model))))
    answers: dict[str, Callable[[], Any]] = {
        "values": lambda: value_vectors(replace(read, part=eager_copy(part))),
        "writers": lambda: likeliest_choices(writers()),
    }

    def ask(needs: registry.Needs) -> Any:
        return answers.get(needs, explain)()

    def look(lens: str) -> None:
        apply_lens(lens, lambda: without_implied(attention), ask, lambda answer: answer)

    def switch_off() -> None:
        first = attention.maps[0]
        change = Intervention(heads=(HeadAt(first.stream, first.layers[0], 0),))
        next(iter(experiment().run([change])))

    eager = any(item.route == EAGER_ROUTE for item in captures)
    choices = () if queries_of(request.model.config) else registry.LENSES  # objects: weights alone
    lenses = tuple(lens for lens in choices if _succeeds(look, lens))
    route = "eager" if eager else "probe"
    return Trial(
        route, streams, lenses, _succeeds(switch_off), _succeeds(lambda: _split(writers()))
    )


def _trace(request: outputs.ExperimentRequest) -> None:
    """Follow the patches of a picture through windows, and keys of a coarser grid."""
    model = request.model
    vision_model.window_maps(model, model.config.model_type, dict(request.inputs), None)


def _split(text: WrittenText) -> None:
    """Split the scores of one head of each map by writer."""
    for item in text.attention.maps:
        explain_head(text, HeadAt(item.stream, item.layers[-1], 0))


def _succeeds(run: Callable[..., None], *args: Any) -> bool:
    try:
        run(*args)
    except AttnvizError:
        return False
    return True


def check_model(name: str) -> dict[str, Any]:
    """What attnviz can do with a model, from its small files and a trial of a small copy.

    Sizes are in bytes; "layers × heads" has an entry for each stream.

    Raises:
        ModelError: the model cannot be loaded.
        AttentionError: the model has no attention weights and no layers that imply any.
    """
    folder, names = locate.find_files(name)
    weights = next((file for file in locate.WEIGHT_NAMES if file in names), "")
    # Weights that are not on this machine are known by name only: they cannot be checked.
    there = not weights or (folder / weights).is_file()
    checkpoint = check_folder(folder, allow_pickle=True) if there else None
    if own := _own_code_facts(name, folder, weights, checkpoint):
        return own
    config = loading.load_configuration(folder)
    with imports.quiet():
        kind = loading.model_class(config, with_head=True)
        with library_errors(f"'{name}' cannot be built"), torch.device("meta"):
            shape = _build_model(kind, config)
        if not implied.mixers_of(shape):
            check_family(config, 0)
        trial, copy = _try_small_copy(kind, config)
        part = _attending_part(shape)
        command = _command_for(shape)
        load: Callable[[Path, str], Any] = partial(loading.load_tokenizer, allow_code=False)
        reader: Any = None
        try:
            reader = {"image": pictures.load_processor, "audio": load_extractor}.get(command, load)(
                folder, name
            )
        except ModelError as error:
            reader_error = str(error)
    if trial.route == "refused":
        raise AttentionError(trial.reason)
    if command == "audio":  # the command shows weights, without lenses
        trial = replace(trial, lenses=(), heads_off=False, splits=False)
    numbers = sum(one.numel() for one in shape.parameters())
    limit = (
        None if command in ("image", "audio", "") or not reader else reading_limit(shape, reader)
    )
    length = limit or 1024
    cells = region.CELL * length**2
    sizes = {one: region.shape_of(part.config, one) for one in trial.streams if one != IMPLIED}
    if some := passes.attending_layers(part.config):
        sizes = {one: (len(some), heads) for one, (_, heads) in sizes.items()}
    quantisation: Any = getattr(config, "quantization_config", None)
    quantisation = quantisation if isinstance(quantisation, Mapping) else {}
    return {
        "model": name,
        "architecture": f"{type(shape).__name__} ({config.model_type})",
        "command": command,
        "route": trial.route,
        "streams": list(trial.streams),
        "layers × heads": sizes,
        "lenses": list(trial.lenses),
        "heads off": trial.heads_off,
        "why": trial.splits,
        "tried on": copy,
        "arithmetic": _arithmetic_of(name, command)
        if there
        else "unknown before its weights are there",
        "reader": reader_error if reader is None else type(reader).__name__,
        "longest text": limit,
        "weights": weights,
        "needs": "" if weights.startswith("model.safetensors") else "--allow pickle",
        "stored as": ", ".join(checkpoint.dtypes if checkpoint else ()) or str(config.dtype or ""),
        "quantised": quantisation.get("quant_method", "yes") if quantisation else "no",
        "parameters": numbers,
        "bytes in float32": numbers * BYTES["float32"],
        f"bytes of all maps of {length:,} tokens": cells * sum(map(prod, sizes.values())),
    }


def _own_code_facts(
    name: str, folder: Path, weights: str, checkpoint: Checkpoint | None
) -> dict[str, Any]:
    """What would run of a model that only code of its own knows; nothing where it is none."""
    from transformers import CONFIG_MAPPING

    entries = read_config(folder)
    classes = loading.own_classes(entries)
    models = {auto: one for auto, one in classes.items() if auto.startswith("AutoModel")}
    if not models or entries["model_type"] in CONFIG_MAPPING:
        return {}
    kind = (entries.get("architectures") or [next(iter(models.values())).rpartition(".")[2]])[0]
    numbers = checkpoint.numbers if checkpoint else 0
    pickle = "" if weights.startswith("model.safetensors") else "pickle,"
    return {
        "model": name,
        "architecture": f"{kind} ({entries['model_type']})",
        "command": "cross, self" if "AutoModelForSeq2SeqLM" in models else "self",
        "route": "its own code: as its kernels are read, else as watch reads a program",
        "runs": [f"{file} ({kinds})" for file, kinds in loading.own_files(classes).items()],
        "tried on": "nothing: code of a model runs only with --allow code",
        "weights": weights,
        "needs": f"--allow {pickle}code",
        "stored as": ", ".join(checkpoint.dtypes if checkpoint else ()),
        "parameters": numbers,
        "bytes in float32": numbers * BYTES["float32"],
    }


def _arithmetic_of(name: str, command: str) -> str:
    """Whether numpy runs a model, and if not, why."""
    origin = options.Origin(model=name, allow="pickle")
    try:
        if command == "image":
            open_light_vision(origin, name, partial(vision_model.load_vision_model, name))
        else:
            open_light(origin, name, region.ALL_TOKENS, partial(load_model, name))
    except UnknownArchitecture as reason:
        return f"torch, since {reason}"
    return "light"


def _build_model(kind: Any, config: Any) -> Any:
    return (getattr(kind, "from_config", None) or kind._from_config)(config).eval()


def _reads_pictures(model: Any) -> bool:
    """Whether 'attnviz image' reads the model without a text."""
    alone = vision_model.vision_tower(model) is not model and not hasattr(
        model.config, "image_token_id"
    )
    return model.main_input_name == "pixel_values" or alone


def _attending_part(model: Any) -> Any:
    return vision_model.vision_tower(model) if _reads_pictures(model) else model


def _command_for(model: Any) -> str:
    """The commands that read a model; "" if only Python can give its inputs."""
    config, reads = model.config, model.main_input_name
    if _reads_pictures(model):
        return "image, image --text" if config.model_type == pictures.CAPTIONER else "image"
    if reads in ("input_features", "input_values"):
        return "audio"
    if reads != "input_ids":
        return ""
    text = "cross, self" if config.is_encoder_decoder else "self"
    pictures_too = config.model_type in BY_FAMILY or image_token_of(config) is not None
    return f"image --text, {text}" if pictures_too else text


def _try_small_copy(made_by: Any, config: Any) -> tuple[Trial, str]:
    """The trial of the smallest copy that can be built and run, and the copy in words."""
    reason = ""
    for few in FEW:
        try:
            small = SmallCopy(partial(_build_model, made_by), config, _example_request)
            small.shrink(few)
            with torch.random.fork_rng():
                torch.manual_seed(0)
                model = _build_model(made_by, small.config)
            request = _example_request(model)
        except Exception as error:  # transformers raises anything for sizes that do not fit
            reason = reason or first_line(error)
            continue
        text = model.config.get_text_config()
        size, layers = (getattr(text, name, "?") for name in ("hidden_size", "num_hidden_layers"))
        return try_model(request), f"a copy of {layers} layers, hidden size {size}, random weights"
    raise ModelError(
        f"no small copy of architecture '{config.model_type}' could be tried: {reason}"
    )


def _example_request(model: Any) -> outputs.ExperimentRequest:
    """A request to a small model about an example of what it reads: text, picture or sound."""
    part, config, name = _attending_part(model), model.config, model.main_input_name
    ids = torch.arange(5, 5 + TOKENS)[None]
    if _reads_pictures(model):
        height, width = pictures.pair(getattr(part.config, "image_size", None) or 64)
        channels = getattr(part.config, "num_channels", 3)
        inputs = {"pixel_values": torch.linspace(-1, 1, channels * height * width)}
        inputs["pixel_values"] = inputs["pixel_values"].view(1, channels, height, width)
    elif name == "input_features":
        length = 2 * config.max_source_positions
        sound = torch.linspace(-1, 1, config.num_mel_bins * length)
        inputs = {name: sound.view(1, config.num_mel_bins, length)}
    elif name == "input_values":
        bins = getattr(config, "num_mel_bins", None)
        shape = (1, config.max_length, bins) if bins else (1, 3200)
        inputs = {name: torch.linspace(-1, 1, prod(shape)).view(shape)}
    else:
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    both = bool(config.is_encoder_decoder) and not _reads_pictures(model)
    if both:
        inputs["decoder_input_ids"] = ids[:, :7]
    inputs = without_cache(model, inputs)
    counts = list[int]()
    own_inputs = {name: one for name, one in inputs.items() if name in input_names(part)}
    with torch.no_grad(), watch_kernels(lambda call: counts.append(call.key.shape[2])):
        output = part(**own_inputs)
    # Counted for a text too: a copy that cannot run fails here.
    places = counts[0] if counts else int(output[0].shape[1])
    places = TOKENS if "input_ids" in inputs else places
    lengths = {"target": 7, "source": places, "text": places}
    axes = axes_of(config) if both else {"self": ("text", "text")}
    tokens = {side: tuple(Token(str(n)) for n in range(count)) for side, count in lengths.items()}
    empty = Attention((), Provenance("a small copy", config.model_type))
    encoding = EncodedQuery(part, inputs, tokens, axes, empty)
    return outputs.ExperimentRequest(model, inputs, encoding, _first_output, str)


def _first_output(logits: Any) -> tuple[PredictedToken, ...]:
    if logits is None:
        raise ModelError("there is no head that predicts anything")
    return (PredictedToken(logits.shape[1] - 1 if logits.ndim == 3 else 0, 1, "one"),)
