"""The pools: drawn by the seed alone (M6), refreshed when it is time, marked on every turn, switched off if useless."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.dice import Dice
from harness.errors import ModelError
from harness.models.sampler import Request, Sampled
from tests.training.players import Dicing, segment
from training import policies
from training.policies import Mix, PooledSampler, PoolOptions, Served, adapted, draw, refreshed
from training.staleness import Budget
from training.values import Sample
from training.watch import Overdue

BASE = Path("base")


def request(episode: str = "e", prompt: tuple[int, ...] = (1, 2), seed: int = 0) -> Request:
    return Request(episode=episode, prompt_ids=prompt, max_tokens=8, seed=seed)


def pooled(options: PoolOptions, seconds: float = 60.0) -> tuple[PooledSampler, list[Dicing]]:
    engines = [Dicing(f"dice:{number}") for number in range(options.depth + 1)]
    return PooledSampler(engines, options, BASE, seconds=seconds), engines


async def pools_of(options: PoolOptions, prompts: list[tuple[int, ...]]) -> list[int]:
    sampler, _ = pooled(options)
    await sampler.open()
    found = []
    for seed, prompt in enumerate(prompts):
        sampled = await sampler.sample(request(f"e{seed}", prompt, seed))
        found.append(policies.pool_of(sampled.engine))
    return found


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=30, max_size=30))
def test_the_draw_is_independent_of_what_was_said(prompts: list[tuple[int, ...]]) -> None:
    options = PoolOptions(stale_ratio=0.5)
    expected = asyncio.run(pools_of(options, [(7,)] * 30))
    assert asyncio.run(pools_of(options, prompts)) == expected
    assert 0 < sum(expected) < 30


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_stale_pools_share_the_ratio_alike(depth: int) -> None:
    drawn = [draw(seed, 0.3, depth) for seed in range(20_000)]
    assert drawn.count(0) / 20_000 == pytest.approx(0.7, abs=0.015)
    for pool in range(1, depth + 1):
        assert drawn.count(pool) / 20_000 == pytest.approx(0.3 / depth, abs=0.015)
    assert {draw(seed, 0.0, depth) for seed in range(200)} == {0}
    assert draw(5, 1.0, 0) == 0


def test_the_draw_says_nothing_of_what_the_engine_draws() -> None:
    """The seed of a turn seeds the engine's tokens too: the pool must not be a function of the same number."""
    pairs = [(draw(seed, 0.5, 1), Dice(seed).chance(0.5)) for seed in range(4000)]
    agree = sum(pool == first for pool, first in pairs) / 4000
    assert agree == pytest.approx(0.5, abs=0.03)


async def test_a_trajectory_stays_in_its_pool_where_that_is_the_scope() -> None:
    sampler, engines = pooled(PoolOptions(stale_ratio=0.5, scope="trajectory"))
    await sampler.open()
    for number in range(20):
        names = [await sampler.sample(request(f"e{number}", seed=100 * number + turn)) for turn in range(5)]
        assert len({each.engine for each in names}) == 1
        sampler.mix = Mix(stale=0.5 if number % 2 else 0.0)
    assert engines[0].asked and engines[1].asked


async def test_a_trajectory_stays_in_its_pool_while_the_share_changes() -> None:
    sampler, _ = pooled(PoolOptions(stale_ratio=1.0, scope="trajectory"))
    first = await sampler.sample(request(seed=1))
    sampler.mix = Mix(stale=0.0)
    assert (await sampler.sample(request(seed=2))).engine == first.engine == "stale-1/dice:1"


async def test_the_engine_says_which_pool_sampled_under_which_version() -> None:
    sampler, _ = pooled(PoolOptions(stale_ratio=0.5, stale_interval=2))
    for version in (1, 2, 3):
        await sampler.update(f"w{version}", version)
    seen: dict[str, Sampled] = {}
    for seed in range(40):
        sampled = await sampler.sample(request(seed=seed))
        seen[sampled.engine] = sampled
    assert {name: set(each.versions) for name, each in seen.items()} == {"current/dice:0": {3}, "stale-1/dice:1": {2}}
    assert [policies.pool_of(name) for name in ("current/hf:0", "stale-1/x", "stale-12/x/y", "hf:0")] == [0, 1, 12, 0]


async def test_the_current_pool_follows_each_publish_and_stale_ones_when_it_is_time() -> None:
    sampler, engines = pooled(PoolOptions(depth=2, stale_interval=3))
    for version in range(1, 8):
        await sampler.update(f"w{version}", version)
    assert engines[0].served == [(f"w{version}", version) for version in range(1, 8)]
    assert engines[1].served == [("w3", 3), ("w6", 6)]
    assert engines[2].served == [("w3", 3)]
    assert sampler.serving == tuple(Served(version=each, folder=f"w{each}") for each in (7, 6, 3))


