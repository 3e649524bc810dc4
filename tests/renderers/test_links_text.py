import numpy as np

from attnviz.analyses.view import views
from attnviz.core.attention_map import Attention, AttentionMap, Provenance, Token
from attnviz.renderers import Display
from attnviz.renderers.text.link_list import LinksRenderer, format_weight, name_tokens


def attention(weights, words, **fields):
    tokens = tuple(Token(word) for word in words)
    item = AttentionMap("self", tokens, tokens, np.asarray(weights, dtype=np.float32), **fields)
    return Attention((item,), Provenance("file", "m"), id="7")


def lines(found, top=20, many=False):
    renderer = LinksRenderer(Display(many=many))
    return renderer.add(found, lambda: views(found, top=top)).splitlines() + (
        renderer.finish().splitlines()
    )


WEIGHTS = [[[[0.1, 0.9], [0.28, 0.72]], [[1.0, 0.0], [0.0, 1.0]]]]


def test_a_link_is_a_line_with_its_layer_and_head_strongest_first():
    assert lines(attention(WEIGHTS, ["a", "b"])) == [
        "a → b 0.90 layer 0 head 0",
        "b → a 0.28 layer 0 head 0",
    ]


def test_top_bounds_the_lines():
    assert len(lines(attention(WEIGHTS, ["a", "b"]), top=1)) == 1


def test_a_text_that_occurs_twice_carries_its_position():
    assert name_tokens([Token("the"), Token("cat"), Token("the")]) == ["the[0]", "cat", "the[2]"]


def test_of_several_texts_each_line_names_its_own():
    assert lines(attention(WEIGHTS, ["a", "b"]), many=True)[0].startswith("7: a → b")


def test_small_weights_keep_two_digits_and_changes_their_sign():
    assert [
        format_weight(0.004321),
        format_weight(0.5),
        format_weight(-0.2, signed=True),
        format_weight(0.2, signed=True),
    ] == [
        "0.0043",
        "0.50",
        "-0.20",
        "+0.20",
    ]


def test_a_mean_over_heads_is_named_so():
    found = attention([[[[0.1, 0.9], [0.3, 0.7]]]], ["a", "b"], heads=("mean",))
    assert lines(found)[0] == "a → b 0.90 layer 0 mean over heads"


def test_escapes_in_tokens_stay_visible_text():
    assert "\x1b" not in "".join(lines(attention(WEIGHTS, ["\x1b[31m", "b"])))
