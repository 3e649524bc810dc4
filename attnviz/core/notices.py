"""What must be said before the work that it is about: how much of it there is, what is left out.

Whoever works announces; whoever runs it and has a place to say things listens. Nobody listening,
nothing is said, and the result's provenance holds it all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[str], None]
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


def notify(text: str) -> None:
    """Say something now, before the result that it is about is there."""
    listener = _listener.get()
    if listener is not None:
        listener(text)


@contextmanager
def notices_to(listener: Listener | None) -> Iterator[None]:
    """Hand what is announced meanwhile to a listener; None: to nobody."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
