import io
import json
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from attnviz.analyses.select import select
from attnviz.analyses.tokens import treat_special
from attnviz.analyses.words import merge_words
from attnviz.core.errors import InputError
from attnviz.features.dumps.arrays import COLUMNS, is_dump, is_safetensors
from attnviz.renderers import NO_VIEWS, Display
from attnviz.renderers.reports import CsvReport, TsvReport, render_all
from attnviz.storage.archive import dump_archive
from attnviz.storage.saved_maps import read_any
from tests.samples import attention_of, checked, self_map, weights_of
from tests.test_readme import ROOT

WORDS = ["a", "b", "c"]


def one(data):
    data = data if isinstance(data, bytes) else data.encode()
    (found,) = read_any(data, "'dump'")
    return found


def npz(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def npy(array):
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def torch_file(array):
    file = io.BytesIO()
    torch.save(torch.as_tensor(array), file)
    return file.getvalue()


def texts(tokens):
    return [token.text for token in tokens]


HEAD = ",".join(COLUMNS)

WEIGHTS = weights_of((2, 4, 3, 3))


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (("'<f4'", "f()"), "the header of its array cannot be read"),
        (("'<f4'", "('"), "the header of its array cannot be read"),
        (("'shape': (2, 4,", "'shape': (2,-4,"), "negative dimensions are not allowed"),
        (("'<f4'", "'|O'"), "it holds objects of Python, which are never read"),
    ],
)
def test_a_broken_header_is_told_in_plain_words(entry, said):
    old, new = (part.encode() for part in entry)
    data = npy(WEIGHTS.astype("<f4"))
    broken = data.replace(old, new.ljust(len(old)))
    assert broken != data
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("attention.npy", broken)
    for one_file in (broken, packed.getvalue()):
        with pytest.raises(InputError, match=said):
            one(one_file)


@pytest.mark.parametrize("axes", [WEIGHTS, WEIGHTS[:, None]], ids=["layers", "layers, batch"])
@pytest.mark.parametrize("name", ["attention", "attentions"])
def test_a_whole_array_is_read_with_its_tokens(axes, name):
    found = one(npz(**{name: axes, "tokens": np.array(WORDS)}))
    np.testing.assert_array_equal(found.weights, WEIGHTS)
    assert found.tokens == ("a", "b", "c")
    assert found.main.stream == "self"
    assert found.provenance.notes == ()


@pytest.mark.parametrize("name", ["layer_{}", "layer.{}", "attention_{}", "attentions.{}"])
def test_layers_are_ordered_by_number_and_keep_it(name):
    order = [11, 2]
    arrays = {name.format(n): WEIGHTS[k][None] for k, n in enumerate(order)}
    found = one(npz(**arrays))
    assert found.main.layers == ("2", "11")
    np.testing.assert_array_equal(found.weights, WEIGHTS[::-1])
    assert found.provenance.notes == ("the file names no tokens: they are numbered",)


def test_lists_and_headers_carry_their_tokens():
    data = save({"layer_0": WEIGHTS[0][None]}, metadata={"tokens": json.dumps(WORDS)})
    found = one(data)
    np.testing.assert_array_equal(found.weights[0], WEIGHTS[0])
    assert found.tokens == ("a", "b", "c")
    found = one(json.dumps({"attention": WEIGHTS.tolist(), "tokens": ["[CLS]", "b", "[SEP]"]}))
    np.testing.assert_array_equal(found.weights, WEIGHTS)
    assert [token.special for token in found.main.key_tokens] == [True, False, True]
    assert texts(one("[[0.5, 0.5], [1, 0]]").main.key_tokens) == ["0", "1"]


def test_streams_are_those_of_bertviz_and_of_names():
    cross = weights_of((1, 1, 2, 3))
    views = [
        {"name": "Encoder", "attn": WEIGHTS.tolist(), "left_text": WORDS, "right_text": WORDS},
        {"name": "Cross", "attn": cross.tolist(), "left_text": ["x", "y"], "right_text": WORDS},
    ]
    found = one(json.dumps({"attention": views}))
    assert [item.stream for item in found.maps] == ["encoder", "cross"]
    assert texts(found.maps[1].query_tokens) == ["x", "y"]
    found = one(
        npz(
            cross_attentions=weights_of((1, 2, 2, 3))[:, None],
            encoder_attentions=WEIGHTS[:, None],
            encoder_tokens=np.array(WORDS),
            decoder_tokens=np.array(["x", "y"]),
        )
    )
    cross = found.map_of("cross")
    assert (texts(cross.query_tokens), texts(cross.key_tokens)) == (["x", "y"], WORDS)
    assert (cross.query_side, cross.key_side) == ("target", "source")


