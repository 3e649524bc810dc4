"""Encoded texts through a model, one by one or in batches, and how batches are checked.

Whether padding changes a text's numbers is not known from a list of families. The shortest text of
the first batch is read alone as well, by the model's own kernel, and all of its weights have to
agree. Where they do not, only texts of equal length are read together; where not even that helps,
each is read by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np

from attnviz.core.attention_map import Attention
from attnviz.core.errors import AttentionError, AttnvizError
from attnviz.core.notices import notify
from attnviz.models.hugging_face.capture.capture import (
    HANDED_OVER,
    Captured,
    capture,
    capture_many,
)
from attnviz.models.hugging_face.capture.extent import heads_of
from attnviz.models.hugging_face.capture.kernel import eagerly
from attnviz.models.hugging_face.inputs.encoding import EncodedQuery
from attnviz.models.hugging_face.load.devices import NoRoomError, free_bytes
from attnviz.models.hugging_face.load.errors import first_line
from attnviz.models.hugging_face.load.tasks import listening
from attnviz.models.hugging_face.model import LoadedModel, input_names, vocabulary_size
from attnviz.storage.texts import MEMORY_BUDGET, batches

MASKS = {"input_ids": "attention_mask", "decoder_input_ids": "decoder_attention_mask"}
"""Which input says where the numbers of which other one are no padding."""


FEW = 4
"""Fewer texts than this are read one by one: a batch of them would save nothing."""


def read_one(loaded: LoadedModel, encoded: EncodedQuery) -> Attention:
    """The maps of one pass over one query.

    Raises:
        ModelError: the model fails.
        AttentionError: the architecture gives out no attention weights.
    """
    with listening(loaded.model) as outputs:
        captured = capture(
            encoded.part,
            loaded.tensors(encoded.inputs, encoded.part),
            encoded.sides,
            extent=loaded.region,
            hidden=encoded.ignored,
        )
    return encoded.finished(captured, loaded.task, outputs[0] if outputs else None)


def bytes_of(encoded: EncodedQuery, heads: dict[str, int]) -> int:
    """What the maps of a text take.

    Args:
        encoded: the text.
        heads: of each stream that was met before; others are added.
    """
    size = 0
    for stream, (queries, keys) in encoded.sides.items():
        if stream not in heads:
            heads[stream] = heads_of(encoded.part.config, stream)
        size += 4 * heads[stream] * queries * keys
    return size


def memory_budget() -> int:
    """Bytes of maps that are held at once.

    It has two sizes only, so that what is read together is the same wherever memory is not scarce.
    """
    import torch

    free = free_bytes(torch.device("cpu"))
    return MEMORY_BUDGET if free is None or free > 4 * MEMORY_BUDGET else MEMORY_BUDGET // 8


@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """What a model with a head gave out about one text, as a batch of one."""

    logits: Any


def padded(
    rows: Sequence[Mapping[str, Sequence[int]]], taken: set[str], number: int, device: Any
) -> dict[str, Any]:
    """The inputs of several texts as tensors, padded behind the shorter ones and masked there.

    Texts of one length get what each would get alone, and no mask besides.

    Args:
        rows: lists of numbers by name, of each text.
        taken: the inputs that the model takes.
        number: the padding's.
        device: the model's.
    """
    import torch

    batch = {name: [row[name] for row in rows] for name in rows[0] if name in taken}
    for name, mask in MASKS.items():
        lengths = {len(row) for row in batch.get(name, ())}
        if len(lengths) > 1 and mask not in batch and (mask in taken or name == "input_ids"):
            batch[mask] = [[1] * len(row) for row in batch[name]]
    tensors = {}
    for name, lists in batch.items():
        fill = number if name in MASKS else 0
        array = np.full((len(lists), max(map(len, lists))), fill, dtype=np.int64)
        for line, row in zip(array, lists, strict=True):
            line[: len(row)] = row
        tensors[name] = torch.from_numpy(array).to(device)
    return tensors


def padding_of(model: Any, tokenizer: Any) -> int:
    """The number of a model's padding; 0 where nobody knows of one, which the mask hides too."""
    known = vocabulary_size(model)
    config = model.config.get_text_config()
    named = (getattr(config, "pad_token_id", None), tokenizer.pad_token_id)
    return next((number for number in named if number is not None and 0 <= number < known), 0)


