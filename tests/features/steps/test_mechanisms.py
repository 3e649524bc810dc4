"""`attnviz steps --mechanism`, on sentences, pairs and files, with heads, masks and padding."""

import ast
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attnviz.core.registry import MECHANISMS
from attnviz.features.steps.arithmetic import Steps, arithmetic
from attnviz.features.steps.given import (
    EXAMPLES,
    CalculationInputs,
    comparable_names,
    seeded_sentence,
    worked_example,
)
from attnviz.mechanisms.arrays import softmax, transpose
from attnviz.mechanisms.formula import logistic
from tests.invoke import attnviz
from tests.mechanisms import test_co_alternating, test_co_parallel, test_co_two_stream

SAMPLE = Path(__file__).parents[3] / "sample_inputs" / "worked_examples.json"
SOLO = [name for name, row in MECHANISMS.items() if not row.mutual]
CO = [name for name, row in MECHANISMS.items() if row.mutual]
SELF = [name for name in SOLO if "self" in MECHANISMS[name].commands]
TEXT = "The cat sat on it"


def steps(*arguments: object) -> dict:
    done = attnviz("steps", *arguments, "-f", "json", "-q")
    assert done.status == 0, done.err
    return done.json()


def own(name: str, **numbers: int) -> tuple[str, str]:
    """An own layer as it is asked for, of two heads where it can have them."""
    numbers |= {"heads": 2} if MECHANISMS[name].many_heads else {}
    return "--mechanism", f"{name}:" + ",".join(f"{key}={n}" for key, n in numbers.items())


@pytest.mark.slow
@pytest.mark.parametrize("name", SELF)
def test_the_weights_are_those_of_the_own_layer(name):
    options = own(name, size=8, seed=3)
    found = steps(TEXT, *options)
    layer = attnviz("self", TEXT, *options, "-f", "json", "-q").json()["maps"][0]["weights"][0]
    weights = np.array(found["weights"]).reshape(np.shape(layer))
    np.testing.assert_allclose(weights, layer, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in SOLO if "cross" in MECHANISMS[name].commands])
def test_of_two_sentences_the_second_attends_to_the_first(name):
    options = own(name, size=8)
    found = steps("The red car", "La voiture", *options)
    assert found["query_tokens"] == ["La", "voiture"]
    assert found["key_tokens"] == ["The", "red", "car"]
    pair = ("The red car", "La voiture", *options, "-f", "json", "-q")
    layer = attnviz("cross", *pair).json()["maps"][0]["weights"][0]
    weights = np.array(found["weights"]).reshape(np.shape(layer))
    np.testing.assert_allclose(weights, layer, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["scaled", "linear", "online", "delta-rule"])
def test_padding_behind_changes_nothing_before_it(name):
    options = own(name, size=4)
    padded, alone = steps(TEXT, *options, "--padding", 2), steps("The cat sat", *options)
    np.testing.assert_allclose(np.array(padded["output"])[:3], alone["output"], rtol=0, atol=1e-9)
    assert not np.array(padded["weights"])[..., 3:].any()


@pytest.mark.parametrize("name", ["scaled", "linear", "retention"])
def test_a_causal_calculation_sees_nothing_later(name):
    found = steps(TEXT, *own(name, seed=0), "--causal")
    assert not np.triu(np.array(found["weights"]), 1).any()


@pytest.mark.slow
@pytest.mark.parametrize("name", MECHANISMS)
def test_what_is_written_is_read_back_as_the_same(name, tmp_path):
    options, heads = own(name, seed=0), 1 + MECHANISMS[name].many_heads
    suffix = ".json" if len(name) % 2 else ".npz"  # both, over the table
    first, again = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    wide = options if MECHANISMS[name].groups == "all" else own(name, size=8)
    texts = ("The cat sat", "A dog") if name in CO else (TEXT,)
    assert attnviz("steps", *texts, *wide, "-o", first, "-f", "none", "-q").status == 0
    done = attnviz("steps", first, *options, "-o", again, "-f", "none")
    assert done.status == 0, done.err
    assert "differs" not in done.err
    assert "no such matrix" not in done.err
    one, other = (
        arithmetic(CalculationInputs.from_file(path), mechanism=name, heads=heads)
        for path in (first, again)
    )
    for weights in ("weights_first", "weights_second") if name in CO else ("weights",):
        np.testing.assert_array_equal(one[weights], other[weights])


