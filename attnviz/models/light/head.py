"""The output heads that the network inside knows: how they score tokens and classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from attnviz.core.records import dataclass, replace
from attnviz.mechanisms.arrays import Array, namespace
from attnviz.models.light import network


@dataclass(frozen=True, slots=True)
class Head:
    """An output head: how it scores tokens or classes by the last states, and its weights."""

    model: str  # the class of transformers that has it
    maps: str = "lm_head"  # the map to the scores; before it another and perhaps a norm
    bias: str = ""  # of the map to the scores, where it is stored under another name
    activation: str = ""  # between the maps; "": that of the layers
    ties: bool = True  # whether the last map is the embeddings, where no key says so
    cap: float | None = None  # of scores
    labels: int = 0  # of a classifier
    first: bool = False  # whether it reads the first state alone

    @property
    def is_linear(self) -> bool:
        """Whether scores are a linear map of the last states."""
        return self.cap is None and " " not in self.maps

    def predict(self, weights: network.Weights, shape: network.Shape, states: Array) -> Array:
        """Scores of every token (…, vocabulary), for the last states (…, size)."""
        output, *before = self.maps.split()
        if before:
            activate = network.ACTIVATIONS[self.activation or shape.activation]
            states = activate(network.linear_map(weights, before[0], states))
            states = network.normalise(weights, shape, before[1], states) if before[1:] else states
        scores = network.linear_map(weights, output, states)
        return self.cap * namespace(scores).tanh(scores / self.cap) if self.cap else scores

    def weight_shapes(
        self, shape: network.Shape, width: int
    ) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Every weight that it reads, and its shape; embeddings have a width."""
        output, *before = self.maps.split()
        width = shape.size if self.labels else width
        yield f"{output}.weight", (self.labels or shape.vocabulary, width)
        if before or self.labels:
            yield f"{output}.bias", (self.labels or shape.vocabulary,)
        elif self.bias:
            yield f"{output}.bias", (1, shape.vocabulary)
        if before:
            yield f"{before[0]}.weight", (width, shape.size)
            norms = [f"{norm}.{end}" for norm in before[1:] for end in ("weight", "bias")]
            yield from ((name, (width,)) for name in (f"{before[0]}.bias", *norms))


ROBERTA = Head(
    "RobertaForMaskedLM", "lm_head.decoder lm_head.dense lm_head.layer_norm", "lm_head.bias", "gelu"
)
HEADS = {
    "bert": Head(
        "BertForMaskedLM",
        "cls.predictions.decoder cls.predictions.transform.dense "
        "cls.predictions.transform.LayerNorm",
        "cls.predictions.bias",
    ),
    "roberta": ROBERTA,
    "xlm-roberta": replace(ROBERTA, model="XLMRobertaForMaskedLM"),
    "distilbert": Head("DistilBertForMaskedLM", "vocab_projector vocab_transform vocab_layer_norm"),
    "electra": Head(
        "ElectraForMaskedLM",
        "generator_lm_head generator_predictions.dense generator_predictions.LayerNorm",
        activation="gelu",
    ),
    "llama": Head("LlamaForCausalLM", ties=False),
    "mistral": Head("MistralForCausalLM", ties=False),
    "qwen2": Head("Qwen2ForCausalLM", ties=False),
    "qwen3": Head("Qwen3ForCausalLM", ties=False),
    "gemma2": Head("Gemma2ForCausalLM", cap=30.0),
    "gemma3_text": Head("Gemma3ForCausalLM"),
    "gpt2": Head("GPT2LMHeadModel"),
    "opt": Head("OPTForCausalLM"),
    "gpt_neox": Head("GPTNeoXForCausalLM", "embed_out", ties=False),
    "bart": Head("BartForConditionalGeneration", bias="final_logits_bias"),
    "marian": Head("MarianMTModel", bias="final_logits_bias"),
}
"""The head that predicts tokens, by model type."""
OF_TEXTS = {
    "bert": ("classifier bert.pooler.dense", "tanh"),
    "roberta": ("classifier.out_proj classifier.dense", "tanh"),
    "xlm-roberta": ("classifier.out_proj classifier.dense", "tanh"),
    "electra": ("classifier.out_proj classifier.dense", "gelu"),
    "distilbert": ("classifier pre_classifier", "relu"),
}
"""The maps of a classifier of texts and the activation between them, by model type."""
CLASSES = {"ForSequenceClassification": True, "ForTokenClassification": False}
"""The endings of classifiers' names, and whether they read the first state alone."""


def head_of(config: Mapping[str, Any], bare: str, *, writes: bool = False) -> Head | None:
    """The head for the class that a configuration names; None: the class has no head.

    `bare` is the kind's class without a head; a kind that `writes` text has its head anyway.

    Raises:
        UnknownArchitecture: another head, or a key of it with another kind of value.
    """
    name, kind = (config.get("architectures") or [bare])[0], config["model_type"]
    ending, head = name.removeprefix(bare.removesuffix("Model")), HEADS.get(kind)
    if name == bare and not writes:
        return None
    if ending in CLASSES and kind in OF_TEXTS:
        maps, activation = OF_TEXTS[kind] if (first := CLASSES[ending]) else ("classifier", "")
        count = len(config.get("id2label") or "12")  # two where none are named
        return Head(name, maps, "", activation, ties=False, labels=count, first=first)
    if head is None or name not in (bare, head.model):
        raise network.UnknownArchitecture(f"the network inside has no head of a {name}")
    is_tied = config.get("tie_word_embeddings", head.ties)
    cap = config.get("final_logit_softcapping", head.cap)
    if not isinstance(is_tied, bool) or not isinstance(cap, float | int | None):
        raise network.UnknownArchitecture("its configuration does not say how it predicts")
    return replace(head, ties=is_tied, cap=cap)
