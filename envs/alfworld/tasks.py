"""The bundled tasks: games of our own, drawn by seed from `envs.alfworld.generate`.

`test` and `validation` are fixed: the six kinds in turn, each spread evenly from difficulty 0 to 1. `train` has no end.
Each has houses of its own: other furniture, other things, other words. `test-seen` and `validation-seen` are fixed
likewise, and are set in `train`'s kinds of houses, laid out anew (ALFWorld's own valid_seen does the same).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from random import Random

from envs.alfworld import shown
from envs.alfworld.data import KINDS, to_task
from envs.alfworld.engine.game import load
from envs.alfworld.generate.games import game
from envs.alfworld.generate.houses import HOUSES
from harness.core import Task, seed_of
from harness.errors import SetupError, nearest

VERSION = 1
"""Rises whenever the same seed gives another game."""
SEEN = ("test-seen", "validation-seen")
EACH = {"test": 20, "validation": 20, "test-seen": 40, "validation-seen": 20}
"""Tasks of each kind in a fixed split."""


def tasks(split: str, difficulty: float | None = None) -> Iterator[Task]:
    """Yield the tasks of a split, all of one difficulty from 0 to 1 or, without one, of all difficulties.

    Raises:
        SetupError: there is no such split or difficulty.
    """
    if split not in HOUSES and split not in SEEN:
        raise SetupError(f"alfworld has no bundled split '{split}'{nearest(split, [*HOUSES, *SEEN])}")
    if difficulty is not None and not 0 <= difficulty <= 1:
        raise SetupError(f"the difficulty of alfworld tasks is from 0 to 1, not {difficulty}")
    return _draw(split, difficulty)


def _draw(split: str, difficulty: float | None) -> Iterator[Task]:
    label = split if difficulty is None else f"{split}-{difficulty:.3f}"
    houses = HOUSES["train" if split in SEEN else split]
    for number in itertools.count() if split == "train" else range(EACH[split]):
        for kind in KINDS:
            task_id = f"{label}-{kind}-{number}"
            random = Random(seed_of("alfworld", task_id))
            level = difficulty
            if level is None:
                level = random.random() if split == "train" else number / (EACH[split] - 1)
            data = game(random.choice(houses), kind, random, level)
            yield to_task(task_id, split, kind, shown.question(load(data.game)), data)
