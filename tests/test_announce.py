import pytest

from attnviz.core.notices import join_notices, kind_of, notices_to, notify


def test_what_is_announced_is_heard_until_an_error():
    heard: list[str] = []
    notify("before")
    with notices_to(heard.append):
        notify("during")
        with notices_to(None):
            notify("to nobody")
        notify("again")
    notify("after")
    assert heard == ["during", "again"]
    heard: list[str] = []
    with pytest.raises(ValueError, match="stop"), notices_to(heard.append):
        raise ValueError("stop")
    notify("after")
    assert not heard


def test_notices_that_differ_are_joined_to_ranges():
    texts = ["'a' and 'b' hold 9% of 1,204", "'a' and 'b' hold 35% of 1,204", "'c' hold 10% of 7"]
    assert len({kind_of(text) for text in texts}) == 1
    both = join_notices(texts[0], texts[1])
    assert (both, kind_of(both)) == ("'a' and 'b' hold 9–35% of 1,204", kind_of(texts[0]))
    assert join_notices(both, texts[2]) == "'…' hold 9–35% of 7–1,204"
    assert join_notices(texts[0], texts[0]) == texts[0]
