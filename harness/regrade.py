"""Plays recorded replies through the environment again, and says where the record and the replay part.

Decided here: what must come out alike. The task (by digest), the opening, the tools, every observation, the ending
and the reward; what was measured (times, tokens) need not. Where the model or the clock ended an attempt, the replay
ends it at the same reply and the environment grades the state that was reached. A failure that was charged to the agent
counts 0 in the record, which nobody gains by, so only what was observed before it is compared. A UUID (a database may
be named by one) is drawn anew in every play, so any two count as alike.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from harness.core import (
    Ending,
    Env,
    Json,
    Limits,
    Message,
    Reply,
    Seat,
    Task,
    ToolSpec,
    Trajectory,
    Value,
)
from harness.errors import AgentError, OutOfContext, SetupError
from harness.plan import EntryPlan
from harness.rollout import rollout

CONCURRENCY = 8
TRIES = 2
"""An environment that fails here is asked once more before the whole replay is given up."""
SHOWN = 160
"""Characters of a differing text."""
UUID = re.compile(r"[0-9a-f]{8}([-_]?)[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{12}", re.IGNORECASE)
ENDED_OUTSIDE = frozenset({Ending.CONTEXT_LIMIT, Ending.TIME_LIMIT})
CHARGED = frozenset({Ending.ENV_ERROR, Ending.GRADER_ERROR})


class Mismatch(Value, frozen=True, kw_only=True):
    """One thing that came out otherwise."""

    entry: str
    task_id: str
    epoch: int
    what: str
    """`task`, `opening`, `tools`, `observation N`, `turns`, `ending` or `reward`."""
    recorded: str
    replayed: str

    @property
    def observed(self) -> bool:
        """Whether only what was shown differs, and not what it was worth."""
        return self.what == "opening" or self.what.startswith("observation ")

    def __str__(self) -> str:
        """Write it in one line."""
        return f"{self.entry}/{self.task_id}/{self.epoch}: {self.what}: {self.recorded} recorded, {self.replayed} here"


class _Recorded:
    """An agent that says what a record says, and nothing more."""

    name = "recorded"
    needs_model = False
    needs_tool_calling = False
    privileged = False

    def __init__(self, trajectory: Trajectory) -> None:
        self._trajectory = trajectory

    def protocol(self) -> Mapping[str, Json]:
        """Nothing is added."""
        return {}

    def start(self, seat: Seat) -> _Replies:
        """Sit down with the recorded replies."""
        outside = self._trajectory.ending in ENDED_OUTSIDE
        return _Replies([turn.reply for turn in self._trajectory.turns], OutOfContext if outside else AgentError)

    async def close(self) -> None:
        """Nothing is shared."""


class _Replies:
    def __init__(self, replies: Sequence[Reply], end: type[OutOfContext | AgentError]) -> None:
        self._replies: Iterator[Reply] = iter(replies)
        self._end = end

    async def act(self, history: Sequence[Message], tools: Sequence[ToolSpec]) -> Reply:
        """Return the next recorded reply, or end the attempt as the record's ended."""
        reply = next(self._replies, None)
        if reply is None:
            raise self._end("the record has no further reply")
        return reply

    async def close(self) -> None:
        """Nothing is held."""


async def regrade(env: Env, task: Task, recorded: Trajectory, limits: Limits) -> list[Mismatch]:
    """Play one recorded attempt again in an open environment, and return what came out otherwise.

    Raises:
        SetupError: the environment failed here, so that nothing can be said.
    """
    if task.digest != recorded.digest or task.group != recorded.group:
        said = (_short(recorded.digest[:16] + " " + recorded.group), f"{task.digest[:16]} {task.group}")
        return [_mismatch(recorded, "task", *said)]
    for _ in range(TRIES):
        replayed = await rollout(
            env, _Recorded(recorded), task, limits=limits, entry=recorded.entry, epoch=recorded.epoch
        )
        if replayed.score.value is not None:
            return list(_differences(recorded, replayed))
    trouble = replayed.failure.message if replayed.failure else str(replayed.ending)
    raise SetupError(
        f"{recorded.entry}/{recorded.task_id} cannot be re-played here ({_short(trouble)}): see 'harness doctor', then "
        "try again"
    )


