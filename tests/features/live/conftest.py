"""One server for all tests, the live page's engine in node, and the same model in Python."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnviz.features.live.packed import pack_model, quantise, split_by_bits
from attnviz.models.pocket.translator import Pocket
from attnviz.renderers.page.document import live_worker
from tests.features.live.server import Server, serving

NODE = shutil.which("node")
NOTHING: dict[str, list[Any]] = {"heads": [], "links": [], "tokens": []}


@dataclass
class Engine:
    """The worker's script, run by node."""

    process: subprocess.Popen[str]
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def say(self, **message: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def hear(self) -> Any:
        """The next answer, without what the engine says while it works."""
        assert self.process.stdout is not None
        while True:
            line = self.process.stdout.readline()
            assert line, "node has ended"
            answer = json.loads(line)
            if not (isinstance(answer, dict) and "doing" in answer):
                return answer

    def tokens(self, texts: list[str]) -> list[dict[str, Any]]:
        """What the tokenizer makes of each text, as the page shows it."""
        self.say(kind="tokens", texts=texts)
        found: list[dict[str, Any]] = self.hear()
        return found

    def ask(self, source: str, target: str | None = None, **question: Any) -> dict[str, Any]:
        """The answer to one question about a sentence."""
        number = next(self.numbers)
        asked = {"kind": "attend", "lens": "raw", "off": NOTHING, **question}
        self.say(id=number, source=source, target=target, **asked)
        answer: dict[str, Any] = self.hear()
        assert answer["id"] == number
        return answer


@pytest.fixture(scope="session")
def worker_script() -> str:
    return live_worker()


@pytest.fixture(scope="session")
def packed_model() -> bytes:
    return pack_model()


@contextmanager
def started(folder: Path, script: str, data: bytes) -> Iterator[Engine]:
    """The engine in node, with a packed model, from files that it leaves in a folder."""
    # What the page runs, but that the modules can be looked at.
    looked_at = script.removesuffix("})();") + "return modules;\n})();"
    files = folder / "worker.js", folder / "packed"
    files[0].write_text(looked_at, encoding="utf-8")
    files[1].write_bytes(data)
    with subprocess.Popen(
        [str(NODE), str(Path(__file__).with_name("engine.mjs")), *map(str, files)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    ) as process:
        yield Engine(process)
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture(scope="session")
def engine(
    tmp_path_factory: pytest.TempPathFactory, packed_model: bytes, worker_script: str
) -> Iterator[Engine]:
    """The engine in node, with the shipped weights."""
    if NODE is None:
        pytest.skip("no node on this machine")
    with started(tmp_path_factory.mktemp("engine"), worker_script, packed_model) as engine:
        yield engine


@pytest.fixture(scope="session")
def pocket() -> Pocket:
    """The pocket model in Python, with the weights that the page has."""
    model = Pocket()
    for name in model.weights:
        weight = np.asarray(model.weights[name])
        if weight.ndim == 2:
            parts = [quantise(part, bits) for part, bits in split_by_bits(name, weight)]
            rows = [scales[:, None] * codes for scales, codes in parts]
            model.weights.arrays[name] = np.concatenate(rows).astype(np.float32)
    return model


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The pocket model, served."""
    with serving() as found:
        yield found