def test_pharaoh_lines_are_source_then_target():
    first, second = read_any(b"0-0 1-2 2-1\n\n1-0:0.25\n", "stdin")
    np.testing.assert_array_equal(first.weights[0, 0], [[1, 0, 0], [0, 0, 1], [0, 1, 0]])
    np.testing.assert_array_equal(second.weights[0, 0], [[0, 0.25]])
    assert (first.id, second.id) == ("0", "2")
    assert first.main.unit == "strength of a link"


@checked
@given(st.sets(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1))
def test_any_pharaoh_line_comes_back(links):
    line = " ".join(f"{source}-{target}" for source, target in sorted(links))
    weights = one(line).weights[0, 0]
    assert {(int(s), int(t)) for t, s in np.argwhere(weights)} == links


def test_arrays_without_names_and_attnvizs_own():
    layers = [f"arr_{number}" for number in range(2)]
    for data in (npy(WEIGHTS), npz(arr_0=WEIGHTS), npz(**dict(zip(layers, WEIGHTS, strict=True)))):
        np.testing.assert_array_equal(one(data).weights, WEIGHTS)
    own = dump_archive([attention_of(self_map(WORDS))])
    assert not is_dump(own)
    assert is_safetensors(save({}))  # a header without arrays
    np.testing.assert_array_equal(one(own).weights, self_map(WORDS).weights)


@pytest.mark.parametrize("renderer", [CsvReport, TsvReport])
def test_a_table_that_attnviz_wrote_is_the_same_maps(renderer):
    tokens = ["a\tb", 'say "x", y', "\\n", "a\rb"]
    some = select(attention_of(self_map(tokens, 2, 3)), None, None, "1.0,0.2").main
    own = attention_of(self_map(tokens, 2, 3), replace(some, stream="several"))
    saved = one(render_all(renderer(Display()), [(own, NO_VIEWS)]))
    assert [item.stream for item in saved.maps] == [item.stream for item in own.maps]
    for item, other in zip(saved.maps, own.maps, strict=True):
        assert texts(item.key_tokens) == texts(other.key_tokens)
        assert (item.layers, item.heads) == (other.layers, other.heads)
        np.testing.assert_allclose(item.weights, other.weights, atol=1e-7)


def test_what_is_said_of_files_of_torch_works(tmp_path, monkeypatch):
    """The advice is run as it stands, for what a model gives in half precision with gradients."""
    monkeypatch.chdir(tmp_path)
    layers = [torch.tensor(one[None]).bfloat16().requires_grad_() for one in WEIGHTS]
    torch.save(tuple(layers), "layers.pt")
    with pytest.raises(InputError) as raised:
        one((tmp_path / "layers.pt").read_bytes())
    code = str(raised.value).rpartition("save ")[2].replace("FILE", "'layers.pt'")
    files = (ROOT / "docs" / "files.md").read_text("utf-8").replace('"', "'")
    assert code.replace("'layers.pt'", "FILE") in files
    exec(code, {"np": np, "torch": torch})
    saved = one((tmp_path / "attention.npz").read_bytes())
    np.testing.assert_allclose(saved.weights, WEIGHTS, atol=4e-3)