def evaluated(formula: str, steps: Steps) -> np.ndarray | None:
    """What a formula of matrices, signs and functions says in numpy; None of one in words."""
    code = re.sub("([a-z_]+)ᵀ", r"transpose(\1)", formula)
    code = re.sub(r"softmax\(([a-z_]+) where (\w*mask)\)", r"softmax(\1, \2)", code)
    code = re.sub(r"√(\d+)", r"\1**0.5", code).replace("·", "*").replace("−", "-")
    code = re.sub(r"ln (\d+)", r"log(\1)", code).replace("lambda", "lambda_")
    known = {"softmax": softmax, "transpose": transpose, "tanh": np.tanh, "log": np.log}
    known |= {"sigmoid": logistic} | {matrix.name: matrix.values for matrix in steps}
    known["lambda_"] = known.get("lambda")
    try:
        names = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
    except SyntaxError:
        return None
    return eval(code, known) if names <= {*known} else None


def joined(values: np.ndarray) -> np.ndarray:
    """Heads, (heads, positions, features), side by side."""
    return np.concatenate(list(np.atleast_3d(values.T).T), axis=-1)


def kept(values: np.ndarray, mask: np.ndarray, instead: float = 0.0) -> np.ndarray:
    """Numbers of each key, (heads, keys, 1), with those of hidden keys replaced."""
    return np.where(mask[0][:, None], values.T[..., None], instead)


def over(values: np.ndarray, total: np.ndarray) -> np.ndarray:
    return np.divide(
        values, total, out=np.zeros(np.broadcast(values, total).shape), where=total != 0
    )


def turned(values: np.ndarray, angle: np.ndarray) -> np.ndarray:
    a, b = values[..., ::2], values[..., 1::2]
    pairs = a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)
    return np.stack(pairs, -1).reshape(values.shape)


def running(values: np.ndarray, mask: object, take: Callable[[np.ndarray], object]) -> np.ndarray:
    """Something of scaled_scores after each tile of two keys, behind the other axes."""
    scores = values if mask is None else np.where(mask, values, -np.inf)
    stops = range(2, scores.shape[-1] + 2, 2)
    return np.stack([take(scores[..., :stop]) for stop in stops], -1)


def largest(scores: np.ndarray) -> np.ndarray:
    most = scores.max(-1)
    return np.where(np.isfinite(most), most, 0)


def exponentials(scores: np.ndarray) -> np.ndarray:
    return np.exp(scores - largest(scores)[..., None])


