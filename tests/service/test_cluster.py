"""Workers on a real Ray cluster: an actor dies in the middle of a run, and nothing outlives `harness serve`."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from harness import runlog
from harness.config import EvalConfig
from harness.core import Ending
from harness.errors import SetupError
from harness.evaluate import Evaluation
from harness.plan import prepare
from harness.runlog import Run, RunLog
from harness.service import cluster
from tests.nodes import Nodes
from tests.service.drill import Caller
from tests.service.ten_turns import TURNS
from tests.service.test_commands import Command, address_in, command, descendants, gone

TEN = "tests.service.ten_turns:make"
GOING = "tests.service.ten_turns:going"
CLIENT, WORKER = "c" * 20, "w" * 20
TOKENS = {"HARNESS_CLIENT_TOKEN": CLIENT, "HARNESS_WORKER_TOKEN": WORKER}
SESSIONS = 12
SECONDS = 180.0
"""An actor takes ten seconds to be there, and several times as long on a busy machine."""


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """Return a cluster with one node that has room."""
    pytest.importorskip("ray", reason="needs Ray: pip install -e '.[cluster]'")
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as name:  # sockets want short paths
        started = Nodes(Path(name))
        try:
            started.order("add 2")
            yield started
        finally:
            started.close()


async def test_without_ray_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "find_spec", lambda name: None)
    with pytest.raises(SetupError, match=r"pip install 'agent-harness\[cluster\]'"):
        async with cluster.joined("auto"):
            pass


@pytest.mark.parametrize("where", ["127.0.0.1:1", "ray://127.0.0.1:1", "local", "[::1]:99999"])
async def test_where_there_is_no_cluster_it_is_said(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "find_spec", lambda name: object())
    with pytest.raises(SetupError, match=rf"there is no Ray cluster at '{re.escape(where)}' .*ray start --head"):
        async with cluster.joined(where):
            pass


def placed(port: str) -> dict[int, int]:
    """Return actor -> worker of the controller on a port: their processes."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_text().split("\0")
            if "--owner" in words and any(word.endswith(f":{port}") for word in words):
                found[int(words[words.index("--owner") + 1])] = int(path.parts[2])
    return found


async def registered(serve: Command, count: int) -> None:
    end = time.monotonic() + SECONDS
    while sum("registered with" in line for line in serve.said) < count:
        assert time.monotonic() < end and serve.process.returncode is None, serve.said
        await asyncio.sleep(0.1)


async def play(folder: Path, env: str) -> Run:
    config = EvalConfig(
        model="", agent=GOING, agent_settings={"seconds": 0.5}, board=None, env=(env,), limit=SESSIONS,
        concurrency=SESSIONS,
    )  # fmt: skip
    async with prepare(config) as plan:
        with RunLog(folder, plan.header()) as log:
            await asyncio.wait_for(Evaluation(plan, log).play(), SECONDS)
    return runlog.read(folder)


@pytest.mark.slow
async def test_an_actor_dies_in_the_middle_of_a_run(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_CONTROLLER_TOKEN", CLIENT)
    flags = ("--workers", "2", "--ray-cpus", "0.5", "--host", "0.0.0.0", "--port", "0")
    async with command("serve", "--env", TEN, *flags, "--ray", nodes.address, **TOKENS) as serve:
        port = address_in(await serve.says("controller at")).rpartition(":")[2]
        client = Caller(f"http://127.0.0.1:{port}/t/{CLIENT}")
        await registered(serve, 2)
        workers = (await client.ask("GET", "list_workers")).body[TEN]
        assert len(workers) == 2
        assert all(worker["address"].startswith(f"http://{nodes.address.rpartition(':')[0]}:") for worker in workers)
        running = asyncio.create_task(play(tmp_path, f"agentrl:http://127.0.0.1:{port}/api#{TEN}"))
        while max((each["turns"] for each in (await client.ask("GET", "list_sessions")).body), default=0) < 2:
            assert not running.done()
            await asyncio.sleep(0.1)
        before = placed(port)
        assert len(before) == 2
        os.kill(min(before), signal.SIGKILL)
        run = await running
        lost = [each for each in run.trajectories() if each.ending is not Ending.COMPLETED]
        assert {each.ending for each in lost} == {Ending.ENV_ERROR} and len(lost) < SESSIONS
        assert [each.score.value for each in run.newest().values()] == [1.0] * SESSIONS
        await serve.says("is lost")
        await registered(serve, 3)
        after = placed(port)
        assert len(after) == 2 and len(before.keys() & after.keys()) == 1
        heard = await client.ask("POST", "start_sample", {"name": TEN, "index": 0})
        serve.process.terminate()
        await asyncio.sleep(0.5)
        answers = [await client.say(int(heard.headers["session_id"])) for _ in range(TURNS)]
        assert [answer.status for answer in answers] == [200] * TURNS and answers[-1].body["finish"]
        client.close()
        assert await serve.ends() == 0
        await gone([*before, *before.values(), *after, *after.values()])


@pytest.mark.slow
async def test_a_worker_whose_node_dies_is_placed_on_another_and_nothing_outlives_a_serve_that_is_killed(
    nodes: Nodes,
) -> None:
    async with command("serve", "--env", TEN, "--processes", "1", "--port", "0", "--ray", nodes.address) as serve:
        port = address_in(await serve.says("controller at")).rpartition(":")[2]
        await registered(serve, 1)
        first = placed(port)
        await asyncio.to_thread(nodes.order, "add 2")
        await asyncio.to_thread(nodes.order, f"end {min(first)}")
        await gone([*first, *first.values()])
        await registered(serve, 2)
        second = placed(port)
        left = [*second, *second.values(), *(each for worker in second.values() for each in descendants(worker))]
        assert len(left) == 3
        serve.process.kill()
        await gone(left)
