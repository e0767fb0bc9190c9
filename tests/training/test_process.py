"""A child process and its owner: calls, errors, cancellation, death and silence. Real processes, tiny objects."""

from __future__ import annotations

import asyncio
import errno
import functools
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.errors import HarnessError, SetupError
from harness.models.sampler import Request
from tests.training.held import Held, Hung, Tellers, unloadable
from training.process.engine import Engine
from training.process.kept import Kept
from training.process.options import ProcessOptions
from training.process.parent import Caller, Here, Lost, Process, unless_gone
from training.watch import Overdue, Watch

SECONDS = 60.0


class Run:
    """A child for one test, ended with it."""

    def __init__(self, folder: Path, make: Any = Held, **options: Any) -> None:
        self.report = io.StringIO()
        self.process = Process(
            "the helper", make, folder / "processes" / "helper.log", Watch(self.report), ProcessOptions(**options)
        )

    async def __aenter__(self) -> Process:
        await self.process.start()
        return self.process

    async def __aexit__(self, *_: object) -> None:
        await self.process.close()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pid: int, seconds: float = 10.0) -> bool:
    until = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not alive(pid)


async def test_calls_are_answered_in_order_and_errors_stay_what_they_are(tmp_path: Path) -> None:
    async with Run(tmp_path, functools.partial(Held, 5)) as process:
        sent = [np.arange(number + 1, dtype=np.float32) for number in range(20)]
        found = await asyncio.gather(*(process.call("add", each, seconds=SECONDS) for each in sent))
        for (values, _), each in zip(found, sent, strict=True):
            assert values.dtype == np.float32 and (values == each).all()
        assert [total for _, total in found] == list(5 + np.cumsum([each.sum() for each in sent]).astype(int))
        with pytest.raises(SetupError, match=r"^learner.lr is wrong: lower it$"):
            await process.call("refuse", "setup", seconds=SECONDS)
        with pytest.raises(OSError, match="No space left") as refused:
            await process.call("refuse", "disk", seconds=SECONDS)
        assert refused.value.errno == errno.ENOSPC
        with pytest.raises(RuntimeError, match="KeyError in the helper: 'a defect'") as defect:
            await process.call("refuse", "else", seconds=SECONDS)
        assert "in refuse" in defect.value.__notes__[0], "a defect takes its traceback along"
        pid, parent = await process.call("pids", seconds=SECONDS)
        assert (pid, parent) == (process.pid, os.getpid())
    assert gone(pid)
    with pytest.raises(Lost, match="closed"):
        await process.call("pids", seconds=SECONDS)


async def test_an_object_that_cannot_be_made_is_refused_and_leaves_no_process(tmp_path: Path) -> None:
    run = Run(tmp_path, unloadable)
    with pytest.raises(SetupError, match="cannot be loaded"):
        await run.process.start()
    assert run.process.pid is not None and gone(run.process.pid)


async def test_a_call_that_is_called_off_here_is_called_off_there(tmp_path: Path) -> None:
    async with Run(tmp_path) as process:
        waits = [asyncio.create_task(process.call("wait", seconds=SECONDS)) for _ in range(3)]
        await process.call("pids", seconds=SECONDS)
        waits[0].cancel()
        waits[2].cancel()
        await asyncio.wait([waits[0], waits[2]])
        until = time.monotonic() + SECONDS
        while await process.call("cancelled", seconds=SECONDS) < 2:
            assert time.monotonic() < until
            await asyncio.sleep(0.01)
        assert not waits[1].done()
        waits[1].cancel()


@pytest.mark.parametrize(
    ("how", "said"),
    [("words", "status 7; its last words: first | second | the last thing it said"), ("kill", "SIGKILL")],
)
async def test_a_child_that_dies_fails_all_calls_at_once_with_its_last_words(
    tmp_path: Path, how: str, said: str
) -> None:
    async with Run(tmp_path) as process:
        waiting = asyncio.create_task(process.call("wait", seconds=SECONDS))
        lost = asyncio.create_task(process.gone())
        await process.call("pids", seconds=SECONDS)
        begun = time.monotonic()
        with pytest.raises(Lost, match="the process of the helper"):
            await process.call("end", how, seconds=SECONDS)
        with pytest.raises(Lost) as error:
            await waiting
        assert time.monotonic() - begun < 5
        assert said in str(error.value)
        assert str(await lost) == str(error.value)
        with pytest.raises(Lost):
            await process.call("pids", seconds=SECONDS)


async def test_a_deadline_fires_with_stacks_and_depths_and_the_child_goes_on(tmp_path: Path) -> None:
    run = Run(tmp_path)
    async with run as process:
        with pytest.raises(Overdue, match=r"the helper: wait took more than 0.3 seconds"):
            await process.call("wait", seconds=0.3)
        assert "queue calls of the helper: 1" in run.report.getvalue()
        assert "in test_a_deadline_fires" in run.report.getvalue()
        assert await process.call("pids", seconds=SECONDS)


async def test_a_busy_child_still_answers_for_itself(tmp_path: Path) -> None:
    async with Run(tmp_path) as process:
        computing = process.call("compute", SECONDS, seconds=2 * SECONDS)
        told, _ = await asyncio.gather(computing, process.call("go_on", seconds=SECONDS))
        assert told


async def test_a_stopped_child_is_reported_and_ended(tmp_path: Path) -> None:
    run = Run(tmp_path, silent_seconds=0.8)
    async with run as process:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGSTOP)
        with pytest.raises(Overdue, match=r"no sign of life for 0\.8 seconds"):
            await process.call("pids", seconds=SECONDS)
        assert "queue calls of the helper: 1" in run.report.getvalue()
        assert gone(process.pid)


