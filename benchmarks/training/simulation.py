"""Do the comparisons keep their promises? Worlds with a known truth, and how often a claim about them is wrong.

A world: in log-odds, an arm's success at a task after a seed is a mean, plus what the seed adds (to both arms alike,
and to each arm alone), plus what the task adds (likewise). Each task is then played once. The truth is the difference
over all seeds and all tasks.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from benchmarks.training.lines import Floats
from benchmarks.training.statistics import effect
from harness.metrics.comparison import ALPHA
from harness.metrics.intervals import Interval, percentiles

DRAWS = 400_000
RESAMPLES = 400


class World(NamedTuple):
    """How much differs from seed to seed and from task to task, in log-odds."""

    mean: float = 0.0
    seed: float = 0.3
    """Of both arms alike: the warm start."""
    seed_arm: float = 0.3
    """Of each arm alone: how training went."""
    task: float = 1.5
    task_arm: float = 0.3


class Kept(NamedTuple):
    """What was found over many worlds."""

    coverage: float
    """How often the interval held the truth."""
    claimed: float
    """How often p was below 5 %."""
    detectable: float
    """Mean of the difference that the comparisons said they would find."""
    bootstrap: float
    """How often the percentile bootstrap over seeds and tasks held the truth."""


def truth(world: World, shift: float) -> float:
    """Return the difference of success that a shift in log-odds of the first arm makes."""
    rng = np.random.default_rng(7)
    common = math.hypot(world.seed, world.task) * rng.standard_normal(DRAWS)
    alone = math.hypot(world.seed_arm, world.task_arm)
    first = world.mean + shift + common + alone * rng.standard_normal(DRAWS)
    second = world.mean + common + alone * rng.standard_normal(DRAWS)
    return float((_logistic(first) - _logistic(second)).mean())


def shift_of(world: World, difference: float) -> float:
    """Return the shift in log-odds that makes a difference of success."""
    low, high = 0.0, 20.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if truth(world, middle) < difference else (low, middle)
    return low


def play(rng: np.random.Generator, world: World, shift: float, seeds: int, tasks: int) -> tuple[Floats, Floats]:
    """Play both arms: [seeds, tasks] each, 0 or 1."""
    common = world.seed * rng.standard_normal((seeds, 1)) + world.task * rng.standard_normal(tasks)
    arms = []
    for more in (shift, 0.0):
        alone = world.seed_arm * rng.standard_normal((seeds, 1)) + world.task_arm * rng.standard_normal(tasks)
        arms.append((rng.random((seeds, tasks)) < _logistic(world.mean + more + common + alone)).astype(np.float64))
    return arms[0], arms[1]


def bootstrap(rng: np.random.Generator, differences: Floats) -> Interval:
    """Return the percentile interval of seeds and tasks redrawn, each on their own: the alternative."""
    seeds, tasks = differences.shape
    drawn = np.empty(RESAMPLES)
    for place in range(RESAMPLES):
        chosen = differences[rng.integers(seeds, size=seeds)]
        drawn[place] = chosen[:, rng.integers(tasks, size=tasks)].mean()
    return percentiles(drawn)


def simulate(
    world: World, shift: float, *, seeds: int, tasks: int, runs: int, seed: int = 0, drawn: bool = True
) -> Kept:
    """Compare two arms in many worlds; `drawn` has the bootstrap beside it."""
    rng = np.random.default_rng(seed)
    known = truth(world, shift) if shift else 0.0
    held = claimed = redrawn = 0
    detectable = 0.0
    for _ in range(runs):
        first, second = play(rng, world, shift, seeds, tasks)
        found = effect(
            dict(enumerate({"e": row} for row in first)), dict(enumerate({"e": row} for row in second)), seeds
        )
        assert found is not None
        held += found.interval[0] <= known <= found.interval[1]
        claimed += found.p < ALPHA
        detectable += found.detectable
        if drawn:
            low, high = bootstrap(rng, first - second)
            redrawn += low <= known <= high
    return Kept(held / runs, claimed / runs, detectable / runs, redrawn / runs)


def _logistic(values: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-values)))


WORLDS = {
    "as expected": World(),
    "seeds differ much": World(seed_arm=0.8),
    "seeds differ not at all": World(seed=0.0, seed_arm=0.0),
    "tasks respond differently": World(task_arm=1.5),
    "rare success": World(mean=-3.0),
}


def report(runs: int = 1000) -> str:
    """Return the tables as text."""
    rows = [
        f"Interval (95 %) and false claims (5 % wanted) of comparisons over seeds and tasks, {runs:,} worlds a row.",
        "",
        "| world | seeds × tasks | truth | coverage | claims | detectable | coverage of the percentile bootstrap |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, world in WORLDS.items():
        for seeds, tasks in ((3, 400), (5, 200)):
            blank = simulate(world, 0.0, seeds=seeds, tasks=tasks, runs=runs)
            there = simulate(
                world, shift_of(world, blank.detectable), seeds=seeds, tasks=tasks, runs=runs, seed=1, drawn=False
            )
            rows.append(
                f"| {name} | {seeds} × {tasks} | 0 | {blank.coverage:.3f} | {blank.claimed:.3f} "
                f"| {blank.detectable:.3f} | {blank.bootstrap:.3f} |"
            )
            rows.append(
                f"| {name} | {seeds} × {tasks} | {blank.detectable:.3f} | {there.coverage:.3f} | {there.claimed:.3f} "
                f"| {there.detectable:.3f} | |"
            )
    return "\n".join(rows)
