"""Objects that tests hold in a child process. Light to import, since the child does."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from harness.core import EnvOptions, Json
from harness.errors import SetupError
from harness.models.sampler import Request, Sampled
from tests.training.lottery import Lottery


class Held:
    """The object that the tests hold in a child."""

    def __init__(self, start: int = 0) -> None:
        self._sum = start
        self._cancelled = 0
        self._go_on = threading.Event()

    def add(self, values: Any) -> Any:
        """Add an array up, in order; return it unchanged beside the sum."""
        self._sum += int(values.sum())
        return values, self._sum

    def refuse(self, kind: str) -> None:
        """Fail in one way or another."""
        if kind == "setup":
            raise SetupError("learner.lr is wrong: lower it")
        if kind == "disk":
            raise OSError(errno.ENOSPC, "No space left on device")
        raise KeyError("a defect")

    def end(self, how: str) -> None:
        """End the process."""
        if how == "words":
            print("first\n\nsecond\nthe last thing it said", flush=True)
            os._exit(7)
        os.kill(os.getpid(), signal.SIGKILL)

    def compute(self, seconds: float) -> bool:
        """Hold the thread that methods run in, until told or for so long; say whether it was told."""
        return self._go_on.wait(seconds)

    async def go_on(self) -> None:
        """Let go of it."""
        self._go_on.set()

    def pids(self) -> tuple[int, int]:
        """Return its process and that one's parent."""
        return os.getpid(), os.getppid()

    def cancelled(self) -> int:
        """Return how many waits were called off."""
        return self._cancelled

    async def wait(self) -> None:
        """Wait until called off."""
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            self._cancelled += 1
            raise


def unloadable() -> Held:
    raise SetupError("the model in nowhere cannot be loaded")


class Hung:
    """Blocks the child's own event loop."""

    async def hang(self) -> None:
        """Never return."""
        time.sleep(3600)


class Tellers:
    """Stands for the engines of two pools: each sample says which weights it is of, and who was released."""

    def __init__(self) -> None:
        self._served = [("base", 0), ("base", 0)]
        self._released: list[str] = []

    async def open(self, pool: int) -> tuple[str, int, dict[str, Json]]:
        """Return name, context and protocol."""
        return f"teller:{pool}", 100, {"weights": self._served[pool][0]}

    async def sample(self, pool: int, request: Request) -> Sampled:
        """Sample at once, or never where the episode is called so."""
        if request.episode == "never":
            await asyncio.sleep(3600)
        folder, version = self._served[pool]
        return Sampled(
            ids=(1,), logprobs=(-1.0,), versions=(version,), finish="stop",
            engine=f"{folder} {os.getpid()} {','.join(self._released)}",
        )  # fmt: skip

    async def release(self, pool: int, episode: str) -> None:
        """Remember it."""
        self._released.append(f"{pool}/{episode}")

    async def update(self, pool: int, weights: str, version: int, refresh: str) -> dict[str, Json]:
        """Serve new weights; die of some."""
        if weights == "deadly":
            os.kill(os.getpid(), signal.SIGKILL)
        self._served[pool] = (weights, version)
        return {"weights": weights}


class Noting(Lottery):
    """An environment that notes where it is opened, and that it is closed."""

    def __init__(self, notes: Path) -> None:
        super().__init__()
        self._notes = notes

    async def open(self) -> None:
        await super().open()
        self._note(f"open {os.getpid()}")

    async def close(self) -> None:
        await super().close()
        self._note("close")

    def _note(self, text: str) -> None:
        try:
            with self._notes.open("a") as file:
                file.write(f"{text}\n")
        except OSError as error:
            raise SetupError(f"cannot write {self._notes}: name another file") from error


def noting(options: EnvOptions) -> Noting:
    """Make it."""
    return Noting(Path(str(options.settings["notes"])))
