"""Read encoded texts one by one or in batches, and check that batches change no weight.

No list of families says whether padding changes a text's numbers. So the shortest text of the first
batch is also read alone, by the model's own kernel, and all its weights have to agree. If they do
not, only texts of equal length are batched; if those differ too, each text is read alone.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, Generic, Literal, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from attnviz.core import attention_map, locks
from attnviz.core.errors import AttentionError, AttnvizError, NotFiniteError, UsageError, first_line
from attnviz.core.notices import notify
from attnviz.core.records import dataclass, replace
from attnviz.core.registry import WATCH_INDEXERS, WITH_INDEXER
from attnviz.models import fingerprints
from attnviz.models.hugging_face.capture import implied, kernel, passes
from attnviz.models.hugging_face.capture.capture import EAGER_ROUTE, Captured, capture, capture_many
from attnviz.models.hugging_face.capture.region import fits_whole, heads_of
from attnviz.models.hugging_face.inputs.encoding import EncodedQuery
from attnviz.models.hugging_face.load import devices, family
from attnviz.models.hugging_face.loaded_model import LoadedModel, input_names, with_boxes
from attnviz.storage.texts import MEMORY_BUDGET, batches

FEW = 4  # fewer texts are read one by one: a batch of them saves nothing
SHORT = 128  # tokens up to which an eager pass on a CPU is cheaper than probing a kernel
TOKENS = {"cpu": 1024}  # of a batch, by kind of device; elsewhere 16,384
# Weights in a batch may differ from those alone by 1e-5 (`TOLERANCE` in half precision), or by
# ROUNDINGS times the effect of one rounding of the embeddings. Above LEAK it is no rounding.
ROUNDINGS, LEAK = 8, 1e-3
MASKS = {"input_ids": "attention_mask", "decoder_input_ids": "decoder_attention_mask"}

Grouping = Literal["padded", "even", "none"]  # batch all texts, those of equal length, or none
FALL_BACK: dict[Grouping, Grouping] = {"padded": "even", "even": "none"}


@dataclass(frozen=True, slots=True)
class BatchMode:
    """A way to read a batch."""

    grouping: Grouping  # with padding, or of equal lengths
    eager: bool  # else by the model's kernel


class BatchCompatibility:
    """What is known so far about how a model reads several texts at once."""

    def __init__(self, device: str) -> None:
        self.grouping: Grouping = "padded"
        self.eager = device == "cpu"  # whether short texts may be read eagerly
        # By mode that was compared: after how many layers a pass may stop; None: it must run to its
        # end; 0: the model calls no kernel and runs eagerly.
        self.calls = dict[BatchMode, int | None]()
        self.tokens = TOKENS.get(device, 1 << 14)  # of a batch at most


_COMPATIBILITIES: WeakKeyDictionary[
    Any, tuple[fingerprints.ModelFingerprint, dict[tuple[str, ...], BatchCompatibility]]
]
_COMPATIBILITIES = WeakKeyDictionary()


Read = tuple[list[Captured], Any]  # one text's weights, and its logits (a batch of one) or None
Reading = TypeVar("Reading")  # of one text


def read_one(
    source: LoadedModel,
    encoding: EncodedQuery,
    in_blocks: Callable[[attention_map.Attention], attention_map.Attention] | None = None,
) -> attention_map.Attention:
    """The attention of a query; `in_blocks` as in `Query`."""
    region, studies = source.region, None
    if in_blocks is not None:
        region = replace(region, max_size=None)
        if implied.has_attention(encoding.part) and not fits_whole(encoding.part, encoding.sides):
            studies = encoding.studies(in_blocks)
    watching = WATCH_INDEXERS.load()(encoding.part) if region.indexer else nullcontext({})
    with family.record_logits(source.model) as logits, watching as scores:
        captures = capture(
            encoding.part,
            source.tensors(encoding.inputs, encoding.part),
            encoding.sides,
            region=region,
            exclusions=encoding.exclusions,
            with_mixers=studies is None,
            studies=studies,
        )
    logit = logits[0] if logits else None
    attention = encoding.build_attention(captures, source.task, logit, studies=studies)
    if not region.indexer:
        return attention
    with_indexer: attention_map.Attention = WITH_INDEXER.load()(attention, scores, encoding.kind)
    return with_indexer


class BatchRunner(ABC, Generic[Reading]):
    """Reads encoded queries in batches; a subclass says what it reads of each text."""

    def __init__(
        self, source: LoadedModel, items: Mapping[int, EncodedQuery], most: int | None
    ) -> None:
        self.source, self.items, self.most = source, items, most
        first = next(iter(items.values()))
        self.part = first.part
        state = fingerprints.ModelFingerprint(source.model)
        if source.model not in _COMPATIBILITIES or _COMPATIBILITIES[source.model][0] != state:
            _COMPATIBILITIES[source.model] = state, {}
        fresh = BatchCompatibility(source.model.device.type)
        self.compatibility = _COMPATIBILITIES[source.model][1].setdefault(
            (type(self).__name__, *first.axes), fresh
        )
        self.padding = _padding_id(source)
        self.lengths = {
            number: tuple(map(len, item.tokens.values())) for number, item in items.items()
        }

    @abstractmethod
    def run(self, batch: Sequence[EncodedQuery], mode: BatchMode) -> list[Reading]:
        """What is read of each text of a batch, the shortest first."""

    @abstractmethod
    def read_alone(self, item: EncodedQuery) -> Reading:
        """A text read alone, by the model's own kernel."""

    @abstractmethod
    def distance(self, one: Reading, other: Reading) -> float:
        """The largest difference between two readings of a text."""

    def read(self) -> dict[int, Reading]:
        """What is read of each text that could be batched, by its number."""
        by_number = dict[int, Reading]()
        waiting = list(self.items)
        while self.compatibility.grouping != "none" and waiting:
            plan = batches(
                waiting,
                self.lengths.__getitem__,
                tokens=self.compatibility.tokens,
                most=self.most,
                even=self.compatibility.grouping == "even",
            )
            batch = next(plan)
            if len(batch) > 1:
                read = self._attempt([self.items[number] for number in batch])
                if read is None:
                    continue
                by_number |= dict(
                    zip(batch, read, strict=False)
                )  # none where each needs its own pass
            waiting = [number for number in waiting if number not in batch]
        return by_number

    def _attempt(self, batch: Sequence[EncodedQuery]) -> list[Reading] | None:
        """What is read of each text; []: read each one alone; None: make new batches."""
        mode = self._mode_of(batch)
        is_proven = mode in self.compatibility.calls
        try:
            readings = self.run(batch, mode)
            off = 0.0 if is_proven else self.compare(batch[0], readings[0], mode)
            alike = off <= self.tolerance_for(batch[0], off)
        except devices.NotEnoughMemoryError:
            return self._halve(batch)
        except (NotFiniteError, UsageError):
            return []  # read alone, each text shows whether it is to blame
        except AttnvizError as error:
            if is_proven:
                return []
            # A model without weights is refused again when a text is read alone.
            why = "" if isinstance(error, AttentionError) else first_line(error)
            self._fall_back(mode, why)
            return None
        if not alike:
            kind = self.source.model.config.model_type
            self._fall_back(mode, f"'{kind}' gives a text other weights, off by {off:.1g}")
            return None
        return readings

    def compare(self, item: EncodedQuery, reading: Reading, mode: BatchMode) -> float:
        """How far a text's numbers differ in a batch."""
        off = self.distance(self.read_alone(item), reading)
        self.compatibility.calls[mode] = None
        return off

    def _mode_of(self, batch: Sequence[EncodedQuery]) -> BatchMode:
        sides = {tuple(item.sides.values()) for item in batch}
        longest = max(max(side) for item in batch for side in item.sides.values())
        eager = self.compatibility.eager and longest <= SHORT
        return BatchMode("even" if len(sides) == 1 else "padded", eager)

    def tolerance_for(self, item: EncodedQuery, off: float) -> float:
        """The allowed difference of a batched reading, if rounding alone changes it by `off`."""
        limit = passes.TOLERANCE.get(devices.computed_dtype(self.source.model), 1e-5)
        if not limit < off <= LEAK:
            return limit
        plain = self.read_alone(item)
        with perturb_embeddings(self.source.model):
            return max(limit, ROUNDINGS * self.distance(plain, self.read_alone(item)))

    def _fall_back(self, mode: BatchMode, why: str) -> None:
        self.compatibility.calls.pop(mode, None)
        if mode.eager:
            self.compatibility.eager = False
            return
        self.compatibility.grouping = FALL_BACK[mode.grouping]
        if why and mode.grouping == "even":
            notify(f"texts are read one by one, because in a batch {why}")
        elif why:
            notify(f"only texts of equal length are read together, because with padding {why}")

    def _halve(self, batch: Sequence[EncodedQuery]) -> list[Reading] | None:
        import torch

        if len(batch) == 2:
            return []
        longest = max(sum(map(len, item.tokens.values())) for item in batch)
        self.compatibility.tokens = len(batch) * longest // 2
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        notify(f"the memory ran out with {len(batch)} texts at once: fewer are read together now")
        return None


