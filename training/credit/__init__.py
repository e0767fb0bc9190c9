"""What each turn of each attempt was worth: rule, filter, normalisation, in this order, before any token is looked at.

Decided here: infrastructure failures are masked and never compared with; groups in which nothing is worth more than
anything else say nothing and are filtered *before* the normalisation, which would else give them an advantage. Under
`gigpo` a group that always succeeds may still say which way was the shorter. What is filtered is no part of what a loss
is divided by, nor of its KL, as if other groups had been played for it (DAPO 2503.14476); only a token that is dropped
for its lag leaves the denominators as they were.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from harness.dice import Dice
from harness.errors import SetupError, nearest
from training.credit import dr_grpo, gigpo, grpo, rloo
from training.credit.tan import FLOORS, Floors, Moments, moments, normalise
from training.values import Attempt, Doubles, Group, Metrics

Rule = Callable[[Sequence[Attempt]], list[Doubles]]
"""The attempts of one group to the advantages of each: [turns]."""

LEAST = 2
"""Attempts of a group that can be compared."""


class Place(NamedTuple):
    """Where an attempt belongs, and what its turns are worth."""

    group_id: int
    attempt: int
    advantages: Doubles  # [turns]
    weight: float = 1.0
    """How many attempts it stands for; with 0 it is not trained on."""


class TaskNote(NamedTuple):
    """What the normalisation found of one environment."""

    moments: Moments
    groups: int


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Credit:
    """Advantages of a batch."""

    attempts: tuple[tuple[Attempt, Place], ...]
    """Those to train on, in the order of group and place."""
    tasks: Mapping[str, TaskNote]
    """Environment to its moments before the normalisation."""
    filtered: Mapping[str, int]
    """Why groups were not compared, and how many. With `imitation` those that always succeeded are trained on still."""


def _scalar(formula: Callable[[Doubles], Doubles]) -> Rule:
    """Make a rule of one that gives every turn of an attempt the same."""

    def rule(attempts: Sequence[Attempt]) -> list[Doubles]:
        rewards = _rewards(attempts)
        # Of rewards that are alike rounding alone would be left, which some formulas divide by next to nothing.
        values = formula(rewards) if np.ptp(rewards) else np.zeros_like(rewards)
        return [np.full(one.turns, value) for one, value in zip(attempts, values, strict=True)]

    return rule


def _gigpo(attempts: Sequence[Attempt]) -> list[Doubles]:
    if unknown := next((one for one in attempts if len(one.anchors) != one.turns), None):
        raise SetupError(f"credit 'gigpo' needs a state for each turn, and an attempt at {unknown.env} has none")
    return gigpo.advantages(_rewards(attempts), [one.anchors for one in attempts])


RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "grpo": _scalar(grpo.advantages),
        "dr_grpo": _scalar(dr_grpo.advantages),
        "rloo": _scalar(rloo.advantages),
        "gigpo": _gigpo,
    }
)


def rule_of(name: str) -> Rule:
    """Return the rule of that name. SetupError names the nearest."""
    if name not in RULES:
        raise SetupError(f"there is no credit rule '{name}'{nearest(name, RULES)}")
    return RULES[name]


def assign(
    groups: Sequence[Group],
    rule: Rule,
    floors: Floors | None = FLOORS,
    negative: float = 1.0,
    imitation: float = 0.0,
) -> Credit:
    """Return the advantages of a batch.

    Args:
        groups: complete groups.
        rule: how attempts of a group are compared.
        floors: of the task advantage normalisation; None leaves it out.
        negative: what an advantage below 0 is multiplied by, after the normalisation (AsymRE 2506.20520).
        imitation: what is added, last of all, to each advantage of an attempt that succeeded; where it is not 0, groups
            that always succeeded are trained on too. On-policy its gradient is that of so much cross-entropy on the
            model's own successes (the positive-example loss of VAPO 2504.05118, sec. 4.3).
    """
    scored: list[tuple[Attempt, Place]] = []
    alike: list[tuple[Attempt, Place]] = []
    filtered: dict[str, int] = defaultdict(int)
    for group in sorted(groups, key=lambda group: group.group_id):
        members = [(place, one) for place, one in enumerate(group.attempts) if one.by_agent and one.turns]
        if len(members) < LEAST:
            filtered["too_few_scored"] += 1
            continue
        values = rule([one for _, one in members])
        placed = [
            (one, Place(group.group_id, place, value)) for (place, one), value in zip(members, values, strict=True)
        ]
        if any(value.any() for value in values):
            scored += placed
            continue
        filtered["all_alike"] += 1
        if imitation:
            alike += [each for each in placed if each[0].succeeded]
    notes = _notes(scored)
    if floors is not None:
        scored = [
            (one, place._replace(advantages=normalise(place.advantages, *notes[one.env], floors)))
            for one, place in scored
        ]
    weighed = [
        (one, place._replace(advantages=_lessened(place.advantages, negative) + imitation * one.succeeded))
        for one, place in sorted([*scored, *alike], key=lambda each: each[1][:2])
    ]
    return Credit(attempts=tuple(weighed), tasks=notes, filtered=dict(filtered))


def thinned(found: Credit, most: int | None, seed: int) -> Credit:
    """Return the credit with so many attempts of each group below 0 at most, which weigh for those that are left out.

    None leaves none out. They are drawn by lot, keyed by `seed` and the group, so the gradient is the same on average
    and costs less: what fails is mostly the longer half. A stratified form of PODS (2504.13818), which does not weigh.
    """
    if most is None:
        return found
    below: dict[int, list[int]] = defaultdict(list)
    for place in (place for _, place in found.attempts if place.advantages.sum() < 0):
        below[place.group_id].append(place.attempt)
    weights: dict[tuple[int, int], float] = {}
    for group, members in below.items():
        kept = Dice("thinned", seed, group).sample(members, most)
        weights |= {(group, each): len(members) / len(kept) if each in kept else 0.0 for each in members}
    return replace(
        found,
        attempts=tuple((one, place._replace(weight=weights.get(place[:2], 1.0))) for one, place in found.attempts),
    )


def _notes(scored: Sequence[tuple[Attempt, Place]]) -> dict[str, TaskNote]:
    """Return each environment's moments over its masked tokens."""
    values: dict[str, list[Doubles]] = defaultdict(list)
    tokens: dict[str, list[Doubles]] = defaultdict(list)
    groups: dict[str, set[int]] = defaultdict(set)
    for one, place in scored:
        values[one.env].append(place.advantages)
        tokens[one.env].append(turn_tokens(one))
        groups[one.env].add(place.group_id)
    return {
        env: TaskNote(moments(np.concatenate(values[env]), np.concatenate(tokens[env])), len(groups[env]))
        for env in sorted(values)
    }


def metrics(credit: Credit) -> Metrics:
    """Return what the run writes down: per environment N, μ and σ before the normalisation, and what was filtered."""
    found: Metrics = {f"groups/{why}": count for why, count in credit.filtered.items()}
    for env, note in credit.tasks.items():
        found[f"task/{env}/tokens"] = note.moments.tokens
        found[f"task/{env}/mu"] = note.moments.mean
        found[f"task/{env}/sigma"] = note.moments.sigma
        found[f"task/{env}/groups"] = note.groups
    return found


def turn_tokens(attempt: Attempt) -> Doubles:
    """Return how many tokens are trained on in each turn: [turns]."""
    counts = np.zeros(attempt.turns)
    for segment in attempt.segments:
        counts += np.bincount(segment.turns[segment.mask], minlength=attempt.turns)
    return counts


def _lessened(advantages: Doubles, negative: float) -> Doubles:
    return np.where(advantages < 0, negative * advantages, advantages)


def _rewards(attempts: Sequence[Attempt]) -> Doubles:
    return np.array([one.reward for one in attempts], dtype=np.float64)
