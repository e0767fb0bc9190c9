"""The owner of one child process: calls with deadlines, and nothing that waits for a child that is dead or silent.

Decided here: a child that ends unasked fails every call at once with one sentence that has its last words. One that
answers no question for `silent_seconds`, stopped or hung, is asked for its threads' stacks and ended. Whoever called
decides what is started again; this class never does.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from harness.errors import HarnessError, StorageError
from training.machine import PATIENT
from training.process import wire
from training.process.options import ProcessOptions
from training.watch import Overdue, Watch

MOST_CALLS = 100_000
BEATS = 4
"""Questions for a sign of life within `silent_seconds`."""
END_SECONDS = 15.0
"""What a child has to end in good order,"""
EXIT_SECONDS = 2.0
"""and one whose socket has ended to say with which status."""
LAST_LINES = 3
LAST_BYTES = 4096
STACK_SECONDS = 0.5
"""What a hung child has to print its stacks."""


class Lost(HarnessError):  # noqa: N818 - an event
    """A child process ended unasked, or gave no sign of life; the message has its last words."""


Result = TypeVar("Result")
Gone = Callable[[], Awaitable[HarnessError]]
"""Waits until something is lost, and returns why."""


class Caller(Protocol):
    """What carries calls to an object that lives elsewhere."""

    name: str
    error: HarnessError | None
    """Why it is lost; None while it is not."""

    async def call(self, method: str, *arguments: Any, seconds: float) -> Any:
        """Call a method, and return or raise what it does. Lost where the object is gone, Overdue when time is up."""
        ...

    def tell(self, method: str, *arguments: Any) -> None:
        """Call a method without waiting for what it does; calls are made in their order."""
        ...

    async def gone(self) -> HarnessError:
        """Wait until the object is lost, and return why."""
        ...

    async def close(self) -> None:
        """Let go of the object."""
        ...


class Begun(Caller, Protocol):
    """A caller that starts what it calls."""

    async def start(self) -> None:
        """Start what holds the object, and make the object. What that raises is raised here."""
        ...


class Hold(Protocol):
    """Describes what is to hold an object: `Process`, or an actor of a cluster."""

    def __call__(
        self, name: str, make: Callable[[], Any], log: Path, watch: Watch, options: ProcessOptions,
        environment: Mapping[str, str] | None = None,
    ) -> Begun:  # fmt: skip
        """Return a caller that is to be started; the arguments are those of `Process`."""
        ...


class Here:
    """A caller for an object in this process, whose methods run in a thread."""

    def __init__(self, name: str, held: Any, watch: Watch) -> None:
        self.name = name
        self.error: HarnessError | None = None
        self._held = held
        self._watch = watch

    async def call(self, method: str, *arguments: Any, seconds: float) -> Any:
        """Call a method."""
        async with self._watch.deadline(seconds, f"{self.name}: {method}"):
            return await asyncio.to_thread(getattr(self._held, method), *arguments)

    def tell(self, method: str, *arguments: Any) -> None:
        """Call a method."""
        getattr(self._held, method)(*arguments)

    async def gone(self) -> HarnessError:
        """Wait for ever: it is gone when we are."""
        never: asyncio.Future[HarnessError] = asyncio.get_running_loop().create_future()
        return await never

    async def close(self) -> None:
        """Let go of it."""
        self._held = None


class Process:
    """A child process and the object in it."""

    def __init__(
        self,
        name: str,
        make: Callable[[], Any],
        log: Path,
        watch: Watch,
        options: ProcessOptions,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Describe a child; `start` starts it.

        Args:
            name: what messages call it.
            make: makes the object, in the child; a function or a partial of one that can be imported there.
            log: file that the child's output is added to.
            watch: whose deadlines hold.
            options: deadlines.
            environment: further variables of the child.
        """
        self.name = name
        self.error: HarnessError | None = None
        """Why it is lost."""
        self._make = make
        self._log = log
        self._watch = watch
        self._options = options
        path = os.pathsep.join(each or os.getcwd() for each in sys.path)  # noqa: PTH109 - as it stands in sys.path
        self._environment = {**os.environ, **PATIENT, "PYTHONPATH": path, **(environment or {})}
        self._numbers = itertools.count(1)
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._lost: asyncio.Future[HarnessError] = asyncio.Future()
        self._closing = False
        self._beats = 0
        self._log_begin = 0

    @property
    def pid(self) -> int | None:
        """The child's process id."""
        return self._process.pid if self._process else None

    async def start(self) -> None:
        """Start the child and make the object. What that raises is raised here."""
        ours, theirs = socket.socketpair()
        try:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            with self._log.open("ab") as log, theirs:
                self._log_begin = log.tell()
                self._process = await asyncio.create_subprocess_exec(
                    *(
                        sys.executable,
                        "-P",
                        "-m",
                        "training.process.child",
                        str(theirs.fileno()),
                        str(os.getpid()),
                        self.name,
                    ),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=self._environment,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
        except OSError as error:
            ours.close()
            raise StorageError(f"the process of {self.name} cannot be started: {error}") from error
        reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        self._writer.write(wire.frame(self._make))
        self._tasks = [asyncio.create_task(self._read(reader), name=f"answers of {self.name}")]
        self._watch.queue(f"calls of {self.name}", lambda: len(self._pending))
        try:
            await self.call("make", seconds=self._options.start_seconds)
        except BaseException:
            await self.close()
            raise
        self._tasks.append(asyncio.create_task(self._listen(), name=f"life of {self.name}"))

    async def call(self, method: str, *arguments: Any, seconds: float) -> Any:
        """Call a method of the object, and return or raise what it does.

        Raises:
            Lost: the child is dead or silent.
            Overdue: there was no answer in time.
        """
        if self.error is not None:
            raise self.error
        if self._writer is None or self._closing:
            raise Lost(f"the process of {self.name} is closed")
        if len(self._pending) >= MOST_CALLS:
            raise Lost(f"more than {MOST_CALLS:,} calls wait for {self.name}")
        number = next(self._numbers)
        future = self._pending[number] = asyncio.get_running_loop().create_future()
        try:
            async with self._watch.deadline(seconds, f"{self.name}: {method}"):
                self._writer.write(wire.frame(wire.Call(number, method, arguments)))
                with contextlib.suppress(ConnectionError):  # why, the future knows
                    await self._writer.drain()
                return await future
        except (asyncio.CancelledError, Overdue):
            self._send(number, None)
            raise
        finally:
            self._pending.pop(number, None)

    def tell(self, method: str, *arguments: Any) -> None:
        """Call a method without waiting for what it does."""
        self._send(0, method, *arguments)

    def _send(self, number: int, method: str | None, *arguments: Any) -> None:
        if self._writer is not None and self.error is None and not self._closing:
            self._writer.write(wire.frame(wire.Call(number, method, arguments)))

    async def gone(self) -> HarnessError:
        """Wait until the child is lost, and return why."""
        return await asyncio.shield(self._lost)

    async def close(self) -> None:
        """End the child: in good order where it still answers, by force where it does not."""
        if self._process is None:
            return
        in_order = self.error is None and not self._pending
        self._closing = True
        self._settle(Lost(f"the process of {self.name} is closed"))
        if self._writer is not None:
            self._writer.close()
        await self._kill(END_SECONDS if in_order else 0)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        """Hand out answers until the socket ends, which is when the child does."""
        why = ""
        try:
            while True:
                answer: wire.Answer = await wire.read(reader)
                self._beats = 0
                if (future := self._pending.get(answer.number)) is None or future.done():
                    continue
                if answer.fault is None:
                    future.set_result(answer.value)
                else:
                    future.set_exception(wire.error_of(answer.fault, self.name))
        except (EOFError, ConnectionError):
            pass
        except Exception as error:  # whatever a broken frame raises
            why = f"; its answer could not be read: {error}"
        if not self._closing:
            await self._kill(EXIT_SECONDS)
            self._fail(Lost(f"the process of {self.name} {self._end()}{why}{last_words(self._log, self._log_begin)}"))

    async def _listen(self) -> None:
        """Ask for signs of life. Counted in questions, so that a parent that itself stood still blames nobody."""
        while True:
            await asyncio.sleep(self._options.silent_seconds / BEATS)
            if self._beats >= BEATS:
                break
            self._beats += 1
            self._send(0, "")
        why = f"the process of {self.name} gave no sign of life for {self._options.silent_seconds:g} seconds"
        self._watch.report(why)
        self._signal(signal.SIGUSR1)
        await asyncio.sleep(STACK_SECONDS)
        self._signal(signal.SIGKILL, group=True)
        self._fail(Overdue(f"{why}: what everything was doing is above; its own stacks, if any, are in {self._log}"))

    def _fail(self, error: HarnessError) -> None:
        if self.error is not None:
            return
        self.error = error
        self._settle(error)
        self._lost.set_result(error)

    def _settle(self, error: HarnessError) -> None:
        """Tell all who wait that there will be no answer."""
        for future in self._pending.values():
            if not future.done():
                future.set_exception(error)

    async def _kill(self, patience: float) -> None:
        """End the child and whatever it has started, after giving it so long to end by itself."""
        if self._process is None:
            return
        await _ended(self._process, patience)
        self._signal(signal.SIGKILL, group=True)
        await _ended(self._process, END_SECONDS)  # one that hangs in the kernel, in a driver say, stays behind

    def _signal(self, number: int, *, group: bool = False) -> None:
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if group:
                os.killpg(self._process.pid, number)
            else:
                os.kill(self._process.pid, number)

    def _end(self) -> str:
        code = self._process.returncode if self._process else None
        if code is not None and code < 0:
            return f"was ended by {signal.Signals(-code).name}{_remedy(-code)}"
        return "does not end" if code is None else f"ended by itself with status {code}"


async def _ended(process: asyncio.subprocess.Process, seconds: float) -> None:
    """Wait until a process has ended, and no longer than that."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await process.wait()


def last_words(log: Path, begin: int) -> str:
    """Return the last lines that were written to a log from a place on, as the end of a sentence."""
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(max(begin, file.seek(0, os.SEEK_END) - LAST_BYTES))
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
        if lines:
            return f"; its last words: {' | '.join(lines[-LAST_LINES:])[-500:]}"
    return ""


def _remedy(number: int) -> str:
    return " (by hand, or for want of memory)" if number == signal.SIGKILL else ""


async def unless_gone(work: Coroutine[Any, Any, Result], lost: Sequence[Gone]) -> Result:
    """Return what work returns; where anything is lost first, end the work and raise why."""
    working = asyncio.ensure_future(work)
    watching = [asyncio.ensure_future(_waited(each)) for each in lost]
    try:
        await asyncio.wait([working, *watching], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise next(each.result() for each in watching if each.done())
    finally:
        for task in (working, *watching):
            task.cancel()
        await asyncio.gather(working, *watching, return_exceptions=True)
    return working.result()


async def _waited(gone: Gone) -> HarnessError:
    return await gone()
