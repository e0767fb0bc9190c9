"""The admission rule and the lag budgets (M8): golden numbers, and a run in every order, crashes included."""

from __future__ import annotations

import asyncio
import random

import msgspec
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.training.players import group, segment
from training import staleness
from training.buffer import Buffer, decode, encode
from training.policies import Served, refreshed
from training.staleness import Admission, Budget
from training.values import Group, Sample
from training.watch import Watch


@pytest.mark.parametrize(
    ("eta", "version", "accepted", "running", "most", "capacity"),
    [
        (0, 0, 0, 0, 100, 4),
        (0, 0, 0, 3, 100, 1),
        (0, 0, 4, 0, 100, 0),
        (0, 1, 4, 0, 100, 4),
        (2, 0, 0, 0, 100, 12),
        (2, 5, 22, 4, 100, 6),
        (2, 5, 22, 4, 6, 2),
        (1, 3, 20, 2, 100, -2),
    ],
)
def test_capacity_is_that_of_the_rule(
    eta: int, version: int, accepted: int, running: int, most: int, capacity: int
) -> None:
    admission = Admission(batch=4, eta=eta, max_running=most, version=version, accepted=accepted, running=running)
    assert admission.capacity == capacity


def test_nothing_is_begun_without_capacity() -> None:
    admission = Admission(batch=1, eta=0, max_running=8).begun()
    with pytest.raises(ValueError, match="without capacity"):
        admission.begun()
    with pytest.raises(ValueError, match="without capacity"):
        admission.finished().begun()
    assert admission.dropped().capacity == 1
    assert admission.finished().published(1).capacity == 1


def test_a_restart_counts_what_was_trained_on_and_what_waits() -> None:
    admission = staleness.restarted(batch=4, eta=1, max_running=50, version=7, restored=3)
    assert (admission.accepted, admission.running, admission.capacity) == (31, 0, 5)


def test_each_pool_has_a_budget_of_its_own() -> None:
    budget = Budget(eta=2, stale_interval=5)
    assert [budget.most(pool) for pool in range(3)] == [2, 7, 12]
    part = segment([10, 8, 7, 8, 3, 2], pools=[0, 0, 0, 1, 1, 1])
    kept = staleness.keep(part, 10, budget)
    assert kept.tolist() == [False, False, True, True, False, True, True, False]
    nothing = np.zeros(len(kept), np.float32)
    one = Sample(segment=part, env="db", group_id=0, attempt=0, advantages=nothing, kept=kept, coefficient=1.0)
    assert staleness.trained([one], 10) == {
        "lag/trained/0/0": 1, "lag/trained/0/2": 1, "lag/trained/0/max": 2, "lag/trained/0/mean": 1.0,
        "lag/trained/1/2": 1, "lag/trained/1/7": 1, "lag/trained/1/max": 7, "lag/trained/1/mean": 4.5,
        "tokens/too_old": 2,
    }  # fmt: skip


def test_a_pool_that_is_never_refreshed_is_not_bounded() -> None:
    kept = staleness.keep(segment([0, 0], pools=[0, 1]), 10**6, Budget(eta=2, stale_interval=None))
    assert kept.tolist() == [False, False, False, True]


def test_lags_are_counted_by_pool() -> None:
    counts = staleness.tally(group(0, parts=lambda place: segment([4, 4, 1], pools=[0, 0, 1])).attempts)
    assert staleness.histogram(counts, 5) == {0: {1: 4}, 1: {4: 2}}
    assert staleness.metrics("queue", counts, 5) == {
        "lag/queue/0/1": 4,
        "lag/queue/0/max": 1,
        "lag/queue/0/mean": 1.0,
        "lag/queue/1/4": 2,
        "lag/queue/1/max": 4,
        "lag/queue/1/mean": 4.0,
    }


