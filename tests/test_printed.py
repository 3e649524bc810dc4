"""The comparison of documents with what is printed can fail."""

from tests.printed import alike, matches


def test_last_digits_may_differ():
    assert alike("a +0.74  ██\n", "a +0.75  ██▎\n")
    assert alike("a  −0.00\n", "a +0.01")
    assert not alike("a +0.74", "a +0.76")
    assert not alike("a +0.74", "b +0.74")
    assert not alike("a +0.74", "a +0.7")
    assert not alike("a 1 b 2", "a 1 b 4")
    assert not alike("a 1", "a 1 2")
    assert alike("weights 0.1234567", "weights 0.123457")
    assert not alike("weights 0.1234567", "weights 0.1234")
    assert not alike("weights 0.1234567", "weights 0.1235567")


def test_a_wildcard_stands_for_any_lines():
    assert matches("a\n…\nc", "a\nb\nb\nc")
    assert matches("a\nc", "a\nc\n")
    assert matches("…\nc 0.50", "a\nb\nc 0.51")
    assert matches("a\n…", "a\nb")
    assert not matches("a\n…\nc", "a\nb\nd")
    assert not matches("a", "a\nb")
    assert not matches("a\n…\nc 0.50", "a\nb\nc 0.53")
