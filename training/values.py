"""What the parts of the trainer hand to one another: token sequences, attempts, groups of attempts.

Decided here: provenance is kept per token, position by position, in numpy arrays that are never written to again. A
value is checked where it is made, so that no later part has to wonder whether its arrays are aligned.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.config import Strict
from harness.core import Count, Ending, Json
from harness.errors import SetupError

Ints = NDArray[np.int64]
Ints32 = NDArray[np.int32]
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Bools = NDArray[np.bool_]

KINDS: dict[str, Any] = {
    "ids": np.int32,
    "mask": np.bool_,
    "logprobs": np.float32,
    "versions": np.int32,
    "pools": np.int16,
    "turns": np.int32,
    "mixed_kv": np.bool_,
}
"""The arrays of a segment and what they hold: 20 bytes a token."""


class Gold(Strict, frozen=True, kw_only=True):
    """Gold play that is asked for."""

    env: str
    tasks: Count
    """Of its train split, the first ones under these settings."""
    settings: Mapping[str, Json]


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Segment:
    """One contiguous token sequence of one attempt; an attempt has several only where its template forked."""

    ids: Ints32  # [T]
    mask: Bools  # [T] True: sampled by the model, and trained on
    logprobs: Floats  # [T] of the behaviour, natural log, at the sampling temperature; 0 where mask is False
    versions: Ints32  # [T] weight version that sampled the token; -1 where mask is False
    pools: NDArray[np.int16]  # [T] which pool's engine sampled it; -1 where mask is False
    turns: Ints32  # [T] the turn that the token was sampled in, or that its prompt was for
    mixed_kv: Bools  # [T] sampled by new weights over an older cache
    temperature: float

    def __post_init__(self) -> None:
        for name, kind in KINDS.items():
            array: NDArray[Any] = np.array(getattr(self, name), dtype=kind)
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        if wrong := self._fault():
            raise SetupError(f"a token sequence to train on {wrong}")

    def _fault(self) -> str:
        """Say what is wrong with it; "" where nothing is."""
        for name in KINDS:
            if getattr(self, name).shape != self.ids.shape or self.ids.ndim != 1:
                return f"has '{name}' of shape {getattr(self, name).shape} beside ids of shape {self.ids.shape}"
        if not len(self.ids) or self.mask[0]:
            return "begins with a sampled token: nothing comes before it that it could be predicted from"
        if not np.isfinite(self.logprobs).all():
            return "has a log-probability that is no finite number: the engine failed; play the attempt again"
        if (self.logprobs[~self.mask] != 0).any() or (self.versions[~self.mask] != -1).any():
            return "has a log-probability or a version on a token that was not sampled"
        if not self.temperature > 0:
            return f"was sampled at temperature {self.temperature}: set the sampling temperature above 0"
        return ""

    @property
    def tokens(self) -> int:
        """Tokens trained on."""
        return int(self.mask.sum())


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Attempt:
    """One attempt at a task, as far as training needs it."""

    task_key: tuple[str, str]
    """Environment and task id."""
    env: str
    reward: float
    ending: Ending
    by_agent: bool
    """False: an infrastructure failure, which is neither scored nor trained on."""
    segments: tuple[Segment, ...]
    turns: int
    digest: str = ""
    """Of the trajectory."""
    anchors: tuple[str, ...] = ()
    """Per turn, a digest of what the agent had just been told: states that GiGPO compares. Empty: not known."""

    def __post_init__(self) -> None:
        if not math.isfinite(self.reward):
            raise SetupError(
                f"the reward of an attempt at {self.env} task {self.task_key[1]} is {self.reward}, no finite number: "
                "mend the environment's score, or leave the environment out"
            )

    @property
    def tokens(self) -> int:
        """Tokens trained on."""
        return sum(segment.tokens for segment in self.segments)

    @property
    def succeeded(self) -> bool:
        """Whether it was scored, and solved the task."""
        return self.by_agent and self.reward >= 1


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Group:
    """G attempts at one task."""

    group_id: int
    env: str
    task_id: str
    attempts: tuple[Attempt, ...]
    admitted_version: int

    @property
    def tokens(self) -> int:
        """Tokens trained on."""
        return sum(attempt.tokens for attempt in self.attempts)


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Batch:
    """Exactly B groups, in the order of their ids, for one update."""

    groups: tuple[Group, ...]


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Sample:
    """One segment, ready to train on: what its tokens are worth and how much each weighs in the loss."""

    segment: Segment
    env: str
    group_id: int
    attempt: int
    """Its place in the group."""
    advantages: Floats  # [T] 0 where mask is False
    kept: Bools  # [T] the masked tokens that are trained on: those dropped for their lag are left out
    coefficient: float
    """What the loss of one token is multiplied by; the sum over all tokens of the batch is then the batch's loss."""
    weight: float = 1.0
    """How many attempts it stands for; `coefficient` has it already."""


Metrics = dict[str, Any]
"""Name to number, names with slashes: `task/db/loss_share`. What the run writes down."""
