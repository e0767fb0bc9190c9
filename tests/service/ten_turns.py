"""An environment of ten turns that ask for nothing and say which turn it is: what is lost or played twice, shows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from harness.config import Strict, convert
from harness.core import (
    Ending,
    EnvOptions,
    Message,
    Observation,
    Policy,
    Reply,
    Score,
    Seat,
    Task,
    ToolCall,
    ToolSpec,
    make_task,
)

TURNS = 10
NEXT = ToolSpec(
    name="guess",
    description="Go on.",
    parameters={
        "type": "object",
        "properties": {"number": {"type": "integer"}},
        "required": ["number"],
        "additionalProperties": False,
    },
)


class Settings(Strict, frozen=True, kw_only=True):
    """What may be set."""

    tasks: int = 1000
    seconds: float = 0.0
    """How long a turn takes."""


class TenTurns:
    """Tasks of ten turns."""

    name = "ten"
    turn_limit: int | None = None
    max_sessions: int | None = None

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.live = 0
        self.opened = 0
        self.steps = 0

    def splits(self) -> Mapping[str, str]:
        return {"test": "tasks of ten turns"}

    def tasks(self, split: str) -> Iterator[Task]:
        for number in range(self.settings.tasks):
            yield make_task(
                f"ten/{number}",
                env=self.name,
                split=split,
                group="ten",
                instruction=f"Task {number}.",
                tools=(NEXT,),
                data={"number": number},
            )

    def session(self, task: Task) -> TenSession:
        return TenSession(self, task)

    def demonstrate(self, task: Task) -> Policy:
        return lambda history: Message(role="assistant")

    def protocol(self, split: str) -> Mapping[str, Any]:
        return {"version": 1}

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def healthy(self) -> bool:
        return True


class TenSession:
    """Ten turns."""

    def __init__(self, env: TenTurns, task: Task) -> None:
        self.env = env
        self.task = task
        self.turn = 0

    async def __aenter__(self) -> Self:
        self.env.live += 1
        self.env.opened += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.env.live -= 1

    async def start(self) -> Observation:
        return Observation(messages=(Message(role="user", content=f"{self.task.instruction} Turn 0 of {TURNS}"),))

    async def step(self, message: Message) -> Observation:
        if self.env.settings.seconds:
            await asyncio.sleep(self.env.settings.seconds)
        self.turn += 1
        self.env.steps += 1
        call = message.tool_calls[0].id if message.tool_calls else ""
        said = (Message(role="tool", content=f"turn {self.turn} of {TURNS}", tool_call_id=call),)
        done = self.turn >= TURNS
        return Observation(messages=said, done=done, ending=Ending.COMPLETED if done else None)

    async def score(self) -> Score:
        return Score(value=1.0 if self.turn == TURNS else 0.0)


def make(options: EnvOptions) -> TenTurns:
    return TenTurns(convert(Settings, options.settings, "env.ten"))


class Going:
    """An agent that goes on, thinking for `seconds` a turn."""

    name = "going"
    needs_model = needs_tool_calling = privileged = False

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def protocol(self) -> dict[str, Any]:
        return {}

    def start(self, seat: Seat) -> Going:
        return self

    async def act(self, history: Sequence[Message], tools: Sequence[ToolSpec]) -> Reply:
        if self.seconds:
            await asyncio.sleep(self.seconds)
        call = ToolCall(id=f"call_{len(history)}", name="guess", arguments='{"number": 1}')
        return Reply(message=Message(role="assistant", tool_calls=(call,)))

    async def close(self) -> None:
        pass


def going(argument: str, settings: dict[str, Any]) -> Going:
    return Going(**settings)
