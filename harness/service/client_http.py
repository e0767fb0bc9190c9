"""Requests to a controller, with waits, retries and deadlines: `Line` is one controller as a client sees it.

Decided here: a request that certainly did not arrive is sent again, to any controller. One that may have arrived is
sent again to ours alone, which plays a numbered turn once however often it is asked for; to a foreign controller that
would be a second turn, so the session counts as lost. A controller that is full is asked again when it says, for a
bounded time. What cannot be mended is a `LostError`, which costs the one attempt.
"""

from __future__ import annotations

import asyncio
import os
import random
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from harness.core import Json, Message
from harness.errors import LostError, SetupError
from harness.models.faults import Fault, retry_after
from harness.models.redact import redact
from harness.models.wire import mapping
from harness.service.client_answers import Answer, Garbled, encode_reply, read_answer, read_body
from harness.service.protocol import REQUEST_HEADER, SESSION_HEADER, TURN_HEADER, base_url

if TYPE_CHECKING:
    import httpx2

TOKEN = "HARNESS_CONTROLLER_TOKEN"  # noqa: S105 - the variable's name
START_SECONDS = 110.0
"""How long a start may wait for room; below what the rollout gives a session to open."""
STEP_SECONDS = 280.0
"""Of one turn; below what the rollout gives it, above a controller's own four minutes."""
ASK_SECONDS = 30.0
CONTACT_SECONDS = 5.0
"""Of the first request: whether there is a controller at all."""
CANCEL_SECONDS = 5.0
TRY_SECONDS = 60.0
"""After which a request that may be repeated is: a connection may be dead without a word."""
MOST_GARBLED = 3
LONGEST_WAIT = 15.0
KEEPALIVE_SECONDS = 2.0
"""Servers close idle connections after five seconds: a request must not meet one that is just being closed."""
BUSY = {406, 429, 503}


class Reply(NamedTuple):
    """A reply that said 200."""

    headers: Mapping[str, str]
    body: Json


class Patience(NamedTuple):
    """How one request is made."""

    seconds: float
    again: bool = False
    """Whether sending it twice does the same as once."""
    waits: bool = False
    """Whether a controller without room is asked again."""


class Busy(Exception):  # noqa: N818 - stays inside this module
    """The controller has no room now."""

    def __init__(self, message: str, wait: float | None) -> None:
        super().__init__(message)
        self.wait = wait


class MissingError(LostError):
    """The controller has no such session, task or endpoint."""


class Unsure(Exception):  # noqa: N818 - stays inside this module
    """The request may have arrived, and no usable answer did."""


def address_of(url: str) -> str:
    """Return the API's address. SetupError where it is none, or holds a secret, which a run log would keep."""
    scheme, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    if scheme not in ("http", "https") or not host or any(mark in rest for mark in "?# "):
        raise SetupError(f"'{redact(url)}' is no controller's address: give one like http://host:5020")
    if "@" in host or path.startswith("t/"):
        raise SetupError(
            "the controller's address holds a secret, and a run's folder keeps addresses: give http://host:port alone, "
            f"and the token in the variable {TOKEN}"
        )
    return base_url(url)