async def test_a_hung_child_prints_its_stacks(tmp_path: Path) -> None:
    run = Run(tmp_path, Hung, silent_seconds=0.8)
    async with run as process:
        with pytest.raises(Overdue):
            await process.call("hang", seconds=SECONDS)
    assert "in hang" in (tmp_path / "processes" / "helper.log").read_text()


@pytest.mark.parametrize("busy", [False, True])
def test_the_child_ends_when_its_parent_is_killed(tmp_path: Path, busy: bool) -> None:
    script = f"""
import asyncio
from pathlib import Path
from tests.training.test_process import Run

async def main():
    run = Run(Path({str(tmp_path)!r}))
    await run.process.start()
    print(run.process.pid, flush=True)
    await run.process.call("compute", {3600 if busy else 0}, seconds=3600)
    await asyncio.sleep(3600)

asyncio.run(main())
"""
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert alive(child)
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
    assert gone(child)


async def test_work_ends_with_what_it_cannot_do_without(tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    async with Run(tmp_path) as process:
        loop = asyncio.get_running_loop()
        loop.call_later(0.1, os.kill, process.pid, signal.SIGKILL)
        with pytest.raises(Lost, match="SIGKILL"):
            await unless_gone(work(), [process.gone])
        assert ended.is_set()
    assert await unless_gone(asyncio.sleep(0, "done"), [process.gone, Here("it", 1, Watch()).gone]) == "done"


async def test_an_object_of_this_process_is_called_alike() -> None:
    here = Here("the helper", Held(1), Watch(io.StringIO()))
    values, total = await here.call("add", np.ones(3), seconds=SECONDS)
    assert values.sum() == 3 and total == 4
    with pytest.raises(SetupError, match="lower it"):
        await here.call("refuse", "setup", seconds=SECONDS)
    with pytest.raises(Overdue, match="compute took more than"):
        await here.call("compute", 0.5, seconds=0.1)


class Telling:
    """An engine whose process holds `Tellers`."""

    def __init__(self, folder: Path, restarts: int) -> None:
        self.said: list[str] = []
        self.pids: list[int] = []
        self._folder = folder
        self.engine = Engine(self._begin, 2, ProcessOptions(restarts=restarts), self.said.append)

    async def _begin(self) -> Caller:
        process = Process("the engine", Tellers, self._folder / "engine.log", Watch(), ProcessOptions())
        await process.start()
        assert process.pid is not None
        self.pids.append(process.pid)
        return process

    async def __aenter__(self) -> Telling:
        await asyncio.gather(*(sampler.open() for sampler in self.engine.samplers))
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(sampler.close() for sampler in self.engine.samplers))


def turn(episode: str) -> Request:
    return Request(episode=episode, prompt_ids=(1, 2), max_tokens=1)


async def test_an_engine_that_dies_is_started_again_with_what_each_pool_served(tmp_path: Path) -> None:
    async with Telling(tmp_path, restarts=1) as telling:
        current, stale = telling.engine.samplers
        assert len(telling.pids) == 1 and (current.name, stale.name, current.context) == ("teller:0", "teller:1", 100)
        watching = asyncio.create_task(telling.engine.gone())
        await current.update("new", 3)
        assert current.protocol() == {"weights": "new"} and stale.protocol() == {"weights": "base"}
        await stale.release("e")
        assert (await stale.sample(turn("e"))).engine == f"base {telling.pids[0]} 1/e", "released before it sampled"
        never = asyncio.create_task(current.sample(turn("never")))
        await asyncio.sleep(0.05)
        os.kill(telling.pids[0], signal.SIGKILL)
        sampled = await current.sample(turn("e"))
        assert len(telling.pids) == 2 and sampled.engine == f"new {telling.pids[1]} " and sampled.versions == (3,)
        assert (await stale.sample(turn("e"))).versions == (0,)
        assert len(telling.said) == 1 and "the process of the engine was ended by SIGKILL" in telling.said[0]
        assert not never.done() and not watching.done(), "its turn is sampled again, and nothing is lost"
        os.kill(telling.pids[1], signal.SIGKILL)
        with pytest.raises(Lost, match="SIGKILL"):
            await never
        assert isinstance(await watching, Lost) and len(telling.pids) == 2
    assert all(gone(pid) for pid in telling.pids)
    with pytest.raises(Lost, match="closed"):
        await telling.engine.samplers[0].sample(turn("e"))


class Callee:
    """What a start has come to."""

    def __init__(self) -> None:
        self.error: HarnessError | None = None
        self.closed = False

    async def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("how", ["closed", "failed", "cancelled"])
async def test_what_does_not_start_to_its_end_is_ended(how: str) -> None:
    callee, loading, loaded = Callee(), asyncio.Event(), asyncio.Event()

    async def begin() -> Any:
        return callee

    async def load(_: Caller) -> None:
        loading.set()
        await loaded.wait()
        if how == "failed":
            raise SetupError("these weights are not for it")

    kept = Kept("the engine", begin, load, ProcessOptions(), lambda line: None)
    starting = asyncio.create_task(kept.running())
    await loading.wait()
    if how == "closed":
        await kept.close()
    elif how == "cancelled":
        starting.cancel()
    loaded.set()
    with pytest.raises({"closed": Lost, "failed": SetupError, "cancelled": asyncio.CancelledError}[how]):
        await starting
    assert callee.closed


async def test_an_engine_that_dies_of_its_weights_ends_after_so_many_tries(tmp_path: Path) -> None:
    async with Telling(tmp_path, restarts=2) as telling:
        with pytest.raises(Lost, match="SIGKILL"):
            await telling.engine.samplers[1].update("deadly", 1)
        assert len(telling.pids) == 3 and len(telling.said) == 2
