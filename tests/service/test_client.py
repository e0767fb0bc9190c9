"""The client against a controller that is anybody's: what it plays, what it waits for, and what it does not believe."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import registry, runlog
from harness.config import EvalConfig, Limits
from harness.core import Ending, EnvOptions, Message, ToolCall, ToolSpec
from harness.errors import LostError, SetupError
from harness.evaluate import Evaluation
from harness.plan import prepare
from harness.runlog import Run, RunLog
from harness.service import client_answers as answers
from harness.service import client_http
from harness.service.client import RemoteEnv
from harness.service.client_answers import Garbled
from tests.models.fake_provider import Answer, Asked, FakeProvider
from tests.service.foreign import Foreign

AGENT = "tests.service.players:counting"


def spec(provider: FakeProvider, task: str = "riddle") -> str:
    return f"agentrl:{provider.url.removesuffix('/v1')}/api#{task}"


async def play(folder: Path, env: str, **changes: Any) -> Run:
    config = EvalConfig(**{"model": "", "agent": AGENT, "board": None, "env": (env,), **changes})
    async with prepare(config) as plan:
        with RunLog(folder, plan.header()) as log:
            await asyncio.wait_for(Evaluation(plan, log).play(), 60)
    return runlog.read(folder)


async def remote(provider: FakeProvider) -> RemoteEnv:
    env = registry.make_env(spec(provider), EnvOptions())
    assert isinstance(env, RemoteEnv)
    await env.open()
    return env


async def test_a_foreign_task_is_played_and_logged_like_any_other(tmp_path: Path) -> None:
    foreign = Foreign()
    with FakeProvider(foreign) as provider:
        run = await play(tmp_path, spec(provider))
    assert sorted(map(str, foreign.started)) == ["0", "1", "2", "three"]
    played = {trajectory.task_id: trajectory for trajectory in run.trajectories()}
    assert sorted(played) == ["riddle/0", "riddle/1", "riddle/2", "riddle/three"]
    for name, secret in (("riddle/0", 7), ("riddle/2", 9), ("riddle/three", 10)):
        trajectory = played[name]
        assert trajectory.ending is Ending.COMPLETED and trajectory.score.value == 1.0
        assert trajectory.score.parts == {"status": "completed", "metrics": {"score": 1.0}}
        assert len(trajectory.turns) == secret - 5
        assert [message.content for message in trajectory.opening] == ["Guess.", "What is it?"]
        assert [tool.name for tool in trajectory.tools] == ["guess"]
        assert [message.content for turn in trajectory.turns for message in turn.messages] == ["higher"] * (secret - 6)
    assert foreign.live == {} and foreign.cancelled == []


async def test_what_a_foreign_controller_does_not_tell_is_unknown_in_the_fingerprint() -> None:
    with FakeProvider(Foreign()) as provider:
        config = EvalConfig(model="", agent=AGENT, board=None, env=(spec(provider),))
        async with prepare(config) as plan:
            document = plan.entries[0].protocol["env"]
    unknown = {name for name, value in document.items() if value == "unknown"}
    assert unknown == {"rules", "split", "prompts", "tools", "turn_limit", "data", "gold"}
    assert document["name"] == document["task"] == "riddle" and document["controller"] == "1.2.3"
    assert str(provider.url) not in json.dumps(document)


async def test_an_attempt_that_our_side_ends_is_cancelled_and_has_the_reward_told_last(tmp_path: Path) -> None:
    foreign = Foreign()
    with FakeProvider(foreign) as provider:
        run = await play(tmp_path, spec(provider), limits=Limits(turns=1))
    for trajectory in run.trajectories():
        assert trajectory.ending is Ending.TURN_LIMIT and trajectory.score.value == 0.0
        assert trajectory.score.parts == {"status": "running"}
    assert sorted(foreign.cancelled) == ["1", "2", "3", "4"] and foreign.live == {}


@pytest.mark.parametrize("status", [406, 429, 400, 502])
async def test_a_controller_without_room_is_asked_again_when_it_says(
    tmp_path: Path, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_http, "LONGEST_WAIT", 0.3)
    asked_at: list[float] = []

    def twist(asked: Asked, answer: Answer) -> Answer | None:
        if not asked.path.endswith("start_sample"):
            return None
        asked_at.append(time.monotonic())
        if len(asked_at) < 4:
            return Answer(status, {"error": "no workers available"}, headers={"retry-after": "0.2"})
        return None

    with FakeProvider(Foreign(twist, indices=(0,))) as provider:
        run = await play(tmp_path, spec(provider))
    assert [trajectory.score.value for trajectory in run.trajectories()] == [1.0]
    assert min(after - before for before, after in itertools.pairwise(asked_at)) >= 0.19


async def test_waiting_for_room_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_http, "START_SECONDS", 0.5)

    def twist(asked: Asked, answer: Answer) -> Answer | None:
        full = asked.path.endswith("start_sample")
        return Answer(429, {"error": "queue full"}, headers={"retry-after": "0.1"}) if full else None

    with FakeProvider(Foreign(twist, indices=(0,))) as provider:
        run = await play(tmp_path, spec(provider))
    assert [attempt.ending for attempt in run.attempts()] == [Ending.ENV_ERROR] * 3
    failure = next(run.trajectories()).failure
    assert failure is not None and failure.boundary == "service" and "429 queue full" in failure.message


HOSTILE: list[Answer] = [
    Answer(body=b"<html>hello</html>"),
    Answer(body=b""),
    Answer(body=b"\xff\xfe"),
    Answer(body=b'{"messages": [' + b"[" * 100_000),
    Answer(body=b'{"messages": [], "finish": tru', cut=20),
    Answer(body=[1, 2]),
    Answer(body={"messages": [], "finish": False}),
    Answer(body={"messages": [{"role": "robot", "content": "x"}]}),
    Answer(body={"messages": [{"role": "tool", "content": "x"}]}),
    Answer(body={"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
    Answer(body={"messages": "hello"}),
    Answer(body={"finish": "yes", "messages": []}),
    Answer(body={"finish": True, "status": ["completed"]}),
    Answer(body={"finish": True, "status": "won"}),
    Answer(body={"finish": True, "status": "completed", "reward": "1"}),
    Answer(body=b'{"finish": true, "status": "completed", "reward": NaN}'),
    Answer(body={"finish": True, "status": "completed", "reward": 7}),
    Answer(body={"finish": True, "status": "task error", "reward": 1}),
    Answer(body={"finish": True, "status": "cancelled", "reward": 1}),
    Answer(body={"messages": [{"role": "user", "content": "x"}], "tools": [{"name": 3}]}),
    Answer(body={"messages": [{"role": "system", "content": "Another history."}]}),
    Answer(500, {"detail": "Traceback …"}),
    Answer(404, {"error": "no such session"}),
    Answer(401, {"error": "no token"}),
    Answer(302, b"", {"location": "http://127.0.0.1:1/"}),
    Answer(drop=True),
    Answer(body=b"x" * 10, headers={"content-encoding": "gzip"}),
]


async def test_hostile_answers_cost_the_one_attempt_each_and_say_why(tmp_path: Path) -> None:
    def twist(asked: Asked, plain: Answer) -> Answer | None:
        hostile = asked.path.endswith("interact")
        return HOSTILE[foreign.started[int(asked.headers["session_id"]) - 1]] if hostile else None

    foreign = Foreign(twist, indices=tuple(range(len(HOSTILE))))
    with FakeProvider(foreign) as provider:
        run = await play(tmp_path, spec(provider))
    attempts = list(run.trajectories())
    assert {attempt.ending for attempt in attempts} == {Ending.ENV_ERROR, Ending.GRADER_ERROR}
    for attempt in attempts:
        assert attempt.score.value is None and attempt.failure is not None
        assert len(attempt.failure.message) > 30 and "Traceback (most" not in attempt.failure.message
    # Each is played three times, and a turn that may have been played is never sent again.
    assert len(foreign.turns) == len(attempts) == 3 * len(HOSTILE)


async def test_a_lost_connection_costs_the_one_attempt_which_is_played_again(tmp_path: Path) -> None:
    lost: list[int] = []

    def twist(asked: Asked, answer: Answer) -> Answer | None:
        if asked.path.endswith("interact") and asked.headers["session_id"] == "2" and not lost:
            lost.append(asked.number)
            return Answer(drop=True)
        return None

    foreign = Foreign(twist)
    with FakeProvider(foreign) as provider:
        run = await play(tmp_path, spec(provider))
    assert [attempt.ending for attempt in run.attempts()].count(Ending.ENV_ERROR) == 1
    assert {attempt.score.value for attempt in run.newest().values()} == {1.0}
    assert foreign.cancelled == ["2"] and len(foreign.started) == 5


async def test_a_whole_history_told_again_is_followed(tmp_path: Path) -> None:
    def twist(asked: Asked, answer: Answer) -> Answer | None:
        if not asked.path.endswith("interact") or answer.body["finish"]:
            return None
        past = [{"role": "system", "content": "Guess."}, {"role": "user", "content": "What is it?"}]
        for number, (_, sent) in enumerate(foreign.turns):
            past += [*sent, *([] if number + 1 == len(foreign.turns) else [reply(sent)])]
        return Answer(body={**answer.body, "messages": past + answer.body["messages"]})

    def reply(sent: Any) -> dict[str, str]:
        return {"role": "tool", "tool_call_id": sent[0]["tool_calls"][0]["id"], "content": "higher"}

    foreign = Foreign(twist, indices=(2,))
    with FakeProvider(foreign) as provider:
        run = await play(tmp_path, spec(provider))
    (trajectory,) = run.trajectories()
    assert trajectory.score.value == 1.0
    assert [len(turn.messages) for turn in trajectory.turns] == [1, 1, 1, 0]


async def test_a_session_that_begins_after_nobody_waits_is_cancelled() -> None:
    def twist(asked: Asked, answer: Answer) -> Answer | None:
        if asked.path.endswith("start_sample"):
            answer.seconds = 0.4
        return None

    foreign = Foreign(twist)
    with FakeProvider(foreign) as provider:
        env = await remote(provider)
        session = env.session(next(iter(env.tasks("all"))))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await session.__aenter__()
        await env.close()
    assert foreign.started == [0] and foreign.cancelled == ["1"] and foreign.live == {}


async def test_closing_cancels_what_is_under_way() -> None:
    foreign = Foreign()
    with FakeProvider(foreign) as provider:
        env = await remote(provider)
        for task in env.tasks("all"):
            await env.session(task).__aenter__()
        assert len(foreign.live) == 4
        await env.close()
    assert foreign.live == {} and len(foreign.cancelled) == 4


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("agentrl:http://127.0.0.1:1/api#riddle", "no controller to play with"),
        ("agentrl:http://127.0.0.1:1/api", "names no task"),
        ("agentrl:ftp://127.0.0.1/api#riddle", "no controller's address"),
        ("agentrl:http://127.0.0.1:1/t/sesame/api#riddle", "holds a secret"),
        ("agentrl:http://me:sesame@127.0.0.1:1/api#riddle", "holds a secret"),
    ],
)
async def test_an_address_that_cannot_be_used_is_refused_in_a_sentence(
    name: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_http, "CONTACT_SECONDS", 0.3)
    with pytest.raises(SetupError, match=sentence) as refused:
        env = registry.make_env(name, EnvOptions())
        await env.open()
    assert "sesame" not in str(refused.value)


async def test_a_task_that_is_not_there_is_refused_with_those_that_are() -> None:
    with FakeProvider(Foreign()) as provider:
        env = registry.make_env(spec(provider, "riddel"), EnvOptions(settings={"difficulty": 1}))
        with pytest.raises(SetupError, match=r"no task 'riddel'.*did you mean 'riddle'"):
            await env.open()


@pytest.mark.parametrize("indices", [[1, 1], [[1]], {"a": 1}, [True], []])
async def test_indices_that_are_none_are_refused(indices: Any) -> None:
    with FakeProvider(Foreign(indices=indices)) as provider:
        env = registry.make_env(spec(provider), EnvOptions())
        with pytest.raises(SetupError):
            await env.open()


async def test_what_a_foreign_task_cannot_be_told_is_refused() -> None:
    with FakeProvider(Foreign()) as provider:
        options = EnvOptions(rules="upstream", settings={"difficulty": 1}, prompts={"system": "x"})
        env = registry.make_env(spec(provider), options)
        with pytest.raises(SetupError, match="--prompts and --rules upstream and the setting 'difficulty'"):
            await env.open()


async def test_the_token_goes_in_the_header_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(client_http.TOKEN, "sesame")
    with FakeProvider(Foreign()) as provider:
        await (await remote(provider)).close()
    assert {asked.headers.get("authorization") for asked in provider.asked} == {"Bearer sesame"}
    assert not any("sesame" in asked.path for asked in provider.asked)


async def test_a_foreign_task_has_no_gold_play() -> None:
    with FakeProvider(Foreign()) as provider:
        env = await remote(provider)
        with pytest.raises(SetupError, match="no gold play"):
            env.demonstrate(next(iter(env.tasks("all"))))
        await env.close()


KEYS = sorted(
    {
        name
        for kind in (answers.Answer, answers.Verdict, answers.Described, answers.Listed, Message, ToolCall, ToolSpec)
        for name in kind.__struct_fields__
    }
    | {"env_out", "metric", "function", "input_schema"}
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(KEYS),
            inner | st.sampled_from(["assistant", "tool", "completed", "running", "env_error"]),
            max_size=6,
        )
    ),
    max_leaves=30,
)


@given(json_values)
@settings(max_examples=100, deadline=None)
def test_any_json_is_read_or_garbled_and_nothing_else(value: Any) -> None:
    for read in (
        answers.read_answer,
        answers.read_described,
        lambda body: answers.read_indices(body, "x"),
        lambda body: answers.read_verdict(answers.read_answer({"finish": True, "metrics": body})),
    ):
        try:
            read(value)
        except Garbled as error:
            assert str(error)
    answers.read_capacity(value, "x")


@given(st.text(), st.text(), st.text(), st.text())
def test_a_reply_is_handed_in_letter_for_letter(content: str, identity: str, name: str, arguments: str) -> None:
    message = Message(
        role="assistant", content=content, tool_calls=(ToolCall(id=identity, name=name, arguments=arguments),)
    )
    sent = answers.encode_reply(message)
    read = answers.read_answer({"messages": [json.loads(json.dumps(sent))]})
    assert read.messages == (message,)


def test_a_lost_service_is_an_environment_error() -> None:
    assert LostError("x").boundary == "service"
