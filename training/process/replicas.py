"""Several engines of one pool as one `Sampler`: an episode stays with the one that was least busy at its first turn.

Decided here: which replica computes a turn changes nothing of what is drawn, since a turn is drawn by its own seed;
its place stands in the engine's name of each turn. New weights are served by all before any of it is called done.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

import msgspec

from harness.core import Json
from harness.models.sampler import Refresh, Request, Sampled, Sampler


class Replicas:
    """Engines that all serve the same weights."""

    def __init__(self, samplers: Sequence[Sampler]) -> None:
        self.name = samplers[0].name
        self.context = 0
        self._samplers = tuple(samplers)
        self._homes: dict[str, int] = {}
        """Episode -> the replica that it stays with."""

    async def open(self) -> None:
        """Load all."""
        await together([sampler.open() for sampler in self._samplers])
        self.context = min(sampler.context for sampler in self._samplers)

    async def sample(self, request: Request) -> Sampled:
        """Sample one turn on the episode's replica."""
        if (place := self._homes.get(request.episode)) is None:
            busy = Counter(self._homes.values())
            place = self._homes[request.episode] = min(range(len(self._samplers)), key=lambda each: busy[each])
        sampled = await self._samplers[place].sample(request)
        return msgspec.structs.replace(sampled, engine=f"{sampled.engine.partition(':')[0]}:{place}")

    async def release(self, episode: str) -> None:
        """Forget an episode."""
        if (place := self._homes.pop(episode, None)) is not None:
            await self._samplers[place].release(episode)

    async def update(self, weights: Json, version: int, refresh: Refresh = "recompute_kv") -> None:
        """Serve new weights on all."""
        await together([sampler.update(weights, version, refresh) for sampler in self._samplers])

    def protocol(self) -> Mapping[str, Json]:
        """Return what a score depends on."""
        return self._samplers[0].protocol()

    async def close(self) -> None:
        """End all."""
        await together([sampler.close() for sampler in self._samplers])


async def together(calls: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Await all, whatever becomes of each, and raise the first failure."""
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
