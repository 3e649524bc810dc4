"""The page and its answers over HTTP, only for clients that have the token.

A browser that opens the address with the token gets a cookie. Browsers do not send it from pages of
other sites (SameSite=Strict). They do send it to every port of the host, so to servers of other
users too; therefore it belongs to a secret path. A program sends the token itself
(`Authorization: Bearer TOKEN`). A foreign Host is refused (DNS rebinding), and so is the Origin of
another site. `openapi.json` describes the interface.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import secrets
import socket
import time
import traceback
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.resources import files
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import msgspec
import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from attnviz.core import errors, notices
from attnviz.core.records import dataclass, field
from attnviz.features.live.answering import MOST_PICTURE, Answers, Question
from attnviz.renderers.printable import printable

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

MOST_BODY = MOST_PICTURE + (1 << 20)
"""Most bytes of a question."""
MOST_WAITING = 64
"""Most questions in the queue."""
PATIENCE = 30
"""Seconds for a question to arrive, and for a client to take a part of an answer."""
LONGEST_ERROR = 1000
"""Most characters of an error."""
PART = 1 << 16
"""Bytes of an answer that are sent at once."""
HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
"""Headers of every answer; the page contains the rest of its content policy."""


ONWARD = '<!doctype html><title>attnviz</title><meta http-equiv="refresh" content="0;url={}">'
"""The page at the address with the token, which leads on to the secret path."""
MOST_CONNECTIONS = 256
"""Most connections; further ones are closed."""


class DroppedJob(KeyboardInterrupt):
    """The client has gone."""


@dataclass(slots=True, eq=False)
class Job:
    """A question in the queue."""

    is_dropped: bool = False

    def check(self) -> None:
        """Stop the work if its client has gone."""
        if self.is_dropped:
            raise DroppedJob


Work = Callable[[Question], dict[str, Any]]


class JobQueue:
    """Answers questions one at a time, in the order of their arrival."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.one = ThreadPoolExecutor(1, "attnviz")
        self.jobs = list[Job]()  # the first one is being answered
        self.begun = 0.0

    def progress(self) -> dict[str, Any]:
        """The current stage of work, its seconds, and the number of waiting questions."""
        doing = self.answers.doing
        seconds = round(time.monotonic() - self.begun, 3) if doing else 0.0
        return {"doing": doing or None, "seconds": seconds, "waiting": max(self._count() - 1, 0)}

    def _count(self) -> int:
        return sum(not job.is_dropped for job in list(self.jobs))

    def put(self, work: Work, question: Question) -> tuple[Job, asyncio.Future[bytes]]:
        """Queue a question; return its job and its answer to come.

        Raises:
            HTTPException: the queue is full.
        """
        if self._count() >= MOST_WAITING:
            raise HTTPException(429, f"{MOST_WAITING} questions wait: ask again later")
        job = Job()
        self.jobs.append(job)
        future = asyncio.get_running_loop().run_in_executor(
            self.one, self._answer, job, work, question
        )
        # If the client has gone, nobody reads the exception, and asyncio would warn of that.
        future.add_done_callback(lambda answer: answer.exception())
        return job, future

    def _answer(self, job: Job, work: Work, question: Question) -> bytes:
        self.begun = time.monotonic()
        try:
            with notices.ask_at_pauses(job.check):
                return orjson.dumps(work(question))
        finally:
            self.answers.doing = ""
            self.jobs.remove(job)


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """The rules that let clients in.

    Attributes:
        names: names of this machine in addresses.
        port: the port of the server.
        wide: True if other machines may connect; then any IP address is a name.
        token: the secret in the address that the user sees.
        cookie: the secret that a browser gets for the token.
        room: the secret path of the cookie.
    """

    names: frozenset[str]
    port: int
    wide: bool = False
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    cookie: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    room: str = field(default_factory=lambda: f"/{secrets.token_urlsafe(16)}/")

    @property
    def cookie_name(self) -> str:
        """A name for each port, since servers on other ports of this machine share cookies."""
        return f"attnviz-{self.port}"

    def refusal(self, request: Request) -> str:
        """The reason to refuse a request, or an empty text."""
        headers = request.headers
        host, path = headers.get("host", ""), request.scope["path"]
        if not self.knows(host):
            return "this address is not the one that attnviz serves"
        opens = path == "/" and _same(request.query_params.get("token", ""), self.token)
        if opens or path == "/favicon.ico":  # which a browser asks for without the cookie
            return ""
        origin = headers.get("origin")
        site = headers.get("sec-fetch-site", "none")
        if origin not in (None, f"http://{host}") or site not in ("none", "same-origin"):
            return "pages of other sites are not answered"
        kind, _, credentials = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and _same(credentials.strip(), self.token):
            return ""
        if not _same(request.cookies.get(self.cookie_name, ""), self.cookie):
            return "the token is missing: open the address that 'attnviz live' has printed"
        silent = origin is None and request.method not in ("GET", "HEAD")
        line = "no page says that it asks (Origin); a program sends the token itself"
        return line if silent else ""

    def knows(self, host: str) -> bool:
        """Whether a Host header names this machine and port."""
        name, _, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
        if not port.isdecimal():
            name, port = host, "80"
        if port != str(self.port):
            return False
        if name.lower() in self.names:
            return True
        with suppress(ValueError):  # DNS cannot make an IP address point elsewhere
            return self.wide and bool(ip_address(name.strip("[]")))
        return False


