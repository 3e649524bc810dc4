"""attnviz heads over a corpus."""

import io
import json
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnviz import heads
from attnviz.core.attention_map import Attention
from attnviz.core.errors import InputError, UsageError
from attnviz.core.options import Choice, Origin
from attnviz.core.query import Query
from attnviz.features.corpus import study as corpus
from attnviz.features.corpus.accumulators import Aggregates
from attnviz.features.corpus.study import (
    CorpusJournal,
    CorpusState,
    Shard,
    ShardResult,
    ShardTask,
    read_frequencies,
    read_twice,
    shards,
)
from attnviz.features.corpus.words import WordCounts, vocabulary_of
from attnviz.runs import many_texts
from attnviz.runs.inputs import TextInput
from attnviz.runs.journal import Journal, Progress
from attnviz.runs.many_texts import AttendChunk
from attnviz.storage.texts import BadText, Text
from attnviz.storage.writing import beside
from tests.features.corpus.samples import attention_of
from tests.invoke import attnviz

pytestmark = pytest.mark.usefixtures("coarse")

LINES = "the cat sat on the mat\nthe dog saw the cat\n\na dog and a cat, on a mat\n"
SMALL = ("--mechanism", "multi-head:heads=2,size=8")


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text(LINES)
    return path


@pytest.mark.parametrize("show", ["measures", "classes"])
def test_where_no_head_has_the_role_the_table_has_no_rows(show):
    asked = ("--role", "special-token", "--statistics", show, "--no-repeat")
    done = attnviz("heads", "the cat sat", "a dog ran", *SMALL, *asked)
    assert (done.status, "no head has the role 'special-token'" in done.err) == (0, True)
    assert "layer head" in done.text


@pytest.mark.parametrize("show", ["measures", "positions", "classes", "pairs", "links"])
def test_each_part_is_shown_on_request(texts, show):
    done = attnviz("heads", "--input", texts, *SMALL, "--statistics", show, "-f", "tsv")
    assert done.status == 0, done.err
    assert done.rows[0][:3] == ["stream", "layer", "head"]


def test_outputs_and_inputs_agree(texts, tmp_path):
    one, both = (
        attnviz(
            "heads", "--input", texts, *SMALL, "--statistics", "classes", "-f", "tsv", *how
        ).rows
        for how in (("--top", 1), ())
    )
    assert len(both) > len(one)
    assert both[: len(one)] == one
    assert {tuple(row[1:3]) for row in one[1:]} == {("0", "0")}
    from_file = attnviz("heads", "--input", texts, *SMALL, "-f", "json", "-q")
    from_stdin = attnviz("heads", "--input", "-", *SMALL, "-f", "json", "-q", stdin=LINES.encode())
    assert from_file.out == from_stdin.out
    for suffix, name in ((".txt", "table"), (".tsv", "tsv"), (".json", "json"), (".npz", "npz")):
        path = tmp_path / f"found{suffix}"
        done = attnviz("heads", "--input", texts, *SMALL, "-f", name, "-o", path)
        assert done.status == 0, done.err
        assert path.read_bytes() == done.out


def test_a_bad_line_is_told_by_number(tmp_path):
    path = tmp_path / "texts.jsonl"
    rejects = tmp_path / "rejects.jsonl"
    path.write_text('{"text": "the cat"}\n{"words": 1}\n{"text": "a dog"}\n')
    done = attnviz("heads", "--input", path, *SMALL, "--on-error", rejects)
    assert done.status == 1
    assert "words" in rejects.read_text()
    assert f"line 2 of '{path}'" in done.err
    assert "1 could not be read" in done.lines[1]
    path.write_text('{"text": "the cat"}\n{"words": 1}\n')
    done = attnviz(
        "heads", "--input", path, *SMALL, "--on-error", "stop", "-o", tmp_path / "found.json"
    )
    assert done.status == 1
    assert "line 2 of" in done.mistake
    assert not (tmp_path / "found.json").exists()


