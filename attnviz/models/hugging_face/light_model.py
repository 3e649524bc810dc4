"""A checkpoint that numpy runs: its weights in the answer's first half second, without torch.

What the network inside cannot do (gradients, effects, long texts, many) is asked of transformers,
which loads the same checkpoint then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from attnviz.core.attention_map import Attention, Projections, Provenance, check_finite
from attnviz.core.errors import InputError, UsageError
from attnviz.core.lens_inputs import ValueVectors, inner_products
from attnviz.core.notices import explain
from attnviz.core.options import Origin
from attnviz.core.query import Query
from attnviz.mechanisms.arrays import Array
from attnviz.models import Predicting
from attnviz.models.hugging_face.batching import FEW
from attnviz.models.hugging_face.capture.capture import Captured
from attnviz.models.hugging_face.capture.region import Region
from attnviz.models.hugging_face.inputs.encoding import EncodedQuery, encode
from attnviz.models.hugging_face.inputs.light_tokenizer import load_light_tokenizer
from attnviz.models.hugging_face.load.checkpoint import Checkpoint, check_folder
from attnviz.models.hugging_face.load.family import UNLIMITED, Family
from attnviz.models.hugging_face.load.locate import display_name, locate
from attnviz.models.hugging_face.load.tasks import SUFFIXES
from attnviz.models.hugging_face.loaded_model import LoadedModel
from attnviz.models.light.architectures import ARCHITECTURES, Architecture
from attnviz.models.light.network import (
    Attended,
    Shape,
    UnknownArchitecture,
    Weights,
    linear_map,
    normalise,
    run_layers,
)
from attnviz.models.light.weights import CheckpointWeights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnviz.core.writers import WriterKind, WrittenText
    from attnviz.mechanisms.formula import HeadArithmetic, HeadPlace
    from attnviz.models.hugging_face.experiment import ModelExperiment
    from attnviz.models.hugging_face.text_model import HuggingFaceModel

Loaded = TypeVar("Loaded")
GRADIENTS = "gradients and effects need torch"
ROUTE = "numpy"
MOST_NUMBERS = 400_000_000
"""Weights of the largest model that numpy runs."""
MOST_TOKENS = 512
"""Tokens of the longest text that numpy reads."""
MOST_WORK = 1e11
"""Weights times tokens of many texts that numpy has read before torch, which reads them in batches,
has started: 300 sentences for a MiniLM on one core."""


@dataclass
class WholeModel(Generic[Loaded]):
    """The same model of transformers, loaded at the first question that numpy does not answer."""

    load: Callable[[], Loaded]
    forced: bool  # whether torch may not answer instead
    model: Loaded | None = None

    def __call__(self, reason: str) -> Loaded:
        """The model, asked for a reason."""
        if self.forced:
            raise UsageError(f"--arithmetic light cannot do this, since {reason}: leave it out")
        if self.model is None:
            explain(f"torch calculates, since {reason}")
            self.model = self.load()
        return self.model


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LightModel(LoadedModel, Predicting):
    """A pretrained text model that numpy runs, for queries of the kinds "self" and "pair"."""

    whole: WholeModel[HuggingFaceModel]
    architecture: Architecture
    shape: Shape
    weights: CheckpointWeights
    numbers: int  # of weights
    offset: int  # unused positions before the first

    def attend(
        self, queries: Sequence[Query], *, batch_size: int | None = None
    ) -> Iterator[Attention | InputError]:
        """Each query's maps, or its error, in order."""
        encoded = [self._encode(query) for query in queries]
        reason = self._refuse([one for one in encoded if isinstance(one, EncodedQuery)])
        if reason:
            yield from self.whole(reason).attend(queries, batch_size=batch_size)
            return
        for one in encoded:
            yield one if isinstance(one, InputError) else self._attend_one(one)

    @property
    def kind(self) -> str:
        """The architecture as transformers calls it."""
        return self.architecture.model

    @property
    def vocabulary(self) -> int:
        """How many tokens the model has embeddings for."""
        return self.shape.vocabulary

    def values(self, query: Query) -> ValueVectors:
        """What each head adds for each token of a query."""
        if query.kind == "pair":
            raise UsageError("a sentence pair is seen through --lens raw, rollout or flow only")
        encoded = encode(self, query)
        if reason := self._refuse([encoded]):
            return self.whole(reason).values(query)
        seen = list[Attended]()
        attention = self._attend_one(encoded, seen)
        return value_vectors(self.weights, self.shape, attention, seen)

    def experiment(self, query: Query, wanted: str | None = None) -> ModelExperiment:
        """The model and a query, to run with parts of the model switched off."""
        return self.whole("effects and gradients are torch's").experiment(query, wanted)

    def written(self, query: Query) -> WrittenText:
        """A query with what each part of the model writes."""
        encoded = encode(self, query)
        if query.kind == "pair" or (reason := self._refuse([encoded])):
            return self.whole(reason if query.kind != "pair" else "of a pair").written(query)
        from attnviz.models.light.written import Stack, StackedText

        attention, embedded = self._attend_one(encoded), self.embed_parts(encoded.inputs)
        stack = Stack(self.weights, self.shape, attention.main.stream, embedded)
        return StackedText(attention, [stack], None)

    def head_arithmetic(self, query: Query, which: HeadPlace) -> HeadArithmetic:
        """The numbers of one head, from its layer's input to what it adds to it."""
        return self.whole("each step of a head is torch's").head_arithmetic(query, which)

    def _encode(self, query: Query) -> EncodedQuery | InputError:
        try:
            return encode(self, query)
        except InputError as error:
            return error

    def _refuse(self, encoded: Sequence[EncodedQuery]) -> str:
        """Why torch should answer, by the texts alone, so that workers agree; "": numpy does."""
        lengths = [len(one.ids("text")) for one in encoded]
        padding = self.offset - 1 if self.architecture.offset is None else -1
        if any(padding in one.ids("text") for one in encoded):
            return "the text holds the padding's token"
        if max(lengths, default=0) > MOST_TOKENS:
            return f"a text has more than {MOST_TOKENS} tokens"
        if len(encoded) >= FEW and sum(lengths) * self.numbers > MOST_WORK:
            return f"{len(lengths)} texts are many for a model of {self.numbers:,} weights"
        return ""

    def _attend_one(self, encoded: EncodedQuery, seen: list[Attended] | None = None) -> Attention:
        shape, kept = self.shape, [] if seen is None and self.region.keep_qk else seen
        ((stream, _),) = encoded.axes.items()
        inputs = self.embed(encoded.inputs)
        _, found = capture_pass(self.weights, shape, inputs, stream, kept)
        if self.region.keep_qk:
            query, key = (
                np.stack([getattr(one, n) for one in kept or ()]) for n in ("query", "key")
            )
            more = f"a soft cap of {shape.cap:g}" if shape.cap else ""
            heads = tuple(map(str, range(shape.heads)))
            projections = Projections(query, key, shape.factor, found.layers, heads, more)
            found = replace(found, projections=projections)
        return encoded.build_attention([found], None, None)

    def embed(self, inputs: Mapping[str, Sequence[int]]) -> NDArray[np.float32]:
        """The inputs of the first layer, shape (tokens, size)."""
        return np.asarray(sum(self.embed_parts(inputs).values()))

    def embed_parts(
        self, inputs: Mapping[str, Sequence[int]]
    ) -> dict[WriterKind, NDArray[np.float32]]:
        """The inputs of the first layer by what they come from: they sum to the whole."""
        about, ids = self.architecture, np.asarray(inputs["input_ids"])
        words = self.weights.rows(f"{about.words}.weight", ids)
        if about.scaled:
            words = words * np.float32(self.shape.size**0.5)
        if about.types:
            types = np.asarray(inputs.get("token_type_ids", np.zeros_like(ids)))
            words = words + self.weights.rows(f"{about.types}.weight", types)
        parts = [np.zeros_like(words), words]
        names: list[WriterKind] = ["bias", "embedding"]
        if about.positions:
            places = np.arange(self.offset, self.offset + len(ids))
            parts.append(self.weights.rows(f"{about.positions}.weight", places))
            names.append("position")
        found = np.stack(parts)
        if about.embedding_norm:
            whole = found.sum(axis=0)
            found = normalise(self.weights, self.shape, about.embedding_norm, found, whole, 0)
        if about.projected and f"{about.projected}.weight" in self.weights:
            found = linear_map(self.weights, about.projected, found, 0)
        return dict(zip(names, found, strict=True))