class MapRunner(BatchRunner[Read]):
    """Reads the maps of texts, and the logits of what a model decides."""

    def attend(self) -> dict[int, attention_map.Attention]:
        """The attention of each text that could be batched, by its number."""
        task = self.source.task
        return {
            number: self.items[number].build_attention(captures, task, logits)
            for number, (captures, logits) in self.read().items()
        }

    def run(self, batch: Sequence[EncodedQuery], mode: BatchMode) -> list[Read]:
        model = self.source.model
        rows = [item.inputs for item in batch]
        inputs = pad_inputs(rows, input_names(self.part), self.padding, model.device)
        sides = [item.sides for item in batch]
        calls = self.compatibility.calls.get(mode)
        eager = kernel.eager_attention(model) if mode.eager else nullcontext()
        with family.record_logits(model) as logits, eager:
            by_text = capture_many(self.part, inputs, sides, calls)
        lengths = [len(next(iter(item.tokens.values()))) for item in batch]
        return [
            (captures, logits_of(logits[0] if logits else None, number, length))
            for number, (captures, length) in enumerate(zip(by_text, lengths, strict=True))
        ]

    def compare(self, item: EncodedQuery, reading: Read, mode: BatchMode) -> float:
        # Also notes what a pass has to read.
        alone = self.read_alone(item)
        layers = sum(len(one.layers) for one in alone[0])
        if alone[0][0].route == EAGER_ROUTE:
            layers = 0
        to_end = self.source.task is not None or hasattr(self.source.model, "hf_device_map")
        self.compatibility.calls[mode] = None if to_end else layers
        return self.distance(alone, reading)

    def read_alone(self, item: EncodedQuery) -> Read:
        """A text read alone, by the model's own kernel."""
        return self.run([item], BatchMode("even", eager=False))[0]

    def distance(self, one: Read, other: Read) -> float:
        """The largest difference between two readings of a text, in weights and relative logits."""
        off = max(
            float(np.abs(mine.weights - its.weights).max())
            for mine, its in zip(one[0], other[0], strict=True)
        )
        if self.source.task is None or one[1] is None or other[1] is None:
            return off
        scale = 1 + float(one[1].abs().max())
        return max(off, float((one[1] - other[1]).abs().max()) / scale)