def test_what_is_said_of_texts_stands_in_the_report(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("the cat sat\n狗在房子里\n", encoding="utf-8")
    (note,) = attnviz("heads", "--input", path, "--layer", 0, "-f", "json").json()["notes"]
    assert "lies outside what the pocket model was trained for" in note
    for odd in ([], [3], 3):
        with pytest.raises(UsageError, match="is no file and no list of files"):
            heads(input=odd)


def test_pairs_are_read_across(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"source": "the cat", "target": "le chat"}\n' * 3)
    done = attnviz("heads", "--input", path, "--cross", "--mechanism", "cross", "-f", "tsv")
    assert done.status == 0, done.err
    assert {row[0] for row in done.rows[1:]} == {"cross"}


def test_frequencies_come_from_a_file_on_request(texts, tmp_path):
    counts = tmp_path / "counts.tsv"
    counts.write_text("zebra\t9\n" + "".join(f"word{number}\t5\n" for number in range(9)))
    how = ("--frequencies", counts, "--statistics", "classes", "-f", "tsv")
    done = attnviz("heads", "--input", texts, *SMALL, *how)
    even = {row[3]: float(row[5]) for row in done.rows[1:]}
    assert even["rank 1-10"] == 0
    assert even["rarer"] > 0.9
    counts.write_text("the\t5\ncat five\n")
    done = attnviz("heads", "--input", texts, *SMALL, "--frequencies", counts)
    assert "line 2 of" in done.mistake
    assert done.status == 1
    path = tmp_path / "counts.tsv"
    path.write_text("The\t2\ncat\t3\nthe\t2\n")
    assert list(read_frequencies(path).ranks) == ["the", "cat"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--statistics", "pair"), "Did you mean 'pairs'?"),
        (("--sort", "entropi"), "Did you mean 'entropy'?"),
        (("--picture", "found.gif"), "names no picture"),
        (("--mechanism", "nope"), "nope"),
    ],
)
def test_mistakes_are_found_before_the_work(texts, arguments, said):
    done = attnviz("heads", "--input", texts, *arguments)
    assert done.status == 2
    assert said in done.mistake


def study() -> ShardTask:
    counts = WordCounts()
    counts.add(LINES)
    origin = Origin(mechanism="multi-head:heads=2,size=8")
    return ShardTask(AttendChunk(origin, Choice(), "self"), counts.vocabulary())


def many(count: int) -> list[Text | BadText]:
    good = [
        Text(str(n), f"the cat {'sat ' * (n % 5)}on mat {n}", where=f"{n}") for n in range(count)
    ]
    return [BadText("", InputError("bad")) if n % 50 == 7 else t for n, t in enumerate(good)]


@pytest.mark.slow
def test_shards_say_what_failed_and_give_the_same_bytes():
    parts = list(shards(many(26), size=10))
    assert [number for number, _ in parts] == [0, 10, 20]
    found = []
    for sent in (lambda item: item, lambda item: pickle.loads(pickle.dumps(item))):
        aggregates = study().empty()
        for part in parts:
            aggregates.merge(sent(sent(study())(part)).aggregates)
        found.append({name: array.tobytes() for name, array in aggregates.to_arrays().items()})
    assert found[0] == found[1]
    (shard,) = shards(many(60))
    outcome = study()(shard)
    assert (len(shard[1]), outcome.aggregates.texts, outcome.aggregates.failures) == (60, 58, 2)
    assert [str(error) for _, error in outcome.failures] == ["bad", "bad"]


class Pooled:
    """A source whose second text comes in blocks."""

    def attend(
        self, queries: Sequence[Query], *, batch_size: int | None = None
    ) -> Iterator[Attention]:
        attention = attention_of(0)
        item = attention.main
        for query in queries:
            blocks = (2, 2) if query.text == "long" else (1, 1)
            yield replace(attention, maps=(item.with_weights(item.weights, blocks=blocks),))


def test_a_map_of_blocks_is_a_failure_of_its_text(monkeypatch):
    monkeypatch.setattr(many_texts, "open_source", lambda *_, **__: Pooled())
    many_texts.close_sources()
    texts = [Text(name, name, where=f"line {name}") for name in ("short", "long", "brief")]
    (shard,), task = shards(texts), study()
    outcome, state = task(shard), CorpusState(task.empty())
    state.add(shard[1], outcome, lambda record, _: f"{record.id}\n")
    assert (state.records, state.failures, state.rejects) == (3, 1, "long\n")
    assert outcome.aggregates.texts == 2
    ((record, error),) = outcome.failures
    assert record is texts[1]
    assert str(error).startswith("line long: this text's map shows blocks of 2 × 2 tokens")
    many_texts.close_sources()


