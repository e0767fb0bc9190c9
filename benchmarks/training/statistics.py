"""Whether two arms differ, over seeds *and* tasks: what a claim about a method, not about one run, must allow for.

The same tasks are played after every seed, and both arms of a seed begin with the same warm start, so differences are
taken task by task within a seed. Seeds and tasks both are drawn from many, crossed: the variance of the mean difference
is what seeds add, plus what tasks add, less what is then counted twice (a two-way analysis of variance; Cameron,
Gelbach and Miller 2011 for clusters). Decided here:

- Student's t with Satterthwaite's degrees of freedom. The percentile bootstrap over seeds and tasks is printed by the
  simulation beside it: with three or five seeds it holds the truth too seldom, or far too often.
- Half a pair is added to each cell of McNemar's table, so that no interval has zero width.
- All comparisons of one experiment are a family under Holm's correction.
- The detectable difference is that which a test like this one finds four times in five.
- Nothing is claimed of fewer than three seeds, nor while seeds that were declared are missing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import msgspec
import numpy as np

from benchmarks.training.lines import Floats
from harness.core import Value
from harness.metrics import holm
from harness.metrics.comparison import ALPHA
from harness.metrics.intervals import NORMAL, POWER, Interval

LEAST_SEEDS = 3
MOST_FREEDOM = 200.0
GRID = 1000
"""Points at which the chi-square distribution is summed up."""
Table = Mapping[int, Mapping[str, Floats]]
"""Seed -> environment -> the value of each task."""


class Effect(Value, frozen=True, kw_only=True):
    """A difference of two arms, the first less the second; environments count alike."""

    first: float
    second: float
    difference: float
    interval: Interval
    p: float
    p_holm: float
    detectable: float
    seeds: int
    declared: int
    """Seeds that were to be run."""
    tasks: int
    """Of one seed, all environments together."""
    each: tuple[float, ...]
    """Difference of each seed."""

    @property
    def says(self) -> str:
        """What may be claimed."""
        if self.seeds < max(LEAST_SEEDS, self.declared):
            return f"no claim: {self.seeds} of {max(LEAST_SEEDS, self.declared)} seeds"
        if self.p_holm >= ALPHA:
            return "no difference shown"
        return "better" if self.difference > 0 else "worse"


class Spread(Value, frozen=True, kw_only=True):
    """The variance of a mean difference, and how well it is known."""

    variance: float
    freedom: float


def effect(first: Table, second: Table, declared: int) -> Effect | None:
    """Compare two arms on the seeds and environments that both have; None below two seeds."""
    seeds = sorted(set(first) & set(second))
    if len(seeds) < 2:
        return None
    envs = sorted(set.intersection(*(set(arm[seed]) for arm in (first, second) for seed in seeds)))
    differences = {env: np.stack([first[seed][env] - second[seed][env] for seed in seeds]) for env in envs}
    each = np.mean([values.mean(axis=1) for values in differences.values()], axis=0)
    difference = float(each.mean())
    found = spread(differences)
    error = math.sqrt(found.variance)
    reach = t_quantile(1 - ALPHA / 2, found.freedom) * error
    p = min(1.0, 2 * t_tail(abs(difference) / error, found.freedom))
    return Effect(
        first=_mean(first, seeds, envs),
        second=_mean(second, seeds, envs),
        difference=difference,
        interval=(max(-1.0, difference - reach), min(1.0, difference + reach)),
        p=p,
        p_holm=p,
        detectable=min(1.0, noncentrality(found.freedom) * error),
        seeds=len(seeds),
        declared=declared,
        tasks=sum(values.shape[1] for values in differences.values()),
        each=tuple(round(float(value), 4) for value in each),
    )


def level(table: Table) -> Interval | None:
    """Return the interval of one arm's success, over seeds and tasks; None below two seeds."""
    nothing = {seed: {env: np.zeros_like(values) for env, values in arm.items()} for seed, arm in table.items()}
    found = effect(table, nothing, len(table))
    return None if found is None else (max(0.0, found.interval[0]), found.interval[1])


