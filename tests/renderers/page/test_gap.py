from attnviz.core.attention_map import Token
from attnviz.renderers.page.data import gap


def test_the_gap_between_tokens_is_what_the_text_has_there():
    text = "ab c\nd"
    a, b, c, d = (Token(x, n, n + 1) for x, n in (("a", 0), ("b", 1), ("c", 3), ("d", 5)))
    assert [gap(None, a, text), gap(a, b, text), gap(b, c, text), gap(c, d, text)] == [
        "",
        "",
        " ",
        "\n",
    ]


def test_a_token_that_brings_its_space_along_stands_apart():
    assert gap(Token("the", 0, 3), Token(" cat", 3, 7), "the cat") == " "


def test_tokens_without_a_place_are_set_apart():
    mark = Token("[CLS]", special=True)
    assert gap(mark, Token("a", 0, 1), "a") == " "
    assert gap(Token("a"), Token("b"), None) == " "
