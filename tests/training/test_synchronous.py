"""Without staleness the asynchronous loop is synchronous GRPO, bit for bit, which is written down here plainly."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install -e '.[train]'")
pytest.importorskip("transformers", reason="needs transformers: pip install -e '.[train]'")

from harness import registry
from harness.core import EnvOptions, Task
from harness.models.hf.engine import TransformersSampler
from harness.models.local import LocalModel
from tests.training import lottery
from tests.training.driver import Unscored
from training import checkpoint, credit, curriculum, learner, run, samples, weights
from training import recipe as recipes
from training.buffer import Stopped
from training.play import Order, here
from training.policies import pool_of
from training.recipe import Recipe
from training.values import Attempt, Group

pytestmark = pytest.mark.usefixtures("torch_as_it_was")
LOTTERY = "tests.training.lottery:make"


def wanted(**above: Any) -> Recipe:
    values = {
        "name": "exact", "envs": {LOTTERY: {}}, "steps": 4, "groups": 3, "running": 6, "eta": 0, "seed": 5,
        "collect": {"group_size": 4}, "pools": {"depth": 0, "stale_ratio": 0.0}, "processes": False,
        "checkpoint_every": 1, "learner": {"lr": 1e-3, "minibatches": 2, "device": "cpu", "deterministic": True},
        "engine": {"dtype": "float32", "device": "cpu", "batch": 1, "answer_tokens": 6},
        "log": {"tensorboard": False}, **above,
    }  # fmt: skip
    return recipes.made(values, "exact")


async def synchronous(recipe: Recipe, base: Path, folder: Path) -> str:
    """Play B groups, one attempt after the other, learn from them, and play on with what was learnt."""
    import torch

    env = registry.make_env(LOTTERY, EnvOptions())
    sampler = TransformersSampler(base, recipe.engine)
    model = LocalModel(recipe.name, base, sampler, recipe.engine)
    play = here({LOTTERY: env}, registry.make_agent("direct"), model)
    await env.open()
    torch.set_num_threads(1)
    made = learner.make("torch", base, recipe.learning)
    course = curriculum.begin([LOTTERY], recipe.curriculum, recipe.shown)
    found = ""
    for version in range(recipe.steps):
        groups: list[Group] = []
        choices = []
        for _ in range(recipe.groups):
            course, choice = curriculum.choose(course, recipe.curriculum, recipe.seed)
            choices.append(choice)
        for choice in choices:
            task = [task for task, _ in zip(env.tasks("train"), range(choice.index + 1), strict=False)][-1]
            attempts: list[Attempt] = []
            for place in range(recipe.collect.group_size):
                order = Order(
                    env=LOTTERY,
                    task=task,
                    params=recipe.collect.params,
                    limits=recipe.collect.limits,
                    entry=f"group-{choice.group_id}",
                    epoch=place,
                    attempt=0,
                    seed=curriculum.episode_seed(recipe.seed, choice, place),
                )
                attempt = samples.attempt(await play(order), pool_of, recipe.collect.abnormal_reward)
                attempts.append(replace(attempt, env=LOTTERY))
            groups.append(
                Group(
                    group_id=choice.group_id,
                    env=LOTTERY,
                    task_id=task.id,
                    attempts=tuple(attempts),
                    admitted_version=version,
                )
            )
        course = curriculum.trained(course, recipe.curriculum, groups)
        given = credit.assign(groups, credit.rule_of(recipe.credit), recipe.tan)
        made.update(samples.make(given, recipe.weigh), version)
        write = weights.model_writer(made.weights(), made.backend.network, base)
        place_of, snapshot = weights.publish(folder / "own", version + 1, write)
        await sampler.update(str(place_of), version + 1)
        found = snapshot.digest
    await sampler.close()
    await env.close()
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("above", [{}, {"credit": "rloo", "tan": None, "aggregation": "token_mean", "running": 2}])
def test_without_staleness_it_is_synchronous_grpo_bit_for_bit(
    base: Path, tmp_path: Path, above: dict[str, Any]
) -> None:
    recipe = wanted(**above)
    expected = asyncio.run(synchronous(recipe, base, tmp_path))
    last = asyncio.run(run.trained(recipe, tmp_path / "run", base, {}, Unscored(), resume=False))
    assert weights.read(last).digest == expected
    assert weights.read(last).digest != weights.weights_digest(base), "something was learnt"
    kept = checkpoint.steps(tmp_path / "run" / checkpoint.FOLDER)
    assert [each.name for each in kept] == ["step-000003", "step-000004"], "what nobody needs is removed"
    assert [each.name[:7] for each in (tmp_path / "run" / "snapshots").iterdir()] == ["v000004"]


async def test_no_task_that_a_held_out_split_has_is_trained_on(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played: list[str] = []

    def session(env: lottery.Lottery, task: Task) -> lottery.Draw:
        played.append(task.id)
        return lottery.Draw(task, env.workers)

    monkeypatch.setattr(lottery.Lottery, "session", session)
    recipe = wanted(envs={LOTTERY: {"held_out": 2}}, steps=1, curriculum={"first": 0})
    await run.trained(recipe, tmp_path, base, {}, Unscored(), resume=False)
    assert set(played) >= {"lottery-2", "lottery-3", "lottery-4"}
    assert not {"lottery-0", "lottery-1"} & set(played)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_end_that_is_asked_for_in_an_update_comes_behind_it_also_in_the_last(
    base: Path, tmp_path: Path, number: signal.Signals
) -> None:
    class Asking(Unscored):
        def __init__(self, update: int) -> None:
            super().__init__()
            self.say = self.heard
            self.update = update

        def heard(self, line: str) -> None:
            if line.startswith(f"update {self.update} "):
                os.kill(os.getpid(), number)

    recipe, folder = wanted(steps=3, checkpoint_every=100), tmp_path / "run"
    for update in (2, 3):
        with pytest.raises(Stopped):
            asyncio.run(run.trained(recipe, folder, base, {}, Asking(update), resume=update > 2))
        newest = checkpoint.newest(folder / checkpoint.FOLDER)
        assert newest is not None and newest.name == f"step-{update:06d}"
    last = asyncio.run(run.trained(recipe, folder, base, {}, Unscored(), resume=True))
    undisturbed = asyncio.run(run.trained(recipe, tmp_path / "other", base, {}, Unscored(), resume=False))
    assert weights.read(last).digest == weights.read(undisturbed).digest, "in deterministic mode, to the bit"
