"""A mechanism taken apart: every matrix on the way, with the formula that made it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from attnviz.core.errors import InputError, UsageError, choose
from attnviz.core.registry import MECHANISMS, Mechanism
from attnviz.mechanisms.arrays import softmax, transpose
from attnviz.mechanisms.dot_product import LOWER, causal_mask
from attnviz.mechanisms.formula import SIDES, Part, groups_of, logistic, shapes_of, size_of_head
from attnviz.models.own import SeededEmbedding
from attnviz.teach.steps.given import DRAWN, TRAPS, CalculationInputs, Floats

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
        words = {name: np.array(found) for name, found in tokens.items()}
        return words | {matrix.name: matrix.values for matrix in self}

    def data(self) -> dict[str, Any]:
        """The calculation as a JSON object: title, formulas, notes, tokens, each matrix as rows."""
        formulas = [f"{matrix.name} = {matrix.formula}" for matrix in self if matrix.formula]
        texts = {"schema": 1, "title": self.title, "formulas": "\n".join(formulas)}
        compared = "\n".join(f"{name}: {value:.3g}" for name, value in self.compared.items())
        notes = {"about": self.about, "notes": "\n".join(self.notes), "compared": compared}
        texts |= {name: text for name, text in notes.items() if text}
        tokens = {"query_tokens": self.query_tokens, "key_tokens": self.key_tokens}
        matrices = {matrix.name: np.ascontiguousarray(matrix.values) for matrix in self}
        return {**texts, **tokens, **matrices}


def arithmetic(
    given: CalculationInputs, *, mechanism: str | None = None, heads: int = 1, causal: bool = False
) -> Steps:
    """A mechanism matrix by matrix, from the inputs to the output.

    The default is scaled attention of one or several heads; without projections it is naive
    attention, whose queries, keys and values are the inputs, unscaled. Missing parameters are
    drawn at random, and a note says so.

    Raises:
        UsageError: the mechanism does not have that many heads, or no such mask.
        InputError: matrices that do not fit together, or numbers that overflow.
    """
    name = mechanism or ("multi-head" if heads > 1 else "scaled" if given.projections else "naive")
    choose(name, MECHANISMS, "mechanism")
    if causal:
        name = MECHANISMS[name].causal or name
    row = MECHANISMS[name]
    if "co" in row.commands and given.key_value_input is None:
        raise UsageError(f"'{name}' needs two sequences: two sentences, or first and second")
    if "co" in row.commands and causal:
        raise UsageError(f"'{name}' has no causal form: leave --causal out")
    working = _Calculation(given, name, heads)
    with np.errstate(over="ignore", invalid="ignore"):
        working.run(working.project(), working.mask(causal=causal and row.causal != name))
    return working.finish(causal=causal and not row.causal)


def operands_of(formula: str, known: Iterable[str]) -> tuple[str, ...]:
    """The matrices whose names stand in a formula."""
    words = re.findall("[a-z_]+(?![a-z_]| position)", formula)
    return tuple(name for name in known if name in words)


SCORES = ("qk", "qt", "kk", "kq", "nq", "nk", "tqf", "qkf")  # axes between inputs and output
_SIDE = re.compile("(?<![a-z_])(query|key|value)(?![a-z_]| position)")


class _Calculation:
    """The matrices so far, by name; `add` refuses a matrix that overflowed."""

    def __init__(self, given: CalculationInputs, name: str, heads: int) -> None:
        self.given, self.name, self.heads = given, name, heads
        self.row: Mechanism = MECHANISMS[name]
        self.both = "co" in self.row.commands
        self.found: dict[str, Matrix] = {}
        self.drawn = list[str]()
        self.notes = list[str]()
        counts = [len(given.inputs[name]) for name in given.names]
        letters = "xx" if given.key_value_input is None else "qk"
        self.queries = given.query_tokens or tuple(f"{letters[0]}{i}" for i in range(counts[0]))
        self.keys = given.key_tokens or tuple(f"{letters[1]}{i}" for i in range(counts[1]))
        self.called = {"query": "query", "key": "key", "value": "value"}

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.found[name].values

    def add(self, name: str, values: NDArray[Any], formula: str = "", axes: str = "ff") -> str:
        if not np.isfinite(values).all():
            raise InputError(f"{name} overflows: the numbers it is made from are too large")
        values = np.atleast_2d(values)
        if name not in self.called.values():  # "key_heads" then stands for "key"
            formula = _SIDE.sub(lambda side: self.called[side[1]], formula)
        operands = operands_of(formula, self.found)
        stage: Stage = "scores" if axes in SCORES else "projected"
        if not formula:
            stage = "inputs" if axes != "ff" else "projections"
        elif name.startswith("output") or ("weights" in self.found and axes.endswith("f")):
            stage = "output"
        names, stack = self._names(axes, values)
        values = (
            values.reshape(-1, *values.shape[-2:]) if stack else values.reshape(values.shape[-2:])
        )
        origin = DRAWN if name in self.drawn else self.given.origin
        self.found.pop(name, None)  # a mask that is made again moves to the end
        self.found[name] = Matrix(
            name, values, formula, operands, stage, *names, stack=stack, origin=origin, axes=axes
        )
        return name

    def _names(
        self, axes: str, values: NDArray[Any]
    ) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], tuple[str, ...]]:
        """The names of rows and columns, and of the matrices along further axes."""
        known = {"q": self.queries, "k": self.keys}
        known["t"] = tuple(f"tile {number}" for number in range(values.shape[-1]))
        found = [known.get(axis, ()) for axis in axes[-2:]]
        ahead = []
        for place, count in enumerate(values.shape[:-2]):
            axis = axes[place - values.ndim] if values.ndim - place <= len(axes) else "h"
            what = {"h": "head", "g": "group", "t": "tile"}.get(axis, "")
            if count > 1 or axis in "qkt":
                names = known["q"] if axis == "q" else [f"{what} {n}" for n in range(count)]
                ahead.append(names)
        return (found[0], found[1]), tuple(map(" · ".join, product(*ahead))) if ahead else ()

    def project(self) -> dict[str, Any]:
        """Add query, key, value and the learned parameters; the arguments of the formula."""
        given, row, names = self.given, self.row, self.given.names
        asking, asked = ("first", "second") if self.both else names
        for name, source, axes in ((asking, names[0], "qf"), (asked, names[1], "kf")):
            self.add(name, given.inputs[source], axes=axes)
        self.called = {} if self.both else {"query": asking, "key": asked, "value": asked}
        size = self[asking].shape[1]
        for name, axes in row.learned.items():
            if axes.endswith("hidden") and name in given.learned:
                size = given.learned[name].shape[1]
        if given.projections and row.projected:
            size = given.projections["w_query"].shape[1]
            self._project(size)
        elif given.projections:
            self.notes.append(
                f"'{self.name}' projects by itself: w_query, w_key and w_value are not used"
            )
        size_of_head(size, self.heads)
        options = self._learned_options(size, asking, asked)
        sides = {name: self[found] for name, found in self.called.items()}
        if self.both:
            return {"first": self[asking], "second": self[asked], **options}
        if row.projected or asking != asked:
            return {**sides, **options}
        # One array, not copies: a mechanism sees by identity that it needs to split it only once.
        return {**dict.fromkeys(("query", "key", "value"), self[asking]), **options}

    def _learned_options(self, size: int, asking: str, asked: str) -> dict[str, Any]:
        """The learned parameters of the formula; missing ones are drawn at random."""
        given, row = self.given, self.row
        inputs = (self[asking].shape[1], self[asked].shape[1])
        shapes, learned = shapes_of(row, size, self.heads, inputs), dict(given.learned)
        embedding = SeededEmbedding(given.seed, size)
        self.drawn = [name for name in shapes if name not in learned]
        learned |= {n: embedding.draw_parameter(row, n, shapes[n]) for n in self.drawn}
        if self.drawn and given.origin != DRAWN:
            self.notes.append(f"drawn at random, as none was given: {', '.join(self.drawn)}")
        options: dict[str, Any] = {"heads": self.heads} if row.many_heads else {}
        for (name, axes), (stored, shape) in zip(row.learned.items(), shapes.items(), strict=True):
            if learned[stored].reshape(-1).shape != (int(np.prod(shape)),):
                have = " × ".join(map(str, learned[stored].shape))
                raise InputError(f"{stored} is {have}, but must be {' × '.join(map(str, shape))}")
            values = learned[stored].reshape(shape)
            self.add(stored, values)
            if axes.startswith(SIDES):
                side, letter = (asking, "q") if axes.startswith("queries") else (asked, "k")
                made = logistic(self[side] @ values)
                values = self[self.add(name, made, f"sigmoid({side} @ {stored})", f"{letter}f")]
            options[name] = values
        return options

    def _project(self, size: int) -> None:
        given, (asking, asked) = self.given, self.given.names
        groups = groups_of(self.row, self.heads)
        columns = size // self.heads * groups
        matrices = dict(given.projections)
        if self.row.groups == "all":
            given.check_columns("w_query", "w_key")
        elif wide := [n for n in ("w_key", "w_value") if matrices[n].shape[1] > columns]:
            matrices |= {name: matrices[name][:, :columns] for name in wide}
            self.notes.append(
                f"{' and '.join(wide)}: the first {columns} columns, as there are {groups} for "
                f"{self.heads} heads"
            )
        for name, matrix in matrices.items():
            self.add(name, matrix)
        for name, source, axes in (
            ("query", asking, "qf"),
            ("key", asked, "kf"),
            ("value", asked, "kf"),
        ):
            self.add(name, self[source] @ self[f"w_{name}"], f"{source} @ w_{name}", axes)
        self.called = {name: name for name in self.called}

    def mask(self, *, causal: bool) -> NDArray[np.bool_] | None:
        """The mask, or its first row where all rows are equal; None: every key may be seen."""
        given, shown = self.given.mask, ["as given"] if self.given.mask is not None else []
        if self.given.padding:
            ahead = np.arange(len(self.keys)) < len(self.keys) - self.given.padding
            given = np.broadcast_to(ahead, (len(self.queries), len(self.keys))) & (
                True if given is None else given
            )
            shown.append(f"0 for the last {self.given.padding}, which are padding")
        one_sequence = len(self.queries) == len(self.keys)
        if (causal or self.row.causal == self.name) and not one_sequence:
            raise UsageError(
                f"{'--causal' if causal else self.name} needs one sequence, but there are "
                f"{len(self.queries)} queries and {len(self.keys)} keys"
            )
        if causal:
            triangle: NDArray[np.bool_] = causal_mask(
                self.given.query_input, len(self.queries), len(self.keys)
            )
            given = triangle if given is None else triangle & given
            shown.insert(0, LOWER)
        if given is None:
            return None
        how = ", and ".join(shown) if shown != ["as given"] else ""
        if self.both:
            if not (given == given[0]).all():
                raise UsageError(f"'{self.name}' takes one mask row, of the second sequence")
            self.add("second_mask", given[:1], how, "nk")
            row: NDArray[np.bool_] = given[0]
            return row
        self.add("mask", given, how, "qk")
        return given[:1] if (given == given[0]).all() else given

    def run(self, options: dict[str, Any], mask: NDArray[np.bool_] | None) -> None:
        """Add every part that the mechanism yields."""
        parts = self.row.load().parts(**options, **{"second_mask" if self.both else "mask": mask})
        try:
            for part in parts:
                self._part(part)
        except ValueError as error:
            raise UsageError(f"{error}: --mask of one row, or --padding") from error

    def _part(self, part: Part) -> None:
        formula, before = part.formula, self.found.get("mask")
        if part.name == "mask" and before is not None and before.formula:
            formula = formula.replace("as given", before.formula)
        self.add(part.name, part.value, formula, part.axes)
        side = part.name.removesuffix("_heads")
        if side in self.called:
            self.called[side] = part.name

    def finish(self, *, causal: bool) -> Steps:
        """The finished calculation, compared with the results that were given."""
        name = f"{self.name[3:]} co-attention" if self.both else f"{self.name} attention"
        name = KINDS.get(self.name, name)
        heads = f" in {self.heads} heads" if self.heads > 1 else ""
        title = f"{self.given.title} · {'causal ' if causal else ''}{name}{heads}"
        results = {name: self[name] for name in self.found}
        if "scores" in results and any(name in self.given.claimed for name in TRAPS):
            trap = transpose(softmax(transpose(results.get("scaled_scores", results["scores"]))))
            results |= dict(zip(TRAPS, (trap, trap @ self[self.called["value"]]), strict=True))
        notes, compared = compare_results(self.given.claimed, results)
        notes = (*self.notes, *notes)
        matrices = tuple(self.found.values())
        about = self.given.about
        return Steps(title, matrices, self.queries, self.keys, notes, compared, about)


ROUNDED = 1e-3  # a smaller difference is rounding: three printed digits are right
KINDS = {"scaled": "scaled dot-product attention", "multi-head": "multi-head attention"}
KINDS |= {"causal": "causal scaled dot-product attention", "naive": "naive attention"}


def compare_results(
    claimed: Mapping[str, Floats], computed: Mapping[str, NDArray[Any]]
) -> tuple[tuple[str, ...], dict[str, float]]:
    """A note for each given result that differs from the computed one, and all differences."""
    notes, compared = [], dict[str, float]()
    for name, values in claimed.items():
        if name not in computed:
            notes.append(f"'{name}' was given, but this calculation has no such matrix")
        elif values.shape != computed[name].shape:
            notes.append(
                f"'{name}' was given as {values.shape}, computed as {computed[name].shape}"
            )
        else:
            apart = np.abs(values - computed[name])
            compared[name] = float(apart.max())
            *_, row, column = place = np.unravel_index(int(apart.argmax()), apart.shape)
            if apart[place] >= ROUNDED:
                notes.append(
                    f"'{name}' as given differs from the computed by up to {apart.max():.3g} "
                    f"(row {row}, column {column}: {values[place]:.6g} instead of "
                    f"{computed[name][place]:.6g})"
                )
    return tuple(notes), compared
