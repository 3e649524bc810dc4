import numpy as np

from attnviz.analyses.view import views
from attnviz.core.attention_map import Attention, AttentionMap, Provenance, Token
from attnviz.core.measures import format_weight
from attnviz.renderers import Display, Views
from attnviz.renderers.text.link_list import LinksRenderer


def attention(weights, words, **fields):
    tokens = tuple(Token(word) for word in words)
    item = AttentionMap("self", tokens, tokens, np.asarray(weights, dtype=np.float32), **fields)
    return Attention((item,), Provenance("file", "m"), id="7")


def lines(found, top=20, many=False):
    renderer = LinksRenderer(Display(many=many))
    return renderer.add(found, Views(lambda: views(found, top=top))).splitlines() + (
        renderer.finish().splitlines()
    )


WEIGHTS = [[[[0.1, 0.9], [0.28, 0.72]], [[1.0, 0.0], [0.0, 1.0]]]]


def test_links_are_bounded_named_and_printable():
    assert len(lines(attention(WEIGHTS, ["a", "b"]), top=1)) == 1
    assert [
        format_weight(0.004321),
        format_weight(0.5),
        format_weight(-0.2, signed=True),
        format_weight(0.2, signed=True),
    ] == ["0.0043", "0.50", "-0.20", "+0.20"]
    found = attention([[[[0.1, 0.9], [0.3, 0.7]]]], ["a", "b"], heads=("mean",))
    assert lines(found)[0] == "a → b 0.90 layer 0 mean over heads"
    assert "\x1b" not in "".join(lines(attention(WEIGHTS, ["\x1b[31m", "b"])))
