"""`harness probe` finds nothing wrong with a good server, and a planted fault with its remedy in another."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from harness.cli.probe import command
from harness.core import Message, Reply, SamplingParams, Tokens, ToolSpec
from harness.probe import CITY, Finding, probe
from tests.models.conftest import Serve
from tests.models.fake_provider import Answer, Asked, completion, problem, tool_call
from tests.models.helpers import model_of

Fault = Callable[[Asked, Answer], Answer]
CALLS: list[tuple[str, list[tuple[str, dict[str, Any]]]]] = [
    ("get_weather twice", [("get_weather", {"city": "Oslo"}), ("get_weather", {"city": "Lima"})]),
    ("spelled exactly", [("get_weather", {"city": CITY})]),
    ("Oslo", [("get_weather", {"city": "Oslo"})]),
    ("place_order", [("place_order", {"customer": {"name": "Ada", "tags": ["new", "vip"]}})]),
    ("get_time", [("get_time", {})]),
]
TEXTS = [("password", "walnut"), ("17 times 3", "51"), ("ready", "ready"), ("walnut", "walnut"), ("Count", "one two")]


def well(asked: Asked) -> Answer:
    """Answer as a sound server of a strong model."""
    body = asked.body
    last = body["messages"][-1]
    usage = {"prompt_tokens": len(json.dumps(body["messages"]).split()), "completion_tokens": 5, "total_tokens": 9}
    if last["role"] == "tool":
        return completion(f"The tool says: {last['content']}", usage=usage)
    if body.get("tools"):
        made = next(calls for words, calls in CALLS if words in last["content"])
        written = [tool_call(name, json.dumps(arguments), f"call_{n}") for n, (name, arguments) in enumerate(made)]
        return completion(None, finish="tool_calls", tool_calls=written, usage=usage)
    if "lighthouse" in last["content"]:
        return completion("It stood.", finish="length", usage={**usage, "completion_tokens": 32})
    said = next((text for words, text in TEXTS if words in last["content"]), "yes")
    limit = body.get("max_completion_tokens") or body.get("max_tokens") or 1000
    return completion(said, finish="length" if limit < 10 else "stop", usage=usage)


def message_of(answer: Answer) -> dict[str, Any]:
    message: dict[str, Any] = answer.body["choices"][0]["message"]
    return message


def no_parser(asked: Asked, answer: Answer) -> Answer:
    calls = message_of(answer).get("tool_calls")
    if not calls:
        return answer
    texts = [
        f'{{"name": "{call["function"]["name"]}", "arguments": {call["function"]["arguments"]}}}' for call in calls
    ]
    return completion("".join(f"<tool_call>\n{text}\n</tool_call>" for text in texts))


def llama_text(asked: Asked, answer: Answer) -> Answer:
    calls = message_of(answer).get("tool_calls")
    if not calls:
        return answer
    texts = [
        f'{{"name": "{call["function"]["name"]}", "parameters": {call["function"]["arguments"]}}}' for call in calls
    ]
    return completion("; ".join(texts))


def kimi_text(asked: Asked, answer: Answer) -> Answer:
    calls = message_of(answer).get("tool_calls")
    if not calls:
        return answer
    texts = [
        f"<|tool_call_begin|>functions.{call['function']['name']}:{number}<|tool_call_argument_begin|>"
        f"{call['function']['arguments']}<|tool_call_end|>"
        for number, call in enumerate(calls)
    ]
    return completion(f"<|tool_calls_section_begin|>{''.join(texts)}<|tool_calls_section_end|>")


def wrong_parser(asked: Asked, answer: Answer) -> Answer:
    for call in message_of(answer).get("tool_calls") or []:
        call["function"]["arguments"] = call["function"]["arguments"].replace("{", "[", 1)
    return answer


def wrong_name(asked: Asked, answer: Answer) -> Answer:
    for call in message_of(answer).get("tool_calls") or []:
        call["function"]["name"] = "functions." + call["function"]["name"]
    return answer


def template_without_tools(asked: Asked, answer: Answer) -> Answer:
    return completion("I cannot look that up.") if asked.body.get("tools") else answer


def one_call_a_turn(asked: Asked, answer: Answer) -> Answer:
    if calls := message_of(answer).get("tool_calls"):
        del calls[1:]
    return answer


def ascii_only(asked: Asked, answer: Answer) -> Answer:
    for call in message_of(answer).get("tool_calls") or []:
        arguments = json.loads(call["function"]["arguments"])
        if "city" in arguments:
            arguments["city"] = re.sub(r"[^ -~]", "?", arguments["city"])
        call["function"]["arguments"] = json.dumps(arguments)
    return answer


def tool_messages_lost(asked: Asked, answer: Answer) -> Answer:
    return completion("I have no result.") if asked.body["messages"][-1]["role"] == "tool" else answer


def no_system(asked: Asked, answer: Answer) -> Answer:
    refused = any(message["role"] == "system" for message in asked.body["messages"])
    return problem(400, "Conversation roles must alternate: System role not supported") if refused else answer


def reasoning_in_text(asked: Asked, answer: Answer) -> Answer:
    message = message_of(answer)
    if message.get("content"):
        message["content"] = f"<think>\nLet me see.\n</think>\n{message['content']}"
    return answer


def cut_context(asked: Asked, answer: Answer) -> Answer:
    if answer.body["usage"]["prompt_tokens"] > 2048:
        return completion("plain", usage={"prompt_tokens": 2048, "completion_tokens": 1, "total_tokens": 2049})
    return answer


def small_context(asked: Asked, answer: Answer) -> Answer:
    if answer.body["usage"]["prompt_tokens"] > 2048:
        return problem(400, "This model's maximum context length is 2048 tokens.", code="context_length_exceeded")
    return answer


def wrong_stop_token(asked: Asked, answer: Answer) -> Answer:
    message = message_of(answer)
    if message.get("content"):
        message["content"] += "<|im_end|>\n<|im_start|>user\nThanks!"
    return answer


def limit_ignored(asked: Asked, answer: Answer) -> Answer:
    if answer.body["choices"][0]["finish_reason"] == "length":
        answer.body["choices"][0]["finish_reason"] = "stop"
    return answer


async def found(serve: Serve, fault: Fault = lambda asked, answer: answer) -> dict[str, Finding]:
    provider = serve(behave=lambda asked: fault(asked, well(asked)))
    model = model_of(provider, retries=0)
    try:
        return {finding.name: finding async for finding in probe(model, local=False)}
    finally:
        await model.close()


async def test_a_sound_server_has_nothing_wrong(serve: Serve) -> None:
    findings = await found(serve)
    assert len(findings) == 13
    assert [name for name, finding in findings.items() if finding.verdict == "bad"] == []
    assert [name for name, finding in findings.items() if finding.verdict == "absent"] == ["token ids"]


@pytest.mark.parametrize(
    ("fault", "where", "remedy"),
    [
        (no_parser, "one tool call", "--enable-auto-tool-choice --tool-call-parser hermes"),
        (llama_text, "one tool call", "--tool-call-parser llama3_json"),
        (kimi_text, "one tool call", "--tool-call-parser kimi_k2"),
        (wrong_parser, "one tool call", "--tool-call-parser"),
        (wrong_name, "one tool call", "--tool-call-parser"),
        (template_without_tools, "one tool call", "--chat-template"),
        (one_call_a_turn, "parallel tool calls", "one call a turn"),
        (ascii_only, "text beyond ASCII", ""),
        (tool_messages_lost, "tool results", "--chat-template"),
        (no_system, "system message", "--chat-template"),
        (reasoning_in_text, "reasoning", "--reasoning-parser"),
        (cut_context, "context", "num_ctx"),
        (small_context, "context", "--max-model-len"),
        (wrong_stop_token, "answers", "stop_token_ids"),
        (limit_ignored, "stop reason", "finish_reason"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
async def test_a_planted_fault_is_found_and_its_remedy_named(
    serve: Serve, fault: Fault, where: str, remedy: str
) -> None:
    findings = await found(serve, fault)
    assert findings[where].verdict == "bad", findings[where]
    assert remedy in findings[where].remedy
    sound = {name for name, finding in findings.items() if finding.verdict != "bad"}
    assert "throughput" in sound and len(sound) >= 4, "one fault is not everything"


class Unaligned:
    """A local model whose record of what it sampled is wrong, or missing."""

    name = "unaligned"

    def __init__(self, logprobs: tuple[float, ...] | None) -> None:
        self._logprobs = logprobs

    def open(self, episode: str, seed: int) -> Unaligned:
        return self

    async def generate(self, messages: list[Message], tools: list[ToolSpec], params: SamplingParams) -> Reply:
        tokens = None
        if self._logprobs is not None:
            kept = {"versions": (0, 0), "mask": (True, True), "engine": "x", "temperature": 1.0}
            tokens = Tokens(prompt_ids=(1,), sampled_ids=(2, 3), logprobs=self._logprobs, **kept)  # type: ignore[arg-type]
        return Reply(message=Message(role="assistant", content="yes"), tokens=tokens)

    def protocol(self) -> dict[str, Any]:
        return {}

    async def check(self, params: SamplingParams, *, tools: bool) -> None:
        pass

    async def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("logprobs", "detail"), [(None, "does not tell them"), ((-1.0,), "not aligned"), ((-1.0, 0.5), "above 0")]
)
async def test_token_records_that_training_cannot_use_are_found(
    logprobs: tuple[float, ...] | None, detail: str
) -> None:
    findings = {finding.name: finding async for finding in probe(Unaligned(logprobs), local=True)}  # type: ignore[arg-type]
    assert findings["token ids"].verdict == "bad"
    assert detail in findings["token ids"].detail


def test_the_command_says_it_row_by_row_and_by_its_exit_code(serve: Serve) -> None:
    good = serve(behave=well)
    result = CliRunner().invoke(command, ["openai/fake", "--base-url", good.url], standalone_mode=False)
    assert result.return_value == 0 and "good   throughput" in result.output
    faulty = serve(behave=lambda asked: no_parser(asked, well(asked)))
    result = CliRunner().invoke(command, ["openai/fake", "--base-url", faulty.url, "--json"], standalone_mode=False)
    assert result.return_value == 1
    told = json.loads(result.output)
    assert any("hermes" in finding.get("remedy", "") for finding in told["findings"])
