"""A controller's numbers, as Prometheus reads them."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from harness.service.controller import Controller

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 240)


class Metrics:
    """Counts as things happen; what there is at a moment is read off the controller when it is asked for."""

    def __init__(self, controller: Controller) -> None:
        self._registry = CollectorRegistry()
        to = self._registry
        self._interacts = Histogram(
            "harness_interact_seconds", "Time of a turn, the worker's included", ["task"], buckets=SECONDS, registry=to
        )
        self._starts = Histogram(
            "harness_start_seconds", "Time until an opening, waiting included", ["task"], buckets=SECONDS, registry=to
        )
        self._errors = Counter("harness_errors", "Sessions that failed, by what failed", ["kind"], registry=to)
        self._refusals = Counter("harness_refusals", "Requests refused, by HTTP status", ["status"], registry=to)
        self._restarts = Counter("harness_worker_restarts", "Worker processes started again from here", registry=to)
        self._registry.register(_Now(controller))
        self.totals: Tally[str] = Tally()
        """The same for the status page: interactions, starts, errors, restarts."""

    def interacted(self, task: str, seconds: float) -> None:
        """Count an interaction."""
        self._interacts.labels(task).observe(seconds)
        self.totals["interactions"] += 1

    def started(self, task: str, seconds: float) -> None:
        """Count a session."""
        self._starts.labels(task).observe(seconds)
        self.totals["sessions"] += 1

    def failed(self, kind: str) -> None:
        """Count an error."""
        self._errors.labels(kind).inc()
        self.totals["errors"] += 1

    def refused(self, status: int) -> None:
        """Count a refusal."""
        self._refusals.labels(str(status)).inc()

    def restarted(self) -> None:
        """Count a worker process that was started again."""
        self._restarts.inc()
        self.totals["restarts"] += 1

    def text(self) -> bytes:
        """Return everything in Prometheus' text form."""
        return generate_latest(self._registry)


class _Now(Collector):
    """What there is at the moment of a scrape."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges."""
        dispatch, sessions = self._controller.dispatch, self._controller.sessions.values()
        workers = dispatch.workers.values()
        yield _gauge(
            "harness_workers", "Workers", ("task", "state"), Tally((w.name, dispatch.state(w)) for w in workers)
        )
        slots: Tally[tuple[str, ...]] = Tally()
        crashes: Tally[tuple[str, ...]] = Tally()
        for worker in workers:
            slots[worker.name,] += worker.concurrency if dispatch.live(worker) else 0
            crashes[worker.name,] += worker.restarts
        yield _gauge("harness_slots", "Sessions that live workers take at once", ("task",), slots)
        yield _gauge(
            "harness_sessions", "Sessions under way", ("task", "state"), Tally((s.name, s.state) for s in sessions)
        )
        queue: Tally[tuple[str, ...]] = Tally({(name,): len(waiters) for name, waiters in dispatch.waiting.items()})
        yield _gauge("harness_queue", "Starts that wait for a free slot", ("task",), queue)
        yield _gauge("harness_process_restarts", "Processes replaced after a crash, inside workers", ("task",), crashes)


def _gauge(name: str, what: str, labels: tuple[str, ...], values: Tally[tuple[str, ...]]) -> Metric:
    family = GaugeMetricFamily(name, what, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family