def capture_pass(
    weights: Weights, shape: Shape, inputs: Array, stream: str, seen: list[Attended] | None
) -> tuple[Array, Captured]:
    """The last states of a pass and its weights; each attention is added to those seen."""

    def watch(one: Attended) -> Array:
        if seen is not None:
            seen.append(one)
        return one.output

    with np.errstate(all="ignore"):
        states, own, _ = run_layers(weights, shape, inputs, watch=watch)
    layers, heads = (tuple(map(str, range(count))) for count in (shape.layers, shape.heads))
    check_finite(found := np.stack(own), stream, layers, heads, "float32", "the attention")
    return states, Captured(stream, layers, found, route=ROUTE)


def value_vectors(
    weights: Weights, shape: Shape, attention: Attention, seen: Sequence[Attended]
) -> ValueVectors:
    """What each head adds for each token, of the attentions of one pass."""
    block, products = shape.attention, []
    for number, one in enumerate(seen):
        matrix = weights[f"{one.name}.{block.maps[3]}.weight"].T
        if block.scale:
            matrix = matrix * weights[f"{shape.layer.format(number)}.{block.scale}"]
        products.append(inner_products(one.value, matrix))
    return ValueVectors(attention, (np.stack(products),), projected=True)


@dataclass(frozen=True, slots=True)
class LightCheckpoint:
    """A folder whose weights the network inside runs."""

    folder: Path
    stored: Checkpoint
    architecture: Architecture
    shape: Shape
    weights: CheckpointWeights


