"""The package's frozen dataclasses against those of the standard library."""

import copy
import dataclasses
import inspect
import pickle
from dataclasses import field, fields, replace
from typing import Any, ClassVar

import pytest

from attnviz.core import records
from tests.test_imports import PACKAGE, modules_of, written_in


def classes(dataclass: Any) -> dict[str, type]:
    """The same classes by either decorator."""

    @dataclass(frozen=True, slots=True)
    class Plain:
        """Of all kinds of fields."""

        first: int
        second: "Any | None" = None
        many: list[int] = field(default_factory=list)
        hidden: int = field(default=3, repr=False, compare=False)
        made: list[str] = field(init=False, default_factory=list, hash=False)
        fixed: float = field(init=False, default=0.5)
        late: int = field(kw_only=True, default=7)
        shared: ClassVar[int] = 1

    @dataclass(frozen=True, slots=True)
    class Below(Plain):
        """Further fields, and what is done once all are there."""

        own: int = 0

        def __post_init__(self) -> None:
            object.__setattr__(self, "own", self.own + 1)

    @dataclass(frozen=True, slots=True, eq=False, kw_only=True)
    class ByIdentity:
        """Equal to itself alone."""

        first: int

    @dataclass(frozen=True)
    class WithDict:
        """Without slots, by one field."""

        first: float

    @dataclass(frozen=True)
    class Written:
        """With methods of its own."""

        first: int

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 5

    @dataclass(frozen=True, slots=True)
    class Empty:
        """Without a field."""

    class Undecorated(WithDict):
        """A plain class below."""

    @dataclass(slots=True)
    class Open:
        """Not frozen."""

        first: int = 2

    found = [Plain, Below, ByIdentity, WithDict, Written, Empty, Undecorated, Open]
    return {one.__name__: one for one in found}


OURS, THEIRS = classes(records.dataclass), classes(dataclasses.dataclass)
globals().update({f"Ours{name}": kind for name, kind in OURS.items()})  # where pickle looks
for _name, _kind in OURS.items():
    _kind.__qualname__ = f"Ours{_name}"
NAN = float("nan")
CALLS: dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "Plain": [((1,), {}), ((1, "b", [2]), {"hidden": 4, "late": 9}), ((), {}), ((1,), {"no": 1})],
    "Below": [((1,), {}), ((1, "b", [2], 5, 6), {"late": 1}), ((1, 2, 3, 4, 5, 6), {})],
    "ByIdentity": [((), {"first": 2}), ((2,), {})],
    "WithDict": [((1.5,), {}), ((NAN,), {}), (([1],), {})],
    "Written": [((1,), {}), ((2,), {})],
    "Empty": [((), {}), ((1,), {})],
    "Undecorated": [((1.5,), {})],
    "Open": [((), {}), ((4,), {})],
}


def outcome(work: Any) -> Any:
    """What comes of it, errors too, in the words of either class."""
    try:
        found = work()
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    words = repr(found) if not isinstance(found, str) else found
    return words.replace("Ours", "").replace("classes.<locals>.", "")


@pytest.mark.parametrize("name", OURS)
def test_a_class_is_what_the_standard_library_makes_of_it(name):
    ours, theirs = OURS[name], THEIRS[name]
    heads = [
        outcome(lambda kind=kind, by=by: inspect.signature(kind, eval_str=by))
        for by in (False, True)
        for kind in (ours, theirs)
    ]
    assert (heads[0], heads[2]) == (heads[1], heads[3])
    assert ours.__doc__ == theirs.__doc__
    assert getattr(ours, "__slots__", None) == getattr(theirs, "__slots__", None)
    assert ours.__match_args__ == theirs.__match_args__
    assert [(f.name, f.type) for f in fields(ours)] == [(f.name, f.type) for f in fields(theirs)]
    same = [
        [outcome(lambda kind=kind, p=p, k=k: kind(*p, **k)) for p, k in CALLS[name]]
        for kind in (ours, theirs)
    ]
    assert same[0] == same[1]


def about(one: Any, other: Any) -> Any:
    """What is seen of two objects of a class."""

    def set_to(name: str) -> Any:
        return lambda: setattr(copy.copy(one), name, 8)

    def delete(name: str) -> Any:
        return lambda: delattr(copy.copy(one), name)

    yield repr(one)
    yield one == copy.copy(one), one == one, one == other, one != 3
    yield outcome(lambda: hash(one) == hash(copy.copy(one)))
    # Of classes with slots the standard library of 3.11 fails at a name that is no field.
    names = {"first", "late", "unknown"}
    for name in sorted(names & set(one.__match_args__) if hasattr(one, "__slots__") else names):
        yield outcome(set_to(name)), outcome(delete(name))
    for name in ("first", "made"):
        yield outcome(lambda name=name: replace(one, **{name: 6}))
    yield outcome(lambda: dataclasses.asdict(one)), outcome(lambda: copy.deepcopy(one))


@pytest.mark.parametrize("name", OURS)
def test_objects_behave_as_those_of_the_standard_library(name):
    (first, first_names), (last, last_names) = CALLS[name][0], CALLS[name][-1]
    seen = []
    for kind in (OURS[name], THEIRS[name]):
        one = kind(*first, **first_names)
        try:
            other = kind(*last, **last_names)
        except TypeError:
            other = one
        seen.append([outcome(lambda found=found: found) for found in about(one, other)])
    assert seen[0] == seen[1]


def test_a_class_below_by_either_decorator_is_frozen_too():
    for dataclass in (records.dataclass, dataclasses.dataclass):
        kind = dataclass(frozen=True)(type("Low", (OURS["Plain"],), {"__annotations__": {}}))
        assert kind(3).first == 3
        with pytest.raises(dataclasses.FrozenInstanceError):
            kind(3).first = 4
        with pytest.raises(TypeError, match="cannot inherit non-frozen dataclass from a frozen"):
            dataclass(type("Low", (OURS["Plain"],), {"__annotations__": {}}))


@pytest.mark.parametrize("name", OURS)
def test_objects_pickle(name):
    positional, by_name = CALLS[name][0]
    one = OURS[name](*positional, **by_name)
    again = pickle.loads(pickle.dumps(one))
    assert type(again) is type(one)
    assert repr(again) == repr(one)
    assert (again == one) is (name != "ByIdentity")


@pytest.mark.parametrize(
    "act", [repr, hash, lambda one: one == one, lambda one: one in [copy.copy(one)]]
)
def test_what_comes_while_a_method_is_made_is_not_dropped(act, monkeypatch):
    """Python takes an error of looking up `__eq__` for a class that compares with nothing."""
    one = classes(records.dataclass)["WithDict"](1.5)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(records, "_make", interrupt)
        with pytest.raises(KeyboardInterrupt):
            act(one)
    assert act(one) == act(copy.copy(one))


def test_every_class_of_the_package_is_made_by_it():
    others = [
        name
        for name, path in modules_of(PACKAGE).items()
        for line in written_in(path).imports
        if getattr(line, "module", "") == "dataclasses"
        and "dataclass" in {alias.name for alias in line.names}
    ]
    assert others == ["attnviz.core.records"]  # for type checkers