class Reader:
    """The formulas that are words, read out in numpy; `m` are the matrices by name.

    Each is a pattern and what it means. Names of matrices are groups.
    """

    def __init__(self, steps: Steps, given: CalculationInputs) -> None:
        self.m = {matrix.name: matrix.values for matrix in steps}
        self.mask = self.m.get("mask", self.m.get("second_mask"))
        self.given = np.ones((1, 1), bool) if given.mask is None else given.mask
        self.padding = np.arange(len(steps.key_tokens)) < len(steps.key_tokens) - given.padding
        queries, keys = len(steps.query_tokens), len(steps.key_tokens)
        self.apart = np.arange(keys) - np.arange(queries)[:, None] - (keys - queries)
        self.first = steps.matrices[0].values

    def seen(self, formula: str) -> np.ndarray:
        """A mask, the parts of which are joined by "and"."""
        shown = np.ones(self.apart.shape, bool)
        for part in formula.split(", and "):
            if part == "as given":
                shown = shown & self.given & self.padding
            elif match := re.fullmatch(r"1 where \|distance\| ≤ (\d+)( or .* below 1)?", part):
                near = np.abs(self.apart) <= int(match[1])
                if match[2]:
                    near[0] = near[:, 0] = True
                shown = shown & near
            else:
                lower = "1 where key position ≤ query position"
                assert part == lower or part.endswith("which are padding"), part
                shown = shown & (self.apart <= 0 if part == lower else self.padding)
        return shown[:1] if "second_mask" in self.m else shown

    def read(self, formula: str) -> object:
        """What a formula in words says."""
        m, apart, mask = self.m, self.apart, self.mask
        masked = mask if "mask" in formula else None
        numbers = [float(one) for one in re.findall(r"(?<![\w·/])\d+\.?\d*", formula)]
        meaning = {
            r"(\w+) in (\d+) .* of \d+ features": lambda one, n: np.moveaxis(
                m[one].reshape(len(m[one]), int(n), -1), 1, 0
            ),
            r"(\w+), head beside head": lambda one: joined(m[one]),
            r"1 where .*|0 for the last \d+, which are padding": lambda: self.seen(formula),
            r"elu\((\w+)\) \+ 1.*": lambda one: np.where(
                masked[:1].T if masked is not None else True,
                np.where(m[one] > 0, m[one] + 1, np.exp(np.minimum(m[one], 0))),
                0,
            ),
            r"mapped_query @ the sum of .*": lambda: m["mapped_query"] @ m["mapped_key"].sum(0),
            r"mapped_query @ mapped_keyᵀ / total( \(0 where total is 0\))?, only for drawing": (
                lambda _: over(m["mapped_query"] @ m["mapped_key"].T, m["total"])
            ),
            r"mapped_query @ mapped_keyᵀ / total( \(0 .*\))? up to the diagonal, only .*": (
                lambda _: np.tril(over(m["mapped_query"] @ m["mapped_key"].T, m["total"]))
            ),
            r"mapped_query @ state / total \(0 where total is 0\)": lambda: over(
                m["mapped_query"] @ m["state"], m["total"]
            ),
            r"the running sum of mapped_key's row × value's row": lambda: np.cumsum(
                m["mapped_key"][:, :, None] * m["value"][:, None], 0
            ),
            r"mapped_query · the running sum of mapped_key's rows": lambda: (
                m["mapped_query"] * m["mapped_key"].cumsum(0)
            ).sum(1),
            r"mapped_query's row @ its state / total( \(0 where total is 0\))?": lambda _: over(
                np.einsum("qf,qfg->qg", m["mapped_query"], m["state"]), m["total"]
            ),
            r"tanh\(row of (\w+) \+ (\w+)\)": lambda one, two: np.tanh(
                m[one][..., :, None, :] + m[two][..., None, :, :]
            ),
            r"key position − query position, −2 to 2": lambda: np.clip(apart, -2, 2),
            r"(\w+) · relative_key's row for the distance": lambda one: np.take_along_axis(
                m[one] @ m["relative_key"].T,
                np.broadcast_to(np.clip(apart, -2, 2) + 2, (*m[one].shape[:-1], apart.shape[1])),
                -1,
            ),
            r"Σ weights · relative_value's row": lambda: np.einsum(
                "...qk,qkf->...qf", m["weights"], m["relative_value"][np.clip(apart, -2, 2) + 2]
            ),
            r"the range of key position − query position": lambda: np.where(
                apart > 0, 16 + apart, -apart
            ),
            r"bias's number for the range": lambda: np.moveaxis(
                m["bias"].reshape(32, -1)[m["range"].astype(int)], -1, 0
            ),
            r"−\|distance\| × slope .*": lambda: -np.abs(apart) * np.array(numbers)[:, None, None],
            r"position / 10000\^\(2·pair/(\d+)\)": lambda n: (
                np.arange(apart.shape[1])[:, None] / 10000 ** (np.arange(0, int(n), 2) / int(n))
            ),
            r"\(a·cos .* by angle, of each pair \(a, b\) of (\w+)( in 2 heads)?": (
                lambda one, split: turned(
                    np.stack(np.split(m[one], 2, -1)) if split else m[one], m["angle"]
                )
            ),
            r"softmax\(scaled_scores.*, and sink\), .*": lambda: self.sink(masked, formula),
            r"the (first|second) half of (\w+) @ (\w+)ᵀ / √(\d+)": lambda which, one, two, n: (
                np.split(m[one], 2, -1)[which == "second"]
                @ transpose(np.split(m[two], 2, -1)[which == "second"])
                / int(n) ** 0.5
            ),
            r"exp\(balance's rows 0 · 1\) − exp\(rows 2 · 3\) \+ 0\.2": lambda: (
                np.exp(m["balance"][0] @ m["balance"][1])
                - np.exp(m["balance"][2] @ m["balance"][3])
                + 0.2
            ),
            r"mixed / √\(its mean square \+ 10⁻⁵\) · 0\.8": lambda: (
                m["mixed"] / ((m["mixed"] ** 2).mean(-1, keepdims=True) + 1e-5) ** 0.5 * 0.8
            ),
            r"scaled_scores − ln\(keys that the row's mask shows, or 1\)": lambda: (
                m["scaled_scores"] - np.log(np.maximum(mask.sum(-1, keepdims=True), 1))
            ),
            r"sigmoid\(biased_scores\) where mask": lambda: logistic(m["biased_scores"]) * mask,
            r"the largest of scaled_scores.* so far, 2 keys a tile; 0 before .*": lambda: running(
                m["scaled_scores"], masked, largest
            ),
            r"what it was · .* Σ exp\(scaled_scores.* − running_maximum\)": lambda: running(
                m["scaled_scores"], masked, lambda one: exponentials(one).sum(-1)
            ),
            r"as running_sum, with each exp\(…\) times (\w+)'s row": lambda one: np.moveaxis(
                running(
                    m["scaled_scores"],
                    mask,
                    lambda scores: exponentials(scores) @ m[one][..., : scores.shape[-1], :],
                ),
                -1,
                0,
            ).swapaxes(0, m[one].ndim - 2),
            r"exp\(scaled_scores.* − the last running_maximum\) / the last running_sum.*": (
                lambda: over(
                    np.exp(
                        (
                            m["scaled_scores"]
                            if masked is None
                            else np.where(mask, m["scaled_scores"], -np.inf)
                        )
                        - m["running_maximum"][..., -1:]
                    ),
                    m["running_sum"][..., -1:],
                )
            ),
            r"the last running_output / the last running_sum.*": lambda: over(
                m["running_output"].reshape(
                    -1, 3, *m["output"].shape[:1], m["running_output"].shape[-1]
                )[:, -1],
                m["running_sum"].reshape(-1, len(m["output"]), 3)[..., -1:],
            ),
            r"(.*) \^ distance, 0 for later keys": lambda shares: np.where(
                apart <= 0, np.array(eval(f"[{shares}]"))[:, None, None] ** np.abs(apart), 0
            ),
            r"scores · decay, 0 where mask hides it": lambda: m["scores"] * m["decay"] * mask[:1],
            r"(\w+) / √\(Σ its squares \+ 10⁻⁶\)": lambda one: (
                m[one] / ((m[one] ** 2).sum(-1, keepdims=True) + 1e-6) ** 0.5
            ),
            r"alpha.* multiplied up, from behind the key position to the query position": lambda: (
                self.faded(masked)
            ),
            r"beta.* · \(unit_key @ unit_keyᵀ\) · decay, below the diagonal": lambda: np.tril(
                self.beta(masked) * (m["unit_key"] @ transpose(m["unit_key"])) * m["decay"], -1
            ),
            r"\(identity \+ known\)⁻¹ · beta.*": lambda: (
                np.linalg.inv(np.eye(apart.shape[1]) + m["known"])
                * self.beta(masked).swapaxes(-1, -2)
            ),
            r"tanh\(mapped_first @ secondᵀ\), 0 where second_mask hides it": lambda: (
                np.tanh(m["mapped_first"] @ m["second"].T) * mask
            ),
        }
        for pattern, meant in meaning.items():
            if match := re.fullmatch(pattern, formula):
                return meant(*match.groups())
        raise AssertionError(f"no test reads '{formula}'")

    def sink(self, mask: np.ndarray | None, formula: str) -> np.ndarray:
        scores = self.m["scaled_scores"]
        shares = np.exp(scores if mask is None else np.where(mask, scores, -np.inf))
        sink = np.exp(self.m["sink"].reshape(-1, 1, 1))
        total = shares.sum(-1, keepdims=True) + sink
        return (sink if formula.endswith("column") else shares) / total

    def beta(self, mask: np.ndarray | None) -> np.ndarray:
        beta = self.m["beta"]
        return kept(beta, np.ones((1, len(beta)), bool) if mask is None else mask)

    def faded(self, mask: np.ndarray | None) -> np.ndarray:
        alpha = self.m["alpha"]
        shown = np.ones(len(alpha), bool) if mask is None else mask[0]
        found = np.zeros((alpha.shape[1], len(alpha), len(alpha)))
        for head, query, key in np.ndindex(found.shape):
            between = [alpha[n, head] for n in range(key + 1, query + 1) if shown[n]]
            found[head, query, key] = np.prod(between) if key <= query else 0
        return found


