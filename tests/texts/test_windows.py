"""Records come in windows, and every text gets its own result in order."""

from hypothesis import given
from hypothesis import strategies as st

from attnviz.storage.texts import CHUNK_SIZE, BadText, Text, batches, chunks, chunks_by_memory

LENGTHS = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), max_size=60)


def texts(count):
    return [Text(str(number), "a word") for number in range(count)]


def test_windows_are_full_but_for_the_last():
    found = [len(window) for window in chunks(texts(2 * CHUNK_SIZE + 88))]
    assert (found, list(chunks([]))) == ([CHUNK_SIZE, CHUNK_SIZE, 88], [])
    long = [Text(str(number), "x" * 2048) for number in range(20)]
    assert [len(window) for window in chunks(long)] == [8, 8, 4]
    mixed = [*texts(3), BadText("line 4", None), *texts(2)]
    assert [len(window) for window in chunks(mixed, size=4)] == [4, 2]
    waiting = iter([True, True, False, True, False, False])
    found = chunks(texts(6), ready=lambda: next(waiting))
    assert [len(window) for window in found] == [3, 2, 1]


@given(LENGTHS, st.integers(20, 300), st.none() | st.integers(1, 9), st.booleans())
def test_each_record_is_in_one_batch(lengths, tokens, most, even):
    plan = list(
        batches(range(len(lengths)), lengths.__getitem__, tokens=tokens, most=most, even=even)
    )
    assert sorted(number for batch in plan for number in batch) == list(range(len(lengths)))
    for batch in plan:
        own = [lengths[number] for number in batch]
        widest = sum(max(column) for column in zip(*own, strict=True))
        assert len(batch) == 1 or len(batch) * widest <= tokens
        assert most is None or len(batch) <= most
        assert not even or len(set(own)) == 1


def test_records_of_similar_length_come_together():
    lengths = [(9,), (2,), (8,), (3,)]
    plan = batches(range(4), lengths.__getitem__, tokens=18, most=None, even=False)
    assert list(plan) == [[1, 3], [2, 0]]


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 100))
def test_stretches_are_consecutive_and_fit(sizes, room):
    plan = list(chunks_by_memory(sizes, room))
    assert [number for stretch in plan for number in stretch] == list(range(len(sizes)))
    for stretch in plan:
        assert sum(sizes[number] for number in stretch) <= room or len(stretch) == 1
