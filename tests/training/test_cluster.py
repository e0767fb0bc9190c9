"""Learner and engines as actors of a Ray cluster of several nodes: a node dies and the run goes on; nothing is left."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from harness import newmodel
from harness.core import EnvOptions
from harness.errors import SetupError
from tests.nodes import Nodes
from tests.training.held import Held, Hung, unloadable
from training import budget, checkpoint, cluster
from training.cluster import Actor, ClusterOptions, Resources
from training.process.options import TOGETHER, ProcessOptions
from training.process.parent import Lost, Process
from training.recipe import Recipe, digest
from training.watch import Overdue, Watch

SECONDS = 240.0
OPTIONS = ProcessOptions(start_seconds=120, call_seconds=30, silent_seconds=8)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """Return a cluster of two nodes, and a head without room; see that nothing is left of it."""
    pytest.importorskip("ray", reason="needs Ray: pip install -e '.[cluster]'")
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as name:  # sockets want short paths
        started = Nodes(Path(name))
        try:
            started.order("add 4")
            started.order("add 4")
            yield started
        finally:
            started.close()
        end = time.monotonic() + 30
        while left := commands_with(name):
            assert time.monotonic() < end, left
            time.sleep(0.2)


def commands_with(text: str) -> list[bytes]:
    """Return the commands of the processes that name something."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes())
    return [command for command in found if text.encode() in command]


def prints_to(log: Path) -> int:
    """Return the process that prints to a file."""
    for path in Path("/proc").glob("[0-9]*/fd/1"):
        with contextlib.suppress(OSError):
            if path.readlink() == log:
                return int(path.parts[2])
    raise AssertionError(f"nobody prints to {log}")


def test_a_cluster_that_cannot_be_used_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.require(ClusterOptions(), TOGETHER)
    monkeypatch.setattr(cluster, "find_spec", lambda name: object())
    with pytest.raises(SetupError, match=r"leave processes\.learner and \.engine true"):
        cluster.require(ClusterOptions(address="auto"), TOGETHER)
    monkeypatch.setattr(cluster, "find_spec", lambda name: None)
    with pytest.raises(SetupError, match=r"pip install -e '\.\[cluster\]'"):
        cluster.require(ClusterOptions(address="auto"), ProcessOptions())


async def test_without_a_cluster_processes_hold_the_parts() -> None:
    async with cluster.joined(ClusterOptions(), ProcessOptions()) as holds:
        assert holds == (Process, Process, Process)


def test_what_runs_on_the_cluster_takes_no_memory_here() -> None:
    values = {"name": "a", "envs": {"db": {}}, "steps": 1, "learner": {"device": "cpu"}, "engine": {"device": "cpu"}}
    here = msgspec.convert(values, Recipe)
    away = msgspec.convert({**values, "cluster": {"address": "auto"}, "processes": {"replicas": 3}}, Recipe)
    assert digest(here) == digest(away), "where a run computes is no part of what it learns"
    size = budget.size_of(here)
    parts = budget.memory(away, size, "cpu")
    assert {part.what.split(":")[0] for part in parts if part.where == "memory"} == {"evaluation", "2 processes"}
    weights = {part.what: part.least for part in budget.memory(here, size, "cpu")}["engine, current: weights"]
    assert next(part.least for part in parts if part.what == "engine, current: weights") == 3 * weights
    assert budget.free(budget.CLUSTER, Path()) is None


@pytest.fixture
async def joined(nodes: Nodes) -> AsyncIterator[None]:
    """Be part of the cluster."""
    async with cluster.joined(ClusterOptions(address=nodes.address), ProcessOptions()):
        yield


@contextlib.asynccontextmanager
async def actor(log: Path, made: object = Held, cpus: float = 1.0) -> AsyncIterator[Actor]:
    """Start an actor."""
    started = Actor(Resources(cpus, 0.0), "the part", made, log, Watch(io.StringIO()), OPTIONS)  # type: ignore[arg-type]
    await started.start()
    try:
        yield started
    finally:
        await started.close()


@pytest.mark.slow
@pytest.mark.heavy
async def test_an_actor_answers_as_a_process_does(joined: None, tmp_path: Path) -> None:
    async with actor(tmp_path / "part.log", functools.partial(Held, 5)) as part:
        values, total = await part.call("add", np.arange(4), seconds=30)
        assert total == 11 and list(values) == [0, 1, 2, 3]
        with pytest.raises(SetupError, match=r"lower it"):
            await part.call("refuse", "setup", seconds=30)
        with pytest.raises(OSError, match=r"No space left"):
            await part.call("refuse", "disk", seconds=30)
        with pytest.raises(RuntimeError, match=r"KeyError in the part: 'a defect'"):
            await part.call("refuse", "defect", seconds=30)
        waiting = asyncio.create_task(part.call("wait", seconds=30))
        await asyncio.sleep(0.5)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        while not await part.call("cancelled", seconds=30):
            await asyncio.sleep(0.1)
        with pytest.raises(Overdue, match=r"the part: wait took more than 0\.5 seconds"):
            await part.call("wait", seconds=0.5)
        pid = prints_to(tmp_path / "part.log")
        part.tell("end", "words")
        lost = await asyncio.wait_for(part.gone(), 60)
        assert isinstance(lost, Lost) and "the last thing it said" in str(lost)
        with pytest.raises(Lost):
            await part.call("add", np.arange(4), seconds=30)
    async with asyncio.timeout(30):  # Ray reaps it when it comes to that
        while Path(f"/proc/{pid}").exists():
            await asyncio.sleep(0.1)