ONE_ROW = ("linear", "causal-linear", "retention", "delta-rule", "gated-delta-rule")


@pytest.mark.slow
@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize(
    "hidden", ["nothing", "a key", "the first key", "padding", "later", "rows"]
)
def test_a_formula_is_what_is_computed(name, hidden):
    """Every one, in words too, worked out from the matrices that it names."""
    row = MECHANISMS[name]
    second = "A dog is in it" if name in CO else None
    if (second and hidden in ("later", "rows")) or (hidden == "rows" and name in ONE_ROW):
        return
    for heads in (1, 2) if row.many_heads else (1,):
        given = seeded_sentence(TEXT, 8, 0, second, row, heads)
        mask = np.ones((5, len(given.key_value_input) if second else 5), bool)
        mask[:, {"a key": 2, "the first key": 0}.get(hidden, [])] = False
        if hidden == "rows":
            mask[1, 2] = mask[3, :2] = mask[2] = False
        shown = None if hidden in ("nothing", "padding", "later") else mask
        given = replace(given, mask=shown, padding=2 * (hidden == "padding"))
        found = arithmetic(given, mechanism=name, heads=heads, causal=hidden == "later")
        reader = Reader(found, given)
        for matrix in found:
            if matrix.formula:
                values = evaluated(matrix.formula, found)
                values = reader.read(matrix.formula) if values is None else values
                shape = matrix.values.shape
                values = np.asarray(values)
                values = (
                    values.reshape(shape)
                    if values.size == matrix.values.size
                    else np.broadcast_to(values, shape)
                )
                told = f"{matrix.name} = {matrix.formula}"
                np.testing.assert_allclose(
                    values, matrix.values, rtol=1e-8, atol=1e-12, err_msg=told
                )


