"""The page and its answers over HTTP, for whoever has the token and nobody else.

Who opens the address with the token gets a cookie in its place, which a browser never sends from
another site's page (SameSite=Strict). A cookie goes to every port of a host, and so to servers of
other users: this one is for a path that nobody else knows. A program sends the token itself
(`Authorization: Bearer TOKEN`). A name that somebody lets point here is refused by its Host (DNS
rebinding), another site's page by its Origin. The interface is described in `openapi.json`.
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
from dataclasses import dataclass, field
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

from attnviz.core.errors import AttnvizError, OutputError
from attnviz.core.notices import pausing
from attnviz.renderers.printable import printable
from attnviz.runs.answering import MOST_PICTURE, Answers, Question

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

MOST_BODY = MOST_PICTURE + (1 << 20)
"""Bytes of a question."""
MOST_WAITING = 64
"""Questions that wait for their turn; more are refused."""
PATIENCE = 30
"""Seconds in which a question must have come, and in which a part of an answer must be taken."""
LONGEST_SAID = 1000
"""Characters of an error."""
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
"""What every answer says; the rest of the page's content policy stands in the page."""


ONWARD = '<!doctype html><title>attnviz</title><meta http-equiv="refresh" content="0;url={}">'
"""What the address with the token shows, without which it then goes on."""
MOST_CONNECTIONS = 256
"""Clients at once; who comes on top is hung up on."""


class Dropped(KeyboardInterrupt):
    """Nobody waits for the answer any more."""


@dataclass(slots=True, eq=False)
class Job:
    """A question on its way."""

    dropped: bool = False

    def check(self) -> None:
        """End the work where nobody waits for it."""
        if self.dropped:
            raise Dropped


Work = Callable[[Question], dict[str, Any]]


