"""Effects that have no value, and the links beside them, through every step of a run."""

from dataclasses import replace

import numpy as np

from attnviz.analyses.group import group_attention
from attnviz.analyses.select import reduce_attention, reduce_map, select, sharpest, strongest_links
from attnviz.analyses.tokens import treat_special
from attnviz.analyses.view import head_lines, views
from attnviz.core.attention_map import Attention, Token
from attnviz.features.lenses.links import with_contrasts
from tests.samples import attention_of, effects, effects_map, self_map


def test_what_has_no_value_is_in_no_mean_and_no_link():
    item = effects_map()
    mean = reduce_map(item, "mean", "heads").weights
    assert np.isnan(mean[:, :, 0, 0]).all()
    assert mean[0, 0, 1, 0] == np.float32(item.weights[0, 1:, 1, 0].mean())
    assert np.isnan(mean).sum() == 2
    most = reduce_map(item, "max", "both").weights
    assert np.isnan(most).sum() == 1
    assert most[0, 0, 1, 0] == np.nanmax(item.weights[:, :, 1, 0])
    links = strongest_links(item, item.weights.size, between_words=False)
    assert len(links) == item.weights.size - 7
    sizes = [abs(link.weight) for link in links]
    assert sizes == sorted(sizes, reverse=True)
    nothing = item.with_weights(np.full_like(item.weights, np.nan))
    assert sharpest(nothing) is None


def test_words_have_a_value_where_a_piece_has_one(tmp_path):
    file = tmp_path / "groups"
    file.write_text("the cat\n")
    item = replace(effects_map(), query_side="text")
    placed = tuple(
        Token(token.text, start, start + 3)
        for token, start in zip(item.query_tokens[1:], (0, 4, 8), strict=True)
    )
    weights = np.full((1, 1, 3, 3), np.nan, np.float32)
    weights[0, 0, 1:] = [[1, 2, 0], [3, np.nan, 5]]
    tokens = {"query_tokens": placed, "key_tokens": placed, "layers": ("0",), "heads": ("0",)}
    found = attention_of(item.with_weights(weights, **tokens), text="the cat sat")
    grouped = group_attention(found, str(file)).weights[0, 0]
    # The first word's first piece sees nothing: it counts in no mean.
    assert grouped.tolist() == [[3, 0], [3, 5]]
    nothing = found.main.with_weights(np.full_like(weights, np.nan))
    assert np.isnan(group_attention(replace(found, maps=(nothing,)), "words").weights).all()


def test_the_first_look_shows_the_head_of_largest_effects():
    found = effects()
    sums = np.nansum(np.abs(found.weights), axis=(2, 3))
    layer, head = np.unravel_index(sums.argmax(), sums.shape)
    first, mean = views(found)
    assert first.which.startswith(f"layer {layer} head {head} (largest sum of |effect|: ")
    assert first.map.weights.shape == (1, 1, 4, 4)
    lines = head_lines(mean.map.with_weights(found.weights[:1], heads=found.main.heads))
    np.testing.assert_allclose([line.mass for line in lines], sums[0], rtol=1e-6)
    profile = np.nan_to_num(np.abs(found.weights[0, 1])).mean(axis=0)
    np.testing.assert_allclose(lines[1].profile, profile, rtol=1e-6)
    assert all(line.pattern and np.isnan(line.entropy) for line in lines)


def links_of(found: Attention) -> list[tuple[str, str]]:
    lists = (*found.measured, *found.idle, *found.decisive)
    return [(one.link.query, one.link.key) for one in lists]


def test_links_with_effects_follow_what_is_chosen():
    found = effects()
    assert links_of(found) == [("sat", "cat"), ("sat", "cat"), ("cat", "<s>")]
    assert links_of(select(found, None, "0", None)) == [("sat", "cat")] * 2
    assert links_of(select(found, None, None, "2")) == [("cat", "<s>")]
    assert links_of(reduce_attention(found, "mean", "both")) == links_of(found)
    assert links_of(group_attention(found, "words")) == []
    dropped = treat_special(found, "drop")
    assert links_of(dropped) == [("sat", "cat")] * 2
    link = dropped.measured[0].link
    assert dropped.main.query_tokens[link.query_position].text == "sat"
    assert dropped.main.key_tokens[link.key_position].text == "cat"


def test_links_of_no_effect_or_of_much_are_found():
    words = ["a", "b", "c", "d"]
    raw = self_map(words, 2, 1)
    weights = np.full(raw.weights.shape, 0.09, np.float32)
    effect = np.full(raw.weights.shape, 0.2, np.float32)
    for cell, weight, nats in (
        ((0, 0, 0, 1), 0.7, 0.01),
        ((1, 0, 2, 1), 0.9, -0.049),
        ((1, 0, 3, 0), 0.8, -0.3),
        ((0, 0, 1, 1), 0.9, 0.0),  # a word to itself
        ((0, 0, 3, 2), 0.9, np.nan),
        ((1, 0, 0, 3), 0.08, -0.9),
    ):
        weights[cell], effect[cell] = weight, nats
    chosen = raw.with_weights(effect[1:], values="signed", layers=("1",))
    both = raw.with_weights(effect, values="signed")
    plain = attention_of(raw.with_weights(weights))
    found = with_contrasts(attention_of(both), plain)
    assert [(one.link.layer, one.link.query, one.link.key) for one in found.idle] == [
        ("1", "c", "b"),
        ("0", "a", "b"),
    ]
    assert [round(one.link.weight, 6) for one in found.idle] == [0.9, 0.7]
    first = found.decisive[0]
    assert (first.link.query, first.link.key, round(first.estimated, 6)) == ("a", "d", -0.9)
    assert all(one.link.weight < 0.1 <= abs(one.estimated) for one in found.decisive)
    assert len(found.decisive) == 10
    assert found.provenance.notes[0].startswith("2 of 3 links between words with a weight above")
    narrowed = with_contrasts(attention_of(chosen), plain)
    assert [one.link.layer for one in narrowed.idle] == ["1"]
