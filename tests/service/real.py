"""The real AgentRL programs, each in a virtual environment of its own, kept from run to run in a cache folder."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import platformdirs

HERE = Path(__file__).parent
INSTALL_SECONDS = 240


class NotInstalled(RuntimeError):  # noqa: N818 - named after what it tells
    """A real program cannot be had here."""


def installed(package: str) -> Path:
    """Return a Python that has a package, newest release. NotInstalled where it cannot be."""
    cache = os.environ.get("HARNESS_TEST_CACHE") or platformdirs.user_cache_path("agent-harness") / "tests"
    folder = Path(cache) / package
    python = folder / "bin" / "python"
    if (folder / "ready").exists():
        return python
    try:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True, capture_output=True)
        command = [str(python), "-m", "pip", "install", "--quiet", package]
        subprocess.run(command, check=True, capture_output=True, timeout=INSTALL_SECONDS)
    except subprocess.CalledProcessError as error:
        why = error.stderr.decode(errors="replace").strip()[-300:]
        raise NotInstalled(f"{package} cannot be installed: {why}") from error
    except subprocess.TimeoutExpired as error:
        raise NotInstalled(f"{package} cannot be installed within {INSTALL_SECONDS} s") from error
    (folder / "ready").touch()
    return python


def python_with(package: str) -> Path:
    """Return a Python that has a package; skips the test where there is none."""
    import pytest  # not where the benchmark asks

    try:
        return installed(package)
    except NotInstalled as error:
        pytest.skip(str(error))


def free_port() -> int:
    """Return a port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@asynccontextmanager
async def agentrl_worker(
    folder: Path, controller: str, name: str, kind: str, *, concurrency: int = 16
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a real worker of a class of `agentrl_tasks`, on a port of its own."""
    python, port = python_with("agentrl-worker"), free_port()
    config = folder / f"{name}.json"
    parameters = {"name": name, "concurrency": concurrency}
    config.write_text(json.dumps({name: {"module": f"agentrl_tasks.{kind}", "parameters": parameters}}))
    if not controller.startswith("grpc:"):
        controller += "/api"
    command = [str(python), "-m", "agentrl.worker", name, "--config", str(config), "--controller", controller]
    command += ["--self", f"http://127.0.0.1:{port}/api", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--log-level", "ERROR"]
    with (folder / f"{name}.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command, env=_clean({"PYTHONPATH": str(HERE)}), stderr=log, stdout=log
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def agentrl_eval(
    folder: Path, controller: str, provider: str, *arguments: str, seconds: float = 120
) -> list[dict[str, Any]]:
    """Run the real evaluation client to its end; return the rows of its results."""
    process = await begin_eval(folder, controller, provider, *arguments)
    try:
        async with asyncio.timeout(seconds):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, output.decode(errors="replace")[-3000:]
    return results(folder)


async def begin_eval(folder: Path, controller: str, provider: str, *arguments: str) -> asyncio.subprocess.Process:
    """Start the real evaluation client."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [str(python_with("agentrl-eval")), "-m", "agentrl.eval", "-c", f"{controller}/api", "-u", provider]
    command += ["-k", "none", "--chat-completions", "-o", str(folder), "--no-interactive", *arguments]
    return await asyncio.create_subprocess_exec(
        *command, env=_clean({}), cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )


def results(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of every result file under a folder."""
    return [
        json.loads(line)
        for path in sorted(folder.rglob("results.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]


def _clean(changes: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without what this test process adds to it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL", "OPENAI"))}
    return {**kept, **changes}
