from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agents.scripted import answer_everything, malformed, tamper
from agents.scripted._schema import filled, sampled
from agents.scripted.oracle import spoilt
from harness import registry
from harness.core import Message, PublicTask, SamplingParams, Seat, ToolCall, ToolSpec
from harness.errors import AgentError, SetupError
from harness.validate import mean, play
from tests.contracts.guessing import Guessing
from tests.contracts.rigs import LOOK, seat

COMMIT = ToolSpec(
    name="commit_answer",
    description="Hand in the answers.",
    parameters={"type": "object", "properties": {"answers": {"type": "array", "items": {"type": "string"}}}},
)
RUN = ToolSpec(
    name="run",
    description="Run a query.",
    parameters={"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
)


async def replies(spec: str, tools: tuple[ToolSpec, ...], turns: int, start: Seat | None = None) -> list[Message]:
    player = registry.make_agent(spec).start(start or seat())
    history = [Message(role="user", content="Where is 'Oslo', of 12 towns?")]
    said = []
    for _ in range(turns):
        reply = await player.act(history, tools)
        said.append(reply.message)
        history += [reply.message, Message(role="tool", content="[('loot',)]", tool_call_id="x")]
    return said


async def test_noop_says_nothing() -> None:
    assert await replies("scripted/noop", (RUN,), 2) == [Message(role="assistant")] * 2


async def test_echo_gives_the_prompt_back_as_text_and_in_every_tool() -> None:
    said = await replies("scripted/echo", (RUN, COMMIT), 4, seat(text="Give me this."))
    assert {message.content for message in said} == {"Give me this."}
    called = [message for message in said if message.tool_calls]
    assert len(called) == 2
    assert {call.name: json.loads(call.arguments) for call in called[0].tool_calls} == {
        "run": {"query": "Give me this."},
        "commit_answer": {"answers": ["Give me this."]},
    }
    assert called[0].tool_calls[0].name != called[1].tool_calls[0].name, "tools take turns to come first"


@pytest.mark.parametrize(
    ("constant", "answers"),
    [
        ("no", ["no"]),
        ("0", ["0"]),
        ("empty", []),
        ("null", [None]),
        ("options", ["Oslo", "12"]),
        ("any text at all", ["any text at all"]),
    ],
)
async def test_answer_everything_commits_the_constant(constant: str, answers: list[Any]) -> None:
    start = seat(text="Where is 'Oslo', of 12 towns?")
    (said,) = await replies(f"scripted/answer_everything:{constant}", (RUN, COMMIT), 1, start)
    (call,) = said.tool_calls
    assert call.name == "commit_answer"
    assert json.loads(call.arguments) == {"answers": answers}


async def test_answer_everything_writes_a_bare_nan() -> None:
    (said,) = await replies("scripted/answer_everything:NaN", (COMMIT,), 1)
    assert said.tool_calls[0].arguments == '{"answers": [NaN]}'


async def test_answer_everything_draws_a_constant_for_each_attempt() -> None:
    drawn = [await replies("scripted/answer_everything", (COMMIT,), 1, seat(number)) for number in range(200)]
    assert len({said[0].tool_calls[0].arguments for said in drawn}) >= len(answer_everything.CONSTANTS) - 1


async def test_malformed_tries_every_case_over_a_few_tasks() -> None:
    seen = set()
    for number in range(0, len(malformed.CASES), 5):
        for message in await replies("scripted/malformed", (LOOK,), 5, seat(number)):
            seen.add((message.content[:50], tuple((c.name[:50], c.arguments[:50]) for c in message.tool_calls[:50])))
    assert len(seen) >= len(malformed.CASES) - 1


@pytest.mark.parametrize("case", range(len(malformed.CASES)))
def test_malformed_never_plays_by_the_rules(case: int) -> None:
    text, calls = malformed.CASES[case]((LOOK,))
    assert len(text) + sum(len(name) + len(arguments) for name, arguments in calls) < 4_000_000
    assert text or calls


async def test_tamper_probes_then_commits() -> None:
    said = await replies("scripted/tamper", (RUN, COMMIT), tamper.PROBING_TURNS + 5)
    for message in said[: tamper.PROBING_TURNS]:
        assert "commit_answer" not in {call.name for call in message.tool_calls}
    assert all(
        [call.name for call in message.tool_calls] == ["commit_answer"] for message in said[tamper.PROBING_TURNS :]
    )


async def test_tamper_tries_all_over_a_few_tasks() -> None:
    tried: set[str] = set()
    for number in range(30):
        for message in await replies("scripted/tamper", (RUN, COMMIT), tamper.PROBING_TURNS, seat(number)):
            tried |= {json.loads(call.arguments).get("query") for call in message.tool_calls}
    assert set(tamper.PROBES) <= tried


async def test_oracle_needs_gold_and_a_probability() -> None:
    with pytest.raises(AgentError, match="demonstration"):
        registry.make_agent("scripted/oracle").start(seat())
    for argument in ("2", "-1", "nan", "x"):
        with pytest.raises(SetupError, match="from 0 to 1"):
            registry.make_agent(f"scripted/oracle:{argument}")


async def test_oracle_falls_as_it_is_spoilt() -> None:
    env = Guessing(200)
    tasks = list(env.tasks("test"))
    agents = [registry.make_agent(f"scripted/oracle:{epsilon}") for epsilon in (0, 0.2, 0.4, 0.6, 0.8, 1)]
    scores = [mean(await play(env, agent, tasks)) for agent in agents]
    assert scores[0] == 1
    assert scores == sorted(scores, reverse=True)
    assert scores[-1] < 0.3


@pytest.mark.parametrize(
    "message",
    [
        Message(role="assistant", tool_calls=(ToolCall(id="1", name="run", arguments='{"query": "SELECT 1"}'),)),
        Message(role="assistant", tool_calls=(ToolCall(id="1", name="run", arguments="{broken"),)),
        Message(role="assistant", tool_calls=(ToolCall(id="1", name="run", arguments='{"a": [true, {}], "b": []}'),)),
        Message(role="assistant", tool_calls=(ToolCall(id="1", name="run", arguments="{}"),)),
        Message(role="assistant", content="Final Answer: #3"),
        Message(role="assistant", content="..."),
        Message(role="assistant"),
    ],
)
def test_spoilt_is_never_the_same(message: Message) -> None:
    for seed in range(200):
        assert spoilt(message, (RUN,), random.Random(seed)) != message
        assert spoilt(message, (), random.Random(seed)) != message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
KEYS = ("type", "properties", "required", "items", "enum", "const", "anyOf", "minimum", "maximum", "description")
ODD_SCHEMAS = st.recursive(
    JSON,
    lambda inner: st.dictionaries(
        st.sampled_from(KEYS), inner | st.sampled_from(["object", "array", "dict", "number", "null"]), max_size=5
    ),
    max_leaves=15,
)


@example({"properties": {}, "required": [[]]}, 0)
@given(ODD_SCHEMAS, st.integers(0, 100))
def test_any_schema_can_be_sampled_and_filled(schema: Any, seed: int) -> None:
    json.dumps(sampled(schema, random.Random(seed), ["word"]))
    json.dumps(filled(schema, lambda kind, _: None if kind == "array" else "text"))


SCHEMA = {
    "type": "object",
    "properties": {
        "count": {"type": "integer", "minimum": 3, "maximum": 5},
        "share": {"type": "number", "minimum": 0, "maximum": 1},
        "colour": {"enum": ["red", "green"]},
        "deep": {"type": "array", "items": {"type": "object", "properties": {"on": {"type": "boolean"}}}},
        "either": {"anyOf": [{"type": "null"}, {"type": "string"}]},
        "maybe": {"type": "string"},
    },
    "required": ["count", "share", "colour", "deep", "either"],
}


@given(st.integers())
def test_samples_fit_the_schema(seed: int) -> None:
    value = sampled(SCHEMA, random.Random(seed), ["word"])
    assert set(SCHEMA["required"]) <= set(value) <= set(SCHEMA["properties"])  # type: ignore[arg-type]
    assert value["count"] in range(3, 6)
    assert 0 <= value["share"] <= 1
    assert value["colour"] in {"red", "green"}
    assert all(set(item) <= {"on"} and all(isinstance(on, bool) for on in item.values()) for item in value["deep"])
    assert value["either"] is None or isinstance(value["either"], str)


async def test_random_plays_fitting_calls() -> None:
    said = [
        message for number in range(20) for message in await replies("scripted/random", (LOOK, RUN), 5, seat(number))
    ]
    calls = [call for message in said for call in message.tool_calls]
    assert {call.name for call in calls} == {"look", "run"}
    values = [json.loads(call.arguments) for call in calls if call.name == "look"]
    assert {value.get("how") for value in values} == {"closely", "briefly", None}
    assert any("Oslo" in value["at"] for value in values)


@pytest.mark.parametrize("name", ["noop", "echo", "random", "malformed", "tamper"])
def test_those_without_an_argument_refuse_one(name: str) -> None:
    with pytest.raises(SetupError, match="no argument"):
        registry.make_agent(f"scripted/{name}:x")


async def test_no_agent_needs_tools_to_go_on() -> None:
    task = PublicTask(id="t", env="e", split="s", instruction="Say it.", tools=())
    bare = Seat(
        task=task,
        conversation=None,
        params=SamplingParams(),
        seed=3,
        demonstration=lambda history: Message(role="assistant", content="gold"),
    )
    for name in registry.names("agents"):
        if name.startswith("scripted/"):
            for message in await replies(name, (), 12, bare):
                assert message.role == "assistant"
