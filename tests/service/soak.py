"""Plays many sessions through bad lines and counts what is lost, played twice, or left over.

`python -m tests.service.soak SESSIONS FOLDER` goes on from where an earlier run in the folder was broken off. Client,
controller and worker are in this process, on real sockets, with a proxy between client and controller and another one
between controller and worker. Each part of 500 sessions ends with a line on what is open and held.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from harness.config import EvalConfig
from harness.core import Ending
from harness.evaluate import Evaluation
from harness.plan import prepare
from harness.runlog import RunLog, read
from harness.service.running import running_controller, running_worker
from harness.service.settings import ControllerSettings, WorkerSettings
from tests.service.proxy import FaultProxy, dice
from tests.service.real import free_port
from tests.service.ten_turns import TURNS, Settings, TenTurns

TEN = "tests.service.ten_turns:make"
GOING = "tests.service.ten_turns:going"
PART = 500
SHARE = 0.02
"""Of requests that something happens to."""


def held() -> dict[str, float]:
    """Return what this process holds."""
    gc.collect()
    status = Path("/proc/self/status").read_text()
    memory = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    files = len(list(Path("/proc/self/fd").iterdir()))
    return {"files": files, "processes": len(children), "megabytes": round(memory / 1024, 1)}


async def part(controller: Any, address: str, env: TenTurns, sessions: int, folder: Path) -> dict[str, Any]:
    """Play some sessions and return what became of them."""
    begun = env.steps
    task = f"agentrl:{address}#ten"
    config = EvalConfig(model="", agent=GOING, board=None, env=(task,), limit=sessions, concurrency=64)
    async with prepare(config) as plan:
        with RunLog(folder, plan.header()) as log:
            await Evaluation(plan, log).play()
    whole = [f"turn {number} of {TURNS}" for number in range(1, TURNS + 1)]
    run, doubled, why = read(folder), 0, Counter[str]()
    for trajectory in run.trajectories():
        turns = [message.content for turn in trajectory.turns for message in turn.messages]
        doubled += turns != whole[: len(turns)]
        if trajectory.ending is not Ending.COMPLETED:
            why[trajectory.failure.message if trajectory.failure else trajectory.ending] += 1
    unplayed = sessions - sum(attempt.score.value == 1.0 for attempt in run.newest().values())
    async with asyncio.timeout(120):
        while env.live or controller.sessions:
            await asyncio.sleep(0.1)
    return {
        "sessions": sessions,
        "unplayed": unplayed,
        "doubled": doubled,
        "replayed": why.total(),
        "why": why,
        "steps": env.steps - begun,
    }


async def soak(sessions: int, folder: Path, size: int = PART, share: float = SHARE) -> list[dict[str, Any]]:
    """Play what is missing of so many sessions; return a line for each part."""
    record = folder / "soak.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
    env, port = TenTurns(Settings(tasks=size)), free_port()
    async with (
        running_controller(ControllerSettings(reconcile=1.0)) as controller,
        FaultProxy(f"http://127.0.0.1:{port}", dice(len(lines), share)) as behind,
        FaultProxy(controller.address, dice(1000 + len(lines), share)) as before,
    ):
        worker = WorkerSettings(
            env=TEN, name="ten", port=port, controller=controller.address, address=f"{behind.address}/api"
        )
        async with running_worker(worker, env):
            while (done := sum(line["sessions"] for line in lines)) < sessions:
                with tempfile.TemporaryDirectory() as place:
                    count = min(size, sessions - done)
                    line = await part(controller.state, before.address, env, count, Path(place))
                faults = sum(proxy.done.total() - proxy.done["pass"] for proxy in (before, behind))
                lines.append({**line, "faults": faults, **held()})
                with record.open("a") as file:
                    file.write(json.dumps(lines[-1]) + "\n")
                print(lines[-1], flush=True)
    return lines


if __name__ == "__main__":
    asyncio.run(soak(int(sys.argv[1]), Path(sys.argv[2])))
