"""A pretrained text model as a source of attention."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, TypeVar

from attnviz.core import effects, lens_inputs
from attnviz.core.attention_map import IMPLIED, Attention
from attnviz.core.errors import AttentionError, AttnvizError, InputError, ModelError, UsageError
from attnviz.core.options import InMemoryModel
from attnviz.core.query import Query
from attnviz.core.records import dataclass, field, replace
from attnviz.core.registry import ANSWERS, HEAD_STEPS
from attnviz.mechanisms.formula import HeadArithmetic
from attnviz.models.hugging_face import batching, eager, loaded_model
from attnviz.models.hugging_face.capture.implied import has_attention, mixers_of
from attnviz.models.hugging_face.capture.region import DEFAULT_SIZE
from attnviz.models.hugging_face.inputs.chat import render_messages
from attnviz.models.hugging_face.inputs.encoding import EncodedQuery, encode
from attnviz.models.hugging_face.inputs.generation import set_languages, writer_class
from attnviz.models.hugging_face.load import loading
from attnviz.models.hugging_face.load.family import HEADLESS, check_family, family_of, reading_limit
from attnviz.models.hugging_face.load.imports import quiet
from attnviz.storage.texts import chunks_by_memory

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class HuggingFaceModel(loaded_model.LoadedModel):
    """A pretrained model that answers queries of the kinds "self", "pair" and "cross".

    Each text is tokenized once: the last chunk of encoded queries is kept for gradients and values.
    """

    answers = ANSWERS["text"]

    _encodings: dict[Query, EncodedQuery | AttnvizError] = field(
        default_factory=dict, init=False, repr=False
    )

    def attend(
        self, queries: Sequence[Query], *, batch_size: int | None = None
    ) -> Iterator[Attention | InputError]:
        """Each query's maps, or its error, in order.

        Texts of similar length are padded and read in one pass; `hugging_face.batching` checks that
        padding changes nothing.
        """

        def read(items: Mapping[int, EncodedQuery]) -> dict[int, Attention]:
            return batching.MapRunner(self, items, batch_size).attend()

        return self.read_together(queries, read, self._attend_one)

    def read_together(
        self,
        queries: Sequence[Query],
        read: Callable[[Mapping[int, EncodedQuery]], dict[int, Answer]],
        read_alone: Callable[[Query], Answer | InputError],
        arrays: int = 1,
    ) -> Iterator[Answer | InputError]:
        """What is read of each query, in order; it takes so many times the bytes of its maps."""
        for query in self._encodings.keys() - set(queries):
            del self._encodings[query]
        budget = batching.memory_budget()
        heads = dict[str, int]()
        # What lenses refuse is refused of a text alone.
        alone = bool(mixers_of(self.model)) or (
            arrays > 1 and not self.region.is_default
        )  # a scan reads padding: each text has its own pass
        with quiet():
            encodings = [None if alone else self._encode_for_batch(query) for query in queries]
        sizes = [0 if item is None else batching.map_bytes(item, heads) for item in encodings]
        # A text with large maps is read alone.
        sizes = [0 if 8 * size > budget else arrays * size for size in sizes]
        for chunk in chunks_by_memory(sizes, budget):
            items = {n: item for n in chunk if sizes[n] and (item := encodings[n]) is not None}
            with quiet():
                readings = read(items) if len(items) >= batching.FEW else {}
            for number in chunk:
                yield (readings.pop(number) if number in readings else read_alone(queries[number]))

    def render(self, messages: Sequence[Mapping[str, Any]], tools: Any = None) -> str:
        return render_messages(self.tokenizer, messages, self.name, tools=tools)

    def values(self, query: Query) -> lens_inputs.ValueVectors:
        with quiet():
            return eager.value_vectors(eager.eager_inputs(self, self.encode_whole(query)))

    def head_arithmetic(self, query: Query, which: effects.HeadAt) -> HeadArithmetic:
        encoding = self.encode_whole(query)
        inputs = self.tensors(encoding.inputs, encoding.part)
        with quiet():
            steps: HeadArithmetic = HEAD_STEPS.load()(replace(encoding, inputs=inputs), which)
            return steps

    def _attend_one(self, query: Query) -> Attention | InputError:
        try:
            with quiet():
                return batching.read_one(self, self.encode(query), query.in_blocks)
        except InputError as error:
            return error

    def encode(self, query: Query) -> EncodedQuery:
        if query not in self._encodings:
            try:
                self._encodings[query] = encode(self, query)
            except AttnvizError as error:
                self._encodings[query] = error
        encoding = self._encodings[query]
        if isinstance(encoding, AttnvizError):
            raise encoding
        return encoding

    def _encode_for_batch(self, query: Query) -> EncodedQuery | None:
        """A query that can be batched; None if it needs its own pass or fails.

        Texts that the model writes, parts of texts and pooled texts need their own pass. An error
        is raised when the query's turn comes.
        """
        region = self.region
        is_written = query.kind == "cross" and query.target is None
        alone = region.rows or region.window or region.keep_qk or region.indexer
        if self.max_new_tokens is not None or is_written or alone:
            return None
        try:
            encoding = self.encode(query)
        except AttnvizError:
            return None
        longest = max(map(len, encoding.tokens.values()))
        most = None if query.in_blocks else region.max_size
        return None if longest > (most or DEFAULT_SIZE) else encoding

    def encode_whole(self, query: Query) -> EncodedQuery:
        """A query whose every weight is read."""
        if not self.region.is_default:
            raise UsageError(
                "gradients, effects and norms need every weight: leave --max-size, --rows and "
                "--window out"
            )
        if mixers_of(self.model) and not has_attention(self.model):
            raise AttentionError(
                f"'{self.name}' has no attention weights, and the matrices of its layers, stream "
                f"'{IMPLIED}', have no gradients, effects or norms: use --lens raw"
            )
        if query not in self._encodings:
            self._encodings.clear()
        with quiet():
            return self.encode(query)


def load_model(
    name: str | InMemoryModel,
    *,
    generate: int | None = None,
    chat: bool = False,
    with_head: bool = False,
    languages: tuple[str | None, str | None] = (None, None),
    class_of: Callable[[Any], Any] = lambda _config: None,
    **options: Any,
) -> HuggingFaceModel:
    """A model of texts; `class_of` may choose the class that loads a configuration's model."""
    terms = loading.LoadOptions(**options)

    def kind_of(config: Any) -> Any:
        if (own := class_of(config)) is not None:
            return own
        if generate is not None:
            return writer_class(config, str(name))
        return loading.model_class(config, with_head=with_head)

    load_reader: Callable[..., Any] = partial(loading.load_tokenizer, allow_code=terms.allow_code)
    parts = loading.load_parts(name, terms, load_reader, kind_of)
    model, provenance = parts.model, parts.provenance
    if type(model).__name__.endswith(HEADLESS):
        model = model.base_model
    if (tower := text_tower(model)) is not model:
        note = "of its towers the one for texts is shown"
        model, provenance = tower, replace(provenance, notes=(*provenance.notes, note))
    if model.main_input_name != "input_ids":
        kinds = {"pixel_values": "image", "input_features": "audio", "input_values": "audio"}
        command = kinds.get(model.main_input_name)
        use = f": use 'attnviz {command}'" if command else ""
        raise ModelError(
            f"'{name}' ({model.config.model_type}) does not read text: it asks for "
            f"'{model.main_input_name}'{use}"
        )
    if not hasattr(parts.reader, "convert_ids_to_tokens"):
        raise UsageError(f"a text needs a tokenizer: a {type(parts.reader).__name__} reads none")
    if not mixers_of(model):
        check_family(model.config, 0)
    # A tokenizer from Python stays as it is.
    reader = deepcopy(parts.reader) if hasattr(parts.reader, "src_lang") else parts.reader
    first_token, notes = set_languages(model, reader, languages, str(name))
    provenance = replace(provenance, notes=(*provenance.notes, *notes))
    family = family_of(model)
    return HuggingFaceModel(
        name=str(name),
        model=model,
        tokenizer=reader,
        family=family,
        limit=reading_limit(model, parts.reader),
        provenance=replace(provenance, settings={**provenance.settings, "family": family}),
        can_generate=model.can_generate()
        and not any("lm_head" in key for key in parts.report["missing_keys"]),
        max_new_tokens=generate,
        chat_template=chat,
        task=parts.task,
        first_token=first_token,
    )


def text_tower(model: Any) -> Any:
    """The part of a model of two towers (CLIP) that reads texts; else the model itself."""
    whole = model.base_model
    if not any(name.startswith("get_text_") for name in dir(type(whole))):
        return model
    towers = (getattr(whole, name, None) for name in ("text_model", "text_encoder_model"))
    return next((tower for tower in towers if hasattr(tower, "main_input_name")), model)
