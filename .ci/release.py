"""What `nox -s release` does: build the files of a release, and use them as their users will.

Both files are built twice, at two places, and must come out alike, byte for byte. They go into the
folder `dist` with the list of what a user installs beside them (an SBOM, in CycloneDX's format).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]
DIST = ROOT / "dist"
MOST = 17_000_000
"""Bytes of the largest wheel: a small download is a promise of docs/index.md."""
TORCH = "torch==2.13.0"  # the build for the processor alone, where it is offered
HEAVY = ("torch", "transformers")
"""What is left out where torch would bring gigabytes of CUDA."""
OWN_VARIABLES = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "COLUMNS", "FORCE_COLOR", "NO_COLOR")


class Unfit(Exception):  # noqa: N818 - what a release is
    """Why these files can be no release."""


@dataclass(frozen=True)
class Environment:
    """A clean environment: its folder, and what it must not be asked."""

    name: str
    place: Path
    is_whole: bool
    is_newest: bool

    @property
    def python(self) -> Path:
        return self.place / "bin" / "python"

    def variables(self) -> dict[str, str]:
        """Those of a user who has no checkout of the repository."""
        kept = {name: value for name, value in os.environ.items() if name not in OWN_VARIABLES}
        path = os.pathsep.join([str(self.place / "bin"), kept["PATH"]])
        return kept | {"PATH": path, "HF_HUB_OFFLINE": "1"}

    def run(self, *command: str, at: Path, status: int | None = 0) -> str:
        """What a command prints; it must end with a status."""
        done = subprocess.run(
            command,
            cwd=at,
            env=self.variables(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if status is not None and done.returncode != status:
            shown = " ".join(command)
            raise Unfit(f"{self.name}: status {done.returncode} of {shown}\n{done.stdout[-3000:]}")
        return done.stdout


def main() -> None:
    """Build and try a release; status 1 and the reason where it is none."""
    parser = argparse.ArgumentParser(prog="nox -s release --", description=__doc__)
    parser.add_argument("quick", nargs="?", choices=["quick"], help="one environment, no tests")
    parser.add_argument("--python", action="append", default=[], metavar="VERSION=PROGRAM")
    asked = parser.parse_args()
    try:
        with TemporaryDirectory(prefix="attnviz-release-") as place:
            release(Path(place), dict(one.split("=", 1) for one in asked.python), quick=asked.quick)
    except (Unfit, subprocess.CalledProcessError) as error:
        sys.exit(f"no release: {error}")


def release(place: Path, pythons: Mapping[str, str], *, quick: bool) -> None:
    """Build the files, try them, and put them into `dist`."""
    wheel, sdist = build_twice(place)
    run("twine", "check", "--strict", wheel, sdist)
    say(f"{wheel.name} has {wheel.stat().st_size:,} bytes, {sdist.name} {sdist.stat().st_size:,}")
    if wheel.stat().st_size > MOST:
        raise Unfit(f"the wheel has more than {MOST:,} bytes")
    tries = list(environments(place, wheel, {} if quick else pythons, quick=quick))
    for one in tries:
        try_commands(one, place / f"folder-{one.name}", sdist)
    bill = write_bill(place / wheel.name.replace("-py3-none-any.whl", ".cdx.json"), tries[0])
    if not quick:
        test_sdist(place, sdist)
    DIST.mkdir(exist_ok=True)
    for old in DIST.glob("attnviz-*"):
        old.unlink()
    for file in (wheel, sdist, bill):
        shutil.copy(file, DIST)
        say(f"dist/{file.name} {file.stat().st_size:,} bytes, sha256 {checksum(file)}")


# Builds


def build_twice(place: Path) -> tuple[Path, Path]:
    """The wheel and the sdist, which are the same from the repository and from the sdist."""
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    (day,) = re.findall(r"^date-released: (.*)$", text, re.MULTILINE)
    date = datetime.fromisoformat(day).replace(tzinfo=UTC)
    variables = os.environ | {"SOURCE_DATE_EPOCH": str(round(date.timestamp()))}
    first, second = place / "first", place / "second"
    run("python", "-m", "build", "--outdir", first, ROOT, env=variables)
    (wheel,), (sdist,) = first.glob("*.whl"), first.glob("*.tar.gz")
    run("python", "-m", "build", "--outdir", second, unpack(sdist, place / "again"), env=variables)
    for file in (wheel, sdist):
        if file.read_bytes() != (second / file.name).read_bytes():
            raise Unfit(f"{file.name} is another file when it is built again, from the sdist")
    say("built twice, from the repository and from the sdist: the same bytes")
    with zipfile.ZipFile(wheel) as names:
        held = {name.rpartition("/")[2] for name in names.namelist()}
    if lacking := {"LICENSE", "NOTICE", "py.typed", "attnviz.1", "_attnviz"} - held:
        raise Unfit(f"the wheel lacks {', '.join(sorted(lacking))}")
    return wheel, sdist


def unpack(sdist: Path, place: Path) -> Path:
    """The folder of an sdist, unpacked."""
    with tarfile.open(sdist) as archive:
        archive.extractall(place, filter="data")
    (folder,) = place.iterdir()
    return folder


# Clean environments


def environments(
    place: Path, wheel: Path, pythons: Mapping[str, str], *, quick: bool
) -> Iterator[Environment]:
    """The wheel in this Python, with the lowest versions, and in every further Python."""
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    limits = ["-c", str(ROOT / "tests" / "lowest.txt")]
    yield install(own, sys.executable, place, wheel)
    if not quick:
        yield install(f"{own}-lowest", sys.executable, place, wheel, *limits)
    for name, program in pythons.items():
        yield install(name, program, place, wheel, is_whole=False)


def install(
    name: str, program: str, place: Path, wheel: Path, *limits: str, is_whole: bool = True
) -> Environment:
    """An environment that holds the wheel, what it needs, and nothing else."""
    made = Environment(name, place / f"python-{name}", is_whole, is_newest=is_whole and not limits)
    run(program, "-m", "venv", "--without-pip", made.place)
    pip = ["python", "-m", "pip", "--python", str(made.python), "install", "--quiet"]
    pip += ["--no-compile", "--disable-pip-version-check"]
    if is_whole:
        run(*pip, TORCH)
        run(*pip, wheel, *limits)
    else:
        needs = read_needs(wheel)
        run(*pip, *(one for one in needs if not one.startswith(HEAVY)))
        run(*pip, "--no-deps", wheel)
    left_out = "" if is_whole else f", without {' and '.join(HEAVY)}"
    say(f"Python {name}: {wheel.name} is installed{left_out}")
    return made


def read_needs(wheel: Path) -> list[str]:
    """What a wheel needs, without its extras."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        lines = archive.read(name).decode().partition("\n\n")[0].splitlines()
    needs = [line.partition(": ")[2] for line in lines if line.startswith("Requires-Dist: ")]
    return [one for one in needs if "extra ==" not in one]


