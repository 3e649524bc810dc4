"""Texts and queries as the pocket model reads them: piece ids, and tokens with their places."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from attnviz.core.attention_map import Token
from attnviz.core.errors import InputError
from attnviz.core.tokens import continues_word

PAD, UNKNOWN, END, ENGLISH, FRENCH, MASK = range(6)
"""The ids of the special pieces."""
SPECIALS = ("<pad>", "<unk>", "<eos>", "<en>", "<fr>", "<mask>")
LANGUAGE = {"en": ENGLISH, "fr": FRENCH}

LONGEST = 4096
"""Pieces of the longest text that is read: its maps hold 24 × 4096² weights."""
USUAL = 120
"""Pieces of the longest text in training."""
FRAGMENTED = 1.75
"""Pieces a word or sign above which a text is hardly English or French: 99 % of training sentences
have fewer, and the mean is 1.1."""
_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class EncodedText:
    """A text in pieces: their ids and tokens, without special ones."""

    text: str
    ids: list[int]
    tokens: tuple[Token, ...]

    def ended(self) -> tuple[list[int], tuple[Token, ...]]:
        """What the encoder reads: the pieces, then <eos>."""
        return [*self.ids, END], (*self.tokens, special(END, len(self.text)))

    def tagged(self, language: str) -> tuple[list[int], tuple[Token, ...]]:
        """What the decoder reads: the language's tag, then the pieces."""
        return [LANGUAGE[language], *self.ids], (special(LANGUAGE[language], 0), *self.tokens)

    def notes(self, name: str, model: str = "pocket", usual: int = USUAL) -> list[str]:
        """Where the text is unlike the training text of a model, of so many pieces at most."""
        found = []
        unknown, words = self.ids.count(UNKNOWN), len(_WORD.findall(self.text))
        pieces = sum(token.text != "▁" for token in self.tokens)
        if unknown:
            found.append(f"{unknown} of {len(self.ids)} pieces are unknown to it")
        if words > 2 and pieces / words > FRAGMENTED:
            found.append(f"{pieces / words:.1f} pieces a word, where English and French have 1.1")
        if len(self.ids) > usual:
            found.append(f"{len(self.ids)} pieces, where it was trained on up to {usual}")
        return outside(name, model, found)


@dataclass(frozen=True, slots=True)
class EncodedQuery:
    """A query as the encoder and the decoder read it."""

    source: EncodedText | None
    target: EncodedText | None = None
    language: str = ""
    notes: tuple[str, ...] = ()
    translated: bool = False

    @property
    def source_ids(self) -> list[int]:
        """The encoder's pieces."""
        return self.source.ended()[0] if self.source else [END]

    @property
    def target_ids(self) -> list[int]:
        """The decoder's pieces, the language's tag first; empty where only the encoder runs."""
        return self.target.tagged(self.language)[0] if self.target else []


def outside(name: str, model: str, found: list[str]) -> list[str]:
    """A note on what was found that lies outside a model's training; none where nothing was."""
    told = f"{name} lies outside what the {model} model was trained for: {'; '.join(found)}"
    return [told] if found else []


def special(number: int, place: int) -> Token:
    """A special piece as a token that covers no text."""
    return Token(SPECIALS[number], place, place, special=True, piece=(number, SPECIALS[number]))


@cache
def load_tokenizer(path: Path) -> Any:
    """The `tokenizers.Tokenizer` that a JSON file describes."""
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(path))


def encode_text(text: str, path: Path, what: str = "text", longest: int = LONGEST) -> EncodedText:
    """The text in pieces by the tokenizer at a path; messages call it `what`."""
    encoding = load_tokenizer(path).encode(text, add_special_tokens=False)
    if not text.strip() or not encoding.ids:
        raise InputError(f"the {what} is empty: give at least one word")
    if len(encoding.ids) > longest:
        raise InputError(
            f"the {what} has {len(encoding.ids)} pieces: the pocket model reads up to {longest}; "
            "cut it, or use --model"
        )
    spans = encoding.offsets
    shared = {span for before, span in pairwise(spans) if before == span}
    tokens = tuple(
        replace(token(text, piece, span, shares_character=span in shared), piece=(number, piece))
        for number, piece, span in zip(encoding.ids, encoding.tokens, spans, strict=True)
    )
    return EncodedText(text, list(encoding.ids), tokens)


def token(text: str, piece: str, span: tuple[int, int], *, shares_character: bool = False) -> Token:
    """A piece and its span of the text as a token: no space before it, ## inside a word.

    Where one character became several pieces, each shows its own spelling.
    """
    start, end = span
    covered = text[start:end].strip()
    if covered:
        start += text[start:end].index(covered)
        end = start + len(covered)
    shown = piece.lstrip("▁") if shares_character else covered
    mark = "##" if shown and continues_word(text, start) else ""
    return Token(f"{mark}{shown}" or piece, start, end)
