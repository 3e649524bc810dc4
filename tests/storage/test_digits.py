"""Weights with few decimals: what Python's own rounding gives, through every text format."""

import csv
import io
import json
import shutil
import subprocess
from fractions import Fraction

import numpy as np
import orjson
import pytest

from attnviz import attend, load
from attnviz.core.attention_map import Attention, AttentionMap, Provenance, Token
from attnviz.core.errors import UsageError
from attnviz.storage import documents
from attnviz.storage.documents import dump_line, parse_json, round_weights, to_document
from tests.invoke import OWN, attnviz

DIGITS = (1, 2, 3, 4, 5, 6)
TIES = [k / 2**n for n in range(1, 10) for k in range(2**n + 1)]
EDGES = [0.0, -0.0, 1.0, 1 + 1e-7, -1e-7, 1e-45, 1e-38, 0.99995, 0.00005, *TIES]


def written(weights, digits, values="share"):
    """The line of a map, and the weights that are read in it."""
    weights = np.asarray(weights, np.float32)
    tokens = [tuple(Token(str(at)) for at in range(size)) for size in weights.shape[2:]]
    item = AttentionMap("self", *tokens, weights, values=values)
    line = dump_line(to_document(Attention((item,), Provenance("file", "x")), digits))
    return line, parse_json(line, "the line")["maps"][0]["weights"]


@pytest.mark.parametrize("digits", DIGITS)
def test_shares_and_signed_values_are_rounded(digits):
    draw = np.random.default_rng(digits)
    shares = np.concatenate([draw.random(3000) ** draw.integers(1, 9, 3000), EDGES])
    weights = shares.astype(np.float32).reshape(1, 1, 1, -1)
    found = np.array(written(weights, digits)[1]).ravel()
    for one, weight in zip(found.tolist(), weights.ravel().tolist(), strict=True):
        assert one == round(weight, digits) == float(f"{weight:.{digits}f}"), weight
        # an oracle without floats: the nearest decimal, a tie to the even one
        assert one == float(Fraction(round(Fraction(weight) * 10**digits), 10**digits)), weight

    values = np.concatenate([draw.normal(size=500) * 10.0 ** draw.integers(-8, 30, 500), EDGES])
    values = np.concatenate([values, -values, [np.nan, 3e38]]).astype(np.float32)
    found = np.ravel(written(values.reshape(1, 1, 1, -1), digits, "signed")[1]).tolist()
    for one, value in zip(found, values.tolist(), strict=True):
        if np.isnan(value):
            assert one is None
        else:
            assert one == round(value, digits), value


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 3, 4, 5), (3, 1, 2, 1), (1, 4, 1, 3)])
@pytest.mark.parametrize("digits", DIGITS)
@pytest.mark.parametrize("block", [1, 7, 1 << 17])
def test_the_table_spells_what_orjson_spells(shape, digits, block, monkeypatch):
    monkeypatch.setattr(documents, "BLOCK", block)
    weights = np.random.default_rng(0).random(shape).astype(np.float32) ** 3
    plain = orjson.dumps(round_weights(weights, digits), option=orjson.OPT_SERIALIZE_NUMPY)
    line, _ = written(weights, digits)
    assert b'"weights":' + plain + b"}" in line
    assert json.loads(line)["provenance"]["notes"] == [f"weights are rounded to {digits} decimals"]


def test_formats_and_commands_hold_what_was_rounded(tmp_path):
    command = ("self", "a b", "c d e", *OWN, "-q")
    whole = [one["maps"][0]["weights"] for one in attnviz(*command, "-f", "json").json()]
    full = [one for text in whole for one in np.ravel(text).astype(np.float32).tolist()]
    wanted = [round(one, 3) for one in full]
    assert wanted != full
    for form in ("json", "jsonl", "tsv", "csv"):
        path = tmp_path / f"x.{form}"
        done = attnviz(*command, "--digits", "3", "-o", path, "-f", form)
        assert done.status == 0, done.err
        assert path.read_text() == done.text
        if form in ("tsv", "csv"):
            rows = csv.reader(io.StringIO(done.text), "excel" if form == "csv" else "excel-tab")
            found = [float(row[-1]) for row in list(rows)[1:]]
        else:
            text = done.text if form == "json" else f"[{','.join(done.lines)}]"
            texts = [one["maps"][0]["weights"] for one in json.loads(text)]
            found = [one for each in texts for one in np.ravel(each).tolist()]
        assert found == wanted, form

    attention = attend("a b c", mechanism="multi-head")
    a, b = tmp_path / "a.json", tmp_path / "b.jsonl"
    attention.save(a, digits=2)
    attention.save(b, digits=2)
    (again,) = load(a)
    wanted = round_weights(attention.weights, 2).astype(np.float32)
    np.testing.assert_array_equal(again.weights, wanted)
    shown = attnviz("render", b, "-f", "json")
    assert "rounded to 2 decimals" in shown.err
    assert np.array_equal(np.array(shown.json()["maps"][0]["weights"], np.float32), wanted)
    assert attnviz("compare", a, b).status == 0
    if jq := shutil.which("jq"):
        found = subprocess.run([jq, "-c", ".maps[0].weights"], input=b.read_bytes(), check=True,
                               capture_output=True)  # fmt: skip
        assert json.loads(found.stdout) == json.loads(b.read_bytes())["maps"][0]["weights"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ((), "--digits rounds the weights of maps in json, jsonl, tsv, csv: add -f json"),
        (("-f", "npz"), "--digits rounds the weights of maps"),
        (("-f", "json", "--digits", "7"), "7"),
    ],
)
def test_digits_of_what_has_none_are_refused(more, message):
    done = attnviz("self", "a b", *OWN, "--digits", "4", *more)
    assert done.status == 2
    assert message in done.mistake
    assert not done.text


@pytest.mark.parametrize(("file", "digits"), [("x.json", 0), ("x.json", 7), ("x.npz", 3)])
def test_python_refuses_what_the_shell_refuses(tmp_path, file, digits):
    with pytest.raises(UsageError, match=r"digits"):
        attend("a b", mechanism="multi-head").save(tmp_path / file, digits=digits)
    assert not [*tmp_path.iterdir()]
