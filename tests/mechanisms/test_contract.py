"""What holds for every row of the table, a new one included."""

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch

from attnviz.core.registry import MECHANISMS, Command
from attnviz.mechanisms.formula import example_parts
from tests.invoke import attnviz

from . import docs
from .rows import BATCH, HEADS, POSITIONS, SIZE, attend, call, co_contract

every_mechanism = pytest.mark.parametrize("name", MECHANISMS)


def values(array):
    return array.detach().numpy() if isinstance(array, torch.Tensor) else array


@every_mechanism
def test_the_docstring_names_paper_and_result(name):
    documented = inspect.getdoc(MECHANISMS[name].load())
    module = "attnviz.mechanisms." + MECHANISMS[name].target.partition(":")[0]
    if sum(f"{row.room}{row.target}".startswith(f"{module}:") for row in MECHANISMS.values()) == 1:
        documented += import_module(module).__doc__
    assert re.search(r"[A-Z][a-zé]+ (19|20)\d\d", documented)
    same = re.search(r"The shapes are those of\s`", documented)
    assert same or "Args:" in documented or "(…, " in documented
    assert same or "Returns:" in documented


def test_each_function_has_a_slow_loop():
    functions = {row.target.partition(":")[2] for row in MECHANISMS.values()}
    tests = [path for path in Path(__file__).parent.glob("test_*.py") if path != Path(__file__)]
    imported = {
        alias.name
        for path in tests
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("attnviz.mechanisms")
        for alias in node.names
    }
    assert functions <= imported, f"no test imports {functions - imported}"


def test_the_commands_and_documents_list_each():
    done = attnviz("models", "--mechanisms")
    assert done.status == 0, done.err
    listed = {line.split()[0] for line in done.text.splitlines() if line.split()}
    for name, row in MECHANISMS.items():
        assert name in listed
        assert row.commands
        assert set(row.commands) <= set(get_args(Command))
    page = docs.PAGE.read_text("utf-8")
    assert "\n".join(docs.table()) in page, "python -m tests.mechanisms.docs writes it"


CO = pytest.mark.parametrize("name", [name for name, row in MECHANISMS.items() if row.mutual])


@CO
def test_a_co_attention_is_for_cross_alone(name):
    assert name.startswith("co-")
    assert MECHANISMS[name].commands == ("cross",)
    parts = {part.name: part for part in example_parts(MECHANISMS[name], 2, 4, 1)}
    for part in MECHANISMS[name].streams.values():
        assert set(parts[part].axes) <= {"q", "k", "n"}
        assert parts[part].value.shape[-1] == 2


@every_mechanism
def test_shapes_and_causal_rows_are_as_said(name):
    attended = attend(name)
    heads = (HEADS,) if MECHANISMS[name].many_heads else ()
    contract = co_contract(name)
    summarised = contract is not None and contract.summarised
    for output in attended.outputs:
        assert output.shape == ((BATCH, SIZE) if summarised else (BATCH, POSITIONS, SIZE))
    for weights in attended.weights:
        queries = () if summarised else (POSITIONS,)
        assert weights.shape == (BATCH, *heads, *queries, POSITIONS)
    for command in MECHANISMS[name].commands:
        texts = ("the red car", "la voiture rouge")[: 1 if command == "self" else 2]
        assert attnviz(command, *texts, "--mechanism", name, "-q").status == 0
    assert MECHANISMS[name].causal in (None, *MECHANISMS)
    parameters = inspect.signature(MECHANISMS[name].load()).parameters
    assert MECHANISMS[name].many_heads == ("heads" in parameters)


@every_mechanism
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_rows_sum_to_one_unless_the_row_says_not(name, kind):
    sums, signed = MECHANISMS[name].sums, MECHANISMS[name].signed
    for weights in attend(name, kind).weights:
        assert (values(weights) < 0).any() == signed
        total = values(weights).sum(axis=-1)
        if sums == "one":
            np.testing.assert_allclose(total, 1, rtol=0, atol=1e-12)
        else:
            assert (total < 1).any()
            assert (total < 1).all() or sums == "any"


