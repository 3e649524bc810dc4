"""Tokenize a text, and find the characters that each token covers."""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from attnviz.core.attention_map import Token
from attnviz.core.errors import InputError
from attnviz.core.records import dataclass, replace
from attnviz.core.tokens import continues_word
from attnviz.core.values import is_utf8
from attnviz.models.hugging_face.load import devices, imports

Span = tuple[int, int]


def align_surfaces(surfaces: Sequence[str | None], text: str) -> list[Span]:
    """The characters that each token covers, searched from left to right.

    The search ignores case, accents, compatibility forms and spaces, since tokenizers change them.
    A token that is not found (an unknown one) gets the characters between its neighbours.
    """
    plain, origin = fold_text(text)
    spans: list[Span] = [(0, 0)] * len(surfaces)
    waiting = list[int]()
    letter, end = 0, 0  # where to continue in the folded text, and in the text

    for index, surface in enumerate(surfaces):
        if surface is not None and not waiting and text.startswith(surface, end):
            spans[index] = (end, end + len(surface))
            end += len(surface)
            letter = bisect_left(origin, end)
            continue
        letters, _ = fold_text(surface or "")
        if not letters:
            spans[index] = (end, end)
            continue
        # If no token is waiting, this one must follow the last one directly.
        place = plain.find(letters, letter)
        if place < 0 or (place > letter and not waiting):
            waiting.append(index)
            continue
        share_gap(spans, waiting, text, (end, origin[place]))
        letter = place + len(letters)
        end = origin[letter - 1] + 1
        spans[index] = (origin[place], end)
    share_gap(spans, waiting, text, (end, len(text)))
    return spans


def share_gap(spans: list[Span], waiting: list[int], text: str, gap: Span) -> None:
    """Assign words of a gap to tokens that were not found; all words if the counts differ."""
    words = [
        (gap[0] + match.start(), gap[0] + match.end())
        for match in re.finditer(r"\S+", text[gap[0] : gap[1]])
    ]
    all_words = (words[0][0], words[-1][1]) if words else (gap[0], gap[0])
    shares = words if len(words) == len(waiting) else [all_words] * len(waiting)
    for index, span in zip(waiting, shares, strict=True):
        spans[index] = span
    waiting.clear()


def fold_text(text: str) -> tuple[str, list[int]]:
    """A text without case, accents, compatibility forms and spaces, and each letter's position.

    The list of positions ends with the text's length.
    """
    letters, origin = [], []
    for position, character in enumerate(text):
        for letter in unicodedata.normalize("NFKD", character).casefold():
            if not letter.isspace() and not unicodedata.combining(letter):
                letters.append(letter)
                origin.append(position)
    return "".join(letters), [*origin, len(text)]


BLANKS = {" ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍"}
PIECE_MARKS = ("Ġ", "▁")
BROKEN, MOST_BYTES = "\ufffd", 4  # what stands for bytes that are no character, and their number
Row = tuple[str, Span, int]  # a piece, the characters that it covers, 1 if it is special


@dataclass(frozen=True, slots=True)
class TokenizedText:
    """A text as a model reads it."""

    tokens: tuple[Token, ...]
    inputs: dict[str, list[int]]  # of the model, by name; a decoder's ids begin with its start
    text: str = ""  # what a decoder reads
    notes: tuple[str, ...] = ()  # on that text

    @property
    def ids(self) -> list[int]:
        return self.inputs["input_ids"]


def tokenizer_errors(tokenizer: Any) -> AbstractContextManager[None]:
    """Turn errors of a tokenizer into one line: its files can contain anything."""
    return devices.library_errors(f"the tokenizer in '{tokenizer.name_or_path}' fails on this text")


def tokenize(
    tokenizer: Any, text: str, *, as_target: bool = False, has_marks: bool = False
) -> TokenizedText:
    """A text's tokens with special tokens; `has_marks`: the text contains these already.

    So it does where it begins with the token that the tokenizer would put before it.
    """
    check_text(text)
    arguments: dict[str, Any] = {"text_target" if as_target else "text": text}
    if tokenizer.is_fast:
        arguments |= {"return_offsets_mapping": True, "return_special_tokens_mask": True}
    with tokenizer_errors(tokenizer), imports.quiet_native():
        encoding = dict(tokenizer(**arguments, add_special_tokens=not has_marks, verbose=False))
        pieces = pieces_of(tokenizer, encoding["input_ids"])
    offsets = encoding.pop("offset_mapping", None)
    specials = encoding.pop("special_tokens_mask", None)
    ids = encoding["input_ids"]
    marks = {number for number, one in tokenizer.added_tokens_decoder.items() if one.special}
    if not tokenizer.is_fast:
        marks |= {*tokenizer.all_special_ids}
    # A mask and an unknown word stand for text.
    marks -= {tokenizer.unk_token_id, tokenizer.mask_token_id}
    if not has_marks and ids[:1] == ids[1:2] and ids[0] in marks:
        return tokenize(tokenizer, text, as_target=as_target, has_marks=True)
    specials = [
        int(number in marks) | mark
        for number, mark in zip(ids, specials or [0] * len(ids), strict=True)
    ]
    if offsets is None:
        offsets = locate_pieces(tokenizer, pieces, specials, text)
    if all(specials):
        raise InputError("the text leaves no tokens: the model's tokenizer knows none of it")
    tokens = label_tokens(pieces, offsets, specials, text, tokenizer.unk_token)
    tokens = add_vocabulary(tokens, ids, pieces)
    return TokenizedText(tokens, {name: list(row) for name, row in encoding.items()})


