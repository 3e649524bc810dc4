"""Every row of FORMATS and PICTURES keeps what commands rely on when they write and refuse."""

from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from attnviz.core.attention_map import Attention
from attnviz.core.errors import UsageError
from attnviz.core.registry import FORMATS, PICTURES, Entry, Format
from attnviz.renderers import PICTURE_SUFFIXES, Display
from attnviz.renderers.figures.figure import figure_bytes
from attnviz.renderers.reports import as_bytes, format_of, formats_of, make_renderer, picture_suffix
from attnviz.runs.outputs import draw, views_of
from attnviz.storage.saved_maps import read_attention
from tests.samples import attention_of, self_map

TEXTS = [
    replace(attention_of(self_map(["a", "b", "c", "d"], 2, 2, seed), text="a b c d"), id=f"n{seed}")
    for seed in range(3)
]


def rendered(entry: Format, texts: list[Attention], **display: bool) -> list[str | bytes]:
    renderer = entry.load()(Display(**display))
    return [*(renderer.add(text, views_of(text)) for text in texts), renderer.finish()]


def joined(parts: list[str | bytes]) -> bytes:
    return b"".join(map(as_bytes, parts))


def check_format(name: str, entry: Format) -> None:
    """Fail where a row or its renderer is incomplete."""
    assert name.isidentifier()
    assert name.islower()
    assert entry.summary.endswith(".")
    assert entry.load().__doc__
    assert not entry.suffix or (entry.suffix[0] == "." and entry.suffix not in PICTURE_SUFFIXES)
    assert not (entry.binary or entry.grows) or entry.suffix
    # A line of JSON is made as bytes: a second look at megabytes of numbers would be for nothing.
    kinds = {bytes} if entry.binary else {str, bytes} if name == "jsonl" else {str}
    for texts, many in (([], True), (TEXTS[:1], False), (TEXTS, True)):
        parts = rendered(entry, texts, many=many)
        assert {type(part) for part in parts} <= kinds
        assert rendered(entry, texts, many=many) == parts
        if not entry.binary:
            assert joined(parts) == b"" or joined(parts).endswith(b"\n")
    assert name == "none" or joined(rendered(entry, TEXTS, many=True))
    if not entry.binary and name != "none":
        # A reader can tell several texts apart.
        told = joined(rendered(entry, TEXTS, many=True)).decode()
        assert all(text.id in told for text in TEXTS)
    if entry.grows:
        whole = joined(rendered(entry, TEXTS, many=True))
        started = joined(rendered(entry, TEXTS[:1], many=True)[:-1])
        assert started + joined(rendered(entry, TEXTS[1:], many=True, begun=True)) == whole
    if entry.suffix and name not in ("table", "csv", "tsv"):
        for texts, many in ((TEXTS[:1], False), (TEXTS, True)):
            data = joined(rendered(entry, texts, many=many))
            found = list(read_attention(data, f"a file{entry.suffix}"))
            assert [text.id for text in found] == [text.id for text in texts]


@pytest.mark.parametrize("name", formats_of("maps"))
def test_every_format_is_complete_and_found(name):
    check_format(name, FORMATS[name])
    assert type(make_renderer(name, Display())) is FORMATS[name].load()
    if suffix := FORMATS[name].suffix:
        assert format_of(Path(f"x{suffix.upper()}")) == name


def test_what_is_no_format_or_picture_is_refused():
    with pytest.raises(UsageError, match=r"format 'tvs'.*'tsv'"):
        make_renderer("tvs", Display())
    with pytest.raises(UsageError) as refused:
        format_of(Path("x.jsn"))
    assert all(entry.suffix in str(refused.value) for entry in formats_of("maps").values())
    assert "Did you mean '.json'" in str(refused.value)
    with pytest.raises(UsageError, match=r"\.png, \.svg, \.pdf"):
        picture_suffix(Path("x.jpg"))


class Forgetful:
    """Text in which nobody can tell which text is which."""

    def __init__(self, display: Display) -> None: ...

    def add(self, attention: Attention, views: object) -> str:
        return "line\n"

    def finish(self) -> str:
        return ""


class Endless(Forgetful):
    """Text without an end."""

    finish = None  # type: ignore[assignment]


class Ragged(Forgetful):
    """Text that does not end in a line break."""

    def add(self, attention: Attention, views: object) -> str:
        return attention.id


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        (Format("No full stop", f"{__name__}:Forgetful", package="tests"), "good"),
        (Format("A row.", f"{__name__}:Forgetful", package="tests"), "good"),
        (Format("A row.", f"{__name__}:Endless", package="tests"), "good"),
        (Format("A row.", f"{__name__}:Ragged", package="tests"), "good"),
        (Format("A row.", FORMATS["json"].target, ".png"), "json"),
        (Format("A row.", FORMATS["json"].target, ".json", binary=True), "json"),
        (Format("A row.", FORMATS["json"].target, ".json", grows=True), "json"),
    ],
)
def test_an_incomplete_row_fails(entry, name):
    with pytest.raises((AssertionError, AttributeError, TypeError)):
        check_format(name, entry)


def check_picture(name: str, entry: Entry) -> None:
    """Fail where a picture's row or function is incomplete."""
    assert name.isidentifier()
    assert entry.summary.endswith(".")
    assert entry.load().__doc__
    for text in (TEXTS[0], attention_of(self_map(["\u202e", "[b]", "$x$", "\x1b"], signed=True))):
        figure = draw(text, name)
        assert isinstance(figure, Figure)
        assert figure.axes[0].get_title().startswith("sample")
        assert any(item.get_text().startswith("self") for item in figure.texts)
    for suffix in PICTURE_SUFFIXES:
        data = figure_bytes(draw(TEXTS[0], name), suffix)
        assert data[:8].lstrip(b"\x89<?%").lower().startswith((b"png", b"xml", b"pdf"))
        assert figure_bytes(draw(TEXTS[0], name, views_of(TEXTS[0])), suffix) == data


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("name", PICTURES)
def test_every_picture_is_complete(name):
    check_picture(name, PICTURES[name])


def no_picture(item: object, *, title: str, subtitle: str) -> str:
    """Not a figure."""
    return title


def test_an_incomplete_picture_fails(monkeypatch):
    monkeypatch.setitem(PICTURES, "no", Entry("A row.", f"{__name__}:no_picture"))
    with pytest.raises(AssertionError):
        check_picture("no", PICTURES["no"])


def test_views_are_worked_out_once_and_only_if_asked(monkeypatch):
    from attnviz.runs import outputs

    counted: list[str] = []

    def views(attention: Attention, **how: object) -> object:
        counted.append(attention.id)
        return real(attention, **how)  # type: ignore[arg-type]

    real = outputs.every_view
    monkeypatch.setattr(outputs, "every_view", views)
    shown = outputs.views_of(TEXTS[0])
    rendered(FORMATS["tsv"], TEXTS)
    assert counted == []
    for name in ("table", "heatmap", "grid", "links"):
        FORMATS[name].load()(Display()).add(TEXTS[0], shown)
    for name in PICTURES:
        outputs.draw(TEXTS[0], name, shown)
    outputs.page_html(TEXTS[0], views=shown)
    assert counted == ["n0"]
