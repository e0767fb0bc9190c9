"""The engine that samples and the learner that trains agree on every token's log-probability, in float32 to 1e-5.

The engine reads with a cache, a turn at a time, many rows at once; the learner reads whole segments, packed or padded.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import save_file

from harness.config import LocalOptions
from harness.core import Tokens
from harness.models.hf.engine import TransformersSampler
from harness.models.sampler import Request
from tests.training import making
from tests.training.learner import models
from training import samples
from training.learner.update import Learner
from training.values import Sample

TOLERANCE = 1e-5
HEAT = 0.8


async def play(sampler: TransformersSampler, episode: int, turns: int) -> list[Tokens]:
    """Sample an episode of several turns, a few prompt tokens before each."""
    random = np.random.default_rng(episode)
    ids: list[int] = []
    found = []
    for turn in range(turns):
        ids += random.integers(1, models.VOCABULARY, random.integers(1, 12)).tolist()
        request = Request(
            episode=str(episode), prompt_ids=tuple(ids), max_tokens=int(random.integers(1, 12)),
            temperature=HEAT, seed=100 * episode + turn, stop_ids=(1,),
        )  # fmt: skip
        got = await sampler.sample(request)
        found.append(
            Tokens(
                prompt_ids=request.prompt_ids, sampled_ids=got.ids, logprobs=got.logprobs, versions=got.versions,
                mask=(True,) * len(got.ids), mixed_kv=got.mixed_kv, engine=got.engine, temperature=HEAT,
            )
        )  # fmt: skip
        ids += got.ids
    return found


def as_samples(episodes: list[list[Tokens]]) -> list[Sample]:
    """Return what was sampled as samples to train on."""
    found = []
    for number, turns in enumerate(episodes):
        (one,) = samples.segments(turns)
        template = making.samples(1)[0]
        ones = np.where(one.mask, np.float32(number % 2 + 1), np.float32(0))
        found.append(replace(template, segment=one, group_id=number, advantages=ones, kept=one.mask))
    return found


def furthest(learner: Learner, made: list[Sample]) -> float:
    """Return the largest difference between engine and learner over all sampled tokens."""
    again = {one.segment.ids.tobytes(): one.segment.logprobs for one in models.played(learner, made)}
    return max(float(np.abs(again[one.segment.ids.tobytes()] - one.segment.logprobs).max()) for one in made)


@pytest.mark.parametrize("packed", [True, False])
async def test_engine_and_learner_agree(nano: Path, packed: bool) -> None:
    sampler = TransformersSampler(nano, LocalOptions(device="cpu", batch=4))
    await sampler.open()
    try:
        made = as_samples(await asyncio.gather(*(play(sampler, episode, 3) for episode in range(6))))
    finally:
        await sampler.close()
    assert sum(one.segment.tokens for one in made) > 30
    one = models.make(nano, micro_tokens=100, packed=packed, correction="decoupled")
    assert furthest(one, made) <= TOLERANCE
    metrics = one.update(made, version=0)
    assert metrics["mismatch/max"] <= TOLERANCE
    assert metrics["mismatch/k3"] < 1e-9
    assert abs(metrics["ppo_kl/first"]) < 1e-8


async def test_they_agree_after_new_weights(nano: Path, tmp_path: Path) -> None:
    one = models.make(nano, lr=1e-2)
    one.update(making.samples(6), 0)
    sampler = TransformersSampler(nano, LocalOptions(device="cpu", batch=4))
    await sampler.open()
    try:
        old = as_samples([await play(sampler, 0, 3)])
        save_file({name: each.contiguous() for name, each in one.weights().items()}, tmp_path / "model.safetensors")
        await sampler.update(str(tmp_path), 1)
        made = as_samples([await play(sampler, 1, 3)])
    finally:
        await sampler.close()
    assert {int(version) for each in made for version in each.segment.versions[each.segment.mask]} == {1}
    assert furthest(one, made) <= TOLERANCE
    assert furthest(one, old) > 0.01


async def test_they_agree_token_by_token_when_weights_arrive_inside_a_turn(nano: Path, tmp_path: Path) -> None:
    old, new = models.make(nano), models.make(nano, lr=1e-2)
    new.update(making.samples(6), 0)
    save_file({name: each.contiguous() for name, each in new.weights().items()}, tmp_path / "model.safetensors")
    sampler = TransformersSampler(nano, LocalOptions(device="cpu", batch=1))
    await sampler.open()
    try:
        request = Request(episode="long", prompt_ids=(5, 6, 7), max_tokens=400)
        uninterrupted = await sampler.sample(request)
        for part in (3, 10, 30):  # of a turn's time: another may be over sooner
            turn = asyncio.create_task(sampler.sample(request))
            await asyncio.sleep(uninterrupted.seconds / part)
            await sampler.update(str(tmp_path), 1, "recompute_kv")
            got = await turn
            if len(set(got.versions)) > 1:
                break
            await sampler.update(str(nano), 0)
    finally:
        await sampler.close()
    assert set(got.versions) == {0, 1}
    tokens = Tokens(
        prompt_ids=request.prompt_ids, sampled_ids=got.ids, logprobs=got.logprobs, versions=got.versions,
        mask=(True,) * len(got.ids), engine=got.engine, temperature=1.0,
    )  # fmt: skip
    (made,) = as_samples([[tokens]])
    for version, learner in enumerate((old, new)):
        of_version = made.segment.versions == version
        apart = models.played(learner, [made])[0].segment.logprobs - made.segment.logprobs
        assert np.abs(apart[of_version]).max() <= TOLERANCE
        assert np.abs(apart[made.segment.mask & ~of_version]).max() > 0.01
