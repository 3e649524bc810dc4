import numpy as np
import pytest

from tests.invoke import attnviz


@pytest.fixture
def links(tmp_path):
    path = tmp_path / "links.txt"
    path.write_text("0-0 2-1 1-2\n0-0\n")
    return str(path)


def test_texts_name_the_words_of_pharaoh_lines(links):
    done = attnviz(
        "cross", "the red car", "la voiture rouge", "--weights", links, "-f", "links", "-q"
    )
    assert done.status == 0, done.err
    assert done.text.splitlines() == [
        "la → the 1.00 layer 0 head 0",
        "voiture → car 1.00 layer 0 head 0",
        "rouge → red 1.00 layer 0 head 0",
    ]


def test_pairs_take_the_lines_in_order(links):
    pairs = b"the red car\tla voiture rouge\na cat\tun chat\n"
    done = attnviz("cross", "-", "--weights", links, "-f", "tsv", "-q", stdin=pairs)
    assert done.status == 0, done.err
    second = [row.split("\t") for row in done.text.splitlines() if row.startswith("1\t")]
    assert [(row[5], row[7], float(row[8])) for row in second] == [
        ("un", "a", 1), ("un", "cat", 0), ("chat", "a", 0), ("chat", "cat", 0),
    ]  # fmt: skip


def test_a_token_more_than_words_ends_in_the_end_mark(tmp_path):
    path = tmp_path / "soft.npz"
    np.savez(path, cross_attention=np.array([[0.9, 0.1], [0.1, 0.9]]))
    done = attnviz("cross", "red", "rouge", "--weights", str(path), "-f", "json", "-q")
    assert done.status == 0, done.err
    assert '"</s>"' in done.text


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (("a b", "c"), "has 3 tokens for text 1, but there are 1 words"),
        (("the red car",), "give a target too"),
    ],
)
def test_texts_that_do_not_fit_are_refused(links, texts, message):
    done = attnviz("cross", *texts, "--weights", links)
    assert done.status == 1
    assert message in done.err


def test_without_texts_positions_are_shown(tmp_path):
    path = tmp_path / "one.npz"
    np.savez(path, layer_0=np.eye(2)[None, None])
    done = attnviz("self", "--weights", str(path), "-q")
    assert done.status == 0, done.err
    assert "layer 0 head 0" in done.text
