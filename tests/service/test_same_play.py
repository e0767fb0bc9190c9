"""Play through a controller is the same play: ids, digests, fingerprint, every message and every grade."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness import runlog
from harness.config import EvalConfig, Limits
from harness.core import Json, Trajectory, public
from harness.errors import SetupError
from harness.evaluate import Evaluation
from harness.plan import prepare
from harness.runlog import Run, RunLog
from harness.service.episode import shown
from harness.service.running import RunningController, running_controller, running_worker
from harness.service.settings import ControllerSettings, WorkerSettings

SLOW = ("alfworld", "kg", "os", "webshop", "bfcl")
NAMES = ("db", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW))
TASKS = 3


async def play(folder: Path, **changes: Any) -> Run:
    config = EvalConfig(**{"board": None, "limit": TASKS, **changes})
    async with prepare(config) as plan:
        with RunLog(folder, plan.header()) as log:
            await asyncio.wait_for(Evaluation(plan, log).play(), 120)
    return runlog.read(folder)


def timeless(trajectory: Trajectory) -> Json:
    """Return everything that a trajectory says but how long it took, and a grader's words, which stay at the worker."""
    record = msgspec.to_builtins(trajectory)
    record["score"]["parts"] = shown(trajectory.score)
    for turn in record["turns"]:
        turn.pop("env_seconds", None)
    return {name: value for name, value in record.items() if name not in ("started", "seconds")}


def records(run: Run) -> dict[tuple[Any, ...], Json]:
    return {(each.key, each.attempt): timeless(each) for each in run.trajectories()}


@asynccontextmanager
async def served(name: str) -> AsyncIterator[RunningController]:
    async with (
        running_controller(ControllerSettings()) as controller,
        running_worker(WorkerSettings(env=name, controller=controller.address, limit=TASKS)),
    ):
        yield controller


async def test_agents_are_told_the_same_of_each_task() -> None:
    async with served("bfcl") as controller:
        told = []
        for address in (None, controller.address):
            config = EvalConfig(model="scripted/noop", board=None, env=("bfcl",), limit=TASKS, controller=address)
            async with prepare(config) as plan:
                told.append([public(task) for task in plan.entries[0].tasks])
    assert told[0] == told[1]


@pytest.mark.parametrize("name", NAMES)
async def test_play_at_a_controller_is_play_in_this_process(name: str, tmp_path: Path) -> None:
    async with served(name) as controller:
        for model in ("scripted/oracle", "scripted/random", "scripted/malformed"):
            common: dict[str, Any] = {"model": model, "env": (name,)}
            there = await play(tmp_path / f"{model}-there", controller=controller.address, **common)
            here = await play(tmp_path / f"{model}-here", **common)
            assert there.header.fingerprints == here.header.fingerprints
            assert there.header.protocols == here.header.protocols
            assert there.header.tasks == here.header.tasks
            assert records(there) == records(here)
        assert controller.state.sessions == {}


async def test_limits_that_our_side_keeps_are_graded_as_here(tmp_path: Path) -> None:
    async with served("db") as controller:
        common: dict[str, Any] = {"model": "scripted/oracle", "env": ("db",), "limits": Limits(turns=1)}
        there = await play(tmp_path / "there", controller=controller.address, **common)
        here = await play(tmp_path / "here", **common)
    assert records(there) == records(here)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"rules": "upstream"}, "rules 'fixed', not 'upstream'"),
        ({"split": "validation"}, "no task 'db-validation'"),
        ({"env_settings": {"db": {"difficulty": 0.5}}}, "settings"),
        ({"prompts": {"db": {"system": "Ask."}}}, "another text 'system'"),
        ({"limits": Limits(turns=50)}, "15 turns at most, not 50"),
    ],
)
async def test_a_worker_that_plays_something_else_is_refused(changes: Any, sentence: str, tmp_path: Path) -> None:
    async with served("db") as controller:
        with pytest.raises(SetupError, match=sentence):
            await play(tmp_path, model="scripted/oracle", env=("db",), controller=controller.address, **changes)
