"""Sessions in processes of their own: what one of them breaks is its own, and they are replaced in time."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from harness.errors import SetupError
from harness.service.running import running_worker
from harness.service.settings import WorkerSettings
from tests.service.rig import Rig, rig


async def process_of(r: Rig, session: int) -> int:
    """Return the process that plays a session; it opens with its number."""
    answer = r.controller.sessions[session].turns.answer
    assert answer is not None
    return int(answer.decode().split('"role":"user","content":"')[1].split('"')[0])


async def test_a_session_is_played_in_another_process() -> None:
    async with rig(worker={"processes": 2}) as r:
        sessions = [await r.client.start() for _ in range(4)]
        processes = [await process_of(r, session) for session in sessions]
        assert os.getpid() not in processes and sorted(map(processes.count, set(processes))) == [2, 2]
        answers = [(await r.client.say(sessions[0])).body for _ in range(3)]
        assert (answers[-1]["status"], answers[-1]["reward"]) == ("completed", 1.0)
        described = (await r.client.ask("GET", "describe?name=drill")).body
        assert described["protocol"]["process"] in processes


async def test_a_process_that_dies_costs_its_own_sessions() -> None:
    async with rig(worker={"processes": 2}) as r:
        killer, other = await r.client.start("dies"), await r.client.start("long")
        beside = await r.client.start("long")
        answer = (await r.client.say(killer, "go")).body
        assert (answer["status"], answer["metrics"]["ending"], answer["metrics"]["score"]) == (
            "task error",
            "env_error",
            None,
        )
        answers = [(await r.client.say(session)).body["status"] for session in (other, beside)]
        assert sorted(answers) == ["running", "task error"]
        assert r.worker.host.restarts == 1 and len(r.worker.sessions) == 1
        assert (await r.client.say(await r.client.start())).status == 200


async def test_a_process_that_computes_for_ever_is_ended_by_a_cancellation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.service.pool.CANCEL_SECONDS", 0.25)
    async with rig(worker={"processes": 1}) as r:
        session = await r.client.start("stuck")
        stuck = asyncio.create_task(r.client.say(session, "go"))
        await asyncio.sleep(0.2)
        process, clock = await process_of(r, session), time.monotonic()
        await r.client.ask("POST", "cancel", session_id=session)
        assert time.monotonic() - clock < 15 and (await stuck).body["finish"]
        while Path(f"/proc/{process}").exists():
            assert time.monotonic() - clock < 20
            await asyncio.sleep(0.05)
        assert await process_of(r, await r.client.start()) != process


@pytest.mark.parametrize(
    ("setting", "kind"), [({"recycle_sessions": 1}, "plain"), ({"recycle_bytes": 1 << 27}, "large")]
)
async def test_a_worn_process_is_replaced(setting: dict[str, int], kind: str) -> None:
    async with rig(worker={"processes": 1, **setting}) as r:
        session = await r.client.start(kind)
        process = await process_of(r, session)
        while not (await r.client.say(session, "go" if kind == "large" else "")).body["finish"]:
            pass
        clock = time.monotonic()
        while Path(f"/proc/{process}").exists():
            assert time.monotonic() - clock < 20
            await asyncio.sleep(0.05)
        assert await process_of(r, await r.client.start()) != process and r.worker.host.restarts == 0


async def test_an_environment_that_cannot_run_says_so() -> None:
    with pytest.raises(SetupError, match="this one never opens"):
        async with running_worker(WorkerSettings(env="tests.service.drill:closed", processes=2)):
            pass
