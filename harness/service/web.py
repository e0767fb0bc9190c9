"""What controller and worker share as HTTP servers: the gate before every request, bodies, answers, and the socket."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from harness.errors import SetupError
from harness.service.access import Guard, Party, split_token
from harness.service.protocol import SESSION_HEADER, TURN_HEADER, Refused, encode

BODY_SECONDS = 30.0
MOST_CONNECTIONS = 16_384
KEEP_ALIVE_SECONDS = 75
STOP_SECONDS = 5
BACKLOG = 2048
LARGEST_INTEGER = 2**63 - 1

Endpoint = Callable[[Request], Awaitable[Response]]


def answer(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a value as JSON."""
    return Response(encode(content), status, headers, "application/json")


def refusal(error: Refused) -> Response:
    """Return a refusal as JSON, under both names that clients look for."""
    headers = {} if error.retry_after is None else {"Retry-After": str(max(1, round(error.retry_after)))}
    return answer({"error": str(error), "detail": str(error)}, error.status, headers)


def application(routes: dict[str, tuple[str, Endpoint]], guard: Guard, party_of: Callable[[str], Party]) -> ASGIApp:
    """Return the app that serves `routes` (path -> method and endpoint) behind the gate."""
    app = Starlette(
        routes=[Route(path, endpoint, methods=[method]) for path, (method, endpoint) in routes.items()],
        exception_handlers={Refused: _on_refused, HTTPException: _on_http, ClientDisconnect: _on_disconnect},
    )
    app.router.redirect_slashes = False
    return Gate(app, guard, party_of)


def _on_refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)  # noqa: S101 - registered for it
    return refusal(error)


def _on_http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for it
    return answer({"error": error.detail, "detail": error.detail}, error.status_code, dict(error.headers or {}))


def _on_disconnect(_: Request, error: Exception) -> Response:
    return refusal(Refused(400, "the request ended half-way"))


class Gate:
    """Lets through what `Guard` allows; takes the token out of the path."""

    def __init__(self, app: ASGIApp, guard: Guard, party_of: Callable[[str], Party]) -> None:
        self._app = app
        self._guard = guard
        self._party_of = party_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        token, path = split_token(scope["path"])
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            self._guard.check(self._party_of(path), token, headers)
        except Refused as error:
            await refusal(error)(scope, receive, send)
            return
        if token is not None:
            scope = {**scope, "path": path, "raw_path": path.encode()}
        await self._app(scope, receive, send)


async def read_body(request: Request, most: int) -> bytes:
    """Return a request's body. Refused where it is longer than `most` bytes, or does not come."""
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > most:
        raise Refused(413, f"the request is longer than {most} bytes")
    pieces, size = [], 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for piece in request.stream():
                size += len(piece)
                if size > most:
                    raise Refused(413, f"the request is longer than {most} bytes")
                pieces.append(piece)
    except TimeoutError as error:
        raise Refused(408, f"the request did not come within {BODY_SECONDS:g} s") from error
    return b"".join(pieces)


def session_in(request: Request) -> int | None:
    """Return the session that a header names; None where none does."""
    return _integer(request, SESSION_HEADER)


def turn_in(request: Request) -> int | None:
    """Return the turn that a header names; None where none does."""
    return _integer(request, TURN_HEADER)


def _integer(request: Request, name: str) -> int | None:
    text = request.headers.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= LARGEST_INTEGER):
        raise Refused(400, f"the header {name} must be a whole number")
    return int(text)


def decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Return a decoder of one kind of request."""
    return msgspec.json.Decoder(kind)


class _Server(uvicorn.Server):
    """Leaves signals to the command that runs it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture nothing."""
        yield


@asynccontextmanager
async def serving(app: ASGIApp, bound: socket.socket) -> AsyncIterator[None]:
    """Serve on a socket while the block runs."""
    config = uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        lifespan="off",
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    server = _Server(config)
    running = asyncio.create_task(server.serve(sockets=[bound]))
    try:
        yield
    finally:
        server.should_exit = True
        await running


def bind(host: str, port: int) -> socket.socket:
    """Listen on a host and port; 0 takes a free one. SetupError where that cannot be."""
    raise_file_limit()
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise SetupError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; choose others with --host and --port"
        ) from error
    bound.set_inheritable(False)
    return bound


def address_of(bound: socket.socket) -> str:
    """Return the address that a socket listens on, as a URL without a path."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def raise_file_limit() -> None:
    """Allow as many open files as this process may have: each session is a connection."""
    with suppress(ValueError, OSError):
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
