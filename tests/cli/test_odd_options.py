import pytest

from tests.invoke import attnviz


@pytest.mark.parametrize(
    "given",
    [
        ("self", "a b", "--mechanism", "scaled:size={}"),
        ("co", "a", "b", "--mechanism", "co-parallel:size={}"),
        ("lesson", "linear", "--size", "{}"),
        ("lesson", "masking", "--length", "{}"),
        ("steps", "a b", "--mechanism", "scaled:size={}"),
        ("corpus", "a.txt", "--top", "{}"),
        ("self", "-", "--workers", "{}"),
    ],
)
@pytest.mark.parametrize("number", [10**9 + 1, 2**63 - 1, 10**30])
def test_a_number_larger_than_anything_is_refused(given, number):
    done = attnviz(*(word.format(number) for word in given))
    assert done.status == 2
    assert given[-2] in done.mistake
    assert str(number) in done.mistake
