"""The messages API: the mapping both ways, and the same misbehaving server behind Anthropic's SDK."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness.config import ModelOptions
from harness.core import Message, Reply, SamplingParams, ToolCall, ToolSpec
from harness.errors import ModelError, OutOfContext, SetupError
from harness.models import anthropic, connect
from harness.models.faults import Fault
from harness.models.remote import RemoteModel
from tests.models.conftest import Serve
from tests.models.fake_provider import Answer, Asked, FakeProvider

pytest.importorskip("anthropic", reason="needs the extra 'anthropic'")
TOOL = ToolSpec(name="look", description="Look.", parameters={"properties": {}})
THOUGHT = {"type": "thinking", "thinking": "let me see", "signature": "sig=="}
HIDDEN = {"type": "redacted_thinking", "data": "zzz"}
USE = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "door"}}


def answer(*content: Any, stop: str = "end_turn", **usage: int) -> Answer:
    return Answer(
        body={
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "content": list(content),
            "stop_reason": stop,
            "usage": {"input_tokens": 10, "output_tokens": 5, **usage},
        }
    )


def problem(status: int, kind: str, message: str) -> Answer:
    return Answer(status, {"type": "error", "error": {"type": kind, "message": message}})


def model_of(provider: FakeProvider, **options: Any) -> RemoteModel:
    model = connect("anthropic/fake", ModelOptions(base_url=provider.url.removesuffix("/v1"), **options))
    assert isinstance(model, RemoteModel)
    return model


async def ask(
    provider: FakeProvider, messages: list[Message], params: SamplingParams = SamplingParams(), **options: Any
) -> Reply:
    model = model_of(provider, **options)
    try:
        return await model.open("e/t/0", 1).generate(messages, [TOOL], params)
    finally:
        await model.close()


HELLO = [Message(role="system", content="Be brief."), Message(role="user", content="hello")]


async def test_one_call(serve: Serve) -> None:
    provider = serve(
        answer(
            {"type": "text", "text": "Looking."},
            USE,
            stop="tool_use",
            cache_read_input_tokens=100,
            cache_creation_input_tokens=20,
        )
    )
    reply = await ask(provider, HELLO, SamplingParams(temperature=0.8, max_output_tokens=99, parallel_tool_calls=False))
    assert reply.finish == "tool_calls"
    assert reply.message.content == "Looking."
    assert reply.message.tool_calls == (ToolCall(id="toolu_1", name="look", arguments='{"at":"door"}'),)
    assert reply.message.opaque is None
    assert (reply.usage.input_tokens, reply.usage.cached_tokens, reply.usage.output_tokens) == (130, 100, 5)
    assert provider.asked[0].path == "/v1/messages"
    mark = {"type": "ephemeral"}
    assert provider.bodies[0] == {
        "model": "fake",
        "system": [{"type": "text", "text": "Be brief.", "cache_control": mark}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hello", "cache_control": mark}]}],
        "max_tokens": 99,
        "temperature": 0.8,
        "tools": [{"name": "look", "description": "Look.", "input_schema": {"type": "object", "properties": {}}}],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    }


async def test_thinking_goes_back_to_the_letter(serve: Serve) -> None:
    blocks = [THOUGHT, {"type": "text", "text": "Looking. "}, HIDDEN, USE]
    provider = serve(answer(*blocks, stop="tool_use"), answer({"type": "text", "text": "done"}))
    params = SamplingParams(thinking_tokens=2000)
    reply = await ask(provider, HELLO, params)
    assert reply.message.reasoning == "let me see"
    assert provider.bodies[0]["thinking"] == {"type": "enabled", "budget_tokens": 2000}
    assert provider.bodies[0]["max_tokens"] > 2000
    logged = msgspec.json.decode(msgspec.json.encode(reply.message), type=Message)
    await ask(provider, [*HELLO, logged, Message(role="tool", tool_call_id="toolu_1", content="a hall")], params)
    turns = provider.bodies[1]["messages"]
    assert turns[1] == {"role": "assistant", "content": blocks}
    assert turns[2]["content"][0] == {
        "type": "tool_result",
        "tool_use_id": "toolu_1",
        "content": "a hall",
        "cache_control": {"type": "ephemeral"},
    }


def test_a_rewritten_message_sends_what_it_says() -> None:
    message = Message(role="assistant", content="other", opaque={"blocks": [THOUGHT, {"type": "text", "text": "was"}]})
    turns = anthropic.encode_messages([HELLO[1], message], mark=False)["messages"]
    assert turns[1]["content"] == [{"type": "text", "text": "other"}]


def test_effort_is_adaptive_thinking() -> None:
    service = anthropic.MessagesService("fake", ModelOptions())
    body = service.encode(HELLO, [], SamplingParams(reasoning_effort="minimal"), 0, frozenset())
    assert body["thinking"] == {"type": "adaptive"}
    assert body["output_config"] == {"effort": "low"}


def test_turns_alternate_and_results_come_first() -> None:
    history = [
        Message(role="assistant", content="earlier "),
        Message(role="user", content="a"),
        Message(
            role="assistant",
            tool_calls=(ToolCall(id="x 1", name="f", arguments="{"), ToolCall(id="y", name="g h", arguments="[]")),
        ),
        Message(role="user", content="b"),
        Message(role="system", content="note"),
        Message(role="assistant", content=""),
    ]
    turns = anthropic.encode_messages(history, mark=False)["messages"]
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user", "assistant", "user", "assistant"]
    assert turns[1]["content"] == [{"type": "text", "text": "earlier"}]
    assert [(block["id"], block["name"], block["input"]) for block in turns[3]["content"]] == [
        ("x_1", "f", {"invalid_json": "{"}),
        ("y", "g_h", {"invalid_json": "[]"}),
    ]
    assert [block["type"] for block in turns[4]["content"]] == ["tool_result", "tool_result", "text", "text"]
    assert turns[5]["content"] == [{"type": "text", "text": "(no text)"}]


def test_marks_are_at_most_four_and_can_be_left_out() -> None:
    history = [
        HELLO[0],
        *[Message(role=role, content="x") for _ in range(9) for role in ("user", "assistant")],
        HELLO[1],
    ]  # type: ignore[arg-type]
    for mark in (True, False):
        found = str(anthropic.encode_messages(history, mark=mark)).count("cache_control")
        assert found == (3 if mark else 0)


@pytest.mark.parametrize(
    ("stop", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refused"),
        ("something new", "stop"),
    ],
)
def test_stop_reasons(stop: str, finish: str) -> None:
    reply, _ = anthropic.decode_reply(answer({"type": "text", "text": "x"}, stop=stop).body)
    assert reply.finish == finish


JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "id", "name", "input", "thinking", "content"]),
            inner | st.sampled_from(["text", "tool_use", "thinking"]),
            max_size=4,
        )
    ),
    max_leaves=10,
)


@given(JSON, JSON)
@example([None, {"type": "thinking"}], None)
def test_any_answer_is_a_reply_or_a_fault(content: Any, usage: Any) -> None:
    try:
        reply, _ = anthropic.decode_reply({"content": content, "stop_reason": content, "usage": usage})
    except Fault:
        return
    assert msgspec.json.decode(msgspec.json.encode(reply), type=Reply) == reply
    anthropic.encode_messages([HELLO[1], reply.message, HELLO[1]], mark=True)


@pytest.mark.usefixtures("quick")
async def test_overload_is_tried_again(serve: Serve) -> None:
    overloaded = problem(529, "overloaded_error", "Overloaded")
    provider = serve(overloaded, Answer(drop=True), Answer(body=b"{"), answer({"type": "text", "text": "x"}))
    assert (await ask(provider, HELLO)).usage.retries == 3


async def test_context_and_bad_requests(serve: Serve) -> None:
    with pytest.raises(OutOfContext):
        await ask(serve(problem(400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum")), HELLO)
    with pytest.raises(ModelError, match="bad request"):
        await ask(serve(problem(400, "invalid_request_error", "roles must alternate")), HELLO)


async def test_check(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    model = connect("anthropic/claude-x", ModelOptions())
    with pytest.raises(SetupError, match=r"set ANTHROPIC_API_KEY .*\.env"):
        await model.check(SamplingParams(), tools=True)
    missing = serve(problem(404, "not_found_error", "model: fake"), models=("fake-2",))
    with pytest.raises(SetupError, match="'fake-2'"):
        await model_of(missing).check(SamplingParams(), tools=True)


async def test_temperature_beside_thinking_is_learned(serve: Serve) -> None:
    def behave(asked: Asked) -> Answer:
        if "temperature" in asked.body:
            return problem(400, "invalid_request_error", "`temperature` may only be set to 1 when thinking is enabled.")
        return answer(USE, stop="tool_use")

    model = model_of(serve(behave=behave))
    await model.check(SamplingParams(temperature=0.8, thinking_tokens=1024), tools=True)
    assert model.protocol() == {"refused_settings": ["temperature"]}
    await model.close()
