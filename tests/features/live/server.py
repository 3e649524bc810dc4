"""A served model in a process of its own, and a client of it."""

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.patience import HUNG


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The one line that a mistake is told in; asserts that there is nothing else."""
        found = self.json()
        assert (400 <= self.status < 500, set(found)) == (True, {"error"}), found
        assert "\n" not in found["error"]
        return str(found["error"])


@dataclass
class Server:
    """A running `attnviz live`."""

    process: subprocess.Popen[bytes]
    address: str
    port: int = field(init=False)
    token: str = field(init=False)

    def __post_init__(self) -> None:
        split = urlsplit(self.address)
        self.port, self.token = int(split.port or 0), parse_qs(split.query)["token"][0]

    @property
    def own(self) -> dict[str, str]:
        """What a program sends with a question."""
        return {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=HUNG)

    def send(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Answer:
        """Send a request, by default as a program that has the token."""
        connection = self.connect()
        try:
            given = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            connection.request(method, path, given, self.own if headers is None else headers)
            found = connection.getresponse()
            return Answer(found.status, {k.lower(): v for k, v in found.getheaders()}, found.read())
        finally:
            connection.close()

    def ask(self, path: str = "/attend", **question: Any) -> Any:
        """The answer to a question that is answered."""
        answer = self.send("POST", path, question)
        assert answer.status == 200, answer.body
        return answer.json()

    def memory(self) -> int:
        """Bytes that the process holds."""
        import psutil

        return int(psutil.Process(self.process.pid).memory_info().rss)


@contextmanager
def serving(*arguments: object, **variables: str) -> Iterator[Server]:
    """A server that is stopped at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "attnviz", "live", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | variables,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline().decode()
        assert line.startswith("http://"), line
        yield Server(process, line.strip())
    finally:
        process.kill()
        process.communicate()
