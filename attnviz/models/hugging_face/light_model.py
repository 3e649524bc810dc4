"""A checkpoint that numpy runs: its weights in the answer's first half second, without torch.

What the network inside cannot do (gradients, effects, long texts, many) is asked of transformers,
which loads the same checkpoint then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from attnviz.core.attention_map import Attention, Projections, Provenance, check_finite
from attnviz.core.effects import Experiment, HeadOutputs, Intervention
from attnviz.core.errors import InputError, ModelError, UsageError
from attnviz.core.lens_inputs import AttentionGradients, ValueVectors, inner_products
from attnviz.core.notices import explain
from attnviz.core.options import Origin
from attnviz.core.query import Query
from attnviz.mechanisms.arrays import Array
from attnviz.models import Predicting, WithHead
from attnviz.models.hugging_face.batching import FEW
from attnviz.models.hugging_face.capture.capture import Captured
from attnviz.models.hugging_face.capture.region import Region
from attnviz.models.hugging_face.inputs.encoding import EncodedQuery, encode
from attnviz.models.hugging_face.inputs.generation import new_text, room_after
from attnviz.models.hugging_face.inputs.light_tokenizer import load_light_tokenizer
from attnviz.models.hugging_face.load.checkpoint import Checkpoint, check_folder, read_json
from attnviz.models.hugging_face.load.family import UNLIMITED, Family
from attnviz.models.hugging_face.load.locate import display_name, locate
from attnviz.models.hugging_face.load.tasks import SUFFIXES
from attnviz.models.hugging_face.loaded_model import LoadedModel
from attnviz.models.hugging_face.outputs import choose_outputs, no_head, spell_piece
from attnviz.models.light.architectures import ARCHITECTURES, Architecture
from attnviz.models.light.experiment import LanguageHead, NetworkExperiment, head_of
from attnviz.models.light.network import (
    Cache,
    Network,
    Record,
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

    from attnviz.core.writers import HeadWeights, WriterKind, WrittenText
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

GENERATION = (
    "_from_model_config bos_token_id cache_implementation do_sample eos_token_id max_length "
    "max_new_tokens num_beams num_return_sequences output_attentions output_hidden_states "
    "pad_token_id return_dict_in_generate temperature top_k top_p transformers_version use_cache"
)
"""Keys of generation_config.json that change no greedy text, or that are read here."""


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
class LightModel(LoadedModel, Predicting, Network):
    """A pretrained text model that numpy runs, for queries of the kinds "self" and "pair"."""

    whole: WholeModel[HuggingFaceModel]
    architecture: Architecture
    sizes: Shape
    streams: Mapping[str, str]
    weights: CheckpointWeights
    numbers: int  # of weights
    offset: int  # unused positions before the first
    head: LanguageHead | None = None
    ends: frozenset[int] = frozenset()  # tokens at which it ends a text

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
            yield one if isinstance(one, InputError) else self.run(one)[0]

    @property
    def kind(self) -> str:
        """The architecture as transformers calls it."""
        return str(self.provenance.settings["architecture"])

    @property
    def vocabulary(self) -> int:
        """How many tokens the model has embeddings for."""
        return self.sizes.vocabulary

    def values(self, query: Query) -> ValueVectors:
        """What each head adds for each token of a query."""
        encoded = self._encode_text(query)
        if reason := self._refuse([encoded]):
            return self.whole(reason).values(query)
        seen = Record()
        attention, _ = self.run(encoded, seen)
        return value_vectors(self.weights, self.sizes, attention, seen)

    def experiment(self, query: Query, wanted: str | None = None) -> Experiment:
        """The model and a query, to run with parts of the model switched off."""
        encoded = self._encode_text(query)
        if reason := self._refuse([encoded]):
            return self.whole(reason).experiment(query, wanted)
        if self.head is None:
            raise no_head(self.name, self.kind)
        return LightExperiment(self, query, encoded, wanted)

    def written(self, query: Query) -> WrittenText:
        """A query with what each part of the model writes."""
        encoded = self._encode_text(query)
        if reason := self._refuse([encoded]):
            return self.whole(reason).written(query)
        if self.head is not None and not self.head.is_linear:
            return self.whole("the head is not linear").written(query)
        from attnviz.models.light.written import Stack, StackedText

        (attention, _), embedded = self.run(encoded), self.embed_parts(encoded.inputs)
        stack = Stack(self.weights, self.sizes, attention.main.stream, embedded)
        scores = partial(self.scores, self.weights) if self.head is not None else None
        return StackedText(attention, [stack], scores, partial(spell_piece, self))

    def head_weights(self) -> tuple[list[HeadWeights], Provenance]:
        """The maps of each head, without a text, and where they come from."""
        from attnviz.models.light.written import head_weights

        words, head = self.architecture.words, self.head
        known = head is not None and head.is_linear and not self.architecture.projected
        tokens = (words, head.maps) if known and head is not None else None
        ((stream, _),) = self.streams.items()
        return head_weights(self.weights, self.sizes, (stream, ""), tokens), self.provenance

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

    def _encode_text(self, query: Query) -> EncodedQuery:
        if query.kind == "pair":
            raise UsageError("a sentence pair is seen through --lens raw, rollout or flow only")
        return encode(self, query)

    def run(self, encoded: EncodedQuery, seen: Record | None = None) -> tuple[Attention, Any]:
        """The maps of a query, and the last states (tokens, size)."""
        shape, seen = self.sizes, Record() if seen is None and self.region.keep_qk else seen
        ((stream, _),) = encoded.axes.items()
        inputs = self.inputs(encoded.inputs)[0]
        states, found = capture_pass(self.weights, shape, inputs, stream, seen)
        if self.region.keep_qk and seen is not None:
            query, key, value = (
                np.stack([getattr(one, side) for one in seen]) for side in ("query", "key", "value")
            )
            more = f"a soft cap of {shape.cap:g}" if shape.cap else ""
            heads = tuple(map(str, range(shape.heads)))
            from attnviz.analyses.entropy import peak

            peaks = tuple(peak(one.residual) for one in seen)
            facts = shape.factor, found.layers, heads, more, value, peaks
            projections = Projections(query, key, *facts)
            found = replace(found, projections=projections)
        return encoded.build_attention([found], None, None), states

    def scores(self, weights: Weights, states: Array) -> Array:
        """Scores of every token, for states (…, size)."""
        assert self.head is not None
        return self.head.predict(weights, self.sizes, states)

    def inputs(self, given: Mapping[str, Sequence[int]]) -> tuple[NDArray[np.float32]]:
        """The inputs of the first layer, shape (tokens, size)."""
        return (np.asarray(sum(self.embed_parts(given).values())),)

    def embed_parts(
        self, inputs: Mapping[str, Sequence[int]]
    ) -> dict[WriterKind, NDArray[np.float32]]:
        """The inputs of the first layer by what they come from: they sum to the whole."""
        about, ids = self.architecture, np.asarray(inputs["input_ids"])
        words = self.weights.rows(f"{about.words}.weight", ids)
        if about.scaled:
            words = words * np.float32(self.sizes.size**0.5)
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
            found = normalise(self.weights, self.sizes, about.embedding_norm, found, whole, 0)
        if about.projected and f"{about.projected}.weight" in self.weights:
            found = linear_map(self.weights, about.projected, found, 0)
        return dict(zip(names, found, strict=True))


def capture_pass(
    weights: Weights, shape: Shape, inputs: Array, stream: str, seen: Record | None
) -> tuple[Array, Captured]:
    """The last states of a pass and its weights; each attention is added to those seen."""
    with np.errstate(all="ignore"):
        states, own, _ = run_layers(weights, shape, inputs, watch=seen)
    layers, heads = (tuple(map(str, range(count))) for count in (shape.layers, shape.heads))
    check_finite(found := np.stack(own), stream, layers, heads, "float32", "the attention")
    return states, Captured(stream, layers, found, route=ROUTE)


def value_vectors(
    weights: Weights, shape: Shape, attention: Attention, seen: Record
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
    head: LanguageHead | None = None


def open_checkpoint(
    origin: Origin,
    name: str,
    needs: Mapping[str, bool],
    *,
    of_pictures: bool = False,
    with_head: WithHead = False,
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
    expected, head = about.expected(config, shape), None
    if with_head and (head := head_of(config, about.model)) is not None:
        weights.add_head(head)
        width = config.get(about.width, shape.size)
        expected = chain(expected, head.expected(shape, width))
    weights.check(expected)
    return LightCheckpoint(folder, checkpoint, about, shape, weights, head)


class LightExperiment(NetworkExperiment):
    """A model that numpy runs, and a text; gradients are asked of transformers."""

    model: LightModel

    def __init__(
        self, model: LightModel, query: Query, encoded: EncodedQuery, wanted: str | None
    ) -> None:
        seen = Record()
        attention, states = model.run(encoded, seen)
        super().__init__(model, encoded.inputs, attention)
        self.unchanged, self.query, self.wanted = seen, query, wanted
        scores = model.scores(model.weights, states[None])
        self.outputs = choose_outputs(model, encoded, scores, wanted)

    def run(
        self, changes: Sequence[Intervention], instead: HeadOutputs | None = None
    ) -> Iterator[NDArray[np.floating]]:
        """Log-probabilities of each output's choices, (outputs, choices), for each change."""
        model, links = self.model, sum(bool(one.links) for one in changes)
        # On torch a causal text is run again from a link's query on, here from its start.
        slow = links * len(self.given["input_ids"]) * model.numbers > MOST_WORK
        if slow and model.sizes.causal and not model.whole.forced:
            return self._whole(f"{links} links are many").run(changes, instead)
        return super().run(changes, instead)

    def spell(self, number: int) -> str:
        """A piece of the vocabulary as it is written."""
        return spell_piece(self.model, number)

    @np.errstate(all="ignore")
    def write(self, change: Intervention, instead: HeadOutputs | None = None) -> str | None:
        """What the model writes greedily after the text; None: it writes nothing."""
        model, before = self.model, list(self.given["input_ids"])
        if not model.can_generate:
            return None
        ids, edit, cache = list(before), self._edit([change], instead), Cache()
        for _ in range(room_after(before, model.limit)):
            (inputs,) = model.inputs({"input_ids": ids})
            states, *_ = run_layers(
                model.weights, model.sizes, inputs[None, cache.length :], watch=edit, cache=cache
            )
            ids.append(int(model.scores(model.weights, states[0, -1:])[0].argmax()))
            if ids[-1] in model.ends:
                break
        if len(ids) > len(before) and ids[-1] in {*model.ends, model.tokenizer.eos_token_id}:
            ids.pop()
        return new_text(model.tokenizer, before, ids[len(before) :])

    def gradients(self) -> tuple[NDArray[np.floating[Any]], ...]:
        """The gradients of the outputs' summed log p by each weight of each map."""
        return self._whole("gradients need torch").gradients()

    def output_gradients(self) -> HeadOutputs:
        """The gradients of the outputs' summed log p by each head's output."""
        return self._whole("gradients need torch").output_gradients()

    def explain_first(self) -> AttentionGradients:
        """The gradients of the first output's logit by each weight."""
        return self._whole("gradients need torch").explain_first()

    def _whole(self, reason: str) -> ModelExperiment:
        whole = self.model.whole(reason).experiment(self.query, self.wanted)
        whole.outputs = self.outputs
        return whole


