"""What playing over HTTP adds to a turn, beside the real `agentrl-worker` on the same ten-turn task.

The task does nothing, so all of an interaction's time is the service's. A client process asks in a closed loop (a
session's next turn follows its last answer at once) with 1, 16 and 64 sessions, then with 1,000 sessions whose agent
thinks for two seconds a turn. Asked are, one after the other at each level: our worker by itself, as `agentrl-worker`
is; `agentrl-worker`; and our worker behind our controller, which is how one plays. Client and servers share the
machine. `agentrl-worker` is installed into a virtual environment of its own; without a package index it is left out.
HARNESS_BENCHMARK_SECONDS sets the seconds of each measurement (20); HARNESS_BENCHMARK_RESUME names a file that keeps
finished rows, from which a run that was broken off goes on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from harness.registry import ROOT
from tests.service.real import NotInstalled, free_port, installed

SECONDS = float(os.environ.get("HARNESS_BENCHMARK_SECONDS", "20"))
RESUME = os.environ.get("HARNESS_BENCHMARK_RESUME")
LEVELS = ((1, 0.0), (16, 0.0), (64, 0.0), (1000, 2.0))
SLOTS = 4096
READY_SECONDS = 180
HARNESS = [sys.executable, "-c", "from harness.cli import main; main()"]
NUMBERS = ("interacts_per_second", "sessions_per_second", "p50", "p99", "start_p50", "failed", "megabytes")


@contextmanager
def process(arguments: list[str], ready: str, environment: dict[str, str]) -> Iterator[int]:
    """Run a server for as long as the block runs, which begins when the address answers; yield its process id."""
    server = subprocess.Popen(
        arguments, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + READY_SECONDS
        while not _answers(ready):
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{arguments} did not come up")
            time.sleep(0.2)
        yield server.pid
    finally:
        server.kill()
        server.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200 and answer.read())
    except OSError:
        return False


@contextmanager
def our_worker(controller: str | None = None) -> Iterator[tuple[str, list[int]]]:
    """Run our worker, registered with a controller where one is named."""
    port = free_port()
    command = [
        sys.executable,
        "-c",
        "from harness.cli import main; main()",
        "worker",
        "--name",
        "ten",
        "--port",
        str(port),
    ]
    command += [
        "--env",
        "tests.service.ten_turns:make",
        "--concurrency",
        str(SLOTS),
        "--processes",
        "0",
        "--limit",
        "10",
    ]
    command += ["--controller", controller] if controller else []
    ready = f"{controller}/api/get_indices?name=ten" if controller else f"http://127.0.0.1:{port}/api/get_indices"
    with process(command, ready, {"PYTHONPATH": str(ROOT)}) as pid:
        yield f"http://127.0.0.1:{port}/api", [pid]


@contextmanager
def our_service() -> Iterator[tuple[str, list[int]]]:
    """Run our controller and a worker behind it."""
    address = f"http://127.0.0.1:{free_port()}"
    command = [*HARNESS, "serve", "--env", "none", "--port", address.rpartition(":")[2]]
    with process(command, f"{address}/api/version", {}) as pid, our_worker(address) as (_, pids):
        yield f"{address}/api", [pid, *pids]


@contextmanager
def their_worker() -> Iterator[tuple[str, list[int]]]:
    """Run the real worker. RuntimeError where it cannot be installed."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "ten.json"
        parameters = {"name": "ten", "concurrency": SLOTS}
        config.write_text(json.dumps({"ten": {"module": "agentrl_tasks.TenTurns", "parameters": parameters}}))
        command = [str(installed("agentrl-worker")), "-m", "agentrl.worker", "ten", "--config", str(config)]
        command += ["--controller", "http://127.0.0.1:9/api", "--host", "127.0.0.1", "--port", str(port)]
        command += ["--log-level", "CRITICAL"]
        environment = {"PYTHONPATH": str(ROOT / "tests" / "service")}
        with process(command, f"http://127.0.0.1:{port}/api/get_indices", environment) as pid:
            yield f"http://127.0.0.1:{port}/api", [pid]


TARGETS = {
    "our worker": ("worker", our_worker),
    "agentrl-worker": ("worker", their_worker),
    "our controller and worker": ("controller", our_service),
}


def megabytes(pids: list[int]) -> float:
    """Return the most memory that processes have held so far."""
    lines = (line for pid in pids for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def measure(target: str, sessions: int, think: float) -> dict[str, Any]:
    """Start a target, put it under load, and return what the load took."""
    kind, serve = TARGETS[target]
    with ExitStack() as stack:
        url, pids = stack.enter_context(serve())
        asked = {"url": url, "kind": kind, "sessions": sessions, "think": think, "seconds": SECONDS}
        command = [sys.executable, "-m", "benchmarks._service_load", json.dumps(asked)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS * 3 + 180, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"the load failed: {done.stderr[-500:]}")
        return {**json.loads(done.stdout), "megabytes": megabytes(pids)}


def measured(target: str, sessions: int, think: float) -> dict[str, Any]:
    """Return a row, from the file of an earlier run that was broken off where it has it."""
    file = Path(RESUME) if RESUME else None
    rows = json.loads(file.read_text()) if file and file.exists() else {}
    name = f"{target}, {sessions} sessions, {think:g} s, over {SECONDS:g} s"
    if name not in rows:
        rows[name] = measure(target, sessions, think)
        if file:
            file.write_text(json.dumps(rows))
    row: dict[str, Any] = rows[name]
    return row


def main() -> None:
    """Print the table."""
    print(f"Each row {SECONDS:g} s after a warm-up.\n")
    print("| sessions | asked | interacts/s | sessions/s | p50, ms | p99, ms | start p50, ms | failed | peak MB |")
    print("|---|---|---|---|---|---|---|---|---|")
    for sessions, think in LEVELS:
        for target in TARGETS:
            label = f"{sessions:,}" + (f", {think:g} s think time" if think else "")
            try:
                row = measured(target, sessions, think)
            except NotInstalled as error:
                print(f"| {label} | {target} | not measured: {error} | | | | | | |")
                continue
            print(f"| {label} | {target} | {' | '.join(f'{row[name]:,.1f}' for name in NUMBERS)} |", flush=True)
