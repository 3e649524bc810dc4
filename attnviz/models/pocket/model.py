"""The pocket model, loaded: it embeds pieces, guesses languages and translates.

An encoder–decoder transformer (Vaswani 2017, section 3) with normalisation before each part
(Xiong 2020) and one embedding for source, target and output (Press & Wolf 2017).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.records import dataclass, replace
from attnviz.core.registry import STACK
from attnviz.core.writers import WriterKind
from attnviz.mechanisms.arrays import Array, to_numpy
from attnviz.mechanisms.relative import sinusoidal_positions
from attnviz.models.light import network
from attnviz.models.pocket.card import FOLDER as FOLDER
from attnviz.models.pocket.stored import StoredModel
from attnviz.models.pocket.text import (
    END,
    END_SIZE,
    ENGLISH,
    FRENCH,
    LANGUAGE,
    MASK,
    PAD,
    SHORT,
    UNKNOWN,
    EncodedText,
    PocketInputs,
    encode_text,
    load_piece_tokenizer,
)

OTHER = {"en": "fr", "fr": "en"}
NAMES = {"en": "English", "fr": "French"}
MOST_WRITTEN = 128  # pieces of a target at most: each is computed from all before it
MARGIN = 0.3  # nats a piece by which one direction must win for the guess to need no note
NEVER_WRITTEN = [PAD, UNKNOWN, ENGLISH, FRENCH, MASK]


PROJECTIONS = "query", "key", "value", "output"
MAPS = " ".join(PROJECTIONS)


@dataclass(frozen=True, slots=True)
class TranslatorSizes:
    """Pieces known, features of a position and of a feed-forward block, heads and layers."""

    vocabulary: int = 8000
    size: int = 192
    heads: int = 6
    feed_forward: int = 768
    encoder_layers: int = 4
    decoder_layers: int = 4

    @property
    def encoder(self) -> network.Shape:
        return network.Shape(
            "encoder.{}",
            network.LayerPart("self_attention", MAPS, before="self_attention_norm"),
            network.LayerPart("feed_forward", "in out", before="feed_forward_norm"),
            last_norm="encoder_norm",
            size=self.size,
            heads=self.heads,
            layers=self.encoder_layers,
        )

    @property
    def decoder(self) -> network.Shape:
        return replace(
            self.encoder,
            layer="decoder.{}",
            cross=network.LayerPart("cross_attention", MAPS, before="cross_attention_norm"),
            last_norm="decoder_norm",
            layers=self.decoder_layers,
            causal=True,
        )


def embed_pieces(pieces: Array, positions: Array) -> Array:
    """Rows of the embedding (…, positions, size), scaled, plus the positions' waves."""
    return pieces * (0.5 * pieces.shape[-1] ** 0.5) + positions


def run_encoder(
    weights: network.Weights, sizes: TranslatorSizes, inputs: Array, **how: Any
) -> tuple[Array, list[Array]]:
    """The encoder's states of an embedded source, and each layer's weights; see `run_layers`."""
    return network.run_layers(weights, sizes.encoder, inputs, **how)[:2]


def run_decoder(
    weights: network.Weights, sizes: TranslatorSizes, inputs: Array, memory: Array, **how: Any
) -> tuple[Array, list[Array], list[Array]]:
    """The decoder's states of an embedded target (…, queries, size), its own weights and cross."""
    return network.run_layers(weights, sizes.decoder, inputs, memory, **how)


def predict_pieces(weights: network.Weights, states: Array, embedding: str = "embedding") -> Array:
    """Scores of every piece (…, vocabulary) for states (…, size), by the transposed embedding."""
    return network.linear_map(weights, embedding, states)


