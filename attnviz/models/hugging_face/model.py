"""A loaded model that can be asked for the attention of a text or of a pair of texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from attnviz.core.attention_map import PARTS, SECOND_PART, Attention, Provenance
from attnviz.core.errors import AttnvizError, InputError, ModelError
from attnviz.core.lens_inputs import AttentionGradients, ValueVectors
from attnviz.models.hugging_face.batching import BatchRunner
from attnviz.models.hugging_face.capture.capture import capture
from attnviz.models.hugging_face.capture.extent import DEFAULT_SIZE, WHOLE, Region, heads_of
from attnviz.models.hugging_face.capture.maps import drowning
from attnviz.models.hugging_face.inputs.prepared import Prepared
from attnviz.models.hugging_face.inputs.reader import Reader, both_inputs, joined, tokenize_pair
from attnviz.models.hugging_face.inputs.tokens import TokenizedText
from attnviz.models.hugging_face.load.devices import free_bytes
from attnviz.models.hugging_face.load.errors import quiet
from attnviz.models.hugging_face.load.tasks import Task, listening
from attnviz.storage.texts import Text
from attnviz.storage.texts.batches import MEMORY_BUDGET, chunks_by_memory


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class HuggingFaceModel(Reader):
    """A pretrained model and its tokenizer, as a source of attention.

    Attributes:
        task: what its head decides, if it has one that does.
        extent: which part of a text's attention is read, and how finely.
    """

    task: Task | None = None
    extent: Region = WHOLE

    def attend_self(self, text: str) -> Attention:
        """A text's attention over itself; of an encoder–decoder, its encoder's.

        Raises:
            InputError: the text is blank or too long.
            ModelError: the tokenizer and the model do not belong together, or the model fails.
            AttentionError: the architecture gives out no attention weights.
        """
        with quiet():
            return self.attend(self.prepare_self(text))

    def attend_pair(self, first: str, second: str) -> Attention:
        """The attention of two texts, read as one sequence, over themselves and each other.

        Raises:
            InputError: a text is blank, or both together are too long.
            ModelError: the model or its tokenizer does not read pairs.
            AttentionError: the architecture gives out no attention weights.
        """
        with quiet():
            return self.attend(self.prepare_pair(first, second))

    def attend_cross(self, source: str, target: str | None = None) -> Attention:
        """The target's attention over the source, then each one's over itself.

        Args:
            source: what the encoder reads: the keys.
            target: what the decoder reads: the queries; None: what the model writes by itself.

        Raises:
            InputError: a text is blank or too long.
            ModelError: the tokenizer and the model do not belong together, or the model fails.
            AttentionError: the model has no cross-attention.
        """
        with quiet():
            return self.attend(self.prepare_cross(source, target))

    def attend_many(
        self, texts: Sequence[Text], *, alone: bool, batch_size: int | None = None
    ) -> Iterator[Attention | InputError]:
        """The attention of many texts or pairs, read together; see `hugging_face.together`."""
        return attend_many(self, texts, alone=alone, batch_size=batch_size)

    def explain_self(self, text: str, wanted: str | None = None) -> AttentionGradients:
        """What the model predicts from a text, with gradients; see `hugging_face.gradient`."""
        from attnviz.models.hugging_face.gradient import explain_self

        return explain_self(self, text, wanted)

    def explain_cross(
        self, source: str, target: str | None = None, wanted: str | None = None
    ) -> AttentionGradients:
        """Why a token of the target is written, with gradients; see `hugging_face.gradient`."""
        from attnviz.models.hugging_face.gradient import explain_cross

        return explain_cross(self, source, target, wanted)

    def transform_self(self, text: str) -> ValueVectors:
        """What each head makes of each token; see `hugging_face.norm`."""
        from attnviz.models.hugging_face.norm import transform_self

        return transform_self(self, text)

    def transform_cross(self, source: str, target: str | None = None) -> ValueVectors:
        """What each head makes of each token of a pair; see `hugging_face.norm`."""
        from attnviz.models.hugging_face.norm import transform_cross

        return transform_cross(self, source, target)

    def attend(self, prepared: Prepared) -> Attention:
        """The maps of one pass over what is prepared.

        Raises:
            ModelError: the model fails.
            AttentionError: the architecture gives out no attention weights.
        """
        with listening(self.model) as heard:
            captured = capture(
                prepared.part,
                self.tensors(prepared.inputs, prepared.part),
                prepared.sides,
                extent=self.extent,
                hidden=prepared.hidden,
            )
        return prepared.finished(captured, self.task, heard[0] if heard else None)

    def prepare(self, text: Text, *, alone: bool) -> Prepared:
        """A text or a pair, about to be read over itself or across.

        Raises:
            AttnvizError: what `attend_self`, `attend_pair` and `attend_cross` refuse.
        """
        if not alone:
            return self.prepare_cross(text.text, text.target)
        if text.target is None:
            return self.prepare_self(text.text)
        return self.prepare_pair(text.text, text.target)

    def prepare_self(self, text: str) -> Prepared:
        """A text, about to be read over itself."""
        text, read, provenance = self.read_alone(text)
        return self.over_itself(read, text, provenance)

    def prepare_pair(self, first: str, second: str) -> Prepared:
        """Two texts, about to be read as one sequence."""
        if self.family == "decoder-only":
            raise ModelError(
                f"'{self.name}' is decoder-only ({self.model.config.model_type}) and does not read "
                "sentence pairs: give one text"
            )
        read = tokenize_pair(self.tokenizer, first, second)
        self.check_ids(read.ids, read.tokens, "pair")
        parts = {PARTS: "pair", SECOND_PART: len(joined(first, ""))}
        settings = {**self.provenance.settings, **parts}
        provenance = replace(self.provenance, settings=settings)
        return self.over_itself(read, joined(first, second), provenance)

    def prepare_cross(self, source: str, target: str | None) -> Prepared:
        """A source and the target (None: what the model writes), about to be read."""
        read, goal = self.read_both(source, target)
        return Prepared(
            self.model,
            both_inputs(read, goal),
            {"source": read.tokens, "target": goal.tokens},
            {
                "cross": ("target", "source"),
                "encoder": ("source", "source"),
                "decoder": ("target", "target"),
            },
            Attention((), self.decoded(goal.notes), source=source, target=goal.text),
        )

    def over_itself(self, read: TokenizedText, text: str, provenance: Provenance) -> Prepared:
        """What was read, about to attend to itself."""
        encoder = self.family == "encoder–decoder"
        stream = {"encoder-only": "self", "decoder-only": "causal"}.get(self.family, "encoder")
        # What it decides about a text, its decoder says.
        part = self.model.get_encoder() if encoder and self.task is None else self.model
        if self.writes is not None and not encoder:
            # Its head would name every word of the vocabulary at every position, for nothing.
            part = self.model.base_model
        return Prepared(
            part,
            read.inputs,
            {"text": read.tokens},
            {stream: ("text", "text")},
            Attention((), provenance, text=text),
            {stream: drowning(read.tokens, causal=stream == "causal")},
            decided="text",
        )


# <together> Many texts read at once, each with the numbers that it would have alone.
#
# Texts of similar length are padded to the longest of them and read in one pass, and each one's
# part is cut out; how it is made certain that padding changes nothing stands in `company`.

FEW = 4
"""Fewer texts than this are read one by one: a batch of them would save nothing."""


def attend_many(
    model: HuggingFaceModel, texts: Sequence[Text], *, alone: bool, batch_size: int | None = None
) -> Iterator[Attention | InputError]:
    """The attention of each text or pair, in order; one that cannot be used gives its error.

    Args:
        model: who reads.
        texts: what; what is read together depends on nothing else.
        alone: True for a text's attention over itself, or a sentence pair's over its two.
        batch_size: texts that are read at once at most; None: as many as is good.

    Raises:
        AttnvizError: every text would fail likewise.
    """
    most = room()
    with quiet():
        prepared = [prepare(model, text, alone=alone) for text in texts]
    heads = dict[str, int]()
    sizes = [0 if item is None else bytes_of(item, heads) for item in prepared]
    # What would take much of the room is read by itself.
    sizes = [0 if 8 * size > most else size for size in sizes]
    for stretch in chunks_by_memory(sizes, most):
        items = {n: item for n in stretch if sizes[n] and (item := prepared[n]) is not None}
        with quiet():
            found = BatchRunner(model, items, batch_size).read() if len(items) >= FEW else {}
        for number in stretch:
            if number in found:
                yield found.pop(number)
            else:
                yield by_itself(model, texts[number], alone=alone)


def by_itself(model: HuggingFaceModel, text: Text, *, alone: bool) -> Attention | InputError:
    """One text's attention from a pass of its own, or why it cannot be had."""
    try:
        with quiet():
            return model.attend(model.prepare(text, alone=alone))
    except InputError as error:
        return error


