"""Tiny families with heads that predict, and what is asked of them."""

from copy import deepcopy
from typing import Any

import torch
import transformers
from transformers import CONFIG_MAPPING

from attnviz.core.attention_map import Attention, Provenance, Token
from attnviz.core.effects import PredictedToken
from attnviz.core.errors import ModelError
from attnviz.features.experiments.outputs import ExperimentRequest
from attnviz.models.hugging_face.inputs.encoding import EncodedQuery
from tests.hugging_face.tiny_families import EVERY

HEADS = {
    "text": (
        "AutoModelForMaskedLM",
        "AutoModelForCausalLM",
        "AutoModelForTokenClassification",
        "AutoModelForSequenceClassification",
    ),
    "pair": ("AutoModelForSeq2SeqLM",),
    "apart": ("AutoModelForSeq2SeqLM",),
    "speech": ("AutoModelForSpeechSeq2Seq",),
    "image": ("AutoModelForImageClassification",),
    "image and text": ("AutoModelForImageClassification",),
    "joint": ("AutoModelForImageTextToText", "AutoModelForCausalLM"),
}
"""The heads of each kind, the first that a family has is taken."""
SIDES = {
    "pair": {
        "cross": ("target", "source"),
        "encoder": ("source", "source"),
        "decoder": ("target", "target"),
    }
}
SIDES["speech"] = SIDES["pair"]
SIDES["apart"] = {name: SIDES["pair"][name] for name in ("cross", "decoder")}
PICTURES = ("image", "image and text", "windows")
PATCHES = {"git": 17, "vilt": 17}
"""How many stand before the text, of families whose ids have no places for them."""


def head_of(name: str) -> str | None:
    """The auto class of a family's head; None where it has none."""
    config = CONFIG_MAPPING[name]
    for auto in HEADS.get(EVERY[name].kind, ()):
        if config in getattr(transformers, auto)._model_mapping:
            return auto
    return None


def make(name: str) -> Any:
    """A random model with its head, if it has one, as it loads by default."""
    config = CONFIG_MAPPING[name](**deepcopy(EVERY[name].sizes))
    auto: Any = getattr(transformers, head_of(name) or "AutoModel")
    kind = auto._model_mapping[type(config)]
    kind = kind[0] if isinstance(kind, tuple) else kind
    torch.manual_seed(0)
    return widened(kind._from_config(config).eval(), EVERY[name].std)


def widened(model: Any, std: float = 0.3) -> Any:
    """A model whose matrices are random anew, wide enough that no two heads agree."""
    with torch.no_grad():
        for weights in model.parameters():
            if weights.ndim > 1:
                weights.normal_(std=std)
    return model


def eager(model: Any) -> Any:
    """The same model, attending by its own eager function."""
    config = deepcopy(model.config)
    own = type(model)._from_config(config, attn_implementation="eager").eval()
    own.load_state_dict(model.state_dict())
    return own.to(model.dtype)


def inputs_of(
    name: str, dtype: torch.dtype = torch.float32, *, tokens: int = 11, towers: bool = False
) -> dict[str, Any]:
    """Ids or pixels, a batch of one; with `towers` both for a model that has two."""
    ids, kind = torch.arange(5, 5 + tokens)[None], EVERY[name].kind
    pixels = torch.linspace(-1, 1, 768).view(1, 3, 16, 16).to(dtype)
    if kind == "speech":
        features = torch.linspace(-1, 1, 160).view(1, 8, 20).to(dtype)
        return {"input_features": features, "decoder_input_ids": ids[:, :7]}
    both_towers = towers and kind == "image and text"
    if kind in PICTURES and not both_towers:
        return {"pixel_values": pixels}
    both = {"pixel_values": pixels} if kind == "joint" or both_towers else {}
    if name == "llava":
        ids = torch.cat([torch.full((1, 16), 49), ids], 1)
    pair = {"decoder_input_ids": ids[:, :7]} if kind in ("pair", "apart") else {}
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), **both, **pair}


def asked(name: str, model: Any) -> ExperimentRequest:
    """Questions about two outputs of a family's model, or about its class."""
    inputs = inputs_of(name, model.dtype)
    axes = SIDES.get(EVERY[name].kind, {"self": ("text", "text")})
    if hasattr(model.config, "use_cache"):
        inputs["use_cache"] = False
    part = getattr(model, "vision_model", model) if EVERY[name].kind in PICTURES else model
    lengths = {"text": 0, "source": 0, "target": 0}
    if "decoder_input_ids" in inputs:
        lengths["target"] = inputs["decoder_input_ids"].shape[1]
        lengths["source"] = 10 if "input_features" in inputs else inputs["input_ids"].shape[1]
    elif "input_ids" in inputs:
        lengths["text"] = inputs["input_ids"].shape[1] + PATCHES.get(name, 0)
    else:
        lengths["text"] = keys_of(part, inputs)
    tokens = {
        side: tuple(Token(f"{side}{place}") for place in range(lengths[side]))
        for side in dict.fromkeys(side for pair in axes.values() for side in pair)
    }
    encoded = EncodedQuery(part, inputs, tokens, axes, Attention((), Provenance("made", "tiny")))
    return ExperimentRequest(model, inputs, encoded, outputs_of, lambda number: f"<{number}>")


def outputs_of(logits: Any) -> tuple[PredictedToken, ...]:
    """Two outputs of each text, or one of a class."""
    if logits is None:
        raise ModelError("no head")
    if logits.ndim == 2:
        return (PredictedToken(0, 1, "one"),)
    last = logits.shape[1] - 1
    choices = logits.shape[2]
    return (PredictedToken(last, 3 % choices, "three"), PredictedToken(last - 2, 1, "one"))


def keys_of(part: Any, inputs: dict[str, Any]) -> int:
    """How many tokens a picture has."""
    seen: list[int] = []
    from attnviz.models.hugging_face.capture.kernel import watch_kernels

    with torch.no_grad(), watch_kernels(lambda call: seen.append(call.key.shape[2])):
        part(**inputs)
    return seen[0] if seen else 16 + (part.config.model_type != "vitdet")  # and the class token
