"""Tasks written for the real `agentrl-worker`; imported by its own Python alone."""

from __future__ import annotations

import json
import time
from typing import Any

from agentrl.worker.task import Session, Task
from agentrl.worker.typings import RewardHistoryItem, SampleStatus, TaskSampleExecutionResult

GUESS = {
    "type": "function",
    "function": {
        "name": "guess",
        "description": "Hand in a guess.",
        "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
    },
}


def heard(message: dict[str, Any], secret: int) -> tuple[bool, str, str]:
    """Return whether the guess is right, which call it was, and the hint."""
    call = message["tool_calls"][0]
    number = json.loads(call["function"]["arguments"])["number"]
    return number == secret, call["id"], "higher" if number < secret else "lower"


class Riddle(Task):
    """Guess the index plus seven; index 3 breaks, index 4 says nothing of a reward, index 5 gives half of one."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(tools=[GUESS], full_async=True, **settings)

    def get_indices(self) -> list[Any]:
        return [0, 1, 2, 3, 4, 5, "six"]

    async def start_sample(self, index: Any, session: Session) -> TaskSampleExecutionResult:
        secret = 7 + (6 if index == "six" else index)
        session.inject([{"role": "system", "content": "Guess."}])
        news: dict[str, Any] = {"role": "user", "content": f"Riddle {index}: what is it?"}
        for _ in range(12):
            said = await session.action(news)
            if index == 3:
                raise RuntimeError("the riddle is broken")
            right, call, hint = heard(said.messages[0], secret)
            if right:
                if index != 4:
                    reward = 0.5 if index == 5 else 1.0
                    session.inject(RewardHistoryItem(reward=reward, score=reward))
                return TaskSampleExecutionResult(status=SampleStatus.COMPLETED)
            news = {"role": "tool", "tool_call_id": call, "content": hint}
        return TaskSampleExecutionResult(status=SampleStatus.TASK_LIMIT_REACHED)


class SlowRiddle(Riddle):
    """The same in a thread of its own, as AgentRL plays what blocks."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.full_async = False

    def get_indices(self) -> list[Any]:
        return [0, 1]

    async def start_sample(self, index: Any, session: Session) -> TaskSampleExecutionResult:
        return await Task.start_sample(self, index, session)

    def sync_start_sample(self, index: Any, session: Session) -> TaskSampleExecutionResult:
        news: dict[str, Any] = {"role": "user", "content": f"Riddle {index}: what is it?"}
        while True:
            time.sleep(0.01)
            right, call, hint = heard(session.sync_action(news).messages[0], 7 + index)
            if right:
                session.inject(RewardHistoryItem(reward=1.0))
                return TaskSampleExecutionResult(status=SampleStatus.COMPLETED)
            news = {"role": "tool", "tool_call_id": call, "content": hint}


class TenTurns(Task):
    """Ten turns that ask for nothing; what is left is what the worker itself costs."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(tools=[GUESS], full_async=True, **settings)

    def get_indices(self) -> list[Any]:
        return list(range(10))

    async def start_sample(self, index: Any, session: Session) -> TaskSampleExecutionResult:
        news: dict[str, Any] = {"role": "user", "content": f"Task {index}: turn 0 of 10"}
        for turn in range(1, 11):
            said = await session.action(news)
            call = said.messages[0]["tool_calls"][0]["id"]
            news = {"role": "tool", "tool_call_id": call, "content": f"turn {turn} of 10"}
        session.inject([news, RewardHistoryItem(reward=1.0)])
        return TaskSampleExecutionResult(status=SampleStatus.COMPLETED)
