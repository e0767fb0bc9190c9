"""A lean HTTP/1.1 client for calls between controller and worker, which are most of what either does.

Connections are kept and used again, but not once they have been idle for longer than any server keeps them, so that a
request is not written to a connection that is just being closed. A request is sent once: whether it may be repeated is
for the caller to know.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import NamedTuple, cast
from urllib.parse import urlsplit

import httptools

IDLE_SECONDS = 3.0
CONNECT_SECONDS = 5.0
MOST_BYTES = 64 << 20
"""Of one answer."""
MOST_IDLE = 1024
"""Connections kept to one server."""


class Unreachable(Exception):  # noqa: N818 - named after what it tells
    """No connection came about: nothing has been asked."""


class Slow(Unreachable):
    """No connection came about in time. Nobody has refused it: the other side may be busy, and so may this one."""


class Broken(Exception):  # noqa: N818 - named after what it tells
    """The connection ended, or what came was no HTTP: whether the request was carried out is not known."""


class Reply(NamedTuple):
    """An answer, whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Http:
    """Keeps connections to any number of servers."""

    def __init__(self) -> None:
        self._idle: dict[tuple[str, str, int], list[_Connection]] = {}
        self._closed = False

    async def request(
        self, method: str, url: str, *, body: bytes = b"", headers: Mapping[str, str] | None = None, seconds: float
    ) -> Reply:
        """Send a request and return its answer.

        Raises:
            Unreachable: there is no connection to be had.
            Broken: the connection ended half-way.
            TimeoutError: no answer in time; the connection is closed.
        """
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        server = (parts.scheme, parts.hostname or "", port)
        head = [f"{method} {parts.path or '/'}{'?' + parts.query if parts.query else ''} HTTP/1.1"]
        head += [f"host: {parts.netloc.rpartition('@')[2]}", f"content-length: {len(body)}"]
        if body:
            head.append("content-type: application/json")
        head += [f"{name}: {value}" for name, value in (headers or {}).items()]
        frame = "\r\n".join((*head, "\r\n")).encode("latin-1") + body
        async with asyncio.timeout(seconds):
            connection = self._take(server) or await _connect(server)
            try:
                reply = await connection.send(frame)
            except BaseException:
                connection.close()
                raise
        self._keep(server, connection)
        return reply

    def _take(self, server: tuple[str, str, int]) -> _Connection | None:
        """Return the connection that was used last, so that those too many grow old."""
        now = asyncio.get_running_loop().time()
        idle = self._idle.get(server, [])
        while idle:
            connection = idle.pop()
            if connection.usable and now - connection.since < IDLE_SECONDS:
                return connection
            connection.close()
        return None

    def _keep(self, server: tuple[str, str, int], connection: _Connection) -> None:
        idle = self._idle.setdefault(server, [])
        if not connection.usable or self._closed or len(idle) >= MOST_IDLE:
            connection.close()
            return
        connection.since = now = asyncio.get_running_loop().time()
        idle.append(connection)
        if now - idle[0].since >= IDLE_SECONDS:
            idle.pop(0).close()

    def close(self) -> None:
        """Close every idle connection, and each other one when its request is answered."""
        self._closed = True
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()


async def _connect(server: tuple[str, str, int]) -> _Connection:
    scheme, host, port = server
    context = ssl.create_default_context() if scheme == "https" else None
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, connection = await asyncio.get_running_loop().create_connection(_Connection, host, port, ssl=context)
    except TimeoutError as error:
        raise Slow(f"no connection to {host}:{port} within {CONNECT_SECONDS:g} s") from error
    except (OSError, UnicodeError) as error:
        raise Unreachable(f"cannot reach {host}:{port}: {error or type(error).__name__}") from error
    return connection


class _Connection(asyncio.Protocol):
    """One connection, with one request at a time."""

    def __init__(self) -> None:
        self.since = 0.0
        self.usable = True
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Reply] | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._size = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # a stream's, though uvloop's are of another class

    async def send(self, frame: bytes) -> Reply:
        """Send one request and wait for its answer."""
        if self._transport is None or not self.usable:
            raise Broken("the connection is closed")
        self._answer = asyncio.get_running_loop().create_future()
        self._headers, self._body, self._size = {}, [], 0
        self._transport.write(frame)
        return await self._answer

    def close(self) -> None:
        """Close at once."""
        self.usable = False
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        try:
            if self._answer is None or self._answer.done():
                raise httptools.HttpParserError("an answer to no request")
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(f"what came is no HTTP: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"the connection ended: {exc or 'closed by the other side'}")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; the parser calls it."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body; the parser calls it."""
        self._size += len(body)
        if self._size > MOST_BYTES:
            self._fail(f"the answer is longer than {MOST_BYTES} bytes")
        else:
            self._body.append(body)

    def on_message_complete(self) -> None:
        """Hand the answer over; the parser calls it."""
        self.usable = self.usable and self._parser.should_keep_alive()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(Reply(self._parser.get_status_code(), self._headers, b"".join(self._body)))

    def _fail(self, why: str) -> None:
        self.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(Broken(why))
