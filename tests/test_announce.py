from __future__ import annotations

import pytest

from attnviz.core.notices import notices_to, notify


def test_what_is_announced_is_heard_while_somebody_listens() -> None:
    heard: list[str] = []
    notify("before")
    with notices_to(heard.append):
        notify("during")
        with notices_to(None):
            notify("to nobody")
        notify("again")
    notify("after")
    assert heard == ["during", "again"]


def test_an_error_ends_the_listening() -> None:
    heard: list[str] = []
    with pytest.raises(ValueError, match="stop"), notices_to(heard.append):
        raise ValueError("stop")
    notify("after")
    assert not heard
