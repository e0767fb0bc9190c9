"""Asks a controller or a worker for ten-turn sessions, as many at once as it is told, and prints what that took.

A process of its own, with an HTTP client that costs next to nothing, the same for every server. Latency is that of one
interaction, first byte out to last byte in; the environment does nothing, so all of it is added by the service.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import sys
import time
from typing import Any

import uvloop

from harness.service.http import Broken, Http, Unreachable

TURNS = 10
CALL = {"id": "call_1", "type": "function", "function": {"name": "guess", "arguments": '{"number": 1}'}}
TURN = [{"role": "assistant", "content": "Going on.", "tool_calls": [CALL]}]


class Load:
    """Closed-loop clients: each plays one session after another."""

    def __init__(self, url: str, kind: str, think: float, warm: float, seconds: float) -> None:
        self.url = url
        self.kind = kind
        self.think = think
        self.http = Http()
        self.numbers = itertools.count(1)
        self.begin = time.perf_counter() + warm
        self.end = self.begin + seconds
        self.latencies: list[float] = []
        self.starts: list[float] = []
        self.sessions = 0
        self.failed = 0

    async def client(self, delay: float) -> None:
        """Play sessions until the time is up."""
        await asyncio.sleep(delay)
        while time.perf_counter() < self.end:
            try:
                await self.session()
            except (Broken, Unreachable, TimeoutError, RuntimeError):
                self.failed += 1
                await asyncio.sleep(0.1)

    async def session(self) -> None:
        """Play one session, or the part of it that there is time for."""
        number = next(self.numbers)
        body: dict[str, Any] = {"name": "ten", "index": number % TURNS}
        if self.kind == "worker":
            body = {"index": number % TURNS, "session_id": number}
        headers = await self.ask("start_sample", body, {}, self.starts)
        for _ in range(TURNS):
            await asyncio.sleep(self.think)
            if time.perf_counter() >= self.end:
                return
            if self.kind == "worker":
                await self.ask("interact", {"session_id": number, "messages": TURN}, {}, self.latencies)
            else:
                await self.ask("interact", {"messages": TURN}, {"session_id": headers["session_id"]}, self.latencies)
        self.sessions += self.begin <= time.perf_counter() < self.end

    async def ask(self, path: str, body: Any, headers: dict[str, str], into: list[float]) -> Any:
        """Make one request and note how long it took."""
        content, clock = json.dumps(body).encode(), time.perf_counter()
        reply = await self.http.request("POST", f"{self.url}/{path}", body=content, headers=headers, seconds=120)
        now = time.perf_counter()
        if reply.status != 200:
            raise RuntimeError(f"{reply.status}: {reply.body[:200]!r}")
        if self.begin <= now < self.end:
            into.append(now - clock)
        return reply.headers


def quantile(values: list[float], share: float) -> float:
    """Return a quantile in milliseconds."""
    return 1000 * sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


async def run(asked: dict[str, Any]) -> dict[str, Any]:
    """Return what one load took."""
    warm = asked["seconds"] / 4 + asked["think"]
    load = Load(asked["url"], asked["kind"], asked["think"], warm, asked["seconds"])
    spread = max(asked["think"] * TURNS, 0.2)
    dice = random.Random(0)
    clients = (load.client(dice.uniform(0, min(spread, warm))) for _ in range(asked["sessions"]))
    await asyncio.gather(*clients)
    load.http.close()
    return {
        "interacts_per_second": len(load.latencies) / asked["seconds"],
        "sessions_per_second": load.sessions / asked["seconds"],
        "p50": quantile(load.latencies, 0.5),
        "p99": quantile(load.latencies, 0.99),
        "start_p50": quantile(load.starts, 0.5),
        "failed": load.failed,
    }


if __name__ == "__main__":
    print(json.dumps(uvloop.run(run(json.loads(sys.argv[1])))))
