"""A controller that is not ours, as AgentRL's answers: a guessing game behind flat answers, and knobs to misbehave."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.models.fake_provider import Answer, Asked

TOOL = {
    "type": "function",
    "function": {
        "name": "guess",
        "description": "Hand in a guess.",
        "parameters": {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
    },
}
Twist = Callable[[Asked, Answer], Answer | None]


class Foreign:
    """Sessions of a task 'riddle': the secret is the index plus seven. `twist` may change or replace any answer."""

    def __init__(self, twist: Twist = lambda asked, answer: None, indices: Any = (0, 1, 2, "three", -1)) -> None:
        self.twist = twist
        self.indices = list(indices) if isinstance(indices, tuple) else indices
        self.started: list[Any] = []
        self.live: dict[str, int] = {}
        self.cancelled: list[str] = []
        self.turns: list[tuple[str, Any]] = []

    def __call__(self, asked: Asked) -> Answer:
        path = asked.path.partition("?")[0].rpartition("/")[2]
        answer: Answer = getattr(self, path, self._missing)(asked)
        return self.twist(asked, answer) or answer

    def _missing(self, asked: Asked) -> Answer:
        return Answer(404, {"error": "no such path"})

    def version(self, asked: Asked) -> Answer:
        return Answer(body={"version": "1.2.3"})

    def list_workers(self, asked: Asked) -> Answer:
        return Answer(body={"riddle": [{"id": 1}]})

    def get_indices(self, asked: Asked) -> Answer:
        if not asked.path.endswith("name=riddle"):
            return Answer(400, {"error": "no workers available for the task"})
        return Answer(body=self.indices)

    def start_sample(self, asked: Asked) -> Answer:
        self.started.append(asked.body["index"])
        number = str(len(self.started))
        self.live[number] = 7 + (3 if asked.body["index"] == "three" else asked.body["index"])
        messages = [{"role": "system", "content": "Guess."}, {"role": "user", "content": "What is it?"}]
        return Answer(body={"messages": messages, "tools": [TOOL]}, headers={"session_id": number})

    def interact(self, asked: Asked) -> Answer:
        number = asked.headers["session_id"]
        if number not in self.live:
            return Answer(404, {"error": "no such session"})
        self.turns.append((number, asked.body["messages"]))
        call = (asked.body["messages"][0].get("tool_calls") or [None])[0]
        if call is None:
            return self.said(number, [{"role": "user", "content": "Call guess."}])
        guess = json.loads(call["function"]["arguments"])["number"]
        if guess == self.live[number]:
            return self.said(number, [], finish=True, reward=1.0, status="completed", metrics={"score": 1.0})
        hint = "higher" if guess < self.live[number] else "lower"
        return self.said(number, [{"role": "tool", "tool_call_id": call["id"], "content": hint}])

    def said(self, number: str, messages: list[Any], **fields: Any) -> Answer:
        if fields.get("finish"):
            self.live.pop(number)
        plain = {"finish": False, "reward": 0, "status": "running", "metrics": {}}
        return Answer(body={"messages": messages, **plain, **fields})

    def cancel(self, asked: Asked) -> Answer:
        number = asked.headers["session_id"]
        self.live.pop(number, None)
        self.cancelled.append(number)
        return Answer(body={})
