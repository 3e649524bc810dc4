"""The experiments of transformers' models: texts, pictures, and texts behind pictures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from attnviz.core.attention_map import Attention, Token
from attnviz.core.effects import Experiment, HeadOutputs, PredictedToken
from attnviz.core.errors import InputError, ModelError, UsageError
from attnviz.core.query import Query
from attnviz.features.experiments.kernel import KernelExperiment, ModelExperiment, experiment_of
from attnviz.features.experiments.layer_states import join_batch
from attnviz.features.experiments.outputs import ExperimentRequest
from attnviz.features.picture_text.source import PictureTextModel
from attnviz.features.targets.outputs import (
    check_head,
    choose_outputs,
    chosen_class,
    class_name,
    no_head,
    spell_choice,
)
from attnviz.features.vision.pictures import SIDE, picture_of
from attnviz.features.vision.vision_model import VisionModel
from attnviz.models.hugging_face.capture.capture import without_cache
from attnviz.models.hugging_face.inputs import generation, tokenization
from attnviz.models.hugging_face.inputs.encoding import EncodedQuery
from attnviz.models.hugging_face.load.imports import quiet
from attnviz.models.hugging_face.text_model import HuggingFaceModel


def open_text(source: HuggingFaceModel, query: Query, target: str | None) -> ModelExperiment:
    check_head(source, query.kind)
    return experiment_of(request_of(source, target, source.encode_whole(query)))


def request_of(
    source: HuggingFaceModel, target: str | None, encoding: EncodedQuery
) -> ExperimentRequest:
    inputs = source.tensors(encoding.inputs, source.model)
    return ExperimentRequest(
        source.model,
        without_cache(source.model, inputs),
        encoding,
        lambda logits: choose_outputs(source, encoding, logits, target),
        partial(spell_choice, source),
        source.task,
        partial(generation.continue_text, source, encoding.inputs) if source.can_generate else None,
    )


def head_outputs(
    source: HuggingFaceModel, queries: Sequence[Query], like: Experiment
) -> list[HeadOutputs]:
    """What each head puts out in each of some texts; texts of one length share a pass."""
    if not isinstance(like, KernelExperiment):
        return [source.experiment(query).head_outputs() for query in queries]
    outputs = dict[int, HeadOutputs]()
    alike = defaultdict[Any, dict[int, Mapping[str, Any]]](dict)
    with quiet():
        for number, read in enumerate(read_inputs(source, queries)):
            inputs = without_cache(source.model, source.tensors(read, source.model))
            shapes = tuple((name, getattr(one, "shape", one)) for name, one in inputs.items())
            alike[shapes][number] = inputs
        for some in alike.values():
            batch = join_batch([*some.values()])
            outputs |= dict(zip(some, like.outputs_of(batch, len(some)), strict=True))
    return [outputs[number] for number in range(len(queries))]


def read_inputs(source: HuggingFaceModel, queries: Sequence[Query]) -> list[Mapping[str, Any]]:
    """What the model reads of each query; targets that it writes itself are written together."""
    is_written = all(query.kind == "cross" and query.target is None for query in queries)
    if not (is_written and source.can_generate and source.family == "encoder–decoder"):
        return [source.encode_whole(query).inputs for query in queries]
    import torch

    reads = [tokenization.tokenize(source.tokenizer, query.text).inputs for query in queries]
    pad = source.tokenizer.pad_token_id or 0
    rows = [torch.tensor(one["input_ids"], device=source.model.device) for one in reads]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=pad)
    mask = torch.nn.utils.rnn.pad_sequence([*map(torch.ones_like, rows)], batch_first=True)
    most, how = generation.how_to_write(source)
    texts = {"input_ids": ids, "attention_mask": mask}
    inputs, ends = list[Mapping[str, Any]](), generation.ends_of(source)
    for read, row in zip(reads, generation.generate_rows(source, texts, most, **how), strict=True):
        # The first token starts the decoder and may be the one that ends a text, too.
        stop = next((at for at, one in enumerate(row) if at and one in ends), len(row))
        inputs.append({**read, "decoder_input_ids": row[:stop]})
    return inputs


def open_picture(source: VisionModel, query: Query, target: str | None) -> ModelExperiment:
    """A picture whose class is explained; `target` names one, None: the likeliest."""
    picture, config = source.picture(query), source.model.config
    if source.task is None:
        raise no_head(source.name, type(source.model).__name__)
    with quiet():
        encoding = source.encode(picture)
    return experiment_of(
        ExperimentRequest(
            source.model,
            encoding.inputs,
            encoding,
            lambda logits: (chosen_class(config, logits[0], target),),
            partial(class_name, config),
            source.task,
        )
    )


NO_PATCHES = "does not read patches as tokens before a text"


def open_words(source: PictureTextModel, query: Query, target: str | None) -> ModelExperiment:
    """Pictures and a text, whose tokens are predicted, or those that the model writes.

    Tokens of the pictures are labelled `SIDE`. All outputs are explained.
    """
    picture, decoder = picture_of(query, source.name), source.model.config.is_encoder_decoder
    if decoder or source.looks == "queries":
        raise UsageError(f"'{source.name}' {NO_PATCHES}")
    with quiet():
        reading = source.read(picture, query.text)
        places = source.places_of_pictures(reading.ids, video=picture.frames)
        if not len(places):
            raise ModelError(f"the prompt of '{source.name}' has no picture")
        if len(places) == len(
            picture.images
        ):  # one mark each: its patches are keys of other layers
            raise UsageError(f"'{source.name}' {NO_PATCHES}")
        if source.max_new_tokens is not None:
            reading = source.write(reading)
    ids = [*reading.ids, *reading.new]
    names = tokenization.pieces_of(source.tokenizer, ids)
    tokens = tuple(
        Token(f"{SIDE} {place - places[0]}", label=SIDE) if place in places else Token(name)
        for place, name in enumerate(names[: len(ids) - bool(reading.new)])
    )
    first = len(reading.ids) if reading.new else int(places[-1]) + 1
    outputs = tuple(
        PredictedToken(place - 1, ids[place], names[place], place)
        for place in range(first, len(ids))
    )
    if not outputs:
        raise InputError("no token of the text is predicted: give more --text, or --generate N")
    notes = (*source.provenance.notes, *reading.notes)
    empty = Attention((), replace(source.provenance, notes=notes))
    inputs = {**reading.inputs, "use_cache": False}
    sides = {"self": ("text", "text")}
    encoding = EncodedQuery(source.model, inputs, {"text": tokens}, sides, empty)
    return experiment_of(
        ExperimentRequest(
            source.model,
            inputs,
            encoding,
            lambda _: outputs,
            lambda number: tokenization.pieces_of(source.tokenizer, [number])[0],
        )
    )
