"""Nothing waits in silence: deadlines that say where everything stands, and a watch on the event loop itself.

Decided here: a deadline that fires first prints every task's chain of awaits, every thread's stack and every queue's
depth, then raises `Overdue`. A loop that is blocked cannot fire its own deadlines, so a thread of its own listens for
its heartbeat. What the numbers of a run say is wrong with it is in `alarms`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import sys
import threading
import time
import traceback
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterator
from types import FrameType
from typing import Any, TextIO

from harness.errors import HarnessError

BEAT_SECONDS = 0.25
MOST_LAGS = 4096
"""Heartbeats that are remembered between two readings."""
MOST_AWAITS = 64
"""Of one task's chain; more are cut."""
MOST_NAMES = 8
"""Of the tasks that stand at the same place."""
QUIET_SECONDS = 5.0
"""After a full report, others are one line: where one thing hangs, all that wait for it are late together."""

Depth = Callable[[], int]


class Overdue(HarnessError):  # noqa: N818 - a time that is up
    """Something did not happen in its time; what everything was doing has been printed."""


class Watch:
    """Deadlines, the queues they report, and the heartbeat of the event loop."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out
        self._queues: dict[str, Depth] = {}
        self._lags: deque[float] = deque(maxlen=MOST_LAGS)
        self._beat = 0.0
        self._reported = -QUIET_SECONDS
        self._loop: asyncio.AbstractEventLoop | None = None
        self.fired = 0
        """How many deadlines fired."""

    def queue(self, name: str, depth: Depth) -> None:
        """Have a queue's depth in every report; a later one of that name takes its place."""
        self._queues[name] = depth

    @contextlib.asynccontextmanager
    async def deadline(self, seconds: float, what: str) -> AsyncIterator[None]:
        """Bound what is awaited inside. Overdue after a full report where its time is up."""
        why = f"{what} took more than {seconds:g} seconds"
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as limit:

                def fire() -> None:
                    self.report(why)  # first: what the deadline cuts off must still stand
                    limit.reschedule(loop.time())

                handle = loop.call_later(seconds, fire)
                try:
                    yield
                finally:
                    handle.cancel()
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise Overdue(f"{why}: what everything was doing is above") from error

    def report(self, why: str) -> None:
        """Print where everything stands."""
        self.fired += 1
        out = self._out or sys.stderr
        quiet = time.monotonic() - self._reported < QUIET_SECONDS
        with contextlib.suppress(OSError, ValueError):  # nobody reads any more; the deadline holds all the same
            print(f"watchdog: {why}", file=out)
            for line in () if quiet else (*self.depths(), *task_stacks(self._loop), *thread_stacks()):
                print(line.rstrip(), file=out)
            out.flush()
        self._reported = self._reported if quiet else time.monotonic()

    def depths(self) -> list[str]:
        """Return a line for each queue."""
        return [f"queue {name}: {_depth(depth)}" for name, depth in sorted(self._queues.items())]

    @contextlib.asynccontextmanager
    async def heartbeat(self, blocked_seconds: float) -> AsyncIterator[None]:
        """Measure the loop's lag inside, and report from another thread where it is blocked for so long."""
        self._loop = asyncio.get_running_loop()
        self._beat = time.monotonic()
        ended = threading.Event()
        listener = threading.Thread(target=self._listen, args=(blocked_seconds, ended), name="watchdog", daemon=True)
        listener.start()
        beating = asyncio.create_task(self._beat_on(), name="heartbeat")
        try:
            yield
        finally:
            beating.cancel()
            ended.set()
            await asyncio.gather(beating, return_exceptions=True)
            await asyncio.to_thread(listener.join, 2 * BEAT_SECONDS + 5)
            self._loop = None

    def lags(self) -> list[float]:
        """Return by how many seconds the loop's heartbeats were late since the last call."""
        found = list(self._lags)
        self._lags.clear()
        return found

    async def _beat_on(self) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            now = time.monotonic()
            self._lags.append(max(0.0, now - self._beat - BEAT_SECONDS))
            self._beat = now

    def _listen(self, blocked_seconds: float, ended: threading.Event) -> None:
        told = 0.0
        while not ended.wait(min(BEAT_SECONDS, blocked_seconds / 4)):
            beat = self._beat
            if beat != told and time.monotonic() - beat > blocked_seconds:
                told = beat  # one report for each time it is blocked
                self.report(f"the event loop has not moved for {blocked_seconds:g} seconds")


def task_stacks(loop: asyncio.AbstractEventLoop | None = None) -> Iterator[str]:
    """Yield the tasks of the running loop, or of the one given, with their whole chains of awaits.

    Those that stand at the same place stand together: of thousands of episodes there are few different chains.
    """
    try:
        tasks = asyncio.all_tasks(loop)
    except RuntimeError:  # no loop runs here, or its tasks changed while another thread looked
        return
    alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for task in sorted(tasks, key=lambda task: task.get_name()):
        alike[tuple(_line(frame) for frame in await_chain(task.get_coro()))].append(task.get_name())
    for chain, names in alike.items():
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        yield f"task {', '.join(names[:MOST_NAMES])}{more}"
        yield from chain


def await_chain(awaited: Any) -> Iterator[FrameType]:
    """Yield the frames of a suspended coroutine, outermost first."""
    for _ in range(MOST_AWAITS):
        if type(awaited).__name__ == "async_generator_asend":  # has no name for the generator whose next value it is
            awaited = next(each for each in gc.get_referents(awaited) if inspect.isasyncgen(each))
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "ag_frame", None) or _generator_frame(awaited)
        if frame is None:
            return
        yield frame
        awaited = next(
            (inner for name in ("cr_await", "ag_await", "gi_yieldfrom") if (inner := getattr(awaited, name, None))),
            None,
        )


def thread_stacks() -> Iterator[str]:
    """Yield each thread with its stack."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        yield f"thread {names.get(ident, ident)}"
        yield from traceback.format_list(traceback.extract_stack(frame))


def _generator_frame(awaited: Any) -> FrameType | None:
    frame: FrameType | None = getattr(awaited, "gi_frame", None)
    return frame


def _line(frame: FrameType) -> str:
    return f'  File "{frame.f_code.co_filename}", line {frame.f_lineno}, in {frame.f_code.co_name}'


def _depth(depth: Depth) -> str:
    try:
        return str(depth())
    except Exception as error:  # a report must not fail for what it reports
        return f"unknown ({type(error).__name__})"
