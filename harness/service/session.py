"""One session of a controller's client, and the call to its worker that is under way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from contextlib import suppress

from harness.service.dispatch import Registered
from harness.service.http import Reply
from harness.service.once import Once
from harness.service.protocol import OPENING, Index, StartSample


class Session:
    """One session of a client's."""

    def __init__(self, session_id: int, asked: StartSample, request_id: str | None) -> None:
        self.id = session_id
        self.name = asked.name
        self.index: Index = asked.index
        self.request_id = request_id
        self.worker: Registered | None = None
        self.turns: Once[bytes] = Once()
        self.used = time.monotonic()
        self.stopped = ""
        """Why what is under way is to end now: "cancelled", "lost", or "closed" with the controller."""
        self._scope: asyncio.Timeout | None = None

    async def guarded(self, work: Awaitable[Reply], seconds: float) -> Reply:
        """Await a worker's answer for so long, or until `stop`."""
        async with asyncio.timeout(seconds) as self._scope:
            return await work

    def stop(self, why: str) -> None:
        """End what is under way."""
        self.stopped = self.stopped or why
        if self._scope is not None:
            with suppress(RuntimeError):  # it has just ended
                self._scope.reschedule(asyncio.get_running_loop().time())

    @property
    def cancelled(self) -> bool:
        """Whether its client wanted it to end, or let it lie."""
        return self.stopped == "cancelled"

    @property
    def closed(self) -> bool:
        """Whether the controller ends, and another one may go on with the session."""
        return self.stopped == "closed"

    @property
    def state(self) -> str:
        """The session's state in one word."""
        if self.turns.over is not None:
            return "finished"
        if self.turns.turn == OPENING:
            return "starting"
        return "busy" if self.turns.busy else "running"
