"""Bad lines between the parts: nothing is lost, nothing is played twice, and nothing is left over."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import registry, runlog
from harness.config import EvalConfig
from harness.core import Ending, EnvOptions, Message, ToolCall, Trajectory
from harness.errors import EnvError
from harness.evaluate import Evaluation
from harness.plan import prepare
from harness.runlog import Run, RunLog
from harness.service.running import running_controller, running_worker
from harness.service.settings import ControllerSettings, WorkerSettings
from tests.service.process import worker_process
from tests.service.proxy import FAULTS, Fault, FaultProxy, dice
from tests.service.real import free_port
from tests.service.soak import soak
from tests.service.ten_turns import TURNS, TenTurns, make

TEN = "tests.service.ten_turns:make"
GOING = "tests.service.ten_turns:going"
WHOLE = [f"turn {number} of {TURNS}" for number in range(1, TURNS + 1)]


def ten(**settings: Any) -> TenTurns:
    return make(EnvOptions(settings=settings))


async def play(folder: Path, controller: str, **changes: Any) -> Run:
    plain: dict[str, Any] = {"model": "", "agent": GOING, "board": None, "concurrency": 16}
    config = EvalConfig(**{**plain, "env": (f"agentrl:{controller}#ten",), **changes})
    async with prepare(config) as plan:
        with RunLog(folder, plan.header()) as log:
            await asyncio.wait_for(Evaluation(plan, log).play(), 120)
    return runlog.read(folder)


async def until(true: Callable[[], bool], seconds: float = 30) -> None:
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.01)


def turns_of(trajectory: Trajectory) -> list[str]:
    return [message.content for turn in trajectory.turns for message in turn.messages]


def check_whole(run: Run, tasks: int) -> None:
    """Nothing is lost: every task has one last attempt, whole. Nothing is doubled: each turn is there once."""
    newest = run.newest()
    assert len(newest) == tasks and {attempt.score.value for attempt in newest.values()} == {1.0}
    for trajectory in run.trajectories():
        turns = turns_of(trajectory)
        if trajectory.ending is Ending.COMPLETED:
            assert turns == WHOLE
        else:
            assert trajectory.ending is Ending.ENV_ERROR and trajectory.score.value is None
            assert turns == WHOLE[: len(turns)]


@pytest.mark.parametrize("fault", FAULTS)
async def test_between_client_and_controller_a_bad_line_costs_nothing(fault: Fault, tmp_path: Path) -> None:
    env = ten(tasks=6)
    async with (
        running_controller(ControllerSettings()) as controller,
        FaultProxy(controller.address, dice(1, 0.3, (fault,))) as proxy,
        running_worker(WorkerSettings(env=TEN, name="ten", controller=controller.address), env),
    ):
        run = await play(tmp_path, proxy.address)
        assert controller.state.sessions == {}
    check_whole(run, 6)
    assert proxy.done[fault] > 10
    assert len(run.attempts()) == 6 and env.opened == 6 and env.steps == 6 * TURNS and env.live == 0


async def test_between_controller_and_worker_a_bad_line_loses_no_task(tmp_path: Path) -> None:
    env, port = ten(tasks=12), free_port()
    async with (
        running_controller(ControllerSettings(reconcile=0.5)) as controller,
        FaultProxy(f"http://127.0.0.1:{port}", dice(2, 0.1)) as proxy,
    ):
        worker = WorkerSettings(
            env=TEN, name="ten", port=port, controller=controller.address, address=f"{proxy.address}/api"
        )
        async with running_worker(worker, env):
            run = await play(tmp_path, controller.address)
            # A cancellation may be lost on the way: the two agree a moment later on what there is.
            await until(lambda: env.live == 0)
        assert controller.state.sessions == {}
    check_whole(run, 12)
    assert sum(proxy.done.values()) - proxy.done["pass"] > 5


@pytest.mark.slow
async def test_a_controller_that_is_started_again_costs_nothing(tmp_path: Path) -> None:
    """Its clients ask again, its worker registers again with its sessions, and the run goes on by itself."""
    env, port = ten(tasks=24, seconds=0.05), free_port()
    address = f"http://127.0.0.1:{port}"
    async with running_controller(ControllerSettings(port=port)) as first:
        worker = WorkerSettings(env=TEN, name="ten", controller=address, heartbeat=0.5)
        serving = running_worker(worker, env)
        await serving.__aenter__()
        playing = asyncio.create_task(play(tmp_path, address))
        await until(lambda: any(session.turns.turn > 2 for session in first.state.sessions.values()))
    async with running_controller(ControllerSettings(port=port)) as second:
        run = await playing
        assert second.state.sessions == {}
        await until(lambda: env.live == 0)
        await serving.__aexit__(None, None, None)
    check_whole(run, 24)
    assert len(run.attempts()) == 24 and env.opened == 24 and env.steps == 24 * TURNS


@pytest.mark.slow
async def test_many_sessions_through_bad_lines_leave_nothing(tmp_path: Path) -> None:
    lines = await soak(300, tmp_path, size=75, share=0.02)
    assert sum(line["sessions"] for line in lines) == 300
    assert all(line["unplayed"] == line["doubled"] == 0 for line in lines)
    assert lines[-1]["faults"] > 40
    first, last = lines[1], lines[-1]  # the first part opens what is kept
    assert last["processes"] <= first["processes"]
    assert last["files"] <= first["files"] + 100 and last["megabytes"] < first["megabytes"] + 30


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_worker_that_dies_or_freezes_costs_the_attempts_it_had(how: signal.Signals, tmp_path: Path) -> None:
    asked = {"tasks": 24, "seconds": 0.05}
    serves: dict[str, Any] = {"env": TEN, "name": "ten", "processes": 0, "settings": asked}
    async with (
        running_controller(ControllerSettings(coma=1.0, lost=0.5, sweep=0.1)) as controller,
        worker_process(controller.address, **serves) as doomed,
        worker_process(controller.address, **serves),
    ):
        await until(lambda: len(controller.state.dispatch.workers) == 2, 60)
        here = {f"agentrl:{controller.address}#ten": asked}
        playing = asyncio.create_task(play(tmp_path, controller.address, env_settings=here))
        await until(lambda: sum(each.turns.turn > 2 for each in controller.state.sessions.values()) > 8)
        doomed.send_signal(how)
        run = await playing
        assert controller.state.sessions == {}
    check_whole(run, 24)
    lost = [each for each in run.trajectories() if each.ending is Ending.ENV_ERROR]
    assert 0 < len(lost) <= 16
    assert all(each.failure is not None and each.failure.boundary == "service" for each in lost)


def family(pid: int) -> dict[int, str]:
    """Return the processes below one, with their names."""
    found: dict[int, str] = {}
    for thread in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (thread / "children").read_text().split()):
            found |= {child: Path(f"/proc/{child}/comm").read_text().strip(), **family(child)}
    return found


@pytest.mark.slow
async def test_a_sandbox_that_is_killed_ends_its_session_and_no_other() -> None:
    async with (
        running_controller(ControllerSettings()) as controller,
        running_worker(WorkerSettings(env="os", controller=controller.address, limit=2, processes=0)),
    ):
        env = registry.make_env(f"agentrl:{controller.address}#os", EnvOptions())
        await env.open()
        first, second = (env.session(task) for task in env.tasks("test"))
        look = ToolCall(id="1", name="bash_action", arguments='{"script": "echo here"}')
        message = Message(role="assistant", tool_calls=(look,))
        async with first:
            await first.start()
            for pid, name in family(os.getpid()).items():
                if name == "bwrap":
                    os.kill(pid, signal.SIGKILL)
            async with second:
                await second.start()
                with pytest.raises(EnvError, match="ended"):
                    await first.step(message)
                assert "here" in (await second.step(message)).messages[0].content
        assert controller.state.sessions == {} and await env.healthy()
        await env.close()
        assert "bwrap" not in family(os.getpid()).values()
