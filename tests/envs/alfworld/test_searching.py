"""Gold play that looks for things: it wins, in time, and goes on where what it seeks is not."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest

from envs.alfworld.engine.game import Play, load
from envs.alfworld.env import TURNS, make
from envs.alfworld.searching import searching
from envs.alfworld.tasks import tasks
from harness.core import EnvOptions, Message


@pytest.mark.parametrize("difficulty", [0.0, 1.0])
def test_it_wins_in_time_by_commands_that_are_offered(difficulty: float) -> None:
    longer = 0
    for task in islice(tasks("train", difficulty), 60):
        game = load(task.data["game"])
        commands = searching(game, task.data["plan"], Random(task.id), TURNS - 1)
        play = Play(game)
        for command in commands:
            assert not play.won
            assert command in play.commands()
            play.step(command)
        assert play.won
        assert len(commands) < TURNS
        longer += len(commands) > len(task.data["plan"])
    assert longer > 30


def test_a_place_that_has_what_is_sought_is_not_left_without_it() -> None:
    for task in islice(tasks("train", 0.0), 60):
        game = load(task.data["game"])
        play, passed = Play(game), set[str]()
        for text in searching(game, task.data["plan"], Random(task.id), TURNS - 1):
            command = play.offered()[text]
            if command.action == "pickupobject":
                wanted = game.kind_of[command.bound["?o"]]
                assert wanted not in passed, (task.id, text)
                passed = set()
            elif command.action == "gotolocation" and play.held is None:
                passed |= {game.kind_of.get(thing, "") for thing in play.contents(command.bound["?r"])}
                target = task.data["plan"]
                if any(each.startswith("take ") and each.endswith(text.removeprefix("go to ")) for each in target):
                    passed = set()  # it has come to where it takes something
            play.step(text)


def test_without_room_for_a_search_the_plan_is_played() -> None:
    for task in islice(tasks("train", 0.0), 12):
        plan = tuple(task.data["plan"])
        assert searching(load(task.data["game"]), plan, Random(0), len(plan)) == plan


async def test_the_environment_demonstrates_so_where_it_is_asked_to() -> None:
    def first(gold: str) -> list[str]:
        env = make(EnvOptions(settings={"gold": gold, "difficulty": 0.0}))
        found = list(islice(env.tasks("train"), 24))
        return [env.demonstrate(task)([Message(role="user", content="")]).tool_calls[0].arguments for task in found]

    assert first("searching") == first("searching")
    assert first("searching") != first("shortest")
