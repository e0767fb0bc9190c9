"""What the loop hands from part to part: budgets to the learner, the share and the weights to the pools."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.training.players import Dicing, group, segment
from training import loop
from training import recipe as recipes
from training.policies import PooledSampler, PoolOptions
from training.values import Batch

VERSIONS, POOLS = [9, 8, 7, 6, 5], [0, 0, 0, 1, 1]
"""Under version 9 the current pool may lag by eta = 1, and the stale one by the two updates between refreshes more."""


def recipe(**above: Any) -> recipes.Recipe:
    values = {"name": "r", "envs": {"a": {}}, "steps": 1, "eta": 1, "tan": "none", "pools": {"stale_interval": 2}}
    return recipes.made({**values, **above}, "r")


def test_the_learner_gets_no_token_beyond_its_pools_budget() -> None:
    one = group(0, parts=lambda _: segment(VERSIONS, POOLS))
    made, said = loop.assess(Batch(groups=(one,)), recipe(), 9)
    assert [sample.kept[2:].tolist() for sample in made] == [[True, True, False, True, False]] * 2
    assert (said["tokens/too_old"], said["lag/trained/0/max"], said["lag/trained/1/max"]) == (4, 1, 3)


def test_credit_is_given_as_the_recipe_says() -> None:
    one = group(0, rewards=(1.0, 0.0, 0.0, 0.0), parts=lambda _: segment(VERSIONS))
    made, _ = loop.assess(Batch(groups=(one,)), recipe(credit="dr_grpo", below=1, imitation=0.3, negative=0.1), 9)
    assert (len(made), made[0].attempt) == (2, 0)
    assert [sample.advantages[2] for sample in made] == pytest.approx([0.75 + 0.3, -0.25 * 0.1])
    assert made[1].coefficient == pytest.approx(3 * made[0].coefficient), "it weighs for the two that are left out"


async def test_what_is_published_serves_under_the_next_version_and_moves_the_share(tmp_path: Path) -> None:
    options = PoolOptions(stale_ratio=0.1, stale_interval=5, schedule=((5, 0.3),), patience=1, ess_floor=0.2)
    engines = [Dicing(name) for name in ("current", "stale")]
    sampler = PooledSampler(engines, options, tmp_path / "base")

    async def publish(root: Path, version: int) -> Path:
        return root / f"v{version}"

    parts: Any = SimpleNamespace(
        version=4,
        folder=tmp_path,
        sampler=sampler,
        recipe=SimpleNamespace(pools=options),
        learner=SimpleNamespace(publish=publish),
    )
    folder = await loop.publish(parts, [], {"ess": 0.9})
    assert (parts.version, sampler.mix.stale, folder) == (5, 0.3, tmp_path / "snapshots" / "v5")
    assert [engine.served for engine in engines] == [[(str(folder), 5)]] * 2, "the stale pool's refresh was due"
    await loop.publish(parts, [], {"ess": 0.1})
    assert sampler.mix.off, "the effective sample size was below its floor"
    assert [engine.version for engine in engines] == [6, 5]
