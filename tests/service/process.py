"""A worker of the drill in a process of its own, to be killed or frozen: `python -m tests.service.process SETTINGS`."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from harness.registry import ROOT
from harness.service.owned import end_with
from harness.service.running import running_worker
from harness.service.settings import WorkerSettings


async def main(settings: WorkerSettings, parent: int) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    end_with(parent, lambda: loop.call_soon_threadsafe(stop.set))
    async with running_worker(settings, register=False):
        await stop.wait()


@asynccontextmanager
async def worker_process(controller: str, **settings: object) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a worker in a process; it is killed at the end."""
    given = {"env": "tests.service.drill:make", "name": "drill", "controller": controller, "heartbeat": 0.2, **settings}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.service.process", msgspec.json.encode(given).decode(), str(os.getpid())),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


if __name__ == "__main__":
    asyncio.run(main(msgspec.json.decode(sys.argv[1], type=WorkerSettings), int(sys.argv[2])))
