"""A controller that is killed in the middle of a run and started again: nothing is lost, nothing is played twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from harness.service.running import running_worker
from harness.service.settings import WorkerSettings
from tests.service.real import free_port
from tests.service.ten_turns import TURNS
from tests.service.test_bad_lines import TEN, check_whole, play, ten, until
from tests.service.test_commands import command

TASKS = 24


@pytest.mark.slow
async def test_a_controller_that_is_killed_and_started_again_costs_nothing(tmp_path: Path) -> None:
    env, port = ten(tasks=TASKS), free_port()
    address = f"http://127.0.0.1:{port}"
    serve = ("serve", "--env", "none", "--port", str(port))
    async with command(*serve) as first:
        await first.says("controller at")
        async with running_worker(
            WorkerSettings(env=TEN, name="ten", controller=address, heartbeat=1.0), env
        ) as served:
            playing = asyncio.create_task(play(tmp_path, address, agent_settings={"seconds": 0.2}))
            await until(lambda: env.steps > 40)
            first.process.kill()
            assert await first.process.wait() < 0
            held = len(served.worker.sessions)
            async with command(*serve) as second:
                await second.says("controller at")
                run = await playing
            assert held > 8 and served.worker.sessions == {}
    check_whole(run, TASKS)
    assert len(run.attempts()) == TASKS
    assert (env.opened, env.steps, env.live) == (TASKS, TASKS * TURNS, 0)
