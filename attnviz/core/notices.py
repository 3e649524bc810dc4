"""Notices: what a user should know before the slow work that it is about; and pauses in it.

Whoever does the work calls `notify`; whoever runs it and can show something listens. Without a
listener nothing is shown; the result's provenance holds it all the same.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

Listener = Callable[[str], None]
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


def notify(text: str) -> None:
    """Send a notice now, before the result that it is about exists."""
    listener = _listener.get()
    if listener is not None:
        listener(text)


@contextmanager
def _set_during(variable: ContextVar[Any], value: object) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def notices_to(listener: Listener | None) -> AbstractContextManager[None]:
    """Send the notices of the block to a listener; None: to nobody."""
    return _set_during(_listener, listener)


_detail: ContextVar[Listener | None] = ContextVar("detail", default=None)


def explain(text: str) -> None:
    """Send a detail that only --verbose shows."""
    listener = _detail.get()
    if listener is not None:
        listener(text)


def details_to(listener: Listener | None) -> AbstractContextManager[None]:
    """Send the details of the block to a listener; None: to nobody."""
    return _set_during(_detail, listener)


_pause: ContextVar[Callable[[], None] | None] = ContextVar("pause", default=None)


def pause(*_: object) -> None:
    """Marks a step of long work: a listener may raise here to stop it."""
    ask = _pause.get()
    if ask is not None:
        ask()


def ask_at_pauses(ask: Callable[[], None]) -> AbstractContextManager[None]:
    """Call a function at every pause of the block; it may raise to stop the work."""
    return _set_during(_pause, ask)


@contextmanager
def pauses_between_modules() -> Iterator[None]:
    """Pause before each module of torch, as models do that numpy runs."""
    if "torch" not in sys.modules:
        yield
        return
    from torch.nn.modules.module import register_module_forward_pre_hook

    hook = register_module_forward_pre_hook(pause)
    try:
        yield
    finally:
        hook.remove()


_NUMBER = r"\d+(?:[.,]\d+)*"
_TOLD = re.compile(rf"{_NUMBER}(?:–{_NUMBER})?|'.*'")


def kind_of(text: str) -> str:
    """A notice without numbers and quoted names; notices of one kind are merged."""
    return _TOLD.sub("", text)


def join_notices(text: str, other: str) -> str:
    """Two notices of one kind as one: numbers as ranges ("31–40%"), other names as '…'."""
    others = iter(_TOLD.findall(other))
    return _TOLD.sub(lambda match: _range(match[0], next(others, match[0])), text)


def hold(notices: dict[str, str], text: str) -> None:
    """Add a notice to those of several texts; notices of one kind become one."""
    kind = kind_of(text)
    notices[kind] = join_notices(notices.get(kind, text), text)


def merge_notices(texts: Iterable[str]) -> tuple[str, ...]:
    """The notices of several texts, one of each kind."""
    notices: dict[str, str] = {}
    for text in texts:
        hold(notices, text)
    return tuple(notices.values())


def _range(one: str, other: str) -> str:
    if one == other or "'" in one + other:
        return one if one == other else "'…'"
    ends = sorted((*one.split("–"), *other.split("–")), key=lambda n: float(n.replace(",", "")))
    return f"{ends[0]}–{ends[-1]}"
