import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from attnviz.core import errors
from attnviz.core.errors import AttnvizError, InputError, WorkerError
from attnviz.core.notices import notices_to
from attnviz.features.engines.processes import Processes, WorkerPool, serve, to_bytes
from attnviz.runs.engines.shards import AHEAD
from tests.features.engines.works import (
    Deadly,
    DyingMessenger,
    Remembering,
    Uneven,
    failing,
    limits,
    odd,
    opened,
    square,
)
from tests.invoke import forked
from tests.kernels import skip_where_numpy_dies
from tests.patience import HUNG, wait_until


def alive(process: int) -> bool:
    """Whether a process runs; one that has ended and is not yet collected does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_outcomes_come_in_the_order_of_the_shards(tmp_path):
    with Processes(2) as engine:
        assert list(engine.map(Uneven(tmp_path, 7), range(8))) == list(range(8))


def test_shards_are_read_as_they_are_needed():
    read = 0

    def shards() -> Iterator[int]:
        nonlocal read
        for shard in range(1000):
            read += 1
            yield shard

    with Processes(2) as engine:
        for taken, outcome in enumerate(engine.map(square, shards()), 1):
            assert outcome == (taken - 1) ** 2
            assert read < taken + AHEAD * 2
            if taken == 20:
                break
    assert read < 20 + AHEAD * 2


def test_workers_keep_their_work_and_end_with_it():
    with Processes(2) as engine:
        outcomes = engine.map(Remembering(), range(1000))
        workers = {next(outcomes)[0] for _ in range(6)}  # type: ignore[index]
        assert all(map(alive, workers))
    assert not any(map(alive, workers))
    with Processes(2) as engine:
        seen = list(engine.map(Remembering(), range(12)))
    workers = {worker for worker, _ in seen}  # type: ignore[misc]
    assert len(workers) <= 2
    assert os.getpid() not in workers
    for worker in workers:
        # Two shards that wait for one worker may get it in either order.
        counts = sorted(count for where, count in seen if where == worker)  # type: ignore[misc]
        assert counts == list(range(1, len(counts) + 1))


@pytest.mark.slow
@pytest.mark.core
def test_the_shard_of_a_killed_worker_is_tried_again(tmp_path):
    with Processes(2) as engine:
        assert list(engine.map(Deadly(tmp_path, 3, 2), range(8))) == [i * i for i in range(8)]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_shard_that_kills_every_worker_is_an_error(tmp_path):
    with Processes(2) as engine:
        found = list(
            engine.map(
                Deadly(tmp_path, 2, 99),
                range(6),
                lambda number, shard: f"records {number * 256} to {number * 256 + 255}",
            )
        )
    assert found[:2] + found[3:] == [0, 1, 9, 16, 25]
    assert isinstance(found[2], WorkerError)
    assert found[2].status == 1
    assert str(found[2]) == (
        "a worker died 3 times over records 512 to 767, at last by SIGKILL, as by a system out of "
        "memory: give fewer --workers"
    )
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.slow
@pytest.mark.core
def test_a_worker_killed_while_sending_loses_one_shard(tmp_path):
    with Processes(2) as engine:
        found = list(engine.map(DyingMessenger(tmp_path, 2), range(8)))
    assert found == [i * i for i in range(8)]
    assert [path.name for path in tmp_path.iterdir()] == ["died"]


@pytest.mark.slow
def test_what_the_work_raises_comes_with_its_message():
    heard: list[str] = []
    with notices_to(heard.append), Processes(2) as engine:
        outcomes = engine.map(failing, range(9))
        assert [next(outcomes), next(outcomes)] == [0, 1]
        with pytest.raises(InputError) as caught:
            next(outcomes)
    assert str(caught.value) == "line 3 of 'a.txt' is empty"
    assert heard == ["shard 0 begins", "shard 1 begins", "shard 2 begins"]
    with (
        Processes(2) as engine,
        pytest.raises(RuntimeError, match="OddError: out of order") as caught,
    ):
        list(engine.map(odd, range(2)))
    assert "works.py" in "".join(caught.value.__notes__)
    with Processes(2) as engine, pytest.raises(TypeError, match="cannot pickle"):
        list(engine.map(opened, range(2)))


def test_every_error_survives_the_way_from_a_worker():
    kinds = [item for item in vars(errors).values() if isinstance(item, type)]
    for kind in kinds:
        if issubclass(kind, AttnvizError):
            again = pickle.loads(pickle.dumps(kind("what was wrong")))
            assert (type(again), str(again), again.status) == (kind, "what was wrong", kind.status)


def test_errors_of_the_iterable_come_in_their_place():
    def shards() -> Iterator[int]:
        yield from range(3)
        raise InputError("the file ends in the middle")

    outcomes = Processes(2).map(square, shards())
    assert [next(outcomes) for _ in range(3)] == [0, 1, 4]
    with pytest.raises(InputError, match="ends in the middle"):
        next(outcomes)


def test_workers_share_the_cores_and_keep_off_stdout(monkeypatch, capfd):
    monkeypatch.setattr("attnviz.features.engines.processes.cores", lambda: 6)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    with Processes(2) as engine:
        assert list(engine.map(limits, range(2))) == [("2", "3")] * 2
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(("workers", "threads"), [(2, 3), (5, 1), (6, 1), (7, 1), (64, 1)])
def test_a_worker_has_one_thread_at_least(workers, threads, monkeypatch):
    monkeypatch.setattr("attnviz.features.engines.processes.cores", lambda: 6)
    pool = WorkerPool(square, workers)
    assert pool.threads == threads
    pool.close()


ENDLESS = """
import sys
from pathlib import Path
from attnviz.features.engines.processes import Processes
from tests.features.engines.works import Endless
from tests.invoke import forked
from tests.patience import HUNG, wait_until
if __name__ == "__main__":
    try:
        with Processes(2) as engine:
            list(engine.map(Endless(Path(sys.argv[1])), range(9)))
    except KeyboardInterrupt:
        sys.exit(130)