class Line:
    """One controller, spoken to over HTTP."""

    def __init__(self, url: str) -> None:
        self.url = address_of(url)
        self.ours = False
        """Whether it is a controller of this project, to which requests may be repeated."""
        self._client: httpx2.AsyncClient | None = None

    async def open(self) -> str:
        """Find out what the controller is, and return what it says of its version. SetupError where there is none."""
        from harness.models.transport import make_client

        token = os.environ.get(TOKEN)
        if token is not None and not token.isascii():
            raise SetupError(f"the token in {TOKEN} has letters that no token of a controller has")
        self._client = make_client(self.url, STEP_SECONDS, keepalive_seconds=KEEPALIVE_SECONDS)
        if token:
            self._client.headers["authorization"] = f"Bearer {token}"
        try:
            said = await self.ask("GET", "version", Patience(CONTACT_SECONDS, again=True))
        except MissingError:
            return "unknown"
        except LostError as error:
            await self.close()
            raise SetupError(
                f"no controller to play with at {self.url}: {error}; start it, or one of ours with harness serve"
            ) from error
        fields = mapping(said.body)
        self.ours = fields.get("service") == "harness"
        version = fields.get("version", said.body)
        return version[:100] if isinstance(version, str) else "unknown"

    async def close(self) -> None:
        """End all connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def start(self, name: str, index: int | str) -> tuple[int, Answer]:
        """Begin a session, waiting for room where there is none."""
        reply = await self.ask(
            "POST",
            "start_sample",
            Patience(START_SECONDS, again=self.ours, waits=True),
            headers={REQUEST_HEADER: uuid.uuid4().hex},
            body={"name": name, "index": index},
        )
        with _reading("start_sample"):
            return _session_of(reply), read_answer(reply.body)

    async def interact(self, session: int, turn: int, message: Message) -> Answer:
        """Hand in one turn."""
        reply = await self.ask(
            "POST",
            "interact",
            Patience(STEP_SECONDS, again=self.ours, waits=True),
            headers={SESSION_HEADER: str(session), TURN_HEADER: str(turn)},
            body={"messages": [encode_reply(message)]},
        )
        with _reading("interact"):
            return read_answer(reply.body)

    async def finish(self, session: int, turn: int) -> Answer:
        """End a session of ours as it stands, graded."""
        headers = {SESSION_HEADER: str(session), TURN_HEADER: str(turn)}
        reply = await self.ask(
            "POST", "finish", Patience(STEP_SECONDS, again=True, waits=True), headers=headers, body={}
        )
        with _reading("finish"):
            return read_answer(reply.body)

    async def cancel(self, session: int) -> None:
        """End a session, whatever has become of it."""
        headers = {SESSION_HEADER: str(session)}
        await self.ask("POST", "cancel", Patience(CANCEL_SECONDS, again=True), headers=headers, body={})

    async def renew(self, session: int) -> None:
        """Tell a controller of ours that a session is still wanted."""
        headers = {SESSION_HEADER: str(session)}
        await self.ask("POST", "renew", Patience(CANCEL_SECONDS, again=True), headers=headers, body={})

    async def ask(
        self,
        method: str,
        path: str,
        patience: Patience,
        *,
        headers: Mapping[str, str] | None = None,
        body: Json = None,
    ) -> Reply:
        """Make one request, repeated as far as that is safe. LostError, or MissingError for a 404."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience.seconds
        garbled = waits = failures = 0
        while True:
            left = deadline - loop.time()
            try:
                return await self._send(method, path, min(left, TRY_SECONDS) if patience.again else left, headers, body)
            except Busy as error:
                waits += 1
                wait = min(LONGEST_WAIT, error.wait or _backoff(waits, 1.0))
                if not patience.waits or loop.time() + wait >= deadline:
                    raise LostError(f"the controller has no room: {error} (asked {waits} times)") from error
            except Garbled as error:
                garbled += 1
                wait = _backoff(garbled, 0.05)
                if not patience.again or garbled > MOST_GARBLED:
                    raise LostError(f"the controller's answer to {path} is not understood: {error}") from error
            except (Unsure, ConnectionError) as error:
                failures += 1
                wait = _backoff(failures, 0.05)
                arrived = isinstance(error, Unsure)
                if (arrived and not patience.again) or loop.time() + wait >= deadline:
                    raise LostError(f"the controller is lost at {path}: {error}") from error
            await asyncio.sleep(wait)

    async def _send(
        self, method: str, path: str, seconds: float, headers: Mapping[str, str] | None, body: Json
    ) -> Reply:
        """Make one request once. ConnectionError where it certainly did not arrive."""
        import httpx2

        if self._client is None:
            raise LostError("the connection to the controller is closed")
        content = None if body is None else msgspec.json.encode(body)
        every = {"content-type": "application/json", **(headers or {})} if content is not None else headers
        try:
            async with asyncio.timeout(seconds):
                response = await self._client.request(method, f"{self.url}/{path}", content=content, headers=every)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise ConnectionError(f"no connection ({error or type(error).__name__})") from error
        except httpx2.HTTPError as error:
            raise Unsure(f"the connection broke ({error or type(error).__name__})") from error
        except TimeoutError as error:
            raise Unsure(f"no answer within {seconds:.0f} s") from error
        except Fault as error:
            raise Garbled(str(error)) from error
        if response.status_code != 200:
            raise _refusal(path, response.status_code, response.headers, response.content)
        return Reply(response.headers, read_body(response.content))


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """Turn an answer that is not understood into a lost session."""
    try:
        yield
    except Garbled as error:
        raise LostError(f"the controller's answer to {path} is not understood: {error}") from error


def _backoff(tries: int, first: float) -> float:
    return min(LONGEST_WAIT, first * 2.0 ** min(tries - 1, 10)) * random.uniform(0.5, 1.0)


def _refusal(path: str, status: int, headers: Mapping[str, str], body: bytes) -> Exception:
    """Say what a status other than 200 means."""
    text = _told(body)
    wait = retry_after(headers)
    unbegun = path == "start_sample" and (wait is not None or "workers available" in text.lower())
    unheard = status == 404 and wait is not None  # a controller that was just started may yet hear of the session
    if status in BUSY or unheard or (unbegun and status in (400, 502)):
        return Busy(f"{status} {text}", wait)
    if status == 502 and path.startswith("describe"):
        return Unsure(f"{status} {text}")  # the line to its worker broke; asking again costs nothing
    if status in (401, 403):
        return LostError(f"the controller refuses {path} ({status} {text}): its token goes into the variable {TOKEN}")
    if status == 404:
        return MissingError(f"the controller has nothing to answer {path} with ({status} {text})")
    return LostError(f"the controller refuses {path} ({status} {text})")


def _told(body: bytes) -> str:
    """Return the sentence in an error's body."""
    text = body[:2000].decode(errors="replace")
    try:
        fields = mapping(msgspec.json.decode(body))
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        fields = {}
    for name in ("error", "detail", "message"):
        if isinstance(said := fields.get(name), str):
            text = said
            break
    return redact(" ".join(text.split())[:300])


def _session_of(reply: Reply) -> int:
    text = reply.headers.get(SESSION_HEADER, mapping(reply.body).get(SESSION_HEADER))
    if isinstance(text, str | int) and not isinstance(text, bool) and str(text).isdecimal() and len(str(text)) < 20:
        return int(text)
    raise Garbled(f"the session's number is {str(text)[:40]!r}")
