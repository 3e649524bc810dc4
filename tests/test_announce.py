from __future__ import annotations

import pytest

from attnviz.core.notices import announce, heard_by


def test_what_is_announced_is_heard_while_somebody_listens() -> None:
    heard: list[str] = []
    announce("before")
    with heard_by(heard.append):
        announce("during")
        with heard_by(None):
            announce("to nobody")
        announce("again")
    announce("after")
    assert heard == ["during", "again"]


def test_an_error_ends_the_listening() -> None:
    heard: list[str] = []
    with pytest.raises(ValueError, match="stop"), heard_by(heard.append):
        raise ValueError("stop")
    announce("after")
    assert not heard
