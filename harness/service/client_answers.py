"""What a controller answers, read as from a stranger: bounded, checked, and turned into `core` values.

A controller may be anybody's. An answer that does not keep to the protocol is `Garbled`, with a sentence on what is
wrong with it; what an answer leaves out is left unknown. Both dialects are read: flat fields, and `env_out`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from harness.core import AGENTRL_STATUS, Ending, Json, Message, Score, ToolCall, ToolSpec, Value
from harness.models.faults import Fault
from harness.models.wire import encode_tools, mapping, read_json

MOST_MESSAGES = 10_000
MOST_TOOLS = 4096
MOST_TASKS = 1_000_000
Role = Literal["system", "user", "assistant", "tool"]
ROLES: Mapping[Json, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
ENDINGS: Mapping[str, Ending] = {
    "unknown": Ending.COMPLETED,
    **{status: ending for ending, status in AGENTRL_STATUS.items() if ending.by_agent},
}
"""Status -> ending, of those that are the agent's doing; "unknown" is finished play, as agentrl-eval counts it."""
STATUSES = {"running", "unknown", *AGENTRL_STATUS.values()}


class Garbled(Exception):  # noqa: N818 - stays inside the client, which makes it an error of the tree
    """An answer that does not keep to the protocol."""


class Answer(Value, frozen=True, kw_only=True):
    """One answer to start_sample, interact or finish."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] | None
    """None where the answer says nothing of tools."""
    finish: bool
    status: str
    reward: float
    metrics: Mapping[str, Json]


class Verdict(Value, frozen=True, kw_only=True):
    """How our own worker says that an episode ended."""

    ending: Ending | None
    score: Score
    boundary: str = ""
    failure: str = ""


class Listed(Value, frozen=True, kw_only=True):
    """One task of a controller; all but the index is told by our own workers alone."""

    index: int | str
    id: str
    group: str = "all"
    instruction: str
    digest: str | None = None
    tools: tuple[ToolSpec, ...] = ()


class Described(Value, frozen=True, kw_only=True):
    """What a worker of ours tells of its environment. Never a gold answer."""

    env: str
    split: str
    turn_limit: int | None
    rules: str | None
    settings: Mapping[str, Json] | None
    protocol: Mapping[str, Json]
    tasks: tuple[Listed, ...]


def read_body(body: bytes) -> Json:
    """Decode a body. Garbled where it is no JSON."""
    try:
        return read_json(body)
    except Fault as error:
        raise Garbled(str(error)) from error


def read_answer(body: Json) -> Answer:
    """Read one answer of a session."""
    fields = mapping(body)
    if "env_out" in fields:
        fields = mapping(fields["env_out"])
    status = fields.get("status")
    finish = fields.get("finish")
    if status is not None and (not isinstance(status, str) or status not in STATUSES):
        raise Garbled(f"the status {_shown(status)} is none of the protocol's")
    if finish is not None and not isinstance(finish, bool):
        raise Garbled(f"'finish' is {_shown(finish)}, which is neither true nor false")
    answer = Answer(
        messages=_read_messages(fields.get("messages")),
        tools=_read_tools(fields.get("tools")),
        finish=bool(finish),
        status=status or ("unknown" if finish else "running"),
        reward=_read_reward(fields.get("reward")),
        metrics=mapping(fields.get("metrics") or fields.get("metric")),
    )
    if not answer.finish and not answer.messages:
        raise Garbled("an answer without messages does not finish the session either")
    return answer


def _read_messages(items: Json) -> tuple[Message, ...]:
    if items is None:
        return ()
    if not isinstance(items, list) or len(items) > MOST_MESSAGES:
        raise Garbled(f"'messages' is not a list of at most {MOST_MESSAGES:,} messages: {_shown(items)}")
    return tuple(_read_message(item) for item in items)


def _read_message(item: Json) -> Message:
    fields = mapping(item)
    role = fields.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise Garbled(f"a message has the role {_shown(role)}")
    call = fields.get("tool_call_id")
    calls = fields.get("tool_calls") or []
    if not isinstance(calls, list) or len(calls) > MOST_TOOLS:
        raise Garbled(f"a message's 'tool_calls' are no list of calls: {_shown(calls)}")
    if role == "tool" and not isinstance(call, str):
        raise Garbled("a tool's answer does not say which call it answers")
    return Message(
        role=ROLES[role],
        content=_read_content(fields.get("content")),
        tool_call_id=call if role == "tool" else None,
        tool_calls=tuple(_read_call(each) for each in calls),
    )


def _read_content(content: Json) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise Garbled(f"a message's content is {_shown(content)}")
    texts = [text for part in content if isinstance(text := mapping(part).get("text"), str)]
    if len(texts) < len(content):
        raise Garbled("a message has parts that are no text, which cannot be shown to an agent here")
    return "".join(texts)


def _read_call(item: Json) -> ToolCall:
    fields = mapping(item)
    function = mapping(fields.get("function"))
    values = (fields.get("id"), function.get("name"), function.get("arguments"))
    if not all(isinstance(value, str) for value in values):
        raise Garbled(f"a tool call is none: {_shown(item)}")
    identity, name, arguments = map(str, values)
    return ToolCall(id=identity, name=name, arguments=arguments)


def _read_tools(items: Json) -> tuple[ToolSpec, ...] | None:
    """Return tools in OpenAI's form or Anthropic's, both of which a worker may send."""
    if items is None:
        return None
    if not isinstance(items, list) or len(items) > MOST_TOOLS:
        raise Garbled(f"'tools' is not a list of at most {MOST_TOOLS:,} tools: {_shown(items)}")
    return tuple(_read_tool(mapping(item)) for item in items)


def _read_tool(item: Mapping[str, Json]) -> ToolSpec:
    fields = mapping(item.get("function")) or item
    name, text = fields.get("name"), fields.get("description")
    parameters = fields.get("parameters") or fields.get("input_schema") or {"type": "object", "properties": {}}
    if not isinstance(name, str) or not name or not isinstance(parameters, dict):
        raise Garbled(f"a tool is none that a model can be offered: {_shown(item)}")
    return ToolSpec(name=name, description=text if isinstance(text, str) else "", parameters=parameters)


def _read_reward(reward: Json) -> float:
    if reward is None:
        return 0.0
    if isinstance(reward, bool) or not isinstance(reward, int | float) or not math.isfinite(reward):
        raise Garbled(f"the reward is {_shown(reward)}, which is no number")
    return float(reward)


def read_verdict(answer: Answer) -> Verdict:
    """Read what our own worker hangs on the last answer of a session."""
    metrics = answer.metrics
    ending, score, parts = metrics.get("ending"), metrics.get("score"), metrics.get("parts")
    if ending is not None and ending not in list(Ending):
        raise Garbled(f"the ending {_shown(ending)} is unknown: controller and client may be of different versions")
    failure = mapping(metrics.get("failure"))
    return Verdict(
        ending=None if ending is None else Ending(ending),
        score=Score(value=None if score is None else _read_reward(score), parts=mapping(parts)),
        boundary=str(failure.get("boundary", "")),
        failure=str(failure.get("message", "")),
    )


def read_indices(body: Json, task: str) -> tuple[Listed, ...]:
    """Read a task's indices; -1 stands for custom tasks and is none of them."""
    if not isinstance(body, list) or len(body) > MOST_TASKS:
        raise Garbled(f"the indices of '{task}' are not a list of at most {MOST_TASKS:,}: {_shown(body)}")
    for index in body:
        if isinstance(index, bool) or not isinstance(index, int | str):
            raise Garbled(f"the indices of '{task}' have {_shown(index)} among them, which is neither number nor text")
    found = {
        f"{task}/{index}": Listed(index=index, id=f"{task}/{index}", instruction=f"Task {index} of {task}.")
        for index in body
        if index != -1
    }
    if len(found) != len(body) - body.count(-1):
        raise Garbled(f"the controller lists an index of '{task}' twice")
    return tuple(found.values())


