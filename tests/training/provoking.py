"""An environment that goes wrong as it is told to: `tests.training.provoking:make`.

Gold play is always right, so a warm start works; what becomes of other play stands in $PROVOKING, read at each score,
so that a run may be taken up under another fault: `one` (every attempt is worth the same), `nan`, `fail`, `mixed`
(worth 0 or 1, by what was said). Where it has `flaky`, each third session fails as a broken container would.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from types import TracebackType
from typing import Any, Self

from harness.core import (
    Ending,
    EnvOptions,
    Message,
    Observation,
    Policy,
    Score,
    Task,
    ToolCall,
    ToolSpec,
    make_task,
    seed_of,
)
from harness.errors import EnvError

SAY = ToolSpec(
    name="say",
    description="Say a number.",
    parameters={"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
)


def faults() -> set[str]:
    return set(os.environ.get("PROVOKING", "").split())


class Provoking:
    """Say the number that you were told."""

    name = "provoking"
    turn_limit: int | None = 3
    max_sessions: int | None = None
    silence_groups: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.sessions = count()

    def splits(self) -> Mapping[str, str]:
        return {"train": "endless", "validation": "ten", "test": "ten"}

    def tasks(self, split: str) -> Iterator[Task]:
        for number in count() if split == "train" else range(10):
            told = 10 + seed_of(split, number) % 90
            yield make_task(
                f"{split}/{number}",
                env=self.name,
                split=split,
                group="number",
                instruction=f"Say {told}.",
                tools=(SAY,),
                data={"number": told, "split": split, "at": number},
            )

    def session(self, task: Task) -> ProvokingSession:
        return ProvokingSession(task, next(self.sessions))

    def demonstrate(self, task: Task) -> Policy:
        def play(history: Sequence[Message]) -> Message:
            arguments = json.dumps({"number": task.data["number"]})
            return Message(role="assistant", tool_calls=(ToolCall(id="1", name="say", arguments=arguments),))

        return play

    def protocol(self, split: str) -> Mapping[str, Any]:
        return {"split": split, "version": 1}

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def healthy(self) -> bool:
        return True


class ProvokingSession:
    """One attempt."""

    def __init__(self, task: Task, number: int) -> None:
        self.task = task
        self.number = number
        self.right = False
        self.said = ""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    async def start(self) -> Observation:
        return Observation(messages=(Message(role="user", content=self.task.instruction),))

    async def step(self, message: Message) -> Observation:
        wanted = json.dumps({"number": self.task.data["number"]})
        self.right = any(call.name == "say" and call.arguments == wanted for call in message.tool_calls)
        self.said = f"{message.content} {message.tool_calls}"
        broken = "fail" in faults() or ("flaky" in faults() and self.number % 3 == 2)
        if broken and not self.right:
            raise EnvError("the container is gone")
        return Observation(done=True, ending=Ending.COMPLETED)

    async def score(self) -> Score:
        if self.right or "one" in faults():
            return Score(value=1.0)
        if "mixed" in faults():
            return Score(value=float(seed_of(self.said) % 2))
        return Score(value=math.nan if "nan" in faults() else 0.0)


def make(options: EnvOptions) -> Provoking:
    return Provoking()
