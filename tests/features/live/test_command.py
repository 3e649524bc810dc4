"""The command around the server: its address, its end, and what it refuses before it begins."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import closing
from http.client import RemoteDisconnected
from pathlib import Path

import psutil
import pytest

from tests.features.live.server import serving
from tests.invoke import attnviz, imported
from tests.patience import HUNG, wait_until

LONG = {"source": "The cat sat on the mat. " * 150}


def test_the_address_is_all_that_stdout_gets(server):
    assert server.address == f"http://127.0.0.1:{server.port}/?token={server.token}"
    assert len(server.token) >= 43  # 256 bits
    (listening,) = [
        one for one in psutil.Process(server.process.pid).net_connections() if not one.raddr
    ]
    assert listening.laddr[0] == "127.0.0.1"
    client = server.connect()
    client.request("POST", "/ablate", b'{"source":"%s"}' % LONG["source"].encode(), server.own)
    wait_until(lambda: server.send("GET", "/progress").json()["doing"])
    client.close()
    # The work would take minutes; that the next answer comes shows that it has ended.
    assert server.ask(source="The cat sat.")["answer"]["written"] == "Le chat s'est assis."


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_at_once_while_it_computes(number, status):
    with serving() as server:
        own = psutil.Process(server.process.pid)
        client = server.connect()
        client.request("POST", "/ablate", b'{"source":"%s"}' % LONG["source"].encode(), server.own)
        wait_until(lambda: server.send("GET", "/progress").json()["doing"])
        children = own.children(recursive=True)
        server.process.send_signal(number)
        out, err = server.process.communicate(timeout=HUNG)
        assert (server.process.returncode, out) == (status, b"")
        assert err.decode().splitlines() == ["note: Ctrl-C ends it"]
        assert children == []
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", server.port), HUNG)
        with closing(client), pytest.raises((RemoteDisconnected, ConnectionResetError)):
            client.getresponse()  # it did not finish the answer first, which takes minutes


def test_what_cannot_be_opened_is_told_in_one_line(server, tmp_path):
    done = attnviz("live", "--port", server.port)
    assert done.status == 1
    assert done.mistake.startswith(f"cannot listen on 127.0.0.1 port {server.port}: ")
    done = attnviz("live", "--host", "no.such.host.invalid", "--allow-network")
    assert (done.status, done.mistake.startswith("cannot listen on no.such.host.")) == (1, True)
    assert "65536" in attnviz("live", "--port", 65536).mistake
    assert attnviz("live", "--device", "spread").status == 2
    done = attnviz("live", "--model", tmp_path / "none")
    assert (done.status, done.mistake.partition(" '")[0]) == (1, "there is no folder")
    assert attnviz("live", "--model", tmp_path).mistake.startswith(f"'{tmp_path}' is not a model")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org"])
def test_other_machines_are_answered_only_if_said(host):
    done = attnviz("live", "--host", host)
    assert done.status == 2
    assert "nothing is encrypted on the way. Add --allow-network" in done.mistake


@pytest.mark.slow
def test_on_a_network_it_still_wants_the_token():
    with serving("--host", "0.0.0.0", "--allow-network") as server:
        assert server.address.startswith(f"http://{socket.gethostname().lower()}:")
        assert server.send("GET", "/models").status == 200
        assert server.send("GET", "/models", headers={}).status == 403
        evil = {"Host": f"evil.example:{server.port}"}
        assert server.send("GET", "/models", headers=server.own | evil).status == 403
        server.process.terminate()
        said = server.process.communicate()[1].decode()
        assert "everyone who can reach this machine and has the address" in said


@pytest.mark.slow
def test_the_pocket_model_is_served_without_torch():
    loaded, _ = imported("live", "--port", 1 << 20)
    assert not {"torch", "transformers", "scipy", "starlette", "uvicorn", "numpy"} & loaded
    code = (
        "import sys; from attnviz.core.options import Origin;"
        "from attnviz.features.live.answering import Answers, Question;"
        "import attnviz.features.live.serving;"
        "Answers(Origin()).attend(Question(source='The cat sat.'));"
        "print(*{'torch', 'transformers', 'scipy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.strip() == b""


def test_without_the_extra_it_says_what_to_install(tmp_path):
    (tmp_path / "uvicorn.py").write_text("raise ModuleNotFoundError('no', name='uvicorn')")
    done = subprocess.run(
        [sys.executable, "-m", "attnviz", "live"],
        capture_output=True,
        check=False,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"},
    )
    assert done.returncode == 1
    assert done.stderr.decode() == (
        "attnviz: error: 'attnviz live' needs the package uvicorn: pip install 'attnviz[live]', or "
        "write a page with the model inside by -o live.html\n"
    )


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("sh") is None, reason="a shell stands in for a browser")
def test_a_browser_is_given_a_file_and_not_the_token(tmp_path):
    browser, seen = tmp_path / "browser", tmp_path / "seen"
    browser.write_text(f'#!/bin/sh\necho "$@" > {seen}.new\ncp "${{1#file://}}" {tmp_path}/copy\n'
                       f"mv {seen}.new {seen}\n")  # fmt: skip
    browser.chmod(0o700)
    with serving("--open", BROWSER=f"{browser} %s") as server:
        server.send("GET", "/models")  # which is answered once the browser was started
        wait_until(seen.exists)
        argument = seen.read_text().strip()
        assert server.token not in argument
        assert server.address in (tmp_path / "copy").read_text()
        file = Path(argument.removeprefix("file://"))
        assert file.stat().st_mode & 0o077 == 0
        server.process.send_signal(signal.SIGINT)
        server.process.communicate()
        assert not file.exists()
