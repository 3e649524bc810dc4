from collections.abc import Iterator
from pathlib import Path

import pytest

from attnviz.core.errors import InputError, WorkerError
from attnviz.core.notices import notices_to
from attnviz.core.options import Choice, Origin
from attnviz.features.corpus.study import CorpusState, ShardTask, study
from attnviz.features.corpus.words import vocabulary_of
from attnviz.features.engines.ray_cluster import RayCluster, share
from attnviz.runs.engines import InProcess, open_engine
from attnviz.runs.many_texts import AttendChunk
from attnviz.storage.texts import Text
from tests.features.engines.works import Deadly, Remembering, Uneven, failing, square
from tests.invoke import attnviz, fresh

pytest.importorskip("ray")

pytestmark = [pytest.mark.ray, pytest.mark.slow]

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with RayCluster(2) as engine:
        yield engine


def test_outcomes_come_in_order_and_few_are_read_ahead(cluster, tmp_path):
    assert list(cluster.map(Uneven(tmp_path, 7), range(8))) == list(range(8))
    shards = iter(range(1000))
    outcomes = cluster.map(square, shards)
    assert [next(outcomes) for _ in range(3)] == [0, 1, 4]
    assert next(shards) < 3 + 4
    seen = list(cluster.map(Remembering(), range(12)))
    for worker in {worker for worker, _ in seen}:  # type: ignore[misc]
        counts = [count for where, count in seen if where == worker]  # type: ignore[misc]
        assert sorted(counts) == list(range(1, len(counts) + 1))


def test_a_shard_whose_worker_dies_is_tried_three_times(cluster, tmp_path):
    assert list(cluster.map(Deadly(tmp_path, 3, 1), range(6))) == [i * i for i in range(6)]
    assert len(list(tmp_path.iterdir())) == 1
    (place := tmp_path / "every").mkdir()
    found = list(cluster.map(Deadly(place, 1, 99), range(4)))
    assert [found[0], *found[2:]] == [0, 4, 9]
    assert isinstance(found[1], WorkerError)
    assert str(found[1]).startswith("a worker died 3 times over shard 1: ")
    assert len(list(place.iterdir())) == 3


def test_an_error_of_the_work_comes_in_its_place(cluster):
    heard: list[str] = []
    with notices_to(heard.append):
        outcomes = cluster.map(failing, range(9))
        assert [next(outcomes), next(outcomes)] == [0, 1]
        with pytest.raises(InputError) as caught:
            next(outcomes)
    assert type(caught.value) is InputError
    assert str(caught.value) == "line 3 of 'a.txt' is empty"
    assert heard == ["shard 0 begins", "shard 1 begins", "shard 2 begins"]


def test_a_corpus_has_the_same_bytes_on_a_cluster(cluster, monkeypatch):
    monkeypatch.setattr(AttendChunk, "size", 64)
    texts = [
        Text(str(n), f"the cat {'sat ' * (n % 3)}on mat {n}", where=f"{n}") for n in range(300)
    ]
    attend = AttendChunk(Origin(mechanism="multi-head:heads=2,size=8"), Choice(), "self")
    task = ShardTask(attend, vocabulary_of([("the", 2), ("cat", 1)]))
    found = []
    for engine in (InProcess(), cluster):
        state = CorpusState(task.empty())
        assert study(task, texts, engine, state=state) is not None
        arrays = state.aggregates.to_arrays()
        found.append({name: array.tobytes() for name, array in arrays.items()})
    assert found[0] == found[1]


LINES = b'{"text": "the cat"}\n{bad\n\xff\n{"text": 3}\n\n{"text": "\x1b[31m"}\n{"text": "a car"}\n'


def test_a_cluster_writes_what_one_process_does(cluster, tmp_path):
    import ray

    (tmp_path / "t.jsonl").write_bytes(LINES)
    words = ("self", "--input", tmp_path / "t.jsonl", "-f", "jsonl")
    words += ("--mechanism", "multi-head:heads=2,size=8")
    address = ray.get_runtime_context().gcs_address
    alone = attnviz(*words)
    shared = fresh(*words, "--engine", f"ray:{address}", "--workers", "2", PYTHONPATH=str(ROOT))
    assert (alone.status, alone.out) == (shared.status, shared.out)
    assert alone.err == shared.err
    with RayCluster(None) as second:
        assert list(second.map(square, range(3))) == [0, 1, 4]
    assert list(cluster.map(square, range(3))) == [0, 1, 4]


def test_without_a_cluster_or_ray_one_line_says_so(monkeypatch):
    with (
        pytest.raises(WorkerError, match=r"^no Ray cluster answers at '127\.0\.0\.1:1' "),
        RayCluster(1, "127.0.0.1:1"),
    ):
        pass
    monkeypatch.setattr("attnviz.features.engines.ray_cluster.find_spec", lambda name: None)
    with pytest.raises(WorkerError) as caught:
        open_engine("ray", 2)
    assert str(caught.value) == "--engine ray needs the package ray: pip install 'attnviz[ray]'"


@pytest.mark.parametrize(
    ("workers", "machines", "expected"),
    [
        (None, [(8, 0)], (8, {"num_cpus": 1})),
        (2, [(8, 0)], (2, {"num_cpus": 4})),
        (9, [(8, 0)], (9, {"num_cpus": 1})),
        (1, [(4, 0), (2, 0)], (1, {"num_cpus": 4})),
        (None, [(8, 4)], (4, {"num_cpus": 2, "num_gpus": 1})),
        (2, [(4, 2), (4, 2)], (2, {"num_cpus": 4, "num_gpus": 1})),
        (3, [(6, 2)], (3, {"num_cpus": 2, "num_gpus": 0.5})),
    ],
)
def test_workers_share_cores_and_gpus(workers, machines, expected):
    assert share(workers, [{"CPU": cpus, "GPU": gpus} for cpus, gpus in machines]) == expected
