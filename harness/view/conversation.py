"""An attempt as a conversation to read: plain values for a template, every size bounded.

Decided here: a turn is one message of the agent and what the environment answered; texts and tokens beyond a bound are
left out, and how much is said. The agent's tool arguments are shown as JSON only where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from harness.core import Failure, Message, Reply, Tokens, ToolCall, ToolSpec, Trajectory, Turn, Usage
from harness.table import count
from harness.view.html import cost, seconds

MOST_TEXT = 20_000
MOST_TURNS = 100
MOST_TOKENS = 6_000
"""Token boxes on one page."""
ENGINES = 6
"""Colours for engines; more engines share them."""
LIKELY = (-0.105, -0.693, -2.303, -4.605)
"""Log-probabilities of 90, 50, 10 and 1 %: where the shades of tokens change."""
TITLES = {"system": "System", "user": "Environment", "assistant": "Agent", "tool": "Tool result"}
Decode = Callable[[Sequence[int]], list[str]]
"""Token ids to the text of each."""


class Text(msgspec.Struct, frozen=True):
    """A text, and how many of its characters are left out."""

    text: str
    left_out: int = 0


class Call(msgspec.Struct, frozen=True):
    """A tool call as it is shown."""

    name: str
    arguments: Text
    valid: bool


class Token(msgspec.Struct, frozen=True):
    """One sampled token."""

    id: int
    text: str
    logprob: float
    bin: int
    """0 is a likely token, 4 an unlikely one."""
    version: int
    forced: bool
    mixed: bool


class Sampled(msgspec.Struct, frozen=True):
    """The tokens of one reply."""

    engine: str
    colour: int
    count: int
    prompt: int
    mean: float
    temperature: float
    versions: str
    tokens: list[Token]
    left_out: int


class Shown(msgspec.Struct, frozen=True):
    """One message as it is shown."""

    role: str
    title: str
    text: Text
    anchor: str = ""
    reasoning: Text | None = None
    calls: list[Call] = []
    facts: list[str] = []
    sampled: Sampled | None = None


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt, ready for the template."""

    task_id: str
    value: float | None
    ending: str
    by_agent: bool
    failure: Failure | None
    facts: list[str]
    parts: Text | None
    tools: list[Tool]
    engines: list[str]
    messages: list[Shown]
    turns: int
    first: int
    shown: int


class Tool(msgspec.Struct, frozen=True):
    """A tool that was offered."""

    name: str
    description: str
    parameters: str


def view(
    trajectory: Trajectory,
    *,
    most_text: int = MOST_TEXT,
    first: int = 0,
    most_turns: int = MOST_TURNS,
    tokens: bool = False,
    decode: Decode | None = None,
) -> Conversation:
    """Return an attempt as a conversation: the turns from `first` on, with their tokens if those are asked for."""
    first = max(0, min(first, max(0, len(trajectory.turns) - 1)))
    turns = trajectory.turns[first : first + most_turns]
    engines = sorted({turn.reply.tokens.engine for turn in trajectory.turns if turn.reply.tokens}) if tokens else []
    messages = [] if first else [_said(one, most_text) for one in trajectory.opening]
    room = MOST_TOKENS if tokens else 0
    for place, turn in enumerate(turns, first + 1):
        sampled = turn.reply.tokens
        boxes = _sampled(sampled, engines, room, decode) if sampled and tokens else None
        room -= len(boxes.tokens) if boxes else 0
        messages += _turn(turn, place, most_text, boxes)
    return Conversation(
        task_id=trajectory.task_id,
        value=trajectory.score.value,
        ending=str(trajectory.ending).replace("_", " "),
        by_agent=trajectory.ending.by_agent,
        failure=trajectory.failure,
        facts=_facts(trajectory),
        parts=cut(pretty(trajectory.score.parts), most_text) if trajectory.score.parts else None,
        tools=[_tool(tool, most_text) for tool in trajectory.tools],
        engines=engines,
        messages=messages,
        turns=len(trajectory.turns),
        first=first,
        shown=len(turns),
    )


def cut(text: str, most: int) -> Text:
    """Return a text of at most so many characters."""
    return Text(text[:most], max(0, len(text) - most))


