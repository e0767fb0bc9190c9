"""Limits and retries under a clock that jumps: hours of storms in milliseconds, the same on any machine."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.simulation.clock import run
from harness.models.faults import Fault, Kind
from harness.models.throttle import Limiter, Patience, Spent, call, clock

PATIENCE = Patience(request_seconds=600.0, retries=8, retry_seconds=1800.0)
Request = Callable[[], Awaitable[str]]


def capacity(
    slots: int, seconds: float, *, storms: tuple[tuple[float, float], ...] = (), wait: float | None = None
) -> Request:
    """Return a provider that serves so many at once and refuses the rest at once."""
    busy = 0

    async def serve() -> str:
        nonlocal busy
        await asyncio.sleep(0.005)
        if busy >= slots or any(start <= clock() < end for start, end in storms):
            raise Fault(Kind.RATE, "slow down", wait=wait)
        busy += 1
        try:
            await asyncio.sleep(seconds * random.uniform(0.5, 1.5))
        finally:
            busy -= 1
        return "answer"

    return serve


def bucket(rate: float, burst: float, seconds: float, *, wait: float | None) -> Request:
    """Return a provider that takes so many a second."""
    tokens, at = burst, 0.0

    async def serve() -> str:
        nonlocal tokens, at
        tokens, at = min(burst, tokens + rate * (clock() - at)), clock()
        if tokens < 1:
            raise Fault(Kind.RATE, "slow down", wait=wait)
        tokens -= 1
        await asyncio.sleep(seconds * random.uniform(0.5, 1.5))
        return "answer"

    return serve


async def play(serve: Request, calls: int, limiter: Limiter, callers: int = 200) -> tuple[float, int]:
    """Make all calls; return the seconds and how many tries were refused."""
    numbers = iter(range(calls))
    start, answers, retries = clock(), 0, 0

    async def caller() -> None:
        nonlocal answers, retries
        for _ in numbers:
            answer, spent = await call(serve, limiter, PATIENCE)
            answers += answer == "answer"
            retries += spent.retries

    await asyncio.gather(*(caller() for _ in range(callers)))
    assert answers == calls
    assert limiter.in_flight == limiter.waiting == 0
    return clock() - start, retries


@pytest.mark.parametrize(
    ("serve", "calls", "least", "ratio"),
    [
        pytest.param(lambda: capacity(32, 0.5), 6400, 100.0, 0.93, id="capacity"),
        pytest.param(lambda: capacity(150, 4.0), 15000, 400.0, 0.90, id="large"),
        pytest.param(lambda: capacity(2, 4.0), 200, 400.0, 0.90, id="small"),
        pytest.param(lambda: capacity(32, 0.5, storms=((20, 40), (70, 100))), 6400, 150.0, 0.92, id="storms"),
        pytest.param(lambda: bucket(50, 50, 0.5, wait=1.0), 5050, 100.0, 0.93, id="retry-after"),
        pytest.param(lambda: bucket(50, 50, 0.5, wait=None), 5050, 100.0, 0.93, id="bucket"),
    ],
)
def test_nearly_all_of_a_providers_ceiling_is_used(
    serve: Callable[[], Request], calls: int, least: float, ratio: float
) -> None:
    random.seed(0)

    async def main() -> tuple[float, int]:
        return await play(serve(), calls, Limiter())

    seconds, retries = run(main())
    assert least / seconds >= ratio
    assert retries < calls / 4


@settings(max_examples=15, deadline=None)
@given(
    slots=st.integers(1, 60),
    seconds=st.floats(0.1, 20.0),
    storm=st.tuples(st.floats(0, 10), st.floats(0, 60)),
    wait=st.none() | st.floats(0, 20),
    limit=st.just("auto") | st.integers(1, 50),
    seed=st.integers(0, 9),
)
def test_every_call_is_answered_once(
    slots: int, seconds: float, storm: tuple[float, float], wait: float | None, limit: Any, seed: int
) -> None:
    random.seed(seed)
    start, length = storm

    async def main() -> None:
        await play(
            capacity(slots, seconds, storms=((start, start + length),), wait=wait), 60, Limiter(limit), callers=20
        )

    run(main())


def test_server_errors_leave_the_limit_alone_and_rate_limits_lower_it() -> None:
    async def main() -> tuple[int, int]:
        async def fail(kind: Kind) -> str:
            raise Fault(kind, "no")

        limits = []
        for kind in (Kind.SERVER, Kind.RATE):
            limiter = Limiter()
            with pytest.raises(Fault):
                await call(lambda kind=kind: fail(kind), limiter, Patience(1, 3, 20))
            limits.append(limiter.limit)
        return limits[0], limits[1]

    untouched, lowered = run(main())
    assert untouched == 16
    assert lowered == 1


def test_a_fixed_limit_is_kept() -> None:
    most = 0

    async def main() -> int:
        limiter = Limiter(3)
        serve = capacity(2, 1.0)

        async def watched() -> str:
            nonlocal most
            most = max(most, limiter.in_flight)
            return await serve()

        await play(watched, 60, limiter)
        return limiter.limit

    assert run(main()) == 3
    assert most == 3


def test_the_limit_falls_to_what_the_provider_takes() -> None:
    async def main() -> list[int]:
        limiter = Limiter()
        serve = capacity(10, 4.0)
        calls = [asyncio.create_task(call(serve, limiter, PATIENCE)) for _ in range(16)]
        limits = [limiter.limit]
        await asyncio.sleep(0.02)
        limits.append(limiter.limit)
        await asyncio.gather(*calls)
        return limits

    assert run(main()) == [16, 10]


def test_all_refused_is_one_call_at_a_time() -> None:
    async def main() -> tuple[int, int]:
        limiter = Limiter()
        serve = capacity(16, 4.0, storms=((0, 60),))
        calls = [asyncio.create_task(call(serve, limiter, PATIENCE)) for _ in range(16)]
        await asyncio.sleep(30)
        limit, tries = limiter.limit, limiter._granted
        await asyncio.gather(*calls)
        return limit, tries

    limit, tries = run(main())
    assert limit == 1
    assert tries < 16 + 2 * 30 + 5


def test_time_is_told_apart() -> None:
    async def main() -> Spent:
        tries = 0

        async def third_time() -> str:
            nonlocal tries
            tries += 1
            await asyncio.sleep(2.0)
            if tries < 3:
                raise Fault(Kind.SERVER, "no", wait=10.0)
            return "answer"

        _, spent = await call(third_time, Limiter(), PATIENCE)
        return spent

    assert run(main()) == Spent(seconds=2.0, waited_seconds=24.0, retries=2)


def test_waiting_in_line_is_not_the_callers_time() -> None:
    async def main() -> list[Spent]:
        async def slow() -> str:
            await asyncio.sleep(5.0)
            return "answer"

        limiter = Limiter(1)
        return [spent for _, spent in await asyncio.gather(*(call(slow, limiter, PATIENCE) for _ in range(3)))]

    assert run(main()) == [Spent(5.0, 0.0, 0), Spent(5.0, 5.0, 0), Spent(5.0, 10.0, 0)]


def test_a_long_line_costs_no_call() -> None:
    async def main() -> int:
        async def slow() -> str:
            await asyncio.sleep(100.0)
            return "answer"

        limiter = Limiter(1)
        patience = Patience(request_seconds=150, retries=0, retry_seconds=200)
        return len(await asyncio.gather(*(call(slow, limiter, patience) for _ in range(30))))

    assert run(main()) == 30


def test_a_call_that_cannot_start_ends() -> None:
    async def main() -> float:
        limiter = Limiter(1)
        await limiter.acquire(10)
        with pytest.raises(Fault, match="no call could start for 30 s"):
            await call(capacity(1, 1), limiter, Patience(10, 3, 30))
        assert limiter.waiting == 0
        return clock()

    assert 30 <= run(main()) < 61


@pytest.mark.parametrize("kind", [Kind.SERVER, Kind.NETWORK, Kind.GARBLED, Kind.RATE])
def test_every_wait_ends_at_the_deadline(kind: Kind) -> None:
    async def main() -> float:
        async def fail() -> str:
            raise Fault(kind, "no")

        with pytest.raises(Fault):
            await call(fail, Limiter(), Patience(10, 1000, 100))
        return clock()

    assert run(main()) <= 100


def test_a_hanging_request_ends_at_its_deadline() -> None:
    async def main() -> float:
        async def hang() -> str:
            await asyncio.sleep(1e9)
            return "never"

        with pytest.raises(Fault, match=r"no answer within 10 s \(after 3 tries\)"):
            await call(hang, Limiter(), Patience(10, 2, 1800))
        return clock()

    assert 30 < run(main()) < 40


def test_a_final_fault_is_not_tried_again() -> None:
    tries = 0

    async def main() -> None:
        async def fail() -> str:
            nonlocal tries
            tries += 1
            raise Fault(Kind.KEY, "no")

        with pytest.raises(Fault):
            await call(fail, Limiter(), PATIENCE)

    run(main())
    assert tries == 1


def test_a_cancelled_waiter_leaves_the_line_and_a_cancelled_call_its_slot() -> None:
    async def main() -> None:
        limiter = Limiter(2)
        serve = capacity(9, 10.0)
        tasks = [asyncio.create_task(call(serve, limiter, PATIENCE)) for _ in range(6)]
        await asyncio.sleep(1)
        assert (limiter.in_flight, limiter.waiting) == (2, 4)
        tasks[0].cancel()
        tasks[5].cancel()
        await asyncio.sleep(0.1)
        assert (limiter.in_flight, limiter.waiting) == (2, 2)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(result, asyncio.CancelledError) for result in results] == [True, *[False] * 4, True]
        assert (limiter.in_flight, limiter.waiting) == (0, 0)

    run(main())


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 29), st.floats(0, 20)), max_size=30), st.integers(1, 5))
def test_slots_survive_any_cancelling(cancels: list[tuple[int, float]], limit: int) -> None:
    async def main() -> None:
        limiter = Limiter(limit)
        serve = capacity(3, 1.0, wait=0.5)
        tasks = [asyncio.create_task(call(serve, limiter, PATIENCE)) for _ in range(30)]
        for number, moment in cancels:
            asyncio.get_running_loop().call_later(moment, tasks[number].cancel)
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (limiter.in_flight, limiter.waiting) == (0, 0)

    run(main())