def open_checkpoint(
    origin: Origin, name: str, needs: Mapping[str, bool], *, of_pictures: bool = False
) -> LightCheckpoint:
    """A checkpoint that numpy runs, unless one of the needs is there; each says why.

    Raises:
        UnknownArchitecture: why transformers has to load it.
        ModelError: it cannot be loaded at all.
    """
    needs = {
        f"--device {origin.device} asks for torch": origin.device not in ("auto", "cpu"),
        f"--dtype {origin.dtype} asks for torch": origin.dtype not in (None, "float32"),
        "--device-map asks for torch": origin.device_map is not None,
        "an adapter is to be merged": origin.adapter is not None,
        "--generate and --chat need torch": origin.generate is not None or origin.chat,
        **needs,
    }
    for reason, needed in needs.items():
        if needed:
            raise UnknownArchitecture(reason)
    folder = locate(name, origin.revision, allow_code=origin.allow_code)
    checkpoint = check_folder(folder, allow_pickle=origin.allow_pickle)
    config, kind = dict(checkpoint.config), checkpoint.config["model_type"]
    about = ARCHITECTURES.get(kind)
    if about is None or of_pictures != bool(about.keys.get("patch")):
        raise UnknownArchitecture(f"the network inside has no architecture '{kind}'")
    if checkpoint.pickled or checkpoint.numbers > MOST_NUMBERS:
        reason = "are a pickle" if checkpoint.pickled else f"are {checkpoint.numbers:,}"
        raise UnknownArchitecture(f"its weights {reason}")
    shape = about.shape_of(config)
    weights = CheckpointWeights(checkpoint.files, about, shape)
    weights.check(about.expected(config, shape))
    return LightCheckpoint(folder, checkpoint, about, shape, weights)


def open_light(
    origin: Origin,
    name: str,
    region: Region,
    load_whole: Callable[[], HuggingFaceModel],
    *,
    with_head: bool = False,
) -> LightModel:
    """A model that numpy runs, `load_whole` loads it for what numpy cannot do."""
    needs = {
        GRADIENTS: with_head,
        "parts and blocks of a text need torch": not region.is_default,
        "--channels asks for torch": region.channels != "mean",
    }
    found = open_checkpoint(origin, name, needs)
    about, shape, config = found.architecture, found.shape, found.stored.config
    if any(one.endswith(tuple(SUFFIXES)) for one in config.get("architectures") or ()):
        raise UnknownArchitecture("a classifier's decision is wanted too")
    tokenizer = load_light_tokenizer(found.folder, about.tokenizer)
    if not about.types and "token_type_ids" in tokenizer.names and about.tokenizer[:4] == "GPT2":
        raise UnknownArchitecture("its tokenizer gives types of tokens")
    padding = config.get("pad_token_id", 1)
    if about.offset is None and not isinstance(padding, int):
        raise UnknownArchitecture("its padding has no number")
    offset = padding + 1 if about.offset is None else about.offset
    family: Family = "decoder-only" if shape.causal else "encoder-only"
    return LightModel(
        name=name,
        model=SimpleNamespace(config=SimpleNamespace(model_type=config["model_type"])),
        tokenizer=tokenizer,
        family=family,
        limit=_limit(config, tokenizer.model_max_length, 0 if about.offset is not None else offset),
        provenance=describe_light(name, found, about.model, family=family),
        region=region,
        whole=WholeModel(load_whole, origin.arithmetic == "light"),
        architecture=about,
        shape=shape,
        weights=found.weights,
        numbers=found.stored.numbers,
        offset=offset,
    )


def _limit(config: Mapping[str, Any], most: Any, reserved: int) -> int | None:
    """How many tokens a model reads, as `reading_limit` has it."""
    positions = config.get("max_position_embeddings") or config.get("n_positions")
    limits = [most, positions]
    if any(isinstance(one, bool) or not isinstance(one, int | float) for one in limits):
        raise UnknownArchitecture("its limit of tokens is no number")
    limits[1] -= reserved
    return min((int(one) for one in limits if 0 < one < UNLIMITED), default=None)


def describe_light(name: str, found: LightCheckpoint, model: str, **more: str) -> Provenance:
    """The provenance of what a checkpoint answers, as transformers' class of that name."""
    called, folder = display_name(name, found.stored.config), found.folder
    settings = {
        "folder": None if called == name else name,
        "revision": folder.name if folder.parent.name == "snapshots" else None,
        "stored_as": ", ".join(found.stored.dtypes) or None,
        "architecture": model,
        "model_type": found.stored.config["model_type"],
        "attention": ROUTE,
        **more,
    }
    return Provenance(
        source="hugging face",
        model=called,
        trained=True,
        settings={key: value for key, value in settings.items() if value is not None},
        versions={"numpy": np.__version__},
    )
