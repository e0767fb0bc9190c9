"""Checks an environment as an instrument: scripted agents play it, and each must score what such an agent deserves.

Decided here: the ceilings. They are the same for every environment and no environment's author sets them. An author
may only name task groups where silence is right (`silence_groups` on the environment), which are counted apart, and
of published tasks, never of bundled ones, those that nobody can solve (`known_unsolvable.toml` beside it) and those
where an empty call or the prompt itself is a right answer (`known_giveaways.toml`), with a cause each.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from harness import registry
from harness.config import read_toml
from harness.core import (
    NOT_BY_AGENT,
    Agent,
    Ending,
    Env,
    Limits,
    Task,
    Trajectory,
    Value,
    seed_of,
)
from harness.rollout import rollout

ORACLE, NOOP, RANDOM = "scripted/oracle", "scripted/noop", "scripted/random"
CONSTANT = "scripted/answer_everything"
WORTHLESS = (NOOP, "scripted/echo", "scripted/malformed", "scripted/tamper")
"""Agents that score exactly 0."""
LUCK = 0.05
"""What the best constant answer, and random play, may score at most."""
EPSILONS = (0.1, 0.3, 0.6, 1.0)
"""Probabilities of spoiling a reply of the oracle."""
WOBBLE = 0.02
"""By how much a more spoilt oracle may score above a less spoilt one."""
TELLING = (0.1, 0.9)
"""A heuristic that scores between these tells agents apart."""
TELLING_HEURISTICS = 2
TELLING_TASKS = 30
"""On fewer tasks a heuristic's score says nothing, and the check is left out."""
BUNDLED = ("test", "validation", "train", "test-seen", "validation-seen")
"""Splits that are generated here, so that it is known what simple heuristics should make of them."""
CONCURRENCY = 8
SHOWN = 5

Heuristic = Callable[[str, dict[str, Any]], Agent]
"""Makes a simple agent that has one skill, as `make(argument, settings)` of an agent's module does."""


class Played(msgspec.Struct, frozen=True):
    """What is kept of one attempt."""

    task_id: str
    group: str
    value: float | None
    ending: Ending
    trouble: str
    """The failure's message, "" where there was none."""


class Check(Value, frozen=True, kw_only=True):
    """One figure and whether it is as it must be."""

    name: str
    tasks: int
    score: float | None
    """None where the check has no score of its own."""
    wanted: str
    passed: bool
    detail: str = ""


async def play(
    env: Env,
    agent: Agent,
    tasks: Sequence[Task],
    *,
    seed: int = 0,
    concurrency: int = CONCURRENCY,
    keep: Callable[[Trajectory], None] = lambda _: None,
) -> list[Played]:
    """Play every task once and return what came of each, in order. `env` is open; `keep` sees each whole attempt."""
    free = asyncio.Semaphore(min(concurrency, env.max_sessions or concurrency))

    async def attempt(task: Task) -> Played:
        async with free:
            trajectory = await rollout(
                env, agent, task, limits=Limits(seconds=600.0), entry="validate", seed=seed_of(seed, task.id)
            )
        keep(trajectory)
        trouble = trajectory.failure.message if trajectory.failure else ""
        return Played(task.id, task.group, trajectory.score.value, trajectory.ending, trouble)

    return list(await asyncio.gather(*(attempt(task) for task in tasks)))


def mean(played: Sequence[Played]) -> float:
    """Return the mean score; an unscored attempt counts 0."""
    return sum(attempt.value or 0.0 for attempt in played) / len(played) if played else 0.0


async def validate(env: Env, tasks: Sequence[Task], *, seed: int = 0) -> AsyncIterator[Check]:
    """Yield the checks of an open environment on some of its tasks, as each is done."""
    silent = frozenset(getattr(env, "silence_groups", ()))
    published = any(task.split not in BUNDLED for task in tasks)
    giveaways = known(env, "giveaways") if published else {}
    asked = [task for task in tasks if task.group not in silent]
    quiet = [task for task in tasks if task.group in silent]
    easy = [task for task in asked if task.id in giveaways]
    hard = [task for task in asked if task.id not in giveaways]

    gold = await _scripted(env, ORACLE, tasks, seed)
    yield oracle_check(gold, known_unsolvable(env) if published else {})
    for name in WORTHLESS if hard else ():
        yield at_most(name, await _scripted(env, name, hard, seed), 0.0)
    if quiet:
        yield silence_check(await _scripted(env, NOOP, quiet, seed))
    # Such replies may be right in these; that they break nothing is checked all the same.
    for where, some in (("where silence is right", quiet), ("on giveaways", easy)):
        for name in WORTHLESS[1:] if some else ():
            yield at_most(f"{name} {where}", await _scripted(env, name, some, seed), 1.0)
    if asked:
        constants = {name: await _scripted(env, f"{CONSTANT}:{name}", asked, seed) for name in _constants()}
        best = max(constants, key=lambda name: mean(constants[name]))
        yield at_most("best constant answer", constants[best], LUCK, f"'{best}'")
        # One lucky task is no evidence of more luck than a constant has.
        ceiling = min(LUCK, max(mean(constants[best]), 1 / len(asked)))
        yield at_most(RANDOM, await _scripted(env, RANDOM, asked, seed), ceiling)
    scores = {0.0: mean(gold)}
    for epsilon in EPSILONS:
        scores[epsilon] = mean(await _scripted(env, f"{ORACLE}:{epsilon:g}", tasks, seed))
    yield falling_check(scores, len(tasks))
    if asked and not published:
        yield await heuristics_check(env, asked, seed)


