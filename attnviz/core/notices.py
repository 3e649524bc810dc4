"""Notices: what a user should know before the slow work that it is about.

Whoever does the work calls `notify`; whoever runs it and can show something listens. Without a
listener nothing is shown; the result's provenance holds it all the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[str], None]
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


def notify(text: str) -> None:
    """Send a notice now, before the result that it is about exists."""
    listener = _listener.get()
    if listener is not None:
        listener(text)


@contextmanager
def notices_to(listener: Listener | None) -> Iterator[None]:
    """Send the notices of the block to a listener; None: to nobody."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def kind_of(text: str) -> str:
    """A notice without its numbers and quoted names: such notices say the same."""
    return re.sub(r"\d[\d.,]*|'.*'", "", text)