def _differences(recorded: Trajectory, replayed: Trajectory) -> Iterator[Mismatch]:
    charged, late = recorded.ending in CHARGED, recorded.ending is Ending.TIME_LIMIT
    if not _alike(recorded.opening, replayed.opening):
        yield _mismatch(recorded, "opening", *_parting(recorded.opening, replayed.opening))
    if recorded.tools != replayed.tools:
        yield _mismatch(recorded, "tools", _short(str(recorded.tools)), _short(str(replayed.tools)))
    # In its last step the clock, or a failure, may have struck before anything was observed.
    turns = recorded.turns[: len(recorded.turns) - (charged or late)]
    for number, (was, now) in enumerate(zip(turns, replayed.turns, strict=False), 1):
        if not _alike(was.messages, now.messages):
            yield _mismatch(recorded, f"observation {number}", *_parting(was.messages, now.messages))
        if was.tools != now.tools:
            yield _mismatch(recorded, "tools", _short(str(was.tools)), _short(str(now.tools)))
    if not charged and not late and len(recorded.turns) != len(replayed.turns):
        yield _mismatch(recorded, "turns", str(len(recorded.turns)), str(len(replayed.turns)))
    if not charged and not late and recorded.ending is not replayed.ending:
        yield _mismatch(recorded, "ending", recorded.ending, replayed.ending)
    value = 0.0 if charged else replayed.score.value
    if recorded.score.value != value:
        yield _mismatch(recorded, "reward", str(recorded.score.value), str(value))


def _mismatch(recorded: Trajectory, what: str, was: str, now: str) -> Mismatch:
    return Mismatch(
        entry=recorded.entry,
        task_id=recorded.task_id,
        epoch=recorded.epoch,
        what=what,
        recorded=was,
        replayed=now,
    )


def _alike(was: Sequence[Message], now: Sequence[Message]) -> bool:
    if was == now:
        return True
    first, second = (UUID.sub("", msgspec.json.encode(messages).decode()) for messages in (was, now))
    return first == second


def _parting(was: Sequence[Message], now: Sequence[Message]) -> tuple[str, str]:
    """Return the two texts from a little before the place where they part."""
    texts = [msgspec.json.encode(messages).decode() for messages in (was, now)]
    place = next((i for i, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), min(map(len, texts)))
    start = max(0, place - 20)
    return _short(texts[0][start:]), _short(texts[1][start:])


def _short(text: str) -> str:
    return repr(text if len(text) <= SHOWN else text[:SHOWN] + "…")


async def regrade_all(
    plans: Mapping[str, EntryPlan],
    trajectories: Iterator[Trajectory],
    *,
    done: Callable[[int], None] = lambda _: None,
) -> list[Mismatch]:
    """Play recorded attempts again, several at once, and return what came out otherwise, in the order of the records.

    `plans` are open, by entry; `trajectories` are of their tasks; `done` hears how many are through.
    """
    tasks = {name: {task.id: task for task in plan.tasks} for name, plan in plans.items()}
    gates = {name: asyncio.Semaphore(plan.env.max_sessions or CONCURRENCY) for name, plan in plans.items()}
    found: dict[int, list[Mismatch]] = {}
    jobs = enumerate(trajectories)

    async def work() -> None:
        for number, recorded in jobs:
            plan = plans[recorded.entry]
            async with gates[recorded.entry]:
                task = tasks[recorded.entry][recorded.task_id]
                found[number] = await regrade(plan.env, task, recorded, plan.limits)
            done(len(found))

    workers = [asyncio.create_task(work()) for _ in range(CONCURRENCY)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return [mismatch for number in sorted(found) for mismatch in found[number]]
