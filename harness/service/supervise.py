"""The worker processes of `harness serve`: started, started again when they die, and ended with it.

Decided here: a worker that says it cannot run here (exit code 2) is left out; any other end is a crash, after which it
is started again, later each time it does not live long. Where a worker lives is its `Place`'s matter.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from harness.errors import SetupError
from harness.models.redact import SECRET_NAME
from harness.registry import ROOT

UNAVAILABLE = 2
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
LONG_LIFE = 60.0
"""A worker that lived so long is started again at once."""
STOP_SECONDS = 15.0
LONGEST_LINE = 2000


class Place(Protocol):
    """Where one worker lives, once."""

    def live(self, arguments: Sequence[str], tokens: Mapping[str, str]) -> AsyncIterator[str | int]:
        """Run `harness worker` to its end; yield each line that it says, and then its exit code."""
        ...

    async def signal(self, which: int) -> None:
        """Send the worker a signal; one that is not there yet is not to come."""
        ...


class Process:
    """A worker as a child of this process, with which it ends."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._unwanted = False

    async def live(self, arguments: Sequence[str], tokens: Mapping[str, str]) -> AsyncIterator[str | int]:
        """Run `harness worker` to its end; yield each line that it says, and then its exit code."""
        environment = {name: value for name, value in os.environ.items() if not SECRET_NAME.search(name)}
        path = os.pathsep.join(filter(None, (str(ROOT), environment.get("PYTHONPATH", ""))))
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-c", "from harness.cli import main; main()", "worker", "--owner", str(os.getpid()), *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env={**environment, **tokens, "PYTHONPATH": path},
            start_new_session=True,
        )
        if self._unwanted:
            await self.signal(signal.SIGKILL)
        assert process.stderr is not None  # noqa: S101 - asked for above
        while line := await _line(process.stderr):
            if text := line.decode(errors="replace").strip()[:LONGEST_LINE].removeprefix("harness: "):
                yield text
        yield await process.wait()

    async def signal(self, which: int) -> None:
        """Send the worker a signal; one that is not there yet is not to come."""
        self._unwanted = True
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(which)


class Supervisor:
    """Keeps one worker for each list of arguments of `harness worker`."""

    def __init__(
        self,
        workers: Sequence[Sequence[str]],
        tokens: Mapping[str, str],
        say: Callable[[str], None],
        died: Callable[[], None],
        place: Callable[[], Place] = Process,
    ) -> None:
        self.notices: list[str] = []
        """Why workers are left out, one sentence each."""
        self._workers = workers
        self._tokens = tokens
        self._say = say
        self._died = died
        self._place = place
        self._living: dict[Place, asyncio.Event] = {}
        """Each with what is set at its end."""
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Keep the workers until `stop`. SetupError where not one of them can run here."""
        await asyncio.gather(*(self._keep(arguments) for arguments in self._workers))
        if not self._stopping.is_set():
            raise SetupError("no worker can run here: " + "; ".join(dict.fromkeys(self.notices)))

    async def stop(self, drain: float) -> None:
        """Ask every worker to end, and end those that do not."""
        self._stopping.set()
        living = dict(self._living)
        await asyncio.gather(*(place.signal(signal.SIGTERM) for place in living))
        with suppress(TimeoutError):
            async with asyncio.timeout(drain + STOP_SECONDS):
                await asyncio.gather(*(ended.wait() for ended in living.values()))
        for place, ended in living.items():
            if not ended.is_set():
                await place.signal(signal.SIGKILL)
                await ended.wait()

    async def _keep(self, arguments: Sequence[str]) -> None:
        wait, loop = FIRST_WAIT, asyncio.get_running_loop()
        while not self._stopping.is_set():
            since = loop.time()
            code, last = await self._live(arguments)
            if self._stopping.is_set():
                return
            if code == UNAVAILABLE:
                self.notices.append(last)
                return
            self._died()
            wait = FIRST_WAIT if loop.time() - since > LONG_LIFE else min(LONGEST_WAIT, 2 * wait)
            self._say(f"a worker ended with {code}; it is started again in {wait:g} s: {' '.join(arguments)}")
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._stopping.wait()

    async def _live(self, arguments: Sequence[str]) -> tuple[int, str]:
        """Run one worker to its end; return its exit code and the last thing that it said."""
        place, code, last = self._place(), 0, ""
        ended = self._living[place] = asyncio.Event()
        try:
            async for said in place.live(arguments, self._tokens):
                if isinstance(said, int):
                    code = said
                else:
                    last = said
                    self._say(said)
            return code, last
        finally:
            ended.set()
            del self._living[place]


async def _line(stream: asyncio.StreamReader) -> bytes:
    """Return the next line, or as much of one as is remembered at most."""
    try:
        return await stream.readuntil(b"\n")
    except asyncio.IncompleteReadError as error:
        return error.partial
    except asyncio.LimitOverrunError as error:
        return await stream.read(error.consumed or 1)