def by_loops(name: str, found: dict[str, np.ndarray], heads: int) -> dict[str, np.ndarray]:
    """Weights and outputs of a co-attention by its definition, a position at a time."""
    first, second = found["first"], found["second"]
    given = {key: found[key] for key in MECHANISMS[name].learned}
    if name == "co-two-stream":
        sides = {
            side: [found[side] @ given[f"w_{side}_{part}"] for part in ("query", "key", "value")]
            for side in ("first", "second")
        }
        one = test_co_two_stream.slowly(sides["first"][0], *sides["second"][1:], heads)
        other = test_co_two_stream.slowly(sides["second"][0], *sides["first"][1:], heads)
        return dict(zip(("output_first", "weights_first"), one, strict=True)) | dict(
            zip(("output_second", "weights_second"), other, strict=True)
        )
    given = {key: one[0] if key.endswith("score") else one for key, one in given.items()}
    if name == "co-parallel":
        names = ("affinity", "weights_first", "weights_second")
        return dict(zip(names, test_co_parallel.slowly(first, second, given), strict=True))
    told, guide = {}, None
    for turn, side, own in (
        ("alone", first, "first"),
        ("second", second, "second"),
        ("first", first, "first_again"),
    ):
        parts = {key.removeprefix(f"w_{own}_"): one for key, one in given.items()}
        guide, told[f"weights_{turn}"] = test_co_alternating.turn_slowly(side, guide, parts)
        told[f"output_{turn}"] = guide
    return {key: value for key, value in told.items() if key != "output_alone"}


