"""The real AgentRL programs against ours: `agentrl-eval` plays our environments, `agentrl-worker` has tasks for us."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from harness import runlog
from harness.config import EvalConfig, ModelOptions
from harness.core import Ending
from harness.evaluate import Evaluation
from harness.plan import prepare
from harness.runlog import Run, RunLog
from harness.service.running import RunningController, running_controller, running_worker
from harness.service.settings import AccessSettings, ControllerSettings, WorkerSettings
from tests.models.fake_provider import FakeProvider
from tests.service.gold import gold_model
from tests.service.real import agentrl_eval, agentrl_worker, begin_eval, results

pytestmark = [pytest.mark.slow, pytest.mark.heavy]
NAMES = ("alfworld", "db", "kg", "os", "webshop", "bfcl")
TASKS = 3
AGENT = "tests.service.players:counting"
OPEN = AccessSettings()


async def play(folder: Path, **changes: Any) -> Run:
    config = EvalConfig(**{"board": None, **changes})
    async with prepare(config) as plan:
        with RunLog(folder, plan.header()) as log:
            await asyncio.wait_for(Evaluation(plan, log).play(), 120)
    return runlog.read(folder)


async def until(true: Callable[[], bool], seconds: float = 120) -> None:
    async with asyncio.timeout(seconds):
        while not true():
            await asyncio.sleep(0.05)


async def test_a_real_worker_registers_and_is_played_like_any_environment(tmp_path: Path) -> None:
    async with (
        running_controller(ControllerSettings()) as controller,
        agentrl_worker(tmp_path, controller.address, "riddle", "Riddle"),
        agentrl_worker(tmp_path, controller.address, "slow", "SlowRiddle"),
    ):
        await until(lambda: len(controller.state.dispatch.workers) == 2)
        names = (f"agentrl:{controller.address}/api#riddle", f"agentrl:{controller.address}#slow")
        run = await play(tmp_path / "run", model="", agent=AGENT, env=names)
        assert controller.state.sessions == {}
    newest = {key.task_id: attempt for key, attempt in run.newest().items()}
    values = {name: attempt.score.value for name, attempt in newest.items()}
    assert values == {
        "riddle/0": 1.0,
        "riddle/1": 1.0,
        "riddle/2": 1.0,
        "riddle/3": None,
        "riddle/4": 0.0,
        "riddle/5": 0.5,
        "riddle/six": 1.0,
        "slow/0": 1.0,
        "slow/1": 1.0,
    }
    assert newest["riddle/3"].ending is Ending.ENV_ERROR and newest["riddle/3"].attempt == 2
    played = {trajectory.task_id: trajectory for trajectory in run.trajectories()}
    assert len(played["riddle/six"].turns) == 8 and played["riddle/six"].tools[0].name == "guess"
    assert played["riddle/3"].failure is not None and "task error" in played["riddle/3"].failure.message


async def test_a_real_worker_that_dials_in_over_grpc_says_that_it_is_not_understood(tmp_path: Path) -> None:
    async with running_controller(ControllerSettings()) as controller:
        address = controller.address.replace("http:", "grpc:")
        async with agentrl_worker(tmp_path, address, "riddle", "Riddle"):
            await until(lambda: "Trying to connect an http1.x server" in (tmp_path / "riddle.log").read_text())
        assert not controller.state.dispatch.workers


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_TEST_KEY", "none")


@asynccontextmanager
async def served(
    names: Iterable[str], access: AccessSettings = OPEN, **settings: Any
) -> AsyncIterator[RunningController]:
    """Run a controller with a worker for each environment."""
    async with AsyncExitStack() as stack:
        controller = await stack.enter_async_context(running_controller(ControllerSettings(access=access, **settings)))
        for name in names:
            worker = WorkerSettings(env=name, controller=controller.address, limit=TASKS, concurrency=2, access=access)
            await stack.enter_async_context(running_worker(worker))
        yield controller


async def rewards_here(folder: Path, names: tuple[str, ...], provider: str) -> dict[tuple[str, int], float]:
    """Play environments in this process with the same model; return rewards by environment and place."""
    connection = ModelOptions(base_url=provider, api_key_env="HARNESS_TEST_KEY")
    run = await play(folder, model="openai/fake", env=names, limit=TASKS, connection=connection)
    places = {name: {task: number for number, task in enumerate(tasks)} for name, tasks in run.header.tasks.items()}
    return {(key.entry, places[key.entry][key.task_id]): each.score.value or 0.0 for key, each in run.newest().items()}


def rewards_of(rows: list[dict[str, Any]]) -> dict[tuple[str, int], float]:
    return {(row["task"], row["index"]["int_value"]): row["metric_reward"] for row in rows}


async def test_the_real_client_gets_the_rewards_of_a_local_run(tmp_path: Path) -> None:
    """Six environments at once, more of them than there is room for, so that starts wait in line too."""
    model = await asyncio.to_thread(gold_model, NAMES, TASKS)
    with FakeProvider(model, models=["fake"]) as provider:
        async with served(NAMES) as controller:
            rows = await agentrl_eval(tmp_path / "theirs", controller.address, provider.url, "-m", "fake", *NAMES)
            assert controller.state.sessions == {}
        here = await rewards_here(tmp_path / "ours", NAMES, provider.url)
    assert rewards_of(rows) == here and len(rows) == TASKS * len(NAMES)
    assert {name for name, _ in here} == set(NAMES)
    for name in NAMES:
        assert {reward for (task, _), reward in here.items() if task == name} >= {1.0}
    assert 0.0 in here.values()
    assert {row["status"] for row in rows} <= {"completed", "task limit reached", "agent invalid action"}


async def test_the_real_client_repeats_resumes_and_crosses_models(tmp_path: Path) -> None:
    model = await asyncio.to_thread(gold_model, ["webshop"], TASKS)
    with FakeProvider(model, models=["fake"]) as provider:
        async with served(["webshop"]) as controller:

            async def evaluated(folder: str, *arguments: str) -> list[dict[str, Any]]:
                return await agentrl_eval(tmp_path / folder, controller.address, provider.url, *arguments, "webshop")

            first = await evaluated("runs", "-m", "fake", "-n", "2", "--indices-range", "1-1")
            assert [(row["run"], row["index"]["int_value"], row["metric_reward"]) for row in first] == [
                (0, 1, 1.0),
                (1, 1, 1.0),
            ]
            (folder,) = (path.parent for path in (tmp_path / "runs").rglob("results.jsonl"))
            asked = len(provider.bodies)
            resumed = ("-n", "2", "--indices-range", "1-2", "--resume", str(folder))
            more = await evaluated("runs", "-m", "fake", *resumed)
            assert len(more) == 4 and [row["metric_reward"] for row in more].count(1.0) == 2
            played = {str(body["messages"][:2]) for body in provider.bodies[asked:] if body.get("tools")}
            assert len(played) == 1  # the new task alone
            crossed = await evaluated("cross", "-m", "one", "-m", "two", "--cross-sample")
            assert len(crossed) == TASKS and {row["metric_reward"] for row in crossed} == {0.0, 1.0}
            assert {"one", "two"} <= model.models
            assert controller.state.sessions == {}


async def test_the_real_client_shows_its_token_in_the_path(tmp_path: Path) -> None:
    """It knows no other way: the address that it is given ends in `/t/TOKEN/api`."""
    access = AccessSettings(client_token="c" * 24, worker_token="w" * 24)
    model = await asyncio.to_thread(gold_model, ["webshop"], TASKS)
    with FakeProvider(model, models=["fake"]) as provider:
        async with served(["webshop"], access) as controller:
            tokened = f"{controller.address}/t/{access.client_token}"
            rows = await agentrl_eval(tmp_path / "theirs", tokened, provider.url, "-m", "fake", "webshop")
            for number, address in enumerate((controller.address, f"{controller.address}/t/{access.worker_token}")):
                folder = tmp_path / f"refused{number}"
                process = await begin_eval(folder, address, provider.url, "-m", "fake", "webshop")
                output, _ = await asyncio.wait_for(process.communicate(), 120)
                assert b"a client token is needed" in output, output.decode()[-2000:]
                assert results(folder) == []
            assert controller.state.sessions == {} and len(controller.state.finished) == TASKS
        here = await rewards_here(tmp_path / "ours", ("webshop",), provider.url)
    assert rewards_of(rows) == here and set(here.values()) == {0.0, 1.0}


async def test_sessions_of_a_client_that_is_interrupted_end(tmp_path: Path) -> None:
    model = await asyncio.to_thread(gold_model, ["webshop"], TASKS, slow=lambda number: 0.3)
    with FakeProvider(model, models=["fake"]) as provider:
        async with served(["webshop"], idle=3.0, sweep=0.5) as controller:
            process = await begin_eval(tmp_path, controller.address, provider.url, "-m", "fake", "webshop")
            await until(lambda: any(session.turns.turn > 0 for session in controller.state.sessions.values()))
            process.send_signal(signal.SIGINT)
            await asyncio.wait_for(process.communicate(), 60)
            await until(lambda: not controller.state.sessions, 30)
            assert [worker.free for worker in controller.state.dispatch.workers.values()] == [2]
    assert len(results(tmp_path)) < TASKS
