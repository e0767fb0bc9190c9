"""What was played between two updates, counted as it comes, and how long an engine or the learner had nothing to do."""

from __future__ import annotations

import contextlib
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence

import numpy as np

from harness.core import Trajectory
from training.values import Group, Metrics

MOST_LATENCIES = 10_000
"""Steps of one environment whose time is remembered between two updates."""


class Busy:
    """The share of the time in which nothing was under way."""

    def __init__(self) -> None:
        self._under_way = 0
        self._idle = 0.0
        self._begun = self._since = time.monotonic()

    @contextlib.contextmanager
    def work(self) -> Iterator[None]:
        """Say that something is under way inside."""
        if not self._under_way:
            self._idle += time.monotonic() - self._since
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            self._since = time.monotonic()

    def idle(self) -> float:
        """Return the share of the time since the last call."""
        now = time.monotonic()
        idle = self._idle + (0.0 if self._under_way else now - self._since)
        share = idle / max(now - self._begun, 1e-9)
        self._idle, self._begun, self._since = 0.0, now, now
        return min(1.0, share)


class Counts:
    """Counters of attempts, groups and drops; `metrics` names them."""

    def __init__(self) -> None:
        self._attempts: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._endings: Counter[str] = Counter()
        self._drops: Counter[str] = Counter()
        self._turns = 0
        self._forks = 0
        self._tokens = 0
        self._rewards: dict[str, list[float]] = defaultdict(list)
        self._latencies: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=MOST_LATENCIES))

    def attempt(self, env: str, trajectory: Trajectory) -> None:
        """Count an attempt at an environment, whatever became of it."""
        self._attempts[env] += 1
        self._endings[trajectory.ending.value] += 1
        self._failed[env] += not trajectory.ending.by_agent
        self._turns += len(trajectory.turns)
        self._tokens += trajectory.usage.output_tokens
        self._latencies[env].extend(turn.env_seconds for turn in trajectory.turns)

    def group(self, group: Group) -> None:
        """Count a complete group."""
        self._forks += sum(max(0, len(one.segments) - 1) for one in group.attempts)
        self._rewards[group.env] += [one.reward for one in group.attempts]

    def drop(self, env: str, reason: str) -> None:
        """Count a group that came to nothing."""
        self._drops[f"drop/{env}/{reason}"] += 1

    def metrics(self) -> Metrics:
        """Return all of it as numbers; shares and means only where there is something to divide by."""
        found: Metrics = {"tokens/generated": self._tokens, "attempts": self._attempts.total(), **self._drops}
        found |= {f"ending/{name}": count for name, count in self._endings.items()}
        if self._attempts:
            found["env/errors"] = self._failed.total() / self._attempts.total()
        if self._turns:
            found["forks"] = self._forks / self._turns
        for env, count in self._attempts.items():
            found[f"env/{env}/errors"] = self._failed[env] / count
        for env, times in self._latencies.items():
            for q in (50, 95, 99) if times else ():
                found[f"env/{env}/step_seconds/p{q}"] = float(np.percentile(list(times), q))
        for env, rewards in self._rewards.items():
            found[f"task/{env}/reward"] = float(np.mean(rewards))
            found[f"task/{env}/success"] = float(np.mean([reward >= 1 for reward in rewards]))
        return found


def rewards(groups: Sequence[Group]) -> Metrics:
    """Return the mean reward, and by how much a group's best attempt is above its worst: 0 everywhere says nothing."""
    values = [[one.reward for one in group.attempts] for group in groups]
    together = np.concatenate(values)
    return {
        "reward/mean": float(together.mean()),
        "reward/std": float(together.std()),
        "reward/spread": float(np.mean([np.ptp(each) for each in values])),
    }
