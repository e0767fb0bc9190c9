"""Which task is played next: shares of the environments, a band of difficulty, and how many turns an episode has.

Decided here: shares are held over *tokens trained on* (or over groups), since environments write attempts of unequal
length: the next group goes to the environment that is furthest behind its share, what is under way counted at its usual
length. Tasks come from an endless stream; those whose running pass rate lies in the band may be played again. All state
is one plain value for the checkpoint, changed only where a group is chosen, trained on or given up; chance is keyed by
the group's id, so there is no generator to save.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Literal

import msgspec

from harness.core import Count, Natural, Value, seed_of
from harness.dice import Dice
from harness.errors import SetupError
from training.values import Group, Metrics

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class CurriculumOptions(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How tasks are chosen."""

    shares: Mapping[str, Annotated[float, msgspec.Meta(gt=0)]] = msgspec.field(default_factory=dict)
    """Environment -> its part of the tokens; one that is not named counts 1."""
    over: Literal["tokens", "groups"] = "tokens"
    """What shares are shares of; equal shares of groups are AgentRL's interleaving."""
    first: Natural | None = None
    """Index of each environment's first task; None begins behind those whose gold play the warm start was shown."""
    replay: Share = 0.0
    """Of the groups, those that are a task of the band again instead of a new one."""
    band: tuple[Share, Share] = (0.1, 0.9)
    """Pass rates of the tasks that are worth playing again."""
    rate: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.5
    """How much of a task's running pass rate is its newest group."""
    most_tasks: Count = 256
    """Tasks of each environment whose pass rate is remembered."""
    horizon: Mapping[str, tuple[tuple[Natural, Count], ...]] = msgspec.field(default_factory=dict)
    """Environment -> (version, turns)…: from that version on an episode of it has so many turns at most
    (ScalingInter-RL, AgentGym-RL 2509.08755). One that is not named has no schedule."""


class Choice(Value, frozen=True, kw_only=True):
    """A group to play."""

    group_id: int
    env: str
    index: int
    """Of the task, in the environment's stream."""


class TaskNote(Value, frozen=True, kw_only=True):
    """What is known of one task."""

    index: int
    passed: float
    """Running pass rate: the share of its attempts that succeed, newer ones counting more."""
    plays: int = 1


class EnvNote(Value, frozen=True, kw_only=True):
    """What is known of one environment."""

    cursor: int = 0
    """Index of the next new task of its stream."""
    groups: int = 0
    """Trained on."""
    tokens: int = 0
    """Trained on."""
    passed: float = 0.0
    """Running pass rate."""
    tasks: tuple[TaskNote, ...] = ()
    """The longest unplayed first."""


class Curriculum(Value, frozen=True, kw_only=True):
    """Everything that the next choice depends on."""

    envs: Mapping[str, EnvNote]
    next_group: int = 0
    open: tuple[Choice, ...] = ()
    """Chosen, and neither trained on nor given up."""

    def choice(self, group_id: int) -> Choice:
        """Return an open choice."""
        return next(choice for choice in self.open if choice.group_id == group_id)


def begin(envs: Sequence[str], options: CurriculumOptions, shown: Mapping[str, int] | None = None) -> Curriculum:
    """Return a curriculum of which nothing was played; `require_sense` is what looks at the options.

    Args:
        envs: names of the environments.
        options: how tasks are chosen.
        shown: environment -> how many of its first tasks the model has seen gold play of: it would only recite them.
    """
    first = (shown or {}) if options.first is None else dict.fromkeys(envs, options.first)
    return Curriculum(envs={name: EnvNote(cursor=first.get(name, 0)) for name in envs})


def require_sense(options: CurriculumOptions, envs: Collection[str]) -> None:
    """SetupError for a share or a horizon of an environment that is not there, and for versions that do not rise."""
    if unknown := sorted(options.shares.keys() - set(envs)):
        raise SetupError(f"a share is given for '{unknown[0]}', which is not trained on: add it, or take the share out")
    if unknown := sorted(options.horizon.keys() - set(envs)):
        raise SetupError(f"a horizon is given for '{unknown[0]}', which is not trained on: add it, or take that out")
    if odd := next((name for name, steps in options.horizon.items() if list(steps) != sorted(steps)), None):
        raise SetupError(f"the versions of {odd}'s horizon must rise")