@pytest.mark.slow
@pytest.mark.heavy
async def test_an_actor_that_cannot_begin_says_why(
    joined: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SetupError, match=r"the model in nowhere cannot be loaded"):
        async with actor(tmp_path / "part.log", unloadable):
            pass
    monkeypatch.setattr(Path, "touch", lambda self: None)  # as on a node that sees another folder
    with pytest.raises(SetupError, match=r"does not see .*: give --out a folder that all nodes .* share"):
        async with actor(tmp_path / "part.log"):
            pass
    monkeypatch.setattr("tests.training.test_cluster.OPTIONS", msgspec.structs.replace(OPTIONS, start_seconds=2))
    with pytest.raises(Overdue, match=r"finding a node with 64 CPUs and 0 GPUs to spare took more than 2 seconds"):
        async with actor(tmp_path / "part.log", cpus=64):
            pass


@pytest.mark.slow
@pytest.mark.heavy
async def test_an_actor_that_stands_still_is_found_out(joined: None, tmp_path: Path) -> None:
    async with actor(tmp_path / "part.log", Hung) as part:
        with pytest.raises(Overdue, match=r"the part gave no sign of life for 8 seconds"):
            await part.call("hang", seconds=60)


@pytest.mark.slow
@pytest.mark.heavy
async def test_where_there_is_no_cluster_it_is_said() -> None:
    pytest.importorskip("ray", reason="needs Ray: pip install -e '.[cluster]'")
    with pytest.raises(SetupError, match=r"there is no Ray cluster at '127\.0\.0\.1:1' .*ray start --head"):
        async with cluster.joined(ClusterOptions(address="127.0.0.1:1", connect_seconds=2), ProcessOptions()):
            pass


def newest_line(folder: Path) -> int:
    """Return the newest update that is written down."""
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return max((json.loads(line)["version"] for line in lines if line.endswith("}")), default=0)


@pytest.mark.slow
@pytest.mark.heavy
@pytest.mark.timeout(600)
async def test_an_engine_and_then_a_node_die_and_the_run_goes_on(nodes: Nodes, tmp_path: Path) -> None:
    plays = await newmodel.gold_play("db", tasks=4, seed=0, options=EnvOptions())
    base, run = tmp_path / "nano", tmp_path / "run"
    newmodel.make(base, newmodel.SHAPES["nano"], plays, seed=0)
    values = {
        "name": "cluster", "envs": {"tests.training.lottery:make": {}}, "steps": 8, "groups": 2, "running": 6,
        "checkpoint_every": 2, "eta": 1, "collect": {"group_size": 4}, "pools": {"stale_interval": 2},
        "learner": {"lr": 1e-3, "minibatches": 2, "device": "cpu"}, "engine": {"device": "cpu", "answer_tokens": 6},
        "log": {"tensorboard": False}, "processes": {"players": 2, "replicas": 2},
        "cluster": {"address": nodes.address, "engine_cpus": 0.5, "player_cpus": 0.5},
    }  # fmt: skip
    recipe = msgspec.convert(values, Recipe)
    note, said = tmp_path / "recipe.json", tmp_path / "out"
    note.write_bytes(msgspec.json.encode(recipe))
    words = [sys.executable, "-m", "tests.training.driver", str(run), str(base), str(note)]
    with said.open("ab") as out:
        driver = subprocess.Popen(words, stdout=out, stderr=out)
    try:

        def until(version: int) -> None:
            end = time.monotonic() + SECONDS
            while newest_line(run) < version:
                assert driver.poll() is None and time.monotonic() < end, said.read_text()[-3000:]
                time.sleep(0.02)

        until(1)
        os.kill(prints_to(run / "processes" / "engine-1.log"), signal.SIGKILL)
        until(2)
        os.kill(prints_to(run / "processes" / "player-0.log"), signal.SIGKILL)
        until(3)
        nodes.order(f"end {prints_to(run / 'processes' / 'learner-0.log')}")
        assert driver.wait(SECONDS) == 0, said.read_text()[-3000:]
    finally:
        driver.kill()
        driver.wait()
    told = said.read_text()
    assert "the actor of the engine 1 is lost" in told and "it is started again" in told
    assert "the actor of the player 0 is lost" in told
    assert "the run goes back to its last checkpoint" in told
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["version"] for line in lines] == list(range(1, recipe.steps + 1))
    newest = checkpoint.newest(run / "checkpoints")
    assert newest is not None
    state = checkpoint.read(newest, digest(recipe)).state
    dropped = sum(value for line in lines for key, value in line.items() if key.startswith("drop/"))
    assert state.spent.below + len(state.spent.above) == recipe.steps * recipe.groups + dropped
