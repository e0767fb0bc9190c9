"""What goes over the wire: both dialects, and whatever else may come."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core import Message, ToolCall
from harness.service.protocol import (
    Heartbeat,
    Interact,
    Refused,
    StartSample,
    answer_of,
    base_url,
    encode_message,
    read,
    read_turn,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(["env_out", "messages", "tools", "status", "finish", "reward", "metric", "metrics"])


@pytest.mark.parametrize("named", ["metric", "metrics"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_workers_answer_is_read_in_either_dialect(named: str, wrapped: bool) -> None:
    said = {"messages": [{"role": "user"}], "tools": None, "status": "completed", "finish": True, "reward": 1}
    said[named] = {"score": 0.5}
    answer = answer_of(msgspec.json.encode({"session_id": 1, "env_out": said} if wrapped else said))
    assert msgspec.to_builtins(msgspec.json.decode(msgspec.json.encode(answer))) == {
        "messages": [{"role": "user"}],
        "tools": [],
        "finish": True,
        "reward": 1.0,
        "status": "completed",
        "metrics": {"score": 0.5},
    }


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"env_out": {}}', b'{"status": 3}', b"<html>", b"\xff"])
def test_what_is_no_answer_is_said_to_be_none(body: bytes) -> None:
    with pytest.raises((ValueError, msgspec.MsgspecError)):
        answer_of(body)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(FIELDS, JSON))
def test_an_answer_is_read_or_refused(said: dict[str, object]) -> None:
    with suppress(ValueError, msgspec.MsgspecError):
        answer = answer_of(msgspec.json.encode(said))
        assert isinstance(answer.finish, bool) and isinstance(answer.reward, float) and answer.status is not None


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([StartSample, Interact, Heartbeat]), JSON | st.binary(max_size=40))
def test_a_request_is_read_or_refused(kind: type, body: object) -> None:
    content = body if isinstance(body, bytes) else msgspec.json.encode(body)
    with suppress(Refused):
        assert isinstance(read(msgspec.json.Decoder(kind), content), kind)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(["content", "tool_calls", "refusal", "name"]), JSON), min_size=1))
def test_whatever_an_assistant_says_is_one_turn(said: list[dict[str, object]]) -> None:
    message = read_turn([msgspec.Raw(msgspec.json.encode({**each, "role": "assistant"})) for each in said])
    assert message.role == "assistant"


def test_a_worked_example_is_shown_with_its_calls() -> None:
    call = ToolCall(id="c", name="f", arguments="{}")
    shown = encode_message(Message(role="assistant", content="so", tool_calls=(call,)))
    assert shown["tool_calls"] == [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]


def test_an_address_may_be_given_with_or_without_its_path() -> None:
    assert base_url("http://h:1") == base_url("http://h:1/") == base_url("http://h:1/api/") == "http://h:1/api"
    assert base_url("http://h:1/t/x") == "http://h:1/t/x/api"
