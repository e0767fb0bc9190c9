"""The tasks of a split by their place in it, however endless it is: what a checkpoint calls a cursor is an index."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator

from harness.core import Task
from harness.errors import EnvError, SetupError, boundary

TASK_SECONDS = 600.0
STEP_SECONDS = 0.5
"""Tasks are made so long before somebody looks whether anyone still waits for them."""
KEPT = 1024


class Stream:
    """The tasks of one split. Making a task may take a while, so it is done in a thread, one at a time."""

    def __init__(self, name: str, tasks: Callable[[], Iterator[Task]], kept: int = KEPT) -> None:
        self._name = name
        self._tasks = tasks
        self._kept_most = kept
        self._kept: OrderedDict[int, Task] = OrderedDict()
        self._rest: Iterator[Task] | None = None
        self._next = 0
        self._length: int | None = None
        self._lock = asyncio.Lock()
        self._making = threading.Lock()
        """Held by a thread that makes a task, also when nobody waits for it any more."""

    async def task(self, index: int) -> Task:
        """Return the task at an index; a finite split begins again at its end.

        A run that is taken up makes all tasks before it again; the deadline is of each, not of all.

        Raises:
            SetupError: the split has no task, or needs data that is not there.
            EnvError: the environment failed to make it.
        """
        what = f"making task {index} of {self._name}"
        async with self._lock:
            while True:
                try:
                    async with asyncio.timeout(TASK_SECONDS):
                        with boundary(EnvError, what):
                            found = await asyncio.to_thread(self._step, index)
                except TimeoutError as error:
                    raise EnvError(f"{what} took more than {TASK_SECONDS:g} seconds") from error
                if found is not None:
                    return found

    def _step(self, index: int) -> Task | None:
        """Return a task that is there; else make some of those on the way to it, for a moment."""
        until = time.monotonic() + STEP_SECONDS
        with self._making:
            while True:
                place = index % self._length if self._length else index
                if place in self._kept:
                    self._kept.move_to_end(place)
                    return self._kept[place]
                if time.monotonic() > until:
                    return None
                self._make(place)

    def _make(self, place: int) -> None:
        if self._rest is None or self._next > place:
            self._rest, self._next = self._tasks(), 0
        try:
            task = next(self._rest, None)
        except BaseException:
            self._rest = None  # what failed is at its end, which is not that of the split
            raise
        if task is not None:
            self._keep(self._next, task)
            self._next += 1
            return
        self._length, self._rest = self._next, None
        if not self._length:
            raise SetupError(f"{self._name} has no tasks to train on")

    def _keep(self, place: int, task: Task) -> None:
        self._kept[place] = task
        self._kept.move_to_end(place)
        if len(self._kept) > self._kept_most:
            self._kept.popitem(last=False)
