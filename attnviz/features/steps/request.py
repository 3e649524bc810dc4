"""A request for steps: of a sentence, of numbers in a file, or of one head of a model."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from attnviz.core import effects, notices
from attnviz.core.attention_map import Attention
from attnviz.core.errors import InputError, UsageError, choose
from attnviz.core.options import Choice, Options, Origin
from attnviz.core.records import dataclass, replace
from attnviz.core.registry import MECHANISMS, MechanismChoice, parse_mechanism
from attnviz.core.values import as_array
from attnviz.features.steps import given
from attnviz.features.steps.arithmetic import (
    Matrix,
    Stage,
    Steps,
    arithmetic,
    compare_results,
    operands_of,
)
from attnviz.mechanisms.formula import HeadArithmetic
from attnviz.models.own import check_mechanism
from attnviz.storage.matrices import TEXTS, Matrices, read_matrices, read_whole
from attnviz.storage.texts import check_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from attnviz.core.registry import Command
    from attnviz.renderers import Display
    from attnviz.renderers.reports import Data


def head_steps(attention: Attention, which: effects.HeadAt, calculation: HeadArithmetic) -> Steps:
    """A head's matrices by name; they are computed here and compared with the model's own pass."""
    item = next(item for item in attention.maps if item.stream == which.stream)
    queries, keys = (
        tuple(token.text for token in side) for side in (item.query_tokens, item.key_tokens)
    )
    names = {"q": queries, "k": keys}
    matrices: list[Matrix] = []
    for name, values, formula, axes in calculation.parts:
        stage: Stage = "scores" if axes == "qk" else "projected"
        if not formula:
            stage = "projections" if axes == "ff" else "inputs"
        elif name in ("head_output", "added"):
            stage = "output"
        rows, columns = (names.get(axis, ()) for axis in axes)
        operands = operands_of(formula, [matrix.name for matrix in matrices])
        matrices.append(
            Matrix(name, values, formula, operands, stage, rows, columns, (), "of the model", axes)
        )
    order = get_args(Stage)
    matrices.sort(key=lambda matrix: order.index(matrix.stage))
    results = {matrix.name: matrix.values for matrix in matrices}
    reference = {
        name: np.asarray(values, dtype=np.float64)
        for name, values in calculation.references.items()
    }
    _, differences = compare_results(reference, results)
    title = f"{attention.provenance.title} · {which.stream} · layer {which.layer} head {which.head}"
    notes = (*attention.provenance.notes, *calculation.notes)
    against = "the model's own pass"
    return Steps(title, tuple(matrices), queries, keys, notes, differences, against=against)


SIZE = 4  # features of a sentence's vectors: few enough for the eye; size=N gives more
_SUFFIX = re.compile(r"\.[A-Za-z]\w{0,10}$")


@dataclass(frozen=True, slots=True)
class StepsRequest:
    """The subject of the steps and their options; `attnviz.steps` explains each field."""

    file: str | Mapping[str, Any] | None = None  # also arrays by name
    target: str | None = None
    text: str | None = None
    example: str | None = None
    mechanism: str | None = None
    causal: bool = False
    mask: str | None = None
    padding: int = 0
    diagram: bool = False
    scatter: bool = False  # draw vectors in three dimensions, of one head

    @property
    def layer(self) -> MechanismChoice:
        """The mechanism with its options; without a name the usual one."""
        return MechanismChoice("") if self.mechanism is None else parse_mechanism(self.mechanism)

    def data(self, options: Options) -> Data:
        """Every step in numbers, in all forms."""
        several = (self.layer.heads or 1) > 1 or self.layer.name.startswith("co-")
        if self.scatter and (options.origin.model or several):
            other = "--model" if options.origin.model else f"--mechanism {self.mechanism}"
            raise UsageError(
                f"--picture draws the values of one head of a mechanism: it is not for {other}"
            )
        examples = self._of_model(options) if options.origin.model else self._of_mechanism(options)
        if len(examples) > 1 and (self.scatter or self.diagram):
            raise UsageError(
                f"{'--picture' if self.scatter else '--diagram'} shows one example: choose it by "
                f"--example, of {', '.join(examples)}"
            )
        answer = _data(examples, diagram=self.diagram)
        if self.diagram:  # which has no room for them
            for line in answer.notes:
                notices.notify(line)
        return answer

    def _of_model(self, options: Options) -> dict[str, Steps]:
        """One head of a model."""
        own = {"--mechanism": self.layer.name, "--mask": self.mask, "--padding": self.padding}
        causal = self.causal and options.origin.model != "pocket"
        own |= {"--example": self.example, "--causal": causal}
        for option, value in own.items():
            if value:
                raise UsageError(f"{option} is not for --model, which brings its own numbers")
        sentence = _sentence(self.file, self.text)
        if sentence is None:
            raise UsageError("--model needs a sentence: attnviz steps --model pocket SENTENCE")
        return {
            "": _head(
                sentence, self.target, replace(options.origin, causal=self.causal), options.choice
            )
        }

    def _of_mechanism(self, options: Options) -> dict[str, Steps]:
        """A mechanism over a sentence, two of them, or numbers; of several examples by name."""
        for name in ("layer", "head", "stream"):
            if getattr(options.choice, name) is not None:
                raise UsageError(f"--{name} chooses a head of a model: add --model ID_OR_FOLDER")
        examples = self._sentences() or self._numbers()
        mechanism, heads = self.layer.name or None, self.layer.heads or 1
        how: Any = {"mechanism": mechanism, "heads": heads, "causal": self.causal}
        return {name: arithmetic(self._with_mask(setup), **how) for name, setup in examples.items()}

    def _sentences(self) -> dict[str, given.CalculationInputs]:
        """One or two sentences with random vectors; empty if none was given."""
        sentence, target = _sentence(self.file, self.text), self.target
        if sentence is None:
            if target is not None:
                raise UsageError("TARGET is a second sentence: give the first one too")
            if self.layer.size is not None:
                raise UsageError(
                    f"size={self.layer.size} is for a sentence: a file has its own numbers"
                )
            return {}
        if self.example is not None:
            also = "a sentence" if self.text is None else "--text"
            raise UsageError(
                f"--example names a worked example, or one of a file: leave {also} out"
            )
        row = MECHANISMS[self.layer.name or "scaled"]
        both = row.mutual
        if self.layer.name and target is not None and not both:
            check_mechanism(self.layer.name, "cross")
        target = None if target is None else check_text(target, "target")
        if both and target is not None:  # the first text is the first sequence
            sentence, target = target, sentence
        size, seed = self.layer.size or SIZE, self.layer.seed or 0
        return {"": given.seeded_sentence(sentence, size, seed, target, row, self.layer.heads or 1)}

    def _numbers(self) -> dict[str, given.CalculationInputs]:
        """A built-in example, or what a file holds, by name."""
        file, example = self.file, self.example
        if isinstance(file, Mapping):
            if example is not None:
                raise UsageError("example= is one of a file: leave it out beside arrays")
            arrays = {name: one if name in TEXTS else as_array(one) for name, one in file.items()}
            setup = given.CalculationInputs.from_matrices(
                Matrices(arrays, Path("arrays")), "arrays"
            )
            return {"": setup}
        if file is None:
            return {"": given.worked_example(choose(example or "self", given.EXAMPLES, "example"))}
        if file != "-" and not _exists(file):
            raise InputError(f"there is no file '{file}'; to attend over a sentence, use --text")
        if file != "-" and Path(file).is_dir():
            raise InputError(f"'{file}' is a folder, not a file of matrices")
        data = read_whole(sys.stdin.buffer, "stdin") if file == "-" else None
        path = Path("stdin" if file == "-" else file)
        examples = given.CalculationInputs.examples(path, data)
        if example is None:
            return examples or {"": given.CalculationInputs.from_file(path, data)}
        if not examples:
            raise UsageError(f"'{path}' holds one calculation without a name: leave --example out")
        return {example: examples[choose(example, examples, "example")]}

    def _with_mask(self, setup: given.CalculationInputs) -> given.CalculationInputs:
        shape = tuple(len(setup.inputs[name]) for name in setup.names)
        if self.padding >= shape[1]:
            raise UsageError(f"--padding {self.padding} leaves none of the {shape[1]} keys")
        if self.mask is not None:
            setup = replace(setup, mask=_mask(self.mask, shape))
        return replace(setup, padding=self.padding, seed=self.layer.seed or setup.seed)


def _mask(spelt: str, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """A mask written out, or that of a file; one row is for all queries."""
    if _exists(spelt) or _SUFFIX.search(spelt):
        matrices = read_matrices(Path(spelt))
        if "mask" not in matrices:
            raise InputError(f"'{spelt}' holds no matrix 'mask'")
        mask = given.as_mask(matrices["mask"])
    else:
        rows = [row.replace(" ", "") for row in re.split("[,;\n]", spelt)]
        if len({*map(len, rows)}) != 1 or not re.fullmatch("[01]+", "".join(rows)):
            raise UsageError(f"--mask '{spelt}' is no mask: write 1 and 0, as in '1 0 1, 1 1 1'")
        mask = np.array([[*row] for row in rows]) == "1"
    return np.broadcast_to(mask, shape) if mask.shape == (1, shape[1]) else mask


def _head(sentence: str, target: str | None, origin: Origin, choice: Choice) -> Steps:
    """One head of a model over a sentence, or a pair; of many the one that is seen first."""
    from attnviz.analyses.select import check_selection, select
    from attnviz.core.query import Query
    from attnviz.models import attend_query
    from attnviz.models.open import open_source

    check_selection(choice.layer, choice.head)
    command: Command = "self" if target is None else "cross"
    source = open_source(origin, command)
    query = Query(sentence, target, command)
    attention = select(attend_query(source, query), choice.stream, choice.layer, choice.head)
    item = attention.main
    focus = attention.focus.get(item.stream)
    layer, head = (item.layers[-1], item.heads[0]) if focus is None else (focus.layer, focus.head)
    names = {"layer": (choice.layer, item.layers, layer), "head": (choice.head, item.heads, head)}
    for what, (selection, places, _) in names.items():
        if selection is not None and len(places) > 1:
            raise UsageError(f"--{what} {selection}: steps shows one {what}, not {len(places)}")
    layer, head = (places[0] if len(places) == 1 else usual for _, places, usual in names.values())
    which = effects.HeadAt(item.stream, layer, int(head))
    return head_steps(attention, which, source.head_arithmetic(query, which))


def _sentence(file: str | Mapping[str, Any] | None, text: str | None) -> str | None:
    """The sentence of the request; None if it names a file or nothing, or holds arrays."""
    if text is not None and file is not None:
        raise UsageError("give either --text or an argument, not both")
    if isinstance(file, Mapping):
        return None
    if text is None:
        if file is None or file == "-" or (file and (_exists(file) or _SUFFIX.search(file))):
            return None
        if file.strip() and not any(map(str.isspace, file.strip())):
            return None
    return check_text(text or file or "", "sentence")


def _exists(name: str) -> bool:
    """Whether a file exists; False for a text longer than a file name can be."""
    return os.path.exists(name)  # noqa: PTH110 - never fails


def _data(examples: Mapping[str, Steps], *, diagram: bool) -> Data:
    """One calculation, or several examples by name."""
    from attnviz.features.steps import show
    from attnviz.renderers.data import npz_bytes
    from attnviz.renderers.reports import Data
    from attnviz.storage.documents import dump_json, to_report

    (first, *more), names = examples.values(), [*examples]

    def archive() -> bytes:
        if not more:
            return npz_bytes(**first.arrays())
        parts = {f"{n}.{m}": v for n, one in examples.items() for m, v in one.arrays().items()}
        return npz_bytes(**parts)

    def document() -> str:
        whole = to_report("examples", examples={name: one.data() for name, one in examples.items()})
        return dump_json(whole if more else first.data()) + "\n"

    def table(display: Display) -> str:
        if diagram:
            return show.mermaid(first)
        return show.examples_listing(examples, display) if more else show.table(first, display)

    def figure() -> Figure:
        from attnviz.features.steps.scatter import scatter

        return scatter(first)

    return Data(
        text=table,
        document=document,
        arrays=archive,
        page=lambda command: show.steps_page([*examples.values()], command),
        figures={"scatter": figure},
        about=first.title if not more else ", ".join(names),
        value=first if not more else dict(examples),
        notes=[
            line for one in examples.values() for line in (*one.notes, *show.agreement_lines(one))
        ],
    )
