"""Relations of which no question is asked: listed and followed like any other, and they change no task."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice

import pytest

from envs.kg.data import of
from envs.kg.env import TURNS, make
from envs.kg.generate.besides import TARGETS, TYPES, besides
from envs.kg.generate.schema import SCHEMAS
from envs.kg.generate.worlds import world
from harness.core import EnvOptions, Message, Task
from harness.errors import SetupError
from tests.envs.kg.playing import call, listed, played


def tasks(breadth: int, split: str = "train", count: int = 30, **settings: object) -> list[Task]:
    env = make(EnvOptions(settings={"breadth": breadth, "difficulty": 0.5} | settings))
    return list(islice(env.tasks(split), count))


def test_each_entity_has_from_none_to_as_many_and_the_next_one_has_others() -> None:
    found = besides("train", 0, 7)
    assert found.keys() == world("train", 0).names.keys()
    assert all(len(set(names)) == len(names) and TYPES.keys() >= set(names) for names in found.values())
    counted = Counter(len(names) for names in found.values())
    assert counted.keys() == set(range(8)) and min(counted.values()) > len(found) / 16
    many = [frozenset(names) for names in found.values() if len(names) > 1]
    assert len(set(many)) > 0.9 * len(many)
    assert found == besides.__wrapped__("train", 0, 7) and found != besides("train", 1, 7)
    assert world("train", 0).names.keys().isdisjoint(TARGETS.values())
    assert not any(besides("train", 0, 0).values())


def test_as_many_as_there_are_may_be_asked_for() -> None:
    assert len(tasks(len(TYPES), count=1)) == 1
    with pytest.raises(SetupError, match="breadth"):
        tasks(len(TYPES) + 1, count=1)


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_no_schema_has_one_of_them_or_leads_to_what_they_lead_to(split: str) -> None:
    schema = SCHEMAS[split]
    assert TYPES.keys().isdisjoint(schema.relation_of)
    assert set(TYPES.values()).isdisjoint(schema.type_of)


def test_tasks_are_the_same_and_the_protocol_tells() -> None:
    assert [task.digest for task in tasks(0)] == [task.digest for task in tasks(36)]
    narrow, broad = (make(EnvOptions(settings={"breadth": breadth})).protocol("test")["data"] for breadth in (0, 20))
    assert isinstance(narrow, dict) and broad == {**narrow, "breadth": [0, 20]}


async def test_they_are_listed_and_followed_and_lead_no_further() -> None:
    env, followed = make(EnvOptions(settings={"breadth": 9})), 0
    for task in tasks(9, count=10):
        (name, entity), *_ = of(task).entities.items()
        where = of(task).world
        assert where is not None
        more = besides(*where, 9)[entity]
        async with env.session(task) as session:
            await session.start()
            names = listed(await call(session, "get_relations", variable=name))
            further = [each for each in names if each in TYPES]
            assert set(further) == set(more) and len(names) > len(more)
            if not further:
                continue
            followed += 1
            reply = await call(session, "get_neighbors", variable=name, relation=further[0])
            assert f"#0, which are instances of {TYPES[further[0]]}" in reply
            assert await call(session, "get_relations", variable="#0") == "Observation: []"
    assert followed > 4


@pytest.mark.parametrize("gold", ["shortest", "searching"])
async def test_gold_play_is_right(gold: str) -> None:
    env = make(EnvOptions(settings={"breadth": 20, "difficulty": 0.5, "gold": gold}))
    vain = 0
    for task in tasks(20):
        assert (await played(env, task)).value == 1
        policy, history = env.demonstrate(task), list[Message]()
        while (said := policy(history)).tool_calls:
            history.append(said)
            vain += json.loads(said.tool_calls[0].arguments).get("relation") in TYPES
        assert len(history) < TURNS
    assert (vain > 30) == (gold == "searching")