def read_described(body: Json) -> Described:
    """Read what a worker of ours tells of its environment."""
    fields = mapping(body)
    env, split, limit = fields.get("env"), fields.get("split"), fields.get("turn_limit")
    tasks, rules = fields.get("tasks"), fields.get("rules")
    if not isinstance(env, str) or not isinstance(split, str) or not isinstance(tasks, list):
        raise Garbled(f"the description is none: {_shown(body)}")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise Garbled(f"the turn limit is {_shown(limit)}")
    sets = fields.get("tool_sets")
    tools = [_read_tools(each) or () for each in sets] if isinstance(sets, list) else []
    listed = tuple(_read_listed(item, tools) for item in tasks[:MOST_TASKS])
    if len({task.id for task in listed}) != len(listed):
        raise Garbled(f"the controller describes a task of '{env}' twice")
    return Described(
        env=env,
        split=split,
        turn_limit=limit,
        rules=rules if isinstance(rules, str) else None,
        settings=mapping(fields["settings"]) if "settings" in fields else None,
        protocol=mapping(fields.get("protocol")),
        tasks=listed,
    )


def _read_listed(item: Json, sets: Sequence[tuple[ToolSpec, ...]]) -> Listed:
    fields = mapping(item)
    tools = fields.get("tools")
    known = sets[tools] if isinstance(tools, int) and 0 <= tools < len(sets) else ()
    index = fields.get("index")
    texts = [fields.get(name) for name in ("id", "group", "instruction", "digest")]
    if not isinstance(index, int | str) or not all(isinstance(text, str) for text in texts):
        raise Garbled(f"the description of a task is none: {_shown(item)}")
    identity, group, instruction, digest = map(str, texts)
    return Listed(index=index, id=identity, group=group, instruction=instruction, digest=digest, tools=known)


def read_capacity(body: Json, task: str) -> int | None:
    """Return how many sessions of a task our controller has room for in all, None where it does not say."""
    workers = mapping(body).get(task)
    if not isinstance(workers, list):
        return None
    slots = [mapping(worker).get("concurrency") for worker in workers]
    return sum(slot for slot in slots if isinstance(slot, int)) or None


def encode_reply(message: Message) -> dict[str, Json]:
    """Return an assistant message as the protocol has it, letter for letter: how bad it is, is the task's to judge."""
    wire: dict[str, Json] = {"role": "assistant", "content": message.content}
    if message.tool_calls:
        wire["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    return wire


def news(answer: Sequence[Message], told: Sequence[Message]) -> tuple[Message, ...]:
    """Return what of an answer is new. One that begins with a system message tells the whole history again.

    Raises:
        Garbled: it tells another history than the agent has seen, which here only grows.
    """
    if not told or not answer or answer[0].role != "system":
        return tuple(answer)
    if [_seen(message) for message in answer[: len(told)]] != [_seen(message) for message in told]:
        raise Garbled("the task rewrites the history that the agent has seen, which cannot be followed here")
    return tuple(answer[len(told) :])


def _seen(message: Message) -> tuple[object, ...]:
    return message.role, message.content, message.tool_calls, message.tool_call_id


def tools_after(answer: Answer, before: Sequence[ToolSpec]) -> tuple[ToolSpec, ...] | None:
    """Return the tools where an answer changes them, None where it leaves them: none told, none told anew."""
    if not answer.tools or encode_tools(answer.tools) == encode_tools(before):
        return None
    return answer.tools


def _shown(value: Json) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "…"
