"""Comparisons over seeds and tasks: their parts against tables, their promises in worlds with a known truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.training import simulation, statistics
from benchmarks.training.simulation import World


@pytest.mark.parametrize(
    ("share", "freedom", "value"),
    [(0.975, 1.0, 12.7062), (0.975, 4.0, 2.7764), (0.975, 10.0, 2.2281), (0.95, 2.0, 2.9200), (0.975, 30.0, 2.0423)],
)
def test_students_t_is_that_of_the_tables(share: float, freedom: float, value: float) -> None:
    assert statistics.t_quantile(share, freedom) == pytest.approx(value, rel=1e-3)


def test_power_is_that_of_the_tables() -> None:
    assert statistics.noncentrality(200.0) == pytest.approx(2.81, abs=0.01)  # 1.96 + 0.84 and a little
    bound = statistics.t_quantile(0.975, 4.0)
    assert statistics.t_tail(bound, 4.0, statistics.noncentrality(4.0)) == pytest.approx(0.8, abs=1e-3)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 6), st.integers(2, 30), st.integers(0, 2**31), st.floats(0.0, 1.0))
def test_an_effect_holds_what_it_must(seeds: int, tasks: int, seed: int, p: float) -> None:
    rng = np.random.default_rng(seed)
    arms = [{s: {"a": (rng.random(tasks) < p) * 1.0, "b": rng.random(3)} for s in range(seeds)} for _ in range(2)]
    found = statistics.effect(arms[0], arms[1], seeds)
    assert found is not None and found.seeds == seeds and found.tasks == tasks + 3
    low, high = found.interval
    assert -1 <= low <= found.difference <= high <= 1 and low < high
    assert 0 <= found.p <= 1 and 0 < found.detectable <= 1
    assert (found.p < 0.05) == (low > 0 or high < 0) or math.isclose(found.p, 0.05, rel_tol=0.01)
    turned = statistics.effect(arms[1], arms[0], seeds)
    assert (
        turned is not None
        and turned.difference == pytest.approx(-found.difference)
        and turned.p == pytest.approx(found.p)
    )
    order = rng.permutation(tasks)
    mixed = [{9 - s: {"a": arm[s]["a"][order], "b": arm[s]["b"]} for s in arm} for arm in arms]
    again = statistics.effect(mixed[0], mixed[1], seeds)
    assert again is not None and again.interval == pytest.approx(found.interval)


def test_arms_that_are_alike_everywhere_still_have_an_interval() -> None:
    arm = {seed: {"a": np.ones(100)} for seed in range(5)}
    found = statistics.effect(arm, arm, 5)
    assert found is not None and found.difference == 0 and 0 < found.interval[1] < 0.05 and found.p == pytest.approx(1)
    assert found.says == "no difference shown"


def test_nothing_is_claimed_of_too_few_seeds() -> None:
    one = {seed: {"a": np.ones(100)} for seed in range(5)}
    other = {seed: {"a": np.zeros(100)} for seed in range(5)}
    assert statistics.effect({0: one[0]}, {0: other[0]}, 1) is None
    two = statistics.effect({0: one[0], 1: one[1]}, {0: other[0], 1: other[1]}, 2)
    assert two is not None and two.says == "no claim: 2 of 3 seeds"
    found = statistics.effect(one, other, 5)
    assert found is not None and found.says == "better"
    missing = statistics.effect({s: one[s] for s in range(4)}, other, 5)
    assert missing is not None and missing.says == "no claim: 4 of 5 seeds"


def test_a_family_is_corrected_together() -> None:
    rng = np.random.default_rng(0)
    arms = [{s: {"a": (rng.random(200) < 0.5) * 1.0} for s in range(5)} for _ in range(4)]
    effects = [statistics.effect(arms[0], arm, 5) for arm in arms[1:]]
    family = statistics.family([effects[0], None, *effects[1:]])
    assert family[1] is None
    for before, after in zip(effects, [each for each in family if each], strict=True):
        assert before is not None and before.p <= after.p_holm <= 3 * before.p + 1e-12


@pytest.mark.parametrize("world", [World(), World(seed_arm=0.8), World(task_arm=1.5)])
def test_intervals_hold_the_truth_and_what_is_detectable_is_detected(world: World) -> None:
    blank = simulation.simulate(world, 0.0, seeds=5, tasks=60, runs=400, drawn=False)
    assert blank.coverage >= 0.92 and blank.claimed <= 0.08  # 95 % and 5 %, within three errors of 400 worlds
    shift = simulation.shift_of(world, blank.detectable)
    there = simulation.simulate(world, shift, seeds=5, tasks=60, runs=400, seed=1, drawn=False)
    assert there.coverage >= 0.92
    assert 0.68 <= there.claimed <= 0.95
