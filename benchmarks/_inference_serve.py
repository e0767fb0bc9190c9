"""`transformers serve` of the installed transformers, started for a benchmark and ended with it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import httpx2

from harness.errors import ModelError, SetupError
from harness.models.vllm import launch

NEEDED = ("transformers", "fastapi", "uvicorn", "pydantic", "openai", "accelerate", "psutil")
COMMAND = (sys.executable, "-c", "from transformers.cli.transformers import main; main()", "serve")
PROGRAM = "transformers.cli.serve"
START_SECONDS, ANSWER_SECONDS, END_SECONDS, LOOK_SECONDS = 300.0, 1800.0, 10.0, 0.25


class Server:
    """A server that answers."""

    def __init__(self, url: str, model: str) -> None:
        self._model = model
        self._http = httpx2.AsyncClient(
            base_url=url,
            timeout=ANSWER_SECONDS,
            trust_env=False,
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=256),
        )

    async def complete(self, prompt: str, length: int, most: int) -> int:
        """Sample `most` tokens after a prompt of so many; return how many came."""
        sampling = {"do_sample": True, "temperature": 1.0, "top_k": 0, "max_new_tokens": most, "eos_token_id": -1}
        body = {
            "model": self._model,
            "prompt": prompt,
            "max_tokens": most,
            "generation_config": json.dumps({**sampling, "pad_token_id": 0}),
        }
        answer = await self._http.post("/v1/completions", json=body)
        if not answer.is_success:
            raise ModelError(f"it answers {answer.status_code}: {answer.text[:200]}")
        usage = answer.json()["usage"]
        if abs(usage["prompt_tokens"] - length) > 1:  # it may set a mark before the first
            raise ModelError(f"it read {usage['prompt_tokens']} tokens where {length} were sent")
        return int(usage["completion_tokens"])

    async def healthy(self) -> bool:
        """Whether it answers."""
        try:
            return (await self._http.get("/health", timeout=5.0)).is_success
        except httpx2.HTTPError:
            return False

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()


@asynccontextmanager
async def served(folder: Path, dtype: str) -> AsyncIterator[Server]:
    """Start a server of a model, by continuous batching where it has that. SetupError where it does not come up."""
    require()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = [str(folder), "--host", "127.0.0.1", "--port", str(port), "--dtype", dtype, *batching()]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    server = Server(f"http://127.0.0.1:{port}", str(folder))
    with tempfile.TemporaryFile("w+") as log:
        process = await asyncio.to_thread(
            subprocess.Popen, [*COMMAND, *flags], stdout=log, stderr=log, env=environment, start_new_session=True
        )
        try:
            await _started(server, process)
            yield server
        except (httpx2.HTTPError, ModelError, SetupError) as error:
            log.seek(0)
            raise SetupError(f"transformers serve: {error}; its last words: {log.read()[-400:].strip()}") from error
        finally:
            await server.close()
            _end(process)


def require() -> None:
    """Refuse where a package that it needs is missing. SetupError names it."""
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise SetupError(f"transformers serve needs {', '.join(missing)}: pip install 'transformers[serving]'")
    if find_spec(PROGRAM) is None:
        raise SetupError("transformers serve is measured from transformers 5 on")


def batching() -> list[str]:
    """Return the flags of continuous batching, where this transformers has it: a cache as large as our vLLM's."""
    program = find_spec(PROGRAM)
    source = Path(program.origin).read_text(encoding="utf-8") if program and program.origin else ""
    if "continuous_batching:" not in source:
        return []
    return ["--continuous-batching", "--cb-max-memory-percent", str(launch.CPU_SHARE)]


async def _started(server: Server, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not await server.healthy():
        if process.poll() is not None:
            raise SetupError(f"it ended with status {process.returncode}")
        if time.monotonic() > deadline:
            raise SetupError(f"it does not answer after {START_SECONDS:.0f} seconds")
        await asyncio.sleep(LOOK_SECONDS)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the server and what it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)
