"""What is started again where its process dies: the engines, and the players.

Decided here: what is kept so holds nothing that is not elsewhere too, so a call that died with it is made again. How
often it is started again, `processes.restarts` says; then, or where it stood still, the run ends with its last words.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from training.process.options import ProcessOptions
from training.process.parent import Caller, Hold, Lost
from training.watch import Watch

Begin = Callable[[], Awaitable[Caller]]
"""Starts what holds an object, and returns what calls it."""


def beginning(
    hold: Hold, name: str, make: Callable[[], Any], folder: Path,
    watch: Watch, options: ProcessOptions, environment: Mapping[str, str],
) -> Begin:  # fmt: skip
    """Return what starts an object elsewhere; what that prints goes to a log of its name in the run's folder."""
    log = folder / "processes" / f"{name.replace(' ', '-')}.log"

    async def begin() -> Caller:
        process = hold(f"the {name}", make, log, watch, options, environment)
        await process.start()
        return process

    return begin


class Kept:
    """One object that lives elsewhere, as long as the run needs it."""

    def __init__(
        self,
        name: str,
        begin: Begin,
        load: Callable[[Caller], Awaitable[None]],
        options: ProcessOptions,
        say: Callable[[str], None],
    ) -> None:
        """Describe it; the first call starts it.

        Args:
            name: what messages call it.
            begin: starts what holds the object, and calls it.
            load: brings it to where it is to stand, after each start.
            options: deadlines, and how often it is started again.
            say: is told when it is.
        """
        self.options = options
        self._name = name
        self._begin = begin
        self._load = load
        self._say = say
        self._left = options.restarts
        self._caller: Caller | None = None
        self._starting = asyncio.Lock()
        self._closed = False

    async def running(self) -> Caller:
        """Return what calls the object, started, again where it died. Lost where that was too often."""
        async with self._starting:
            if self._closed:
                raise Lost(f"{self._name} is closed")
            if self._caller is not None and self._caller.error is None:
                return self._caller
            if self._caller is not None:
                await self._leave(self._caller)
            self._caller, caller = None, await self._begin()
            try:
                await self._load(caller)
                if self._closed:  # while it started
                    raise Lost(f"{self._name} is closed")
            except BaseException:
                await caller.close()
                raise
            self._caller = caller
            return caller

    async def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the object, again where its process died."""
        while True:
            caller = await self.running()
            try:
                return await caller.call(method, *arguments, seconds=self.options.call_seconds)
            except Lost:
                if caller.error is None:  # closed
                    raise

    def tell(self, method: str, *arguments: Any) -> None:
        """Call a method without waiting for it."""
        if self._caller is not None:
            self._caller.tell(method, *arguments)

    async def gone(self) -> HarnessError:
        """Start it again where it dies, until that is no use, and return why."""
        while True:
            try:
                await (await self.running()).gone()
                await self.running()
            except HarnessError as error:
                return error

    async def close(self) -> None:
        """End it."""
        self._closed = True
        if self._caller is not None:
            await self._caller.close()

    async def _leave(self, caller: Caller) -> None:
        error = caller.error
        if error is None:
            return
        if not self._left or not isinstance(error, Lost):
            raise error
        self._left -= 1
        self._say(f"{error}; it is started again")
        await caller.close()
