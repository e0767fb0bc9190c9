"""Plays groups of G attempts at one task, many groups at once, as far as the admission rule lets it.

Decided here: what the agent brought about is worth what `samples` says it is; what infrastructure broke is played again
under the same seed, a bounded number of times a group, and then the whole group is dropped and its capacity given back.
An environment of which group after group is dropped ends the run with a sentence. Of losses nothing is known here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Annotated

import msgspec

from harness.core import Count, Env, Limits, Natural, SamplingParams, Seconds, Task, Trajectory, Value
from harness.errors import EnvError, HarnessError, SetupError
from training import curriculum as choosing
from training import samples, staleness
from training.buffer import Buffer
from training.counts import Counts
from training.curriculum import Choice, Curriculum, CurriculumOptions
from training.play import Order, Play
from training.policies import pool_of
from training.staleness import Admission, Tally
from training.streams import Stream
from training.values import Attempt, Batch, Group, Metrics
from training.watch import Overdue, Watch

STOP_SECONDS = 120.0
MOST_RETRY_SECONDS = 60.0


class CollectOptions(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How groups are played."""

    group_size: Count = 8
    """G: attempts at one task."""
    split: str = "train"
    params: SamplingParams = SamplingParams(temperature=1.0, top_p=1.0)
    limits: Limits = Limits()
    abnormal_reward: float = samples.ABNORMAL_REWARD
    retries: Natural = 3
    """Attempts of one group that are played again after a failure that was not the agent's."""
    retry_seconds: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    """Before the first of them; twice as long before each further one, up to `MOST_RETRY_SECONDS`."""
    group_seconds: Seconds = 3600.0
    """Deadline of a group; then it is dropped."""
    batch_seconds: Seconds = 7200.0
    """Deadline of the learner's wait for B groups, and of the collector's for capacity."""
    most_failed: Count = 8
    """Groups of one environment that fail in a row, after which the run ends: it does not work."""
    most_alike: Natural = 0
    """Dynamic sampling (DAPO): groups of one environment in a row that are dropped, and others played for them, because
    all attempts were worth the same. Which are then trained on depends on timing."""
    seed: int = 0


class Table(Value, frozen=True, kw_only=True):
    """Who plays, and where; all of them open."""

    envs: Mapping[str, Env]
    play: Play
    """Plays an attempt; its replies have their tokens, as a `LocalModel`'s have."""
    held_out: Mapping[str, Collection[str]] = {}
    """Environment -> digests of the tasks that are passed over in a train split, as a held-out split has them too."""


class Dropped(HarnessError):  # noqa: N818 - an outcome
    """A group came to nothing; the message says why."""