def open_light(
    origin: Origin,
    name: str,
    region: Region,
    load_whole: Callable[[], HuggingFaceModel],
    *,
    with_head: WithHead = False,
) -> LightModel:
    """A model that numpy runs, `load_whole` loads it for what numpy cannot do."""
    needs = {
        GRADIENTS: with_head is True,
        "parts and blocks of a text need torch": not region.is_default,
        "--channels asks for torch": region.channels != "mean",
    }
    found = open_checkpoint(origin, name, needs, with_head=with_head)
    about, shape, config = found.architecture, found.shape, found.stored.config
    if any(one.endswith(tuple(SUFFIXES)) for one in config.get("architectures") or ()):
        raise UnknownArchitecture("a classifier's decision is wanted too")
    head = found.head
    named, writes = head.model if head else about.model, head is not None and shape.causal
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
        model=SimpleNamespace(
            config=SimpleNamespace(model_type=config["model_type"]),
            get_output_embeddings=lambda: head,
        ),
        tokenizer=tokenizer,
        family=family,
        limit=_limit(config, tokenizer.model_max_length, 0 if about.offset is not None else offset),
        provenance=describe_light(name, found, named, family=family),
        can_generate=writes,
        region=region,
        whole=WholeModel(load_whole, origin.arithmetic == "light"),
        architecture=about,
        sizes=shape,
        streams={"causal" if shape.causal else "self": f"{shape.layer}.{shape.attention.name}"},
        weights=found.weights,
        numbers=found.stored.numbers,
        offset=offset,
        head=head,
        ends=_ends_of(found.folder, config) if writes else frozenset(),
    )


def _ends_of(folder: Path, config: Mapping[str, Any]) -> frozenset[int]:
    """The tokens at which a model ends the text that it writes greedily."""
    file = folder / "generation_config.json"
    try:
        found = read_json(file) if file.is_file() else {"eos_token_id": config["eos_token_id"]}
        odd = found.keys() - {*GENERATION.split()}
        ends = found.get("eos_token_id")
    except (ModelError, KeyError, AttributeError) as error:
        raise UnknownArchitecture("its folder does not say how its texts end") from error
    ends = ends if isinstance(ends, list) else [] if ends is None else [ends]
    if odd or not all(isinstance(one, int) for one in ends):
        raise UnknownArchitecture("its generation_config.json changes what it writes")
    return frozenset(ends)


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