def pieces_of(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """The pieces of ids; an id that the tokenizer does not know becomes its number, <12>."""
    pieces = tokenizer.convert_ids_to_tokens(list(ids))
    return [
        f"<{number}>" if piece is None else piece for number, piece in zip(ids, pieces, strict=True)
    ]


def check_text(text: str) -> None:
    """Refuse a text that no tokenizer can read."""
    if not text.strip():
        raise InputError("the text is blank: there is nothing to attend to")
    if not is_utf8(text):
        raise InputError(
            "the text holds half a character (a lone surrogate): it is not valid Unicode"
        )


def tokenize_generated(tokenizer: Any, ids: Sequence[int]) -> tuple[str, tuple[Token, ...]]:
    """The text of generated tokens, and the tokens with their places in it."""
    with tokenizer_errors(tokenizer):
        text = tokenizer.decode(ids, skip_special_tokens=True).strip()
    return text, label_ids(tokenizer, ids, text)


def label_ids(
    tokenizer: Any, ids: Sequence[int], text: str, *, before: str = ""
) -> tuple[Token, ...]:
    """The tokens of ids whose text stands behind the text `before`."""
    with tokenizer_errors(tokenizer):
        pieces = pieces_of(tokenizer, ids)
    # An id without a piece has no text.
    nameless = (piece == f"<{number}>" for number, piece in zip(ids, pieces, strict=True))
    specials = [
        int(bare or number in tokenizer.all_special_ids)
        for number, bare in zip(ids, nameless, strict=True)
    ]
    start = len(before)
    spans = locate_pieces(tokenizer, pieces, specials, text)
    offsets = [(first + start, last + start) for first, last in spans]
    return add_vocabulary(label_tokens(pieces, offsets, specials, before + text, None), ids, pieces)


def add_vocabulary(
    tokens: Sequence[Token], ids: Sequence[int], pieces: Sequence[str]
) -> tuple[Token, ...]:
    """Tokens with their ids and pieces in the vocabulary."""
    pairs = zip(tokens, zip(ids, pieces, strict=True), strict=True)
    return tuple(replace(token, piece=piece) for token, piece in pairs)


def locate_pieces(
    tokenizer: Any, pieces: Sequence[str], specials: Sequence[int], text: str
) -> list[Span]:
    """The characters that each piece covers, found by the pieces' text.

    Pieces that are bytes of one character have no text alone: they are searched together and share
    its place. A character has at most four bytes, and none of them is a text alone.
    """
    surfaces, sizes, waiting = list[str | None](), list[int](), list[str]()

    def spell(some: list[str]) -> str:
        with tokenizer_errors(tokenizer):
            return str(tokenizer.convert_tokens_to_string(some))

    def end(surface: str | None) -> None:
        surfaces.append(surface and surface.removeprefix("##").removesuffix("@@"))
        sizes.append(len(waiting))
        waiting.clear()

    for position, (piece, special) in enumerate(zip(pieces, specials, strict=True), 1):
        alone = None if special else spell([piece])
        if waiting and (alone is None or (alone and BROKEN not in alone)):
            end(spell(waiting))  # bytes that are no character
        waiting.append(piece)
        surface = alone if len(waiting) == 1 else spell(waiting)
        ends = position == len(pieces) or len(waiting) == MOST_BYTES or piece in PIECE_MARKS
        if ends or surface is None or (surface and BROKEN not in surface):
            end(surface)
    spans = align_surfaces(surfaces, text)
    return [span for span, size in zip(spans, sizes, strict=True) for _ in range(size)]


def label_tokens(
    pieces: Sequence[str],
    offsets: Sequence[Span],
    specials: Sequence[int],
    text: str,
    unknown: str | None,
) -> tuple[Token, ...]:
    """Tokens named by the characters that they cover.

    Tokenizers' own spellings ("Ġthe", "▁the", "Ã©") are hard to read and differ between models. A
    token that continues a word gets "##" in every family, as WordPiece writes it; parts of one
    character are counted ("é 1/2"); an unknown token keeps its name, since the model saw no more.
    """
    spans = [_trim(piece, span, text) for piece, span in zip(pieces, offsets, strict=True)]
    tokens = list[Token]()
    rows = list(zip(pieces, spans, specials, strict=True))
    for members in group_by_span(rows):
        for number, (piece, (start, end), special) in enumerate(members, 1):
            part = f" {number}/{len(members)}" if len(members) > 1 and piece != unknown else ""
            name = piece if special or piece == unknown else spelling(piece, (start, end), text)
            tokens.append(Token(name + part, start, end, bool(special)))
    return tuple(tokens)


def group_by_span(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Groups of neighbouring pieces that cover the same characters."""
    members = list[Row]()
    for row in rows:
        _, (start, end), special = row
        if members and (special or end <= start or members[0][2] or members[0][1] != row[1]):
            yield members
            members = []
        members.append(row)
    if members:
        yield members


def _trim(piece: str, span: Span, text: str) -> Span:
    """A span without the space before a word, which only some tokenizers count."""
    start, end = span
    if piece in PIECE_MARKS and not text[start:end].isspace():
        # A lone mark stands for the space, but its offsets are those of the next letter.
        return start, start
    letters = text[start:end]
    if not letters.strip():
        return start, end
    start += len(letters) - len(letters.lstrip())
    return start, start + len(letters.strip())


def spelling(piece: str, span: Span, text: str) -> str:
    """A piece's characters, with "##" if it continues a word."""
    start, end = span
    letters = text[start:end]
    if not letters:
        return "␣" if piece in PIECE_MARKS or piece.isspace() else piece or "∅"
    if letters.isspace():
        return "".join(BLANKS.get(character, "␣") for character in letters)
    inside = piece.startswith("##") or continues_word(text, start)
    return f"##{letters}" if inside else letters
