"""Gold play that looks for its way: it is right, in time, and each vain call shows by its reply that it was one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import islice
from random import Random

import pytest

from envs.kg.data import LISTING, Action, of
from envs.kg.env import TURNS, make
from envs.kg.generate.schema import SCHEMAS
from envs.kg.searching import quoted, searching
from envs.kg.session import Session
from envs.kg.tasks import tasks
from harness.core import EnvOptions, Message, ToolCall
from tests.envs.kg.playing import call, listed, played

RELATIONS = SCHEMAS["train"].relation_of


@pytest.mark.parametrize("difficulty", [0.0, 0.5, 1.0])
async def test_it_is_right_in_time_and_follows_what_is_listed(difficulty: float) -> None:
    env = make(EnvOptions(settings={"gold": "searching", "difficulty": difficulty}))
    longer = 0
    for task in islice(env.tasks("train"), 40):
        gold = of(task).actions
        assert (await played(env, task)).value == 1, task.id
        policy, history = env.demonstrate(task), list[Message]()
        names: list[str] = []
        async with env.session(task) as session:
            await session.start()
            while (said := policy(history)).tool_calls:
                reply, tried = await carried_out(session, said.tool_calls[0])
                names = listed(reply) if said.tool_calls[0].name == "get_relations" else names
                assert not tried or tried in names
                history += [said, Message(role="tool", content=reply)]
        calls = sum(message.role == "assistant" for message in history)
        assert len(gold) <= calls < TURNS
        longer += calls > len(gold)
    assert longer > 10


async def carried_out(session: Session, made: ToolCall) -> tuple[str, str]:
    """Return the reply to a call, and the relation that it follows."""
    arguments = json.loads(made.arguments)
    return await call(session, made.name, **arguments), arguments.get("relation", "")


def test_a_vain_call_leads_to_another_kind_than_the_right_one() -> None:
    vain = 0
    for task in islice(tasks("train", 0.5), 60):
        data = of(task)
        wanted = iter([RELATIONS[arguments[1]] for name, arguments in data.actions if name == "get_neighbors"])
        right = next(wanted)
        for name, arguments in searching(data, Random(task.id), TURNS - 1):
            if name != "get_neighbors":
                continue
            if arguments[1] == right.name:
                right = next(wanted, right)
            else:
                vain += 1
                assert RELATIONS[arguments[1]].target != right.target
    assert vain > 60


def test_without_what_is_vain_it_is_the_gold_play() -> None:
    for task in islice(tasks("train", 0.5), 40):
        data = of(task)
        assert searching(data, Random(0), len(data.actions)) == data.actions
        assert kept(searching(data, Random(0), TURNS - 1)) == [name for name, _ in data.actions]


def kept(calls: Sequence[Action]) -> list[str]:
    """Return the tools of a play less its vain calls, which nothing goes on from."""
    used = {each for _, arguments in calls for each in arguments if each.startswith("#")}
    made = [name not in LISTING for name, _ in calls]
    numbers = [f"#{sum(made[:place])}" if on else "" for place, on in enumerate(made)]
    last = len(calls) - 1
    return [name for place, (name, _) in enumerate(calls) if not made[place] or numbers[place] in used or place == last]


async def test_the_environment_demonstrates_so_where_it_is_asked_to() -> None:
    def calls(gold: str) -> list[tuple[str, ...]]:
        env = make(EnvOptions(settings={"gold": gold, "difficulty": 0.5}))
        found = []
        for task in islice(env.tasks("train"), 12):
            policy, history = env.demonstrate(task), list[Message]()
            while (said := policy(history)).tool_calls:
                history.append(said)
            found.append(tuple(message.tool_calls[0].arguments for message in history))
        return found

    assert calls("searching") == calls("searching")
    assert calls("searching") != calls("shortest")


@pytest.mark.parametrize("difficulty", [0.0, 0.6])
@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_what_is_quoted_stands_in_the_question_and_tells_largest_from_smallest(split: str, difficulty: float) -> None:
    said: dict[str, set[str]] = {"argmax": set(), "argmin": set()}
    for task in islice(tasks(split, difficulty), 100):
        data = of(task)
        words = quoted(data)
        assert set(words) == ({data.kind} if data.kind in said else set())
        for tool, phrase in words.items():
            assert phrase in data.question
            said[tool].add(phrase)
    assert len(said["argmax"]) > 4 and len(said["argmin"]) > 4
    assert not said["argmax"] & said["argmin"]


async def test_it_is_quoted_beside_the_call_and_nothing_else_is_said() -> None:
    env = make(EnvOptions(settings={"gold": "quoting", "difficulty": 0.3, "kinds": ["argmax", "argmin", "hop"]}))
    silent = make(EnvOptions(settings={"gold": "searching", "difficulty": 0.3, "kinds": ["argmax", "argmin", "hop"]}))
    quotes = 0
    for task in islice(env.tasks("train"), 15):
        assert (await played(env, task)).value == 1, task.id
        policy, other, history = env.demonstrate(task), silent.demonstrate(task), list[Message]()
        while (said := policy(history)).tool_calls:
            assert said.tool_calls == other(history).tool_calls
            assert said.content == quoted(of(task)).get(said.tool_calls[0].name, "")
            quotes += bool(said.content)
            history.append(said)
        assert said == other(history)
    assert quotes == 10
