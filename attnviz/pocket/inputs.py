"""What the pocket model read for maps that it has already made, once more as numbers of pieces."""

from __future__ import annotations

from dataclasses import dataclass

from attnviz.attention_map import Attention
from attnviz.pocket.pocket import Pocket
from attnviz.pocket.text import read_text
from attnviz.pocket.tokenizer import END


@dataclass(frozen=True, slots=True)
class Inputs:
    """Pieces by number.

    Attributes:
        source: what the encoder reads; <eos> alone where the decoder stands by itself.
        target: what the decoder reads, a language's tag first; empty where only the encoder runs.
    """

    source: list[int]
    target: list[int]


def inputs_of(pocket: Pocket, attention: Attention) -> Inputs:
    """The pieces behind a text's maps, or behind those of a pair."""
    settings = attention.provenance.settings
    if attention.main.stream == "cross":
        source, _ = read_text(attention.source or "", pocket.tokenizer, "source").ended()
        target = read_text(attention.target or "", pocket.tokenizer, "target")
        language = str(settings["direction"]).split()[-1]
        return Inputs(source, target.tagged(language)[0])
    reading = read_text(attention.text or "", pocket.tokenizer)
    if attention.main.stream == "causal":
        return Inputs([END], reading.tagged(str(settings["language"]))[0])
    return Inputs(reading.ended()[0], [])
