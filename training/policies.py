"""The policies that sample: the current weights, and older snapshots of them, each an engine of its own.

Decided here (M6): which pool samples a turn is drawn from the turn's seed and the stale share alone, never from what
was said, so that the draw cancels in every ratio. The pool stands in the engine's name of each turn (`current/hf:0`,
`stale-1/vllm:…`), which is how every token keeps it. The current pool follows each publish; stale pool 1 takes the new
weights every `stale_interval` versions, and pool k what pool k-1 had until then. Evaluate on the current pool only.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from harness.core import Count, Json, Natural, Value
from harness.dice import Dice
from harness.errors import HarnessError, ModelError
from harness.models.sampler import Refresh, Request, Sampled, Sampler
from training.counts import Busy
from training.staleness import Tally
from training.values import Sample
from training.watch import Overdue

CLOSE_SECONDS = 120.0

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class PoolOptions(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How turns are shared out between the current and the stale pools."""

    stale_ratio: Share = 0.25
    """Of the turns (or trajectories), those that a stale pool samples."""
    schedule: tuple[tuple[Natural, Share], ...] = ()
    """(version, ratio): from that version on the ratio is that one instead. Empty is no schedule."""
    stale_interval: Count | None = 25
    """Versions between refreshes of the stale pools; None never refreshes them."""
    depth: Annotated[int, msgspec.Meta(ge=0, le=8)] = 1
    """Stale pools; each is a further engine with its own weights in memory."""
    refresh: Refresh = "recompute_kv"
    """What becomes of the caches of episodes under way when a pool takes new weights. `keep_kv` saves reading them all
    anew; what is sampled from then on is flagged, and its log-probabilities are those that it was drawn with."""
    scope: Literal["turn", "trajectory"] = "turn"
    weighting: Literal["fixed", "ess", "bandit"] = "fixed"
    """Whether the stale share stays, follows the effective sample size, or the pools' recent advantages."""
    most_stale: Share = 0.5
    """Where the stale share is not fixed, the most and the least it may become."""
    least_stale: Share = 0.05
    ess_target: Share = 0.8
    """`ess`: the share falls below it and rises above it."""
    rate: Annotated[float, msgspec.Meta(gt=0)] = 0.5
    """How fast the share follows."""
    ess_floor: Share = 0.1
    """The kill switch: stale pools are no longer drawn once the ESS was below it so many updates in a row."""
    patience: Count = 3


class Served(Value, frozen=True, kw_only=True):
    """What a pool serves."""

    version: int
    folder: str


class Mix(Value, frozen=True, kw_only=True):
    """The stale share as it stands, and what it follows: part of the checkpoint."""

    stale: Share
    values: tuple[float, ...] = ()
    """Running mean advantage of the tokens of each pool."""
    low: int = 0
    """Updates in a row whose ESS was below the floor."""
    off: bool = False
    """The kill switch has fired: only the current pool is drawn."""


class PooledSampler:
    """Several engines as one: a `Sampler`, so that a `LocalModel` plays on it like on any other."""

    def __init__(
        self, samplers: Sequence[Sampler], options: PoolOptions, base: Path, *, seconds: float = 8100.0
    ) -> None:
        """Take engines that serve the weights in `base` as version 0, the current pool's first.

        Args:
            samplers: the engines.
            options: how they are drawn.
            base: folder of the weights.
            seconds: deadline of whatever they are asked, the start of one that has to be begun again included.
        """
        if len(samplers) != options.depth + 1:
            raise ValueError(f"{options.depth} stale pools need {options.depth + 1} engines, not {len(samplers)}")
        self.name = "+".join(sampler.name for sampler in samplers)
        self.context = 0
        self.options = options
        self.mix = Mix(stale=ratio_at(options, 0))
        self.serving = (Served(version=0, folder=str(base)),) * len(samplers)
        self._samplers = tuple(samplers)
        self._seconds = seconds
        self.busy = Busy()
        """Its `idle` is the share of the time in which no turn was being sampled."""
        self._episodes: dict[str, _Episode] = {}

    @property
    def current(self) -> Sampler:
        """The engine of the newest weights."""
        return self._samplers[0]

    async def open(self) -> None:
        """Load or start all engines."""
        await _together([sampler.open() for sampler in self._samplers], self._seconds, "opening the pools")
        self.context = min(sampler.context for sampler in self._samplers)

    async def sample(self, request: Request) -> Sampled:
        """Sample one turn in the pool that is drawn for it."""
        episode = self._episodes.setdefault(request.episode, _Episode(request.seed))
        seed = episode.seed if self.options.scope == "trajectory" else request.seed
        share = episode.share(self.mix) if self.options.scope == "trajectory" else share_of(self.mix)
        pool = draw(seed, share, len(self._samplers) - 1)
        episode.pools.add(pool)
        async with _within(self._seconds, "sampling a turn", ModelError):
            with self.busy.work():
                sampled = await self._samplers[pool].sample(request)
        episode.tokens.update((pool, version) for version in sampled.versions)
        return msgspec.structs.replace(sampled, engine=f"{pool_name(pool)}/{sampled.engine}")

    async def release(self, episode: str) -> None:
        """Forget an episode in every pool that it was in."""
        known = self._episodes.pop(episode, None)
        releases = [self._samplers[pool].release(episode) for pool in sorted(known.pools)] if known else []
        await _together(releases, CLOSE_SECONDS, "releasing an episode", ModelError)

    async def update(self, weights: Json, version: int, refresh: Refresh = "recompute_kv") -> None:
        """Serve new weights in the current pool, and refresh the stale ones where it is time."""
        serving = refreshed(self.serving, Served(version=version, folder=str(weights)), self.options.stale_interval)
        await self.serve(serving, refresh)

    async def serve(self, serving: Sequence[Served], refresh: Refresh = "recompute_kv") -> None:
        """Serve in each pool what is said, as after a restart."""
        changed = [pool for pool, each in enumerate(serving) if each != self.serving[pool]]
        updates = [
            self._samplers[pool].update(serving[pool].folder, serving[pool].version, refresh) for pool in changed
        ]
        await _together(updates, self._seconds, "taking new weights")
        self.serving = tuple(serving)

    def in_flight(self) -> Tally:
        """Return the tokens of episodes under way, by pool and version."""
        return sum((episode.tokens for episode in self._episodes.values()), Counter())

    def protocol(self) -> Mapping[str, Json]:
        """Return what a score depends on."""
        return {
            "pools": [dict(sampler.protocol()) for sampler in self._samplers],
            "stale_ratio": share_of(self.mix),
            "scope": self.options.scope,
        }

    async def close(self) -> None:
        """End all engines."""
        await _together([sampler.close() for sampler in self._samplers], CLOSE_SECONDS, "closing the pools")