def try_commands(one: Environment, folder: Path, sdist: Path) -> None:
    """Run what the README shows, far from the repository."""
    from tests.printed import matches
    from tests.test_readme import commands

    page = unpack(sdist, folder / "unpacked") / "README.md"
    at = folder / "session"
    at.mkdir()
    one.run("attnviz", "examples", "sample_inputs", "-q", at=at)
    ran, left_out = 0, []
    for command, expected in commands(page):
        printed = one.run("bash", "-c", command, at=at, status=0 if one.is_whole else None)
        if not one.is_whole and "torch" in printed and "error: " in printed:
            left_out.append(command)
        elif one.is_newest and not matches(expected, printed):
            raise Unfit(f"{one.name}: $ {command}\n{printed}\nand not\n{expected}")
        else:
            ran += 1
    called = 'import attnviz; attnviz.attend("The red car is fast.").page("page.html")'
    one.run("python", "-c", called, at=at)
    find_manual(one, at)
    told = f", without torch these cannot: {'; '.join(left_out)}" if left_out else ""
    say(f"Python {one.name}: {ran} commands of the README ran{told}")


def find_manual(one: Environment, at: Path) -> None:
    """Find a manual page of every command, and let bash complete one."""
    listed = "from attnviz.core.registry import COMMANDS; print(*COMMANDS)"
    share = one.place / "share"
    pages = {file.stem for file in (share / "man" / "man1").glob("attnviz*.1")}
    names = one.run("python", "-c", listed, at=at).split()
    if lacking := {"attnviz", *(f"attnviz-{name}" for name in names)} - pages:
        raise Unfit(f"{one.name}: no manual page {', '.join(sorted(lacking))}")
    if shutil.which("man"):
        one.run("man", "-M", str(share / "man"), "-w", "attnviz-self", at=at)
    typed = "COMP_WORDS='attnviz sel' COMP_CWORD=1 _ATTNVIZ_COMPLETE=complete_bash attnviz"
    script = share / "bash-completion" / "completions" / "attnviz"
    if "self" not in one.run("bash", "-c", f"source '{script}' && {typed}", at=at).split():
        raise Unfit(f"{one.name}: bash completes no command")