def pad_inputs(
    rows: Sequence[Mapping[str, Sequence[int]]], names: set[str], padding: int, device: Any
) -> dict[str, Any]:
    """The inputs of texts as tensors, padded behind; a mask only if the lengths differ."""
    import torch

    batch = {name: [row[name] for row in rows] for name in rows[0] if name in names}
    for name, mask in MASKS.items():
        lengths = {len(row) for row in batch.get(name, ())}
        if len(lengths) > 1 and mask not in batch and (mask in names or name == "input_ids"):
            batch[mask] = [[1] * len(row) for row in batch[name]]
    tensors = {}
    for name, lists in batch.items():
        fill = padding if name in MASKS else 0
        array = np.full((len(lists), max(map(len, lists))), fill, dtype=np.int64)
        for line, row in zip(array, lists, strict=True):
            line[: len(row)] = row
        tensors[name] = torch.from_numpy(array).to(device)
    return with_boxes(tensors, names)


def _padding_id(source: LoadedModel) -> int:
    """The id of the padding token, or 0: the mask hides any id."""
    size = source.vocabulary
    config = source.model.config.get_text_config()
    numbers = (getattr(config, "pad_token_id", None), source.tokenizer.pad_token_id)
    return next((number for number in numbers if number is not None and 0 <= number < size), 0)


def logits_of(logits: Any, number: int, length: int) -> Any:
    if logits is None:
        return None
    own = logits[number : number + 1]
    return own[:, :length] if own.ndim == 3 else own


@contextmanager
def perturb_embeddings(model: Any) -> Iterator[None]:
    """Change each number of the embeddings by one rounding step, up or down at random."""
    import torch

    def round_off(module: Any, inputs: Any, output: Any) -> Any:
        generator = torch.Generator().manual_seed(0)
        up = torch.randint(0, 2, output.shape, generator=generator).to(output) * 2 - 1
        return output * (1 + torch.finfo(output.dtype).eps * up)

    with ExitStack() as hooks:
        for part in model.modules():
            if isinstance(part, torch.nn.Embedding):
                hooks.enter_context(part.register_forward_hook(locks.thread_hook(round_off)))
        yield


def map_bytes(encoding: EncodedQuery, heads: dict[str, int]) -> int:
    size = 0
    for stream, (queries, keys) in encoding.sides.items():
        if stream not in heads:
            heads[stream] = heads_of(encoding.part.config, stream)
        size += 4 * heads[stream] * queries * keys
    return size


def memory_budget() -> int:
    """The bytes of maps held at once: one of two sizes, so that most machines batch alike."""
    import torch

    scarce = devices.free_bytes(torch.device("cpu")) <= 4 * MEMORY_BUDGET
    return MEMORY_BUDGET // 8 if scarce else MEMORY_BUDGET
