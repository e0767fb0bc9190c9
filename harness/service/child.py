"""A process that plays sessions for a worker: `python -m harness.service.child DESCRIPTOR PARENT`, settings on stdin.

It has an environment of its own, opened here. It ends when the worker's end of the socket closes, or with the worker.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys

import msgspec

from harness.core import Json
from harness.errors import HarnessError
from harness.service.catalogue import make
from harness.service.channel import Ask, Told, receive, send
from harness.service.hosts import Local, Said
from harness.service.owned import end_with, memory_bytes
from harness.service.settings import WorkerSettings


async def main(descriptor: int, parent: int) -> None:
    """Serve until the socket closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a person's Ctrl-C is for the worker, which ends this process
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    settings = msgspec.json.decode(sys.stdin.buffer.read(), type=WorkerSettings)
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=descriptor))
    loop = asyncio.get_running_loop()
    end_with(parent, lambda: loop.call_soon_threadsafe(reader.feed_eof))
    try:
        host = Local(make(settings))
        await host.open()
    except HarnessError as error:
        send(writer, Told(0, error=str(error)))
        await writer.drain()
        return
    send(writer, Told(0))
    tasks: set[asyncio.Task[None]] = set()
    while (asked := await receive(reader, Ask)) is not None:
        task = asyncio.create_task(_serve(host, asked, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await host.close()


async def _serve(host: Local, asked: Ask, writer: asyncio.StreamWriter) -> None:
    try:
        told = await _carry_out(host, asked)
    except Exception as error:
        told = Told(asked.id, error=f"{type(error).__name__}: {error}")
    if not writer.is_closing():
        send(writer, told)
        await writer.drain()


async def _carry_out(host: Local, asked: Ask) -> Told:
    if asked.do == "step":
        return _told(asked.id, await host.step(asked.session_id, asked.message))
    if asked.do == "start" and asked.task is not None:
        return _told(asked.id, await host.start(asked.session_id, asked.task))
    if asked.do == "cancel":
        await host.cancel(asked.session_id)
        return Told(asked.id, finish=True, memory=memory_bytes())
    if asked.do == "healthy":
        return Told(asked.id, finish=await host.healthy())
    facts: Json = await host.protocol(asked.split)
    return Told(asked.id, body=msgspec.json.encode(facts))


def _told(ask_id: int, said: Said) -> Told:
    return Told(ask_id, said.body, said.finish, memory=memory_bytes() if said.finish else 0)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
    os._exit(0)  # threads of an environment's libraries do not keep it
