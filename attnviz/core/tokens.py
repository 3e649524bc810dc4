"""Tokens: their names, sentences, patches of a picture, and where attention rests in any text.

A patch is named by its row and column, counted from 0 at the upper left. A sink is a key that takes
much of the attention of most rows (Xiao et al. 2023, "Efficient Streaming Language Models with
Attention Sinks"); in a causal model it is the first token.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from attnviz.core.attention_map import KINDS, TEXTUAL, AttentionMap, Token
from attnviz.core.errors import UsageError, in_words, is_number

_CLOSING = "[\"'”’»)\\]]*"
_END = re.compile(
    rf"(?<!\b(?:Mr|Ms|Dr|St|vs|cf))(?<!\bMrs)(?<!\bProf)(?<!\be\.g)(?<!\bi\.e)(?<!\b[A-Z])\.+"
    rf"{_CLOSING}(?=\s)(?!\s+[a-z])|[!?…]+{_CLOSING}(?=\s)(?!\s+[a-z])|[。！？]+[”’」』）]*|\n+"
)


def continues_word(text: str, start: int) -> bool:
    """Whether a piece continues a word ("##ing"), which none does in scripts without spaces."""
    before, first = text[max(start - 1, 0) : start], text[start : start + 1]
    has_spaces = unicodedata.east_asian_width(first or " ") not in {"W", "F"}
    return before.isalnum() and first.isalnum() and has_spaces


MARK = re.compile(
    r"<\|[^|]+\|>|</?(s|pad|bos|eos|cls|sep|start_of_turn|end_of_turn|im_start|im_end)>"
    r"|\[(CLS|SEP|PAD|BOS|EOS|/?INST)\]"
)
"""Tokens that stand for no text, as common tokenizers spell them."""
_SAFE = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
_BYTES = {chr(one): one for one in _SAFE} | {
    chr(0x100 + number): one for number, one in enumerate(sorted({*range(256)} - _SAFE))
}
"""Byte-level tokenizers (GPT-2) write each byte as a letter; invisible ones begin at U+0100."""


def tokens_of_pieces(
    pieces: Sequence[str], special: Sequence[str] = ()
) -> tuple[tuple[Token, ...], str]:
    """Tokens named as those of a model, and their text, from a tokenizer's own pieces.

    These are bytes with Ġ for a space, ▁ before a word, or ## before or @@ behind a part of one;
    other pieces keep their names and have no text.
    """
    marks = [piece in special or bool(MARK.fullmatch(piece)) for piece in pieces]
    plain = [piece for piece, mark in zip(pieces, marks, strict=True) if not mark]
    is_bytes = any("Ġ" in one for one in plain) and all(map(_BYTES.__contains__, "".join(plain)))
    joins = any(one.startswith("##") or one.endswith("@@") for one in plain)
    if not (is_bytes or joins or any(one.startswith("▁") for one in plain)):
        rows = zip(pieces, marks, strict=True)
        return tuple(Token(piece, special=mark) for piece, mark in rows), ""
    tokens, text, waiting, is_open = list[Token](), "", b"", False
    for piece, mark in zip(pieces, marks, strict=True):
        if mark:
            tokens.append(Token(piece, len(text), len(text), special=True))
            waiting = b""
            continue
        if is_bytes:
            waiting += bytes(map(_BYTES.__getitem__, piece))
            letters = waiting.decode("utf-8", "ignore" if len(waiting) < 4 else "replace")
            waiting = b"" if letters else waiting
        elif joins:
            letters = piece.removeprefix("##").removesuffix("@@")
            letters = letters if is_open or letters != piece.removesuffix("@@") else f" {letters}"
            is_open = piece.endswith("@@")
        else:
            letters = piece.replace("▁", " ")
        letters = letters if text else letters.lstrip(" ")
        text += letters
        end, name = len(text), letters.strip()
        start = end - len(letters.lstrip()) if name else end - len(letters)
        name = f"##{name}" if name and continues_word(text, start) else name
        tokens.append(Token(name or "␣", start, end))
    return tuple(tokens), text


def text_places(tokens: Sequence[Token]) -> list[int]:
    """The positions of the tokens that are not special."""
    return [place for place, token in enumerate(tokens) if not token.special]


def run_of(places: list[int]) -> slice | list[int]:
    """Places as a slice where none lies between them: an index that copies nothing."""
    if not places or places[-1] - places[0] + 1 != len(places):
        return places
    return slice(places[0], places[-1] + 1)


def kind_edges(tokens: Sequence[Token]) -> list[int]:
    """The places where keys of another kind begin; none where all are of one."""
    pairs = enumerate(pairwise(tokens), 1)
    return [place for place, (one, other) in pairs if one.kind != other.kind]


def count_kinds(tokens: Sequence[Token]) -> dict[str, int]:
    """How many keys there are of each kind, in their order."""
    counts: dict[str, int] = {}
    for token in tokens:
        counts[token.kind] = counts.get(token.kind, 0) + 1
    return counts


def kinds_in_words(counts: Mapping[str, int]) -> str:
    """Such as "14 tokens and 3 compressed tokens"."""
    parts = []
    for kind, count in counts.items():
        name = KINDS.get(kind, kind)
        parts.append(f"{count:,} {name if count != 1 else one_of(kind)}")
    return in_words(parts, "and")


def one_of(kind: str) -> str:
    """The word for one key of a kind: "block of layers"."""
    return "block of layers" if kind == "layer" else KINDS.get(kind, kind).removesuffix("s")


def is_mark(token: Token) -> bool:
    """Whether a token is special among those of a text, and no key of another kind."""
    return token.special and token.kind in TEXTUAL


def has_kinds(item: AttentionMap) -> bool:
    """Whether some keys of a map are no tokens of the sequence, as registers still are."""
    return any(token.kind not in ("token", "register") for token in item.key_tokens)


def mark_tokens(names: Iterable[str]) -> tuple[Token, ...]:
    """Special tokens of a picture by name; "[REG 0]" is a register."""
    kinds = {True: "register", False: "token"}
    return tuple(Token(one, special=True, kind=kinds[one.startswith("[REG")]) for one in names)


_PATCH = re.compile(r"(\d+),(\d+)")
AVERAGE = Token("mean over patches", special=True)  # a picture without a class token


def patch_name(row: int, column: int) -> str:
    """A patch's name, such as "3,5"."""
    return f"{row},{column}"


