"""What each kind of source records of a query, for every part of its model."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import Attention
from attnviz.core.errors import ModelError, UsageError
from attnviz.core.query import Query
from attnviz.core.writers import ResidualStream, WrittenText
from attnviz.features.targets.outputs import check_head, class_name, spell_choice, spell_piece
from attnviz.features.writers.stacked_text import Stack, StackedText
from attnviz.models import Choose
from attnviz.models.hugging_face.inputs.encoding import EncodedQuery, encode

if TYPE_CHECKING:
    from attnviz.features.audio.audio_model import AudioModel
    from attnviz.features.vision.vision_model import VisionModel
    from attnviz.features.writers.recorded_text import RecordedText
    from attnviz.models.hugging_face.light_model import LightModel
    from attnviz.models.hugging_face.text_model import HuggingFaceModel
    from attnviz.models.pocket.stored import StoredModel


def record_text(source: HuggingFaceModel, query: Query) -> RecordedText:
    from attnviz.features.writers.recorded_text import RecordedText
    from attnviz.models.hugging_face.eager import eager_inputs
    from attnviz.models.hugging_face.load.imports import quiet

    eager, spell = eager_inputs(source, source.encode_whole(query), is_copied=True), None
    with suppress(ModelError):
        check_head(source, query.kind)
        spell = partial(spell_choice, source)
    with quiet():
        return RecordedText(eager, spell)


def record_picture(source: VisionModel, query: Query) -> RecordedText:
    from attnviz.features.writers.recorded_text import RecordedText
    from attnviz.models.hugging_face.capture.kernel import eager_copy
    from attnviz.models.hugging_face.load.imports import quiet

    with quiet():
        encoding = source.encode(source.picture(query))
        part = eager_copy(source.tower if source.task is None else source.model)
        return RecordedText(replace(encoding, part=part), partial(class_name, source.model.config))


def record_speech(source: AudioModel, query: Query) -> RecordedText:
    """A recording, read with its padding, and its text if any."""
    import torch

    from attnviz.features.audio.audio_model import SIDE
    from attnviz.features.audio.recordings import frame_tokens
    from attnviz.features.writers.recorded_text import RecordedText
    from attnviz.models.hugging_face.capture.kernel import eager_copy
    from attnviz.models.hugging_face.load.imports import quiet

    recording = query.recording
    if recording is None:
        raise UsageError(f"'{source.name}' hears recordings: give the file of one")
    with quiet():
        heard, _ = source.encode_recording(recording, source.cut(recording))
        inputs, tokens = dict(heard.features), {SIDE: heard.tokens}
        if not source.has_patches:
            step = source.step(heard.features, heard.count)
            tokens[SIDE] = frame_tokens(heard.count, recording.start, step)
        notes = list(recording.notes)
        axes = {"self": (SIDE, SIDE)}
        if source.writes:
            target = source.target(query, heard)
            inputs["decoder_input_ids"] = torch.tensor([target.ids], device=source.model.device)
            tokens["text"], notes = target.tokens, [*notes, *target.notes]
            axes = {"cross": ("text", SIDE), "encoder": (SIDE, SIDE), "decoder": ("text",) * 2}
        empty = Attention((), source.provenance).with_maps((), notes=notes)
        # What a transducer decides needs a text, which it reads without attention.
        has_text = source.model.config.is_encoder_decoder and not source.writes
        part = eager_copy(source.listener if has_text else source.model)
        encoding = EncodedQuery(part, inputs, tokens, axes, empty, what=SIDE)
        spell = partial(spell_piece, source) if source.can_generate else None
        return RecordedText(encoding, spell)


def stack_text(source: LightModel, query: Query) -> WrittenText:
    encoding = encode(source, query)
    reason = source.refuse([encoding])
    if source.head is not None and not source.head.is_linear:
        reason = reason or "the head is not linear"
    if reason:
        text: WrittenText = source.whole(reason).trace_writers(query)
        return text
    return _stack(source, encoding)


def _stack(source: LightModel, encoding: EncodedQuery) -> StackedText:
    """A query that was read, with what each part wrote."""
    attention, _ = source.run(encoding)
    name = "encoder" if source.below else attention.main.stream
    stacks = list[Stack]()
    for number, embeddings in enumerate(source.embed_parts(encoding.inputs)):
        ends = ("decoder", embeddings, stacks[0], "cross") if number else (name, embeddings)
        stack = Stack(source.weights, source.shapes[number], *ends)
        stack.embed_without = partial(source.embed_without, encoding.inputs, number)
        stacks.append(stack)
    reads = source.head is not None and len(stacks) == len(source.shapes)
    scores = partial(source.scores, source.weights) if reads else None
    return StackedText(attention, stacks, scores, partial(spell_choice, source))


def stream_of_text(
    source: LightModel, query: Query, choose: Choose, *, attention_only: bool
) -> ResidualStream | None:
    encoding = encode(source, query)
    if reason := source.refuse([encoding]):
        return source.whole(reason).read_stream(query, choose, attention_only=attention_only)
    if source.task is not None:
        return None
    return _stack(source, encoding).stream(choose, attention_only=attention_only)


def stream_of_pocket(
    source: StoredModel, query: Query, choose: Choose, *, attention_only: bool
) -> ResidualStream | None:
    return stack_pocket(source, query).stream(choose, attention_only=attention_only)


def stack_pocket(source: StoredModel, query: Query) -> StackedText:
    feed, attention = source.read(query)
    model: Any = source if source.device == "cpu" else type(source)(source.folder)

    def scores(states: NDArray[np.floating]) -> NDArray[np.floating]:
        logits: NDArray[np.floating] = model.scores(model.weights, states)
        return logits

    return StackedText(attention, model.stacks(feed), scores, model.spell, first=model.decides)
