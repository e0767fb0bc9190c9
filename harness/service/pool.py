"""A pool of processes that play sessions, for environments whose work is computing.

Decided here: a session stays in one process; the process with fewest gets the next. One that has begun many sessions or
holds much memory gets no more, is replaced at once, and ends with its last session. One that dies or answers nothing
any more costs its own sessions and nothing else.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import socket
import sys
from collections.abc import Coroutine, Mapping
from contextlib import suppress

import msgspec

from harness.core import Ending, Json, Message, Task
from harness.errors import SandboxError, SetupError
from harness.models.redact import SECRET_NAME
from harness.registry import ROOT
from harness.service.channel import Ask, Told, receive, send
from harness.service.hosts import CANCEL_SECONDS, Said
from harness.service.protocol import EMPTY_LIST, Out, encode
from harness.service.settings import AccessSettings, WorkerSettings

READY_SECONDS = 180.0
PLAY_SECONDS = 1200.0
"""Above the sum of an episode's own bounds, which hold as long as the process computes at all."""
END_SECONDS = 20.0
HEALTH_SECONDS = 60.0


class Pool:
    """At most `size` processes that take sessions, and as many that are on their way out."""

    def __init__(self, settings: WorkerSettings, size: int) -> None:
        self.restarts = 0
        self._settings = settings
        self._size = size
        self._children: list[_Child] = []
        self._by_session: dict[int, _Child] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._filling = asyncio.Lock()
        self._closed = False

    async def open(self) -> None:
        """Start the processes. SetupError where the environment cannot run here."""
        try:
            await self._fill()
        except SetupError:
            await self.close()
            raise

    async def close(self) -> None:
        """End them all."""
        self._closed = True
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(child.end() for child in self._children))
        self._children.clear()

    async def start(self, session_id: int, task: Task) -> Said:
        """Begin a session in the process that has fewest."""
        try:
            child = await self._choose()
        except (SandboxError, SetupError) as error:
            return _lost(str(error))
        self._by_session[session_id] = child
        child.begun += 1
        child.sessions.add(session_id)
        return await self._play(child, session_id, "start", task=task)

    async def step(self, session_id: int, message: Message | None) -> Said:
        """Play one turn, or end the session as it stands."""
        child = self._by_session.get(session_id)
        if child is None:
            return _lost("the process that played this session is gone")
        return await self._play(child, session_id, "step", message=message)

    async def cancel(self, session_id: int) -> None:
        """End a session; a process that does not even answer to that is ended."""
        child = self._by_session.get(session_id)
        if child is None:
            return
        try:
            # Twice the time that the process itself takes at most before it answers.
            told = await child.ask(Ask(0, "cancel", session_id), 2 * CANCEL_SECONDS)
            self._leave(child, session_id, told.memory)
        except (TimeoutError, SandboxError):
            self._break(child)

    async def protocol(self, split: str) -> Mapping[str, Json]:
        """Return what a score on this split depends on."""
        told = await (await self._choose()).ask(Ask(0, "protocol", split=split), READY_SECONDS)
        if told.error:
            raise SandboxError(told.error)
        facts: Mapping[str, Json] = msgspec.json.decode(told.body)
        return facts

    async def healthy(self) -> bool:
        """Ask the environment of one process."""
        try:
            told = await (await self._choose()).ask(Ask(0, "healthy"), HEALTH_SECONDS)
        except (TimeoutError, SandboxError, SetupError):
            return False
        return told.finish and not told.error

    async def _play(
        self, child: _Child, session_id: int, do: str, *, task: Task | None = None, message: Message | None = None
    ) -> Said:
        try:
            told = await child.ask(Ask(0, "step" if do == "step" else "start", session_id, task, message), PLAY_SECONDS)
        except (TimeoutError, SandboxError) as error:
            self._break(child)
            return _lost(str(error) or "the process that played this session did not answer")
        if told.error:
            self._leave(child, session_id, told.memory)
            return _lost(told.error)
        if told.finish:
            self._leave(child, session_id, told.memory)
        return Said(told.body, told.finish)

    async def _choose(self) -> _Child:
        """Return the process that has fewest sessions, starting what is missing first."""
        if not any(child.takes for child in self._children):
            await self._fill()
        takes = [child for child in self._children if child.takes]
        if not takes:
            raise SandboxError("no process of the pool runs")
        return min(takes, key=lambda child: len(child.sessions))

    async def _fill(self) -> None:
        """Start as many processes as are missing."""
        async with self._filling:
            missing = self._size - sum(child.takes for child in self._children)
            if self._closed or missing <= 0:
                return
            started = await asyncio.gather(*(_begin(self._settings) for _ in range(missing)), return_exceptions=True)
            self._children += [child for child in started if isinstance(child, _Child)]
            for failed in started:
                if isinstance(failed, BaseException):
                    raise failed

    def _leave(self, child: _Child, session_id: int, memory: int) -> None:
        """Count a session as ended in its process, and let that go where it is old or large."""
        child.sessions.discard(session_id)
        self._by_session.pop(session_id, None)
        settings = self._settings
        worn = child.begun >= settings.recycle_sessions or memory >= settings.recycle_bytes
        if worn and child.takes and len(self._children) < 2 * self._size:
            child.takes = False
            self._do(self._refill())
        if not child.takes and not child.sessions and child in self._children:
            self._children.remove(child)
            self._do(child.end())

    def _break(self, child: _Child) -> None:
        """Kill a process that died or is stuck; its sessions are lost."""
        child.takes = False
        if child not in self._children:
            return
        self._children.remove(child)
        self.restarts += 1
        for session_id in child.sessions:
            self._by_session.pop(session_id, None)
        child.kill()
        if not self._closed:
            self._do(child.end())
            self._do(self._refill())

    async def _refill(self) -> None:
        with suppress(SandboxError, SetupError):  # the next start tries again, and says why it fails
            await self._fill()

    def _do(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _lost(why: str) -> Said:
    failure = {"boundary": SandboxError.boundary, "message": why[:2000]}
    metric = msgspec.Raw(encode({"score": None, "ending": Ending.ENV_ERROR, "failure": failure}))
    status = Ending.ENV_ERROR.agentrl_status
    return Said(encode(Out(EMPTY_LIST, EMPTY_LIST, status, finish=True, reward=0.0, metric=metric)), True)


class _Child:
    """One process and the line to it."""

    def __init__(
        self, process: asyncio.subprocess.Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.sessions: set[int] = set()
        self.begun = 0
        self.takes = True
        """Whether it gets new sessions."""
        self._process = process
        self._reader = reader
        self._writer = writer
        self._ids = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Told]] = {}
        self._listening = asyncio.create_task(self._listen())

    async def ask(self, asked: Ask, seconds: float) -> Told:
        """Have something done. SandboxError where the process ends before it has answered."""
        if self._listening.done():
            raise SandboxError("the process that played this session has ended")
        asked = msgspec.structs.replace(asked, id=next(self._ids))
        future: asyncio.Future[Told] = asyncio.get_running_loop().create_future()
        self._asked[asked.id] = future
        try:
            send(self._writer, asked)
            async with asyncio.timeout(seconds):
                return await future
        finally:
            del self._asked[asked.id]

    async def _listen(self) -> None:
        while (told := await receive(self._reader, Told)) is not None:
            future = self._asked.get(told.id)
            if future is not None and not future.done():
                future.set_result(told)
        self.takes = False
        for future in self._asked.values():
            if not future.done():
                future.set_exception(SandboxError("the process that played this session has ended"))

    def kill(self) -> None:
        """End it at once, with all that it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def end(self) -> None:
        """Let it give back what it holds, and end; not for ever."""
        self.takes = False
        self._writer.close()
        try:
            async with asyncio.timeout(END_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self.kill()
            await self._process.wait()
        await self._listening


async def _begin(settings: WorkerSettings) -> _Child:
    """Start a process and wait until it is ready. SetupError with what it says where it is not."""
    ours, theirs = socket.socketpair()
    # It plays what others wrote: keys in this process's environment are not for it.
    environment = {name: value for name, value in os.environ.items() if not SECRET_NAME.search(name)}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), environment.get("PYTHONPATH", ""))))
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "harness.service.child", str(theirs.fileno()), str(os.getpid())),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        ours.close()
        raise SandboxError(f"a process for sessions cannot be started: {error}") from error
    finally:
        theirs.close()
    reader, writer = await asyncio.open_connection(sock=ours)
    told: Told | None = None
    try:
        if process.stdin is not None:
            process.stdin.write(msgspec.json.encode(msgspec.structs.replace(settings, access=AccessSettings())))
            process.stdin.close()
        async with asyncio.timeout(READY_SECONDS):
            told = await receive(reader, Told)
    finally:
        if told is None or told.error:
            writer.close()
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if told is None:
        raise SandboxError("a process for sessions ended before it was ready")
    if told.error:
        raise SetupError(told.error)
    return _Child(process, reader, writer)