# What is installed, and the tests of the sdist


def write_bill(file: Path, one: Environment) -> Path:
    """The list of what a user installs, with versions and licences, in CycloneDX's format."""
    options = [
        "--output-reproducible",
        "--mc-type",
        "library",
        "--pyproject",
        ROOT / "pyproject.toml",
    ]
    run("cyclonedx-py", "environment", *options, "--output-file", file, one.python)
    bill = json.loads(file.read_text(encoding="utf-8"))
    licences: Counter[str] = Counter()
    for part in bill["components"]:
        if not part.get("licenses"):  # words that are no licence's identifier are left out
            name = part["name"]
            asked = f"from importlib.metadata import *; print(metadata({name!r})['License'])"
            said = one.run("python", "-c", asked, at=file.parent).strip().split("\n")[0]
            if said in ("", "None", "UNKNOWN"):
                raise Unfit(f"{part['name']} says no licence")
            part["licenses"] = [{"license": {"name": said}}]
        licences[", ".join(map(licence_name, part["licenses"]))] += 1
    file.write_text(json.dumps(bill, indent=2) + "\n", encoding="utf-8")
    told = "; ".join(f"{name} ({count})" for name, count in licences.most_common())
    say(f"{file.name} lists {len(bill['components'])} packages: {told}")
    return file


def licence_name(licence: Mapping[str, object]) -> str:
    """Its identifier, expression or name, on one line."""
    inside = licence.get("license", {})
    named = inside.get("id") or inside.get("name") if isinstance(inside, dict) else ""
    return str(licence.get("expression") or named).split("\n")[0].rpartition(" :: ")[2][:60]


def test_sdist(place: Path, sdist: Path) -> None:
    """Run the README's command that installs and tests, in the sdist and an own environment."""
    folder = unpack(sdist, place / "tested")
    text = (folder / "README.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^pip install .*pytest.*$", text, re.MULTILINE)
    run(sys.executable, "-m", "venv", place / "tests")
    one = Environment("sdist", place / "tests", is_whole=True, is_newest=True)
    say(f"the sdist, by {command}")
    say(one.run("bash", "-c", command, at=folder).rstrip().rpartition("\n")[2])


def run(*command: object, env: Mapping[str, str] | None = None) -> None:
    """Run a program, which must succeed."""
    subprocess.run([*map(str, command)], check=True, env=env)


def checksum(file: Path) -> str:
    """The SHA-256 of a file."""
    return sha256(file.read_bytes()).hexdigest()


def say(text: str) -> None:
    """A line of the report, at once."""
    print(f"release: {text}", flush=True)


if __name__ == "__main__":
    main()
