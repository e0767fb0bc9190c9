"""Play in other words is the same play: what is copied stays a copy, and what is no name stays as it was."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from harness.core import EnvOptions, Trajectory
from harness.newmodel import gold_play
from training import renaming

WORD = re.compile(r"[A-Za-z]{3,}")


@pytest.fixture(scope="module")
def plays() -> list[Trajectory]:
    return [
        play
        for env in ("alfworld", "kg")
        for play in asyncio.run(gold_play(env, 40, 0, EnvOptions(settings={"difficulty": 0.0})))
    ]


def test_none_are_renamed_at_a_share_of_zero_and_the_draw_is_the_seeds(plays: list[Trajectory]) -> None:
    assert renaming.renamed(plays, 0.0, 0) == plays
    assert renaming.renamed(plays, 0.5, 1) == renaming.renamed(plays, 0.5, 1) != renaming.renamed(plays, 0.5, 2)
    changed = sum(new != old for new, old in zip(renaming.renamed(plays, 0.5, 1), plays, strict=True))
    assert 20 < changed < 60


def test_a_renamed_play_is_the_same_task_with_one_new_name_for_each_old_one(plays: list[Trajectory]) -> None:
    names = renaming.replaceable(plays)
    for old, new in zip(plays, renaming.renamed(plays, 1.0, 3), strict=True):
        assert (new.digest, new.split, new.score, new.tools) == (old.digest, old.split, old.score, old.tools)
        became: dict[str, str] = {}
        for before, after in zip(texts(old), texts(new), strict=True):
            assert WORD.sub("", before) == WORD.sub("", after)
            for word, other in zip(WORD.findall(before), WORD.findall(after), strict=True):
                if word.lower() in names:
                    assert became.setdefault(word.lower(), other.lower()) == other.lower()
                else:
                    assert other == word


def test_what_was_copied_before_is_copied_after(plays: list[Trajectory]) -> None:
    """ALFWorld's actions are among those listed; they must still be when their nouns have other names."""
    for play in renaming.renamed([play for play in plays if play.env == "alfworld"], 1.0, 4):
        told = play.opening[-1].content
        for turn in play.turns:
            for call in turn.reply.message.tool_calls:
                assert json.loads(call.arguments)["action"] in told
            told = "".join(message.content for message in turn.messages)


def test_instructions_tools_and_grammar_are_no_names(plays: list[Trajectory]) -> None:
    names = renaming.replaceable(plays)
    assert not names & {"take", "action", "actions", "variable", "relation", "get", "inventory"}
    assert names


def texts(play: Trajectory) -> list[str]:
    return [
        text for message in play.history for text in (message.content, *(call.arguments for call in message.tool_calls))
    ]


def test_two_things_of_a_play_never_get_one_name(plays: list[Trajectory]) -> None:
    names = renaming.replaceable(plays)
    for old, new in zip(plays, renaming.renamed(plays, 1.0, 5), strict=True):
        pairs = {
            (word.lower(), other.lower())
            for before, after in zip(texts(old), texts(new), strict=True)
            for word, other in zip(re.findall(r"[A-Za-z]+", before), re.findall(r"[A-Za-z]+", after), strict=True)
            if word.lower() in names
        }
        assert len(pairs) == len({other for _, other in pairs})