def interrupt_after(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a run be stopped by Ctrl-C once so many shards are done, with a journal after each."""
    left = iter([True] * count)
    work = ShardTask.__call__

    def stopped(self: ShardTask, shard: Shard) -> ShardResult:
        if not next(left, False):
            raise KeyboardInterrupt
        return work(self, shard)

    monkeypatch.setattr(corpus, "SECONDS", 0.0)
    monkeypatch.setattr(ShardTask, "__call__", stopped)


@pytest.mark.slow
@pytest.mark.core
@pytest.mark.parametrize("stops", [1, 2])
def test_what_is_resumed_ends_with_the_same_bytes(tmp_path, monkeypatch, stops):
    monkeypatch.setattr(AttendChunk, "size", 10)
    path = tmp_path / "texts.jsonl"
    lines = [f'{{"text": "the cat {"sat " * (n % 3)}on mat {n}"}}' for n in range(30)]
    lines[5] = lines[24] = "{}"
    path.write_text("\n".join(lines))
    whole, file = tmp_path / "whole.json", tmp_path / "found.json"
    rejects = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    how = ("heads", "--input", path, *SMALL, "-f", "none")
    assert attnviz(*how, "-o", whole, "--on-error", rejects[0]).status == 1
    with monkeypatch.context() as patch:
        interrupt_after(stops, patch)
        stopped = attnviz(*how, "-o", file, "--on-error", rejects[1])
    assert (stopped.status, file.exists()) == (130, False)
    assert f"note: {10 * stops} records are done: continue with --resume" in stopped.err
    other = attnviz(*how, "-o", file, "--on-error", rejects[1], "--resume", "--special", "drop")
    assert other.status == 2
    assert "--special was 'keep' and is 'drop'" in other.err
    done = attnviz(*how, "-o", file, "--on-error", rejects[1], "--resume")
    assert done.status == 1
    assert f"note: resuming after {10 * stops} records" in done.err
    assert "line 6 of" not in done.err, "it was told by the run before"
    assert file.read_bytes() == whole.read_bytes()
    assert rejects[1].read_bytes() == rejects[0].read_bytes()
    assert {item.name for item in tmp_path.iterdir()} == {
        *("texts.jsonl", "whole.json", "found.json", "first.jsonl", "second.jsonl")
    }


def test_journals_of_others_and_damaged_ones_are_named(texts, tmp_path):
    (tmp_path / ".found.json.journal").write_bytes(b"PK no journal")
    for more in ((), ("--resume",)):
        done = attnviz("heads", "--input", texts, *SMALL, "-o", tmp_path / "found.json", *more)
        assert "is damaged: remove it" in done.mistake
    path = tmp_path / "found.json"
    Journal({"command": "self"}, Progress(3)).write(beside(path, "journal"))
    asked = ("heads", "--input", texts, *SMALL, "-f", "none", "-o", path)
    refused = attnviz(*asked, "--resume").mistake
    assert "different options: command was 'self' and is 'heads self'" in refused
    assert f"this run replaces an unfinished '{path}' of 3 records" in attnviz(*asked).err
    assert not beside(path, "journal").exists()


def test_a_journal_that_was_not_written_is_one_error(tmp_path):
    vocabulary = vocabulary_of([])
    task = ShardTask(AttendChunk(Origin(), Choice(), "self"), vocabulary)
    journal = CorpusJournal(tmp_path / "found.json", {"--layer": "1"})
    journal.saved_at = -1e9
    journal.save_state(CorpusState(Aggregates(vocabulary), 3, 1, "{}\n", {"a note": 2}))
    good, place = journal.place.read_bytes(), journal.place
    old = journal.read()
    assert old is not None
    found = journal.restore(old, task)
    assert (found.records, found.failures, found.notes) == (3, 1, {"a note": 2})
    with np.load(io.BytesIO(old.payload)) as archive:
        arrays = dict(archive)
    document = json.loads(str(arrays["notes"]))
    tried = 0

    def refuse(data: bytes | None = None, **members: Any) -> None:
        nonlocal tried
        tried += 1
        if data is None:
            file = io.BytesIO()
            np.savez(file, **members)
            Journal(old.options, old.progress, file.getvalue()).write(place)
        else:
            place.write_bytes(data)
        with pytest.raises(InputError, match=r"is damaged: remove it to start again$"):
            journal.restore(journal.read() or old, task)

    for name in document:
        for odd in (None, -1, 1 << 60, 2.5, "x", [3], {"a": -1}, {"a": {}}):
            if (name, odd) != ("rejects", "x"):
                refuse(**{**arrays, "notes": np.array(json.dumps({**document, name: odd}))})
    for text in ("", "[]", "null", "{}", json.dumps({**document, "more": 1})):
        refuse(**{**arrays, "notes": np.array(text)})
    for name in arrays:
        refuse(**{one: array for one, array in arrays.items() if one != name})
    for number in (*range(1, len(good), 13), len(good) - 1):
        refuse(good[:number])
        refuse(good[: number - 1] + bytes([good[number - 1] ^ 1]) + good[number:])
    refuse(good + b"more")
    assert tried > 80
    place.write_bytes(good)
    assert journal.read() == old


def test_resuming_needs_a_file_and_may_begin(texts, tmp_path):
    done = attnviz("heads", "--input", texts, *SMALL, "-o", tmp_path / "found.json", "--resume")
    assert done.status == 0
    assert "nothing of '" in done.err
    assert attnviz("heads", "--input", texts, *SMALL, "--resume").status == 2
    assert (
        attnviz("heads", "--input", "-", *SMALL, "--resume", "-o", "x.json", stdin=b"a").status == 2
    )


def test_texts_are_counted_and_read_again():
    texts = many(10)
    for rereads in (False, True):
        vocabulary, again, count = read_twice(TextInput(lambda: iter(texts), rereads=rereads))
        assert count == 10
        assert [text.where for text in again] == [text.where for text in texts]
        assert "cat" in vocabulary.ranks