def _same(candidate: str, secret: str) -> bool:
    return hmac.compare_digest(candidate.encode("utf-8", "replace"), secret.encode())


class ChunkedResponse(Response):
    """An answer in parts; it ends early if the client does not take a part in time."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        head = {"status": self.status_code, "headers": self.raw_headers}
        body = memoryview(self.body)
        with suppress(TimeoutError):
            await send({"type": "http.response.start", **head})
            for first in range(0, len(body) + 1, PART):
                part = bytes(body[first : first + PART])
                more = first + PART <= len(body)
                async with asyncio.timeout(PATIENCE):
                    await send({"type": "http.response.body", "body": part, "more_body": more})


def as_json(value: Any, status: int = 200) -> Response:
    """An answer from a value, or from bytes that are JSON already."""
    body = value if isinstance(value, bytes) else orjson.dumps(value)
    return ChunkedResponse(body, status, HEADERS, "application/json")


def error_response(status: int, why: str) -> Response:
    """An answer with an error in one line."""
    line = printable(" ".join(why.split()))
    if len(line) > LONGEST_ERROR:
        line = f"{line[:LONGEST_ERROR]}…"
    return as_json({"error": line}, status)


def application(queue: JobQueue, policy: AccessPolicy, page: str) -> Starlette:
    """The routes of the page and its interface."""

    async def show(request: Request) -> Response:
        if "token" not in request.query_params:
            return ChunkedResponse(page, 200, HEADERS, "text/html")
        # A redirect would not do: if a page of another site (a terminal in a browser) has the link,
        # the browser sends a strict cookie only after a page of this site leads on.
        onward = Response(ONWARD.format(policy.room), 200, HEADERS, "text/html")
        onward.set_cookie(
            policy.cookie_name, policy.cookie, path=policy.room, httponly=True, samesite="strict"
        )
        return onward

    async def models(_: Request) -> Response:
        return as_json({"models": await asyncio.to_thread(queue.answers.models)})

    async def progress(_: Request) -> Response:
        return as_json(queue.progress())

    async def openapi(_: Request) -> Response:
        return as_json(files(__package__).joinpath("openapi.json").read_bytes())

    def endpoint(work: Work) -> Callable[[Request], Awaitable[Response]]:
        async def ask(request: Request) -> Response:
            job, answer = queue.put(work, await read_question(request))
            disconnect = asyncio.ensure_future(_wait_for_disconnect(request))
            both: set[asyncio.Future[Any]] = {answer, disconnect}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not disconnect.cancel():
                job.is_dropped = True
                return Response()
            return as_json(await answer)

        return ask

    routes = [
        Route("/", show),
        Route("/favicon.ico", lambda _: Response(status_code=204)),  # browsers always ask for it
        Route("/models", models),
        Route("/progress", progress),
        Route("/openapi.json", openapi),
        Route("/attend", endpoint(queue.answers.attend), methods=["POST"]),
        Route("/ablate", endpoint(queue.answers.ablate), methods=["POST"]),
        Route("/why", endpoint(queue.answers.why), methods=["POST"]),
        Route("/explain", endpoint(queue.answers.explain), methods=["POST"]),
    ]
    handlers: dict[Any, Any] = {
        HTTPException: lambda _, error: error_response(error.status_code, error.detail),
        errors.AttnvizError: lambda _, error: error_response(
            400 if error.status == 2 else 422, str(error)
        ),
        MemoryError: lambda *_: error_response(422, "not enough memory: give less text"),
        ClientDisconnect: lambda *_: Response(),
        Exception: _bug,
    }
    return Starlette(
        routes=routes, exception_handlers=handlers, middleware=[Middleware(Guard, policy=policy)]
    )


class Guard:
    """Applies the access policy to every request."""

    def __init__(self, app: ASGIApp, policy: AccessPolicy) -> None:
        self.app, self.policy = app, policy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["path"].startswith(self.policy.room):
            scope = {**scope, "path": scope["path"][len(self.policy.room) - 1 :]}
        why = self.policy.refusal(Request(scope))
        await (error_response(403, why) if why else self.app)(scope, receive, send)


async def read_question(request: Request) -> Question:
    """The question in a request's body.

    Raises:
        HTTPException: the body is too long, too slow or no question.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, "a question is JSON: send content-type application/json")
    parts, size = [], 0
    try:
        async with asyncio.timeout(PATIENCE):
            async for part in request.stream():
                size += len(part)
                if size <= MOST_BODY:
                    parts.append(part)
                elif size > 4 * MOST_BODY:  # the rest is not even read
                    break
    except TimeoutError as error:
        raise HTTPException(408, f"no question has come in {PATIENCE} seconds") from error
    if size > MOST_BODY:
        raise HTTPException(413, f"a question has {MOST_BODY:,} bytes at most")
    try:
        return msgspec.json.decode(b"".join(parts), type=Question)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if long := _TOO_LONG.search(str(error)):
            most = f"{int(long[1]):,} characters are read at most"
            raise HTTPException(400, f"the {long[2]} is too long: {most}") from error
        raise HTTPException(400, f"this is no question: {error}") from error


