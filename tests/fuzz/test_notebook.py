"""What a notebook shows of a result is one frame of its own, whatever the text holds."""

import io
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import attnviz
from attnviz.core.errors import AttnvizError
from attnviz.core.registry import LENSES
from fuzz.invariants import page
from fuzz.strategies import odd_texts

checked = settings(deadline=None, derandomize=True, database=None, max_examples=25)


class Frames(HTMLParser):
    """The tags of a cell, and the pages in its frames."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.pages: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given = dict(attrs)
        if tag == "iframe":
            assert given.keys() <= {"srcdoc", "style", "sandbox", "width", "height", "title"}
            assert "allow-same-origin" not in (given.get("sandbox") or "")
            self.pages.append(given["srcdoc"] or "")


@checked
@pytest.mark.slow
@given(
    odd_texts.map(lambda text: text[:40]),
    st.sampled_from((None, "the cat", "<script>alert(1)</script>", "]]>", "\x1b[31m")),
    st.sampled_from(("raw", *LENSES, "all", "x")),
    st.sampled_from((None, "0", "last", "9", "x")),
)
def test_a_cell_is_one_frame_or_one_error(text, target, lens, layer):
    try:
        found = attnviz.attend(text, target, lens=lens, layer=layer)
    except AttnvizError as error:
        assert str(error)  # noqa: PT017 - an error is as good as a page, if it says something
        return
    cell = Frames()
    cell.feed(found._repr_html_())
    cell.close()
    assert cell.tags == ["iframe"]
    page(cell.pages[0].encode("utf-8", "surrogatepass"))


@pytest.mark.slow
def test_the_picture_of_a_cell_is_a_picture():
    found = attnviz.attend("a \x1b[31m $\\frac$ <b> \u202e")
    Image.open(io.BytesIO(found._repr_png_())).load()
