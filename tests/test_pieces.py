import pytest

from attnviz.core.tokens import continues_word


@pytest.mark.parametrize(
    ("text", "start", "inside"),
    [
        ("professor", 0, False),
        ("professor", 7, True),
        ("the professor", 4, False),
        ("isn't", 3, False),
        ("isn't", 4, False),
        ("été", 1, True),
        ("我喜欢", 1, False),
        ("a3", 1, True),
        ("", 0, False),
        ("a", 1, False),
    ],
)
def test_a_piece_goes_on_between_letters(text, start, inside):
    assert continues_word(text, start) is inside
