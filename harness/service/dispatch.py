"""Which worker gets the next session: the live one with most free slots, and a bounded queue where all are full."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from harness.service.protocol import Heartbeat, Index, Refused
from harness.service.settings import ControllerSettings

REST_SECONDS = 1.0
"""How long a worker that said it is full is not asked again."""
RETRY_AFTER = 5.0
MOST_WORKERS = 4096


class Registered:
    """A worker as its heartbeats tell of it, and what it has of us."""

    def __init__(self, beat: Heartbeat) -> None:
        self.name = beat.name
        self.address = beat.address.rstrip("/")
        self.sessions: set[int] = set()
        self.rests_until = 0.0
        self.indices: list[Index] = []
        self.known: frozenset[Index] = frozenset()
        self.hear(beat)

    def hear(self, beat: Heartbeat) -> None:
        """Take a heartbeat."""
        self.seen = time.monotonic()
        self.concurrency = beat.concurrency
        self.instance = beat.instance
        self.restarts = beat.restarts
        if beat.indices != self.indices:
            self.indices, self.known = beat.indices, frozenset(beat.indices)

    def has(self, index: Index) -> bool:
        """Whether the worker has a task; one that names none has all, and 7 may be asked for as "7"."""
        if not self.known or index == -1 or index in self.known:
            return True
        return isinstance(index, str) and index.isascii() and index[:12].isdecimal() and int(index[:12]) in self.known

    @property
    def free(self) -> int:
        """How many more sessions it takes."""
        return self.concurrency - len(self.sessions)


class _Waiter:
    """A session that waits for a slot."""

    def __init__(self, session_id: int, index: Index) -> None:
        self.session_id = session_id
        self.index = index
        self.place: asyncio.Future[Registered] = asyncio.get_running_loop().create_future()


class Heard(NamedTuple):
    """What a heartbeat brings."""

    lost: set[int]
    """Sessions of an earlier process at that address."""
    new: Registered | None
    """The worker, where it was not known."""


class Dispatch:
    """The workers there are, and who waits for them."""

    def __init__(self, settings: ControllerSettings) -> None:
        self._settings = settings
        self._started = time.monotonic()
        self.workers: dict[tuple[str, str], Registered] = {}
        self.waiting: dict[str, deque[_Waiter]] = {}

    def hear(self, beat: Heartbeat) -> Heard:
        """Take a heartbeat."""
        key = (beat.name, beat.address.rstrip("/"))
        worker = self.workers.get(key)
        if beat.leaving:
            return Heard(set() if worker is None else self.workers.pop(key).sessions, None)
        lost: set[int] = set()
        if worker is not None and worker.instance != beat.instance:
            lost = self.workers.pop(key).sessions
            worker = None
        if worker is None and len(self.workers) >= MOST_WORKERS:
            raise Refused(429, f"there are {MOST_WORKERS} workers already", RETRY_AFTER)
        new = None
        if worker is None:
            new = self.workers[key] = Registered(beat)
        else:
            worker.hear(beat)
        self._wake(beat.name)
        return Heard(lost, new)

    @property
    def young(self) -> bool:
        """Whether there may be workers that have not registered since the controller started."""
        return time.monotonic() - self._started < self._settings.coma

    def of(self, name: str) -> list[Registered]:
        """Return the workers of a task, those in coma included."""
        return [worker for (task, _), worker in self.workers.items() if task == name]

    def live(self, worker: Registered) -> bool:
        """Whether a worker has been heard of lately."""
        return time.monotonic() - worker.seen <= self._settings.coma

    def state(self, worker: Registered) -> str:
        """Return a worker's state in one word."""
        if not self.live(worker):
            return "coma"
        return "live" if worker.concurrency else "draining"

    async def acquire(self, name: str, index: Index, session_id: int) -> Registered:
        """Take a slot for a session, waiting for one if need be. Refused where there is none to be had."""
        self._check_known(name, index)
        queue = self.waiting.setdefault(name, deque())
        if not queue and (worker := self._best(name, index)) is not None:
            worker.sessions.add(session_id)
            return worker
        if len(queue) >= self._settings.waiting:
            raise Refused(429, f"too many wait for a free slot of '{name}'", RETRY_AFTER)
        waiter = _Waiter(session_id, index)
        queue.append(waiter)
        try:
            async with asyncio.timeout(self._settings.start_wait):
                return await waiter.place
        except BaseException as error:
            if waiter.place.done() and not waiter.place.cancelled():
                self.release(waiter.place.result(), session_id)
            if isinstance(error, TimeoutError):
                raise Refused(429, f"all workers of '{name}' are full", RETRY_AFTER) from error
            raise
        finally:
            if waiter in queue:
                queue.remove(waiter)

    def release(self, worker: Registered, session_id: int) -> None:
        """Give a slot back."""
        worker.sessions.discard(session_id)
        self._wake(worker.name)

    def rest(self, worker: Registered) -> None:
        """Leave a worker alone for a moment: others use it too, and it says that it is full."""
        worker.rests_until = time.monotonic() + REST_SECONDS
        asyncio.get_running_loop().call_later(REST_SECONDS, self._wake, worker.name)

    def suspect(self, worker: Registered) -> None:
        """Take a worker that could not be reached for one in coma, until its next heartbeat."""
        worker.seen = time.monotonic() - self._settings.coma - 1

    def sweep(self) -> Iterable[Registered]:
        """Forget workers that have been silent for long; return those whose sessions are to be given up."""
        now = time.monotonic()
        silent = self._settings.coma + self._settings.lost
        gone = [worker for worker in self.workers.values() if now - worker.seen > silent]
        for worker in gone:
            if not worker.sessions and now - worker.seen > self._settings.coma + self._settings.forget:
                del self.workers[worker.name, worker.address]
        return gone

    def _check_known(self, name: str, index: Index) -> None:
        workers = self.of(name)
        if not workers:
            if self.young:
                raise Refused(503, f"no worker of '{name}' has registered since the controller started", RETRY_AFTER)
            raise Refused(400, f"no workers available for '{name}'")
        if not any(worker.has(index) for worker in workers):
            raise Refused(400, f"'{name}' has no index {str(index)[:100]!r}")

    def _best(self, name: str, index: Index) -> Registered | None:
        now = time.monotonic()
        able = [
            worker
            for worker in self.of(name)
            if worker.free > 0 and self.live(worker) and worker.rests_until <= now and worker.has(index)
        ]
        return max(able, key=lambda worker: worker.free, default=None)

    def _wake(self, name: str) -> None:
        """Give free slots to those who have waited longest."""
        queue = self.waiting.get(name, deque())
        for waiter in tuple(queue):
            if waiter.place.done():
                continue
            worker = self._best(name, waiter.index)
            if worker is None:
                if all(each.free <= 0 for each in self.of(name)):
                    return
                continue
            queue.remove(waiter)
            worker.sessions.add(waiter.session_id)
            waiter.place.set_result(worker)
