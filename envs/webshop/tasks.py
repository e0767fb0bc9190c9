"""The bundled tasks: goals in shops of our own, drawn by seed from `envs.webshop.generate`.

`test` and `validation` are fixed, each in one shop, spread evenly from difficulty 0 to 1. `train` has no end and moves
to a new shop now and then. Each of the three sells other things under other names, and its customers talk otherwise.
`test-seen` and `validation-seen` are fixed likewise, in shops of `train`'s kind that `train` never comes to.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from random import Random
from typing import cast, get_args

import msgspec

from envs.webshop.catalogue import Catalogue, in_memory
from envs.webshop.data import Goal, Product, TaskData
from envs.webshop.generate.goals import Stock, make
from envs.webshop.generate.shops import VERSION, products
from envs.webshop.generate.words import Split
from harness.core import Task, make_task, seed_of
from harness.errors import EnvError, SetupError, nearest

__all__ = ["VERSION", "catalogue", "tasks"]

COUNT = {"test": 120, "validation": 80, "test-seen": 120, "validation-seen": 80}
STRIDE = 49
"""Steps through a fixed split's difficulties, so that its first tasks are as mixed as all; coprime with `COUNT`."""
SHOP_TASKS = 400
"""Training tasks in one shop before another is stocked."""
SHOPS_KEPT = 4
SPLITS: tuple[Split, ...] = get_args(Split)
SEEN = {"test-seen": 1_000_000, "validation-seen": 1_000_001}
"""Split -> the number of its shop, of `train`'s kind; far beyond those that training comes to."""


def tasks(split: str, difficulty: float | None = None) -> Iterator[Task]:
    """Yield the tasks of a split, all of one difficulty from 0 to 1 or, without one, of all difficulties.

    Raises:
        SetupError: there is no such split or difficulty.
    """
    if split not in SPLITS and split not in SEEN:
        raise SetupError(f"webshop has no bundled split '{split}'{nearest(split, [*SPLITS, *SEEN])}")
    if difficulty is not None and not 0 <= difficulty <= 1:
        raise SetupError(f"the difficulty of webshop tasks is from 0 to 1, not {difficulty}")
    if split == "train":
        return _draw(split, difficulty)
    return iter(_fixed(split, difficulty))


@lru_cache(maxsize=8)
def _fixed(split: str, difficulty: float | None) -> tuple[Task, ...]:
    return tuple(_draw(split, difficulty))


def _draw(split: str, difficulty: float | None) -> Iterator[Task]:
    kind = cast(Split, "train" if split in SEEN else split)
    label = split if difficulty is None else f"{split}-d{difficulty:g}"
    asked: set[tuple[object, ...]] = set()
    for index in itertools.count() if split == "train" else range(COUNT[split]):
        number, place = divmod(index, SHOP_TASKS)
        number += SEEN.get(split, 0)
        if place == 0:
            asked.clear()  # another shop has other products
        for attempt in itertools.count():
            random = Random(seed_of("webshop goal", VERSION, label, index, attempt))
            level = _level(split, index, random) if difficulty is None else difficulty
            goal = make(_stock(kind, number), kind, level, random)
            if goal is not None and _key(goal) not in asked:
                asked.add(_key(goal))
                yield _task(f"{label}-{index:04d}", split, goal, f"{kind}-{number}")
                break


def _level(split: str, index: int, random: Random) -> float:
    return random.random() if split == "train" else index * STRIDE % COUNT[split] / (COUNT[split] - 1)


def _key(goal: Goal) -> tuple[object, ...]:
    return goal.asin, frozenset(goal.attributes), frozenset(goal.options)


def _task(task_id: str, split: str, goal: Goal, catalogue: str) -> Task:
    return make_task(
        task_id,
        env="webshop",
        split=split,
        group=f"wishes_{len(goal.attributes) + len(goal.options)}",
        instruction=goal.instruction,
        tools=(),
        data=msgspec.to_builtins(TaskData(goal=goal, catalogue=catalogue)),
    )


def catalogue(name: str) -> Catalogue:
    """Return the shop of a bundled task by its name: `test-0`. EnvError where there is no such shop."""
    split, _, number = name.partition("-")
    if split not in SPLITS or not number.isdecimal():
        raise EnvError(f"there is no bundled shop '{name}'")
    return _stock(split, int(number)).catalogue


@lru_cache(maxsize=SHOPS_KEPT)
def _stock(split: Split, number: int) -> Stock:
    everything = products(split, number)
    departments: dict[str, list[Product]] = defaultdict(list)
    for product in everything:
        departments[product.department].append(product)
    return Stock(in_memory(everything), departments)
