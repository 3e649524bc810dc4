"""Kinds of keys in tables, pictures, pages and files, and what leaves a kind out."""

import json
from dataclasses import replace

import numpy as np
import pytest

import attnviz
from attnviz.analyses.tokens import treat_special
from attnviz.core.attention_map import Attention, AttentionMap, Provenance, Token
from attnviz.core.errors import InputError, UsageError
from attnviz.renderers.figures.heatmap import axis_names, heatmap
from attnviz.storage.documents import dump_json, from_document, to_document
from tests.invoke import OWN
from tests.invoke import attnviz as run


def merged():
    """Two target tokens over themselves and three of a source."""
    own = Token("ab", 0, 2), Token("cd", 3, 5)
    source = [("x", 6, 7), ("</s>", 0, 0), ("yz", 8, 10)]
    others = (Token(t, a, b, special=a == b, kind="source") for t, a, b in source)
    weights = [[0.4, 0.0, 0.3, 0.2, 0.1], [0.1, 0.2, 0.4, 0.2, 0.1]]
    item = AttentionMap(
        "merged", own, (*own, *others), np.array([[weights]], np.float32),
        query_side="target", key_side="target and source",
    )  # fmt: skip
    return Attention((item,), Provenance("file", "m"), source="x yz", target="ab cd")


def compressed():
    """Three tokens over themselves and an entry of the first two."""
    own = tuple(Token(word) for word in ("a", "b", "c"))
    entry = Token("0–1 a … b", special=True, kind="compressed", span=(0, 1))
    weights = [[0.8, 0, 0, 0], [0.4, 0.2, 0, 0.2], [0.0, 0.3, 0.3, 0.2]]
    item = AttentionMap(
        "compressed-2", own, (*own, entry), np.array([[weights]], np.float32),
        key_side="text and compressed",
    )  # fmt: skip
    return Attention((item,), Provenance("file", "m"), text="a b c", learned_sink=True)


def test_a_kind_is_left_out_like_special_tokens():
    whole = compressed()
    dropped = treat_special(whole, "drop", ("compressed",))
    np.testing.assert_array_equal(dropped.weights, whole.weights[..., :3])
    assert dropped.main.key_side == "text"
    assert dropped.provenance.notes == (
        "left out: compressed tokens 17% of compressed-2; rows sum to less than 1",
    )
    even = treat_special(whole, "renormalise", ("compressed",))
    rows = whole.weights[..., :3]
    np.testing.assert_allclose(even.weights, rows / rows.sum(-1, keepdims=True), atol=1e-6)
    alone = treat_special(whole, "drop", ("token",)).main
    assert [one.kind for one in alone.key_tokens] == ["compressed"]
    assert alone.key_side == "compressed"


def test_special_tokens_of_both_sides_are_left_out_and_compressed_ones_stay():
    assert treat_special(compressed(), "drop").weights.shape[-1] == 4
    assert [t.text for t in treat_special(merged(), "drop").main.key_tokens] == [
        "ab", "cd", "x", "yz",
    ]  # fmt: skip


def test_what_is_left_of_one_side_is_a_map_of_that_side():
    cross = treat_special(merged(), "drop", ("token",)).main
    assert (cross.query_side, cross.key_side) == ("target", "source")
    places = [(t.start, t.end, t.kind) for t in cross.key_tokens]
    assert places == [(0, 1, "token"), (0, 0, "token"), (2, 4, "token")]
    own = treat_special(merged(), "renormalise", ("source", "special")).main
    assert (own.key_side, own.weights.shape) == ("target", (1, 1, 2, 2))
    np.testing.assert_allclose(own.weights.sum(-1), 1, atol=1e-6)


def test_kinds_that_are_not_there_are_refused():
    for how, kinds, said in (
        ("drop", ("layer",), "no key is of the kind 'layer': there are token and compressed"),
        ("drop", ("token", "compressed"), ": all are of the kind token and compressed"),
    ):
        with pytest.raises(UsageError, match=said):
            treat_special(compressed(), how, kinds)
    item = compressed().main  # the other map has keys left
    own = replace(item, stream="own", key_tokens=item.query_tokens, weights=item.weights[..., :3])
    with pytest.raises(UsageError, match="leaves no key of stream 'own'"):
        treat_special(compressed().with_maps((own, item)), "drop", ("token",))
    for options, said in (
        ({"special": "keep:compressed"}, "dropped or renormalised: drop:compressed"),
        ({"special": "drop:compresed"}, "Did you mean 'compressed'"),
        ({"special": "drop:compressed"}, "no key is of the kind 'compressed'"),
    ):
        with pytest.raises(UsageError, match=said):
            attnviz.attend("The cat sat.", **options)


def test_files_say_what_a_key_is_and_are_read_back(tmp_path):
    for attention in (merged(), compressed()):
        again = from_document(json.loads(dump_json(to_document(attention))))
        assert again.maps == attention.maps
        for suffix in ("json", "npz", "jsonl"):
            path = tmp_path / f"a.{suffix}"
            document = dump_json(to_document(attention)).encode()
            run("render", "-", "-o", path, "-f", "none", "-q", stdin=document)
            assert attnviz.load(path)[0].maps == attention.maps, suffix


def test_ordinary_maps_are_written_as_before():
    tokens = run("self", "The cat sat.", *OWN, "-f", "json").json()["maps"][0]["key_tokens"]
    assert {name for token in tokens for name in token} == {"text", "start", "end", "special"}


def test_a_line_stands_between_kinds_in_tables_and_pictures():
    for attention, said in (
        (compressed(), "keys: 3 tokens │ 1 compressed token"),
        (merged(), "columns (target and source)"),
    ):
        document = dump_json(to_document(attention)).encode()
        out = run("render", "-", "--pieces", "-q", stdin=document).out.decode()
        assert said in out
        rows = [line for line in out.splitlines() if "│" in line and "keys:" not in line]
        assert len({line.index("│") for line in rows}) == 1
        assert len(rows) == len(attention.main.query_tokens) + 1
        figure = heatmap(attention.main, title="t")
        (lines,) = [one for one in figure.axes[0].collections if one.get_gid() == "kinds"]
        edge = len(attention.main.query_tokens) - 0.5
        assert {x for line in lines.get_segments() for x, _ in line} == {edge}
    assert axis_names(compressed().main)[1] == "key (attended): 3 tokens | 1 compressed token"


def test_each_head_of_a_grid_has_the_line():
    from attnviz.features.grid.picture import grid

    item = compressed().main
    both = item.with_weights(np.repeat(item.weights, 2, axis=1), heads=("0", "1"))
    figure = grid(both, title="t")
    (lines,) = [one for one in figure.axes[0].collections if one.get_gid() == "kinds"]
    assert len(lines.get_segments()) == 2


def test_a_page_knows_the_kinds():
    from attnviz.runs.outputs import page_html

    html = page_html(compressed(), "")
    assert html.count('"kind":"compressed"') == 1


def test_what_does_not_know_kinds_refuses_them_in_one_line():
    from attnviz.features.lenses.rollout import rollout
    from attnviz.features.parquet.file import ParquetWriter

    with pytest.raises(UsageError, match=r"are 3 tokens and 1 compressed token: use --lens raw"):
        rollout(compressed())
    pytest.importorskip("pyarrow")
    with pytest.raises(InputError, match=r"are 2 tokens and 3 source tokens: write .json"):
        ParquetWriter().add(merged(), 0)
