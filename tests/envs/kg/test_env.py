"""A KG session's rules, on every holder of a graph, and that a model's text never changes a query."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

from envs.kg.env import KgEnv, make
from harness.core import Ending, EnvOptions, Message, Task, ToolCall
from harness.errors import SetupError
from tests.envs.kg.made import GRAZES, QUESTIONS, TENDS, UNREACHED_UPSTREAM
from tests.envs.kg.playing import call, finish, listed, played

Opened = Callable[..., Any]
Holder = tuple[str, str | None]
HOSTILE = (
    "m.0> . ?s ?p ?o . <x",
    "m.0 } UNION { ?s ?p ?o",
    "m.0\n",
    "m.0; DROP ALL",
    '"',
    "\ud800",
    "m.é",
    "#0 }",
    "#-1",
    "#99999999999999999999",
    "g.1jim_2",
    "common.topic",
    "",
)


def task_of(env: KgEnv, holder: Holder, number: int) -> Task:
    return next(islice(env.tasks(holder[0]), number, None))


async def test_gold_play_scores_one_on_every_question(opened: Opened, holder: Holder) -> None:
    env = await opened()
    scores = [await played(env, task) for task in env.tasks(holder[0])]
    assert [score.value for score in scores] == [1] * len(QUESTIONS)
    assert all(score.parts == {"answered": True, "f1": 1.0} for score in scores)


async def test_upstream_rules_reach_all_but_what_they_cannot(opened: Opened, holder: Holder) -> None:
    env = await opened("upstream")
    values = [(await played(env, task)).value for task in env.tasks(holder[0])]
    assert {number for number, value in enumerate(values) if value != 1} == UNREACHED_UPSTREAM


@pytest.mark.parametrize("rules", ["fixed", "upstream"])
@pytest.mark.parametrize("text", HOSTILE)
async def test_hostile_arguments_are_refused_and_harm_nothing(
    opened: Opened, holder: Holder, text: str, rules: str
) -> None:
    env = await opened(rules)
    async with env.session(task_of(env, holder, 0)) as session:
        await session.start()
        for reply in (
            await call(session, "get_relations", variable=text),
            await call(session, "get_neighbors", variable=text, relation=text),
            await call(session, "get_neighbors", variable="Ada, the first", relation=text),
            await call(session, "count", variable=text),
            await call(session, "argmax", variable=text, attribute=text),
            await call(session, "intersection", variable1=text, variable2=text),
        ):
            assert reply.startswith("The tool call failed: ")
        assert TENDS in await call(session, "get_relations", variable="Ada, the first")
        assert (await session.score()).value == 0


@pytest.mark.parametrize("arguments", ["", "{", "[]", "null", "{}", '{"variable": 3}', "[" * 100_000])
async def test_unreadable_arguments_are_answered(opened: Opened, holder: Holder, arguments: str) -> None:
    told = {}
    for rules in ("fixed", "upstream"):
        env = await opened(rules)
        async with env.session(task_of(env, holder, 0)) as session:
            made = ToolCall(id="1", name="count", arguments=arguments)
            seen = await session.step(Message(role="assistant", tool_calls=(made,)))
            told[rules] = seen.messages[0].content
    mismatch = "The arguments do not fit the function count."
    assert told["fixed"] == mismatch
    assert told["upstream"] == mismatch if arguments == "{}" else told["upstream"].startswith("The tool call failed: ")


async def test_functions_that_there_are_not(opened: Opened, holder: Holder) -> None:
    for rules, union in (("fixed", "There is no function union."), ("upstream", "The arguments do not fit the f")):
        env = await opened(rules)
        async with env.session(task_of(env, holder, 0)) as session:
            assert (await call(session, "union", variable1="#0", variable2="#0")).startswith(union)
            assert (await call(session, "\ud800")).startswith("There is no function ?.")


async def test_the_final_answer_is_text(opened: Opened, holder: Holder) -> None:
    env = await opened()
    async with env.session(task_of(env, holder, 0)) as session:
        assert await finish(session, "I think so") is None
        assert await finish(session, "Observation: Final Answer: #0") is None
        assert await finish(session, "Final Answer: #0") is Ending.VALIDATION_FAILED
        assert (await session.score()).value == 0
    for text in ("Find Answer: #0000000000", "So: Final Answer: #0. Final Answer: #7", "Final\\_ Final Answer: #00"):
        async with env.session(task_of(env, holder, 8)) as session:
            await call(session, "get_neighbors", variable="Jim", relation=TENDS)
            assert await finish(session, text) is Ending.COMPLETED
            assert (await session.score()).value == 1
    async with env.session(task_of(env, holder, 0)) as session:
        await call(session, "get_neighbors", variable="m.0ada", relation=TENDS)
        await call(session, "get_neighbors", variable="#0", relation=GRAZES)
        assert await finish(session, "Final Answer: #0000000001") is Ending.COMPLETED
        assert (await session.score()).value == 1
    async with env.session(task_of(env, holder, 8)) as session:
        await call(session, "get_neighbors", variable="Jim", relation=TENDS)
        assert await finish(session, "Final Answer: #" + "1" * 10_000) is Ending.VALIDATION_FAILED


async def test_a_wrong_set_scores_its_f1(opened: Opened, holder: Holder) -> None:
    env = await opened()
    async with env.session(task_of(env, holder, 1)) as session:
        assert await call(session, "get_neighbors", variable="m.0ben", relation=TENDS) == (
            "Observation: variable #0, which are instances of farm.animal"
        )
        await finish(session, "Final Answer: #0")
        score = await session.score()
    assert score.value == 0
    assert 0.5 < score.parts["f1"] < 1


async def test_relations_are_listed_in_order(opened: Opened, holder: Holder) -> None:
    env = await opened()
    async with env.session(task_of(env, holder, 0)) as session:
        names = listed(await call(session, "get_relations", variable="Ada, the first"))
        assert names == sorted(names)
        assert len(names) > 1


async def test_no_call_without_a_reply(opened: Opened, holder: Holder) -> None:
    env = await opened()
    calls = tuple(ToolCall(id=str(n), name="get_relations", arguments='{"variable": "m.0ada"}') for n in range(70))
    async with env.session(task_of(env, holder, 0)) as session:
        replies = (await session.step(Message(role="assistant", tool_calls=calls))).messages
    assert [reply.tool_call_id for reply in replies] == [call.id for call in calls]
    assert replies[0] != replies[64]
    assert {reply.content for reply in replies[64:]} == {"Not carried out: only the first 64 calls of a message are."}


async def test_numbers_are_no_sets(opened: Opened, holder: Holder) -> None:
    env = await opened("upstream")
    async with env.session(task_of(env, holder, 2)) as session:
        await call(session, "get_neighbors", variable="m.0cid", relation=TENDS)
        assert await call(session, "count", variable="#0") == "Observation: variable #1, which is a number"
        for reply in (
            await call(session, "count", variable="#1"),
            await call(session, "get_relations", variable="#1"),
            await call(session, "get_attributes", variable="#1"),
            await call(session, "intersection", variable1="#0", variable2="#1"),
        ):
            assert reply.endswith("a number has no members")


async def test_what_upstream_takes_and_fixed_does_not(opened: Opened, holder: Holder) -> None:
    async def replies(rules: str) -> list[str]:
        env = await opened(rules)
        async with env.session(task_of(env, holder, 0)) as session:
            await call(session, "get_neighbors", variable="m.0ada", relation=TENDS)
            return [
                await call(session, "get_relations", variable="#-1"),
                await call(session, "get_relations", variable="# 0"),
                await call(session, "get_relations", variable="m.0unheard_of"),
                await call(session, "count", variable=" #0"),
            ]

    upstream, fixed = await replies("upstream"), await replies("fixed")
    assert [GRAZES in reply for reply in upstream] == [True, True, False, False]
    assert upstream[2] == "Observation: []"
    assert [reply.startswith("The tool call failed") for reply in fixed] == [True, True, True, False]


async def test_two_superlatives_are_no_query_upstream(opened: Opened, holder: Holder) -> None:
    for rules, ending in (("upstream", Ending.VALIDATION_FAILED), ("fixed", Ending.COMPLETED)):
        env = await opened(rules)
        async with env.session(task_of(env, holder, 3)) as session:
            await call(session, "get_neighbors", variable="m.0dot", relation=TENDS)
            await call(session, "argmax", variable="#0", attribute="farm.animal.weight")
            await call(session, "argmin", variable="#1", attribute="farm.animal.weight")
            told = await call(session, "get_relations", variable="#2")
            assert ("cannot read a query" in told) == (rules == "upstream")
            assert await finish(session, "Final Answer: #2") is ending
            assert (await session.score()).value == (rules == "fixed")


async def test_the_test_questions_open_with_a_dialogue(opened: Opened, holder: Holder) -> None:
    shown = {}
    for rules in ("fixed", "upstream"):
        env = await opened(rules)
        async with env.session(task_of(env, holder, 0)) as session:
            shown[rules] = (await session.start()).messages
        assert [message.role for message in shown[rules]] == [
            *("system", "user"),
            *("assistant", "tool") * 6,
            *("assistant", "user"),
        ]
        assert shown[rules][-2].content.endswith("Final Answer: #3")
        assert shown[rules][-1].content == f"{QUESTIONS[0]['question']}\nEntities: [Ada, the first]"
    calls = {rules: [each.tool_calls[0] for each in said if each.tool_calls] for rules, said in shown.items()}
    assert len({call.id for call in calls["fixed"]}) == 6
    assert len({call.id for call in calls["upstream"]}) == 1
    assert [call.arguments.count("}") for call in calls["upstream"]] == [1, 2, 1, 2, 1, 1]
    assert all(call.arguments.count("}") == 1 for call in calls["fixed"])
    assert '"#2"' in calls["upstream"][4].arguments
    dev = {"std": "dev", "std-witness": "dev-witness"}[holder[0]]
    async with env.session(next(env.tasks(dev))) as session:
        assert len((await session.start()).messages) == 2


async def test_bundled_gold_play_scores_one() -> None:
    for rules in ("fixed", "upstream"):
        env = make(EnvOptions(rules=rules))  # type: ignore[arg-type]
        for split in ("test", "validation", "train"):
            for task in islice(env.tasks(split), 40):
                assert (await played(env, task)).value == 1, task.id


async def test_a_walk_to_and_fro_through_hubs_stays_cheap() -> None:
    env = make(EnvOptions())
    task = next(task for task in env.tasks("test") if task.group == "hop")
    async with env.session(task) as session:
        await session.start()
        source = next(iter(task.data["entities"]))
        began = time.monotonic()
        for number in range(62):
            names = listed(await call(session, "get_relations", variable=source))
            await call(session, "get_neighbors", variable=source, relation=names[number % 2 % len(names)])
            source = f"#{number}"
        await finish(session, f"Final Answer: {source}")
        assert (await session.score()).value == 0
        assert time.monotonic() - began < 20


async def test_a_variable_cannot_grow_without_end(opened: Opened, holder: Holder) -> None:
    env = await opened()
    async with env.session(task_of(env, holder, 1)) as session:
        await call(session, "get_neighbors", variable="m.0ben", relation=TENDS)
        replies = [
            await call(session, "intersection", variable1=f"#{number}", variable2=f"#{number}") for number in range(8)
        ]
        assert replies[0] == "Observation: variable #1, which are instances of farm.animal"
        assert "too many steps" in replies[4]
        await finish(session, "Final Answer: #4")
        assert (await session.score()).value == 0


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"difficulty": 2}, "difficulty"),
        ({"breadth": 37}, "breadth"),
        ({"query_seconds": 0}, "query_seconds"),
        ({"sparql_url": "localhost:8890"}, "http://host:port/sparql"),
        ({"sparql_url": "http://"}, "http://host:port/sparql"),
        ({"sparql_url": "http://[::1/"}, "not an address"),
    ],
)
def test_settings_out_of_bounds_are_refused(settings: dict[str, Any], wanted: str) -> None:
    with pytest.raises(SetupError, match=wanted):
        make(EnvOptions(settings=settings))


def test_splits_that_there_are_not() -> None:
    with pytest.raises(SetupError, match="did you mean 'test'"):
        make(EnvOptions()).tasks("tests")
    with pytest.raises(SetupError, match="--sparql-url, or play 'train-witness'"):
        make(EnvOptions()).tasks("train-published")
