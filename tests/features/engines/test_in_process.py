import pytest

from attnviz.core.errors import UsageError
from attnviz.features.engines.processes import Processes
from attnviz.runs.engines import InProcess, open_engine
from tests.features.engines.works import square


def test_shards_are_worked_on_here_when_they_are_asked_for():
    shards = iter(range(10))
    with InProcess() as engine:
        outcomes = engine.map(square, shards)
        assert [next(outcomes), next(outcomes)] == [0, 1]
    assert next(shards) == 2
    assert isinstance(open_engine("local", None), InProcess)
    assert isinstance(open_engine("local", 1), InProcess)
    engine = open_engine("local", 3)
    assert isinstance(engine, Processes)
    assert engine.workers == 3


@pytest.mark.parametrize(
    ("engine", "workers", "said"),
    [
        ("rey", None, "unknown engine 'rey': choose from local, ray. Did you mean 'ray'?"),
        ("local", 0, "--workers 0 would do nothing: give 1 or more"),
        ("local:auto", 2, "--engine local:auto names no cluster: write ray:ADDRESS"),
        ("ray:", 2, "--engine ray: names no cluster: write ray:ADDRESS"),
    ],
)
def test_an_engine_that_cannot_be_is_refused(engine, workers, said):
    with pytest.raises(UsageError) as caught:
        open_engine(engine, workers)
    assert str(caught.value) == said
