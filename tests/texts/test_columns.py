"""What --columns may say."""

import pytest

from attnviz.core.errors import UsageError
from attnviz.storage.texts.formats import parse_columns


def test_each_role_gets_its_column():
    assert parse_columns("text=sentence, id = my key", pairs=False) == {
        "text": "sentence",
        "id": "my key",
    }
    assert parse_columns("source=1,target=10", pairs=True) == {"source": "1", "target": "10"}
    assert parse_columns("text=a,target=b", pairs=True) == {"source": "a", "target": "b"}
    assert parse_columns("id=key", pairs=False) == {"id": "key"}


@pytest.mark.parametrize(
    ("asked", "pairs", "message"),
    [
        ("", False, "--columns '' is not like text=NAME,id=NAME"),
        ("sentence", True, "--columns 'sentence' is not like source=NAME,id=NAME"),
        ("text=", False, "--columns 'text=' is not like text=NAME,id=NAME"),
        ("txt=a", False, "unknown role in --columns 'txt': choose from text, id, labels."),
        ("txt=a", True, "unknown role in --columns 'txt': choose from source, target, id,"),
        ("text=a,source=b", True, "--columns names a column for 'source' twice: give one"),
        ("text=a,text=b", False, "--columns names a column for 'text' twice: give one"),
        ("text=a,id=2", False, "--columns mixes names and numbers"),
        ("id=2", False, "--columns gives no number for 'text': add text=NUMBER"),
        ("text=0", False, "--columns counts columns from 1: there is no column 0"),
    ],
)
def test_what_it_may_not_say_is_named(asked, pairs, message):
    with pytest.raises(UsageError) as raised:
        parse_columns(asked, pairs=pairs)
    assert str(raised.value).startswith(message)