def family(effects: Sequence[Effect | None]) -> list[Effect | None]:
    """Return the effects with their p-values corrected over all that are there."""
    corrected = iter(holm([each.p for each in effects if each is not None]))
    return [None if each is None else msgspec.structs.replace(each, p_holm=next(corrected)) for each in effects]


def spread(differences: Mapping[str, Floats]) -> Spread:
    """Return the variance of the mean over environments of the mean difference: [seeds, tasks] for each environment."""
    share = 1 / len(differences)
    seeds = next(iter(differences.values())).shape[0]
    by_seed = np.mean([values.mean(axis=1) for values in differences.values()], axis=0)
    of_seeds = float(by_seed.var(ddof=1)) / seeds
    of_tasks, of_both, least, known = 0.0, 0.0, 0.0, of_seeds**2 / (seeds - 1)
    for values in differences.values():
        tasks = values.shape[1]
        by_task = values.mean(axis=0)
        task = share**2 * float(by_task.var(ddof=1)) / tasks if tasks > 1 else 0.0
        rest = values - values.mean(axis=1, keepdims=True) - by_task + values.mean()
        freedom = (seeds - 1) * max(1, tasks - 1)
        both = share**2 * float((rest**2).sum()) / freedom / (seeds * tasks)
        of_tasks, of_both = of_tasks + task, of_both + both
        known += task**2 / max(1, tasks - 1) + both**2 / freedom
        least += share**2 * _least(by_task)
    variance = max(of_seeds + of_tasks - of_both, of_seeds, of_tasks, least)
    return Spread(variance=variance, freedom=_rounded(variance**2 / known) if known else MOST_FREEDOM)


def _rounded(freedom: float) -> float:
    """Return degrees of freedom of which there are few enough to look up."""
    within = max(1.0, min(freedom, MOST_FREEDOM))
    return math.floor(10 * within) / 10 if within < 20 else float(math.floor(within))


def _least(values: Floats) -> float:
    """Return the variance of the mean of task differences with half a pair added to each cell of McNemar's table."""
    count = len(values) + 2
    return (float(values @ values + 1) / count - (float(values.sum()) / count) ** 2) / count


def _mean(table: Table, seeds: Sequence[int], envs: Sequence[str]) -> float:
    return float(np.mean([[table[seed][env].mean() for env in envs] for seed in seeds]))


@cache
def _chi(freedom: float) -> tuple[Floats, Floats]:
    """Return values of √(χ²/ν) and their chances, which sum to 1."""
    high = 1 + 12 / math.sqrt(2 * freedom)
    values: Floats = (np.arange(GRID) + 0.5) / GRID * max(high, 6 / math.sqrt(freedom))
    logs = (freedom - 1) * np.log(values) - freedom * values**2 / 2
    chances = np.exp(logs - logs.max())
    return values, chances / chances.sum()


@cache
def _normal() -> tuple[Floats, Floats]:
    """Return places and the standard normal's chance of being below each."""
    places: Floats = np.linspace(-12, 12, 24_001)
    return places, np.array([NORMAL.cdf(place) for place in places])


def t_tail(value: float, freedom: float, centre: float = 0.0) -> float:
    """Return the chance that Student's t (noncentral, where `centre` is not 0) exceeds a value."""
    values, chances = _chi(freedom)
    places, below = _normal()
    return float(chances @ np.interp(centre - value * values, places, below))


@cache
def t_quantile(share: float, freedom: float) -> float:
    """Return the value below which Student's t is with a chance of `share`."""
    return _solve(lambda value: t_tail(value, freedom) - (1 - share), 0.0, 1000.0)


@cache
def noncentrality(freedom: float) -> float:
    """Return by how many standard errors the truth must lie off zero to be found with a chance of POWER."""
    bound = t_quantile(1 - ALPHA / 2, freedom)
    return _solve(lambda centre: POWER - t_tail(bound, freedom, centre), 0.0, 2 * bound + 5)


def _solve(falling: Callable[[float], float], low: float, high: float) -> float:
    """Return where a falling function is zero."""
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return (low + high) / 2
