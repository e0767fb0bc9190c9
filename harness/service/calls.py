"""What a controller asks of its workers, and what it does in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import msgspec

from harness.service.dispatch import Registered
from harness.service.http import Broken, Http, Reply, Unreachable
from harness.service.protocol import SessionOnly, encode

CANCEL_SECONDS = 10.0
AT_ONCE = 64
"""Of cancellations, so that clearing up does not crowd out play."""


class Calls:
    """The line to all workers."""

    def __init__(self, token: str | None) -> None:
        self._http = Http()
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        self._few = asyncio.Semaphore(AT_ONCE)
        self._background: set[asyncio.Task[Any]] = set()

    async def ask(self, worker: Registered, method: str, path: str, body: bytes, seconds: float) -> Reply:
        """Send a request to a worker; what goes wrong is as `Http.request` has it."""
        url = f"{worker.address}/{path}"
        return await self._http.request(method, url, body=body, headers=self._headers, seconds=seconds)

    async def cancel(self, worker: Registered, session_id: int) -> None:
        """Ask a worker to end a session; what it says to that changes nothing here."""
        async with self._few:
            with suppress(Unreachable, Broken, TimeoutError):
                await self.ask(worker, "POST", "cancel", encode(SessionOnly(session_id)), CANCEL_SECONDS)

    async def renew(self, worker: Registered, session_id: int) -> None:
        """Tell a worker that a session is still wanted."""
        async with self._few:
            with suppress(Unreachable, Broken, TimeoutError):
                await self.ask(worker, "POST", "renew", encode(SessionOnly(session_id)), CANCEL_SECONDS)

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something in the background, until `close`."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def close(self) -> None:
        """End what is done in the background, and every connection."""
        background = tuple(self._background)
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        self._http.close()


def text_of(reply: Reply) -> str:
    """Return what a refusal says: the sentence in it, or its beginning."""
    try:
        said = msgspec.json.decode(reply.body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        said = None
    detail = (said.get("detail") or said.get("error")) if isinstance(said, dict) else None
    return str(detail or reply.body[:200].decode(errors="replace"))[:500]
