"""An environment made to try the service: each task behaves in one way, and everything it did is on record."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec

from harness.core import Ending, EnvOptions, Message, Observation, Policy, Score, Task, ToolSpec, make_task
from harness.errors import SetupError
from harness.service.http import Http

GOLD = "the-gold-answer-of-this-task"
TOOL = ToolSpec(name="act", description="Act.", parameters={"type": "object", "properties": {"x": {"type": "string"}}})
KINDS = ("plain", "slow", "breaks", "dies", "stuck", "bad_score", "long", "large", "unsayable")
"""By index: what a session of the task does at a step whose message says "go"."""


class Drill:
    """Ends after three turns with a reward of 1; `long` never does."""

    name = "drill"
    turn_limit: int | None = 20
    max_sessions: int | None = None

    def __init__(self, options: EnvOptions) -> None:
        self.steps: Counter[str] = Counter()
        self.open_sessions = 0
        self.opened = 0
        self.kept: list[bytearray] = []

    def splits(self) -> Mapping[str, str]:
        return {"test": "one task of each kind"}

    def tasks(self, split: str) -> Iterator[Task]:
        for kind in KINDS:
            data = {"kind": kind, "gold": GOLD}
            yield make_task(
                kind, env=self.name, split=split, group=kind, instruction=f"be {kind}", tools=(TOOL,), data=data
            )

    def session(self, task: Task) -> DrillSession:
        return DrillSession(self, task.data["kind"])

    def demonstrate(self, task: Task) -> Policy:
        return lambda history: Message(role="assistant", content="go")

    def protocol(self, split: str) -> Mapping[str, Any]:
        return {"process": os.getpid()}

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def healthy(self) -> bool:
        return True


class DrillSession:
    def __init__(self, env: Drill, kind: str) -> None:
        self.env, self.kind, self.turns = env, kind, 0

    async def __aenter__(self) -> Self:
        self.env.open_sessions += 1
        self.env.opened += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.env.open_sessions -= 1

    async def start(self) -> Observation:
        return Observation(
            messages=(Message(role="system", content="Drill."), Message(role="user", content=str(os.getpid())))
        )

    async def step(self, message: Message) -> Observation:
        self.env.steps[self.kind] += 1
        self.turns += 1
        if message.content == "go":
            await self.misbehave()
        call = message.tool_calls[0].id if message.tool_calls else "none"
        answer = Message(role="tool", content=f"turn {self.turns}: {message.content}", tool_call_id=call)
        if message.content == "go" and self.kind == "unsayable":
            answer = Message(role="tool", content="\ud800")
        done = self.kind != "long" and self.turns >= 3
        return Observation(messages=(answer,), done=done, ending=Ending.COMPLETED if done else None)

    async def misbehave(self) -> None:
        if self.kind == "slow":
            await asyncio.sleep(600)
        elif self.kind == "breaks":
            raise RuntimeError("the drill breaks")
        elif self.kind == "dies":
            os._exit(3)
        elif self.kind == "stuck":
            time.sleep(600)
        elif self.kind == "large":
            self.env.kept.append(bytearray(os.urandom(1 << 20) * 64))

    async def score(self) -> Score:
        return Score(value=7.0 if self.kind == "bad_score" else 1.0, parts={"turns": self.turns})


def make(options: EnvOptions) -> Drill:
    return Drill(options)


class Closed(Drill):
    """Cannot be opened."""

    async def open(self) -> None:
        raise SetupError("this one never opens")


def closed(options: EnvOptions) -> Closed:
    return Closed(options)


class Heard(NamedTuple):
    """An answer of the service."""

    status: int
    headers: Mapping[str, str]
    body: Any


class Caller:
    """Asks a controller or worker as any client would."""

    def __init__(self, address: str, **headers: str) -> None:
        self.address = address
        self.headers = headers
        self._http = Http()

    async def ask(self, method: str, path: str, body: Any = None, **headers: Any) -> Heard:
        content = b"" if body is None else body if isinstance(body, bytes) else msgspec.json.encode(body)
        sent = {name.replace("_id", "-id") if name == "request_id" else name: str(v) for name, v in headers.items()}
        url = f"{self.address}{path if path.startswith('/') else '/api/' + path}"
        reply = await self._http.request(method, url, body=content, headers={**self.headers, **sent}, seconds=60)
        kind = reply.headers.get("content-type", "")
        return Heard(reply.status, reply.headers, msgspec.json.decode(reply.body) if "json" in kind else reply.body)

    async def start(self, kind: str = "plain", name: str = "drill", **headers: Any) -> int:
        heard = await self.ask("POST", "start_sample", {"name": name, "index": KINDS.index(kind)}, **headers)
        assert heard.status == 200, heard
        return int(heard.headers["session_id"])

    async def say(self, session_id: int, text: str = "hello", **headers: Any) -> Heard:
        body = {"messages": [{"role": "assistant", "content": text}]}
        return await self.ask("POST", "interact", body, session_id=session_id, **headers)

    def close(self) -> None:
        self._http.close()