def prepare(model: HuggingFaceModel, text: Text, *, alone: bool) -> Prepared | None:
    """A text as it can be read with others; None where it needs a pass of its own.

    So do texts that fail, whose error is then raised in their turn, and those that are pooled.
    """
    extent = model.extent
    written = model.writes is not None or (text.target is None and not alone)
    if written or extent.rows or extent.window or extent.keep_qk:
        return None
    try:
        prepared = model.prepare(text, alone=alone)
    except AttnvizError:
        return None
    longest = max(map(len, prepared.tokens.values()))
    return None if longest > (extent.max_size or DEFAULT_SIZE) else prepared


def bytes_of(prepared: Prepared, heads: dict[str, int]) -> int:
    """What the maps of a text take.

    Args:
        prepared: the text.
        heads: of each stream that was met before; others are added.
    """
    size = 0
    for stream, (queries, keys) in prepared.sides.items():
        if stream not in heads:
            heads[stream] = heads_of(prepared.part.config, stream)
        size += 4 * heads[stream] * queries * keys
    return size


def room() -> int:
    """Bytes of maps that are held at once.

    It has two sizes only, so that what is read together is the same wherever memory is not scarce.
    """
    import torch

    free = free_bytes(torch.device("cpu"))
    return MEMORY_BUDGET if free is None or free > 4 * MEMORY_BUDGET else MEMORY_BUDGET // 8
