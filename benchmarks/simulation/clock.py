"""An event loop whose time jumps to the next timer: seconds of waiting pass at once, and always alike.

Decided here: what is given to a thread runs at once and in place, so that nothing depends on how fast this machine is.
A loop by the clock on the wall is for comparison; what it lost to the machine is told with what it found.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


class _Jumping(selectors.SelectSelector):
    """A selector that moves the clock where it would have waited."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout > 0:
            self.now += timeout
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop for coroutines that wait for nothing but timers, one another, and threads that need no loop."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return the seconds that have passed in it."""
        return self._jumping.now

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Arguments], T], *args: *Arguments
    ) -> asyncio.Future[T]:
        """Do what a thread was to do."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(main)
    finally:
        loop.close()


class _Counting(selectors.SelectSelector):
    """A selector that adds up the time in which its loop waited for no timer, or longer than it meant to."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = 0.0
        self._returned = time.monotonic()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        begun = time.monotonic()
        self.lost += begun - self._returned
        ready = super().select(timeout)
        self._returned = time.monotonic()
        waited = self._returned - begun
        # What made it ready is a thread that ended: in virtual time that takes none.
        self.lost += waited if ready or timeout is None else max(0.0, waited - max(0.0, timeout))
        return ready


def run_by_the_wall(main: Coroutine[Any, Any, T]) -> tuple[T, float]:
    """Run a coroutine in real time.

    Returns its result, and the seconds that the machine took for itself: for work, threads and waking late. Without
    them the coroutine would have ended sooner, but not by more than that.
    """
    selector = _Counting()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        found = runner.run(main)
    return found, selector.lost
