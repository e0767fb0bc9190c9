"""The bundled games: as many as promised, of every kind and size, all different, and no house in two splits."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest

from envs.alfworld.data import KINDS
from envs.alfworld.engine.game import Play, load
from envs.alfworld.env import TURNS
from envs.alfworld.generate.houses import HOUSES
from envs.alfworld.tasks import SEEN, tasks
from harness.core import Task


def receptacles(task: Task) -> int:
    return len(load(task.data["game"]).place_of)


@pytest.mark.parametrize("split", ["test", "validation", "train", *SEEN])
def test_every_game_is_won_by_its_plan_and_none_at_once(split: str) -> None:
    found = list(islice(tasks(split), 120))
    assert Counter(task.group for task in found) == dict.fromkeys(KINDS, 20)
    for task in found:
        play = Play(load(task.data["game"]))
        assert not play.won
        assert 2 <= len(task.data["plan"]) < TURNS
        for command in task.data["plan"]:
            assert not play.won
            assert command in play.commands()
            play.step(command)
        assert play.won, task.id


def test_fixed_splits_reach_from_five_to_forty_receptacles() -> None:
    for split in ("test", "validation"):
        sizes = [receptacles(task) for task in tasks(split)]
        assert len(sizes) >= 100
        assert (min(sizes), max(sizes)) == (5, 40)


def test_difficulty_is_size() -> None:
    for difficulty, size in ((0.0, 5), (0.5, 22), (1.0, 40)):
        assert {receptacles(task) for task in islice(tasks("train", difficulty), 12)} == {size}


def test_splits_share_nothing() -> None:
    words = {
        split: {word for house in houses for word in (*house.use_of, *house.able, house.lamp)}
        for split, houses in HOUSES.items()
    }
    assert not words["test"] & words["validation"]
    assert not words["test"] & words["train"]
    assert not words["validation"] & words["train"]
    digests = [task.digest for split in HOUSES for task in islice(tasks(split), 300)]
    assert len(set(digests)) == len(digests)


def test_seen_splits_are_new_games_in_the_houses_of_train() -> None:
    known = {word for house in HOUSES["train"] for word in (*house.use_of, *house.able, house.lamp)}
    for split in SEEN:
        for task in tasks(split, 0.0):
            assert {place.partition("_bar_")[0] for place in load(task.data["game"]).place_of} <= known
    digests = [task.digest for split in ("train", *SEEN) for task in islice(tasks(split, 0.0), 300)]
    assert len(set(digests)) == len(digests)


def test_names_inside_a_house_are_told_apart() -> None:
    for houses in HOUSES.values():
        for house in houses:
            words = [*house.use_of, *house.able, house.lamp]
            assert len(set(words)) == len(words)
            assert all(word.isalpha() and word.islower() and "basin" not in word for word in words)
