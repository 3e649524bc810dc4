"""Models that compute attention by hand, and hand it over only when they run eagerly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnviz.core.attention_map import Attention, Provenance, Token
from attnviz.core.errors import UsageError
from attnviz.models.hugging_face.capture.capture import HANDED_OVER, group
from attnviz.models.hugging_face.capture.kernel import ATTENTIONS, eager_twin
from attnviz.models.hugging_face.capture.maps import as_map, with_routes
from attnviz.models.hugging_face.capture.passes import highest, read_layers
from attnviz.models.hugging_face.load.devices import BYTES, check_fit
from attnviz.models.hugging_face.load.family import check_family
from attnviz.models.hugging_face.model import HuggingFaceModel

if TYPE_CHECKING:
    from torch import Tensor


# <whole> One pass of transformers' own eager attention, whose matrices stay tensors for lenses to
# use.
#
# It costs the whole matrices, layers × heads × queries × keys of them, so memory is estimated
# first.


@dataclass(frozen=True, slots=True, eq=False)
class EagerInputs:
    """What a model reads in one pass.

    Attributes:
        part: the model, or its encoder alone, attending eagerly.
        inputs: tensors by name, a batch of one.
        sides: for each stream the texts of its queries and keys, the main stream first.
        tokens: of each text.
        ids: the tokens' numbers in the vocabulary.
        provenance: of what comes out.
        texts: what was read, as `Attention` names it.
        what: "text" or "picture".
    """

    part: Any
    inputs: Mapping[str, Any]
    sides: Mapping[str, tuple[str, str]]
    tokens: Mapping[str, tuple[Token, ...]]
    ids: Mapping[str, list[int]]
    provenance: Provenance
    texts: Mapping[str, str]
    what: str = "text"


def read_self(model: HuggingFaceModel, text: str) -> EagerInputs:
    """A text as the model, or the encoder of one with two halves, reads it.

    Raises:
        UsageError: only a part of the attention was asked for.
        InputError: the text is blank or too long.
        ModelError: the tokenizer and the model do not belong together.
    """
    check_whole(model)
    text, read, provenance = model.read_alone(text)
    encoder = model.family == "encoder–decoder"
    stream = {"encoder-only": "self", "decoder-only": "causal"}.get(model.family, "encoder")
    part = model.model.get_encoder() if encoder else model.model
    return EagerInputs(
        eager_twin(part),
        model.tensors(read.inputs, part),
        {stream: ("text", "text")},
        {"text": read.tokens},
        {"text": read.ids},
        provenance,
        {"text": text},
    )


def read_cross(model: HuggingFaceModel, source: str, target: str | None) -> EagerInputs:
    """A pair as an encoder–decoder reads it; a target that is not given is generated.

    Raises:
        InputError: a text is blank or too long.
        ModelError: the tokenizer and the model do not belong together, or the model fails.
        AttentionError: the model has no cross-attention.
    """
    check_whole(model)
    read, goal, inputs = model.read_pair(source, target)
    return EagerInputs(
        eager_twin(model.model),
        inputs,
        {
            "cross": ("target", "source"),
            "encoder": ("source", "source"),
            "decoder": ("target", "target"),
        },
        {"source": read.tokens, "target": goal.tokens},
        {"source": read.ids, "target": list(goal.ids)},
        model.decoded(goal.notes),
        {"source": source, "target": goal.text},
    )


def check_whole(model: HuggingFaceModel) -> None:
    """Refuse to look at a part: what leaves it out would be no gradient and no norm of the text's.

    Raises:
        UsageError: only a part of the attention was asked for.
    """
    if not model.extent.is_whole:
        raise UsageError(
            "gradients and norms need every weight: leave --max-size, --rows and --window out, or "
            "use --lens raw"
        )


SMALLER = {"text": "give a shorter text", "picture": "give a smaller --image-size"}
"""What needs less memory."""


def check_reading(reading: EagerInputs, copies: int) -> None:
    """Refuse a text whose matrices would not fit, or are not weights between its tokens.

    Args:
        reading: what is read.
        copies: how often each matrix exists at once.

    Raises:
        AttentionError: the family attends in another way.
        ModelError: less memory is free than that.
    """
    check_family(reading.part.config, max(map(len, reading.tokens.values())))
    config = reading.part.config.get_text_config()
    layers = getattr(config, "num_hidden_layers", None) or 1
    heads = getattr(config, "num_attention_heads", None) or 1
    lengths = {side: len(tokens) for side, tokens in reading.tokens.items()}
    cells = sum(lengths[query] * lengths[key] for query, key in reading.sides.values())
    dtype = str(reading.part.dtype).removeprefix("torch.")
    check_fit(
        layers * heads * cells * copies * BYTES.get(dtype, 4),
        reading.part.device,
        f"this lens over {max(lengths.values()):,} tokens ({layers} layers × {heads} heads × "
        f"tokens², {copies} times)",
        f"{SMALLER[reading.what]}, or use --lens raw",
    )


def run(reading: EagerInputs) -> Any:
    """The model's output with every weight matrix in it."""
    return reading.part(**reading.inputs, output_attentions=True, return_dict=True, use_cache=False)


def matrices(output: Any, reading: EagerInputs) -> dict[str, list[Tensor | None]]:
    """Each stream's layers, shape (1, heads, queries, keys); None for one without attention."""
    split = getattr(output, "attentions", None) is None and len(reading.sides) > 1
    return {
        stream: list(getattr(output, ATTENTIONS[stream] if split else "attentions", None) or ())
        for stream in reading.sides
    }


def as_attention(reading: EagerInputs, layers: Mapping[str, list[Tensor | None]]) -> Attention:
    """The matrices as maps, checked to be attention weights of these tokens.

    Raises:
        AttentionError: there are none, or they are something else.
    """
    maps = []
    for stream, (query, key) in reading.sides.items():
        side = len(reading.tokens[query]), len(reading.tokens[key])
        plain = [None if layer is None else layer.detach() for layer in layers[stream]]
        arrays = read_layers(plain, reading.part.config, side, highest(reading.part))
        maps += [as_map(item, reading.tokens, query, key) for item in group(stream, arrays)]
    text, source, target = (reading.texts.get(name) for name in ("text", "source", "target"))
    provenance = with_routes(reading.provenance, [HANDED_OVER])
    return Attention(tuple(maps), provenance, text, source, target)