@given(interval=st.integers(1, 7), depth=st.integers(1, 4), steps=st.lists(st.integers(1, 3), max_size=40))
def test_no_pool_lags_further_than_its_budget(interval: int, depth: int, steps: list[int]) -> None:
    serving = (Served(version=0, folder="base"),) * (depth + 1)
    budget = Budget(eta=0, stale_interval=interval)
    version = 0
    for step in (min(step, interval) for step in steps):
        version += step
        serving = refreshed(serving, Served(version=version, folder=f"w{version}"), interval)
        assert serving[0].version == version
        for pool, each in enumerate(serving[1:], 1):
            # A version that is skipped may hold the refresh up by as much.
            assert version - each.version <= budget.most(pool) + max(steps) - 1
        assert [each.version for each in serving] == sorted((each.version for each in serving), reverse=True)


def test_a_pool_that_is_never_refreshed_keeps_the_first_weights() -> None:
    serving = (Served(version=0, folder="base"),) * 2
    for version in range(1, 60):
        serving = refreshed(serving, Served(version=version, folder="w"), None)
    assert serving[1] == Served(version=0, folder="base")


async def test_a_restart_serves_what_was_served() -> None:
    sampler, engines = pooled(PoolOptions(stale_interval=4))
    await sampler.serve([Served(version=9, folder="nine"), Served(version=8, folder="eight")])
    assert (engines[0].version, engines[1].version) == (9, 8)
    await sampler.update("ten", 10)
    await sampler.update("eleven", 11)
    assert engines[1].version == 8
    await sampler.update("twelve", 12)
    assert engines[1].version == 12


async def test_an_engine_that_refuses_new_weights_is_heard_after_the_others_have_them() -> None:
    sampler, engines = pooled(PoolOptions(stale_interval=1))
    engines[0].refuses = ModelError("log-probabilities of the probe differ")
    with pytest.raises(ModelError, match="of the probe differ"):
        await sampler.update("w1", 1)
    assert engines[1].version == 1
    assert sampler.serving[0].version == 0, "it is not taken to serve what it refused"


async def test_an_episode_is_released_in_the_pools_it_was_in() -> None:
    sampler, engines = pooled(PoolOptions(stale_ratio=0.5, depth=2))
    for seed in range(12):
        await sampler.sample(request("e", seed=seed))
    assert sum(sampler.in_flight().values()) == 36
    await sampler.release("e")
    await sampler.release("e")
    assert [engine.released for engine in engines] == [["e"]] * 3
    assert not sampler.in_flight()
    await sampler.sample(request("f", seed=next(seed for seed in range(99) if draw(seed, 0.5, 2) == 0)))
    await sampler.release("f")
    assert [engine.released for engine in engines] == [["e", "f"], ["e"], ["e"]]


async def test_an_engine_that_fails_to_release_keeps_no_other_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler, engines = pooled(PoolOptions(stale_ratio=0.5))
    for seed in range(12):
        await sampler.sample(request("e", seed=seed))

    async def refuse(episode: str) -> None:
        raise ModelError("not now")

    monkeypatch.setattr(engines[0], "release", refuse)
    with pytest.raises(ModelError, match="not now"):
        await sampler.release("e")
    assert engines[1].released == ["e"]


async def test_all_engines_open_and_close() -> None:
    sampler, engines = pooled(PoolOptions(depth=3))
    await sampler.open()
    assert sampler.context == 30_000
    await sampler.close()
    assert {engine.context for engine in engines} == {0}