"""


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.slow
def test_workers_end_with_the_program_however_it_ends(tmp_path, ending):
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS)
    program = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        workers = two_workers(tmp_path)
        if ending == signal.SIGINT:
            # As a terminal does: to everyone in the foreground.
            os.killpg(program.pid, ending)
        else:
            program.kill()
        _, said = program.communicate(timeout=HUNG)
    finally:
        if alive(program.pid):
            os.killpg(program.pid, signal.SIGKILL)
    wait_until(lambda: not any(map(alive, workers)))
    assert said == ""
    assert program.returncode == (130 if ending == signal.SIGINT else -ending)


@pytest.mark.parametrize("sent", [0, 4, 10, 10_000])
def test_a_worker_ends_silently_with_its_parent(sent):
    mine, theirs = multiprocessing.Pipe()
    work = to_bytes(square)
    os.write(mine.fileno(), (len(work).to_bytes(4, "big") + work)[:sent])
    mine.close()
    assert forked(lambda: serve(theirs)).err == ""


def two_workers(folder: Path) -> list[int]:
    """The numbers of two processes that are at work, once they are."""
    wait_until(lambda: len(list(folder.glob("*.pid"))) == 2)
    return [int(path.stem) for path in folder.glob("*.pid")]


@pytest.mark.slow
@pytest.mark.parametrize("kernels", ["Haswell", "Prescott"])
def test_workers_change_no_byte_on_other_processors(kernels, tmp_path):
    """OpenBLAS' sums for these processors depend on its threads."""
    skip_where_numpy_dies({"OPENBLAS_CORETYPE": kernels})
    line = "The nurse thanked the doctor because she had helped an old man who sold red cars."
    (tmp_path / "texts.txt").write_text(f"{line}\n" * 30)
    files = [tmp_path / f"{workers}.npz" for workers in (1, 2)]
    free = {name: value for name, value in os.environ.items() if "NUM_THREADS" not in name}
    for workers, file in enumerate(files, 1):
        words = ["self", "-i", "texts.txt", "--workers", workers, "-o", file, "-f", "none", "-q"]
        command = [sys.executable, "-m", "attnviz", *map(str, words)]
        environment = {**free, "OPENBLAS_CORETYPE": kernels, "OPENBLAS_NUM_THREADS": "2"}
        subprocess.run(command, cwd=tmp_path, env=environment, check=True)
    assert files[0].read_bytes() == files[1].read_bytes()
