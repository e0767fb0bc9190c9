"""Where a worker's sessions are played: `Host` is what a worker needs of such a place, `Local` is this very process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from harness.core import Env, Json, Message, Task
from harness.rollout import healthy
from harness.service.episode import Episode
from harness.service.protocol import Out, Refused, encode

CANCEL_SECONDS = 5.0
"""How long a cancellation is waited for; closing may take longer, and goes on."""


class Said(NamedTuple):
    """One answer: an `Out` as JSON, and whether it was the last."""

    body: bytes
    finish: bool


class Host(Protocol):
    """A place where sessions are played."""

    restarts: int
    """How often a part of it has been replaced because it broke."""

    async def open(self) -> None:
        """Start it. SetupError where the environment cannot run here."""
        ...

    async def close(self) -> None:
        """End every session and all that `open` started."""
        ...

    async def start(self, session_id: int, task: Task) -> Said:
        """Begin a session."""
        ...

    async def step(self, session_id: int, message: Message | None) -> Said:
        """Play one turn; None ends the session, graded as it stands."""
        ...

    async def cancel(self, session_id: int) -> None:
        """End a session, and wait a moment until it has given everything back."""
        ...

    async def protocol(self, split: str) -> Mapping[str, Json]:
        """Return what a score on this split depends on."""
        ...

    async def healthy(self) -> bool:
        """Whether the environment is well, whatever became of any session."""
        ...


class Local:
    """Plays sessions in this process, for an environment whose work is awaiting."""

    def __init__(self, env: Env) -> None:
        self.restarts = 0
        self._env = env
        self._episodes: dict[int, Episode] = {}
        self._ending: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Open the environment."""
        await self._env.open()

    async def close(self) -> None:
        """End every session, then the environment."""
        await asyncio.gather(*(self.cancel(session_id) for session_id in tuple(self._episodes)))
        await asyncio.gather(*self._ending)
        await self._env.close()

    async def start(self, session_id: int, task: Task) -> Said:
        """Begin a session."""
        episode = self._episodes[session_id] = Episode(self._env, task)
        return self._said(session_id, await episode.start())

    async def step(self, session_id: int, message: Message | None) -> Said:
        """Play one turn, or end the session as it stands."""
        if (episode := self._episodes.get(session_id)) is None:
            raise Refused(400, "no such session")
        return self._said(session_id, await (episode.finish() if message is None else episode.step(message)))

    def _said(self, session_id: int, out: Out) -> Said:
        if out.finish:
            self._episodes.pop(session_id, None)
        return Said(encode(out), out.finish)

    async def cancel(self, session_id: int) -> None:
        """End a session."""
        if (episode := self._episodes.pop(session_id, None)) is None:
            return
        ending = asyncio.create_task(episode.cancel())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
        await asyncio.wait([ending], timeout=CANCEL_SECONDS)

    async def protocol(self, split: str) -> Mapping[str, Json]:
        """Return what a score on this split depends on."""
        return self._env.protocol(split)

    async def healthy(self) -> bool:
        """Ask the environment."""
        return await healthy(self._env)
