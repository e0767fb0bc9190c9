"""Complete groups that wait for the learner: bounded, group by group, and kept over a restart.

Decided here: the learner takes exactly B groups, those admitted first, never part of a group. The admission rule keeps
the buffer within (η + 1)·B groups, so a fuller one is a defect and says so. A group id is good for one time: what was
trained on or given up is remembered in a few numbers, and comes in no second time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec
import numpy as np

from harness.core import Ending, Value
from harness.errors import HarnessError, SetupError
from training.values import KINDS, Attempt, Batch, Group, Segment
from training.watch import Watch


class Spent(Value, frozen=True, kw_only=True):
    """Group ids that are done with, trained on or given up."""

    below: int = 0
    """Every id under this."""
    above: tuple[int, ...] = ()
    """And these."""

    def __contains__(self, group_id: int) -> bool:
        return group_id < self.below or group_id in self.above

    def spend(self, group_ids: Iterable[int]) -> Spent:
        """Return it with further ids."""
        above = set(self.above) | {each for each in group_ids if each >= self.below}
        below = self.below
        while below in above:
            above.remove(below)
            below += 1
        return Spent(below=below, above=tuple(sorted(above)))


NOTHING = Spent()


class Stopped(HarnessError):  # noqa: N818 - an outcome
    """An end was asked for, between two updates."""


class Buffer:
    """The groups that are complete and not yet trained on."""

    def __init__(self, batch: int, bound: int, groups: Iterable[Group] = (), spent: Spent = NOTHING) -> None:
        """Begin with what a checkpoint held.

        Args:
            batch: B, the groups that the learner takes at once.
            bound: the most groups that may wait.
            groups: those that waited.
            spent: ids that are done with.
        """
        self.batch = batch
        self.bound = bound
        self.spent = spent
        self._groups = {group.group_id: group for group in groups}
        self._error: BaseException | None = None
        self._stopped = False
        self._changed = asyncio.Event()
        if len(self._groups) > bound:
            raise SetupError(
                f"{len(self._groups)} groups wait in the checkpoint, and η and B now leave room for {bound}: "
                "resume with the η and B that it was written with"
            )

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def groups(self) -> tuple[Group, ...]:
        """Return what waits, the first admitted first."""
        return tuple(self._groups[each] for each in sorted(self._groups))

    def put(self, group: Group) -> None:
        """Take in a complete group. ValueError for one that was here before, or that there is no room for."""
        if group.group_id in self._groups or group.group_id in self.spent:
            raise ValueError(f"group {group.group_id} came a second time")
        if len(self._groups) >= self.bound:
            raise ValueError(f"more than {self.bound} groups wait: one was begun without capacity")
        self._groups[group.group_id] = group
        self._changed.set()

    def give_up(self, group_id: int) -> None:
        """Remember that a group will not come."""
        self.spent = self.spent.spend([group_id])

    async def take(self, watch: Watch, seconds: float) -> Batch:
        """Return the B groups admitted first, in the order of their ids, once as many are complete.

        Raises:
            Overdue: they are not, after so many seconds.
            Stopped: none is to be taken any more.
            Exception: what `fail` was told, where no more will come.
        """
        async with watch.deadline(seconds, f"waiting for {self.batch} complete groups"):
            while self._stopped or len(self._groups) < self.batch:
                if self._stopped:
                    raise Stopped("an end was asked for")
                if self._error is not None:
                    raise self._error
                self._changed.clear()
                await self._changed.wait()
        groups = self.groups[: self.batch]
        for group in groups:
            del self._groups[group.group_id]
        self.spent = self.spent.spend(group.group_id for group in groups)
        return Batch(groups=groups)

    def stop(self) -> None:
        """Have nothing taken any more; what waits stays."""
        self._stopped = True
        self._changed.set()

    def fail(self, error: BaseException) -> None:
        """Tell who waits that no more groups will come."""
        self._error = error
        self._changed.set()


class _Segment(Value, frozen=True, kw_only=True):
    arrays: dict[str, bytes]
    temperature: float


class _Attempt(Value, frozen=True, kw_only=True):
    reward: float
    ending: Ending
    by_agent: bool
    segments: tuple[_Segment, ...]
    turns: int
    digest: str
    anchors: tuple[str, ...]


class _Group(Value, frozen=True, kw_only=True):
    group_id: int
    env: str
    task_id: str
    attempts: tuple[_Attempt, ...]
    admitted_version: int


def encode(groups: Iterable[Group]) -> bytes:
    """Return groups as bytes that `decode` reads; every array to the bit."""
    return msgspec.msgpack.encode([_packed(group) for group in groups])


def decode(data: bytes) -> tuple[Group, ...]:
    """Return the groups of `encode`. SetupError where the bytes are not its own."""
    try:
        return tuple(_unpacked(group) for group in msgspec.msgpack.decode(data, type=list[_Group]))
    except (msgspec.MsgspecError, ValueError, KeyError) as error:
        raise SetupError(f"the buffer of a checkpoint cannot be read: {error}") from error


def _packed(group: Group) -> _Group:
    attempts = tuple(
        _Attempt(
            reward=one.reward,
            ending=one.ending,
            by_agent=one.by_agent,
            segments=tuple(
                _Segment(arrays={name: getattr(part, name).tobytes() for name in KINDS}, temperature=part.temperature)
                for part in one.segments
            ),
            turns=one.turns,
            digest=one.digest,
            anchors=one.anchors,
        )
        for one in group.attempts
    )
    return _Group(
        group_id=group.group_id,
        env=group.env,
        task_id=group.task_id,
        attempts=attempts,
        admitted_version=group.admitted_version,
    )


def _unpacked(group: _Group) -> Group:
    attempts = tuple(
        Attempt(
            task_key=(group.env, group.task_id),
            env=group.env,
            reward=one.reward,
            ending=one.ending,
            by_agent=one.by_agent,
            segments=tuple(
                Segment(
                    **{name: np.frombuffer(part.arrays[name], kind) for name, kind in KINDS.items()},
                    temperature=part.temperature,
                )
                for part in one.segments
            ),
            turns=one.turns,
            digest=one.digest,
            anchors=one.anchors,
        )
        for one in group.attempts
    )
    return Group(
        group_id=group.group_id,
        env=group.env,
        task_id=group.task_id,
        attempts=attempts,
        admitted_version=group.admitted_version,
    )
