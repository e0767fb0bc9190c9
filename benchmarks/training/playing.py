"""What plays in the controls and in sampling: a model of one or more pools, the environments, and the collector."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec

from harness import registry
from harness.core import Env, EnvOptions
from harness.models.local import LocalModel
from training import curriculum as choosing
from training import run, staleness
from training.buffer import Buffer
from training.collect import CollectOptions, Collector, Table
from training.play import here
from training.policies import PooledSampler, PoolOptions
from training.recipe import Recipe
from training.watch import Watch

STOP_SECONDS = 120.0
Say = Callable[[str], None]


@asynccontextmanager
async def table(
    recipe: Recipe, folder: Path, base: Path, pools: PoolOptions, say: Say
) -> AsyncIterator[tuple[Table, PooledSampler]]:
    """Open a model, its engines where a training run has them too, and the environments of a recipe."""
    wanted = msgspec.structs.replace(recipe, pools=pools)
    samplers, _ = run.make_samplers(wanted, folder, base, Watch(), say)
    sampler = PooledSampler(samplers, pools, base)
    model = LocalModel(recipe.name, base, sampler, recipe.engine)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(model.close)
        await model.opened()
        envs: dict[str, Env] = {}
        for name, settings in recipe.envs.items():
            envs[name] = registry.make_env(name, EnvOptions(settings=settings))
            await envs[name].open()
            stack.push_async_callback(envs[name].close)
        yield Table(envs=envs, play=here(envs, registry.make_agent("direct"), model)), sampler


@asynccontextmanager
async def collecting(
    table: Table, recipe: Recipe, options: CollectOptions, groups: int, eta: int
) -> AsyncIterator[Collector]:
    """Play groups, so many a batch, as long as the block lasts."""
    course = recipe.curriculum
    collector = Collector(
        table,
        options,
        course,
        admission=staleness.restarted(groups, eta, recipe.running, 0, 0),
        curriculum=choosing.begin(list(table.envs), course, recipe.shown),
        buffer=Buffer(groups, (eta + 1) * groups),
        watch=Watch(),
    )
    task = asyncio.create_task(collector.run(), name="collector")
    try:
        yield collector
    finally:
        task.cancel()
        await asyncio.wait([task], timeout=STOP_SECONDS)


def options(recipe: Recipe, **changed: object) -> CollectOptions:
    """Return how a recipe collects, with something changed."""
    return msgspec.structs.replace(recipe.collect, seed=recipe.seed, **changed)
