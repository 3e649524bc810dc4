"""Firefox without a window, driven over its own protocol (Marionette): no other program is needed.

https://firefox-source-docs.mozilla.org/testing/marionette/Protocol.html
"""

import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.patience import HUNG

FIREFOX = shutil.which("firefox-esr") or shutil.which("firefox")


class Marionette:
    """One session: a command and its answer at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.count = connection, 0
        self._receive()  # what it is
        self.call("WebDriver:NewSession", capabilities={"alwaysMatch": {}})
        self.call("WebDriver:SetTimeouts", script=1000 * HUNG, pageLoad=1000 * HUNG)

    def call(self, command: str, **parameters: Any) -> Any:
        """The value that a command answers."""
        self.count += 1
        data = json.dumps([0, self.count, command, parameters]).encode()
        self.connection.sendall(b"%d:%s" % (len(data), data))
        _, _, error, result = self._receive()
        assert error is None, error
        return result.get("value") if isinstance(result, dict) else result

    def run(self, script: str) -> Any:
        """What a script answers by calling `done`."""
        wrapped = f"const done = arguments[arguments.length - 1];\n{script}"
        return self.call("WebDriver:ExecuteAsyncScript", script=wrapped, args=[])

    def _receive(self) -> Any:
        head = b""
        while not head.endswith(b":"):
            head += self.connection.recv(1)
        left, data = int(head[:-1]), b""
        while left > len(data):
            data += self.connection.recv(left - len(data))
        return json.loads(data)


@contextmanager
def firefox(folder: Path) -> Iterator[Marionette]:
    """A fresh Firefox with its profile in a folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "user.js").write_text(f'user_pref("marionette.port", {port});\n')
    command = [str(FIREFOX), "--headless", "--marionette", "--no-remote", "--profile", str(folder)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        # It says when it listens.
        said = next((line for line in process.stdout if "Listening on port" in line), "")
        assert said, "Firefox did not start"
        with socket.create_connection(("127.0.0.1", port), timeout=HUNG) as connection:
            yield Marionette(connection)
        process.terminate()