class JobQueue:
    """Where questions are answered, one at a time, in the order in which they came."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.one = ThreadPoolExecutor(1, "attnviz")
        self.jobs = list[Job]()  # the one that is worked on first
        self.begun = 0.0

    def progress(self) -> dict[str, Any]:
        """What is done now, for how long, and how many questions wait behind it."""
        doing = self.answers.doing
        seconds = round(time.monotonic() - self.begun, 3) if doing else 0.0
        return {"doing": doing or None, "seconds": seconds, "waiting": max(self.wanted - 1, 0)}

    @property
    def wanted(self) -> int:
        """How many questions somebody waits for."""
        return sum(not job.dropped for job in list(self.jobs))

    def put(self, work: Work, question: Question) -> tuple[Job, asyncio.Future[bytes]]:
        """Take a question in, and say what will answer it.

        Raises:
            HTTPException: too many wait.
        """
        if self.wanted >= MOST_WAITING:
            raise HTTPException(429, f"{MOST_WAITING} questions wait: ask again later")
        job = Job()
        self.jobs.append(job)
        future = asyncio.get_running_loop().run_in_executor(
            self.one, self._answer, job, work, question
        )
        future.add_done_callback(lambda done: done.exception())  # who asked may have gone
        return job, future

    def _answer(self, job: Job, work: Work, question: Question) -> bytes:
        self.begun = time.monotonic()
        try:
            with pausing(job.check):
                return orjson.dumps(work(question))
        finally:
            self.answers.doing = ""
            self.jobs.remove(job)


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """Who is let in.

    Attributes:
        names: what this machine is called in addresses.
        port: the port that is listened to.
        wide: whether it is listened to from other machines, which may call it by any number.
        token: what stands in the address that is shown to the user.
        cookie: what a browser gets for it.
        room: the path under which a browser asks, with that cookie.
    """

    names: frozenset[str]
    port: int
    wide: bool = False
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    cookie: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    room: str = field(default_factory=lambda: f"/{secrets.token_urlsafe(16)}/")

    @property
    def cookie_name(self) -> str:
        """Servers on other ports of this machine share its cookies, but not their names."""
        return f"attnviz-{self.port}"

    def refusal(self, request: Request) -> str:
        """Why a request is refused; empty: it is not."""
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
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and _same(given.strip(), self.token):
            return ""
        if not _same(request.cookies.get(self.cookie_name, ""), self.cookie):
            return "the token is missing: open the address that 'attnviz serve' has printed"
        silent = origin is None and request.method not in ("GET", "HEAD")
        return "no page says that it asks (Origin); a program sends the token itself" * silent

    def knows(self, host: str) -> bool:
        """Whether a Host is a name of this machine, with the port."""
        name, _, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
        if not port.isdecimal():
            name, port = host, "80"
        if port != str(self.port):
            return False
        if name.lower() in self.names:
            return True
        with suppress(ValueError):  # a number cannot be made to point elsewhere
            return self.wide and bool(ip_address(name.strip("[]")))
        return False


def _same(given: str, secret: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), secret.encode())


class ChunkedResponse(Response):
    """An answer that is sent in parts; whoever takes none for long is left alone."""

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
    """Values, or JSON as it is, as an answer."""
    body = value if isinstance(value, bytes) else orjson.dumps(value)
    return ChunkedResponse(body, status, HEADERS, "application/json")


def refused(status: int, why: str) -> Response:
    """An error in one line."""
    line = printable(" ".join(why.split()))
    return as_json(
        {"error": line if len(line) <= LONGEST_SAID else f"{line[:LONGEST_SAID]}…"}, status
    )


def application(desk: JobQueue, door: AccessPolicy, page: str) -> Starlette:
    """The page and its interface."""

    async def show(request: Request) -> Response:
        if "token" not in request.query_params:
            return ChunkedResponse(page, 200, HEADERS, "text/html")
        # Not redirected, but led on by a page of this site, to which the cookie is then sent even
        # if another site's page (a terminal in a browser) had the address.
        moved = Response(ONWARD.format(door.room), 200, HEADERS, "text/html")
        terms: dict[str, Any] = {"path": door.room, "httponly": True, "samesite": "strict"}
        moved.set_cookie(door.cookie_name, door.cookie, **terms)
        return moved

    async def models(_: Request) -> Response:
        return as_json({"models": await asyncio.to_thread(desk.answers.models)})

    async def progress(_: Request) -> Response:
        return as_json(desk.progress())

    async def openapi(_: Request) -> Response:
        return as_json(files(__package__).joinpath("openapi.json").read_bytes())

    def asked(work: Work) -> Callable[[Request], Awaitable[Response]]:
        async def ask(request: Request) -> Response:
            job, answer = desk.put(work, await read_question(request))
            gone = asyncio.ensure_future(_gone(request))
            both: set[asyncio.Future[Any]] = {answer, gone}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not gone.cancel():
                job.dropped = True
                return Response()
            return as_json(await answer)

        return ask

    routes = [
        Route("/", show),
        Route("/favicon.ico", lambda _: Response(status_code=204)),  # browsers ask on their own
        Route("/models", models),
        Route("/progress", progress),
        Route("/openapi.json", openapi),
        Route("/attend", asked(desk.answers.attend), methods=["POST"]),
        Route("/ablate", asked(desk.answers.ablate), methods=["POST"]),
    ]
    handlers: dict[Any, Any] = {
        HTTPException: lambda _, error: refused(error.status_code, error.detail),
        AttnvizError: lambda _, error: refused(400 if error.status == 2 else 422, str(error)),
        MemoryError: lambda *_: refused(422, "not enough memory: give less text"),
        ClientDisconnect: lambda *_: Response(),
        Exception: _bug,
    }
    return Starlette(
        routes=routes, exception_handlers=handlers, middleware=[Middleware(Guard, door=door)]
    )


class Guard:
    """Lets in whom the door lets in."""

    def __init__(self, app: ASGIApp, door: AccessPolicy) -> None:
        self.app, self.door = app, door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["path"].startswith(self.door.room):
            scope = {**scope, "path": scope["path"][len(self.door.room) - 1 :]}
        why = self.door.refusal(Request(scope))
        await (refused(403, why) if why else self.app)(scope, receive, send)


async def read_question(request: Request) -> Question:
    """The question in a request's body.

    Raises:
        HTTPException: it is too long, too slow or none.
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


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _bug(_: Request, error: Exception) -> Response:
    traceback.print_exception(error)
    return refused(500, f"a mistake of attnviz: {type(error).__name__}")


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 is any that is free.

    Raises:
        OutputError: it cannot.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise OutputError(f"cannot listen on {host} port {port}: {why}") from error


def serve(listener: socket.socket, answers: Answers, door: AccessPolicy, page: str) -> None:
    """Answer until the process is told to end."""
    # A client's mistakes are told to the client, and bugs are printed by `_bug`.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    settings: dict[str, Any] = {"ws": "none", "lifespan": "off", "loop": "asyncio"}
    app = application(JobQueue(answers), door, page)
    server = _Server(
        uvicorn.Config(
            app,
            http=Connection,
            **settings,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=0,
        )
    )
    asyncio.run(server.serve([listener]))


class Connection(H11Protocol):
    """A client, one of not too many, who has `PATIENCE` for the head of a request."""

    late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request, where there is room."""
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        super().data_received(data)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        super().connection_lost(exc)
        if self.late is not None:
            self.late.cancel()

    def _wait(self) -> None:
        """Hang up in a while, unless a request is being answered then."""
        answered = self.cycle is not None and not self.cycle.response_complete
        if answered and self.late is not None:
            self.late.cancel()
            self.late = None
        elif not answered and self.late is None:
            self.late = self.loop.call_later(PATIENCE, self.transport.abort)


class _Server(uvicorn.Server):
    """Ends at the first signal, whoever is still connected."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Leave all clients: from Python 3.12 on a socket is closed once the last of them went."""
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await super().shutdown(sockets)
