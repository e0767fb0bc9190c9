"""An environment for runs of minutes' worth in seconds: what is said decides by lot, and worker processes are asked."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Self

from envs.bfcl.env import EMPTY_SCENARIO
from envs.bfcl.sessions import run_request
from envs.bfcl.workers import Workers
from harness.core import Ending, EnvOptions, Json, Message, Observation, Policy, Score, Task, digest
from harness.errors import EnvError

TURNS = 2
NAME = "lottery"


class Lottery:
    """Tasks without end; an attempt is worth 1 or 0, by a digest of all that was said in it."""

    name = NAME
    turn_limit: int | None = None
    max_sessions: int | None = None

    def __init__(self, held_out: int = 0) -> None:
        self.workers = Workers(2)
        self.held_out = held_out

    def splits(self) -> Mapping[str, str]:
        return {"train": "endless", **({"test": "the first ones of them"} if self.held_out else {})}

    def tasks(self, split: str) -> Iterator[Task]:
        for number in range(self.held_out) if split == "test" else itertools.count():
            data = {"number": number}
            yield Task(
                id=f"{NAME}-{number}", env=NAME, split=split, group="draw", instruction=f"Say anything to {number}.",
                tools=(), data=data, digest=digest([NAME, data]),
            )  # fmt: skip

    def session(self, task: Task) -> Draw:
        return Draw(task, self.workers)

    def demonstrate(self, task: Task) -> Policy:
        raise NotImplementedError

    def protocol(self, split: str) -> Mapping[str, Json]:
        return {}

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        await self.workers.close()

    async def healthy(self) -> bool:
        return True


class Draw:
    """One attempt."""

    def __init__(self, task: Task, workers: Workers) -> None:
        self._task = task
        self._workers = workers
        self._said: list[str] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    async def start(self) -> Observation:
        return Observation(messages=(Message(role="user", content=self._task.instruction),))

    async def step(self, message: Message) -> Observation:
        self._said.append(str(message.content))
        if await self._workers.request(run_request(EMPTY_SCENARIO, [], [])) != {"results": []}:
            raise EnvError("a worker answers what nobody asked")
        if len(self._said) == TURNS:
            return Observation(done=True, ending=Ending.COMPLETED)
        return Observation(messages=(Message(role="user", content="Go on."),))

    async def score(self) -> Score:
        return Score(value=float(int(digest([self._task.id, self._said])[0], 16) % 2))


def make(options: EnvOptions) -> Lottery:
    return Lottery(**options.settings)  # type: ignore[arg-type]
