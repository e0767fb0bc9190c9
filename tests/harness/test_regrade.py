"""Re-playing a record: what must come out alike, and whose doing an ending was."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest

from harness.core import (
    Ending,
    Env,
    Json,
    Limits,
    Message,
    Observation,
    Policy,
    Reply,
    Score,
    Task,
    Trajectory,
    Turn,
    make_task,
)
from harness.errors import SetupError
from harness.regrade import regrade

TASK = make_task("one", env="echo", split="test", group="g", instruction="say yes twice", tools=(), data={})


class Echo:
    """Answers with what was said, and with a UUID; done after two replies; worth the share of "yes"."""

    name = "echo"
    turn_limit = 5
    max_sessions = None

    def __init__(self, broken: bool = False) -> None:
        self.broken = broken

    def splits(self) -> Mapping[str, str]:
        return {"test": ""}

    def tasks(self, split: str) -> Iterator[Task]:
        yield TASK

    def session(self, task: Task) -> EchoSession:
        return EchoSession(self.broken)

    def demonstrate(self, task: Task) -> Policy:
        raise NotImplementedError

    def protocol(self, split: str) -> Mapping[str, Json]:
        return {}

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def healthy(self) -> bool:
        return not self.broken


class EchoSession:
    def __init__(self, broken: bool) -> None:
        self.broken = broken
        self.said: list[str] = []

    async def __aenter__(self) -> EchoSession:
        if self.broken:
            raise OSError("no database")
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def start(self) -> Observation:
        return Observation(messages=(Message(role="user", content=f"in db_{uuid.uuid4()}"),))

    async def step(self, message: Message) -> Observation:
        self.said.append(message.content)
        answer = Message(role="user", content=f"{message.content} in db_{str(uuid.uuid4()).replace('-', '_')}")
        done = len(self.said) == 2
        return Observation(messages=(answer,), done=done, ending=Ending.COMPLETED if done else None)

    async def score(self) -> Score:
        return Score(value=self.said.count("yes") / 2)


def record(*said: str, ending: Ending = Ending.COMPLETED, value: float | None = None, **fields: Any) -> Trajectory:
    """Return a record as the environment would have made it."""
    turns = tuple(
        Turn(
            reply=Reply(message=Message(role="assistant", content=text)),
            messages=(Message(role="user", content=f"{text} in db_{uuid.uuid4()}"),),
        )
        for text in said
    )
    turns = tuple(
        msgspec.structs.replace(
            turn, messages=(Message(role="user", content=turn.messages[0].content.replace("-", "_")),)
        )
        for turn in turns
    )
    plain: dict[str, Any] = {
        "entry": "echo", "task_id": "one", "epoch": 0, "attempt": 0, "env": "echo", "split": "test", "group": "g",
        "digest": TASK.digest, "agent": "direct", "model": "m", "fingerprint": "", "seed": 0, "tools": (),
        "opening": (Message(role="user", content=f"in db_{uuid.uuid4()}"),),
    }  # fmt: skip
    score = Score(value=said.count("yes") / 2 if value is None else value)
    return Trajectory(**{**plain, **fields}, turns=turns, ending=ending, score=score)


async def found(trajectory: Trajectory, env: Any = None) -> list[tuple[str, str, str]]:
    played: Env = env or Echo()
    return [(one.what, one.recorded, one.replayed) for one in await regrade(played, TASK, trajectory, Limits())]


async def test_what_was_played_comes_out_alike_whatever_uuids_are_drawn() -> None:
    assert await found(record("yes", "yes")) == []
    assert await found(record("yes", "no")) == []


async def test_each_difference_is_named() -> None:
    assert await found(record("yes", "no", value=1.0)) == [("reward", "1.0", "0.5")]
    other = record("yes", "no")
    swapped = msgspec.structs.replace(
        other, turns=(other.turns[0], msgspec.structs.replace(other.turns[1], messages=()))
    )
    assert [what for what, _, _ in await found(swapped)] == ["observation 2"]
    assert [what for what, _, _ in await found(record("yes", "yes", opening=()))] == ["opening"]
    assert [what for what, _, _ in await found(record("yes", "yes", "yes", value=1.0))] == ["turns"]
    assert await found(record("yes", "yes", ending=Ending.TURN_LIMIT)) == [("ending", "turn_limit", "completed")]
    assert [what for what, _, _ in await found(record("yes", "yes", digest="another task"))] == ["task"]


@pytest.mark.parametrize("ending", [Ending.CONTEXT_LIMIT, Ending.TIME_LIMIT, Ending.INVALID_ACTION])
async def test_an_attempt_that_something_else_ended_is_graded_where_it_ended(ending: Ending) -> None:
    assert await found(record("yes", ending=ending)) == []
    assert await found(record("yes", ending=ending, value=1.0)) == [("reward", "1.0", "0.5")]


async def test_a_failure_that_was_charged_to_the_agent_is_worth_nothing() -> None:
    assert await found(record("yes", "yes", ending=Ending.ENV_ERROR, value=0.0)) == []
    assert await found(record("yes", "yes", ending=Ending.ENV_ERROR)) == [("reward", "1.0", "0.0")]


async def test_an_environment_that_fails_here_says_nothing_of_the_record() -> None:
    with pytest.raises(SetupError, match=r"echo/one cannot be re-played here .*no database.* see 'harness doctor'"):
        await found(record("yes", "yes"), Echo(broken=True))
