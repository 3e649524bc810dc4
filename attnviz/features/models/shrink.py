"""A small copy of any model, found by trial on torch's meta device, where building costs nothing.

No name of a family is in it. Depth goes to as many layers as there are kinds of layers, and lists
as long as the depth are cut with it; then vocabularies; then all sizes are halved together, so that
sizes that must be equal stay equal; then every occurrence of one size is divided, largest first;
then single sizes. An edit stays where the model still builds and has no more parameters than
before. What does not run in the end is made anew with fewer heads of their own width, and with a
run after each edit: some sizes must add up, which no model says before it reads something.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import torch

NO_SIZES = ("_id", "version", "seed", "theta", "position", "vocab", "scale", "eps", "label", "rate")  # fmt: skip  # noqa: E501
"""Parts of the names of whole numbers that are no sizes."""
LEFT_OUT = ("transformers_version", "quantization_config", "out_features", "out_indices", "stage_names")  # fmt: skip  # noqa: E501
"""What the copy has none of: it is not quantised, and has other stages."""
DEPTHS = ("layers", "depth", "n_layer", "num_blocks", "num_hidden")
LONGEST, WORDS = 512, 1024  # positions and vocabulary of a copy
WHOLE = 4  # sizes stay multiples of it, which fast kernels ask for
MOST = 50_000_000  # parameters of a copy that is built
LIGHT = 30_000_000  # parameters of a copy that is run after an edit
SECONDS = 8.0  # after which the smallest copy so far is taken

Place = tuple[str | int, ...]
"""The keys that lead to a number of a configuration."""


class SmallCopy:
    """A model's configuration, made smaller step by step.

    Args:
        build: makes the model of a configuration.
        config: the configuration to begin with; it is left as it is.
        run: runs a model on an example; it raises anything where that does not work.

    Attributes:
        parameters: how many numbers the copy's weights hold.
    """

    def __init__(
        self, build: Callable[[Any], Any], config: Any, run: Callable[[Any], object]
    ) -> None:
        self._build, self._type, self._run = build, type(config), run
        numbers = json.loads(json.dumps(config.to_dict(), default=str), object_hook=_without)
        self._numbers: dict[str, Any] = numbers
        self.parameters = self._count(numbers)
        self._first = numbers, self.parameters
        self._must_run = False

    @property
    def config(self) -> Any:
        """The copy's configuration."""
        return self._type.from_dict(deepcopy(self._numbers))

    def shrink(self, few: int) -> SmallCopy:
        """Make it smaller until its weights hold few numbers, as far as that goes.

        Raises:
            Exception: it does not run, and says why.
        """
        self._shrink_to(few)
        try:
            self._try(self._numbers)
        except Exception:
            self._numbers, self.parameters = self._first
            self._must_run = True
            self._shrink_to(few)
            self._try(self._numbers)
        return self

    def _shrink_to(self, few: int) -> None:
        until = time.thread_time() + SECONDS
        self._cut_depth()
        self._cut_vocabularies()
        while self.parameters > few and time.thread_time() < until:
            even = [*self._halves()]
            if not even or not self._take(*even):
                break
        for _ in range(3):
            for size in sorted({size for _, size in self._sizes(16)}, reverse=True):
                same = [place for place, other in self._sizes(16) if other == size]
                self._divide(same, few, until)
            for place, _ in [*self._sizes(32)]:
                self._divide([place], few, until)

    def _count(self, numbers: dict[str, Any]) -> int:
        with torch.device("meta"):
            model = self._build(self._type.from_dict(deepcopy(numbers)))
        return sum(one.numel() for one in model.parameters())

    def _try(self, numbers: dict[str, Any]) -> None:
        """Build it with weights, and run it."""
        if self.parameters > MOST:
            raise ValueError(f"the smallest copy of it has {self.parameters:,} numbers")
        with torch.random.fork_rng(), torch.no_grad():
            self._run(self._build(self._type.from_dict(deepcopy(numbers))))

    def _take(self, *edits: tuple[Place, Any]) -> bool:
        """Make these edits (None: leave it out); False where the model is not smaller by them."""
        numbers = deepcopy(self._numbers)
        try:
            for place, value in edits:
                room = _at(numbers, place[:-1])
                if value is None:
                    del room[place[-1]]
                else:
                    room[place[-1]] = value
            parameters = self._count(numbers)
            if self._must_run and parameters <= LIGHT:
                self._try(numbers)
        except Exception:
            return False
        if parameters > self.parameters:
            return False
        self._numbers, self.parameters = numbers, parameters
        return True

    def _divide(self, places: list[Place], few: int, until: float) -> None:
        """Divide numbers that are equal."""
        if self.parameters <= few or time.thread_time() > until:
            return
        size = _at(self._numbers, places[0])
        for by in (8, 4, 2):
            whole = size % (by * WHOLE) == 0
            if whole and self._take(*((place, size // by) for place in places)):
                return

    def _sizes(self, least: int) -> Iterator[tuple[Place, int]]:
        for place, number in _whole_numbers(self._numbers):
            if number >= least and not any(part in _name(place) for part in NO_SIZES):
                yield place, number

    def _halves(self) -> Iterator[tuple[Place, int]]:
        """Half of every size; of numbers of heads instead of sizes of a head where it must run."""
        for place, size in self._sizes(2):
            name = _name(place)
            of_one = any(part in name for part in ("dim", "size", "d_head"))
            counts = "head" in name and not of_one and self._must_run
            own = "head" in name and of_one and self._must_run
            if size % 2 == 0 if counts else size >= 32 and size % (2 * WHOLE) == 0 and not own:
                yield place, size // 2

    def _cut_depth(self) -> None:
        """A layer of each kind, at least two."""
        for place, depth in [*_whole_numbers(self._numbers)]:
            if depth <= 2 or not any(word in _name(place) for word in DEPTHS):
                continue
            room = _at(self._numbers, place[:-1])
            lists = {
                (*place[:-1], key): value
                for key, value in (room.items() if isinstance(room, dict) else ())
                if isinstance(value, list) and len(value) == depth
            }
            # A list in which nothing stands twice numbers the layers, and names no kinds of them.
            by_kind = [value for value in lists.values() if len({*map(str, value)}) < depth]
            kinds = [str(kind) for kind in zip(*by_kind, strict=True)] or [""] * depth
            first = {kinds.index(kind) for kind in kinds}
            layers = sorted(first if len(first) > 1 else {0, 1})
            cut = {where: [value[layer] for layer in layers] for where, value in lists.items()}
            if not self._take((place, len(layers)), *cut.items()):
                self._take((place, len(layers)), *dict.fromkeys(lists).items())

    def _cut_vocabularies(self) -> None:
        """Fewer words and positions; the numbers of special tokens go with them."""
        for place, number in [*_whole_numbers(self._numbers)]:
            if "vocab" in _name(place) and number > WORDS:
                ids = [
                    (other, one % (WORDS - 24))
                    for other, one in _whole_numbers(self._numbers)
                    if "token_id" in _name(other) and one >= WORDS
                ]
                self._take((place, WORDS), *ids)
            elif "max_position" in _name(place) and number > LONGEST:
                self._take((place, LONGEST))


def _without(numbers: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in numbers.items() if name not in LEFT_OUT}


def _at(numbers: Any, place: Place) -> Any:
    for key in place:
        numbers = numbers[key]
    return numbers


def _whole_numbers(numbers: Any, place: Place = ()) -> Iterator[tuple[Place, int]]:
    if isinstance(numbers, dict | list):
        for key, value in numbers.items() if isinstance(numbers, dict) else enumerate(numbers):
            yield from _whole_numbers(value, (*place, key))
    elif isinstance(numbers, int) and not isinstance(numbers, bool):
        yield place, numbers


def _name(place: Place) -> str:
    """The name that a number stands under, also where it is in a list."""
    return next((key for key in reversed(place) if isinstance(key, str)), "")
