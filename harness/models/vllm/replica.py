"""One server that a sampler samples on: of ours, or one that runs already.

Decided here: a server is used only after it has shown that it gives token ids and log-probabilities as they were
sampled; one of ours is waited for as long as its keeper lives.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

from harness.config import LocalOptions
from harness.core import Json
from harness.errors import ModelError, SetupError
from harness.models.sampler import Ended, Request
from harness.models.vllm import launch
from harness.models.vllm.client import Client, Refused
from harness.models.vllm.server import Server, alone, join

START_SECONDS = 3600.0
HEALTH_SECONDS = 5.0
LOOK_SECONDS = 0.25
NOTICE_LOOKS = 12
ORDER_SECONDS = 600.0
"""Deadline of one step of an update."""
SURE = 1e-3
"""Log-probability above which a token counts as the only one that could be drawn."""


class Replica:
    """A server that answers."""

    def __init__(self, name: str, client: Client, server: Server | None) -> None:
        self.name = name
        self.client = client
        self.context = 0
        self.version = ""
        self._server = server

    def ended(self) -> str | None:
        """Say why the server is no more; None where it runs, or is not ours to know."""
        return self._server.ended() if self._server else None

    async def failure(self, error: Refused) -> ModelError:
        """Return what went wrong, in one sentence: in the server's last words where it ended, or is about to."""
        failing = error.status is not None and error.status >= 500
        if (failing or error.status is None) and (words := await self._end()) is not None:
            return Ended(f"{self.name}: the server ended: {words}")
        words = await asyncio.to_thread(self._server.complaint) if self._server and failing else None
        return ModelError(f"{self.name}: {error}" + (f": {words}" if words else ""))

    async def _end(self) -> str | None:
        """Say why the server is no more; its keeper may need a moment to see it. None where it runs on."""
        for _ in range(NOTICE_LOOKS if self._server else 0):
            if (words := self.ended()) is not None:
                return words
            await asyncio.sleep(LOOK_SECONDS)
        return None

    def claim(self) -> None:
        """Make a server of ours this run's own. ModelError where others use it."""
        if self._server:
            self._server.claim()

    async def pause(self, *, clear: bool) -> None:
        """Interrupt what is under way, and begin nothing new."""
        await self._order("/pause", params={"mode": "abort", "clear_cache": str(clear).lower()})

    async def take(self, folder: Path, *, clear: bool) -> None:
        """Take the weights of a folder, and go on."""
        await self._order("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}})
        if clear and not (await self._order("/reset_prefix_cache")).get("success", True):
            raise ModelError(f"{self.name} keeps a cache of its old weights")
        await self._order("/resume")

    async def _order(self, path: str, body: Json = None, params: dict[str, str] | None = None) -> dict[str, Json]:
        try:
            return await self.client.ask("POST", path, body, params, seconds=ORDER_SECONDS)
        except Refused as error:
            remedy = ": start the server with VLLM_SERVER_DEV_MODE=1" if error.status == 404 else ""
            failure = await self.failure(error)
            raise type(failure)(f"{failure} ({path}){remedy}") from error

    async def look(self, wanted: str) -> None:
        """Learn what the server serves, and see that it samples as it must. SetupError where it does not."""
        try:
            models = await self.client.models()
            chosen = next(
                (each for each in models if each.get("id") == wanted), models[0] if len(models) == 1 else None
            )
            if chosen is None:
                names = ", ".join(str(each.get("id")) for each in models) or "none"
                raise SetupError(f"{self.name} serves several models ({names}) and none named '{wanted}'")
            self.client.model = str(chosen.get("id"))
            self.context = int(chosen.get("max_model_len") or 0)
            self.version = str((await self.client.ask("GET", "/version")).get("version", ""))
            request = Request(episode="look", prompt_ids=(1, 2, 3), max_tokens=1, temperature=1.0, top_p=1e-4)
            part = await self.client.complete(request, (), 0, "")
        except Refused as error:
            raise SetupError(f"{await self.failure(error)}: see that a vLLM server answers there") from error
        if not self.context:
            raise SetupError(f"{self.name} does not say how long its context is: it is no vLLM server")
        if not part.logprobs or abs(part.logprobs[0]) > SURE:
            raise SetupError(
                f"{self.name} gives log-probabilities that are not those of what is drawn: start it with "
                "--logprobs-mode processed_logprobs"
            )

    async def close(self) -> None:
        """Use the server no more."""
        try:
            await self.client.close()
        finally:
            if self._server:
                self._server.leave()


async def started(
    runtime: launch.Runtime, folder: Path, options: LocalOptions, place: int, request_seconds: float, *, own: bool
) -> Replica:
    """Join or start the `place`-th server of a model. SetupError with its last words where it does not come up.

    One that is to be our `own` is joined by nobody else. Of servers that share a GPU one starts at a time: each finds
    out what it may take by what is free before and after.
    """
    environment = launch.environment(runtime, options, place)
    name = launch.server_name(runtime, folder, options)
    gpu = contextlib.nullcontext() if runtime.cpu else alone(environment.get("CUDA_VISIBLE_DEVICES", ""), START_SECONDS)
    async with gpu:
        server = await join(name, place, launch.command(runtime, folder, options), environment, own=own)
        replica = Replica(f"vllm:{place}", Client("http://vllm", request_seconds, server.socket), server)
        try:
            await _healthy(replica, folder)
            await replica.look(launch.SERVED)
        except BaseException:
            await replica.close()
            raise
    return replica


async def _healthy(replica: Replica, folder: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            await replica.client.ask("GET", "/health", seconds=HEALTH_SECONDS, tries=1)
            return
        except Refused as error:
            if (words := replica.ended()) is not None:
                raise SetupError(f"vLLM does not serve the model in {folder}: {words}") from error
            if time.monotonic() > deadline:
                raise SetupError(f"vLLM serves the model in {folder} after {START_SECONDS:.0f} s not yet") from error
        await asyncio.sleep(LOOK_SECONDS)


async def attached(address: str, request_seconds: float) -> Replica:
    """Use a server that runs already. SetupError where it is none that can be used."""
    url = address if "://" in address else f"http://{address}"
    url = url.rstrip("/").removesuffix("/v1")
    replica = Replica(f"vllm:{url.partition('://')[2]}", Client(url, request_seconds), None)
    try:
        await replica.look("")
    except BaseException:
        await replica.close()
        raise
    return replica
