"""Deadlines that fire say where everything stands; alarms are provoked one by one, and a healthy run raises none."""

from __future__ import annotations

import asyncio
import io
import time
from typing import Any

import pytest

from training.alarms import CHECKS, AlarmOptions, alarms
from training.watch import Overdue, Watch, await_chain, task_stacks


async def inner_wait() -> None:
    await asyncio.sleep(60)


async def outer_wait() -> None:
    await inner_wait()


async def test_a_deadline_that_fires_prints_every_task_and_every_queue() -> None:
    out = io.StringIO()
    watch = Watch(out)
    queue: asyncio.Queue[int] = asyncio.Queue(5)
    queue.put_nowait(1)
    watch.queue("orders", queue.qsize)
    watch.queue("broken", lambda: 1 // 0)
    bystander = asyncio.create_task(outer_wait(), name="bystander")
    await asyncio.sleep(0)
    with pytest.raises(Overdue, match=r"fetching took more than 0\.05 seconds"):
        async with watch.deadline(0.05, "fetching"):
            await outer_wait()
    bystander.cancel()
    text = out.getvalue()
    assert "watchdog: fetching took more than 0.05 seconds" in text
    assert "queue orders: 1" in text and "queue broken: unknown (ZeroDivisionError)" in text
    stack = text[text.index("task bystander") :]
    assert stack.index("in outer_wait") < stack.index("in inner_wait") < stack.index("in sleep")
    assert text.count("in inner_wait") == 2, "also where the wait itself stood before it was cut off"
    assert "thread MainThread" in text
    assert watch.fired == 1


async def test_many_tasks_at_one_place_are_one_stack_and_many_deadlines_at_once_one_report() -> None:
    out = io.StringIO()
    watch = Watch(out)

    async def late(number: int) -> None:
        async with watch.deadline(0.05, f"group {number}"):
            await outer_wait()

    outcomes = await asyncio.gather(*(late(number) for number in range(30)), return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {Overdue}
    text = out.getvalue()
    assert text.count("watchdog: group ") == watch.fired == 30
    assert text.count("in inner_wait") == 1 and " and 22 more" in text


async def test_a_deadline_holds_where_nobody_can_read_of_it() -> None:
    gone = io.StringIO()
    gone.close()
    with pytest.raises(Overdue, match=r"waiting took more than 0\.05 seconds"):
        async with Watch(gone).deadline(0.05, "waiting"):
            await asyncio.sleep(20)


async def test_what_comes_in_time_prints_nothing() -> None:
    out = io.StringIO()
    watch = Watch(out)
    async with watch.deadline(5, "a moment"):
        await asyncio.sleep(0)
    assert out.getvalue() == "" and watch.fired == 0


async def test_a_timeout_of_something_else_passes() -> None:
    out = io.StringIO()
    with pytest.raises(TimeoutError):
        async with Watch(out).deadline(5, "a moment"), asyncio.timeout(0.01):
            await asyncio.sleep(60)
    assert out.getvalue() == ""


async def test_a_cancellation_passes() -> None:
    out = io.StringIO()

    async def wait() -> None:
        async with Watch(out).deadline(5, "a moment"):
            await asyncio.sleep(60)

    task = asyncio.create_task(wait())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert out.getvalue() == ""


def block(seconds: float) -> None:
    time.sleep(seconds)


async def test_a_blocked_event_loop_is_reported_while_it_is_blocked() -> None:
    out = io.StringIO()
    watch = Watch(out)
    waiting = asyncio.create_task(outer_wait(), name="bystander")
    async with watch.heartbeat(blocked_seconds=1):
        await asyncio.sleep(0.3)
        block(2.2)
        told = out.getvalue()
        await asyncio.sleep(0.3)
        lags = watch.lags()
    waiting.cancel()
    assert told.count("the event loop has not moved for 1 seconds") == 1
    assert "in block" in told, "what blocks it"
    assert "task bystander" in told and "in inner_wait" in told
    assert max(lags) > 1.5
    assert not watch.lags()


async def test_a_loop_that_runs_is_not_reported() -> None:
    out = io.StringIO()
    watch = Watch(out)
    async with watch.heartbeat(blocked_seconds=30):
        await asyncio.sleep(0.6)
    assert out.getvalue() == ""
    assert watch.lags()


def test_without_a_loop_there_are_no_tasks() -> None:
    assert list(task_stacks()) == []


async def test_a_chain_goes_through_generators() -> None:
    async def numbers() -> Any:
        await asyncio.sleep(60)
        yield 1

    async def consume() -> None:
        async for _ in numbers():
            pass

    task = asyncio.create_task(consume())
    await asyncio.sleep(0)
    names = [frame.f_code.co_name for frame in await_chain(task.get_coro())]
    task.cancel()
    assert names == ["consume", "numbers", "sleep"]


HEALTHY: dict[str, float] = {
    "idle/learner": 0.1,
    "idle/engine": 0.2,
    "task/db/loss_share": 0.6,
    "task/kg/loss_share": 0.4,
    "ess": 0.9,
    "surprise": 0.5,
    "pool/0/kl": 0.001,
    "pool/1/kl": 0.05,
    "forks": 0.0,
    "env/errors": 0.01,
    "reward/spread": 0.4,
    "loop/lag": 0.01,
}
WRONG = {
    "learner idle": {"idle/learner": 0.8},
    "engine idle": {"idle/engine": 0.9},
    "one task dominates": {"task/db/loss_share": 0.95, "task/kg/loss_share": 0.05},
    "ESS collapse": {"ess": 0.0},
    "entropy collapse": {"surprise": 0.0},
    "pools too far apart": {"pool/1/kl": 2.0},
    "forks rising": {"forks": 0.3},
    "environment errors rising": {"env/errors": 0.4},
    "reward constant": {"reward/spread": 0.0},
    "event loop lagging": {"loop/lag": 3.0},
}
OPTIONS = AlarmOptions()


def test_a_healthy_run_raises_no_alarm() -> None:
    for length in range(20):
        assert alarms([HEALTHY] * length, OPTIONS) == []


def test_each_check_has_its_case() -> None:
    assert len(WRONG) == len(CHECKS)


@pytest.mark.parametrize("name", WRONG)
def test_each_alarm_is_raised_by_its_cause_alone(name: str) -> None:
    wrong = {**HEALTHY, **WRONG[name]}
    (alarm,) = alarms([HEALTHY] * 10 + [wrong] * OPTIONS.updates, OPTIONS)
    assert alarm.name == name
    assert str(alarm) == f"{name}: {alarm.cause}; {alarm.remedy}"
    assert "{" not in str(alarm)
    assert alarms([HEALTHY] * 10 + [wrong] * (OPTIONS.updates - 1), OPTIONS) == []
    assert alarms([HEALTHY] * 10 + [wrong] * OPTIONS.updates + [HEALTHY], OPTIONS) == []


@pytest.mark.parametrize("name", WRONG)
def test_a_number_that_is_absent_says_nothing(name: str) -> None:
    gone = {key: value for key, value in HEALTHY.items() if key not in WRONG[name]}
    assert alarms([gone] * 12, OPTIONS) == []


def test_one_environment_alone_does_not_dominate() -> None:
    assert alarms([{"task/db/loss_share": 1.0}] * 10, OPTIONS) == []


@pytest.mark.parametrize("key", ["forks", "env/errors"])
def test_what_was_always_so_is_not_rising_but_said_at_the_beginning(key: str) -> None:
    bad = {**HEALTHY, key: 0.3}
    assert len(alarms([bad] * OPTIONS.updates, OPTIONS)) == 1
    assert alarms([bad] * (3 * OPTIONS.updates), OPTIONS) == []
