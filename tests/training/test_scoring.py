"""Scoring several models while nothing else computes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

import pytest

from harness.errors import SetupError
from training import machine
from training import recipe as recipes
from training.recipe import Recipe
from training.scoring import Result, side_by_side


def recipe(threads: int | None) -> Recipe:
    return recipes.made({"name": "r", "envs": {"db": {}}, "steps": 1, "processes": {"engine_threads": threads}}, "r")


async def most_at_once(threads: int | None, count: int) -> int:
    under_way, most = 0, 0

    def scoring(number: int) -> Callable[[], Awaitable[Result]]:
        async def score() -> Result:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0.01 * (count - number))
            under_way -= 1
            return Result("test", number, 0.5, 1.0, "")

        return score

    found = await side_by_side(recipe(threads), [scoring(number) for number in range(count)])
    assert [each.version for each in found] == list(range(count)), "in the order asked for, not that of their ends"
    return most


async def test_as_many_are_scored_at_once_as_have_cores() -> None:
    cores = machine.cores()
    assert await most_at_once(1, cores + 1) == cores
    assert await most_at_once(cores, 3) == 1
    assert await most_at_once(None, 3) == 1, "an engine that takes all cores has them to itself"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system binds no process to cores")
async def test_a_run_that_is_bound_to_one_core_scores_one_at_once() -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert await most_at_once(1, 3) == 1
    finally:
        os.sched_setaffinity(0, before)


async def test_one_that_fails_ends_the_others_and_is_heard() -> None:
    ended = asyncio.Event()

    async def fails() -> Result:
        await asyncio.sleep(0)
        raise SetupError("it does not play")

    async def lasts() -> Result:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        raise AssertionError("unreachable")

    async with asyncio.timeout(10):
        with pytest.raises(SetupError, match="it does not play"):
            await side_by_side(recipe(None), [fails, lasts])
        if machine.cores() > 1:
            with pytest.raises(SetupError, match="it does not play"):
                await side_by_side(recipe(1), [lasts, fails])
            assert ended.is_set()