@every_mechanism
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-10)])
def test_numpy_and_torch_say_the_same(name, dtype, tolerance):
    by_numpy, by_torch = attend(name, "numpy", dtype), attend(name, "torch", dtype)
    for one, other in zip(
        by_numpy.outputs + by_numpy.weights, by_torch.outputs + by_torch.weights, strict=True
    ):
        assert isinstance(one, np.ndarray)
        assert isinstance(other, torch.Tensor)
        assert one.dtype == values(other).dtype == dtype
        np.testing.assert_allclose(one, values(other), rtol=0, atol=tolerance)


@every_mechanism
def test_a_hidden_key_changes_nothing_and_others_do(name):
    plain, disturbed = attend(name, hidden=(1,)), attend(name, hidden=(1,), noise=50.0)
    for weights in plain.weights:
        assert (weights[..., 1] == 0).all()
        np.testing.assert_array_equal(weights.any(axis=-1), True)
    for one, other in zip(
        plain.outputs + plain.weights, disturbed.outputs + disturbed.weights, strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)
    attended = attend(name, "torch", hidden=tuple(range(POSITIONS)))
    for array in attended.outputs + attended.weights:
        assert (array == 0).all()
    sum(array.sum() for array in attended.outputs + attended.weights).backward()
    for tensor in attended.inputs:
        assert tensor.grad is None or torch.isfinite(tensor.grad).all()
    plain, disturbed = attend(name), attend(name, hidden=(1,))
    for one, other in zip(plain.outputs, disturbed.outputs, strict=True):
        assert abs(one - other).max() > 1e-3


@every_mechanism
@pytest.mark.parametrize("hidden", [(), (0, 3)], ids=["all seen", "some hidden"])
def test_gradients_are_finite_differences(name, hidden):
    seen = torch.ones(BATCH, POSITIONS, dtype=torch.bool)
    seen[:, list(hidden)] = False

    def outputs(*inputs):
        attended = call(name, inputs, seen)
        return attended.outputs + attended.weights

    assert torch.autograd.gradcheck(outputs, attend(name, "torch").inputs, fast_mode=True)


SOFT = pytest.mark.parametrize("name", [name for name, row in MECHANISMS.items() if not row.mutual])


@SOFT
def test_padding_changes_nothing_and_parts_have_names(name):
    padded = attend(name, hidden=(POSITIONS - 1,))
    short = [
        array[:, :-1] if array.shape[:2] == (BATCH, POSITIONS) else array for array in padded.inputs
    ]
    alone = call(name, tuple(short), np.ones((BATCH, POSITIONS - 1), dtype=bool))
    np.testing.assert_allclose(padded.outputs[0][:, :-1], alone.outputs[0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        padded.weights[0][..., :-1, :-1], alone.weights[0], rtol=0, atol=1e-12
    )
    later = np.triu(np.ones((POSITIONS, POSITIONS), dtype=bool), 1)
    weights = attend(name).weights[0]
    assert (weights[..., later] == 0).all() == (MECHANISMS[name].causal == name)

    attended = attend(name)
    options = dict(zip(MECHANISMS[name].learned, attended.inputs[3:], strict=True))
    if MECHANISMS[name].many_heads:
        options["heads"] = HEADS
    parts = list(MECHANISMS[name].load().parts(*attended.inputs[:3], **options))
    names = [part.name for part in parts]
    assert len(names) == len(set(names))
    known = {"query", "key", "value", "distance", "position", *options}
    for part in parts:
        assert known & set(re.findall(r"[a-z_]+", part.formula)), part
        assert part.value.ndim >= len(part.axes) >= 2
        known.add(part.name)
    found = {part.name: part.value for part in parts}
    np.testing.assert_allclose(found["weights"], attended.weights[0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(found["output"], attended.outputs[0], rtol=0, atol=1e-12)
