"""Fifty clients at once, many of them hostile, slow or gone: nothing is mixed up, nothing grows."""

import asyncio
import json
import random
import socket
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest

from tests.features.live.server import Server, serving
from tests.patience import HUNG, wait_until
from tests.samples import ODD

CLIENTS, TURNS, REQUESTS = 50, 3, 3
WORDS = ("cat", "dog", "car", "house", "red", "blue", "old", "sees", "takes", "the")


def raw(server: Server, body: bytes, length: int | None = None) -> socket.socket:
    """A connection over which a question was sent, of which more may have been announced."""
    head = f"POST /attend HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in server.own.items())
    head += f"Content-Length: {len(body) if length is None else length}\r\n\r\n"
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(HUNG)
    connection.connect(("127.0.0.1", server.port))
    connection.sendall(head.encode() + body)
    return connection


def asks(server: Server, chance: random.Random, number: int) -> str:
    """A question, whose answer is its own."""
    words = " ".join(chance.choices(WORDS, k=chance.randint(1, 5)))
    off = {"tokens": [["source", 0]]} if chance.random() < 0.3 else {}
    path = "/ablate" if chance.random() < 0.03 else "/attend"
    answer = server.ask(path, source=words, id=number, off=off)
    assert answer["id"] == number
    if path == "/attend":
        assert answer["document"]["texts"][-1] == words
        assert (answer["answer"]["changed"] is not None) == bool(off)
    return "answered"


def errs(server: Server, chance: random.Random, number: int) -> str:
    """A body that is no question, or no body for this server."""
    own: Any = dict(server.own)
    body = chance.choice(
        (b"{", b"[]", b"\0" * 100, b"[" * 50_000, b'{"source":" "}', b'{"source":"a","x":0}',
         b'{"source":"' + b"x" * 9000 + b'"}', b" " * (1 << 20), b" " * (18 << 20),
         json.dumps({"source": "".join(chance.choices(ODD, k=4)), "lens": "x"}).encode())
    )  # fmt: skip
    wrong = chance.choice((None, "Authorization", "Content-Type", "Host"))
    if wrong and len(body) < 1 << 20:
        own[wrong] = "x"
    answer = server.send("POST", chance.choice(("/attend", "/ablate")), body, own)
    assert answer.error
    return str(answer.status)


def reads_slowly(server: Server, chance: random.Random, number: int) -> str:
    """An answer that is taken by a few bytes at a time."""
    body = json.dumps({"source": " ".join(chance.choices(WORDS, k=8)), "id": number}).encode()
    with raw(server, body) as connection:
        found = b""
        while b"\r\n\r\n" not in found:
            found += connection.recv(16)
        head, _, rest = found.partition(b"\r\n\r\n")
        (length,) = (int(one.split(b":")[1]) for one in head.split(b"\r\n") if b"length" in one)
        while len(rest) < length:
            rest += connection.recv(200)
    assert json.loads(rest)["id"] == number
    return "read slowly"


def leaves(server: Server, chance: random.Random, number: int) -> str:
    """A client that goes before it has asked, before it is answered, or while it reads."""
    body = json.dumps({"source": "The cat sat on the mat. " * chance.choice((1, 40))}).encode()
    with raw(server, body, len(body) + chance.choice((0, 0, 100))) as connection:
        if chance.random() < 0.3:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    return "left"


def client(server: Server, seed: int) -> Counter[str]:
    """What happened to the requests of one client."""
    chance = random.Random(seed)
    kinds = chance.choices((asks, errs, reads_slowly, leaves), (3, 11, 1, 5), k=REQUESTS)
    return Counter(
        kind(server, chance, seed * REQUESTS + number) for number, kind in enumerate(kinds)
    )


