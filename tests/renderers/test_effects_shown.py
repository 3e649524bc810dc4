"""Effects and what has no value in every format and picture: shown as such, never as 0."""

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest

from attnviz.core.attention_map import Attention
from attnviz.core.errors import InputError
from attnviz.core.options import Choice
from attnviz.features.grid.picture import grid
from attnviz.features.lines.picture import choose_lines, lines
from attnviz.renderers import Display
from attnviz.renderers.colors import NO_VALUE, color_of, colors_of, limits_of, scale_of
from attnviz.renderers.figures.heatmap import heatmap
from attnviz.renderers.reports import as_bytes, make_renderer
from attnviz.runs.outputs import views_of
from attnviz.storage.saved_maps import read_any
from tests.samples import effects, effects_map, notes_of, same

GREY = "grey: no value, the query sees nothing else"


def shown(name: str, found: Attention, display: Display | None = None) -> bytes:
    renderer = make_renderer(name, display or Display())
    views = views_of(found, Choice(layer="0", head="1") if len(found.main.heads) == 1 else None)
    return b"".join(map(as_bytes, (renderer.add(found, views), renderer.finish())))


def one_head() -> Attention:
    found = effects()
    item = found.main
    chosen = item.with_weights(item.weights[:1, 1:2], layers=("0",), heads=("1",))
    return replace(found, maps=(chosen,))


def test_no_value_is_grey_null_or_nothing():
    item = effects_map()
    assert color_of(np.nan, (-1.0, 1.0)) == NO_VALUE
    assert colors_of(np.array([[np.nan, 0.0]]), (-1.0, 1.0))[0, 0].tolist() == [*NO_VALUE]
    assert color_of(-1.0, (-1.0, 1.0)) != NO_VALUE
    filled = item.with_weights(np.nan_to_num(item.weights))
    assert scale_of(item) == scale_of(filled)
    assert limits_of(np.full((2, 2), np.nan, np.float32), "signed") == (-1.0, 1.0)

    document = json.loads(shown("json", effects()))
    assert document["maps"][0]["weights"][0][0][0] == [None, 0.0, 0.0, 0.0]
    assert document["measured"][0]["link"]["query"] == "sat"
    assert document["decisive"][0]["measured"] is None
    rows = list(csv.DictReader(io.StringIO(shown("csv", effects()).decode())))
    assert sum(row["weight"] == "" for row in rows) == 7
    assert np.isfinite([float(row["weight"]) for row in rows if row["weight"]]).all()
    assert b"nan" not in shown("tsv", effects())
    (told,) = effects().measured
    far = replace(told, link=replace(told.link, layer="10"))
    gone = replace(told, link=replace(told.link, query="mat", query_position=4))
    table = shown("table", replace(effects(), measured=(told, far, gone))).decode()
    assert "sat → cat  layer 0 head 1      .90" in table
    assert "sat → cat  layer 10 head 1     .90" in table
    assert "mat → cat" in table  # a token that the map does not have


@pytest.mark.parametrize("name", ["json", "jsonl", "npz", "parquet"])
def test_files_give_back_effects_and_their_links(name):
    (found,) = read_any(shown(name, effects()), "x")
    assert same(found, effects())
    assert found.lens_name == "effect"


@pytest.mark.parametrize("spoilt", [None, "1", [1.0]])
def test_what_cannot_be_shown_of_effects_is_refused(spoilt):
    document = json.loads(shown("json", effects()))
    document["maps"][0]["weights"][0][0][1][1] = spoilt
    if spoilt is None:
        document["maps"][0]["values"] = "share"
    with pytest.raises(InputError):
        list(read_any(json.dumps(document).encode(), "x"))


def test_pictures_draw_no_value_grey_and_say_so():
    found = one_head().main
    figure = heatmap(found, title="x")
    assert GREY in notes_of(figure)
    axes = figure.axes[0]
    assert "–" in {text.get_text() for text in axes.texts}
    image = axes.images[0]
    grey = np.array([*NO_VALUE, 255]) / 255
    np.testing.assert_allclose(image.cmap(image.norm(image.get_array()))[0, 0], grey)
    assert any(GREY in note for note in notes_of(grid(effects_map(), title="x")))
    assert np.isfinite(choose_lines(found).weights).all()
    assert "nan" not in " ".join(notes_of(lines(found, title="x")))
