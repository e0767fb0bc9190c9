"""Plays held-out tasks k times each with a mixture of two trained policies, drawn turn by turn: for pass@k.

The trained policy is the current pool, the warm start that it began with the stale one. Nothing is trained; groups of k
attempts are played by the collector that training has.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from benchmarks.training import playing
from benchmarks.training.lines import Scored
from benchmarks.training.playing import Say
from harness.config import convert
from harness.core import digest
from harness.errors import SetupError
from training.policies import PoolOptions, Served
from training.recipe import Recipe
from training.values import Group

ONE = {"depth": 1, "stale_interval": None}


class Wanted(NamedTuple):
    """What is played."""

    split: str
    tasks: int
    """Of each environment."""
    tries: int
    """At each task."""


def serving(run: Path) -> tuple[Served, Served]:
    """Return the trained policy of a run and its warm start. SetupError where they are gone."""
    trained, base = run / "checkpoints" / "last", run / "base"
    if not (trained.is_dir() and base.is_dir()):
        raise SetupError(f"{run} holds no weights to sample from: run that arm again")
    return Served(version=1, folder=str(trained)), Served(version=0, folder=str(base))


async def play(
    recipe: Recipe, folder: Path, run: Path, sampled: Mapping[str, Any], wanted: Wanted, say: Say
) -> tuple[Scored, ...]:
    """Play each task of a split so often and return how often it succeeded."""
    trained, base = serving(run)
    found = []
    pools = convert(PoolOptions, {**ONE, **sampled}, "sampled")
    recipe = msgspec.structs.replace(recipe, curriculum=msgspec.structs.replace(recipe.curriculum, first=0))
    async with playing.table(recipe, folder, Path(base.folder), pools, say) as (table, sampler):
        await sampler.serve((trained, base))
        for name, env in table.envs.items():
            there = len(list(islice(env.tasks(wanted.split), wanted.tasks)))
            alone = msgspec.structs.replace(table, envs={name: env})
            options = playing.options(recipe, group_size=wanted.tries, split=wanted.split, most_alike=0)
            async with playing.collecting(alone, recipe, options, there, 0) as collector:
                found.append(counted(name, wanted, (await collector.batch()).groups))
    return tuple(found)


def counted(env: str, wanted: Wanted, groups: tuple[Group, ...]) -> Scored:
    """Return how often each task succeeded; a task that was played for one that came to nothing counts once."""
    wins = {group.task_id: sum(one.succeeded for one in group.attempts) for group in reversed(groups)}
    return Scored(
        env=env,
        split=wanted.split,
        temperature=1.0,
        epochs=wanted.tries,
        successes=tuple(wins[task] for task in sorted(wins)),
        tasks_digest=digest(sorted(wins)),
    )