@pytest.mark.slow
def test_fifty_clients_get_their_own_answers():
    with serving(OMP_NUM_THREADS="1") as server:
        held = []
        for turn in range(TURNS):
            with ThreadPoolExecutor(CLIENTS) as threads:
                seeds = range(turn * CLIENTS, (turn + 1) * CLIENTS)
                done = sum(threads.map(lambda seed: client(server, seed), seeds), Counter[str]())
            assert done.total() == CLIENTS * REQUESTS
            ends = {"answered", "read slowly", "left", "400", "403", "413", "415", "422"}
            assert set(done) == ends
            # What was left behind is given up.
            wait_until(lambda: not server.send("GET", "/progress").json()["doing"])
            held.append(server.memory())
        # Bodies of clients that left are freed when the server notices.
        wait_until(lambda: server.memory() < held[1] + (40 << 20))
        assert server.ask(source="The cat sat.")["answer"]["written"] == "Le chat s'est assis."
        server.process.terminate()
        assert server.process.communicate()[1].decode().splitlines() == ["note: Ctrl-C ends it"]


def test_who_waits_too_long_in_line_is_told_so(server):
    from attnviz.features.live.serving import MOST_WAITING

    long = json.dumps({"source": "The cat sat on the mat. " * 150}).encode()
    waiting = [raw(server, long)]
    progress = partial(server.send, "GET", "/progress")
    wait_until(lambda: progress().json()["doing"])
    waiting += [raw(server, long) for _ in range(MOST_WAITING - 1)]
    wait_until(lambda: progress().json()["waiting"] == MOST_WAITING - 1)
    answer = server.send("POST", "/attend", {"source": "The cat sat."})
    assert (answer.status, answer.error) == (429, "64 questions wait: ask again later")
    for connection in waiting:
        connection.close()
    wait_until(lambda: not progress().json()["waiting"])
    assert server.ask(source="The cat sat.")["id"] == 0


class Slow:
    """A client's connection, and a clock that passes when it is told to."""

    def __init__(self) -> None:
        from uvicorn.config import Config
        from uvicorn.server import ServerState

        async def app(_: Any, __: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body"})

        self.config, self.state = Config(app, log_config=None), ServerState()
        self.config.load()

    def connect(self) -> tuple[Any, Mock]:
        from attnviz.features.live.serving import Connection

        loop = Mock()
        loop.create_task = lambda work, **_: work.close() or Mock()
        made = Connection(self.config, self.state, {}, loop)
        transport = Mock(is_closing=Mock(return_value=False))
        transport.get_extra_info.return_value = None
        made.connection_made(transport)
        return made, transport


def test_half_a_head_is_hung_up_on_in_time():
    from attnviz.features.live.serving import PATIENCE

    made, transport = Slow().connect()
    for part in (b"GET / HTTP/1.1\r\n", b"Host: x\r\n", b"X-A: b\r\n"):
        made.data_received(part)
    ((seconds, hang_up), _) = made.loop.call_later.call_args  # one clock, since the beginning
    assert (made.loop.call_later.call_count, seconds) == (1, PATIENCE)
    assert hang_up == transport.abort
    made.data_received(b"\r\n")  # a whole head: what comes now is an answer
    made.loop.call_later.return_value.cancel.assert_called_once()


def test_connections_are_bounded_in_number():
    from attnviz.features.live.serving import MOST_CONNECTIONS

    slow = Slow()
    clients = [slow.connect()[1] for _ in range(MOST_CONNECTIONS + 3)]
    assert [one.abort.called for one in clients] == [False] * MOST_CONNECTIONS + [True] * 3


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (None, 408, "no question has come in 0 seconds"),
        (b" " * 30, 400, "this is no question"),
        (b" " * 31, 413, "a question has 30 bytes at most"),
    ],
)
def test_a_question_has_its_time_and_its_size(body, status, said, monkeypatch):
    from starlette.exceptions import HTTPException
    from starlette.requests import Request

    from attnviz.features.live import serving

    async def receive() -> dict[str, Any]:
        if body is None:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": body}

    monkeypatch.setattr(serving, "PATIENCE", 0 if body is None else HUNG)
    monkeypatch.setattr(serving, "MOST_BODY", 30)
    scope = {"type": "http", "headers": [(b"content-type", b"application/json")]}
    # In a thread: a browser of another test may run its loop in this one.
    with ThreadPoolExecutor() as pool, pytest.raises(HTTPException, match=said) as refused:
        pool.submit(asyncio.run, serving.read_question(Request(scope, receive))).result()
    assert refused.value.status_code == status