def patch_tokens(rows: int, columns: int) -> tuple[Token, ...]:
    """One token for each patch, row by row."""
    return tuple(Token(patch_name(row, column)) for row in range(rows) for column in range(columns))


def parse_patch(text: str) -> tuple[int, int]:
    row, comma, column = (part.strip() for part in text.partition(","))
    if not comma or not is_number(row) or not is_number(column):
        raise UsageError(f"--patch '{text}' is no patch: write ROW,COLUMN, both from 0 (3,5)")
    return int(row), int(column)


def check_patch(text: str, rows: int, columns: int) -> tuple[int, int]:
    """Row and column of a patch, or a UsageError if the picture does not have it."""
    row, column = parse_patch(text)
    if row >= rows or column >= columns:
        raise UsageError(
            f"patch {patch_name(row, column)} does not exist: the picture has {rows} × {columns}, "
            f"0,0 to {patch_name(rows - 1, columns - 1)}"
        )
    return row, column


def patch_grid(tokens: Sequence[Token]) -> tuple[int, int]:
    row, column = parse_patch(tokens[-1].text)
    return row + 1, column + 1


def patch_places(tokens: Sequence[Token]) -> NDArray[np.float64] | None:
    """Row and column of each patch, shape (patches, 2); None where the tokens are no picture's.

    A picture's tokens are named "row,column", row by row without a gap; special ones may stand
    among them.
    """
    matches = [_PATCH.fullmatch(token.text) for token in tokens if not token.special]
    places = [(int(match[1]), int(match[2])) for match in matches if match]
    if len(places) < max(len(matches), 2):
        return None
    rows, columns = places[-1][0] + 1, places[-1][1] + 1
    grid = [(row, column) for row in range(rows) for column in range(columns)]
    return np.array(places, dtype=np.float64) if places == grid else None


