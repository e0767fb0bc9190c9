"""A worker: sessions of one task, played by a `Host`, in the form that AgentRL's controllers ask for.

Decided here: how many sessions there are at once, what happens to those that nobody asks for any more, how a worker
tells the controller that it lives, and how it leaves.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

import msgspec

from harness.core import Env
from harness.service.catalogue import Catalogue
from harness.service.hosts import Host, Said
from harness.service.http import Broken, Http, Unreachable
from harness.service.once import Once
from harness.service.protocol import (
    OPENING,
    Description,
    Heartbeat,
    Held,
    Refused,
    WorkerStart,
    base_url,
    encode,
    read_turn,
    told_settings,
)
from harness.service.settings import WorkerSettings

CONCURRENCY = 128
"""Where neither the settings nor the environment say."""
KEPT = 1024
"""Finished sessions whose last answer can be asked for again."""
KEPT_SECONDS = 60.0
SWEEP_SECONDS = 5.0
CALL_SECONDS = 5.0
RETRY_SECONDS = 2.0
DRAIN_LOOK_SECONDS = 0.1


class _Session:
    """One session of the worker."""

    def __init__(self, asked: WorkerStart) -> None:
        self.index = asked.index
        self.request_id = asked.request_id or ""
        self.turns: Once[Said] = Once()
        self.used = time.monotonic()


class Worker:
    """The state of a worker; `start_sample`, `interact` and `cancel` are what a controller asks of it."""

    def __init__(
        self, settings: WorkerSettings, env: Env, catalogue: Catalogue, host: Host, processes: int = 0
    ) -> None:
        self.settings = settings
        self.catalogue = catalogue
        self.host = host
        self.address = settings.address or ""
        self.instance = secrets.token_hex(8)
        self.concurrency = settings.concurrency or CONCURRENCY
        if env.max_sessions:
            self.concurrency = min(self.concurrency, env.max_sessions * max(1, processes))
        self.draining = False
        self.trouble = ""
        """Why the controller does not know this worker; "" where it does."""
        self.registered = asyncio.Event()
        self.sessions: dict[int, _Session] = {}
        self._kept: OrderedDict[int, _Session] = OrderedDict()
        """Finished ones."""
        self._http = Http()
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Start the host and begin to look after sessions."""
        await self.host.open()
        self._tasks.append(asyncio.create_task(self._sweep()))

    def register(self, address: str) -> None:
        """Begin to tell the controller, if there is one, that this worker is to be reached at `address`."""
        self.address = base_url(self.settings.address or address)
        if self.settings.controller is not None:
            self._tasks.append(asyncio.create_task(self._beat()))

    async def drain(self, seconds: float) -> None:
        """Take no new session, and wait until those under way have ended."""
        self.draining = True
        await self._tell()
        until = time.monotonic() + seconds
        while self.sessions and time.monotonic() < until:  # noqa: ASYNC110 - sessions end in many places
            await asyncio.sleep(DRAIN_LOOK_SECONDS)

    async def close(self) -> None:
        """Leave the controller and end everything."""
        self.draining = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._tell(leaving=True)
        await self.host.close()
        self._http.close()

    async def start_sample(self, asked: WorkerStart) -> bytes:
        """Begin a session and return its opening, an `Out` as JSON. The same request again gets the same opening."""
        session = self.sessions.get(asked.session_id) or self._kept.get(asked.session_id)
        if session is not None:
            if session.index != asked.index or session.turns.turn > OPENING + 1:
                raise Refused(400, f"session {asked.session_id} exists already")
            return (await self._play(asked.session_id, session, OPENING, _nothing)).body
        if self.draining or len(self.sessions) >= self.concurrency:
            raise Refused(406, f"the worker is full: {self.concurrency} sessions at once", 1)
        task = self.catalogue.find(asked.index, asked.custom_task)
        session = self.sessions[asked.session_id] = _Session(asked)
        start = partial(self.host.start, asked.session_id, task)
        return (await self._play(asked.session_id, session, OPENING, start)).body

    async def interact(self, session_id: int, messages: Sequence[msgspec.Raw], turn: int | None) -> bytes:
        """Play one turn of a session and return an `Out` as JSON. A turn without messages ends it as it stands."""
        session = self._find(session_id)
        step = partial(self.host.step, session_id, read_turn(messages) if messages else None)
        return (await self._play(session_id, session, turn, step)).body

    async def _play(
        self, session_id: int, session: _Session, turn: int | None, act: Callable[[], Awaitable[Said]]
    ) -> Said:
        session.used = time.monotonic()
        try:
            said = await session.turns.play(turn, act)
        except Refused:
            raise
        except BaseException:
            self._end(session_id, "the session failed")
            raise
        session.used = time.monotonic()
        if said.finish:
            self._end(session_id, "the session has finished")
        return said

    def renew(self, session_id: int) -> None:
        """Keep a session whose agent thinks."""
        self._find(session_id).used = time.monotonic()

    def _find(self, session_id: int) -> _Session:
        session = self.sessions.get(session_id) or self._kept.get(session_id)
        if session is None:
            raise Refused(400, "no such session")
        return session

    def _end(self, session_id: int, why: str) -> None:
        """Count a session as ended; its last answer is kept for a while."""
        session = self.sessions.pop(session_id, None)
        if session is None:
            return
        session.turns.over = session.turns.over or Refused(400, why)
        self._kept[session_id] = session
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)

    async def cancel(self, session_id: int) -> None:
        """End a session. Its slot is free when what it held has been given back, or after a few seconds."""
        if session_id in self._kept:
            return
        why = "the session has been cancelled"
        self._find(session_id).turns.over = Refused(400, why)
        await self.host.cancel(session_id)
        self._end(session_id, why)

    async def cancel_all(self) -> int:
        """End every session; return how many there were."""
        there = tuple(self.sessions)
        await asyncio.gather(*(self.cancel(session_id) for session_id in there), return_exceptions=True)
        return len(there)

    async def describe(self) -> Description:
        """Return what this worker serves."""
        settings = self.settings
        lines, tool_sets = self.catalogue.lines()
        return Description(
            name=settings.task,
            env=self.catalogue.env.name,
            split=settings.split,
            turn_limit=self.catalogue.env.turn_limit,
            rules=settings.rules,
            settings=told_settings(settings.settings),
            protocol=await self.host.protocol(settings.split),
            tasks=lines,
            tool_sets=tool_sets,
        )

    async def _sweep(self) -> None:
        """End sessions that nobody asks for, for ever."""
        while True:
            await asyncio.sleep(min(SWEEP_SECONDS, self.settings.idle / 2))
            now = time.monotonic()
            idle = [
                session_id
                for session_id, session in self.sessions.items()
                if now - session.used > self.settings.idle and not session.turns.busy
            ]
            for session_id in idle:
                with suppress(Refused):
                    await self.cancel(session_id)
            while self._kept and now - next(iter(self._kept.values())).used > KEPT_SECONDS:
                self._kept.popitem(last=False)

    async def _beat(self) -> None:
        """Tell the controller that this worker lives, for ever."""
        while True:
            heard = await self._tell()
            if heard:
                self.registered.set()
            await asyncio.sleep(self.settings.heartbeat if heard else min(RETRY_SECONDS, self.settings.heartbeat))

    async def _tell(self, *, leaving: bool = False) -> bool:
        """Send one heartbeat; return whether the controller took it."""
        settings = self.settings
        if settings.controller is None or not self.address:
            return False
        beat = Heartbeat(
            name=settings.task,
            address=self.address,
            concurrency=0 if self.draining else self.concurrency,
            indices=list(self.catalogue.indices),
            instance=self.instance,
            leaving=leaving,
            restarts=self.host.restarts,
            sessions=[*_held(self.sessions, finished=False), *_held(self._kept, finished=True)],
        )
        token = settings.access.worker_token
        try:
            reply = await self._http.request(
                "POST",
                f"{base_url(settings.controller)}/receive_heartbeat",
                body=encode(beat),
                headers={"authorization": f"Bearer {token}"} if token else {},
                seconds=CALL_SECONDS,
            )
        except (Unreachable, Broken, TimeoutError) as error:
            self.trouble = f"the controller does not answer: {error or type(error).__name__}"
            return False
        self.trouble = (
            ""
            if reply.status == 200
            else f"the controller refuses this worker: {reply.body[:300].decode(errors='replace')}"
        )
        return reply.status == 200


def _held(sessions: Mapping[int, _Session], *, finished: bool) -> Iterator[Held]:
    """Tell of sessions as a controller needs to know them that goes on with them."""
    for session_id, session in sessions.items():
        yield Held(session_id, session.index, session.turns.turn, finished, session.request_id)


async def _nothing() -> Said:
    raise Refused(400, "the session exists already")