def pretty(value: Any) -> str:
    """Return a value as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _tool(tool: ToolSpec, most: int) -> Tool:
    return Tool(tool.name, tool.description[:most], pretty(tool.parameters)[:most])


def _facts(trajectory: Trajectory) -> list[str]:
    number = len(trajectory.turns)
    facts = [f"{number} turn{'' if number == 1 else 's'}", seconds(trajectory.seconds)]
    usage = trajectory.usage
    if usage.calls:
        facts += [f"{count(usage.input_tokens)} tokens in, {count(usage.output_tokens)} out", cost(usage.cost_usd)]
        facts.append(f"{seconds(usage.seconds / usage.calls)} a call")
    if usage.waited_seconds >= 0.001:
        facts.append(f"waited {seconds(usage.waited_seconds)}")
    if usage.retries:
        facts.append(f"{usage.retries} retries")
    return facts


def _turn(turn: Turn, place: int, most: int, sampled: Sampled | None) -> Iterable[Shown]:
    yield _reply(turn.reply, place, most, sampled)
    for index, message in enumerate(turn.messages):
        said = _said(message, most)
        yield msgspec.structs.replace(said, facts=[seconds(turn.env_seconds)]) if index == 0 else said
    if turn.tools is not None:
        names = ", ".join(tool.name for tool in turn.tools) or "none"
        yield Shown("system", "Tools from now on", cut(names, most))


def _reply(reply: Reply, place: int, most: int, sampled: Sampled | None) -> Shown:
    said = _said(reply.message, most)
    finish = [f"ended by {reply.finish}"] if reply.finish in {"length", "refused"} else []
    return msgspec.structs.replace(
        said,
        title=f"Agent, turn {place}",
        anchor=f"turn-{place}",
        facts=[*finish, *_spent(reply.usage)],
        sampled=sampled,
    )


def _spent(usage: Usage) -> list[str]:
    if not usage.calls:
        return []
    facts = [f"{count(usage.input_tokens)} in", f"{count(usage.output_tokens)} out", seconds(usage.seconds)]
    if usage.cached_tokens:
        facts.insert(1, f"{count(usage.cached_tokens)} cached")
    if usage.reasoning_tokens:
        facts.insert(-1, f"{count(usage.reasoning_tokens)} reasoning")
    return facts


def _said(message: Message, most: int) -> Shown:
    return Shown(
        message.role,
        TITLES[message.role],
        cut(message.content, most),
        reasoning=cut(message.reasoning, most) if message.reasoning else None,
        calls=[_call(call, most) for call in message.tool_calls[:MOST_TURNS]],
        facts=[f"{len(message.tool_calls)} tool calls, {MOST_TURNS} shown"] * (len(message.tool_calls) > MOST_TURNS),
    )


def _call(call: ToolCall, most: int) -> Call:
    try:
        value = msgspec.json.decode(call.arguments)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return Call(call.name[:200], cut(call.arguments, most), valid=False)
    return Call(call.name[:200], cut(pretty(value), most), valid=True)


def _sampled(tokens: Tokens, engines: Sequence[str], room: int, decode: Decode | None) -> Sampled:
    ids = tokens.sampled_ids[: max(0, room)]
    texts = decode(ids) if decode else [f"{number} " for number in ids]
    mixed = tokens.mixed_kv or (False,) * len(tokens.sampled_ids)
    versions = sorted(set(tokens.versions))
    return Sampled(
        engine=tokens.engine,
        colour=engines.index(tokens.engine) % ENGINES,
        count=len(tokens.sampled_ids),
        prompt=len(tokens.prompt_ids),
        mean=sum(tokens.logprobs) / len(tokens.logprobs) if tokens.logprobs else 0.0,
        temperature=tokens.temperature,
        versions=", ".join(map(str, versions[:5])) + (", …" if len(versions) > 5 else ""),
        tokens=[
            Token(number, text, logprob, sum(logprob < edge for edge in LIKELY), version, not sampled, old)
            for number, text, logprob, version, sampled, old in zip(
                ids, texts, tokens.logprobs, tokens.versions, tokens.mask, mixed, strict=False
            )
        ],
        left_out=len(tokens.sampled_ids) - len(ids),
    )
