"""A scripted OpenAI-compatible model that knows gold play, and plays it for every task but each third."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from harness import registry
from harness.core import Env, EnvOptions, Message, Policy
from harness.service.client_answers import encode_reply, read_answer
from tests.models.fake_provider import Answer, Asked, completion, tool_call

QUIET = Message(role="assistant", content="I do not know.")


class GoldModel:
    """Answers requests of any client. What it says depends on the request alone."""

    def __init__(self, policies: dict[str, Policy], slow: Callable[[int], float] = lambda number: 0.0) -> None:
        self.policies = policies
        self.slow = slow
        self.models: set[str] = set()
        self._lock = threading.Lock()

    def __call__(self, asked: Asked) -> Answer:
        if not asked.path.endswith("/chat/completions"):
            return Answer(404, {"error": {"message": "no such path"}})
        self.models.add(asked.body["model"])
        if [tool["function"]["name"] for tool in asked.body.get("tools") or []] == ["report_ready"]:
            return completion(tool_calls=[tool_call()])
        history = list(read_answer({"messages": asked.body["messages"]}).messages)
        with self._lock:
            reply = encode_reply(self._policy(history)(history))
        answer = completion(
            reply["content"] or None,
            finish="tool_calls" if reply.get("tool_calls") else "stop",
            **({"tool_calls": reply["tool_calls"]} if reply.get("tool_calls") else {}),
        )
        answer.seconds = self.slow(asked.number)
        return answer

    def _policy(self, history: list[Message]) -> Policy:
        """Return the play of the task whose opening the history begins with."""
        known = (self.policies.get(_key(history[:length])) for length in range(1, len(history) + 1))
        return next((policy for policy in known if policy is not None), lambda _: QUIET)


def _key(opening: list[Message]) -> str:
    return json.dumps([(message.role, message.content) for message in opening])


async def _openings(env: Env, count: int) -> dict[str, Policy]:
    policies: dict[str, Policy] = {}
    await env.open()
    try:
        for number, task in enumerate(islice(env.tasks("test"), count)):
            session = env.session(task)
            async with session:
                opening = list((await session.start()).messages)
            if number % 3 != 2:
                policies[_key(opening)] = env.demonstrate(task)
    finally:
        await env.close()
    return policies


def gold_model(names: Iterable[str], count: int, **settings: Any) -> GoldModel:
    """Make the model for the first test tasks of environments."""
    policies: dict[str, Policy] = {}
    for name in names:
        policies |= asyncio.run(_openings(registry.make_env(name, EnvOptions()), count))
    return GoldModel(policies, **settings)
