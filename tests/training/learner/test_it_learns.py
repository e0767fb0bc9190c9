"""Sampling, credit, samples, loss and learner in a row: with no loop around them, a model learns what is rewarded."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import save_file

from harness.config import LocalOptions
from harness.core import Ending, Tokens
from harness.models.hf.engine import TransformersSampler
from harness.models.sampler import Request
from tests.training.learner import models
from training import credit, samples
from training.values import Attempt, Group

UPDATES, GROUPS, ATTEMPTS, TURNS, LENGTH = 12, 4, 8, 2, 4


async def attempt(sampler: TransformersSampler, update: int, group: int, number: int) -> Attempt:
    """Play one attempt: what is rewarded is the share of even tokens."""
    ids: list[int] = []
    turns: list[Tokens] = []
    for turn in range(TURNS):
        ids += [10 + group, 20 + turn]
        seed = ((update * GROUPS + group) * ATTEMPTS + number) * TURNS + turn
        request = Request(episode=f"{group}.{number}", prompt_ids=tuple(ids), max_tokens=LENGTH, seed=seed)
        got = await sampler.sample(request)
        turns.append(
            Tokens(
                prompt_ids=request.prompt_ids, sampled_ids=got.ids, logprobs=got.logprobs, versions=got.versions,
                mask=(True,) * len(got.ids), engine=got.engine, temperature=1.0,
            )
        )  # fmt: skip
        ids += got.ids
    await sampler.release(f"{group}.{number}")
    env = "alfworld" if group % 2 else "db"
    return Attempt(
        task_key=(env, str(group)),
        env=env,
        reward=float(np.mean([each % 2 == 0 for turn in turns for each in turn.sampled_ids])),
        ending=Ending.COMPLETED,
        by_agent=True,
        segments=samples.segments(turns),
        turns=TURNS,
    )


@pytest.mark.parametrize("correction", ["bypass", "tis"])
async def test_reward_rises(nano: Path, tmp_path: Path, correction: str) -> None:
    one = models.make(nano, lr=2e-2, minibatches=2, micro_tokens=4096, correction=correction)
    sampler = TransformersSampler(nano, LocalOptions(device="cpu", batch=GROUPS * ATTEMPTS))
    await sampler.open()
    rewards = []
    try:
        for update in range(UPDATES):
            places = [(group, number) for group in range(GROUPS) for number in range(ATTEMPTS)]
            played = await asyncio.gather(*(attempt(sampler, update, *place) for place in places))
            rewards.append(float(np.mean([each.reward for each in played])))
            groups = [
                Group(
                    group_id=group, env=played[group * ATTEMPTS].env, task_id=str(group), admitted_version=update,
                    attempts=tuple(played[group * ATTEMPTS : (group + 1) * ATTEMPTS]),
                )
                for group in range(GROUPS)
            ]  # fmt: skip
            assigned = credit.assign(groups, credit.rule_of("grpo"))
            metrics = one.update(samples.make(assigned), version=update)
            if metrics["tokens/trained"]:  # in the end the attempts of every group may be alike
                assert abs(metrics["ppo_kl/first"]) < 1e-8 or correction == "bypass"
                assert metrics["mismatch/max"] < 1e-4
            save_file({name: each.contiguous() for name, each in one.weights().items()}, tmp_path / "model.safetensors")
            await sampler.update(str(tmp_path), update + 1)
    finally:
        await sampler.close()
    assert np.mean(rewards[:2]) < 0.6
    assert np.mean(rewards[-2:]) > 0.9