_TOO_LONG = re.compile(r"`str` of length <= (\d+) - at `\$\.(source|target)`")


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _bug(_: Request, error: Exception) -> Response:
    traceback.print_exception(error)
    return error_response(500, f"a mistake of attnviz: {type(error).__name__}")


def open_listener(host: str, port: int) -> socket.socket:
    """A socket that listens on host and port; port 0 takes any free one.

    Raises:
        OutputError: the system refuses.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise errors.OutputError(f"cannot listen on {host} port {port}: {why}") from error


def serve(listener: socket.socket, answers: Answers, policy: AccessPolicy, page: str) -> None:
    """Answer until a signal ends the process."""
    # Clients get their own mistakes as answers, and `_bug` prints ours.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    server = _Server(
        uvicorn.Config(
            application(JobQueue(answers), policy, page),
            http=Connection,
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=0,
        )
    )
    asyncio.run(server.serve([listener]))


class Connection(H11Protocol):
    """A connection; it closes if no request begins within `PATIENCE` seconds."""

    late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request, unless there are too many connections."""
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Read a part of a request."""
        super().data_received(data)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        super().connection_lost(exc)
        if self.late is not None:
            self.late.cancel()

    def _wait(self) -> None:
        """Start the timer between requests, and stop it while one is being answered."""
        is_busy = self.cycle is not None and not self.cycle.response_complete
        if is_busy and self.late is not None:
            self.late.cancel()
            self.late = None
        elif not is_busy and self.late is None:
            self.late = self.loop.call_later(PATIENCE, self.transport.abort)


class _Server(uvicorn.Server):
    """A server that ends at the first signal, even with open connections."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close all connections: since Python 3.12 closing a server waits for the last of them."""
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await super().shutdown(sockets)
