"""Which task is next: shares held over tokens, a band of difficulty, a horizon; a plain value, the same every time."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from itertools import count

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core import Task, make_task
from harness.errors import EnvError, SetupError
from tests.training.players import attempt, group, segment
from training import curriculum as choosing
from training import streams
from training.curriculum import Choice, Curriculum, CurriculumOptions
from training.streams import Stream
from training.values import Group

LENGTHS = {"long": 40, "short": 4, "odd": 11}


def played(choice: Choice, rewards: Sequence[float] = (0.0, 1.0)) -> Group:
    length = LENGTHS[choice.env]
    return group(choice.group_id, choice.env, rewards, lambda place: segment([0] * length))


def run(
    state: Curriculum, options: CurriculumOptions, groups: int, under_way: int = 6, seed: int = 1
) -> tuple[Curriculum, list[Choice]]:
    """Choose and train on groups, the oldest first, with so many under way."""
    open_ones: deque[Choice] = deque()
    chosen = []
    for _ in range(groups):
        while len(open_ones) < under_way:
            state, choice = choosing.choose(state, options, seed)
            open_ones.append(choice)
            chosen.append(choice)
        state = choosing.trained(state, options, [played(open_ones.popleft())])
    for choice in open_ones:
        state = choosing.given_up(state, choice.group_id)
    return state, chosen


@pytest.mark.parametrize("shares", [{}, {"long": 3.0}, {"short": 2.0, "odd": 0.5}])
def test_shares_are_held_over_tokens(shares: dict[str, float]) -> None:
    options = CurriculumOptions(shares=shares)
    state, chosen = run(choosing.begin([*LENGTHS], options), options, 600)
    total = sum(note.tokens for note in state.envs.values())
    wanted = {name: shares.get(name, 1.0) for name in LENGTHS}
    for name, note in state.envs.items():
        assert note.tokens / total == pytest.approx(wanted[name] / sum(wanted.values()), abs=0.02)
    assert Counter(choice.env for choice in chosen)["short"] > Counter(choice.env for choice in chosen)["long"]
    assert not state.open


def test_shares_of_groups_take_turns() -> None:
    options = CurriculumOptions(over="groups", shares={"odd": 2.0})
    state, chosen = run(choosing.begin([*LENGTHS], options), options, 400)
    assert [state.envs[name].groups for name in LENGTHS] == [100, 100, 200]
    assert [choice.env for choice in chosen[:8]] == ["long", "odd", "short", "odd"] * 2


def test_each_group_has_its_own_id_and_new_tasks_follow_one_another() -> None:
    options = CurriculumOptions()
    state, chosen = run(choosing.begin([*LENGTHS], options), options, 50)
    assert [choice.group_id for choice in chosen] == list(range(len(chosen)))
    for name in LENGTHS:
        indices = [choice.index for choice in chosen if choice.env == name]
        assert indices == list(range(state.envs[name].cursor))


def test_tasks_of_the_band_are_played_again() -> None:
    options = CurriculumOptions(replay=0.5, band=(0.2, 0.8), most_tasks=8)
    state = choosing.begin(["odd"], options)
    rates: dict[int, float] = {}
    again = 0
    for _ in range(300):
        state, choice = choosing.choose(state, options, seed=3)
        if choice.index in rates:
            again += 1
            assert 0.2 <= rates[choice.index] <= 0.8
        reward = [(0.0, 0.0), (0.0, 1.0), (1.0, 1.0)][choice.index % 3]
        state = choosing.trained(state, options, [played(choice, reward)])
        rates = {task.index: task.passed for task in state.envs["odd"].tasks}
        assert len(rates) <= 8
    assert again / 300 == pytest.approx(0.5, abs=0.1)
    assert state.envs["odd"].cursor == 300 - again


@pytest.mark.parametrize(("options", "first"), [(CurriculumOptions(), 300), (CurriculumOptions(first=7), 7)])
def test_tasks_of_gold_play_are_passed_over(options: CurriculumOptions, first: int) -> None:
    _, chosen = run(choosing.begin(["odd"], options, shown={"odd": 300}), options, 3, under_way=1)
    assert [choice.index for choice in chosen] == [first, first + 1, first + 2]


def test_a_pass_rate_is_that_of_the_attempts_that_count() -> None:
    part = segment([0])
    members = tuple(attempt("a", reward, [part], by_agent) for reward, by_agent in
                    [(1.0, True), (-0.2, True), (0.9, True), (1.0, True), (0.0, False)])  # fmt: skip
    one = Group(group_id=0, env="a", task_id="t", attempts=members, admitted_version=0)
    assert choosing.pass_rate(one) == 0.5


def test_a_task_played_again_moves_its_rate() -> None:
    options = CurriculumOptions(rate=0.25)
    state = choosing.begin(["odd"], options)
    state, choice = choosing.choose(state, options, 0)
    state = choosing.trained(state, options, [played(choice, (1.0, 1.0))])
    again = Choice(group_id=7, env="odd", index=choice.index)
    state = choosing.trained(msgspec.structs.replace(state, open=(again,)), options, [played(again, (0.0, 0.0))])
    (task,) = state.envs["odd"].tasks
    assert (task.passed, task.plays) == (0.75, 2)
    assert state.envs["odd"].passed == 0.5


@pytest.mark.parametrize(("version", "turns"), [(0, 5), (9, 5), (10, 12), (99, 20)])
def test_the_horizon_grows_with_the_version(version: int, turns: int) -> None:
    options = CurriculumOptions(horizon={"db": ((0, 5), (10, 12), (30, 20))})
    assert choosing.turns(options, "db", version) == turns
    assert choosing.turns(options, "kg", version) is None
    assert choosing.turns(CurriculumOptions(horizon={"db": ((5, 3),)}), "db", 4) is None


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(SetupError, match=r"'webshop', which is not trained on: add it, or take the share out"):
        choosing.require_sense(CurriculumOptions(shares={"webshop": 1.0}), ["db"])
    with pytest.raises(SetupError, match=r"'webshop', which is not trained on: add it, or take that out"):
        choosing.require_sense(CurriculumOptions(horizon={"webshop": ((0, 2),)}), ["db"])
    with pytest.raises(SetupError, match="versions of db's horizon must rise"):
        choosing.require_sense(CurriculumOptions(horizon={"db": ((5, 3), (0, 2))}), ["db"])


@settings(max_examples=20, deadline=None)
@given(cut=st.integers(0, 60), replay=st.sampled_from([0.0, 0.4]), seed=st.integers(0, 9))
def test_a_saved_state_goes_on_as_if_it_had_not_been(cut: int, replay: float, seed: int) -> None:
    options = CurriculumOptions(replay=replay, band=(0.0, 1.0))
    begun = choosing.begin([*LENGTHS], options)
    state, before = run(begun, options, cut, under_way=1, seed=seed)
    saved = msgspec.json.decode(msgspec.json.encode(state), type=Curriculum)
    assert saved == state
    _, after = run(saved, options, 30, under_way=1, seed=seed)
    _, whole = run(begun, options, cut + 30, under_way=1, seed=seed)
    assert before + after == whole


def test_what_was_under_way_is_owed() -> None:
    options = CurriculumOptions()
    state = choosing.begin(["odd"], options)
    for _ in range(4):
        state, _ = choosing.choose(state, options, 0)
    state = choosing.trained(state, options, [played(state.choice(0))])
    assert [choice.group_id for choice in choosing.owed(state, [played(state.choice(2))])] == [1, 3]


def test_the_tasks_that_are_remembered_are_those_played_last() -> None:
    options = CurriculumOptions(most_tasks=2)
    state = choosing.begin(["odd"], options)
    for _ in range(4):
        state, choice = choosing.choose(state, options, 0)
        state = choosing.trained(state, options, [played(choice)])
    assert [task.index for task in state.envs["odd"].tasks] == [2, 3]


def test_the_seed_of_an_attempt_is_that_of_its_group_and_place() -> None:
    choice = Choice(group_id=3, env="odd", index=5)
    seeds = {choosing.episode_seed(0, choice, place) for place in range(8)}
    other = msgspec.structs.replace(choice, group_id=4)
    assert len(seeds) == 8
    assert choosing.episode_seed(0, other, 0) not in seeds
    assert choosing.episode_seed(1, choice, 0) not in seeds, "another run plays another way"


def task(number: int) -> Task:
    return make_task(
        f"t{number}", env="odd", split="train", group="g", instruction="", tools=(), data={"number": number}
    )


async def test_a_stream_has_its_tasks_by_index_however_it_is_asked() -> None:
    made: list[int] = []

    def tasks() -> Iterator[Task]:
        for number in count():
            made.append(number)
            yield task(number)

    stream = Stream("train of odd", tasks, kept=4)
    for index in (0, 5, 3, 0, 9, 9):
        assert (await stream.task(index)).id == f"t{index}"
    assert made == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]


async def test_a_task_that_cannot_be_made_is_no_end_of_the_split() -> None:
    fails = [True]

    def tasks() -> Iterator[Task]:
        for number in range(5):
            if number == 3 and fails.pop():
                fails.append(False)
                raise OSError("the disk is gone")
            yield task(number)

    stream = Stream("train of odd", tasks)
    with pytest.raises(EnvError, match="making task 4 of train of odd: OSError: the disk is gone"):
        await stream.task(4)
    assert (await stream.task(4)).id == "t4"


async def test_each_task_on_the_way_has_a_deadline_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "TASK_SECONDS", 1.5)
    monkeypatch.setattr(streams, "STEP_SECONDS", 0.05)

    def tasks() -> Iterator[Task]:
        for number in range(20):
            time.sleep(0.1)
            yield task(number)

    assert (await Stream("train of odd", tasks).task(19)).id == "t19", "as after a resume, together beyond the deadline"


async def test_a_task_that_comes_late_is_waited_for_and_not_made_by_two_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "TASK_SECONDS", 0.05)
    release = threading.Event()

    def tasks() -> Iterator[Task]:
        yield task(0)
        release.wait(20)
        yield task(1)

    stream = Stream("train of odd", tasks)
    for _ in range(2):
        with pytest.raises(EnvError, match=r"making task 1 of train of odd took more than 0\.05 seconds"):
            await stream.task(1)
    release.set()
    monkeypatch.setattr(streams, "TASK_SECONDS", 20.0)
    assert (await stream.task(1)).id == "t1"


async def test_a_finite_split_begins_again_and_an_empty_one_is_refused() -> None:
    stream = Stream("train of odd", lambda: iter([task(number) for number in range(3)]))
    assert [(await stream.task(index)).id for index in (0, 4, 2, 302)] == ["t0", "t1", "t2", "t2"]
    with pytest.raises(SetupError, match="train of odd has no tasks"):
        await Stream("train of odd", lambda: iter(())).task(0)
