"""The pocket model as a source of attention: text in, maps out."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from attnviz.attention_map import Attention, AttentionMap, Focus, Provenance
from attnviz.errors import ModelError, UsageError, choose
from attnviz.evidence import Explained, Transformed
from attnviz.mechanisms.arrays import Array
from attnviz.mechanisms.positions import sinusoidal_positions
from attnviz.pocket.model import Sizes, decode, embed, encode, predict
from attnviz.pocket.text import Reading, read_text
from attnviz.pocket.tokenizer import (
    END,
    ENGLISH,
    FRENCH,
    LANGUAGE,
    MASK,
    PAD,
    UNKNOWN,
    load_tokenizer,
)
from attnviz.pocket.weights import StoredWeights

FOLDER = Path(__file__).parent / "files"
"""Where weights, tokenizer, configuration, origin and card lie."""
OTHER = {"en": "fr", "fr": "en"}
NAMES = {"en": "English", "fr": "French"}
NEVER_WRITTEN = [PAD, UNKNOWN, ENGLISH, FRENCH, MASK]
MARGIN = 0.3
"""Nats a piece by which one direction must win for the guess to go without a note."""


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
    """The pocket model, loaded; fulfils `attnviz.sources.Source`.

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
        reading = read_text(text, self.tokenizer)
        if self.causal:
            return self._attend_causal(reading)
        ids, tokens = reading.ended()
        _, shares = encode(self.weights, self.sizes, self.embed(ids))
        item = AttentionMap("encoder", tokens, tokens, stacked(shares))
        return self._kept(Attention((item,), self._provenance(reading.notes("the text")), text))

    def _attend_causal(self, reading: Reading) -> Attention:
        memory = self._memory([END])
        language = self.to or self._language_of(reading)[0]
        ids, tokens = reading.tagged(language)
        _, own, _ = decode(self.weights, self.sizes, self.embed(ids), memory)
        item = AttentionMap("causal", tokens, tokens, stacked(own))
        provenance = self._provenance(reading.notes("the text"), {"language": language})
        return self._kept(Attention((item,), provenance, reading.text))

    def attend_cross(self, source: str, target: str | None) -> Attention:
        """The attention of a pair: streams "cross", "encoder" and "decoder".

        Args:
            source: the text to read.
            target: its translation; None: the model's own.

        Raises:
            InputError: a text that is blank or too long.
        """
        reading = read_text(source, self.tokenizer, "source")
        ids, keys = reading.ended()
        memory, encoder = encode(self.weights, self.sizes, self.embed(ids))
        notes = reading.notes("the source")
        if target is None:
            language, more = self._target_language(reading)
            written = read_text(self._write(memory, len(ids), language), self.tokenizer, "target")
        else:
            written = read_text(target, self.tokenizer, "target")
            notes += written.notes("the target")
            language, more = (self.to, []) if self.to else self._language_of(written, reading)
        notes += more
        rows, queries = written.tagged(language)
        _, decoder, cross = decode(self.weights, self.sizes, self.embed(rows), memory)
        maps = (
            AttentionMap(
                "cross", queries, keys, stacked(cross), query_side="target", key_side="source"
            ),
            AttentionMap(
                "encoder", keys, keys, stacked(encoder), query_side="source", key_side="source"
            ),
            AttentionMap(
                "decoder",
                queries,
                queries,
                stacked(decoder),
                query_side="target",
                key_side="target",
            ),
        )
        settings = {"direction": f"{OTHER[language]} to {language}", "translated": target is None}
        provenance = self._provenance(notes, settings, self._focus())
        return self._kept(Attention(maps, provenance, source=source, target=written.text))

    def _kept(self, attention: Attention) -> Attention:
        """The attention with its queries and keys, where they were asked for."""
        if not self.keep_qk:
            return attention
        from attnviz.pocket.projected import with_projections

        return with_projections(self, attention)

    def explain_self(self, text: str, wanted: str | None = None) -> Explained:
        """What speaks for a word of the text, with gradients; see `pocket.gradient`."""
        from attnviz.pocket.gradient import explain_self

        return explain_self(self, text, wanted)

    def explain_cross(
        self, source: str, target: str | None = None, wanted: str | None = None
    ) -> Explained:
        """What speaks for a piece of a translation, with gradients; see `pocket.gradient`."""
        from attnviz.pocket.gradient import explain_cross

        return explain_cross(self, source, target, wanted)

    def transform_self(self, text: str) -> Transformed:
        """What each head makes of each piece of a text; see `pocket.norm`."""
        from attnviz.pocket.norm import transform

        return transform(self, self.attend_self(text))

    def transform_cross(self, source: str, target: str | None = None) -> Transformed:
        """What each head makes of each piece of a pair; see `pocket.norm`."""
        from attnviz.pocket.norm import transform

        return transform(self, self.attend_cross(source, target))

    def translate(self, text: str) -> str:
        """The text in the other language, one likeliest piece after the other."""
        reading = read_text(text, self.tokenizer)
        ids, _ = reading.ended()
        return self._write(self._memory(ids), len(ids), self._target_language(reading)[0])

    def _target_language(self, source: Reading) -> tuple[str, list[str]]:
        if self.to:
            return self.to, []
        language, notes = self._language_of(source)
        return OTHER[language], notes

    def loss(self, target: Reading, memory: Array, language: str) -> float:
        """Nats a piece, <eos> included, of a target given an encoded source."""
        rows, _ = target.tagged(language)
        states, _, _ = decode(self.weights, self.sizes, self.embed(rows), memory)
        scores = to_numpy(predict(self.weights, states))
        expected = np.array([*target.ids, END])
        highest = scores.max(axis=-1)
        totals = highest + np.log(np.exp(scores - highest[:, None]).sum(axis=-1))
        return float((totals - scores[np.arange(len(expected)), expected]).mean())

    def _language_of(
        self, text: Reading, translation: Reading | None = None
    ) -> tuple[str, list[str]]:
        """The language in which the model would rather have written a text by itself.

        Where its translation is known, that one has to be likely in the other language as well.

        Returns:
            "en" or "fr", and a note where it was a close call.
        """
        empty = self._memory([END])
        losses = {name: self.loss(text, empty, name) for name in LANGUAGE}
        if translation is not None:
            for name in LANGUAGE:
                losses[name] += self.loss(translation, empty, OTHER[name])
        language, other = sorted(losses, key=lambda name: losses[name])
        if losses[other] - losses[language] > MARGIN:
            return language, []
        note = (
            f"'{shortened(text.text)}' was read as {NAMES[language]}, but could be {NAMES[other]}"
        )
        return language, [f"{note}: --to names the target's language"]

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

    def _focus(self) -> dict[str, Focus]:
        guided = self.config["guided"]
        return {"cross": Focus(str(guided["layer"]), str(guided["head"]), "the alignment head")}

    def _provenance(
        self,
        notes: list[str],
        settings: dict[str, Any] | None = None,
        focus: dict[str, Focus] | None = None,
    ) -> Provenance:
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


def shortened(text: str, longest: int = 40) -> str:
    """The text, cut with an ellipsis where it is long."""
    return text if len(text) <= longest else f"{text[: longest - 1].rstrip()}…"


def stacked(shares: list[Array]) -> Any:
    """Each layer's weights (heads, queries, keys) as one numpy array with a layer axis before."""
    return np.stack([to_numpy(share) for share in shares])


def to_numpy(array: Array) -> Any:
    """The numbers as float32 in numpy."""
    if isinstance(array, np.ndarray):
        return array.astype(np.float32, copy=False)
    return array.detach().float().cpu().numpy()
