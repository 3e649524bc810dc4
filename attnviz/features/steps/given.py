"""The start of the arithmetic: inputs, projections, a mask and names of the positions."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from attnviz.core.errors import InputError
from attnviz.core.records import dataclass, field, replace
from attnviz.core.registry import MECHANISMS, Mechanism
from attnviz.mechanisms.formula import SIDES, example_parts, size_of_head
from attnviz.models.own import SeededEmbedding, word_tokens
from attnviz.storage.matrices import read_examples, read_matrices

Floats = NDArray[np.float64]

PROJECTIONS = ("w_query", "w_key", "w_value")
INPUTS = ("inputs", "query_input", "key_value_input")
GIVEN = ("query", "key", "value")
"""What attention weighs, where it is given as it is."""
TOKENS = ("tokens", "query_tokens", "key_tokens")
LEARNED = dict.fromkeys(
    f"w_{name}" if axes.startswith(SIDES) else name
    for row in MECHANISMS.values()
    for name, axes in row.learned.items()
)
"""Further parameters of mechanisms."""
ALSO_CALLED = {f"{name.removeprefix('w_')}_projection": name for name in PROJECTIONS}
ALSO_CALLED |= {"first": "query_input", "second": "key_value_input"}
TRAPS = ("trap_weights_over_queries", "trap_output_over_queries")
"""Results of a softmax over the wrong axis; a file may contain them as a warning example."""


@cache
def comparable_names() -> tuple[str, ...]:
    """Names of results that a file may contain, to be compared: the parts of all mechanisms."""
    names = dict.fromkeys(("query", "key", "value", "mask", *TRAPS))
    for row in MECHANISMS.values():
        names |= dict.fromkeys(part.name for part in example_parts(row, 2, 8, 2))
        names |= dict.fromkeys(n for n, axes in row.learned.items() if axes.startswith(SIDES))
    return tuple(names)


@dataclass(frozen=True, slots=True, eq=False)
class CalculationInputs:
    """The given matrices of a calculation.

    Raises:
        InputError: shapes that do not fit; the message names both.
    """

    title: str
    query_input: Floats  # shape (queries, query features)
    key_value_input: Floats | None = None  # (keys, key features); None: as query_input
    projections: Mapping[str, Floats] = field(default_factory=dict)  # by name; empty: naive
    mask: NDArray[np.bool_] | None = None  # (queries, keys), True: visible
    query_tokens: tuple[str, ...] = ()
    key_tokens: tuple[str, ...] = ()
    origin: str = "given"
    reference: Mapping[str, Floats] = field(default_factory=dict)  # given results by name
    learned: Mapping[str, Floats] = field(default_factory=dict)  # others are drawn
    seed: int = 0
    padding: int = 0
    about: str = ""
    # Given values, of queries and keys in the places of the inputs; None: they are to be made.
    value: Floats | None = None

    def __post_init__(self) -> None:
        values = {} if self.value is None else {"value": self.value}
        for name, matrix in {**self.inputs, **values, **self.projections}.items():
            check_matrix(name, matrix)
        if missing := [name for name in PROJECTIONS if name not in self.projections]:
            if self.projections:
                raise InputError(
                    f"{' and '.join(missing)} missing: give {', '.join(PROJECTIONS)}, or none of "
                    "them for attention without projections"
                )
            self.check_columns(*self.names)
        else:
            for name, inputs in zip(
                PROJECTIONS, (self.names[0], *[self.names[1]] * 2), strict=True
            ):
                columns, rows = self.inputs[inputs].shape[1], len(self.projections[name])
                if columns != rows:
                    raise InputError(f"{inputs} has {columns} columns but {name} has {rows} rows")
            # Where heads share keys, these have fewer columns; how many follows from the mechanism.
            if self.projections["w_query"].shape[1] % self.projections["w_key"].shape[1]:
                self.check_columns("w_query", "w_key")
        shape = tuple(len(self.inputs[name]) for name in self.names)
        if self.mask is not None and self.mask.shape != shape:
            raise InputError(f"mask has the shape {self.mask.shape}, not {shape}: (queries, keys)")
        for name, tokens, inputs in (
            ("query", self.query_tokens, self.names[0]),
            ("key", self.key_tokens, self.names[1]),
        ):
            rows = len(self.inputs[inputs])
            if tokens and len(tokens) != rows:
                raise InputError(
                    f"{inputs} has {rows} rows, but there are {len(tokens)} {name} tokens"
                )

    @property
    def names(self) -> tuple[str, str]:
        """The names of the input of queries and of the input of keys and values."""
        names = tuple(self.inputs)
        return names[0], names[-1]

    @property
    def inputs(self) -> dict[str, Floats]:
        if self.key_value_input is None:
            return {"inputs": self.query_input}
        names = INPUTS[1:] if self.value is None else ("query", "key")
        return dict(zip(names, (self.query_input, self.key_value_input), strict=True))

    @classmethod
    def from_matrices(cls, matrices: Mapping[str, Any], title: str) -> Self:
        """Take matrices and lists of words by name.

        They are inputs, or query_input and key_value_input, or query, key and value; and any of
        w_query, w_key, w_value, mask, tokens, query_tokens, key_tokens and results to compare with.
        """
        names = (*INPUTS, *PROJECTIONS, "mask", *TOKENS, *LEARNED, *ALSO_CALLED)
        for name in matrices:
            if name not in (*names, "schema") and name not in comparable_names():
                raise InputError(
                    f"unknown matrix '{name}': known are {', '.join(names)}, and results to "
                    "compare with"
                )
        matrices = {ALSO_CALLED.get(name, name): matrices[name] for name in matrices}
        value = None
        if set(GIVEN) <= matrices.keys() and not matrices.keys() & {*INPUTS, *PROJECTIONS}:
            query, key, value = (matrices.pop(name) for name in GIVEN)
            if len(rows := dict.fromkeys(str(*one.shape[:1]) for one in (key, value))) > 1:
                raise InputError(
                    f"key and value have {' and '.join(rows)} rows: one each is needed"
                )
            matrices |= {"query_input": query, "key_value_input": key}
        both = [name for name in INPUTS[1:] if name in matrices]
        if "inputs" in matrices if both else "inputs" not in matrices:
            got = ", ".join(matrices) or "nothing"
            raise InputError(
                "give either inputs, query_input and key_value_input, or query, key and value; got "
                + got
            )
        if len(both) == 1:
            lacking = next(name for name in INPUTS[1:] if name not in both)
            raise InputError(
                f"{both[0]} needs {lacking} beside it; for one sequence, call it inputs"
            )
        tokens, latent = matrices.get("tokens", ()), "w_latent" in matrices
        return cls(
            title=title,
            query_input=matrices[both[0] if both else "inputs"],
            key_value_input=matrices[both[1]] if both else None,
            value=value,
            projections={
                name: matrices[name] for name in PROJECTIONS if name in matrices and not latent
            },
            mask=as_mask(matrices["mask"]) if "mask" in matrices else None,
            query_tokens=tuple(matrices.get("query_tokens", tokens)),
            key_tokens=tuple(matrices.get("key_tokens", tokens)),
            reference={
                name: matrices[name]
                for name in matrices
                if name not in (*names, "schema") and name in comparable_names()
            },
            learned={
                name: matrices[name]
                for name in LEARNED
                if name in matrices and (latent or name not in PROJECTIONS)
            },
        )

    @classmethod
    def from_file(cls, path: Path, data: bytes | None = None) -> Self:
        """The matrices of a .json, .npz or .safetensors file, or of its bytes in `data`."""
        with _name_file(path):
            return cls.from_matrices(read_matrices(path, data), path.name)

    @classmethod
    def examples(cls, path: Path, data: bytes | None = None) -> dict[str, Self]:
        by_name = {}
        for name, (about, matrices) in read_examples(path, data).items():
            with _name_file(f"{path}' · '{name}"):
                setup = cls.from_matrices(matrices, f"{path.name} · {name}")
                by_name[name] = replace(setup, about=about)
        return by_name

    def check_columns(self, first: str, second: str) -> None:
        """Raise an InputError if rows of the two matrices cannot be multiplied."""
        matrices = {**self.inputs, **self.projections}
        one, other = matrices[first].shape[1], matrices[second].shape[1]
        if one != other:
            raise InputError(
                f"{first} has {one} columns but {second} has {other}: "
                "queries and keys must be of one size to be multiplied"
            )


@contextmanager
def _name_file(where: Path | str) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        if f"'{where}'" in str(error):
            raise
        raise InputError(f"'{where}': {error}") from error


def check_matrix(name: str, matrix: Floats) -> None:
    """Raise an InputError if a matrix does not have two axes, or is empty."""
    if matrix.ndim != 2:
        raise InputError(
            f"{name} has {matrix.ndim} axes, not 2: write a list of rows, as in [[1, 0], [0, 1]]"
        )
    if matrix.size == 0:
        raise InputError(f"{name} is empty: its shape is {matrix.shape}")


def as_mask(values: Floats) -> NDArray[np.bool_]:
    """Ones and zeros as booleans; refuses other numbers, such as the −∞ that some libraries add."""
    if not np.isin(values, (0, 1)).all():
        raise InputError("mask holds other numbers than 1 (a query may look) and 0 (it may not)")
    return values.astype(np.bool_)


EXAMPLES = ("self", "cross", "naive")
WORDS = ("The", "Professor", "who", "supervised", "the", "student", "published", "the", "paper")
VECTORS = """
.92 .05 .03 .02 .01 .00   .04 .88 .10 .76 .05 .02   .02 .04 .05 .03 .01 .91
.03 .15 .87 .72 .06 .65   .90 .06 .02 .01 .01 .00   .05 .82 .12 .69 .04 .03
.02 .10 .91 .78 .07 .08   .91 .04 .03 .02 .01 .00   .03 .06 .04 .81 .89 .02
"""


def worked_example(name: str = "self") -> CalculationInputs:
    """Attention small enough to do on paper.

    "self" and "cross" have one head of size 2, with inputs and projections of 0 and 1; "naive" has
    no projections.
    """
    if name == "naive":
        vectors = np.array(VECTORS.split(), dtype=np.float64).reshape(9, 6)
        title = "worked example · naive"
        return CalculationInputs(title, vectors, query_tokens=WORDS, key_tokens=WORDS)
    inputs = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 1, 1]], dtype=np.float64)
    straight = np.array([[1, 0], [0, 1], [1, 0], [0, 1]], dtype=np.float64)
    w_key = straight if name == "cross" else straight[:, ::-1]
    return CalculationInputs(
        title="worked example" if name == "self" else f"worked example · {name}",
        query_input=inputs[:2] if name == "cross" else inputs,
        key_value_input=inputs,
        projections={"w_query": straight, "w_key": w_key, "w_value": straight},
    )


def seeded_sentence(
    sentence: str,
    size: int,
    seed: int,
    target: str | None = None,
    row: Mechanism | None = None,
    heads: int = 1,
) -> CalculationInputs:
    """The words of a sentence with the vectors and projections of an untrained layer.

    The numbers are those of `attnviz self --mechanism NAME` with the same size and seed, or of
    `attnviz cross` with a target, whose words are the queries.
    """
    row = MECHANISMS["scaled"] if row is None else row
    keys = word_tokens(sentence)
    queries = keys if target is None else word_tokens(target)
    embedding = SeededEmbedding(seed, size)
    size_of_head(size, heads)
    return CalculationInputs(
        title=f"untrained, size {size}, seed {seed}",
        query_input=embedding.embed(queries),
        key_value_input=None if target is None else embedding.embed(keys),
        projections={
            name: embedding.projection_for(row, name.removeprefix("w_"), heads)
            for name in PROJECTIONS
            if row.projected
        },
        query_tokens=tuple(token.text for token in queries),
        key_tokens=tuple(token.text for token in keys),
        origin=DRAWN,
        seed=seed,
    )


DRAWN = "seeded, untrained"
