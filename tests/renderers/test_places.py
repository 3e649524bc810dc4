"""Names for the places of a long text."""

import pytest

from attnviz.core.attention_map import AttentionMap, Token
from attnviz.renderers.figures.heatmap import heatmap
from attnviz.renderers.figures.places import places_of
from tests.renderers.pictures import shares
from tests.samples import notes_of

TEXT = "He ran home. She sat. It rained.\n\n# The end\nNobody came back. They slept well."


def tokens_of(text):
    starts = [place for place, letter in enumerate(text) if letter.strip()
              and (not place or not text[place - 1].strip())]  # fmt: skip
    return tuple(Token(text[start:].split()[0], start, start + len(text[start:].split()[0]))
                 for start in starts)  # fmt: skip


def map_of_text(text, first=0, block=1):
    tokens = tokens_of(text)
    weights = shares(len(tokens), len(tokens))[None, None]
    return AttentionMap("self", tokens, tokens, weights, starts=(first,) * 2, blocks=(block,) * 2)


def test_sentences_are_named_by_number_and_first_words():
    places = places_of(map_of_text(TEXT), 0, TEXT)
    assert [*places.begins] == [0, 7, 3, 5, 10, 13]
    assert [places.name(place, 12) for place in places.begins] == [
        "0 ¶ He ran home.",
        "7 ¶ The end",
        "3 She sat. It",
        "5 It rained.",
        "10 Nobody came",
        "13 They slept",
    ]


def test_numbers_are_those_of_the_whole_text():
    assert places_of(map_of_text(TEXT, first=2700), 0, TEXT).name(3, 9) == "2703 She sat."
    assert places_of(map_of_text(TEXT, first=10, block=3), 1, TEXT).name(3, 9) == "19 She sat."
    item = map_of_text(TEXT)
    part = item.with_weights(
        item.weights[:, :, 3:5], query_tokens=item.query_tokens[3:5], starts=(3, 0)
    )
    assert names_of(heatmap(part, title="t", texts=(TEXT, TEXT))) == ["3 She", "4 sat."]
    figure = heatmap(map_of_text(TEXT, block=3), title="t")
    says = "a cell: what 3 tokens give to 3 tokens, the mean of its rows and the sum of its columns"
    assert says in notes_of(figure)


@pytest.mark.parametrize("text", ["", "one sentence of words without an end"])
def test_a_text_without_sentences_has_equal_steps(text):
    assert not places_of(map_of_text(text or TEXT), 0, text).begins


def names_of(figure):
    axes = figure.axes[0]
    return [label.get_text() for label in axes.get_yticklabels()]


def test_a_long_map_names_sentences_a_short_one_tokens():
    text = " ".join(f"Word{number} is here and then it goes on." for number in range(60))
    item = map_of_text(text)
    figure = heatmap(item, title="t", texts=(text, text))
    names = names_of(figure)
    assert names[0] == "0 Word0 is here and then"
    assert len(names) > 20
    assert {int(name.split()[0]) % 8 for name in names} == {0}
    assert "named by number and first words: where sentences begin, as far as fits" in notes_of(
        figure
    )
    assert names_of(heatmap(map_of_text(TEXT), title="t", texts=(TEXT, TEXT)))[:2] == ["He", "ran"]