def cut(output: Any, number: int, length: int) -> Output | None:
    """One text's part of what a model gave out about a batch.

    Args:
        output: of the model; None where nobody heard it.
        number: the text's in the batch.
        length: how many tokens it has.
    """
    logits = getattr(output, "logits", None)
    if logits is None:
        return None
    own = logits[number : number + 1]
    return Output(own[:, :length] if own.ndim == 3 else own)


SHORT = 128
"""Tokens up to which an eager pass costs less on a CPU than a kernel that is asked for weights."""
TOKENS = {"cpu": 1024}
"""Tokens of a batch by the kind of device; elsewhere 16,384."""
ALIKE = {"float16": 1e-2, "bfloat16": 2e-2}
"""How far a text's weights may be off beside others; elsewhere 1e-5."""
ROUNDINGS, LEAK = 8, 1e-3
"""Elsewhere also by this many times what one rounding of the text's embeddings changes, but for
what is no rounding in any case."""

Company = Literal["padded", "even", "none"]
"""Which texts may be read with others: all with padding, those of equal length, or none."""
NEXT: dict[Company, Company] = {"padded": "even", "even": "none"}


class Known:
    """What was found out about a model's passes over several texts.

    Attributes:
        company: which texts may be read together.
        swift: whether short texts may be read eagerly.
        calls: for each way of reading together that was compared, how many layers a pass has to
            read; None: it has to run through; 0: none can be read, all are handed over.
        tokens: of a batch at most.
    """

    def __init__(self, device: str) -> None:
        self.company: Company = "padded"
        self.swift = device == "cpu"
        self.calls = dict[Way, int | None]()
        self.tokens = TOKENS.get(device, 1 << 14)


@dataclass(frozen=True, slots=True)
class Way:
    """How a batch is read: with padding or of equal lengths, by an eager kernel or the model's."""

    company: Company
    swift: bool


Read = tuple[list[Captured], Output | None]
"""What is had of one text of a batch."""
_KNOWN: WeakKeyDictionary[Any, dict[tuple[str, ...], Known]] = WeakKeyDictionary()


