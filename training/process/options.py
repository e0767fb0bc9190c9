"""How a run is spread over processes. It changes speed, never what is learnt, so it is not in a recipe's digest."""

from __future__ import annotations

from harness.config import Strict
from harness.core import Count, Natural, Seconds


class ProcessOptions(Strict, frozen=True, kw_only=True):
    """What runs in a process of its own, on how many threads, and how long it may be silent."""

    learner: bool = True
    """A process for the learner, one for each of its ranks."""
    engine: bool = True
    """A process for the engines of all pools; False leaves them on threads beside the collectors.

    Apart costs 2 % more of the processors for each token of the tiny model, and takes 99 % of its cost out of the
    collectors' process (10 µs instead of 780), whose event loop and environments then share nobody's lock.
    """
    replicas: Count = 1
    """Such processes, on this machine or on a cluster's nodes. Each computes all pools; an episode stays with one."""
    players: Natural = 0
    """Processes that play the episodes: agent, environments, rendering. 0 plays them on the run's own event loop, which
    is enough until `loop/lag` says otherwise."""
    learner_threads: Count | None = None
    """Of each rank; None is torch's own choice, one where the learner is deterministic."""
    engine_threads: Count | None = None
    restarts: Natural = 3
    """Times that an engine, a player or the learner that died is started again before the run ends, resumable."""
    start_seconds: Seconds = 900.0
    """Deadline of a child's start and of loading weights."""
    call_seconds: Seconds = 7200.0
    """Deadline of one call: an update, a publish, a turn."""
    silent_seconds: Seconds = 120.0
    """A child that gives no sign of life for so long ends the run."""


TOGETHER = ProcessOptions(learner=False, engine=False)
"""All in one process: `processes = false`."""
