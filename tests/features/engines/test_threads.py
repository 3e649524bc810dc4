import os
import subprocess
import sys
from pathlib import Path

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from attnviz import attend
from attnviz.features.engines.processes import limit_threads, thread_limits
from attnviz.models.pocket.translator import Pocket
from attnviz.runs.engines.shards import cores, fix_sums

SUMS = """
import torch
from attnviz.runs.engines.shards import fix_sums
fix_sums()
torch.manual_seed(0)
layer = torch.nn.Linear(384, 384)
found = [layer(torch.randn(rows, 384)).detach() for rows in (7, 12)]
print(torch.get_num_threads(), hash(b"".join(item.numpy().tobytes() for item in found)))
"""


def test_what_the_user_says_about_threads_stays(monkeypatch):
    given = {"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "16", "RAYON_NUM_THREADS": "many"}
    monkeypatch.setattr(os, "environ", given)
    limits = thread_limits(4)
    assert [limits[name] for name in given] == ["2", "4", "4"]
    before = dict(given)
    with limit_threads(1):
        assert [given[name] for name in limits] == ["1"] * len(limits)
    assert given == before
    assert cores() >= 1
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    fix_sums()
    assert os.environ["MKL_CBWR"] == "COMPATIBLE"


SHELL = """
import os, sys
from threadpoolctl import threadpool_info
from attnviz.__main__ import main
def leave(status):
    found = [one["num_threads"] for one in threadpool_info() if one["internal_api"] == "openblas"]
    print(status, *found or ["none"], file=sys.stderr)
os._exit = leave
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("given", [None, "2"])
def test_numpy_has_one_thread_in_the_shell_unless_the_user_says_more(given):
    """Two threads of a busy machine wait for each other: `explain` took ten times as long."""
    if "aarch64" in os.uname():
        pytest.skip("on ARM torch has an OpenBLAS of its own, which reads the variable too")
    own = {name: value for name, value in os.environ.items() if "NUM_THREADS" not in name}
    environment = own | {"PYTHONPATH": str(Path(__file__).parents[3])}
    if given:
        environment["OPENBLAS_NUM_THREADS"] = given
    command = [sys.executable, "-c", SHELL, "self", "the cat sat", "-q"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr.split() in (["0", given or "1"], ["0", "none"])


def threads() -> set[int]:
    found = (one for one in threadpool_info() if one["internal_api"] == "openblas")
    return {one["num_threads"] for one in found}


def test_numpy_has_one_thread_while_python_asks(monkeypatch):
    seen, read = [], Pocket.attend

    def look(*given, **named):
        seen.append(threads())
        return read(*given, **named)

    monkeypatch.setattr(Pocket, "attend", look)
    with threadpool_limits(2):
        before = threads()
        attend("the cat sat")
        assert threads() == before
    assert seen in ([{1}], [set()])


@pytest.mark.slow
def test_sums_are_the_same_on_any_number_of_threads():
    def sums(threads: int) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", SUMS],
            env={
                **{name: value for name, value in os.environ.items() if name != "MKL_CBWR"},
                "OMP_NUM_THREADS": str(threads),
                "PYTHONHASHSEED": "0",
                "PYTHONPATH": str(Path(__file__).parents[3]),
            },
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.split()

    one, two = sums(1), sums(2)
    assert (one[0], two[0]) == ("1", "2")
    assert one[1] == two[1]
