"""A mechanism taken apart: every matrix on the way, with the formula that made it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from attnviz.core.errors import InputError, UsageError, choose
from attnviz.core.records import dataclass, field, replace
from attnviz.core.registry import MECHANISMS, SCHEMA, Mechanism
from attnviz.features.steps.given import DRAWN, TRAPS, CalculationInputs, Floats
from attnviz.mechanisms.arrays import softmax, transpose
from attnviz.mechanisms.dot_product import LOWER, causal_mask
from attnviz.mechanisms.formula import SIDES, groups_of, logistic, shapes_of, size_of_head
from attnviz.models.own import SeededEmbedding

Stage = Literal["inputs", "projections", "projected", "scores", "output"]


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """One matrix of the calculation, or one for each head."""

    name: str
    values: NDArray[Any]  # two axes; or three, and `stack` names the first
    formula: str  # how it was computed ("query @ keyᵀ"); empty if it was given
    operands: tuple[str, ...]
    stage: Stage
    rows: tuple[str, ...] = ()  # a name for each row; empty if rows are features
    columns: tuple[str, ...] = ()
    stack: tuple[str, ...] = ()  # names along the first of three axes: "head 0", …
    origin: str = "given"  # where it comes from, if no formula made it
    axes: str = "ff"  # its last axes, as in `attnviz.mechanisms.formula.Part`

    def slices(self) -> Iterator[Matrix]:
        """Its matrices of two axes, one by one: "scores · head 0"."""
        if not self.stack:
            yield self
            return
        for name, values in zip(self.stack, self.values, strict=True):
            yield replace(self, name=f"{self.name} · {name}", values=values, stack=())


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Every matrix of one calculation, in order."""

    title: str
    matrices: tuple[Matrix, ...]
    query_tokens: tuple[str, ...]
    key_tokens: tuple[str, ...]
    notes: tuple[str, ...] = ()
    compared: Mapping[str, float] = field(default_factory=dict)  # largest differences by name
    about: str = ""
    against: str = "what was given"  # what the results were compared with

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.matrix(name).values

    def __iter__(self) -> Iterator[Matrix]:
        return iter(self.matrices)

    def matrix(self, name: str) -> Matrix:
        return {matrix.name: matrix for matrix in self}[name]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Both lists of tokens and each matrix by name, for an .npz archive."""
        tokens = {"query_tokens": self.query_tokens, "key_tokens": self.key_tokens}
        words = {name: np.array(texts) for name, texts in tokens.items()}
        return words | {matrix.name: matrix.values for matrix in self}

    def data(self) -> dict[str, Any]:
        """The calculation as a JSON object: title, formulas, notes, tokens, each matrix as rows."""
        formulas = [f"{matrix.name} = {matrix.formula}" for matrix in self if matrix.formula]
        texts = {
            "schema": SCHEMA,
            "kind": "steps",
            "title": self.title,
            "formulas": "\n".join(formulas),
        }
        differences = "\n".join(f"{name}: {value:.3g}" for name, value in self.compared.items())
        notes = {"about": self.about, "notes": "\n".join(self.notes), "compared": differences}
        texts |= {name: text for name, text in notes.items() if text}
        tokens = {"query_tokens": self.query_tokens, "key_tokens": self.key_tokens}
        matrices = {matrix.name: np.ascontiguousarray(matrix.values) for matrix in self}
        return {**texts, **tokens, **matrices}


def arithmetic(
    setup: CalculationInputs, *, mechanism: str | None = None, heads: int = 1, causal: bool = False
) -> Steps:
    """A mechanism matrix by matrix, from the inputs to the output.

    The default is scaled attention of one or several heads; without projections it is naive
    attention, whose queries, keys and values are the inputs, unscaled. Given queries, keys and
    values are used as they are. Missing parameters are drawn at random, and a note says so.

    Raises:
        UsageError: the mechanism does not have that many heads, or no such mask.
        InputError: matrices that do not fit together, or numbers that overflow.
    """
    usual = "naive" if not setup.projections and setup.value is None else "scaled"
    name = mechanism or ("multi-head" if heads > 1 else usual)
    choose(name, MECHANISMS, "mechanism")
    if causal:
        name = MECHANISMS[name].causal or name
    row = MECHANISMS[name]
    if row.mutual and setup.key_value_input is None:
        raise UsageError(f"'{name}' needs two sequences: two sentences, or first and second")
    own = row.mutual or row.groups != "all" or (row.learned and not row.projected)
    if setup.value is not None and own:
        raise UsageError(f"'{name}' makes queries and keys: give inputs, not query, key and value")
    if row.mutual and causal:
        raise UsageError(f"'{name}' has no causal form: leave --causal out")
    calculation = _Calculation(setup, name, heads)
    with np.errstate(over="ignore", invalid="ignore"):
        calculation.run(
            calculation.project(), calculation.mask(causal=causal and row.causal != name)
        )
    return calculation.finish(causal=causal and not row.causal)


def operands_of(formula: str, names: Iterable[str]) -> tuple[str, ...]:
    """The matrices whose names stand in a formula."""
    words = re.findall("[a-z_]+(?![a-z_]| position)", formula)
    return tuple(name for name in names if name in words)


SCORES = ("qk", "qt", "kk", "kq", "nq", "nk", "tqf", "qkf")  # axes between inputs and output
_SIDE = re.compile("(?<![a-z_])(query|key|value)(?![a-z_]| position)")


class _Calculation:
    """The matrices so far, by name; `add` refuses a matrix that overflowed."""

    def __init__(self, setup: CalculationInputs, name: str, heads: int) -> None:
        self.setup, self.name, self.heads = setup, name, heads
        self.row: Mechanism = MECHANISMS[name]
        self.both = self.row.mutual
        self.matrices: dict[str, Matrix] = {}
        self.random_names = list[str]()
        self.notes = list[str]()
        counts = [len(setup.inputs[name]) for name in setup.names]
        letters = "xx" if setup.key_value_input is None else "qk"
        self.queries = setup.query_tokens or tuple(f"{letters[0]}{i}" for i in range(counts[0]))
        self.keys = setup.key_tokens or tuple(f"{letters[1]}{i}" for i in range(counts[1]))
        self.side_names = {"query": "query", "key": "key", "value": "value"}

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.matrices[name].values

    def add(self, name: str, values: NDArray[Any], formula: str = "", axes: str = "ff") -> str:
        if not np.isfinite(values).all():
            raise InputError(f"{name} overflows: the numbers it is made from are too large")
        values = np.atleast_2d(values)
        if name not in self.side_names.values():  # "key_heads" then stands for "key"
            formula = _SIDE.sub(lambda side: self.side_names[side[1]], formula)
        operands = operands_of(formula, self.matrices)
        stage: Stage = "scores" if axes in SCORES else "projected"
        if not formula:
            stage = "inputs" if axes != "ff" else "projections"
        elif name.startswith("output") or ("weights" in self.matrices and axes.endswith("f")):
            stage = "output"
        names, stack = self._names(axes, values)
        values = (
            values.reshape(-1, *values.shape[-2:]) if stack else values.reshape(values.shape[-2:])
        )
        origin = DRAWN if name in self.random_names else self.setup.origin
        self.matrices.pop(name, None)  # a mask that is made again moves to the end
        self.matrices[name] = Matrix(
            name, values, formula, operands, stage, *names, stack=stack, origin=origin, axes=axes
        )
        return name

    def _names(
        self, axes: str, values: NDArray[Any]
    ) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], tuple[str, ...]]:
        """The names of rows and columns, and of the matrices along further axes."""
        axis_names = {"q": self.queries, "k": self.keys}
        axis_names["t"] = tuple(f"tile {number}" for number in range(values.shape[-1]))
        sides = [axis_names.get(axis, ()) for axis in axes[-2:]]
        ahead = []
        for place, count in enumerate(values.shape[:-2]):
            axis = axes[place - values.ndim] if values.ndim - place <= len(axes) else "h"
            what = {"h": "head", "g": "group", "t": "tile"}.get(axis, "")
            if count > 1 or axis in "qkt":
                names = axis_names["q"] if axis == "q" else [f"{what} {n}" for n in range(count)]
                ahead.append(names)
        return (sides[0], sides[1]), tuple(map(" · ".join, product(*ahead))) if ahead else ()

    def project(self) -> dict[str, Any]:
        """Add query, key, value and the learned parameters; the arguments of the formula."""
        setup, row, names = self.setup, self.row, self.setup.names
        query_side, key_side = ("first", "second") if self.both else names
        for name, source, axes in ((query_side, names[0], "qf"), (key_side, names[1], "kf")):
            self.add(name, setup.inputs[source], axes=axes)
        self.side_names = (
            {} if self.both else {"query": query_side, "key": key_side, "value": key_side}
        )
        if setup.value is not None:
            self.side_names["value"] = self.add("value", setup.value, axes="kf")
        size = self[query_side].shape[1]
        for name, axes in row.learned.items():
            if axes.endswith("hidden") and name in setup.learned:
                size = setup.learned[name].shape[1]
        if setup.projections and row.projected:
            size = setup.projections["w_query"].shape[1]
            self._project(size)
        elif setup.projections:
            self.notes.append(
                f"'{self.name}' projects by itself: w_query, w_key and w_value are not used"
            )
        size_of_head(size, self.heads)
        options = self._learned_options(size, query_side, key_side)
        sides = {name: self[matrix_name] for name, matrix_name in self.side_names.items()}
        if self.both:
            return {"first": self[query_side], "second": self[key_side], **options}
        if row.projected or query_side != key_side:
            return {**sides, **options}
        # One array, not copies: a mechanism sees by identity that it needs to split it only once.
        return {**dict.fromkeys(("query", "key", "value"), self[query_side]), **options}

    def _learned_options(self, size: int, query_side: str, key_side: str) -> dict[str, Any]:
        """The learned parameters of the formula; missing ones are drawn at random."""
        setup, row = self.setup, self.row
        inputs = (self[query_side].shape[1], self[key_side].shape[1])
        shapes, parameters = shapes_of(row, size, self.heads, inputs), dict(setup.learned)
        embedding = SeededEmbedding(setup.seed, size)
        self.random_names = [name for name in shapes if name not in parameters]
        parameters |= {n: embedding.draw_parameter(row, n, shapes[n]) for n in self.random_names}
        if self.random_names and setup.origin != DRAWN:
            self.notes.append(f"drawn at random, as none was given: {', '.join(self.random_names)}")
        options: dict[str, Any] = {"heads": self.heads} if row.many_heads else {}
        for (name, axes), (matrix_name, shape) in zip(
            row.learned.items(), shapes.items(), strict=True
        ):
            if parameters[matrix_name].reshape(-1).shape != (int(np.prod(shape)),):
                have = " × ".join(map(str, parameters[matrix_name].shape))
                raise InputError(
                    f"{matrix_name} is {have}, but must be {' × '.join(map(str, shape))}"
                )
            values = parameters[matrix_name].reshape(shape)
            self.add(matrix_name, values)
            if axes.startswith(SIDES):
                side, letter = (query_side, "q") if axes.startswith("queries") else (key_side, "k")
                gates = logistic(self[side] @ values)
                values = self[
                    self.add(name, gates, f"sigmoid({side} @ {matrix_name})", f"{letter}f")
                ]
            options[name] = values
        return options

    def _project(self, size: int) -> None:
        setup, (query_side, key_side) = self.setup, self.setup.names
        groups = groups_of(self.row, self.heads)
        columns = size // self.heads * groups
        matrices = dict(setup.projections)
        if self.row.groups == "all":
            setup.check_columns("w_query", "w_key")
        elif wide := [n for n in ("w_key", "w_value") if matrices[n].shape[1] > columns]:
            matrices |= {name: matrices[name][:, :columns] for name in wide}
            self.notes.append(
                f"{' and '.join(wide)}: the first {columns} columns, as there are {groups} for "
                f"{self.heads} heads"
            )
        for name, matrix in matrices.items():
            self.add(name, matrix)
        for name, source, axes in (
            ("query", query_side, "qf"),
            ("key", key_side, "kf"),
            ("value", key_side, "kf"),
        ):
            self.add(name, self[source] @ self[f"w_{name}"], f"{source} @ w_{name}", axes)
        self.side_names = {name: name for name in self.side_names}

    def mask(self, *, causal: bool) -> NDArray[np.bool_] | None:
        """The mask, or its first row where all rows are equal; None: every key may be seen."""
        mask, reasons = self.setup.mask, ["as given"] if self.setup.mask is not None else []
        if self.setup.padding:
            ahead = np.arange(len(self.keys)) < len(self.keys) - self.setup.padding
            mask = np.broadcast_to(ahead, (len(self.queries), len(self.keys))) & (
                True if mask is None else mask
            )
            reasons.append(f"0 for the last {self.setup.padding}, which are padding")
        one_sequence = len(self.queries) == len(self.keys)
        if (causal or self.row.causal == self.name) and not one_sequence:
            raise UsageError(
                f"{'--causal' if causal else self.name} needs one sequence, but there are "
                f"{len(self.queries)} queries and {len(self.keys)} keys"
            )
        if causal:
            triangle: NDArray[np.bool_] = causal_mask(
                self.setup.query_input, len(self.queries), len(self.keys)
            )
            mask = triangle if mask is None else triangle & mask
            reasons.insert(0, LOWER)
        if mask is None:
            return None
        how = ", and ".join(reasons) if reasons != ["as given"] else ""
        if self.both:
            if not (mask == mask[0]).all():
                raise UsageError(f"'{self.name}' takes one mask row, of the second sequence")
            self.add("second_mask", mask[:1], how, "nk")
            row: NDArray[np.bool_] = mask[0]
            return row
        self.add("mask", mask, how, "qk")
        return mask[:1] if (mask == mask[0]).all() else mask

    def run(self, options: dict[str, Any], mask: NDArray[np.bool_] | None) -> None:
        """Add every part that the mechanism yields."""
        parts = self.row.load().parts(**options, **{"second_mask" if self.both else "mask": mask})
        try:
            for part in parts:
                formula, before = part.formula, self.matrices.get("mask")
                if part.name == "mask" and before is not None and before.formula:
                    formula = formula.replace("as given", before.formula)
                self.add(part.name, part.value, formula, part.axes)
                side = part.name.removesuffix("_heads")
                if side in self.side_names:
                    self.side_names[side] = part.name
        except ValueError as error:
            raise UsageError(f"{error}: --mask of one row, or --padding") from error

    def finish(self, *, causal: bool) -> Steps:
        """The finished calculation, compared with the results that were given."""
        name = f"{self.name[3:]} co-attention" if self.both else f"{self.name} attention"
        name = KINDS.get(self.name, name)
        heads = f" in {self.heads} heads" if self.heads > 1 else ""
        title = f"{self.setup.title} · {'causal ' if causal else ''}{name}{heads}"
        results = {name: self[name] for name in self.matrices}
        if "scores" in results and any(name in self.setup.reference for name in TRAPS):
            trap = transpose(softmax(transpose(results.get("scaled_scores", results["scores"]))))
            results |= dict(zip(TRAPS, (trap, trap @ self[self.side_names["value"]]), strict=True))
        notes, differences = compare_results(self.setup.reference, results)
        notes = (*self.notes, *notes)
        matrices = tuple(self.matrices.values())
        about = self.setup.about
        return Steps(title, matrices, self.queries, self.keys, notes, differences, about)


ROUNDED = 1e-3  # a smaller difference is rounding: three printed digits are right
KINDS = {"scaled": "scaled dot-product attention", "multi-head": "multi-head attention"}
KINDS |= {"causal": "causal scaled dot-product attention", "naive": "naive attention"}


def compare_results(
    reference: Mapping[str, Floats], results: Mapping[str, NDArray[Any]]
) -> tuple[tuple[str, ...], dict[str, float]]:
    """A note for each given result that differs from the computed one, and all differences."""
    notes, differences = [], dict[str, float]()
    for name, values in reference.items():
        if name not in results:
            notes.append(f"'{name}' was given, but this calculation has no such matrix")
        elif values.shape != results[name].shape:
            notes.append(f"'{name}' was given as {values.shape}, computed as {results[name].shape}")
        else:
            apart = np.abs(values - results[name])
            differences[name] = float(apart.max())
            *_, row, column = place = np.unravel_index(int(apart.argmax()), apart.shape)
            if apart[place] >= ROUNDED:
                notes.append(
                    f"'{name}' as given differs from the computed by up to {apart.max():.3g} "
                    f"(row {row}, column {column}: {values[place]:.6g} instead of "
                    f"{results[name][place]:.6g})"
                )
    return tuple(notes), differences
