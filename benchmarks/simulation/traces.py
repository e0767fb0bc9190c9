"""The places that are simulated and the episodes that are played there: how many turns, how long, how slow.

Decided here: an episode is drawn from its seed and its group alone, so that every way of training plays the very same
episodes; lengths are lognormal, cut at the place's limit, with the mean that the place names *after* the cut, so that
a heavier tail is not also more work. Attempts of one group are alike, as attempts at one task are.
"""

from __future__ import annotations

import functools
import math
import random
import tomllib
from collections.abc import Mapping
from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple

import msgspec

from benchmarks.simulation.costs import Gpu, LearnerCost, Network
from harness.core import Value, seed_of

PLACES = Path(__file__).with_name("data") / "places.toml"
ALIKE = 0.5
"""Of the variance of a logarithm, what attempts at one task share: assumed."""
NORMAL = NormalDist()


class Spread(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A lognormal, cut."""

    mean: float
    """After the cut."""
    sigma: float
    """Of the logarithm."""
    most: float


class World(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One environment."""

    name: str
    turns: Spread
    tokens: Spread
    """Sampled in a turn."""
    opening_tokens: int
    seen_tokens: int
    """What the environment answers."""
    start_seconds: float
    step_seconds: Spread


class Place(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One cluster, its model, and what is trained on."""

    title: str
    source: str
    published: tuple[float, ...]
    """Asynchronous over synchronous, as a system reports it of itself."""
    gpus: int
    groups: int
    """B"""
    group_size: int
    """G"""
    minibatches: int
    engine_gpus: int
    """Of one engine."""
    sequence_gpus: int
    """Of the learner, that share a sequence."""
    grain: int
    """Tokens that one token of the simulation stands for."""
    switch_seconds: float
    """Of a GPU from training to generation and back."""
    update_seconds: float
    """Until an engine has new weights."""
    gpu: Gpu
    model: Network
    learner: LearnerCost
    envs: tuple[World, ...]


class Step(NamedTuple):
    """One turn; tokens are the simulation's."""

    tokens: int
    seen: int
    seconds: float
    """Of the environment."""


@functools.cache
def places(path: Path = PLACES) -> Mapping[str, Place]:
    """Return the committed places."""
    return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), dict[str, Place])


def scaled(place: Place, share: float) -> Place:
    """Return a place with so much of its GPUs and its batch."""
    return msgspec.structs.replace(
        place,
        gpus=max(2 * place.engine_gpus, round(place.gpus * share / place.engine_gpus) * place.engine_gpus),
        groups=max(1, round(place.groups * share)),
        minibatches=max(1, min(place.minibatches, round(place.groups * share))),
    )


def tailed(place: Place, sigma: float) -> Place:
    """Return a place whose lengths have another tail: tokens of a single turn, else the turns of an episode."""
    envs = []
    for world in place.envs:
        name = "tokens" if world.turns.most == 1 else "turns"
        spread = msgspec.structs.replace(getattr(world, name), sigma=sigma)
        envs.append(msgspec.structs.replace(world, **{name: spread}))
    return msgspec.structs.replace(place, envs=tuple(envs))


def balanced(place: Place, factor: float) -> Place:
    """Return a place where training costs so many times as much."""
    cost = msgspec.structs.replace(place.learner, flops=place.learner.flops * factor)
    return msgspec.structs.replace(place, learner=cost)


def draw(place: Place, world: World, task: str, seed: int) -> list[Step]:
    """Return the turns of one episode."""
    common, own = random.Random(seed_of("task", task)), random.Random(seed_of("attempt", seed))
    shared = common.gauss(0, 1)

    def value(spread: Spread, alike: float) -> float:
        wide = math.sqrt(alike) * shared + math.sqrt(1 - alike) * own.gauss(0, 1)
        return min(spread.most, math.exp(location(spread) + spread.sigma * wide)) if spread.mean else 0.0

    turns = max(1, round(value(world.turns, ALIKE)))
    several = turns > 1 or world.turns.most > 1
    return [
        Step(
            tokens=max(1, round(value(world.tokens, 0.0 if several else ALIKE) / place.grain)),
            seen=max(1, round(world.seen_tokens / place.grain)) if world.seen_tokens else 0,
            seconds=value(world.step_seconds, 0.0),
        )
        for _ in range(turns)
    ]


@functools.cache
def location(spread: Spread) -> float:
    """Return the mean of the logarithm with which the cut lognormal has its mean."""
    if spread.sigma == 0 or spread.mean >= spread.most:
        return math.log(min(spread.mean, spread.most))
    low, high = math.log(spread.mean) - 10 * spread.sigma**2 - 10, math.log(spread.most) + 10 * spread.sigma
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if _cut_mean(middle, spread) < spread.mean else (low, middle)
    return low


def _cut_mean(location: float, spread: Spread) -> float:
    edge = (math.log(spread.most) - location) / spread.sigma
    below = math.exp(location + spread.sigma**2 / 2) * NORMAL.cdf(edge - spread.sigma)
    return below + spread.most * (1 - NORMAL.cdf(edge))
