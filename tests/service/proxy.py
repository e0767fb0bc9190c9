"""A proxy for HTTP/1.1 that does to requests what networks do: drops, delays, doubles and cuts, as a plan says."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, Self

Fault = Literal["pass", "refuse", "drop", "swallow", "cut", "delay", "double"]
FAULTS: tuple[Fault, ...] = ("refuse", "drop", "swallow", "cut", "delay", "double")
Plan = Callable[[str], Fault]


def dice(seed: int, share: float, faults: tuple[Fault, ...] = FAULTS) -> Plan:
    """Return a plan that spoils a share of the requests for sessions, the same ones for the same seed."""
    random_source = random.Random(seed)

    def plan(path: str) -> Fault:
        if random_source.random() >= share:
            return "pass"
        return random_source.choice(faults)

    return plan


class FaultProxy:
    """Listens on a port of its own and speaks to one server: `async with FaultProxy(address, plan) as proxy`."""

    def __init__(self, address: str, plan: Plan, *, delay: float = 0.2) -> None:
        self.host, _, port = address.removeprefix("http://").partition(":")
        self.port = int(port)
        self.plan = plan
        self.delay = delay
        self.address = ""
        self.done: Counter[Fault] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, backlog=1024, limit=2**24)
        self.address = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._keep(task)
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while await self._pass_on(await _message(reader), writer):
                pass
        writer.transport.abort()

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _forget(self, request: bytes) -> None:
        """Let a request arrive whose client is gone."""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await self._answer(request)

    async def _pass_on(self, request: bytes, writer: asyncio.StreamWriter) -> bool:
        """Carry one request through, or do to it what the plan says; False ends the connection."""
        fault = self.plan(request.split(b" ", 2)[1].decode())
        self.done[fault] += 1
        if fault == "refuse":
            return False
        if fault == "drop":
            self._keep(asyncio.create_task(self._forget(request)))
            return False
        if fault == "delay":
            await asyncio.sleep(self.delay)
        if fault == "double":
            answer, _ = await asyncio.gather(self._answer(request), self._answer(request))
        else:
            answer = await self._answer(request)
        if fault == "swallow":
            return False
        writer.write(answer[: len(answer) // 2] if fault == "cut" else answer)
        await writer.drain()
        return fault != "cut"

    async def _answer(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(self.host, self.port, limit=2**24)
        try:
            writer.write(request)
            return await _message(reader)
        finally:
            writer.close()


async def _message(reader: asyncio.StreamReader) -> bytes:
    """Return one request or answer, head and body."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
    return head + await reader.readexactly(length)
