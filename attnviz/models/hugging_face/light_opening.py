"""Open a checkpoint that numpy runs: its files, its limits and its provenance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from attnviz.core.attention_map import Provenance
from attnviz.core.options import Origin
from attnviz.core.records import dataclass, replace
from attnviz.models import WithHead
from attnviz.models.hugging_face import light_model
from attnviz.models.hugging_face.capture.region import Region
from attnviz.models.hugging_face.inputs.generation import WritingRules, writing_rules
from attnviz.models.hugging_face.inputs.light_tokenizer import load_light_tokenizer
from attnviz.models.hugging_face.load.checkpoint import Checkpoint, check_folder
from attnviz.models.hugging_face.load.family import UNLIMITED, Family, task_named
from attnviz.models.hugging_face.load.locate import display_name, locate
from attnviz.models.hugging_face.text_model import HuggingFaceModel
from attnviz.models.light.architecture import Architecture
from attnviz.models.light.architectures import ARCHITECTURES
from attnviz.models.light.head import CLASSES, Head, head_of
from attnviz.models.light.network import Shape, UnknownArchitecture
from attnviz.models.light.weights import CheckpointWeights

MOST_NUMBERS = 400_000_000
"""Weights of the largest model that numpy runs."""


@dataclass(frozen=True, slots=True)
class LightCheckpoint:
    """A checkpoint whose weights the numpy network runs."""

    folder: Path
    checkpoint: Checkpoint
    architecture: Architecture
    shape: Shape
    weights: CheckpointWeights
    head: Head | None = None
    below: Shape | None = None  # of its encoder


def open_checkpoint(
    origin: Origin,
    name: str,
    needs: Mapping[str, bool],
    *,
    rows: Mapping[str, Architecture] = ARCHITECTURES,
    with_head: WithHead = False,
) -> LightCheckpoint:
    """A checkpoint that numpy runs, unless one of the needs is there; each says why.

    Raises:
        UnknownArchitecture: why transformers has to load it.
        ModelError: it cannot be loaded at all.
    """
    needs = {
        f"--device {origin.device} asks for torch": origin.device not in ("auto", "cpu", "light"),
        f"--dtype {origin.dtype} asks for torch": origin.dtype not in (None, "float32"),
        "an adapter is to be merged": origin.adapter is not None,
        "--chat needs torch": origin.chat,
        "another tokenizer needs torch": origin.tokenizer is not None,
        "--from and --to ask for torch": bool(origin.from_ or origin.to),
        **needs,
    }
    for reason, is_needed in needs.items():
        if is_needed:
            raise UnknownArchitecture(reason)
    folder = locate(name, allow_code=origin.allow_code)
    checkpoint = check_folder(folder, allow_pickle=origin.allow_pickle)
    config, kind = dict(checkpoint.config), checkpoint.config["model_type"]
    about = rows.get(kind)
    if about is None:
        raise UnknownArchitecture(f"the network inside has no architecture '{kind}'")
    if checkpoint.is_pickle or checkpoint.numbers > MOST_NUMBERS:
        reason = "are a pickle" if checkpoint.is_pickle else f"are {checkpoint.numbers:,}"
        raise UnknownArchitecture(f"its weights {reason}")
    shape, below = about.shape_of(config), None
    weights, head = CheckpointWeights(checkpoint.files, about, shape), None
    shapes = [*about.weight_shapes(config, shape)]
    if about.encoder:
        below = about.encoder.shape_of(config)
        shapes += about.encoder.weight_shapes(config, below)
    decides = str((config.get("architectures") or ("",))[0]).endswith(tuple(CLASSES))
    if with_head or about.encoder or decides or origin.generate is not None:
        head = head_of(config, about.model, writes=about.encoder is not None)
    if head is not None:
        bare = weights.start == ""  # such a file lacks a bias that is 0
        head = replace(head, bias="") if bare and about.encoder else head
        weights.add_head(head)
        shapes += head.weight_shapes(shape, config.get(about.width, shape.size))
    weights.check(iter(shapes))
    return LightCheckpoint(folder, checkpoint, about, shape, weights, head, below)


def open_light(
    origin: Origin,
    name: str,
    region: Region,
    load_whole: Callable[[], HuggingFaceModel],
    *,
    with_head: WithHead = False,
) -> light_model.LightModel:
    """A model that numpy runs, `load_whole` loads it for what numpy cannot do."""
    needs = {
        light_model.GRADIENTS: with_head is True,
        "parts and blocks of a text need torch": not region.is_default,
        "--channels asks for torch": region.channels != "mean",
        "--stream indexer asks for torch": region.indexer,
        f"--generate {origin.generate} is a long text": (origin.generate or 0)
        > light_model.MOST_TOKENS,
    }
    light = open_checkpoint(origin, name, needs, with_head=with_head)
    about, shape, config = light.architecture, light.shape, light.checkpoint.config
    head, stem = light.head, f"{shape.layer}."
    kind = head.model if head else about.model
    writes = head is not None and not head.labels and shape.causal
    if origin.generate is not None and not writes:
        raise UnknownArchitecture("it has no head to write with")
    tokenizer = load_light_tokenizer(light.folder, about.tokenizer, config["model_type"])
    if not about.types and "token_type_ids" in tokenizer.names and about.tokenizer[:4] == "GPT2":
        raise UnknownArchitecture("its tokenizer gives types of tokens")
    padding = config.get("pad_token_id", 1)
    if about.offset is None and not isinstance(padding, int):
        raise UnknownArchitecture("its padding has no number")
    rules = writing_rules(light.folder, config, shape.vocabulary) if writes else WritingRules()
    family: Family = "decoder-only" if shape.causal else "encoder-only"
    streams = {"causal" if shape.causal else "self": f"{stem}{shape.attention.name}"}
    start = config.get("decoder_start_token_id")
    if light.below and shape.cross:
        family = "encoder–decoder"
        streams = {
            "encoder": f"{light.below.layer}.{light.below.attention.name}",
            "decoder": f"{stem}{shape.attention.name}",
            "cross": f"{stem}{shape.cross.name}",
        }
        if type(start) is not int or rules.decoder_start_token_id is None or tokenizer.cleans:
            raise UnknownArchitecture("its files do not say how its texts begin or are spaced")
    facts = _facts_of(config, kind, start)
    first_position = 0 if about.offset is not None else padding + 1
    positions = config.get("max_position_embeddings") or config.get("n_positions")
    limits: list[Any] = [tokenizer.model_max_length, positions]
    if any(isinstance(one, bool) or not isinstance(one, int | float) for one in limits):
        raise UnknownArchitecture("its limit of tokens is no number")
    limits[1] -= first_position
    return light_model.LightModel(
        name=name,
        model=SimpleNamespace(
            config=facts,
            get_output_embeddings=lambda: None if head is None or head.labels else head,
            get_encoder=lambda: None,
            base_model=None,
            can_generate=lambda: writes,
            generation_config=SimpleNamespace(eos_token_id=[*rules.ends]),
        ),
        tokenizer=tokenizer,
        family=family,
        limit=min((int(one) for one in limits if 0 < one < UNLIMITED), default=None),
        provenance=describe_light(name, light, kind, family=family),
        can_generate=writes,
        max_new_tokens=origin.generate,
        task=task_named(kind, facts),
        region=region,
        whole=light_model.WholeModel(load_whole, origin.arithmetic == "light"),
        architecture=about,
        sizes=shape,
        below=light.below,
        streams=streams,
        weights=light.weights,
        numbers=light.checkpoint.numbers,
        padding=padding if isinstance(padding, int) else 0,
        head=head,
        rules=rules,
    )


def _facts_of(config: Mapping[str, Any], kind: str, start: Any) -> SimpleNamespace:
    """What a configuration of transformers tells: its type, its classes by number, its start."""
    names, kinds = config.get("id2label") or {}, ("regression", "single_label_classification")
    try:
        labels = {int(number): str(label) for number, label in names.items()}
    except ValueError as error:
        raise UnknownArchitecture("its classes have no numbers") from error
    labels = labels or {number: f"LABEL_{number}" for number in range(2)}
    problem = config.get("problem_type")
    problems = (None, *kinds, "multi_label_classification")
    if kind.endswith(tuple(CLASSES)) and (
        problem not in problems or [*labels] != [*range(len(labels))]
    ):
        raise UnknownArchitecture("its classifier is not one of classes by their numbers")
    return SimpleNamespace(
        model_type=config["model_type"],
        id2label=labels,
        problem_type=problem,
        decoder_start_token_id=start,
    )


def describe_light(name: str, light: LightCheckpoint, model: str, **more: str) -> Provenance:
    """The provenance of what a checkpoint answers, as transformers' class of that name."""
    shown_name, folder = display_name(name, light.checkpoint.config), light.folder
    settings = {
        "folder": None if shown_name == name else name,
        "revision": folder.name if folder.parent.name == "snapshots" else None,
        "stored_as": ", ".join(light.checkpoint.dtypes) or None,
        "architecture": model,
        "model_type": light.checkpoint.config["model_type"],
        "attention": light_model.ROUTE,
        **more,
    }
    return Provenance(
        source="hugging face",
        model=shown_name,
        trained=True,
        settings={key: value for key, value in settings.items() if value is not None},
        versions={"numpy": np.__version__},
    )