def choose(state: Curriculum, options: CurriculumOptions, seed: int) -> tuple[Curriculum, Choice]:
    """Return the next group to play, and the state with it under way."""
    env = furthest_behind(state, options)
    note = state.envs[env]
    dice = Dice("curriculum", seed, state.next_group)
    again = [task for task in note.tasks if options.band[0] <= task.passed <= options.band[1]]
    index, cursor = note.cursor, note.cursor + 1
    if dice.chance(options.replay) and again:
        index, cursor = dice.pick(again).index, note.cursor
    choice = Choice(group_id=state.next_group, env=env, index=index)
    envs = {**state.envs, env: msgspec.structs.replace(note, cursor=cursor)}
    return Curriculum(envs=envs, next_group=state.next_group + 1, open=(*state.open, choice)), choice


def furthest_behind(state: Curriculum, options: CurriculumOptions) -> str:
    """Return the environment whose tokens, with those under way, are the least for its share."""
    groups = sum(note.groups for note in state.envs.values())
    usual = sum(note.tokens for note in state.envs.values()) / groups if groups else 1.0

    def progress(name: str) -> float:
        note = state.envs[name]
        under_way = sum(choice.env == name for choice in state.open)
        done, each = float(note.groups), 1.0
        if options.over == "tokens":
            done, each = note.tokens, max(note.tokens / note.groups if note.groups else usual, 1.0)
        return (done + under_way * each) / options.shares.get(name, 1.0)

    return min(state.envs, key=lambda name: (progress(name), name))


def trained(state: Curriculum, options: CurriculumOptions, groups: Sequence[Group]) -> Curriculum:
    """Return the state after the learner took groups."""
    envs = dict(state.envs)
    for group in groups:
        envs[group.env] = _noted(envs[group.env], options, state.choice(group.group_id).index, group)
    taken = {group.group_id for group in groups}
    still = tuple(choice for choice in state.open if choice.group_id not in taken)
    return msgspec.structs.replace(state, envs=envs, open=still)


def given_up(state: Curriculum, group_id: int) -> Curriculum:
    """Return the state after a group came to nothing."""
    still = tuple(choice for choice in state.open if choice.group_id != group_id)
    return msgspec.structs.replace(state, open=still)


def owed(state: Curriculum, waiting: Sequence[Group]) -> list[Choice]:
    """Return the groups that were under way when the state was saved: they are played again, under their own ids."""
    complete = {group.group_id for group in waiting}
    return [choice for choice in state.open if choice.group_id not in complete]


def turns(options: CurriculumOptions, env: str, version: int) -> int | None:
    """Return how many turns an episode has at most; None where the schedule says nothing."""
    steps = options.horizon.get(env, ())
    return next((most for start, most in reversed(steps) if start <= version), None)


def episode_seed(seed: int, choice: Choice, place: int) -> int:
    """Return the seed of one attempt: of the run's seed, the group and the place, so that a replay dices alike."""
    return seed_of("episode", seed, choice.group_id, choice.env, choice.index, place)


def pass_rate(group: Group) -> float:
    """Return the share of a group's scored attempts that succeeded."""
    scored = [one.succeeded for one in group.attempts if one.by_agent]
    return sum(scored) / len(scored) if scored else 0.0


def metrics(state: Curriculum) -> Metrics:
    """Return what is known of the environments, as numbers."""
    total = sum(note.tokens for note in state.envs.values())
    found: Metrics = {}
    for name, note in state.envs.items():
        found[f"task/{name}/passed"] = note.passed
        found[f"task/{name}/token_share"] = note.tokens / total if total else 0.0
        found[f"task/{name}/groups"] = note.groups
    return found


def _noted(note: EnvNote, options: CurriculumOptions, index: int, group: Group) -> EnvNote:
    passed = pass_rate(group)
    old = next((task for task in note.tasks if task.index == index), None)
    new = TaskNote(index=index, passed=passed)
    if old is not None:
        mean = old.passed + options.rate * (passed - old.passed)
        new = TaskNote(index=index, passed=mean, plays=old.plays + 1)
    others = [task for task in note.tasks if task.index != index]
    share = max(0.05, 1 / (note.groups + 1))  # the plain mean at first, then over about twenty groups
    return EnvNote(
        cursor=note.cursor,
        groups=note.groups + 1,
        tokens=note.tokens + group.tokens,
        passed=note.passed + share * (passed - note.passed),
        tasks=(*others, new)[-options.most_tasks :],
    )
