"""The bundled KG tasks: right answers by another evaluation, splits that share nothing, and what is fair."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from functools import cache
from itertools import count, islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.kg import tasks as bundled
from envs.kg.data import KINDS, Kind, TaskData, of
from envs.kg.env import make
from envs.kg.generate.questions import shape
from envs.kg.generate.schema import SCHEMAS
from envs.kg.generate.worlds import World, world
from harness.core import EnvOptions, Task
from harness.dice import Dice
from harness.errors import SetupError

SPLITS = ("test", "validation", "train")
ALL = (*SPLITS, *bundled.SEEN)
TURNS = 15


@cache
def some(split: str, difficulty: float | None = None) -> tuple[Task, ...]:
    """Return a fixed split, or the first 240 tasks of training: those of two graphs."""
    return tuple(islice(bundled.tasks(split, difficulty), 240))


@cache
def triples(split: str, number: int) -> tuple[tuple[str, str, object], ...]:
    made = world(split, number)
    facts = [(entity, name, each) for (entity, name), targets in made.leads.items() for each in targets]
    return (*facts, *((entity, name, value) for (entity, name), value in made.values.items()))


@cache
def table(split: str, number: int) -> dict[str, dict[str, set[object]]]:
    """Return predicate -> subject -> objects."""
    found: dict[str, dict[str, set[object]]] = defaultdict(lambda: defaultdict(set))
    for subject, predicate, thing in triples(split, number):
        found[predicate][subject].add(thing)
    return found


def sets_of(data: TaskData) -> list[set[object]]:
    """Return the set behind each variable of the gold calls, read off the bare triples."""
    assert data.world is not None
    found, made = table(*data.world), list[set[object]]()
    for name, (first, *rest) in data.actions:
        if name in ("get_relations", "get_attributes"):
            continue
        source = made[int(first[1:])] if first.startswith("#") else {first}
        if name == "get_neighbors":
            made.append({each for member in source for each in found[rest[0]][str(member)]})
        elif name == "intersection":
            made.append({each for each in source if each in made[int(rest[0][1:])]})
        elif name == "count":
            made.append({str(sum(1 for _ in source))})
        else:
            ranking = sorted((next(iter(found[rest[0]][str(each)])), each) for each in source)  # type: ignore[type-var]
            best = ranking[-1][0] if name == "argmax" else ranking[0][0]
            made.append({each for value, each in ranking if value == best})
    return made


@pytest.mark.parametrize("split", ALL)
@pytest.mark.parametrize("difficulty", [None, 0.0, 1.0])
def test_the_answer_is_what_the_triples_say(split: str, difficulty: float | None) -> None:
    for task in some(split, difficulty):
        data = of(task)
        assert sets_of(data)[-1] == set(data.answer), task.id


@given(st.integers(1, 10_000), st.floats(0, 1))
@settings(max_examples=12, deadline=None)
def test_any_stream_is_right_and_fair(seed: int, difficulty: float) -> None:
    for task in islice(bundled.tasks("train", difficulty, seed=seed), 15):
        data = of(task)
        assert sets_of(data)[-1] == set(data.answer)
        check_fair(data)


def check_fair(data: TaskData) -> None:
    assert data.world is not None
    made, found = sets_of(data), world(*data.world)
    assert not set().union(*made) & set(data.entities.values()), "a named entity turns up in a set"
    assert all(found.names[entity] == name and name in data.question for name, entity in data.entities.items())
    assert not any(entity in data.question for entity in found.names), "an id is told"
    type_of = {entity: kind for kind, members in found.of_type.items() for entity in members}
    for each in made:
        for kind in {type_of.get(str(member), "") for member in each}:
            assert not kind or len(each) <= len(found.of_type[kind]) // 2, "half of a type or more"
    assert all(made)
    assert len(data.actions) < TURNS
    number = 0
    for name, (first, *rest) in data.actions:
        if name in ("get_relations", "get_attributes"):
            continue
        if name == "intersection":
            assert len(made[number]) < min(len(made[int(each[1:])]) for each in (first, *rest))
        elif name in ("argmax", "argmin"):
            assert len(made[number]) < len(made[int(first[1:])])
        elif name == "count":
            assert made[number] != {"1"}
        number += 1


@pytest.mark.parametrize("split", ALL)
def test_every_question_is_fair(split: str) -> None:
    for task in some(split):
        check_fair(of(task))


@pytest.mark.parametrize("split", ALL)
def test_relations_are_asked_for_before_they_are_followed(split: str) -> None:
    for task in some(split):
        asked = set[tuple[str, str]]()
        for name, (first, *_) in of(task).actions:
            if name in ("get_relations", "get_attributes"):
                asked.add((name, first))
            elif name in ("get_neighbors", "argmax", "argmin"):
                assert ("get_relations" if name == "get_neighbors" else "get_attributes", first) in asked


def test_fixed_splits_are_large_enough_and_no_task_is_repeated() -> None:
    everything = [task for split in SPLITS for task in some(split)]
    assert len(some("test")) >= 100
    assert len(some("validation")) >= 60
    assert len({task.digest for task in everything}) == len({task.id for task in everything}) == len(everything)
    assert len({task.instruction for task in everything}) == len(everything)


def test_kinds_come_as_they_are_asked_for_and_are_other_tasks() -> None:
    asked = ("argmin", "hop", "argmin", "intersection", "argmax")
    found = list(islice(bundled.tasks("train", 0.3, asked), 200))
    assert [task.group for task in found] == list(asked) * 40
    usual = [*some("train", 0.3), *some("train")]
    assert {task.id for task in found}.isdisjoint(task.id for task in usual)
    assert {task.digest for task in found}.isdisjoint(task.digest for task in usual)


@pytest.mark.parametrize("split", ["test", "train"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "count"])
@pytest.mark.parametrize("difficulty", [0.0, 1.0])
def test_a_split_may_be_of_one_kind(split: str, kind: Kind, difficulty: float) -> None:
    assert {task.group for task in islice(bundled.tasks(split, difficulty, [kind]), 120)} == {kind}


def test_counts_alone_are_refused_as_numbers_are_few() -> None:
    assert len(list(islice(bundled.tasks("train", 0.0, ["count", *["hop"] * 4]), 240))) == 240
    with pytest.raises(SetupError, match="once in 5 at most"):
        bundled.tasks("train", 0.0, ["count", "hop"])


def test_kinds_are_told_by_the_protocol() -> None:
    usual, other = (make(EnvOptions(settings=each)).protocol("test")["data"] for each in ({}, {"kinds": ["argmin"]}))
    assert isinstance(usual, dict) and other == {**usual, "kinds": ["argmin"]}
    assert make(EnvOptions(settings={"kinds": list(KINDS)})).protocol("test")["data"] == usual


@pytest.mark.parametrize("split", ALL)
def test_kinds_come_alike_and_gold_play_takes_four_turns_on_average(split: str) -> None:
    found = some(split)
    assert Counter(task.group for task in found) == dict.fromkeys(KINDS, len(found) // len(KINDS))
    turns = [len(task.data["actions"]) + 1 for task in found]
    assert sum(turns) / len(turns) >= 6
    assert max(turns) < TURNS
    hops = Counter(min(4, sum(name == "get_neighbors" for name, _ in of(task).actions)) for task in found)
    assert set(hops) == {1, 2, 3, 4}


@pytest.mark.parametrize("split", ALL)
@pytest.mark.parametrize("difficulty", [None, 0.0, 0.5, 1.0])
def test_no_answer_wins_more_than_a_few_percent(split: str, difficulty: float | None) -> None:
    found = some(split, difficulty)
    [(_, most)] = Counter(tuple(task.data["answer"]) for task in found).most_common(1)
    assert most <= 0.03 * len(found)


@pytest.mark.parametrize("split", SPLITS)
def test_no_constant_expression_wins_more_than_a_few_percent(split: str) -> None:
    """Following one relation from the first entity, whatever is asked, and counting it or not."""
    wins = Counter[tuple[str, bool]]()
    for task in some(split):
        data = of(task)
        assert data.world is not None
        topic, answer = next(iter(data.entities.values())), set(data.answer)
        for relation in SCHEMAS[split].relations:
            reached = set(world(*data.world).leads.get((topic, relation.name), ()))
            wins[relation.name, False] += reached == answer
            wins[relation.name, True] += {str(len(reached))} == answer
    assert max(wins.values()) <= 0.05 * len(some(split))


@pytest.mark.parametrize("split", SPLITS)
def test_ties_are_told_and_all_tied_are_right(split: str) -> None:
    ties = SCHEMAS[split].wording.ties
    for task in some(split):
        data = of(task)
        tied = data.actions[-1][0] in ("argmax", "argmin") and len(data.answer) > 1
        assert task.instruction.endswith(ties) == tied


def test_difficulty_changes_hops_operators_and_the_size_of_sets() -> None:
    def measure(difficulty: float) -> tuple[float, float, float]:
        found = [of(task) for task in some("validation", difficulty)]
        hops = sum(name == "get_neighbors" for data in found for name, _ in data.actions)
        crossed = sum(len(data.entities) > 1 for data in found)
        widest = [max(len(each) for each in sets_of(data)) for data in found]
        return hops, crossed, sum(widest)

    easy, middle, hard = measure(0.0), measure(0.5), measure(1.0)
    assert all(low < high for low, high in zip(easy, middle, strict=True))
    assert all(low < high for low, high in zip(middle, hard, strict=True))


@given(st.sampled_from(KINDS), st.floats(0, 1), st.integers())
def test_every_shape_fits_into_the_turns(kind: Kind, level: float, seed: int) -> None:
    plan = shape(kind, level, Dice("test", seed))
    assert 1 <= plan.hops <= 4
    assert plan.tail < plan.hops
    calls = 2 * (plan.hops + plan.branch) + (plan.branch > 0) + {"count": 1, "argmax": 2, "argmin": 2}.get(kind, 0)
    assert calls + 1 < TURNS


def test_streams_are_fixed_by_their_seed() -> None:
    first = list(islice(bundled.tasks("train"), 150))
    assert first == list(islice(bundled.tasks("train"), 150))
    other = list(islice(bundled.tasks("train", seed=1), 150))
    assert not {task.instruction for task in first} & {task.instruction for task in other}
    assert not {task.id for task in first} & {task.id for task in other}


def names_of(split: str) -> set[str]:
    return {name for number in range(3) for name in world(split, number).names.values()}


def sentences(split: str) -> set[str]:
    schema = SCHEMAS[split]
    said = {text for each in schema.relations for text in (each.says, each.says_one) if text}
    said |= {text for each in schema.attributes for text in (each.most, each.least)}
    wording = [getattr(schema.wording, field) for field in schema.wording.__struct_fields__]
    return said | {text for part in wording for text in ([part] if isinstance(part, str) else part)}


def vocabulary(split: str) -> set[str]:
    schema = SCHEMAS[split]
    return {each.name for each in (*schema.types, *schema.relations, *schema.attributes)}


@pytest.mark.parametrize("of_split", [names_of, sentences, vocabulary])
def test_splits_share_nothing(of_split: object) -> None:
    parts = [of_split(split) for split in SPLITS]  # type: ignore[operator]
    assert all(parts)
    assert len(set.union(*parts)) == sum(len(part) for part in parts)


@pytest.mark.parametrize("difficulty", [None, 0.0])
def test_seen_splits_speak_as_train_does_of_graphs_that_it_never_has(difficulty: float | None) -> None:
    found = {split: some(split, difficulty) for split in ("train", *bundled.SEEN)}
    graphs = {split: {of(task).world for task in tasks} for split, tasks in found.items()}
    assert all(schema == "train" for each in graphs.values() for schema, _ in each)  # type: ignore[misc]
    assert len(set.union(*graphs.values())) == sum(map(len, graphs.values()))
    assert all(number >= 0 for _, number in graphs["train"])  # type: ignore[misc]
    digests = [task.digest for tasks in found.values() for task in tasks]
    assert len(set(digests)) == len(digests)


@pytest.mark.parametrize("split", SPLITS)
def test_a_schema_is_whole(split: str) -> None:
    schema = SCHEMAS[split]
    assert len(schema.type_of) == len(schema.types)
    assert len({each.name for each in schema.relations}) == len(schema.relations)
    for link in schema.links:
        assert {link.source, link.target} <= schema.type_of.keys()
        assert (link.each == (1, 1)) == bool(link.one)
        # A hole in the middle would leave open where a nested clause ends.
        assert all(text.endswith(" {}") for text in (link.many, link.of, link.one) if text)
    for kind in schema.types:
        assert len(schema.attributes_of[kind.name]) >= 2
        assert schema.leaving[kind.name]
        room = sum(ways(pattern, schema.words) for pattern in kind.names)
        assert room >= 1.05 * kind.count, f"{kind.name} runs out of names"
    people = [kind for kind in schema.types if kind.names == ("{given} {family}",)]
    assert ways("{given}{family}", schema.words) >= 1.2 * sum(kind.count for kind in people)
    assert not any(re.search(r"[,\[\]#{}]", name) for name in names_of(split))


def ways(pattern: str, words: dict[str, tuple[str, ...]]) -> int:
    number = 1
    for hole in re.findall(r"\{(\w+)\}", pattern):
        number *= len(set(words[hole]))
    return number


@pytest.mark.parametrize("split", SPLITS)
def test_a_world_is_a_few_thousand_entities_all_connected(split: str) -> None:
    made: World = world(split, 0)
    assert 2_000 <= len(made.names) <= 5_000
    assert len(set(made.names.values())) == len(made.names)
    for (entity, name), targets in made.leads.items():
        relation = next(each for each in made.schema.relations if each.name == name)
        assert len(set(targets)) == len(targets)
        assert all(entity in made.leads[target, relation.inverse] for target in targets)


def test_a_wild_difficulty_and_an_unknown_split_are_refused() -> None:
    with pytest.raises(SetupError, match="did you mean 'train'"):
        bundled.tasks("trian")
    for wild in (-0.1, 1.1, float("nan")):
        with pytest.raises(SetupError, match="difficulty must be from 0 to 1"):
            bundled.tasks("train", wild)


def test_training_goes_on_to_other_graphs() -> None:
    worlds = {task.data["world"][1] for task in some("train")}
    assert worlds == set(islice(count(), 2))
