"""Agents without a model, for tests that play through a controller."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from harness.core import Message, Reply, Seat, ToolCall, ToolSpec


def guess(number: int, turn: int = 0) -> Message:
    call = ToolCall(id=f"call_{turn}", name="guess", arguments=json.dumps({"number": number}))
    return Message(role="assistant", tool_calls=(call,))


class Counting:
    """Guesses `first`, and then what the hints say, one by one."""

    name = "counting"
    needs_model = needs_tool_calling = privileged = False

    def __init__(self, first: int = 6) -> None:
        self.first = first

    def protocol(self) -> dict[str, Any]:
        return {}

    def start(self, seat: Seat) -> Counting:
        return Counting(self.first)

    async def act(self, history: Sequence[Message], tools: Sequence[ToolSpec]) -> Reply:
        assert [tool.name for tool in tools] == ["guess"]
        said = [message for message in history if message.role == "assistant"]
        if not said:
            return Reply(message=guess(self.first))
        last = json.loads(said[-1].tool_calls[0].arguments)["number"]
        step = -1 if history[-1].content == "lower" else 1
        return Reply(message=guess(last + step, len(said)))

    async def close(self) -> None:
        pass


def counting(argument: str, settings: dict[str, Any]) -> Counting:
    return Counting(**settings)