@pytest.mark.parametrize("mark", [",", "\t"])
def test_a_frame_of_pandas_is_one_head(mark):
    rows = [["", *"abc"], ["x", "0.5", "0.5", "0"], ["y", "1e-3", ".2", "0.799"]]
    item = one("\n".join(mark.join(row) for row in rows)).main
    assert (texts(item.query_tokens), texts(item.key_tokens)) == (["x", "y"], ["a", "b", "c"])
    assert item.weights[0, 0, 1].tolist() == pytest.approx([1e-3, 0.2, 0.799])


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        (["The", "Ġnur", "se", "Ġcaf", "Ã©"], ["The", "nurse", "café"]),
        (["The", "Ġnur", "se", "Ã", "©"], ["The", "nurseé"]),
        (["<s>", "▁The", "▁nur", "se"], ["<s>", "The", "nurse"]),
        (["[CLS]", "nur", "##se", "[SEP]"], ["[CLS]", "nurse", "[SEP]"]),
        (["The", "nu@@", "r@@", "se"], ["The", "nurse"]),
        (
            ["<|begin_of_text|>", "<|eot_id|>", "#", "a"],
            ["<|begin_of_text|>", "<|eot_id|>", "#", "a"],
        ),
    ],
)
def test_pieces_of_a_tokenizer_are_words_again(pieces, words):
    dump = one(npz(attention=np.eye(len(pieces)), tokens=np.array(pieces)))
    item = dump.main
    assert texts(merge_words(item, *dump.texts_of(item)).key_tokens) == words
    assert [token.special for token in item.key_tokens] == [p[0] in "<[" for p in pieces]


def test_special_tokens_are_listed_and_odd_sums_told():
    odd = np.array([[0.6, 0.1], [0.6, 0.9]])
    dump = one(npz(attention=odd, tokens=np.array(["¤", "a"]), special_tokens=np.array(["¤"])))
    assert [token.special for token in dump.main.key_tokens] == [True, False]
    assert dump.provenance.notes == (
        "rows of stream self sum to 0.70 to 1.50, not to 1: were the weights saved in training "
        "mode (dropout), or in part?",
    )
    (note,) = treat_special(one(npz(attention=np.eye(2))), "drop").provenance.notes[1:]
    assert note == ("no token is known to be special, and the first is no sink: none was left out")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (npz(attention=WEIGHTS, tokens=np.array(["a"])), "3 query tokens, but 'tokens' lists 1"),
        (npz(attention=WEIGHTS.swapaxes(-1, -2)), "seems to be transposed"),
        (npz(attention=np.repeat(WEIGHTS[:, None], 2, 1)), "batch of 2"),
        (npz(layer_0=WEIGHTS), "a layer in 'dump' is of a batch of 2"),
        (npz(layer_0=np.eye(2), layer_1=np.eye(3)), "different shapes"),
        (npz(attention=WEIGHTS, layer_0=WEIGHTS[0]), "both at once and by layer"),
        (npz(attention=3 * WEIGHTS), "outside 0 to 1"),
        (npz(attention=np.full((2, 2), np.nan)), "NaN or infinite"),
        (npz(scores=WEIGHTS), "it holds scores; call it attention, layer_0"),
        (npz(arr_0=WEIGHTS, arr_1=WEIGHTS), "a layer in 'dump' is of a batch of 2"),
        (npy(WEIGHTS)[:-9], "cannot be read as .npy"),
        (npy(np.array([{}])), "cannot be read as .npy"),
        (torch_file(WEIGHTS), "written by torch.save and could run code"),
        (b",a,b\nx,.5,.5\ny,1", "no table with a name and 2 weights on each row"),
        (f"{HEAD}\n0,self,0,0,0,a,0,a,x".encode(), "a cell that is no number"),
        (f"{HEAD}\n0,self,0,0,0,a,0,a,1\n0,self,0,0,2,c,0,a,1".encode(), "lacks rows"),
        (f"{HEAD}\n0,self,0,0,0,a,0,a,1\n0,self,0,1,1,b,0,a,1".encode(), "lacks rows"),
        (f"{HEAD}\n0,self,0,0,0,a,0,a,1\n0,self,0,0,0,a,0,a,0".encode(), "some twice"),
        (b'{"attention": [[1, 0], [1]]}', "rows of different lengths"),
        (b'{"attention": [[1]], "tokens": [3]}', "not a list of words"),
        (b'{"attention": [{"left_text": ["a"]}]}', "has no 'attn'"),
        (b"0-0 1-1\nhello", "line 2 of 'dump' holds no alignment"),
        (b"0-0 0-0", "the link 0-0 twice"),
        (b"0-0:1.5", "outside 0 to 1"),
        (b"9999999-0", "further than any text"),
        (b"hello there", "nor lines of alignments"),
        (b"\xff\xfe\x00", "nor lines of alignments"),
        (b"", "is empty"),
    ],
)
def test_what_cannot_be_read_for_certain_is_refused(data, message):
    with pytest.raises(InputError, match=message.replace("'", ".")):
        list(read_any(data, "'dump'"))