class _Episode:
    """An episode under way."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        """Of its first turn."""
        self.pools: set[int] = set()
        self.tokens: Tally = Counter()
        self._share: float | None = None

    def share(self, mix: Mix) -> float:
        """Return the stale share that held when it began."""
        if self._share is None:
            self._share = share_of(mix)
        return self._share


def draw(seed: int, share: float, depth: int) -> int:
    """Draw a pool: 0 is the current one; stale ones share `share` alike. Depends on nothing else."""
    dice = Dice("pool", seed)
    if not depth or not dice.chance(share):
        return 0
    return dice.between(1, depth)


def pool_name(pool: int) -> str:
    """Return what a pool is called in an engine's name."""
    return f"stale-{pool}" if pool else "current"


def pool_of(engine: str) -> int:
    """Return the pool that an engine's name marks; an engine without a mark is the current pool."""
    name = engine.partition("/")[0]
    return int(name.removeprefix("stale-")) if name.startswith("stale-") else 0


def refreshed(serving: Sequence[Served], new: Served, interval: int | None) -> tuple[Served, ...]:
    """Return what each pool serves once `new` is published."""
    stale = tuple(serving[1:])
    if stale and interval is not None and new.version // interval > stale[0].version // interval:
        stale = (new, *stale[:-1])
    return (new, *stale)


def share_of(mix: Mix) -> float:
    """Return the stale share that is drawn with."""
    return 0.0 if mix.off else mix.stale


def ratio_at(options: PoolOptions, version: int) -> float:
    """Return the stale share that the schedule has for a version; none where there is no stale pool."""
    if not options.depth:
        return 0.0
    return next((ratio for start, ratio in reversed(options.schedule) if start <= version), options.stale_ratio)


def adapted(mix: Mix, options: PoolOptions, version: int, ess: float, advantages: Sequence[float | None]) -> Mix:
    """Return the mix after an update.

    Args:
        mix: as it was.
        options: which rule holds.
        version: of the weights that the update made.
        ess: effective sample size of the update, as a share of its tokens.
        advantages: mean advantage of each pool's tokens; None where it had none.
    """
    low = mix.low + 1 if ess < options.ess_floor else 0
    values = _running(mix.values, advantages, options.rate)
    stale = ratio_at(options, version)
    if options.weighting == "ess" and options.depth:
        stale = _bounded(mix.stale * math.exp(options.rate * (ess - options.ess_target)), options)
    elif options.weighting == "bandit" and len(values) > 1:
        stale = _bounded(bandit(stale, values), options)
    return Mix(stale=stale, values=values, low=low, off=mix.off or low >= options.patience)


def bandit(prior: float, values: Sequence[float], temperature: float = 0.25) -> float:
    """Return the stale share under which a pool is drawn the more, the better its tokens turned out.

    The odds of the prior times exp((stale - current) / temperature), the mean over the stale pools.
    """
    if not 0 < prior < 1:
        return prior
    better = (sum(values[1:]) / (len(values) - 1) - values[0]) / temperature
    return 1 / (1 + (1 - prior) / prior * math.exp(-max(-50.0, min(50.0, better))))


def pool_advantages(samples: Iterable[Sample], pools: int) -> tuple[float | None, ...]:
    """Return the mean advantage of the tokens of each pool that are trained on, or weighed for."""
    sums, counts = np.zeros(pools), np.zeros(pools)
    for sample in samples:
        of = sample.segment.pools[sample.kept]
        sums += sample.weight * np.bincount(of, weights=sample.advantages[sample.kept], minlength=pools)
        counts += sample.weight * np.bincount(of, minlength=pools)
    return tuple(float(total / count) if count else None for total, count in zip(sums, counts, strict=True))


def _running(old: Sequence[float], new: Sequence[float | None], rate: float) -> tuple[float, ...]:
    before = [*old, *(0.0 for _ in new[len(old) :])]
    share = min(rate, 1.0)
    return tuple(was if now is None else was + share * (now - was) for was, now in zip(before, new, strict=True))


def _bounded(share: float, options: PoolOptions) -> float:
    return max(options.least_stale, min(options.most_stale, share))


async def _together(
    calls: Sequence[Awaitable[Any]], seconds: float, what: str, kind: type[HarnessError] = Overdue
) -> None:
    """Await all, whatever becomes of each; raise the first failure, and one of that kind where it takes too long."""
    async with _within(seconds, what, kind):
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome


@contextlib.asynccontextmanager
async def _within(seconds: float, what: str, kind: type[HarnessError]) -> AsyncIterator[None]:
    """Bound what is awaited inside. An error of that kind where its time is up."""
    try:
        async with asyncio.timeout(seconds) as limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise kind(f"{what} took more than {seconds:g} seconds") from error
