"""What every test starts from: a pipe of 80 columns without colour, and no network."""

import gc
import os
import resource
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.patience import HUNG

# One thread for each worker of pytest-xdist and each process that a test starts, set before numpy
# and torch are imported: two threads to a core wait for each other most of the time.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Else every worker and each of hundreds of programs compiles what it imports anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# No test fails on the clock, however busy the machine is; see also tests/patience.py.
settings.register_profile(
    "without the clock", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("without the clock")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="every test, the slow ones too")
    parser.addoption(
        "--third", type=int, help="of the slow tests only every third, from this one on"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Choose the tests, hear signals, and collect no garbage yet.

    What is imported and collected stays: to look through it for garbage costs seconds.
    """
    choose_tests(config)
    hear_signals()
    gc.disable()


SHORT_RUN = "not slow or core"
"""The tests that `pytest` runs by itself."""


def choose_tests(config: pytest.Config) -> None:
    """Leave slow tests out where nothing is asked for: no file, no name, no mark and not all."""
    asked = config.option.all or config.option.keyword or config.option.markexpr
    if not asked and config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.option.markexpr = SHORT_RUN  # the workers of pytest-xdist are told


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say what was left out."""
    if config.option.markexpr == SHORT_RUN:
        terminalreporter.write_line(
            "Left out: about 4,000 slow tests, more of the kinds in CONTRIBUTING.md. "
            "All: pip install -e '.[dev]' && pytest --all"
        )


def hear_signals() -> None:
    """Tests send them to themselves and to programs; `nohup` and `&` have them ignored."""
    for number, usual in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, usual)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What is of the core is slow; with --third most other slow tests wait for their turn."""
    for item in items:
        if item.get_closest_marker("core"):
            item.add_marker("slow")
    if (first := config.option.third) is not None:
        left_out = {*without_turn(items, first)}
        config.hook.pytest_deselected(items=[*left_out])
        items[:] = [item for item in items if item not in left_out]


def without_turn(items: Sequence[pytest.Item], first: int) -> Iterator[pytest.Item]:
    """Two of three slow tests, and none of the core."""
    marks = [item.get_closest_marker for item in items]
    slow = [item for item, has in zip(items, marks, strict=True) if has("slow") and not has("core")]
    yield from (item for at, item in enumerate(slow) if (at - first) % 3)


def pytest_collection_finish() -> None:
    """From here on only what the tests make is looked through."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Lift the limit that a test set to the size of files: pytest's own output may be a file."""
    try:
        yield
    finally:
        hardest = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (hardest, hardest))


@pytest.fixture(scope="session", autouse=True)
def plain_surroundings() -> Iterator[None]:
    """The variables of this shell must not decide how a test ends."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("NO_COLOR", "FORCE_COLOR", "LINES", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
            patch.delenv(name, raising=False)
        patch.setenv("COLUMNS", "80")
        patch.setenv("TERM", "xterm-256color")
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of pictures have a quarter of their pixels each way, where no test looks at them."""
    from matplotlib.figure import Figure

    save: Any = Figure.savefig

    def savefig(self: Any, *given: Any, dpi: Any, **more: Any) -> None:
        save(self, *given, dpi=(self.dpi if dpi == "figure" else dpi) / 4, **more)

    monkeypatch.setattr(Figure, "savefig", savefig)


@pytest.fixture
def few_references(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sentences of reference, not sixteen, where numbers do not count.

    Before a pair is explained each is translated, which takes most of the time.
    """
    from attnviz.features.explain import request as explain

    monkeypatch.setattr(explain, "REFERENCE", explain.REFERENCE[:2])


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's chromium, without a window; one, since playwright starts once in a process."""
    api = pytest.importorskip("playwright.sync_api", reason="pip install playwright to test pages")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("no chromium on this machine: apt-get install chromium to test pages")
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu"]
        )
        new_context = chromium.new_context

        def patient_context(**options: Any) -> Any:
            context = new_context(**options)
            context.set_default_timeout(1000 * HUNG)
            return context

        chromium.new_context = patient_context  # type: ignore[method-assign]
        yield chromium
        chromium.close()