class BatchRunner:
    """Some prepared texts, read in batches."""

    def __init__(
        self, model: LoadedModel, items: Mapping[int, EncodedQuery], most: int | None
    ) -> None:
        self.model, self.items, self.most = model, items, most
        self.part = next(iter(items.values())).part
        streams = tuple(next(iter(items.values())).axes)
        fresh = Known(model.model.device.type)
        self.known = _KNOWN.setdefault(model.model, {}).setdefault(streams, fresh)
        self.padding = padding_of(model.model, model.tokenizer)
        self.lengths = {
            number: tuple(map(len, item.tokens.values())) for number, item in items.items()
        }

    def read(self) -> dict[int, Attention]:
        """The attention of each text that could be read with others, by its number."""
        found = dict[int, Attention]()
        left = list(self.items)
        while self.known.company != "none" and left:
            batch = next(self.plan(left))
            if len(batch) > 1:
                read = self.attempt([self.items[number] for number in batch])
                if read is None:
                    continue
                if read:
                    found |= dict(zip(batch, read, strict=True))
            left = [number for number in left if number not in batch]
        return found

    def plan(self, numbers: Sequence[int]) -> Iterator[list[int]]:
        """The texts that come together, batch by batch."""
        return batches(
            numbers,
            self.lengths.__getitem__,
            tokens=self.known.tokens,
            most=self.most,
            even=self.known.company == "even",
        )

    def attempt(self, batch: Sequence[EncodedQuery]) -> list[Attention] | None:
        """The attention of each text of a batch, of none if it needs passes of their own.

        None where others have to come together first.
        """
        way = self.way_of(batch)
        proven = way in self.known.calls
        try:
            found = self.run(batch, way)
            off = 0.0 if proven else self.compare(batch[0], found[0], way)
            alike = off <= self.allowed(batch[0], off)
        except NoRoomError:
            return self.halve(batch)
        except AttnvizError as error:
            if proven:
                return []
            # What has no weights at all is refused when a text is read by itself.
            self.retreat(way, "" if isinstance(error, AttentionError) else first_line(error))
            return None
        if not alike:
            kind = self.model.model.config.model_type
            self.retreat(way, f"'{kind}' gives a text other weights, off by {off:.1g}")
            return None
        task = self.model.task
        return [
            item.finished(captured, task, output)
            for item, (captured, output) in zip(batch, found, strict=True)
        ]

    def way_of(self, batch: Sequence[EncodedQuery]) -> Way:
        """How a batch is to be read."""
        sides = {tuple(item.sides.values()) for item in batch}
        longest = max(max(side) for item in batch for side in item.sides.values())
        swift = self.known.swift and longest <= SHORT
        return Way("even" if len(sides) == 1 else "padded", swift)

    def run(self, batch: Sequence[EncodedQuery], way: Way) -> list[Read]:
        """What each text's tokens attend to, and what the model's head gave out about it."""
        model = self.model.model
        rows = [item.inputs for item in batch]
        inputs = padded(rows, input_names(self.part), self.padding, model.device)
        sides = [item.sides for item in batch]
        calls = self.known.calls.get(way)
        with listening(model) as heard, eagerly(model) if way.swift else nullcontext():
            captured = capture_many(self.part, inputs, sides, calls)
        output = heard[0] if heard else None
        lengths = [len(next(iter(item.tokens.values()))) for item in batch]
        return [
            (found, cut(output, number, length))
            for number, (found, length) in enumerate(zip(captured, lengths, strict=True))
        ]

    def compare(self, item: EncodedQuery, beside: Read, way: Way) -> float:
        """How far a text's numbers are off beside others; and what a pass that way has to read."""
        alone = self.alone(item)
        layers = sum(len(found.layers) for found in alone[0])
        through = self.model.task is not None or hasattr(self.model.model, "hf_device_map")
        is_read = alone[0][0].route != HANDED_OVER
        self.known.calls[way] = None if through else layers * is_read
        return self.apart(alone, beside)

    def alone(self, item: EncodedQuery) -> Read:
        """What is had of a text by itself, by the model's own kernel."""
        return self.run([item], Way("even", swift=False))[0]

    def apart(self, one: Read, other: Read) -> float:
        """How far two readings of a text are off each other, in weights and in what was decided."""
        off = max(
            float(np.abs(mine.weights - its.weights).max())
            for mine, its in zip(one[0], other[0], strict=True)
        )
        if self.model.task is None or one[1] is None or other[1] is None:
            return off
        scale = 1 + float(one[1].logits.abs().max())
        return max(off, float((one[1].logits - other[1].logits).abs().max()) / scale)

    def allowed(self, item: EncodedQuery, off: float) -> float:
        """How far a text's numbers may be off beside others, where they are off by so much."""
        model = self.model.model
        limit = ALIKE.get(str(model.dtype).removeprefix("torch."), 1e-5)
        if not limit < off <= LEAK:
            return limit
        plain = self.alone(item)
        with rounded(model):
            return max(limit, ROUNDINGS * self.apart(plain, self.alone(item)))

    def retreat(self, way: Way, why: str) -> None:
        """Read by the model's own kernel from now on, else less together, and say so."""
        self.known.calls.pop(way, None)
        if way.swift:
            self.known.swift = False
            return
        self.known.company = NEXT[way.company]
        if not why:
            return
        if way.company == "even":
            notify(f"texts are read one by one, because beside others {why}")
        else:
            notify(f"only texts of equal length are read together, because beside padding {why}")

    def halve(self, batch: Sequence[EncodedQuery]) -> list[Attention] | None:
        """Let batches be half as large from now on, and say so; of two texts none stays."""
        import torch

        if len(batch) == 2:
            return []
        longest = max(sum(map(len, item.tokens.values())) for item in batch)
        self.known.tokens = len(batch) * longest // 2
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        notify(f"the memory ran out with {len(batch)} texts at once: fewer are read together now")
        return None


@contextmanager
def rounded(model: Any) -> Iterator[None]:
    """Let each number of a model's embeddings be off by one rounding, up or down by chance."""
    import torch

    def round_off(module: Any, given: Any, output: Any) -> Any:
        generator = torch.Generator().manual_seed(0)
        up = torch.randint(0, 2, output.shape, generator=generator).to(output) * 2 - 1
        return output * (1 + torch.finfo(output.dtype).eps * up)

    embeddings = [part for part in model.modules() if isinstance(part, torch.nn.Embedding)]
    hooks = [part.register_forward_hook(round_off) for part in embeddings]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
