"""The worker processes of `harness serve`: started, started again when they die, and ended with it.

Decided here: a worker that says it cannot run here (exit code 2) is left out; any other end is a crash, after which it
is started again, later each time it does not live long.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

from harness.errors import SetupError
from harness.models.redact import SECRET_NAME
from harness.registry import ROOT

UNAVAILABLE = 2
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
LONG_LIFE = 60.0
"""A worker that lived so long is started again at once."""
STOP_SECONDS = 15.0
LONGEST_LINE = 2000


class Supervisor:
    """Keeps one worker process for each list of arguments of `harness worker`."""

    def __init__(
        self,
        workers: Sequence[Sequence[str]],
        tokens: dict[str, str],
        say: Callable[[str], None],
        died: Callable[[], None],
    ) -> None:
        self.notices: list[str] = []
        """Why workers are left out, one sentence each."""
        self._workers = workers
        self._environment = {name: value for name, value in os.environ.items() if not SECRET_NAME.search(name)}
        self._environment |= tokens
        path = self._environment.get("PYTHONPATH", "")
        self._environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), path)))
        self._say = say
        self._died = died
        self._processes: set[asyncio.subprocess.Process] = set()
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Keep the workers until `stop`. SetupError where not one of them can run here."""
        await asyncio.gather(*(self._keep(arguments) for arguments in self._workers))
        if not self._stopping.is_set():
            raise SetupError("no worker can run here: " + "; ".join(dict.fromkeys(self.notices)))

    async def stop(self, drain: float) -> None:
        """Ask every worker to end, and end those that do not."""
        self._stopping.set()
        processes = tuple(self._processes)
        for process in processes:
            _signal(process, signal.SIGTERM)
        if processes:
            await asyncio.wait([asyncio.create_task(each.wait()) for each in processes], timeout=drain + STOP_SECONDS)
        for process in processes:
            if process.returncode is None:
                _signal(process, signal.SIGKILL)
                await process.wait()

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
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-c", "from harness.cli import main; main()", "worker", "--owner", str(os.getpid()), *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=self._environment,
            start_new_session=True,
        )
        self._processes.add(process)
        if self._stopping.is_set():  # `stop` may have looked before this one was there
            _signal(process, signal.SIGKILL)
        last = ""
        try:
            assert process.stderr is not None  # noqa: S101 - asked for above
            while line := await _line(process.stderr):
                if text := line.decode(errors="replace").strip()[:LONGEST_LINE].removeprefix("harness: "):
                    last = text
                    self._say(text)
            return await process.wait(), last
        finally:
            if process.returncode is not None:
                self._processes.discard(process)


async def _line(stream: asyncio.StreamReader) -> bytes:
    """Return the next line, or as much of one as is remembered at most."""
    try:
        return await stream.readuntil(b"\n")
    except asyncio.IncompleteReadError as error:
        return error.partial
    except asyncio.LimitOverrunError as error:
        return await stream.read(error.consumed or 1)


def _signal(process: asyncio.subprocess.Process, which: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(which)