class Collector:
    """The groups under way. `run` begins them; `batch` hands the learner what is complete; `published` moves on."""

    def __init__(
        self,
        table: Table,
        options: CollectOptions,
        course: CurriculumOptions,
        *,
        admission: Admission,
        curriculum: Curriculum,
        buffer: Buffer,
        watch: Watch,
        keep: Callable[[Trajectory], None] = lambda trajectory: None,
    ) -> None:
        """Continue where the given values stand.

        Args:
            table: who plays where.
            options: how groups are played.
            course: how tasks are chosen.
            admission: as `staleness.restarted` makes it.
            curriculum: new, or a checkpoint's; what it has open and the buffer has not is played first.
            buffer: where complete groups go.
            watch: whose deadlines hold.
            keep: is shown every attempt, those that failed included.
        """
        self.admission = admission
        self.curriculum = curriculum
        self.buffer = buffer
        self.counts = Counts()
        self._table = table
        self._options = options
        self._course = course
        self._watch = watch
        self._keep = keep
        self._owed = choosing.owed(curriculum, buffer.groups)
        self._streams = {
            name: _stream(env, options.split, table.held_out.get(name, ())) for name, env in table.envs.items()
        }
        self._gates = {name: asyncio.Semaphore(most) for name, env in table.envs.items() if (most := env.max_sessions)}
        self._running: dict[int, asyncio.Task[None]] = {}
        self._half: dict[int, list[Attempt]] = {}
        self._failed_in_a_row = dict.fromkeys(table.envs, 0)
        self._alike_in_a_row = dict.fromkeys(table.envs, 0)
        self._wake = asyncio.Event()
        watch.queue("groups running", lambda: len(self._running))
        watch.queue("groups complete", lambda: len(self.buffer))
        watch.queue("groups that may begin", lambda: self.admission.capacity)

    async def run(self) -> None:
        """Begin groups whenever there is capacity, until cancelled. What ends it is told to who waits for a batch."""
        try:
            while True:
                while self.admission.capacity > 0:
                    self._begin(self._next())
                self._wake.clear()
                async with self._watch.deadline(self._options.batch_seconds, "waiting for capacity to begin a group"):
                    await self._wake.wait()
                for task in [task for task in self._running.values() if task.done()]:
                    task.result()
                self._running = {number: task for number, task in self._running.items() if not task.done()}
        except BaseException as error:
            try:
                await self._stop()
            finally:  # told last: who is told may end this task, and must find nothing under way
                self.buffer.fail(error if isinstance(error, Exception) else Dropped("the collector was stopped"))
            raise

    async def batch(self) -> Batch:
        """Return the next B groups to train on.

        Raises:
            Overdue: they do not come in time.
            Stopped: none is to be taken any more.
            Exception: what ended `run`.
        """
        batch = await self.buffer.take(self._watch, self._options.batch_seconds)
        self.curriculum = choosing.trained(self.curriculum, self._course, batch.groups)
        return batch

    def published(self, version: int) -> None:
        """Let go on under new weights."""
        self.admission = self.admission.published(version)
        self._wake.set()

    def unfinished(self) -> Tally:
        """Return the tokens of attempts that wait for the rest of their group."""
        return staleness.tally(one for half in self._half.values() for one in half)

    def metrics(self) -> Metrics:
        """Return what was played since the last call, and how the environments stand."""
        found = {**self.counts.metrics(), **choosing.metrics(self.curriculum)}
        self.counts = Counts()
        return {**found, "queue/running": len(self._running), "queue/complete": len(self.buffer)}

    def _next(self) -> Choice:
        if self._owed:
            return self._owed.pop(0)
        self.curriculum, choice = choosing.choose(self.curriculum, self._course, self._options.seed)
        return choice

    def _begin(self, choice: Choice) -> None:
        version = self.admission.version
        self.admission = self.admission.begun()
        task = asyncio.create_task(self._group(choice, version), name=f"group {choice.group_id} {choice.env}")
        task.add_done_callback(self._ended)
        self._running[choice.group_id] = task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()  # `run` raises the first; without this, groups that fail beside it are told as forgotten
        self._wake.set()

    async def _group(self, choice: Choice, version: int) -> None:
        """Play one group to its end: complete, or dropped."""
        self._half[choice.group_id] = []
        try:
            async with self._watch.deadline(self._options.group_seconds, f"group {choice.group_id} of {choice.env}"):
                task = await self._streams[choice.env].task(choice.index)
                attempts = await self._attempts(choice, task, version)
        except (Dropped, Overdue, EnvError) as error:
            self._drop(choice, "overdue" if isinstance(error, Overdue) else "failed")
            self._require_working(choice.env, error)
            return
        finally:
            del self._half[choice.group_id]
        self._failed_in_a_row[choice.env] = 0
        group = Group(
            group_id=choice.group_id,
            env=choice.env,
            task_id=task.id,
            attempts=attempts,
            admitted_version=version,
        )
        self.counts.group(group)
        if self._says_nothing(group):
            self._drop(choice, "all_alike")
            return
        self.buffer.put(group)
        self.admission = self.admission.finished()

    async def _attempts(self, choice: Choice, task: Task, version: int) -> tuple[Attempt, ...]:
        """Play the G attempts at once. The first that cannot be played ends the others."""
        tries = _Tries(self._options)
        try:
            async with asyncio.TaskGroup() as group:
                playing = [
                    group.create_task(
                        self._attempt(choice, task, place, version, tries), name=f"group {choice.group_id}/{place}"
                    )
                    for place in range(self._options.group_size)
                ]
        except BaseExceptionGroup as errors:
            # A defect is told before an outcome.
            raise min(errors.exceptions, key=lambda error: isinstance(error, Dropped)) from errors
        return tuple(each.result() for each in playing)

    async def _attempt(self, choice: Choice, task: Task, place: int, version: int, tries: _Tries) -> Attempt:
        """Play one attempt, again where infrastructure failed. Dropped where it has failed too often."""
        for number in range(self._options.retries + 1):
            trajectory = await self._rollout(choice, task, place, number, version)
            self.counts.attempt(choice.env, trajectory)
            self._keep(trajectory)
            attempt, failure = _judged(choice.env, trajectory, self._options.abnormal_reward)
            if attempt is not None:
                self._half[choice.group_id].append(attempt)
                return attempt
            await tries.again(failure)
        raise Dropped(tries.failure)

    async def _rollout(self, choice: Choice, task: Task, place: int, number: int, version: int) -> Trajectory:
        gate = self._gates.get(choice.env)
        if gate is not None:
            await gate.acquire()  # within the group's deadline
        try:
            return await self._table.play(
                Order(
                    env=choice.env,
                    task=task,
                    params=self._options.params,
                    limits=self._limits(choice.env, version),
                    entry=f"group-{choice.group_id}",
                    epoch=place,
                    attempt=number,
                    seed=choosing.episode_seed(self._options.seed, choice, place),
                )
            )
        finally:
            if gate is not None:
                gate.release()

    def _limits(self, env: str, version: int) -> Limits:
        scheduled, own = choosing.turns(self._course, env, version), self._options.limits.turns
        most = min((each for each in (scheduled, own) if each is not None), default=None)
        return msgspec.structs.replace(self._options.limits, turns=most)

    def _says_nothing(self, group: Group) -> bool:
        """Whether a group is one that another is played for (DAPO's dynamic sampling), within the bound."""
        alike = len({one.reward for one in group.attempts}) == 1
        row = self._alike_in_a_row[group.env] + 1 if alike else 0
        self._alike_in_a_row[group.env] = row if row <= self._options.most_alike else 0
        return 0 < row <= self._options.most_alike

    def _drop(self, choice: Choice, reason: str) -> None:
        self.admission = self.admission.dropped()
        self.curriculum = choosing.given_up(self.curriculum, choice.group_id)
        self.buffer.give_up(choice.group_id)
        self.counts.drop(choice.env, reason)

    def _require_working(self, env: str, error: Exception) -> None:
        self._failed_in_a_row[env] += 1
        if (count := self._failed_in_a_row[env]) == self._options.most_failed:  # said once; the run ends
            raise SetupError(
                f"{count} groups of {env} in a row came to nothing ({error}): mend that, or leave {env} out; "
                f"`harness validate {env}` tries the environment alone"
            )

    async def _stop(self) -> None:
        """End what is under way; it stays owed in the curriculum."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_SECONDS)
        self.admission = msgspec.structs.replace(self.admission, running=0)
        self._running = {}


class _Tries:
    """How often attempts of one group may still be played again."""

    def __init__(self, options: CollectOptions) -> None:
        self._left = options.retries
        self._wait = options.retry_seconds
        self.failure = ""

    async def again(self, failure: str) -> None:
        """Wait before the next try. Dropped where there is none left."""
        self.failure = failure
        if not self._left:
            raise Dropped(failure)
        self._left -= 1
        wait, self._wait = self._wait, min(2 * self._wait, max(self._wait, MOST_RETRY_SECONDS))
        await asyncio.sleep(wait)


def _judged(env: str, trajectory: Trajectory, abnormal_reward: float) -> tuple[Attempt | None, str]:
    """Return an attempt to train on, or why there is none: infrastructure failed, its numbers included.

    Its environment has the name by which it is trained on, as shares and horizons have; its own may be another.
    """
    failure = f"not scored, ended by {trajectory.ending.value}"
    if trajectory.failure is not None:
        failure = f"{trajectory.failure.boundary}: {trajectory.failure.message}"
    if not trajectory.ending.by_agent or trajectory.score.value is None:
        return None, failure
    try:
        made = samples.attempt(trajectory, pool_of, abnormal_reward)
        return replace(made, env=env, task_key=(env, trajectory.task_id)), ""
    except SetupError as error:
        return None, str(error)


def _stream(env: Env, split: str, held_out: Collection[str]) -> Stream:
    return Stream(f"{split} of {env.name}", lambda: (task for task in env.tasks(split) if task.digest not in held_out))