@pytest.mark.parametrize("name", CO)
def test_a_co_attention_is_worked_as_its_definition(name):
    options = own(name, size=8, seed=3)
    found = steps("The red car", "La voiture", *options)
    found = {key: np.array(value) for key, value in found.items()}
    for part, values in by_loops(name, found, 1 + MECHANISMS[name].many_heads).items():
        values = np.reshape(values, found[part].shape)
        np.testing.assert_allclose(found[part], values, rtol=0, atol=1e-12)
    shown = attnviz("cross", "The red car", "La voiture", *options, "-f", "json", "-q").json()
    for item in shown["maps"]:
        weights = found[MECHANISMS[name].streams[item["stream"]]]
        layer = np.reshape(item["weights"], weights.shape)
        np.testing.assert_allclose(weights, layer, rtol=0, atol=1e-6)


def test_every_part_is_in_each_form(tmp_path):
    archive = tmp_path / "a.npz"
    text = attnviz("steps", TEXT, "--mechanism", "online", "-o", archive).text
    found = steps(TEXT, "--mechanism", "online")
    for name in ("scaled_scores", "running_maximum", "running_sum", "running_output", "output"):
        np.testing.assert_allclose(np.load(archive)[name], found[name])
        assert name in text
    diagram = attnviz("steps", TEXT, "--mechanism", "online", "--diagram", "-q").text
    assert '["running_output 3 × 5 × 4<br/>' in diagram
    assert "running_output --> output" in diagram
    names = [line.split(" = ")[0] for line in found["formulas"].splitlines()]
    assert names[-5:] == ["running_maximum", "running_sum", "running_output", "weights", "output"]