class Run(RuleBasedStateMachine):
    """A run whose groups begin, grow, end or fail in any order, and that is killed now and then."""

    @initialize(
        batch=st.integers(1, 3),
        eta=st.integers(0, 3),
        most=st.integers(1, 8),
        interval=st.integers(1, 4),
        depth=st.integers(0, 2),
        seed=st.integers(0, 99),
    )
    def start(self, batch: int, eta: int, most: int, interval: int, depth: int, seed: int) -> None:
        self.admission = Admission(batch=batch, eta=eta, max_running=most)
        self.buffer = Buffer(batch, (eta + 1) * batch)
        self.budget = Budget(eta=eta, stale_interval=interval)
        self.serving = (Served(version=0, folder=""),) * (depth + 1)
        self.running: dict[int, list[tuple[int, int]]] = {}
        self.next_group = 0
        self.trained: list[int] = []
        self.dice = random.Random(seed)
        self.save()

    @precondition(lambda self: self.admission.capacity > 0)
    @rule()
    def begin(self) -> None:
        self.admission = self.admission.begun()
        self.running[self.next_group] = []
        self.next_group += 1

    @precondition(lambda self: self.running)
    @rule()
    def turn(self) -> None:
        pool = self.dice.randrange(len(self.serving))
        self.running[self.dice.choice(sorted(self.running))].append((self.serving[pool].version, pool))

    @precondition(lambda self: any(self.running.values()))
    @rule()
    def finish(self) -> None:
        number = self.dice.choice(sorted(number for number, tokens in self.running.items() if tokens))
        versions, pools = zip(*self.running.pop(number), strict=True)
        self.buffer.put(group(number, parts=lambda place: segment(versions, pools)))
        self.admission = self.admission.finished()

    @precondition(lambda self: self.running)
    @rule()
    def drop(self) -> None:
        number = self.dice.choice(sorted(self.running))
        del self.running[number]
        before = self.admission
        self.admission = before.dropped()
        self.buffer.give_up(number)
        assert self.admission.capacity == before.capacity + 1

    @precondition(lambda self: len(self.buffer) >= self.admission.batch)
    @rule()
    def update(self) -> None:
        waiting = self.buffer.groups
        taken = self._take()
        assert taken == waiting[: self.admission.batch], "not the oldest"
        version = self.admission.version
        for one in taken:
            for part in (part for attempt in one.attempts for part in attempt.segments):
                kept = staleness.keep(part, version, self.budget)
                for pool, sampled in zip(part.pools[kept], part.versions[kept], strict=True):
                    limit = self.budget.eta + (self.budget.stale_interval or 0) * int(pool)
                    assert 0 <= version - sampled <= limit
        self.trained += [one.group_id for one in taken]
        self.admission = self.admission.published(version + 1)
        new = Served(version=version + 1, folder="")
        self.serving = refreshed(self.serving, new, self.budget.stale_interval)

    @rule()
    def save(self) -> None:
        spent = msgspec.json.encode(self.buffer.spent)
        self.saved = (encode(self.buffer.groups), spent, self.admission.version, self.serving, self._lineage())

    @rule()
    def crash(self) -> None:
        groups, spent, version, self.serving, (next_group, trained, owed) = self.saved
        restored = decode(groups)
        old = self.admission
        self.admission = staleness.restarted(old.batch, old.eta, old.max_running, version, len(restored))
        spent_ids = msgspec.json.decode(spent, type=type(self.buffer.spent))
        self.buffer = Buffer(old.batch, self.buffer.bound, restored, spent_ids)
        self.next_group, self.trained, self.running = next_group, list(trained), {}
        for number in owed:
            if self.admission.capacity > 0:
                self.admission = self.admission.begun()
                self.running[number] = []
            else:
                self.buffer.give_up(number)

    def _take(self) -> tuple[Group, ...]:
        return asyncio.run(self.buffer.take(Watch(), 1.0)).groups

    def _lineage(self) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        return self.next_group, tuple(self.trained), tuple(self.running)

    @invariant()
    def bounded(self) -> None:
        if not hasattr(self, "admission"):
            return
        admission = self.admission
        assert admission.running == len(self.running) <= admission.max_running
        assert admission.accepted == admission.version * admission.batch + len(self.buffer)
        assert len(self.buffer) + len(self.running) <= (admission.eta + 1) * admission.batch
        assert len(self.trained) == len(set(self.trained)), "trained on twice"

    @invariant()
    def never_stuck(self) -> None:
        if hasattr(self, "admission") and not self.running:
            assert self.admission.capacity > 0 or len(self.buffer) >= self.admission.batch


Run.TestCase.settings = settings(max_examples=40, stateful_step_count=60, deadline=None)
TestRun = Run.TestCase
