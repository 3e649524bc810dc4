"""Texts and queries as the pocket model reads them: piece ids, and tokens with their places."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from attnviz.core.attention_map import Token
from attnviz.core.errors import InputError
from attnviz.core.records import dataclass, replace
from attnviz.core.tokens import continues_word

PAD, UNKNOWN, END, ENGLISH, FRENCH, MASK = range(6)  # the ids of the special pieces
SPECIALS = ("<pad>", "<unk>", "<eos>", "<en>", "<fr>", "<mask>")
LANGUAGE = {"en": ENGLISH, "fr": FRENCH}

LONGEST = 4096  # pieces of the longest text that is read: its maps hold 24 × 4096² weights
RELIABLE = 50
"""Positions at which heads keep their roles: later, the next and the previous word get less than
half of their weight at the beginning (benchmarks/pocket_limits.py)."""
SHORT = 3
"""Characters a piece: texts of longer pieces count as English or French. 1 % of Spanish sentences
have longer ones, and 84 % of English and French ones."""
UNLIKELY = 2.2
"""Nats a character above which a text is neither English nor French: 0.3 % of unseen sentences in
them have more, and at least 99 % of those in German, Czech, Spanish and Italian."""
END_SIZE = 5  # characters that the end of a text counts as, by its loss; short texts are mostly end


@dataclass(frozen=True, slots=True)
class EncodedText:
    """A text in pieces: their ids and tokens, without special ones.

    `surprise` is its loss in nats a character in the likelier of English and French; 0: not known.
    """

    text: str
    ids: list[int]
    tokens: tuple[Token, ...]
    surprise: float = 0.0

    @property
    def is_foreign(self) -> bool:
        """Whether the text is probably neither English nor French."""
        return self.surprise > UNLIKELY

    def beginning(self) -> EncodedText:
        """The part of the text that the model reads reliably."""
        end = self.tokens[:RELIABLE][-1].end
        return EncodedText(self.text[:end], self.ids[:RELIABLE], self.tokens[:RELIABLE])

    def with_end(self) -> tuple[list[int], tuple[Token, ...]]:
        return [*self.ids, END], (*self.tokens, special(END, len(self.text)))

    def with_tag(self, language: str) -> tuple[list[int], tuple[Token, ...]]:
        return [LANGUAGE[language], *self.ids], (special(LANGUAGE[language], 0), *self.tokens)

    def notes(self, name: str, model: str = "pocket", reliable: int = RELIABLE) -> list[str]:
        """A note where the model is unreliable; heads keep their roles for `reliable` positions."""
        facts, unknown = [], self.ids.count(UNKNOWN)
        if unknown:
            facts.append(f"{unknown} of {len(self.ids)} pieces are unknown to it")
        if self.is_foreign:
            facts.append(
                "its language is unknown, as neither English nor French is likely "
                f"({self.surprise:.1f} nats a character, where both have fewer than {UNLIKELY})"
            )
        if len(self.ids) > reliable:
            facts.append(f"{len(self.ids)} pieces, where its heads keep their roles for {reliable}")
        return outside_note(name, model, facts)


@dataclass(frozen=True, slots=True)
class PocketInputs:
    """A query as the encoder and the decoder read it."""

    source: EncodedText | None
    target: EncodedText | None = None
    language: str = ""
    notes: tuple[str, ...] = ()
    translated: bool = False

    @property
    def source_ids(self) -> list[int]:
        return self.source.with_end()[0] if self.source else [END]

    @property
    def target_ids(self) -> list[int]:
        return self.target.with_tag(self.language)[0] if self.target else []


def outside_note(name: str, model: str, findings: list[str]) -> list[str]:
    """A note on findings outside a model's training; none without findings."""
    if not findings:
        return []
    return [f"{name} lies outside what the {model} model was trained for: {'; '.join(findings)}"]


def special(number: int, place: int) -> Token:
    """A special piece as a token that covers no text."""
    return Token(SPECIALS[number], place, place, special=True, piece=(number, SPECIALS[number]))


@cache
def load_piece_tokenizer(path: Path) -> Any:
    """The `tokenizers.Tokenizer` that a JSON file describes."""
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(path))


def encode_text(text: str, path: Path, what: str = "text", longest: int = LONGEST) -> EncodedText:
    """The text in pieces by the tokenizer at a path; messages call it `what`."""
    spaces = text.count(" ")  # each begins a piece: millions of them take half a minute
    encode = load_piece_tokenizer(path).encode
    encoding = None if spaces > longest else encode(text, add_special_tokens=False)
    if not text.strip() or (encoding is not None and not encoding.ids):
        raise InputError(f"the {what} is empty: give at least one word")
    if encoding is None or len(encoding.ids) > longest:
        raise InputError(
            f"the {what} has {f'more than {spaces}' if encoding is None else len(encoding.ids)} "
            f"pieces: the model reads up to {longest}; cut it, or use --model"
        )
    spans = encoding.offsets
    doubles = {span for before, span in pairwise(spans) if before == span}
    tokens = tuple(
        replace(token(text, piece, span, shares_character=span in doubles), piece=(number, piece))
        for number, piece, span in zip(encoding.ids, encoding.tokens, spans, strict=True)
    )
    return EncodedText(text, list(encoding.ids), tokens)


def token(text: str, piece: str, span: tuple[int, int], *, shares_character: bool = False) -> Token:
    """A piece as a token with its span: no space before it, ## inside a word."""
    start, end = span
    letters = text[start:end].strip()
    if letters:
        start += text[start:end].index(letters)
        end = start + len(letters)
    own_text = piece.lstrip("▁") if shares_character else letters
    mark = "##" if own_text and continues_word(text, start) else ""
    return Token(f"{mark}{own_text}" or piece, start, end)


def spell_piece(tokenizer: Path, number: int) -> str:
    """A piece as it is written, or the name of a special one."""
    if number < len(SPECIALS):
        return SPECIALS[number]
    return str(load_piece_tokenizer(tokenizer).decode([number])).strip() or "␣"
