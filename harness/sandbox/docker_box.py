"""One container as a box."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

from harness.core import Json
from harness.errors import SandboxError
from harness.sandbox import Bounds, Finished, Shell, shell
from harness.sandbox.docker_container import Place, configuration, create
from harness.sandbox.docker_engine import Missing, uninterrupted
from harness.sandbox.docker_images import Image
from harness.sandbox.docker_judge import Judges
from harness.sandbox.docker_keeper import Keeper
from harness.sandbox.docker_keeper import command as keeper_command
from harness.sandbox.docker_process import Output, Process, become

BOX = "harness.box"
"""Label that tells boxes from what is made beside them, and one from another."""
SUSPECT_STATUS = 125
"""From here on a status is the command's own, or the engine's word that it could not begin it or that it was killed."""


class DockerBox:
    """A container, from its start to its removal."""

    def __init__(
        self,
        place: Place,
        bounds: Bounds,
        name: str,
        *,
        image: Callable[[], Awaitable[Image]],
        judges: Judges,
        others: dict[str, DockerBox],
    ) -> None:
        self.name = name
        self.bounds = bounds
        self.broken = ""
        """Why the box was ended before its time."""
        self._place = place
        self._engine = place.engine
        self._judges = judges
        self._open = others
        self._find_image = image
        self._image: Image | None = None
        self._keeper: Keeper | None = None
        self._shells: list[Process] = []

    async def __aenter__(self) -> Self:
        """Make and start the container. SandboxError where that fails."""
        self._image = await self._find_image()
        self._judges.prepare(self._image)
        self._open[self.name] = self
        try:
            await create(self._place, self.name, self._configuration(self._image))
            self._keeper = Keeper(await self._engine.attach(self.name))
            await uninterrupted(self._engine.call(self._engine.api.start, self.name))
            await self._keeper.ready()
        except BaseException:
            await self.remove()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the container with all of its processes and files."""
        await self.remove()

    async def remove(self) -> None:
        """Remove the container; done twice, the second does nothing."""
        for process in self._shells:
            process.close()
        if self._keeper:
            self._keeper.close()
        await uninterrupted(self._engine.remove(self.name))
        self._open.pop(self.name, None)
        self.broken = self.broken or "it was closed"

    async def stop(self, why: str) -> None:
        """End every process; what was waiting for one of them hears why."""
        self.broken = self.broken or why
        await self.remove()

    async def weigh(self) -> None:
        """End the box where its files take more than it may have; SandboxError says so."""
        if self._place.quota:
            return
        api = self._engine.api
        for found in await self._engine.call(api.containers, size=True, filters={"label": f"{BOX}={self.name}"}):
            if int(found.get("SizeRw") or 0) > self.bounds.disk_bytes:
                await self.stop(f"its files took more than {self.bounds.disk_bytes} bytes")
                raise self._gone("")

    async def run(self, command: Sequence[str], *, seconds: float, stdin: bytes = b"") -> Finished:
        """Run one command as root in /root; see `harness.sandbox.Box.run`."""
        output = Output(self.bounds.output_bytes)
        process: Process | None = None
        try:
            async with asyncio.timeout(seconds):
                process = await self._begin(command)
                feeding = asyncio.ensure_future(process.feed(stdin))
                try:
                    await process.introduce(seconds)
                    await output.take(process.receive)
                finally:
                    feeding.cancel()
            status = await process.status()
            if status >= SUSPECT_STATUS:
                await self._present()
            await self.weigh()
            return output.finished(status)
        except TimeoutError:
            if process is None:
                raise self._gone("the engine did not begin a command in time") from None
            await process.kill()
            return output.finished(None)
        except Missing as error:
            raise self._gone(str(error)) from error
        finally:
            if process:
                process.close()

    async def shell(self) -> Shell:
        """Begin a login bash as root in /root; see `harness.sandbox.Box.shell`."""
        process = await self._begin(["/bin/bash", "--login", "-c", shell.DRIVER])
        self._shells.append(process)
        await process.introduce(shell.GREETING_SECONDS)
        return await shell.begin(process, self.bounds.output_bytes)

    async def judge(self, command: Sequence[str], *, seconds: float, stdin: bytes = b"") -> Finished:
        """Run one command as a grader; see `harness.sandbox.Box.judge` and `docker_judge`."""
        if self._image is None or self.broken:
            raise self._gone("it is not open")
        await self.weigh()
        try:
            return await self._judges.judge(self.name, self._image, self.bounds, command, seconds=seconds, stdin=stdin)
        except Missing as error:
            raise self._gone(str(error)) from error

    async def _present(self) -> None:
        """Raise SandboxError where the box has ended: the engine gives what it killed, or could not begin, a status."""
        try:
            if self._keeper:
                await self._keeper.present()
        except SandboxError as error:
            raise self._gone(str(error)) from error

    def _configuration(self, image: Image) -> Mapping[str, Json]:
        return configuration(
            self._place, self.bounds, image.id, keeper_command(self.bounds.seconds), labels={BOX: self.name}
        )

    async def _begin(self, command: Sequence[str]) -> Process:
        if self.broken:
            raise self._gone("it is not open")
        api = self._engine.api
        try:
            made = await self._engine.call(
                api.exec_create, self.name, become(command), stdin=True, user="0:0", workdir="/"
            )
            stream = await self._engine.begin(made["Id"])
        except SandboxError as error:
            raise self._gone(str(error)) from error
        return Process(self._engine, made["Id"], stream, self._end_tree)

    async def _end_tree(self, process: int) -> None:
        if self.broken:
            return
        try:
            if not process or not self._keeper:
                raise SandboxError("the process is not known")
            await self._keeper.end_tree(process)
        except SandboxError as error:
            await self.stop(f"a process in it could not be killed alone ({error})")

    def _gone(self, otherwise: str) -> SandboxError:
        return SandboxError(f"the box is gone: {self.broken or otherwise}")
