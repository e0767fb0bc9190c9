"""`harness serve` and `harness worker` as commands: they come up, play, are mended, and leave nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from harness.registry import ROOT
from harness.sandbox.docker_owner import started
from tests.service.drill import Caller

SECONDS = 60.0
DRILL = "tests.service.drill:make"


class Command:
    """A command under way, with what it has said so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said: list[str] = []
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            self.said.append(line.decode().strip())

    async def says(self, text: str) -> str:
        """Wait until it has said a line with this in it, and return the line."""
        end = time.monotonic() + SECONDS
        while not (found := [line for line in self.said if text in line]):
            assert time.monotonic() < end and not self._reading.done(), self.said
            await asyncio.sleep(0.05)
        return found[0]

    async def ends(self) -> int:
        async with asyncio.timeout(SECONDS):
            await self._reading
            return await self.process.wait()

    def children(self) -> list[int]:
        """Return the processes that it started, and theirs."""
        return descendants(self.process.pid)


@asynccontextmanager
async def command(*arguments: str, **variables: str) -> AsyncIterator[Command]:
    """Run a command of `harness`; it and all that it started are gone at the end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", "from harness.cli import main; main()", *arguments),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        stderr=asyncio.subprocess.PIPE,
        stdin=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    running = Command(process)
    try:
        yield running
    finally:
        if process.returncode is None:
            for each in (*running.children(), process.pid):
                with suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
        await process.wait()


def descendants(process: int) -> list[int]:
    path = Path(f"/proc/{process}/task/{process}/children")
    try:
        children = [int(each) for each in path.read_text().split()]
    except OSError:
        return []
    return [*children, *(each for child in children for each in descendants(child))]


async def gone(processes: Iterable[int]) -> None:
    end = time.monotonic() + SECONDS
    while left := [each for each in processes if started(each)]:
        assert time.monotonic() < end, left
        await asyncio.sleep(0.1)


def address_in(line: str) -> str:
    return line.rpartition(" at ")[2].partition(",")[0]


async def finished(client: Caller, session: int) -> bool:
    answers = [await client.say(session) for _ in range(3)]
    return [answer.status for answer in answers] == [200] * 3 and bool(answers[-1].body["finish"])


@pytest.mark.slow
async def test_serve_plays_mends_and_drains() -> None:
    async with command("serve", "--env", DRILL, "--workers", "2", "--processes", "1", "--port", "0") as serve:
        client = Caller(address_in(await serve.says("controller at")))
        await serve.says("registered with")
        session = await client.start(name=DRILL)
        assert await finished(client, session)
        killed = next(each for each in serve.children() if b"\0worker\0" in Path(f"/proc/{each}/cmdline").read_bytes())
        os.kill(killed, signal.SIGKILL)
        await serve.says("started again")
        text = (await client.ask("GET", "/metrics")).body.decode()
        assert "harness_worker_restarts_total 1.0" in text
        session = await client.start("long", name=DRILL)
        children = serve.children()
        assert len(children) >= 2
        serve.process.terminate()
        await asyncio.sleep(0.5)
        assert (await client.say(session)).status == 200
        await client.ask("POST", "cancel", session_id=session)
        assert await serve.ends() == 0
        await gone(children)
        client.close()


@pytest.mark.slow
async def test_a_second_signal_ends_sessions_under_way() -> None:
    async with command("serve", "--env", DRILL, "--port", "0", "--drain", "3000") as serve:
        client = Caller(address_in(await serve.says("controller at")))
        await serve.says("registered with")
        await client.start("long", name=DRILL)
        children = serve.children()
        serve.process.terminate()
        await asyncio.sleep(1)
        assert serve.process.returncode is None
        serve.process.terminate()
        assert await serve.ends() == 0
        await gone(children)
        client.close()


@pytest.mark.slow
async def test_nothing_outlives_a_serve_that_is_killed() -> None:
    async with command("serve", "--env", DRILL, "--processes", "2", "--port", "0") as serve:
        client = Caller(address_in(await serve.says("controller at")))
        await serve.says("registered with")
        await client.start("long", name=DRILL)
        children = serve.children()
        assert len(children) == 3
        serve.process.kill()
        await gone(children)
        client.close()


@pytest.mark.slow
async def test_a_worker_finds_its_controller_late_and_leaves_it_at_once_when_told_twice() -> None:
    token = {"HARNESS_WORKER_TOKEN": "w" * 20, "HARNESS_CLIENT_TOKEN": "c" * 20}
    async with command("serve", "--env", "none", "--port", "0", **token) as serve:
        address = address_in(await serve.says("controller at"))
        client = Caller(f"{address}/t/{'c' * 20}")
        async with command("worker", "--env", DRILL, "--name", "drill", "--controller", address, **token) as worker:
            await worker.says("registered with")
            await client.start("long")
            for _ in range(2):
                worker.process.terminate()
                await asyncio.sleep(0.2)
            assert await worker.ends() == 0
            assert (await client.ask("GET", "list_workers")).body == {}
        async with command("worker", "--env", DRILL, "--controller", address, HARNESS_WORKER_TOKEN="x" * 20) as worker:
            await worker.says("refuses this worker")
        client.close()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("serve", "--env", "alfwrld"), "did you mean 'alfworld'"),
        (("serve", "--env", "none", "--host", "0.0.0.0", "--port", "0"), "HARNESS_CLIENT_TOKEN"),
        (("serve", "--env", "none", "--client-token-env", "NO_SUCH_VARIABLE"), "NO_SUCH_VARIABLE is not set"),
        (("serve", "--env", "db", "--set", "env.kg.difficulty=1"), "env.kg.difficulty"),
        (("serve", "--env", "db", "--ray", "127.0.0.1:1"), "ray"),
        (("worker", "--env", DRILL, "--split", "nothing"), "no split 'nothing'"),
        (("worker", "--env", DRILL, "--controller", "localhost:5020"), "takes an address such as"),
        (("worker", "--env", DRILL, "--host", "0.0.0.0"), "HARNESS_WORKER_TOKEN"),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_sentence(
    arguments: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch, run: Callable[..., tuple[int, str, str]]
) -> None:
    for name in ("HARNESS_CLIENT_TOKEN", "HARNESS_WORKER_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    code, _, text = run(*arguments)
    assert code == 2 and said in text and text.count("\n") == 1


@pytest.mark.slow
async def test_serve_ends_where_none_of_its_environments_can_run() -> None:
    async with command("serve", "--env", "tests.service.drill:closed", "--port", "0") as serve:
        assert await serve.ends() == 2
        assert "this one never opens" in serve.said[-1]
