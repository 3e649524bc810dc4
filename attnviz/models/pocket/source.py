"""The pocket model as a source of attention: text in, maps out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from attnviz.core.attention_map import Attention, Focus, Provenance
from attnviz.core.errors import InputError, ModelError, UsageError, choose
from attnviz.core.lens_inputs import AttentionGradients, ValueVectors
from attnviz.mechanisms.arrays import Array
from attnviz.mechanisms.positions import sinusoidal_positions
from attnviz.models.pocket.network import Sizes, StoredWeights, decode, embed, encode, predict
from attnviz.models.pocket.passes import DecoderInput, across, causally, goals_of, over_themselves
from attnviz.models.pocket.text import (
    END,
    ENGLISH,
    FRENCH,
    LANGUAGE,
    MASK,
    OTHER,
    PAD,
    UNKNOWN,
    EncodedText,
    languages_of,
    load_tokenizer,
    read_text,
    to_numpy,
)
from attnviz.storage.texts import Text

FOLDER = Path(__file__).parent / "files"
"""Where weights, tokenizer, configuration, origin and card lie."""
NEVER_WRITTEN = [PAD, UNKNOWN, ENGLISH, FRENCH, MASK]


def load_pocket(
    *,
    causal: bool = False,
    to: str | None = None,
    device: str = "auto",
    dtype: str | None = None,
    keep_qk: bool = False,
    folder: Path = FOLDER,
) -> Pocket:
    """The small trained English–French encoder–decoder that ships with the package.

    Args:
        causal: a text's attention is the decoder's, in which no position sees a later one.
        to: the target language, "en" or "fr"; None: guessed from the text.
        device: "auto" and "cpu" run on numpy; "cuda" and "mps" on torch.
        dtype: "float32" (also None) or "float64", on torch "float16" and "bfloat16" too.
        keep_qk: keep queries and keys beside the weights.
        folder: where its files lie.

    Raises:
        UsageError: an unknown language, device or precision.
        ModelError: files that cannot be read.
    """
    if to is not None:
        choose(to, LANGUAGE, "language")
    return Pocket(folder, causal, to, *check_backend(device, dtype), keep_qk=keep_qk)


def check_backend(device: str, dtype: str | None) -> tuple[str, str]:
    """The device and precision to run with.

    Raises:
        UsageError: an unknown name, a device that this machine lacks, or a precision it cannot use.
    """
    choose(device, ("auto", "cpu", "cuda", "mps"), "device")
    if device in ("auto", "cpu"):
        return "cpu", choose(dtype or "float32", ("float32", "float64"), "dtype on the cpu")
    import torch

    if not (torch.cuda.is_available() if device == "cuda" else torch.mps.is_available()):
        raise UsageError(f"device '{device}' is not available on this machine: use cpu")
    return device, choose(dtype or "float32", ("float32", "float16", "bfloat16"), "dtype")


class Pocket:
    """The pocket model, loaded; fulfils `attnviz.models.Source`.

    In a map whose rows belong to the decoder, row 0 is the target language's tag, and every other
    row is that of the piece it has just read, not of the piece it is about to predict.
    """

    def __init__(
        self,
        folder: Path,
        causal: bool,
        to: str | None,
        device: str,
        dtype: str,
        *,
        keep_qk: bool = False,
    ) -> None:
        self.config: dict[str, Any] = read_config(folder)
        self.sizes = Sizes(**self.config["sizes"])
        self.weights = StoredWeights(folder / "weights.safetensors", dtype, device)
        self.tokenizer = folder / "tokenizer.json"
        self.causal, self.to, self.device, self.dtype = causal, to, device, dtype
        self.keep_qk = keep_qk

    def attend_self(self, text: str) -> Attention:
        """The attention of a text over itself: the encoder's, or with `causal` the decoder's.

        Raises:
            InputError: the text is blank or too long.
        """
        return self.kept(self.attend_readings([read_text(text, self.tokenizer)])[0])

    def attend_readings(self, readings: Sequence[EncodedText]) -> list[Attention]:
        """Each text's attention over itself, from one pass over all of them."""
        return (causally if self.causal else over_themselves)(self, readings)

    def attend_cross(self, source: str, target: str | None) -> Attention:
        """The attention of a pair: streams "cross", "encoder" and "decoder".

        Args:
            source: the text to read.
            target: its translation; None: the model's own.

        Raises:
            InputError: a text that is blank or too long.
        """
        reading = read_text(source, self.tokenizer, "source")
        if target is None:
            ids, _ = reading.ended()
            language, notes = self._target_language(reading)
            text = self._write(self._memory(ids), len(ids), language)
            written = read_text(text, self.tokenizer, "target")
            goals = [DecoderInput(written, language, tuple(notes), translated=True)]
        else:
            goals = goals_of(self, [reading], [read_text(target, self.tokenizer, "target")])
        return self.kept(across(self, [reading], goals)[0])

    def attend_many(
        self, texts: Sequence[Text], *, alone: bool, batch_size: int | None = None
    ) -> Iterator[Attention | InputError]:
        """The attention of many texts or pairs, read together; see `pocket.together`."""
        from attnviz.models.pocket.passes import attend_many

        return attend_many(self, texts, alone=alone, batch_size=batch_size)

    def kept(self, attention: Attention) -> Attention:
        """The attention with its queries and keys, where they were asked for."""
        if not self.keep_qk:
            return attention
        from attnviz.models.pocket.lens_inputs import with_projections

        return with_projections(self, attention)

    def explain_self(self, text: str, wanted: str | None = None) -> AttentionGradients:
        """What speaks for a word of the text, with gradients; see `pocket.gradient`."""
        from attnviz.models.pocket.lens_inputs import explain_self

        return explain_self(self, text, wanted)

    def explain_cross(
        self, source: str, target: str | None = None, wanted: str | None = None
    ) -> AttentionGradients:
        """What speaks for a piece of a translation, with gradients; see `pocket.gradient`."""
        from attnviz.models.pocket.lens_inputs import explain_cross

        return explain_cross(self, source, target, wanted)

    def transform_self(self, text: str) -> ValueVectors:
        """What each head makes of each piece of a text; see `pocket.norm`."""
        from attnviz.models.pocket.lens_inputs import transform

        return transform(self, self.attend_self(text))

    def transform_cross(self, source: str, target: str | None = None) -> ValueVectors:
        """What each head makes of each piece of a pair; see `pocket.norm`."""
        from attnviz.models.pocket.lens_inputs import transform

        return transform(self, self.attend_cross(source, target))

    def translate(self, text: str) -> str:
        """The text in the other language, one likeliest piece after the other."""
        reading = read_text(text, self.tokenizer)
        ids, _ = reading.ended()
        return self._write(self._memory(ids), len(ids), self._target_language(reading)[0])

    def _target_language(self, source: EncodedText) -> tuple[str, list[str]]:
        if self.to:
            return self.to, []
        ((language, notes),) = languages_of(self.weights, self.sizes, [source])
        return OTHER[language], notes

    def _memory(self, ids: list[int]) -> Array:
        return encode(self.weights, self.sizes, self.embed(ids))[0]

    def embed(self, ids: list[int]) -> Array:
        """Pieces by number as what the model's layers take, shape (positions, size)."""
        rows = self.weights.rows("embedding.weight", np.array(ids))
        waves = sinusoidal_positions(len(ids), self.sizes.size)
        return embed(rows, self.weights.convert(waves))

    def _write(self, memory: Array, length: int, language: str) -> str:
        tokenizer = load_tokenizer(self.tokenizer)
        ids = [LANGUAGE[language]]
        for _ in range(2 * length + 10):
            states, _, _ = decode(self.weights, self.sizes, self.embed(ids), memory)
            scores = to_numpy(predict(self.weights, states[-1:]))[0]
            scores[NEVER_WRITTEN] = -np.inf
            ids.append(int(scores.argmax()))
            if ids[-1] == END:
                break
        return tidy(str(tokenizer.decode(ids[1:])), language) or "…"

    def focus(self) -> dict[str, Focus]:
        """The head of a pair's maps to see first."""
        guided = self.config["guided"]
        return {"cross": Focus(str(guided["layer"]), str(guided["head"]), "the alignment head")}

    def provenance(
        self,
        notes: list[str],
        settings: dict[str, Any] | None = None,
        focus: dict[str, Focus] | None = None,
    ) -> Provenance:
        """Where maps of this model come from, and what a reader must know of them."""
        return Provenance(
            source="pocket",
            model="pocket",
            trained=True,
            device=self.device,
            dtype=self.dtype,
            settings={"revision": self.config["revision"], **(settings or {})},
            notes=tuple(notes),
            focus=focus or {},
            versions={"numpy": np.__version__},
        )


@cache
def read_config(folder: Path) -> dict[str, Any]:
    """Sizes, special pieces and guided head of the model in a folder.

    Raises:
        ModelError: there is none, or it is damaged.
    """
    path = folder / "config.json"
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"the pocket model's '{path}' cannot be read") from error
    return content


def tidy(written: str, language: str) -> str:
    """The model's text without the spaces before punctuation that its training text had at times.

    In French a space stands before all but full stops, commas and closing brackets.
    """
    return re.sub(
        r" +([.,)\]])" if language == "fr" else r" +([.,)\]?!;:])", r"\1", written
    ).strip()


def stacked(shares: list[Array]) -> Any:
    """Each layer's weights (heads, queries, keys) as one numpy array with a layer axis before."""
    return np.stack([to_numpy(share) for share in shares])