SINK_SHARE, BEYOND_UNIFORM = 0.3, 1.5
"""Least share of attention of a sink, and as a multiple of what uniform attention would give.

Of 1,024 texts of 5 to 400 random tokens in Llamas and GPT-2s of random weights, which have no sink,
the first token got at most 1.36 times as much; a pretrained causal model gives it most of all.
"""


def is_causal(item: AttentionMap) -> bool:
    """Whether no row of a whole text sees what stands behind it."""
    square = item.query_side == item.key_side and item.starts == (0, 0)
    square &= item.weights.shape[-1] == item.weights.shape[-2] > 1 and item.values == "share"
    return square and not np.triu(item.weights.sum(axis=(0, 1)), 1).any()


def sink_place(item: AttentionMap, *, blocks: bool = False) -> int | None:
    """The key that is a sink of a text's self-attention, or block of keys; None: there is none.

    Uniform attention reaches every key, or where nothing lies above the diagonal those up to the
    query. Of one head alone only the first key can be a sink.
    """
    if item.values != "share" or item.query_side != item.key_side:
        return None
    if item.is_pooled and not blocks:
        return None
    weights = item.weights.sum(axis=(0, 1))
    if len(item.key_tokens) < 4 or not weights.any():  # of fewer one holds much by chance
        return None
    causal = not np.triu(weights, 1).any()
    visible = np.tri(*weights.shape) if causal else np.ones_like(weights)
    place = int(weights.sum(axis=0).argmax())
    # In the map of one head a word with much attention may be about the text, so it is no sink.
    if place and len(item.layers) == len(item.heads) == 1 and item.heads[0].isdigit():
        return None
    share = weights[:, place].sum() / weights.sum()
    uniform = (visible / visible.sum(axis=-1, keepdims=True))[:, place].mean()
    return place if stands_out(share, uniform) else None


def stands_out(share: float, uniform: float) -> bool:
    """Whether a key with this share of all attention is a sink."""
    return share >= max(SINK_SHARE, BEYOND_UNIFORM * uniform)


def first_is_sink(item: AttentionMap) -> bool:
    """Whether the first token of a causal text is a sink though it stands for text."""
    return begins_causal(item) and sink_place(item) == 0


def begins_causal(item: AttentionMap) -> bool:
    """Whether a causal text begins with a token that stands for text."""
    begins = item.begins and not item.is_pooled and not item.key_tokens[0].special
    return begins and is_causal(item)


def without_first(item: AttentionMap) -> AttentionMap:
    """The map without its first token: its row and column are 0, as those of padding are."""
    weights = item.weights.copy()
    weights[:, :, 0], weights[..., 0] = 0, 0
    return item.with_weights(weights)


def word_cells(item: AttentionMap, *, blocks: bool = False) -> NDArray[np.bool_]:
    """True for cells (queries, keys) between words; special tokens and most sinks are no words."""
    words = [np.array([not token.special for token in tokens])
             for tokens in (item.query_tokens, item.key_tokens)]  # fmt: skip
    sink = sink_place(item, blocks=blocks)
    if sink is not None:
        words[1][sink] = False
    cells: NDArray[np.bool_] = words[0][:, None] & words[1]
    return cells if cells.any() else np.ones_like(cells)


def split_sentences(text: str) -> tuple[Token, ...]:
    """The sentences of a text, each with its place in it.

    A sentence ends after . ! ? or … and closing quotes or brackets, if white space and no small
    letter follow; after 。！ or ？; and at a line break. A point after a single capital letter or a
    common abbreviation (Dr., Mr., e.g.) does not end a sentence.
    """
    sentences: list[Token] = []
    start = 0
    for end in (*(match.end() for match in _END.finditer(text)), len(text)):
        piece = text[start:end]
        if piece.strip():
            first = start + len(piece) - len(piece.lstrip())
            sentences.append(Token(piece.strip(), first, first + len(piece.strip())))
        start = end
    return tuple(sentences)


def token_label(tokens: Sequence[Token], position: int) -> str:
    """The name of a token: "red", or "red[3]" if the text has several."""
    text = tokens[position].text
    alone = sum(token.text == text for token in tokens) == 1
    return text if alone else f"{text}[{position}]"