def test_a_mask_is_written_out_or_read_from_a_file(tmp_path):
    one = steps("The cat sat", "--mask", "1 0 1")
    assert np.array(one["weights"])[:, 1].tolist() == [0, 0, 0]
    each = steps("The cat sat", "--mask", "100, 010, 111")
    assert np.array(each["weights"])[:2].tolist() == [[1, 0, 0], [0, 1, 0]]
    file = tmp_path / "mask.json"
    file.write_text(json.dumps({"mask": [[1, 0, 0], [0, 1, 0], [1, 1, 1]]}))
    assert steps("The cat sat", "--mask", file)["weights"] == each["weights"]
    assert "as given" not in each["formulas"].splitlines()


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("a b", "--mask", "1 2"), 2, "--mask '1 2' is no mask: write 1 and 0"),
        (("a b", "--mask", "1 0 1"), 1, "mask has the shape (1, 3), not (2, 2)"),
        (("a b", "--padding", "2"), 2, "--padding 2 leaves none of the 2 keys"),
        (("a b", "--mechanism", "linear", "--mask", "10,01"), 2, "one mask row for all queries"),
        (("a b", "--mechanism", "scaled:heads=2"), 2, "'scaled' has one head"),
        (
            ("a b", "--mechanism", "multi-head:heads=3"),
            2,
            "a size of 4 cannot be split into 3 heads",
        ),
        (("a b", "--mechanism", "rotary:size=3"), 2, "an even head size, not 3"),
        (("a b", "--mechanism", "rotry"), 2, "Did you mean 'rotary'?"),
        (("a b", "c", "--mechanism", "rotary"), 2, "mechanism 'rotary' is not for 'cross'"),
        (("a b", "--mechanism", "co-parallel"), 2, "needs two sequences"),
        (("a b", "c", "--mechanism", "co-parallel", "--causal"), 2, "has no causal form"),
        (
            ("a b", "c d", "--mechanism", "co-two-stream", "--mask", "10,01"),
            2,
            "takes one mask row",
        ),
        (("a b", "c", "--mechanism", "co-parallel", "--picture", "a.png"), 2, "draws the values"),
        (("a b", "--example", "self"), 2, "leave a sentence out"),
        (("--example", "slef"), 2, "Did you mean 'self'?"),
        ((SAMPLE, "--example", "x"), 2, "unknown example 'x'"),
        ((SAMPLE, "--diagram"), 2, "--diagram shows one example"),
        (("a b", "--layer", "1"), 2, "--layer chooses a head of a model"),
        (("--model", "pocket"), 2, "--model needs a sentence"),
        (
            ("a b", "--model", "pocket", "--mechanism", "scaled"),
            2,
            "--mechanism is not for --model",
        ),
        (("a b", "--model", "pocket", "--layer", "9"), 2, "layer 9 does not exist"),
        (("a b", "--model", "pocket", "--layer", "0-2"), 2, "steps shows one layer, not 3"),
        (("--text", "a", "--causal", "--model", "x"), 2, "--causal is not for --model"),
    ],
)
def test_a_mistake_is_one_line(arguments, status, message):
    done = attnviz("steps", *arguments)
    assert (done.status, done.text) == (status, "")
    assert done.err.count("\n") == 1
    assert message in done.err


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_built_in_examples_are_the_published_ones(name):
    published = CalculationInputs.examples(SAMPLE)[name]
    built_in = arithmetic(worked_example(name))
    assert np.array_equal(built_in[built_in.matrices[0].name], published.query_input)
    for matrix, values in published.reference.items():
        if not matrix.startswith("trap"):
            np.testing.assert_allclose(built_in[matrix], values, rtol=0, atol=1e-6)
    assert steps("--example", name)["output"] == built_in["output"].tolist()


def test_files_of_examples_are_compared_with_what_they_say(tmp_path):
    done = attnviz("steps", SAMPLE)
    assert done.status == 0
    assert done.text.splitlines()[:4] == [
        "3 examples; --example NAME shows one alone",
        "  naive: 5 of 5 results as given",
        "  self: 7 of 7 results as given",
        "  cross: 7 of 7 results as given",
    ]
    found = steps(SAMPLE)["examples"]
    assert list(found) == ["naive", "self", "cross"]
    for name, example in found.items():
        assert steps(SAMPLE, "--example", name) == example
        assert max(float(line.split(": ")[1]) for line in example["compared"].splitlines()) < 1e-6
    found = json.loads(SAMPLE.read_text("utf-8"))
    found["self"]["weights"][0][1] = 0.9
    found["naive"]["trap_weights_over_queries"][0][0] = 0.5
    file = tmp_path / "wrong.json"
    file.write_text(json.dumps(found))
    text = attnviz("steps", file).text
    assert "naive: 4 of 5 results as given" in text
    assert "self: 6 of 7 results as given" in text
    assert "'weights' as given differs from the computed by up to 0.414" in text


