"""The engine's tokenizer against the tokenizers package: pieces, places, labels, notes."""

import random
import unicodedata
from collections.abc import Callable, Iterator

import pytest

from attnviz.core.errors import InputError
from attnviz.models.pocket.card import FOLDER, tokenizer_of
from attnviz.models.pocket.text import encode_text
from attnviz.renderers.printable import printable
from tests.features.live.conftest import Engine

LINES = 10_000
MOST_PIECES = 256
ACCENTS = "éèêëàâîïôùûüçœæÿÉÈÊËÀÂÎÏÔÙÛÜÇŒÆŸ"
APOSTROPHES = "'’ʼ‘`´′＇‛"
SPACES = (
    *(" ", "\u00a0", "\u202f", "  ", "\t", "\n", "\u200b", "\u00ad", "▁", "\u3000", "\x1c"),
    "\ufeff",
)
WORDS = [
    *("l'été", "qu'il", "n'a", "aujourd'hui", "œuvre", "garçon", "où", "être", "cœur", "Noël"),
    *("naïf", "maïs", "élève", "déjà", "là-bas", "rendez-vous", "c'est-à-dire", "Tom", "the"),
    *("isn't", "we're", "colour", "1.5", "3,14", "naïve?", "(yes)", "«oui»", "“no”", "…", "—", "!"),
]
EMOJI = ("😀", "👩‍👩‍👧", "🏳️‍🌈", "👍🏽", "🇫🇷", "❤️", "🤷‍♂️", "1️⃣", "☕", "🀄")
HOSTILE = (
    *("<eos>", "<en> hi", "a<unk>b", "<pad><mask>", "<fr>x <eos> y", "<script>alert(1)</script>"),
    *(
        "\x1b[31mred",
        "\u202eabc\u202c",
        "{{}}",
        "a" * 300,
        "ﬁancé ½ ™ ﷺ ①",
        "가각힣 \u1100\u1161\u11a8",
    ),
    *(
        "日本語テスト",
        "Ａｂｃ",
        "ǅ ŉ",
        "\u0f73\u0f75 \u0344x",
        "e\u0323\u0301\u0302",
        "",
        " ",
        "\n\t",
    ),
)
# Letters, jamo and marks that compose, are put in order, or are newer than the tokenizer's tables.
COMPOSING = [
    *(0x41, 0x61, 0x65, 0x1100, 0x1161, 0x11A8, 0xAC00, 0x9C7, 0x9BE, 0x308, 0x301, 0x323, 0x327),
    *(0x345, 0x3B1, 0x1F00, 0xFB2A, 0x5D9, 0x5B4, 0x64A, 0x654, 0xF71, 0xF72, 0x1E9B, 0x110A5),
    *(0x110BA, 0x11935, 0x11930, 0x32FF, 0x212B, 0xFB01, 0xFDFA, 0x1ACF, 0x10EFD),
]


def lines(count: int, seed: int) -> Iterator[str]:
    """Random texts of every kind that has its own rule."""
    draw = random.Random(seed)

    def several(most: int, make: Callable[[], str], between: str = "") -> str:
        return between.join(make() for _ in range(draw.randrange(1, most)))

    def sentence() -> str:
        return several(12, lambda: draw.choice(WORDS), " ")

    def point() -> str:
        found = draw.choice([draw.randrange(0x20, 0x250), draw.randrange(0x110000)])
        return "" if 0xD800 <= found < 0xE000 else chr(found)

    def marked() -> str:
        text = sentence()
        place = draw.randrange(len(text) + 1)
        return text[:place] + several(5, lambda: chr(draw.randrange(0x300, 0x34F))) + text[place:]

    kinds: list[Callable[[], str]] = [
        sentence,
        marked,
        lambda: sentence().replace("'", draw.choice(APOSTROPHES)).replace(" ", draw.choice(SPACES)),
        lambda: unicodedata.normalize(draw.choice(["NFD", "NFKD"]), sentence()),
        lambda: several(25, lambda: draw.choice(ACCENTS + APOSTROPHES + " -.,!?«»“”…ab")),
        lambda: several(8, lambda: draw.choice(EMOJI) + draw.choice(["", "a", "été"]), " "),
        lambda: several(20, point),
        lambda: several(10, lambda: chr(draw.choice(COMPOSING))),
        lambda: draw.choice(HOSTILE) + draw.choice(["", " ", sentence()]),
    ]
    return (draw.choice(kinds)() for _ in range(count))


def differing(engine: Engine, texts: list[str]) -> list[tuple[str, object, object]]:
    """The texts of which the page would show other tokens than Python."""
    found = []
    for text, answer in zip(texts, engine.tokens(texts), strict=True):
        expected: dict[str, object]
        try:
            read = encode_text(text, tokenizer_of(FOLDER))
        except InputError as error:
            expected = {"error": str(error)}
        else:
            shown = [[printable(token.text), token.start, token.end] for token in read.tokens]
            expected = {"ids": read.ids, "tokens": shown, "notes": read.notes("the text")}
            if len(read.ids) > MOST_PIECES:
                pieces = f"the text has {len(read.ids)} pieces: this page reads up to {MOST_PIECES}"
                expected = {"error": f"{pieces}; cut it"}
        if answer != expected:
            found.append((text, expected, answer))
    return found


def test_tokens_are_those_of_python(engine):
    assert differing(engine, [*HOSTILE, *WORDS, "e\u0334\u0301", *lines(300, seed=1)]) == []
    (answer,) = engine.tokens(["a\ud83d b"])
    assert [piece for piece, *_ in answer["tokens"]] == ["a", "�", "b"]


@pytest.mark.slow
def test_many_lines_and_characters_are_as_in_python(engine):
    assert differing(engine, list(lines(LINES, seed=2))) == []
    unknown = {"Cn", "Co", "Cs"}
    points = [chr(point) for point in range(0x13000) if not 0x3400 <= point <= 0x9FFF]
    known = [point for point in points if unicodedata.category(point) not in unknown]
    texts = [f"a{'b'.join(known[place : place + 40])}" for place in range(0, len(known), 40)]
    assert differing(engine, texts) == []
