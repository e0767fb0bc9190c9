"""The loop: collect, give credit, learn, publish. It reads as the algorithm; what the parts are is made elsewhere.

Decided here: the order in which one update becomes the next. The new weights serve before the checkpoint says so, and
the checkpoint is on disk before collection is let go on under the new version: a run resumed at eta 0 then draws
exactly what an uninterrupted one draws.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from training import checkpoint, counts, credit, samples, staleness, weights
from training.buffer import Stopped
from training.collect import Collector
from training.policies import PooledSampler, adapted, pool_advantages
from training.process.learner import Learner
from training.process.parent import Gone
from training.recipe import Recipe, digest
from training.staleness import Budget
from training.values import Batch, Metrics, Sample

STOP_SECONDS = 120.0
KEPT = 2
"""Checkpoints: the newest, and the one before it."""


@dataclass(slots=True, kw_only=True)
class Parts:
    """A run's machinery, made and opened."""

    recipe: Recipe
    folder: Path
    forks: Callable[[], int]
    """Returns how often a chat template rewrote a history, over all episodes."""
    sampler: PooledSampler
    learner: Learner
    gold: Callable[[int], list[Sample]]
    """Returns the gold play that the update of a version learns beside."""
    collector: Collector
    version: int
    """Of the weights that serve."""
    record: Callable[[int, Metrics], None]
    """Writes down what an update was like."""
    scored: Callable[[int, Path], None]
    """Is shown new weights that are due to be scored; it does not wait."""
    pinned: Callable[[], list[Path]]
    """Snapshots that are being scored, which must stay."""
    gone: Sequence[Gone]
    """Each waits until a process is lost that nothing starts again, and returns why."""
    lags: Callable[[], list[float]]
    """Returns by how many seconds the event loop came late, since the last call."""


async def train(parts: Parts) -> Path:
    """Train to the last step; return the folder of the last weights. Stopped, behind a checkpoint, if that is asked."""
    collecting = asyncio.create_task(parts.collector.run(), name="collector")
    learning = counts.Busy()
    folder = Path(parts.sampler.serving[0].folder)
    try:
        while parts.version < parts.recipe.steps:
            batch = await parts.collector.batch()
            made, metrics = assess(batch, parts.recipe, parts.version)
            begun = time.monotonic()
            with learning.work():
                metrics |= await parts.learner.update(made, parts.version, parts.gold(parts.version))
            learnt = time.monotonic()
            folder = await publish(parts, made, metrics)
            taken = {"update/learning_seconds": learnt - begun, "update/publishing_seconds": time.monotonic() - learnt}
            parts.record(parts.version, {**metrics, **standing(parts, batch), **taken, "idle/learner": learning.idle()})
            if parts.version % parts.recipe.checkpoint_every == 0 or parts.version == parts.recipe.steps:
                await save(parts)
            parts.collector.published(parts.version)
            if parts.version % parts.recipe.score.every == 0:
                parts.scored(parts.version, folder)
            prune(parts)
    except Stopped:
        if parts.version:
            await save(parts)
        raise
    finally:
        collecting.cancel()
        await asyncio.wait([collecting], timeout=STOP_SECONDS)
    return folder


def assess(batch: Batch, recipe: Recipe, version: int) -> tuple[list[Sample], Metrics]:
    """Return what the tokens of a batch are worth, without those that are too old."""
    given = credit.assign(batch.groups, credit.rule_of(recipe.credit), recipe.tan, recipe.negative, recipe.imitation)
    found = credit.thinned(given, recipe.below, recipe.seed)
    budget = Budget(eta=recipe.eta, stale_interval=recipe.pools.stale_interval)
    made = samples.make(found, recipe.weigh, keep=lambda segment: staleness.keep(segment, version, budget))
    return made, {**credit.metrics(found), **staleness.trained(made, version)}


async def publish(parts: Parts, made: list[Sample], metrics: Metrics) -> Path:
    """Let the pools serve the new weights; return their folder."""
    parts.version += 1
    folder = await parts.learner.publish(parts.folder / "snapshots", parts.version)
    advantages = pool_advantages(made, parts.recipe.pools.depth + 1)
    ess = metrics.get("ess", 1.0)
    parts.sampler.mix = adapted(parts.sampler.mix, parts.recipe.pools, parts.version, ess, advantages)
    await parts.sampler.update(str(folder), parts.version, parts.recipe.pools.refresh)
    return folder


async def save(parts: Parts) -> None:
    """Write a checkpoint of everything."""
    state = checkpoint.State(
        step=parts.version,
        version=parts.version,
        recipe=digest(parts.recipe),
        curriculum=parts.collector.curriculum,
        spent=parts.collector.buffer.spent,
        mix=parts.sampler.mix,
        served=tuple(each.version for each in parts.sampler.serving),
    )
    root, loop = parts.folder / checkpoint.FOLDER, asyncio.get_running_loop()

    def learner(folder: Path) -> None:
        asyncio.run_coroutine_threadsafe(parts.learner.save(folder), loop).result()

    groups = parts.collector.buffer.groups
    await asyncio.to_thread(checkpoint.write, root, state, groups, learner, parts.sampler.serving)


def prune(parts: Parts) -> None:
    """Remove snapshots and checkpoints that nobody needs."""
    needed = [*(Path(each.folder) for each in parts.sampler.serving), *parts.pinned()]
    weights.prune(parts.folder / "snapshots", needed)
    checkpoint.prune(parts.folder / checkpoint.FOLDER, KEPT, needed)


def standing(parts: Parts, batch: Batch) -> Metrics:
    """Return how far behind what waits and what is under way is, and how the run stands."""
    waiting = [one for group in parts.collector.buffer.groups for one in group.attempts]
    return {
        **staleness.metrics("queue", staleness.tally(waiting), parts.version),
        **staleness.metrics("flight", parts.sampler.in_flight() + parts.collector.unfinished(), parts.version),
        **parts.collector.metrics(),
        **counts.rewards(batch.groups),
        "idle/engine": parts.sampler.busy.idle(),
        "render/forks": parts.forks(),
        "loop/lag": max(parts.lags(), default=0.0),
    }