class PocketModel(StoredModel):
    """A folder's weights and tokenizer with the options of a run."""

    name = "pocket"
    file = "weights.safetensors"
    sizes: TranslatorSizes
    words = output = "embedding"
    streams = {  # noqa: RUF012
        "encoder": "encoder.{}.self_attention",
        "decoder": "decoder.{}.self_attention",
        "causal": "decoder.{}.self_attention",
        "cross": "decoder.{}.cross_attention",
    }

    def __init__(
        self,
        folder: Path = FOLDER,
        *,
        causal: bool = False,
        to: str | None = None,
        device: str = "cpu",
        dtype: str = "float32",
    ) -> None:
        super().__init__(folder, device, dtype)
        self.sizes = TranslatorSizes(**self.config["sizes"])
        self.causal, self.to = causal, to

    def inputs(self, feed: PocketInputs) -> network.Stacks:
        sides = (feed.source_ids, feed.target_ids) if feed.target else (feed.source_ids,)
        return tuple(map(self.embed, sides))

    @property
    def shapes(self) -> tuple[network.Shape, ...]:
        """The encoder's and the decoder's."""
        return self.sizes.encoder, self.sizes.decoder

    def stacks(self, feed: PocketInputs) -> list[Any]:
        def embed(ids: list[int]) -> dict[WriterKind, Array]:
            waves = self.weights.convert(sinusoidal_positions(len(ids), self.sizes.size))
            return {"embedding": self.embed(ids) - waves, "position": waves}

        sizes = self.sizes
        stack = STACK.load()
        encoder = stack(self.weights, sizes.encoder, "encoder", embed(feed.source_ids))
        if not feed.target:
            return [encoder]
        own, read = "decoder" if feed.source else "causal", embed(feed.target_ids)
        return [encoder, stack(self.weights, sizes.decoder, own, read, encoder, "cross")]

    def encode_text(self, text: str, what: str = "text") -> EncodedText:
        """The text in pieces; see `text.encode_text`."""
        return encode_text(text, self.tokenizer, what)

    def embed(self, ids: list[int]) -> Array:
        """Pieces by number as what the model's layers take, shape (positions, size)."""
        return self.embed_many([ids])[0][0]

    def embed_many(self, rows: Sequence[Sequence[int]]) -> tuple[Array, Array | None]:
        """Texts by number, padded behind: (texts, positions, size), and a mask if there is padding.

        The mask (texts, 1, 1, positions) is True where a position is no padding.
        """
        lengths = np.array([len(row) for row in rows])
        ids = np.full((len(rows), lengths.max()), PAD)
        for line, row in zip(ids, rows, strict=True):
            line[: len(row)] = row
        waves = self.weights.convert(sinusoidal_positions(ids.shape[1], self.sizes.size))
        inputs = embed_pieces(self.weights.rows("embedding.weight", ids), waves)
        if lengths.min() == lengths.max():
            return inputs, None
        return inputs, self.weights.place(np.arange(ids.shape[1]) < lengths[:, None, None, None])

    def judge(self, texts: Sequence[EncodedText]) -> list[EncodedText]:
        """The texts; short ones get their loss in English or French, whichever is lower."""
        parts = {number: text.beginning() for number, text in enumerate(texts)}
        short = {
            number: part for number, part in parts.items() if len(part.text) < SHORT * len(part.ids)
        }
        judgements = list(texts)
        if short:
            losses = np.minimum(*(self._losses([*short.values()], name) for name in LANGUAGE))
            for (number, part), loss in zip(short.items(), losses.tolist(), strict=True):
                surprise = loss * (len(part.ids) + 1) / (len(part.text) + END_SIZE)
                judgements[number] = replace(texts[number], surprise=surprise)
        return judgements

    def languages(
        self, texts: Sequence[EncodedText], translations: Sequence[EncodedText] | None = None
    ) -> list[tuple[str, list[str]]]:
        """The likeliest language of each text, and a note where it was a close call.

        A given translation counts too: it should be likely in the other language.
        """
        sums = {name: self._losses(texts, name) for name in LANGUAGE}
        if translations is not None:
            for name in LANGUAGE:
                sums[name] = sums[name] + self._losses(translations, OTHER[name])
        return [
            _decide(text, {name: float(losses[number]) for name, losses in sums.items()})
            for number, text in enumerate(texts)
        ]

    def _losses(self, targets: Sequence[EncodedText], language: str) -> NDArray[np.float64]:
        memory, _ = run_encoder(self.weights, self.sizes, self.embed([END]))
        rows = [target.with_tag(language)[0] for target in targets]
        states, _, _ = run_decoder(self.weights, self.sizes, self.embed_many(rows)[0], memory)
        losses = []
        for scores, target in zip(
            to_numpy(predict_pieces(self.weights, states)), targets, strict=True
        ):
            answer = np.array([*target.ids, END])
            own = scores[: len(answer)]
            highest = own.max(axis=-1)
            totals = highest + np.log(np.exp(own - highest[:, None]).sum(axis=-1))
            losses.append(float((totals - own[np.arange(len(answer)), answer]).mean()))
        return np.array(losses)

    def translate(self, text: str) -> str:
        """The text in the other language, one likeliest piece after the other."""
        return self.write([self.encode_text(text)])[0][0]

    def write(self, sources: Sequence[EncodedText]) -> list[tuple[str, str, list[str]]]:
        """Greedy translations, each with its language, and a note if its source's is unclear."""
        if self.to:
            languages = [(self.to, list[str]()) for _ in sources]
        else:
            languages = [(OTHER[name], notes) for name, notes in self.languages(sources)]
        read = [source.with_end()[0] for source in sources]
        texts = self.continue_texts(read, [[LANGUAGE[name]] for name, _ in languages])
        for (_, notes), (_, length) in zip(languages, texts, strict=True):
            if length:
                notes.append(f"the pocket model was stopped after {length} pieces of the target")
        pairs = zip(texts, languages, strict=True)
        return [(self.decode(ids, name), name, notes) for (ids, _), (name, notes) in pairs]

    def continue_texts(
        self, read: Sequence[list[int]], prompts: Sequence[list[int]], watch: Any = None
    ) -> list[tuple[list[int], int]]:
        """Greedy continuations, each with the length at which it was cut; 0: it ended.

        The decoder writes all at once, each by what the encoder `read` for it.
        """
        inputs, mask = self.embed_many(read)
        memory, _ = run_encoder(self.weights, self.sizes, inputs, mask=mask, watch=watch)
        texts, active = [list(prompt) for prompt in prompts], [*range(len(prompts))]
        most = [min(2 * len(ids) + 10, MOST_WRITTEN) for ids in read]
        while active:
            # No mask: padding stands last and no position sees a later one.
            inputs, _ = self.embed_many([texts[number] for number in active])
            how = {"mask": None if mask is None else mask[active], "watch": watch}
            states, _, _ = run_decoder(self.weights, self.sizes, inputs, memory[active], **how)
            last = [len(texts[number]) - 1 for number in active]
            scores = to_numpy(predict_pieces(self.weights, states[range(len(active)), last]))
            scores[:, NEVER_WRITTEN] = -np.inf
            for number, piece in zip(active, scores.argmax(axis=-1).tolist(), strict=True):
                texts[number].append(piece)
            new = [ids[len(prompt) :] for ids, prompt in zip(texts, prompts, strict=True)]
            active = [n for n in active if new[n][-1] != END and len(new[n]) < most[n]]
        return [
            (ids, 0 if ids[-1] == END else length) for ids, length in zip(new, most, strict=True)
        ]

    def decode(self, ids: list[int], language: str) -> str:
        """What the model wrote, as text."""
        return tidy(str(load_piece_tokenizer(self.tokenizer).decode(ids)), language) or "…"


def _decide(text: EncodedText, sums: dict[str, float]) -> tuple[str, list[str]]:
    language, other = sorted(sums, key=lambda name: sums[name])
    if text.is_foreign or sums[other] - sums[language] > MARGIN:
        return language, []
    excerpt = text.text if len(text.text) <= 40 else f"{text.text[:39].rstrip()}…"
    note = f"'{excerpt}' was read as {NAMES[language]}, but could be {NAMES[other]}"
    return language, [f"{note}: --to names the target's language"]


def tidy(text: str, language: str) -> str:
    """The model's text without the spaces before punctuation that its training text had at times.

    In French a space stands before all but full stops, commas and closing brackets.
    """
    return re.sub(r" +([.,)\]])" if language == "fr" else r" +([.,)\]?!;:])", r"\1", text).strip()