@pytest.mark.parametrize("suffix", ["json", "npz", "safetensors"])
def test_a_dash_is_stdin(suffix, tmp_path):
    from safetensors.numpy import save

    numbers = {"inputs": np.eye(3), "mask": np.tri(3)}
    archive = io.BytesIO()
    np.savez(archive, **numbers)
    data = {
        "json": json.dumps({name: values.tolist() for name, values in numbers.items()}).encode(),
        "npz": archive.getvalue(),
        "safetensors": save(numbers),
    }[suffix]
    done = attnviz("steps", "-", "-f", "json", stdin=data)
    assert done.status == 0, done.err
    assert done.json()["weights"][0] == [1, 0, 0]
    assert done.json()["title"] == "stdin · naive attention"
    if suffix == "json":
        whole = attnviz("steps", "-", "--example", "self", "-f", "json", stdin=SAMPLE.read_bytes())
        assert whole.json()["output"] == steps("--example", "self")["output"]


def test_what_a_file_lacks_is_drawn_and_said(tmp_path):
    done = attnviz("steps", "--mechanism", "additive", "-f", "json")
    assert done.err == "note: drawn at random, as none was given: w_score\n"
    assert np.shape(done.json()["w_score"]) == (2, 1)
    other = attnviz("steps", "--mechanism", "additive:seed=1", "-f", "json", "-q").json()
    assert other["w_score"] != done.json()["w_score"]
    file = tmp_path / "additive.json"
    given = {"inputs": np.eye(2).tolist(), "w_score": [[3.0], [0.0]]}
    file.write_text(json.dumps(given))
    found = steps(file, "--mechanism", "additive")
    assert found["scores"] == (3 * np.tanh([[2, 1], [1, 0]])).tolist()
    file.write_text(json.dumps({**given, "w_score": [[1.0]]}))
    assert (
        "w_score is 1 × 1, but must be 2 × 1"
        in attnviz("steps", file, "--mechanism", "additive").err
    )
    assert {"turned_query", "running_sum", "hidden", "writes", "head_outputs"} <= {
        *comparable_names()
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("texts", "stream", "rows"),
    [
        (("The red car",), "encoder", 4),
        (("The red car", "La voiture"), "cross", 3),
        (("The red car", "La voiture", "--stream", "decoder"), "decoder", 3),
        (("The red car", "--causal"), "causal", 4),
    ],
)
def test_one_head_of_pocket_in_its_own_numbers(texts, stream, rows):
    found = steps("--model", "pocket", "--layer", 2, "--head", 0, *texts)
    assert f"pocket · {stream} · layer 2 head 0" == found["title"]
    source = "memory" if stream == "cross" else "normalised"
    for side, inputs in (("query", "normalised"), ("key", source), ("value", source)):
        made = np.array(found[inputs]) @ found[f"w_{side}"] + found[f"b_{side}"]
        np.testing.assert_allclose(made, found[side], rtol=0, atol=1e-4)
    assert np.shape(found["added"]) == (rows, 192)
    np.testing.assert_allclose(
        np.array(found["weights"]) @ found["value"] @ found["w_output"],
        found["added"],
        rtol=0,
        atol=1e-4,
    )
    assert ("mask" in found) == (stream in ("decoder", "causal"))


def test_the_heads_of_a_layer_together_are_what_pocket_adds():
    from attnviz.core.effects import HeadAt
    from attnviz.core.query import Query
    from attnviz.models.pocket.translator import load_pocket

    pocket, query = load_pocket(), Query("The red car")
    heads = [
        {
            part.name: part.value
            for part in pocket.head_arithmetic(query, HeadAt("encoder", "0", h)).parts
        }
        for h in range(6)
    ]
    bias = pocket.weights["encoder.0.self_attention.output.bias"]
    inputs = heads[0]["layer_input"] + sum(head["added"] for head in heads) + bias
    from attnviz.models.light.network import Pass

    run = Pass(pocket.weights, pocket.sizes.encoder, None, None)
    inputs = inputs + run.feed_forward(0, inputs)
    after = {
        part.name: part.value
        for part in pocket.head_arithmetic(query, HeadAt("encoder", "1", 0)).parts
    }
    np.testing.assert_allclose(after["layer_input"], inputs, rtol=0, atol=1e-4)
    assert not any(name.startswith("plain") for name in after), "nothing is turned by position"
