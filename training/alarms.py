"""What the numbers of a run say is wrong with it: a name, the cause, the remedy.

Each alarm is a pure function of the run's metrics, oldest first, one mapping an update. Decided here: an alarm is
raised where *every* one of the last few updates says so, so that one odd batch wakes nobody; a number that is absent,
or no number, says nothing. `Watched` keeps what the alarms read and says what changed.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any

import msgspec

from harness.core import Count, Value
from training.values import Metrics

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
History = Sequence[Metrics]

FIRST = 32
"""Updates at a run's beginning that are remembered: what later ones are compared with."""
READ = re.compile(
    r"idle/(learner|engine)|ess|surprise|forks|env/errors|reward/spread|loop/lag|task/.*/loss_share|pool/\d+/kl"
)
"""The numbers that alarms are about."""


class AlarmOptions(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where alarms begin."""

    updates: Count = 5
    """So many updates in a row must say the same."""
    learner_idle: Share = 0.5
    engine_idle: Share = 0.5
    loss_share: Share = 0.8
    """Of the loss, by one environment of several."""
    ess: Share = 0.3
    entropy: Share = 0.2
    """What is left of the first updates' surprise."""
    pool_kl: Positive = 0.5
    """Nats a token between the trainer and a pool."""
    forks: Share = 0.05
    """Of the turns."""
    env_errors: Share = 0.1
    """Of the attempts."""
    loop_lag: Positive = 0.5
    """Seconds by which the event loop is late."""


class Alarm(Value, frozen=True, kw_only=True):
    """One thing that is wrong."""

    name: str
    cause: str
    remedy: str

    def __str__(self) -> str:
        """Return it as one line."""
        return f"{self.name}: {self.cause}; {self.remedy}"


Check = Callable[[History, AlarmOptions], Alarm | None]


def alarms(history: History, options: AlarmOptions) -> list[Alarm]:
    """Return all that is wrong with a run as its recent metrics tell it, the oldest update first.

    Nothing is said of fewer updates than `options.updates`.
    """
    if len(history) < options.updates:
        return []
    return [alarm for check in CHECKS if (alarm := check(history, options)) is not None]


def learner_idle(history: History, options: AlarmOptions) -> Alarm | None:
    """Find a learner that waits for data (`idle/learner`, share of the time)."""
    worst = _always(history, options, "idle/learner", lambda value: value > options.learner_idle)
    return _alarm(
        worst,
        "learner idle",
        "the learner waited for groups {0:.0%} of the time",
        "raise running or eta, add engines (processes.replicas), or take slow environments out",
    )


def engine_idle(history: History, options: AlarmOptions) -> Alarm | None:
    """Find engines that have nothing to sample (`idle/engine`, share of the time)."""
    worst = _always(history, options, "idle/engine", lambda value: value > options.engine_idle)
    return _alarm(
        worst,
        "engine idle",
        "the engines had nothing to sample {0:.0%} of the time",
        "raise running or eta; where environments are slow, give them processes (processes.players)",
    )


def task_dominates(history: History, options: AlarmOptions) -> Alarm | None:
    """Find one environment that has nearly all of the loss (`task/NAME/loss_share`)."""
    names = sorted(_named(history, "task/", "/loss_share"))
    for name in names if len(names) > 1 else ():
        share = _always(history, options, f"task/{name}/loss_share", lambda value: value > options.loss_share)
        if share is not None:
            remedy = "turn task_mean and the task advantage normalisation on, or lower its share"
            return Alarm(name="one task dominates", cause=f"{name} has {share:.0%} of the loss", remedy=remedy)
    return None


def ess_collapse(history: History, options: AlarmOptions) -> Alarm | None:
    """Find a batch that only few tokens still speak for (`ess`)."""
    worst = _always(history, options, "ess", lambda value: value < options.ess)
    return _alarm(
        worst,
        "ESS collapse",
        "the effective sample size is {0:.0%} of the tokens",
        "lower η, stale_ratio, stale_interval or the learning rate",
    )


def entropy_collapse(history: History, options: AlarmOptions) -> Alarm | None:
    """Find a policy that no longer explores (`surprise`, mean -log μ of its own tokens)."""
    values = _values(history, "surprise")
    first = sum(values[: options.updates]) / options.updates if len(values) >= 2 * options.updates else 0.0
    worst = _always(history, options, "surprise", lambda value: value < options.entropy * first)
    return _alarm(
        worst,
        "entropy collapse",
        "tokens surprise the model by {0:.3g} nats; it was {1:.3g} at first",
        "raise clip_high, lower the learning rate, or give kl a small weight",
        first,
    )


def pools_apart(history: History, options: AlarmOptions) -> Alarm | None:
    """Find a pool whose policy is another one by now (`pool/N/kl`)."""
    for pool in sorted(_named(history, "pool/", "/kl")):
        apart = _always(history, options, f"pool/{pool}/kl", lambda value: value > options.pool_kl)
        if apart is not None:
            remedy = "lower stale_interval or stale_ratio; if it is pool 0, compare engine and trainer first"
            cause = f"pool {pool} is {apart:.3g} nats a token from the trainer"
            return Alarm(name="pools too far apart", cause=cause, remedy=remedy)
    return None


def forks_rising(history: History, options: AlarmOptions) -> Alarm | None:
    """Find a chat template that rewrites what was said (`forks`, share of the turns)."""
    return _rising(
        history,
        options,
        "forks",
        options.forks,
        "forks rising",
        "of the turns rewrote what was said before",
        "use a chat template that only appends, or an agent that leaves its history as it is",
    )


def env_errors_rising(history: History, options: AlarmOptions) -> Alarm | None:
    """Find environments that fail ever more often (`env/errors`, share of the attempts)."""
    return _rising(
        history,
        options,
        "env/errors",
        options.env_errors,
        "environment errors rising",
        "of the attempts failed in their environment or engine",
        "look at the failures in the log, run `harness doctor`, or lower running",
    )


def reward_constant(history: History, options: AlarmOptions) -> Alarm | None:
    """Find batches in which all attempts of a group are worth the same (`reward/spread`: the best less the worst)."""
    recent = _values(history[-options.updates :], "reward/spread")
    if len(recent) < options.updates or any(value > 0 for value in recent):
        return None
    return Alarm(
        name="reward constant",
        cause=f"in the last {options.updates} updates all attempts of a group were worth the same: nothing to learn",
        remedy="take easier or harder tasks (difficulty, the curriculum's band), or warm-start for longer",
    )


def loop_lagging(history: History, options: AlarmOptions) -> Alarm | None:
    """Find an event loop that comes too late (`loop/lag`, seconds)."""
    worst = _always(history, options, "loop/lag", lambda value: value > options.loop_lag)
    return _alarm(
        worst,
        "event loop lagging",
        "the event loop is {0:.2g} seconds late",
        "play the episodes in processes of their own (processes.players), or lower running",
    )


CHECKS: tuple[Check, ...] = (
    learner_idle,
    engine_idle,
    task_dominates,
    ess_collapse,
    entropy_collapse,
    pools_apart,
    forks_rising,
    env_errors_rising,
    reward_constant,
    loop_lagging,
)


class Watched:
    """The numbers that alarms read, update by update, and the alarms that are raised."""

    def __init__(self, options: AlarmOptions, raised: Mapping[str, Alarm] = MappingProxyType({})) -> None:
        self.raised: dict[str, Alarm] = dict(raised)
        self._options = options
        self._first: list[Metrics] = []
        self._recent: deque[Metrics] = deque(maxlen=options.updates)

    def saw(self, metrics: Metrics) -> None:
        """Remember an update."""
        read = {key: value for key, value in metrics.items() if READ.fullmatch(key) and _is_number(value)}
        if len(self._first) < max(FIRST, self._options.updates):
            self._first.append(read)
        else:
            self._recent.append(read)

    def changes(self) -> tuple[list[Alarm], list[Alarm]]:
        """Return the alarms that are raised now and were not before, and those that are gone."""
        found = {alarm.name: alarm for alarm in alarms([*self._first, *self._recent], self._options)}
        risen = [alarm for name, alarm in found.items() if name not in self.raised]
        gone = [alarm for name, alarm in self.raised.items() if name not in found]
        self.raised = found
        return risen, gone


def _rising(
    history: History, options: AlarmOptions, key: str, most: float, name: str, cause: str, remedy: str
) -> Alarm | None:
    """Find a share that is above a bound, and above what it was at first."""
    worst = _always(history, options, key, lambda value: value > most)
    first = _values(history, key)[: options.updates]
    if worst is None or (len(history) > options.updates and worst <= sum(first) / len(first)):
        return None
    return Alarm(name=name, cause=f"{worst:.0%} {cause}", remedy=remedy)


def _alarm(worst: float | None, name: str, cause: str, remedy: str, *more: float) -> Alarm | None:
    """Return an alarm where there is a value, which its cause names."""
    return None if worst is None else Alarm(name=name, cause=cause.format(worst, *more), remedy=remedy)


def _always(history: History, options: AlarmOptions, key: str, wrong: Callable[[float], bool]) -> float | None:
    """Return the newest value where each of the last updates has one and it is wrong."""
    recent = _values(history[-options.updates :], key)
    return recent[-1] if len(recent) == options.updates and all(map(wrong, recent)) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _values(history: History, key: str) -> list[float]:
    return [float(metrics[key]) for metrics in history if key in metrics]


def _named(history: History, before: str, after: str) -> set[str]:
    keys = {key for metrics in history for key in metrics}
    return {key[len(before) : -len(after)] for key in keys if key.startswith(before) and key.endswith(after)}
