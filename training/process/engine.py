"""The engines of all pools, by transformers or by vLLM; in a process of their own, where each is a `Sampler` here.

Decided here: an engine holds nothing but weights that are on disk, so one that dies is started again with what each
pool served, and the turns under way are sampled again: by the same seeds, so nothing is drawn twice over. A turn that
is called off here is called off there. How often, `processes.restarts` says; in a deterministic run it is never, since
a prompt read anew differs in its last bits from one whose cache was kept. A vLLM server that dies takes along the
process that uses it, so one rule is enough; and no server outlives that process.
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from harness.config import LocalOptions
from harness.core import Json
from harness.models.sampler import Ended, Kind, Refresh, Request, Sampled, Sampler
from harness.models.vllm import launch
from training.process.kept import Begin, Kept, beginning
from training.process.learner import surroundings
from training.process.options import ProcessOptions
from training.process.parent import Caller, Hold, Process
from training.watch import Watch

VLLM = "sampler = 'vllm'"
Result = TypeVar("Result")


class Wanted(NamedTuple):
    """What the engines of a run are."""

    kind: Kind
    base: Path
    """Folder of the model that training began with."""
    options: LocalOptions
    """How it is loaded, or served."""
    pools: int
    seconds: float
    """Deadline of what is asked of a server."""


def made(wanted: Wanted) -> list[Sampler]:
    """Return each pool's engine; servers share out what one may set aside. SetupError where vLLM is missing."""
    kind, base, options, pools, seconds = wanted
    if kind == "hf":
        from harness.models.hf.engine import TransformersSampler

        return [TransformersSampler(base, options) for _ in range(pools)]
    from harness.models.vllm.engine import VllmSampler

    runtime = launch.runtime(VLLM)
    shared = launch.shared(options, pools, cpu=runtime.cpu)
    return [VllmSampler(base, shared, runtime, (), seconds, own=True) for _ in range(pools)]


class Engines:
    """The engines of all pools, in the process that computes them."""

    def __init__(self, wanted: Wanted, threads: int | None, deterministic: bool) -> None:
        if wanted.kind == "hf":
            _begin_torch(threads, deterministic=deterministic)
        self._samplers = made(wanted)

    async def open(self, pool: int) -> tuple[str, int, Mapping[str, Json]]:
        """Load one engine; return its name, what it can hold, and its protocol."""
        sampler = self._samplers[pool]
        await sampler.open()
        return sampler.name, sampler.context, sampler.protocol()

    async def sample(self, pool: int, request: Request) -> Sampled:
        """Sample one turn."""
        return await _alive(self._samplers[pool].sample(request))

    async def release(self, pool: int, episode: str) -> None:
        """Forget an episode."""
        await self._samplers[pool].release(episode)

    async def update(self, pool: int, weights: str, version: int, refresh: Refresh) -> Mapping[str, Json]:
        """Serve new weights; return the protocol."""
        await _alive(self._samplers[pool].update(weights, version, refresh))
        return self._samplers[pool].protocol()


def _begin_torch(threads: int | None, *, deterministic: bool) -> None:
    import torch
    from transformers import AutoModelForCausalLM  # noqa: F401 - it cannot be imported by two threads at once

    if threads is not None:
        torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)


async def _alive(work: Awaitable[Result]) -> Result:
    """Return what an engine does. One that is no more ends this process, whose owner starts all of it again."""
    try:
        return await work
    except Ended as error:
        os.write(2, f"{error}\n".encode())  # its last words, which the owner tells
        os._exit(1)


class Engine(Kept):
    """The process of the engines, as long as the run needs it."""

    def __init__(self, begin: Begin, pools: int, options: ProcessOptions, say: Callable[[str], None]) -> None:
        """Describe it; the first sampler that is opened starts it.

        Args:
            begin: starts what holds `Engines`, and calls them.
            pools: how many engines it holds.
            options: deadlines, and how often it is started again.
            say: is told when it is.
        """
        super().__init__("the engine", begin, self._loaded, options, say)
        self.samplers = tuple(PoolSampler(self, pool) for pool in range(pools))

    async def _loaded(self, caller: Caller) -> None:
        await asyncio.gather(*(sampler.load(caller) for sampler in self.samplers))


class PoolSampler:
    """One pool's engine: a `Sampler` whose work is done in the engines' process."""

    def __init__(self, engine: Engine, pool: int) -> None:
        """Stand for one of an engine's pools."""
        self.name = "engine"
        self.context = 0
        self._engine = engine
        self._pool = pool
        self._served: tuple[str, int] | None = None
        self._protocol: Mapping[str, Json] = {}

    async def open(self) -> None:
        """Load the weights. SetupError where they cannot be."""
        await self._engine.running()

    async def load(self, caller: Caller) -> None:
        """Load the weights in new engines: those that this one is to serve."""
        seconds = self._engine.options.start_seconds
        self.name, self.context, self._protocol = await caller.call("open", self._pool, seconds=seconds)
        if self._served is not None:
            await caller.call("update", self._pool, *self._served, "recompute_kv", seconds=seconds)

    async def sample(self, request: Request) -> Sampled:
        """Sample one turn."""
        sampled: Sampled = await self._engine.call("sample", self._pool, request)
        return sampled

    async def release(self, episode: str) -> None:
        """Forget an episode's cache, and end its turn if one is under way."""
        self._engine.tell("release", self._pool, episode)

    async def update(self, weights: Json, version: int, refresh: Refresh = "recompute_kv") -> None:
        """Serve new weights. ModelError where they are not those of this model."""
        self._protocol = await self._engine.call("update", self._pool, str(weights), version, refresh)
        self._served = (str(weights), version)

    def protocol(self) -> Mapping[str, Json]:
        """Return what a score depends on."""
        return self._protocol

    async def close(self) -> None:
        """End the process of all pools' engines; the first who asks does."""
        await self._engine.close()


def describe(
    wanted: Wanted, processes: ProcessOptions, *, deterministic: bool, folder: Path,
    watch: Watch, say: Callable[[str], None], hold: Hold = Process, name: str = "engine",
) -> Engine:  # fmt: skip
    """Return the engines of all pools, in a process of their own.

    Args:
        wanted: what they are.
        processes: threads, deadlines and restarts.
        deterministic: one thread, deterministic kernels, and never started again.
        folder: of the run, where the process's output goes.
        watch: whose deadlines hold.
        say: is told when it is started again.
        hold: what holds the engines.
        name: of the engine, and of its log.
    """
    threads = 1 if deterministic else processes.engine_threads
    make = functools.partial(Engines, wanted, threads, deterministic)
    environment = surroundings(threads)
    if (python := os.environ.get(launch.PYTHON)) is not None:
        environment[launch.PYTHON] = python  # which an actor would not have
    begin = beginning(hold, name, make, folder, watch, processes, environment)
    if deterministic:
        processes = msgspec.structs.replace(processes, restarts=0)
    return Engine(begin, wanted.pools, processes, say)