async def test_every_deadline_of_the_pools_fires(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler, engines = pooled(PoolOptions(), seconds=0.02)
    monkeypatch.setattr(policies, "CLOSE_SECONDS", 0.02)

    async def never(*_: object) -> None:
        await asyncio.sleep(60)

    for engine in engines:
        for name in ("open", "sample", "update", "close", "release"):
            monkeypatch.setattr(engine, name, never)
    for call, kind in (
        (sampler.open(), Overdue),  # ends the run, which can be taken up
        (sampler.update("w", 1), Overdue),
        (sampler.close(), Overdue),
        (sampler.sample(request()), ModelError),  # ends an attempt, which is played again
        (sampler.release("e"), ModelError),
    ):
        with pytest.raises(kind, match=r"took more than 0\.02 seconds"):
            await call


async def test_idle_is_the_time_in_which_no_turn_is_sampled() -> None:
    sampler, engines = pooled(PoolOptions(depth=0))
    engines[0].fault = lambda _: time.sleep(0.15)
    sampler.busy.idle()
    await sampler.sample(request())
    assert sampler.busy.idle() < 0.5
    with sampler.busy.work(), sampler.busy.work():
        time.sleep(0.15)
        assert sampler.busy.idle() < 0.5
    time.sleep(0.3)
    assert sampler.busy.idle() > 0.9
    assert sampler.busy.idle() == 1.0


def test_stale_pools_are_switched_off_after_some_updates_without_effect() -> None:
    options = PoolOptions(ess_floor=0.2, patience=3)
    mix = Mix(stale=0.25)
    for ess in (0.1, 0.1, 0.5, 0.1, 0.1):
        mix = adapted(mix, options, 1, ess, (0.0, 0.0))
        assert policies.share_of(mix) == 0.25
    mix = adapted(mix, options, 1, 0.1, (0.0, 0.0))
    assert mix.off and policies.share_of(mix) == 0
    assert adapted(mix, options, 1, 1.0, (0.0, None)).off, "it does not come back by itself"
    assert msgspec.json.decode(msgspec.json.encode(mix), type=Mix) == mix


def test_a_fixed_share_stays() -> None:
    mix = adapted(Mix(stale=0.25), PoolOptions(), 1, 0.3, (1.0, -1.0))
    assert mix.stale == 0.25 and mix.values == (0.5, -0.5)


def test_a_fixed_share_follows_its_schedule() -> None:
    options = PoolOptions(stale_ratio=0.1, schedule=((5, 0.3), (9, 0.0)))
    assert [policies.ratio_at(options, version) for version in (0, 4, 5, 8, 9, 99)] == [0.1, 0.1, 0.3, 0.3, 0.0, 0.0]
    assert adapted(Mix(stale=0.1), options, 6, 1.0, (0.0, 0.0)).stale == 0.3


@pytest.mark.parametrize("weighting", ["fixed", "ess", "bandit"])
def test_without_a_stale_pool_there_is_no_share_of_it(weighting: Any) -> None:
    options = PoolOptions(depth=0, weighting=weighting, schedule=((1, 0.5),))
    assert PooledSampler([Dicing("one")], options, BASE).mix.stale == 0
    assert adapted(Mix(stale=0.0), options, 1, 1.0, (0.5,)).stale == 0


def test_the_share_follows_the_effective_sample_size() -> None:
    options = PoolOptions(weighting="ess", ess_target=0.6)
    low, high = Mix(stale=0.25), Mix(stale=0.25)
    for _ in range(50):
        low, high = adapted(low, options, 1, 0.3, (0.0, 0.0)), adapted(high, options, 1, 0.9, (0.0, 0.0))
    assert (low.stale, high.stale) == (options.least_stale, options.most_stale)
    assert adapted(Mix(stale=0.25), options, 1, 0.6, (0.0, 0.0)).stale == pytest.approx(0.25)


def test_the_share_follows_the_pools_advantages() -> None:
    options = PoolOptions(weighting="bandit")
    better, worse = Mix(stale=0.25), Mix(stale=0.25)
    for _ in range(20):
        better, worse = adapted(better, options, 1, 1.0, (-0.1, 0.1)), adapted(worse, options, 1, 1.0, (0.1, -0.1))
    assert worse.stale < 0.25 < better.stale
    assert adapted(Mix(stale=0.3), options, 1, 1.0, (0.0, None)).stale == pytest.approx(options.stale_ratio)
    assert policies.bandit(0.25, (0.0, 0.25)) == pytest.approx(0.4753668864)  # odds 1/3 · e


@given(prior=st.floats(0, 1), values=st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=4))
def test_a_share_is_a_share(prior: float, values: list[float]) -> None:
    assert 0 <= policies.bandit(prior, values) <= 1


def test_advantages_are_those_of_the_tokens_trained_on() -> None:
    part = segment([1, 1, 1, 1], pools=[0, 0, 1, 1])
    kept = np.array([False, False, True, True, True, False])
    values = np.array([0, 0, 1, 2, 5, 100], np.float32)
    sample = Sample(segment=part, env="a", group_id=0, attempt=0, advantages=values, kept=kept, coefficient=1.0)
    assert policies.pool_advantages([sample], 3) == (1.5, 5.0, None)
    other = replace(sample, advantages=-values, weight=3.0)  # stands for two that were left out besides
    assert policies.pool_advantages([sample, other], 3) == (-0.75, -2.5, None)
