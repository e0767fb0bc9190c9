"""The bundled KG tasks: an endless training stream and fixed splits.

`test` and `validation` share no relation, name or sentence with each other and with `train`. `test-seen` and
`validation-seen` are told in `train`'s own words, of graphs that `train` never has: what a model without any knowledge
of language can be asked after training.

Decided here: the mix, that no question is told twice of one graph, and that no answer is right more than `MOST_ALIKE`
times of one graph.

The mix is fixed: the five kinds by turns, or those that are asked for; each kind goes through difficulties from 0 to 1
in `LEVELS` steps, again and again; and starts from each type of entity by turns. `questions.shape` draws the rest from
the difficulty d: 1 + 3d relations from the first entity, four at most; for every intersection, and with probability
0.6d - 0.1 for a count or a superlative, a second entity, one relation away or, with 0.6d, two; with 0.6d the last
relation comes after the intersection or superlative; sets have 12 + 48d members at most, and a set that is counted or
ranked 2 + 3d at least where nothing is intersected. A shape that yields no fair question in `PATIENCE` drafts is drawn
again, which favours the plainer ones: at d = 1 a third of all tasks names two entities.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

from envs.kg.data import KINDS, Kind, TaskData, to_task
from envs.kg.generate.questions import make, shape
from envs.kg.generate.schema import SPLITS
from envs.kg.generate.worlds import world
from harness.core import Task
from harness.dice import Dice
from harness.errors import SetupError, nearest

FIXED_TASKS = 120
WORLD_TASKS = 120
"""Tasks asked of one graph before another is filled: a fixed split is one graph's."""
LEVELS = 24
"""Steps of difficulty that each kind goes through, one after the other, from 0 to 1."""
MOST_ALIKE = 3
"""How many tasks of one graph may have the same answer."""
ONE_COUNT_IN = 5
"""Kinds, at least: there are few small numbers, and each is the answer `MOST_ALIKE` times at most."""
PATIENCE = 30
"""Drafts of one shape, the first of them from the type whose turn it is; then another is drawn, to start from any."""
SEED_WORLDS = 1_000_000
"""Graphs set apart for each seed."""
SEEN = {"test-seen": -2, "validation-seen": -3}
"""Split -> the number of its first graph, of `train`'s schema, whose own are numbered from 0."""
SIZES = {"test-seen": 240}
"""Tasks of a fixed split that has not `FIXED_TASKS`."""
VERSION = 2
"""Part of every seed: raise it when the generator is to make other tasks."""


def tasks(
    split: str, difficulty: float | None = None, kinds: Sequence[Kind] = KINDS, *, seed: int = 0
) -> Iterator[Task]:
    """Yield the tasks of a split; `train` never ends, and `seed` begins another such stream.

    Without `difficulty` a split covers all of [0, 1]; with it, every task has that difficulty. The kinds come by turns.

    Raises:
        SetupError: there is no such split, the difficulty is not in [0, 1], or too many tasks would be counts.
    """
    if split not in SPLITS and split not in SEEN:
        raise SetupError(f"the bundled KG tasks have no split '{split}'{nearest(split, [*SPLITS, *SEEN])}")
    if difficulty is not None and not 0 <= difficulty <= 1:
        raise SetupError(f"difficulty must be from 0 to 1, not {difficulty}")
    if ONE_COUNT_IN * kinds.count("count") > len(kinds):
        raise SetupError(f"kinds may have 'count' once in {ONE_COUNT_IN} at most: small numbers are few")
    return _stream(split, difficulty, tuple(kinds), seed)


def _stream(split: str, difficulty: float | None, kinds: tuple[Kind, ...], seed: int) -> Iterator[Task]:
    mark = split + ("" if difficulty is None else f"-d{difficulty:g}")
    mark += "" if kinds == KINDS else "-k" + "".join(str(KINDS.index(kind)) for kind in kinds)
    mark += f"-s{seed}" if seed else ""
    told: set[str] = set()
    answers: Counter[tuple[str, ...]] = Counter()
    for index in itertools.count() if split == "train" else range(SIZES.get(split, FIXED_TASKS)):
        if index % WORLD_TASKS == 0:
            told.clear()  # another graph has other entities
            answers.clear()
        number = index // WORLD_TASKS
        where = ("train", SEEN[split] + number) if split in SEEN else (split, seed * SEED_WORLDS + number)
        level = (index // len(kinds)) % LEVELS / (LEVELS - 1) if difficulty is None else difficulty
        for made in _drafts(where, mark, index, kinds[index % len(kinds)], level):
            if made.question not in told and answers[made.answer] < MOST_ALIKE:
                break
        told.add(made.question)
        answers[made.answer] += 1
        yield to_task(f"{mark}-{index:04d}", split, made)


def _drafts(where: tuple[str, int], mark: str, index: int, kind: Kind, level: float) -> Iterator[TaskData]:
    """Yield fair drafts of one task without end."""
    found = world(*where)
    types = found.schema.types
    dice = Dice("kg", VERSION, mark, index)
    for attempt in itertools.count():
        if attempt % PATIENCE == 0:
            plan = shape(kind, level, dice)
        start = types[index % len(types)] if attempt < PATIENCE else dice.pick(types)
        made = make(found, where, plan, start.name, dice)
        if made is not None:
            yield made