def at_most(name: str, played: Sequence[Played], ceiling: float, detail: str = "") -> Check:
    """Check that an agent scores no more than it may, and that it broke nothing."""
    score = mean(played)
    lucky = [attempt.task_id for attempt in played if attempt.value] if score > ceiling else []
    notes = [detail, _listed("scored on", lucky), _broken(played)]
    return Check(
        name=name,
        tasks=len(played),
        score=score,
        wanted=f"at most {ceiling:.3g}",
        passed=score <= ceiling and not _broken(played),
        detail="; ".join(note for note in notes if note),
    )


def oracle_check(played: Sequence[Played], unsolvable: Mapping[str, str]) -> Check:
    """Check that gold play scores 1 on every task but those known to be unsolvable, which must score less."""
    counted = [attempt for attempt in played if attempt.task_id not in unsolvable]
    failed = [f"{attempt.task_id} ({attempt.ending})" for attempt in counted if attempt.value != 1]
    solved = [attempt.task_id for attempt in played if attempt.task_id in unsolvable and attempt.value == 1]
    left_out = len(played) - len(counted)
    notes = [
        f"{left_out} known to be unsolvable left out" if left_out else "",
        _listed("failed", failed),
        _listed("called unsolvable, yet solved", solved),
        _broken(played),
    ]
    return Check(
        name=ORACLE,
        tasks=len(counted),
        score=mean(counted),
        wanted="1 on every task",
        passed=bool(counted) and not failed and not solved,
        detail="; ".join(note for note in notes if note),
    )


def silence_check(played: Sequence[Played]) -> Check:
    """Check that saying nothing scores 1 where it is right."""
    wrong = [attempt.task_id for attempt in played if attempt.value != 1]
    return Check(
        name=f"{NOOP} where silence is right",
        tasks=len(played),
        score=mean(played),
        wanted="1 on every task",
        passed=not wrong,
        detail=_listed("failed", wrong),
    )


def falling_check(scores: Mapping[float, float], tasks: int) -> Check:
    """Check that the oracle's score falls with the probability of spoiling a reply, and by half at least in all."""
    values = [scores[epsilon] for epsilon in sorted(scores)]
    rises = any(after > before + WOBBLE for before, after in pairwise(values))
    return Check(
        name="spoilt oracle",
        tasks=tasks,
        score=None,
        wanted="falls with the share of spoilt replies, to half or less",
        passed=not rises and values[-1] <= values[0] / 2,
        detail=", ".join(f"{epsilon:g}: {scores[epsilon]:.3f}" for epsilon in sorted(scores)),
    )


async def heuristics_check(env: Env, tasks: Sequence[Task], seed: int) -> Check:
    """Check that simple agents score neither next to nothing nor nearly all."""
    if len(tasks) < TELLING_TASKS:
        return Check(
            name="heuristics",
            tasks=len(tasks),
            score=None,
            wanted=f"{TELLING_TASKS} tasks or more to tell",
            passed=True,
            detail="not checked",
        )
    agents = {name: make("", {}) for name, make in heuristics(env).items()}
    scores = {name: mean(await play(env, agent, tasks, seed=seed)) for name, agent in agents.items()}
    # A privileged one would be handed gold play, and tell nothing.
    telling = [
        name for name, score in scores.items() if TELLING[0] <= score <= TELLING[1] and not agents[name].privileged
    ]
    return Check(
        name="heuristics",
        tasks=len(tasks),
        score=None,
        wanted=f"{TELLING_HEURISTICS} or more score between {TELLING[0]:g} and {TELLING[1]:g}",
        passed=len(telling) >= TELLING_HEURISTICS,
        detail=", ".join(f"{name}: {score:.3f}" for name, score in scores.items()) or "there are none",
    )


def heuristics(env: Env) -> Mapping[str, Heuristic]:
    """Return name -> factory from `HEURISTICS` of the module `heuristics` beside the environment's class."""
    package = type(env).__module__.rpartition(".")[0]
    name = f"{package}.heuristics"
    if not package or importlib.util.find_spec(name) is None:
        return {}
    found: Mapping[str, Heuristic] = importlib.import_module(name).HEURISTICS
    return found


def known(env: Env, what: str) -> Mapping[str, str]:
    """Return task id -> cause, from `known_WHAT.toml` beside the environment: table `[tasks]`, and its rules' own."""
    path = registry.ROOT / "envs" / env.name / f"known_{what}.toml"
    tables = read_toml(path) if path.exists() else {}
    return {**tables.get("tasks", {}), **tables.get(getattr(env, "rules", "fixed"), {})}


def known_unsolvable(env: Env) -> Mapping[str, str]:
    """Return the published tasks that nobody can solve, with the cause of each."""
    return known(env, "unsolvable")


def _constants() -> Sequence[str]:
    found: Sequence[str] = importlib.import_module("agents.scripted.answer_everything").CONSTANTS
    return found


async def _scripted(env: Env, spec: str, tasks: Sequence[Task], seed: int) -> list[Played]:
    return await play(env, registry.make_agent(spec), tasks, seed=seed)


def _broken(played: Sequence[Played]) -> str:
    """Say which attempts ended by what is not the agent's doing."""
    broken = [attempt for attempt in played if attempt.ending in NOT_BY_AGENT or attempt.value is None]
    if not broken:
        return ""
    causes = Counter(f"{attempt.ending}: {attempt.trouble[:200]}" for attempt in broken)
    return _listed("broke on", [attempt.task_id for attempt in broken]) + f" ({causes.most_common(1)[0][0]})"


def _listed(what: str, names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{what} {', '.join(names[:SHOWN])}{more}" if names else ""
