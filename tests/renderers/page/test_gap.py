from attnviz.core.attention_map import Token
from attnviz.renderers.page.data import gap


def test_gaps_are_those_of_the_text_or_apart():
    text = "ab c\nd"
    a, b, c, d = (Token(x, n, n + 1) for x, n in (("a", 0), ("b", 1), ("c", 3), ("d", 5)))
    assert [gap(None, a, text), gap(a, b, text), gap(b, c, text), gap(c, d, text)] == [
        "",
        "",
        " ",
        "\n",
    ]
    assert gap(Token("the", 0, 3), Token(" cat", 3, 7), "the cat") == " "
    mark = Token("[CLS]", special=True)
    assert gap(mark, Token("a", 0, 1), "a") == " "
    assert gap(Token("a"), Token("b"), None) == " "
