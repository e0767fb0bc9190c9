"""A child process, `python -P -m training.process.child SOCKET PARENT NAME`: one object, as long as its parent lives.

Decided here: methods that are coroutines run side by side; others run one after another, in one thread that is always
the same, so that the event loop answers for the process while they compute. The child ends with its parent whatever
it is doing: Linux kills it, and elsewhere the end of the socket does.
"""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import inspect
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from training.process import wire

PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int) -> None:
    """Have this process killed when the one that started it ends, or at once where that is so already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


class Holder:
    """One object, and the rule by which its methods run."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="work")
        self._object: Any = None

    async def make(self, make: Callable[[], Any]) -> None:
        """Make the object, in the thread that its methods run in."""
        self._object = await asyncio.get_running_loop().run_in_executor(self._thread, make)

    async def call(self, method: str, arguments: Sequence[Any]) -> Any:
        """Call a method, and return or raise what it does."""
        found = getattr(self._object, method)
        if inspect.iscoroutinefunction(found):
            return await found(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self._thread, found, *arguments)


class Child:
    """The object and the calls under way."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._holder = Holder()

    async def serve(self) -> None:
        """Answer until the parent closes the socket."""
        make: Callable[[], Any] = await wire.read(self._reader)
        try:
            while True:
                self._take(await wire.read(self._reader), make)
        except (EOFError, ConnectionError):  # the parent is done, or dead
            if self._calls:
                os._exit(1)

    def _take(self, call: wire.Call, make: Callable[[], Any]) -> None:
        if call.method is None:
            if (running := self._calls.get(call.number)) is not None:
                running.cancel()
            return
        task = asyncio.create_task(self._answer(call, make))
        self._calls[call.number] = task
        task.add_done_callback(lambda _: self._calls.pop(call.number, None))

    async def _answer(self, call: wire.Call, make: Callable[[], Any]) -> None:
        try:
            answer = wire.Answer(call.number, await self._value(call, make))
        except Exception as error:
            answer = wire.Answer(call.number, None, wire.fault_of(error))
        self._writer.write(wire.frame(answer))
        await self._writer.drain()

    async def _value(self, call: wire.Call, make: Callable[[], Any]) -> Any:
        if not call.method:
            return None
        if call.method == "make":
            return await self._holder.make(make)
        return await self._holder.call(call.method, call.arguments)


async def main(number: int) -> None:
    """Serve at the end of a socket pair."""
    reader, writer = await asyncio.open_unix_connection(sock=socket.socket(fileno=number))
    await Child(reader, writer).serve()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is the parent's to decide
    end_with_parent(int(sys.argv[2]))
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    asyncio.run(main(int(sys.argv[1])))
