"""Dataclasses whose methods are made when they are first needed.

The standard library compiles six methods for each frozen class, and a run uses one or two of them.
This took a fifth of the time of a short run. Type checkers see the standard library's decorator.
"""

import dataclasses
import sys
from dataclasses import MISSING
from dataclasses import asdict as asdict
from dataclasses import field as field
from dataclasses import fields as fields
from dataclasses import replace as replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(kind: Any = None, *, eq: bool = True, **more: bool) -> Any:
        """Make a dataclass."""
        if kind is None:
            return lambda kind: dataclass(kind, eq=eq, **more)
        if not more.pop("frozen", False):
            return dataclasses.dataclass(kind, eq=eq, **more)
        below = any(map(dataclasses.is_dataclass, kind.__bases__))
        kind = dataclasses.dataclass(kind, init=False, repr=False, eq=False, frozen=below, **more)
        kind.__dataclass_params__.frozen = True  # for classes below, by either decorator
        late = ["__init__", "__repr__", *["__eq__", "__hash__"] * eq]
        late += ["__getstate__", "__setstate__"] * ("__slots__" in vars(kind))
        for name in late:
            if vars(kind).get(name) is None:
                wait = _on_call if name in ("__repr__", "__eq__", "__hash__") else _Method
                setattr(kind, name, wait(kind, name))
        for name, what in (("__setattr__", "assign to"), ("__delattr__", "delete")):
            setattr(kind, name, _refuse(kind, name, what))
        return kind


class _Method:
    """A method that puts the made one in its own place."""

    def __init__(self, kind: Any, name: str) -> None:
        self.kind, self.name = kind, name

    def __get__(self, one: object, owner: type | None = None) -> Any:
        method = (_make_init if self.name == "__init__" else _make)(self.kind, self.name)
        setattr(self.kind, self.name, method)
        return method.__get__(one, owner)


def _on_call(kind: Any, name: str) -> Any:
    """A method that is made at its first call: Python drops Ctrl-C and errors of a look-up."""

    def call(self: Any, *other: Any) -> Any:
        return _Method(kind, name).__get__(self)(*other)

    return call


def _make(kind: Any, name: str) -> Any:
    """The method of the standard library, of a class with the same fields."""
    items: dict[str, Any] = {item.name: item for item in fields(kind)}
    items["__annotations__"] = {item.name: item.type for item in fields(kind)}
    items |= {fact: getattr(kind, fact) for fact in ("__doc__", "__module__", "__qualname__")}
    model = type(kind.__name__, (), items)
    return vars(dataclasses.dataclass(model, frozen=True, slots=True))[name]


class _Factory:
    def __repr__(self) -> str:
        return "<factory>"  # as a signature shows it


def _make_init(kind: Any, name: str) -> Any:
    """The same as the standard library makes, at a fifth of the time."""
    names: dict[str, Any] = {"put_": object.__setattr__, "FACTORY_": _Factory()}
    heads: tuple[list[str], list[str]] = ["self"], ["*"]
    lines = []
    for item in fields(kind):
        own, usual = item.name, f"{item.name}_default"
        is_made = item.default_factory is not MISSING
        names[usual] = item.default_factory if is_made else item.default
        value = f"{usual}()" if is_made else usual
        if item.init:
            start = f"={'FACTORY_' if is_made else usual}" * (names[usual] is not MISSING)
            heads[bool(item.kw_only)].append(own + start)
            value = f"{value} if {own} is FACTORY_ else {own}" if is_made else own
        if value != usual or (names[usual] is not MISSING and "__slots__" in vars(kind)):
            lines.append(f"put_(self, {own!r}, {value})")
    if hasattr(kind, "__post_init__"):
        lines.append("self.__post_init__()")
    head = ", ".join(heads[0] + heads[1] * (len(heads[1]) > 1))
    code = "\n  ".join([f"def make({', '.join(names)}):\n def {name}({head}):", *lines, "pass"])
    here: dict[str, Any] = {}
    exec(f"{code}\n return {name}", vars(sys.modules[kind.__module__]), here)
    method = here["make"](**names)
    method.__qualname__ = f"{kind.__qualname__}.{name}"
    method.__annotations__ = {i.name: i.type for i in fields(kind) if i.init} | {"return": None}
    return method


def _refuse(kind: Any, method: str, what: str) -> Any:
    """What keeps fields as they are, and lets a class below have attributes of its own."""

    def refuse(self: Any, name: str, *value: Any) -> None:
        if type(self) is kind or name in kind.__dataclass_fields__:
            raise dataclasses.FrozenInstanceError(f"cannot {what} field {name!r}")
        getattr(super(kind, self), method)(name, *value)

    return refuse
