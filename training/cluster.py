"""Learner, engines and players as actors of a Ray cluster: where they are placed, and how they are called.

Decided here: an actor holds the same object that a child process does, by the same rule (`child.Holder`), so the loop,
the learner and the engines know nothing of it, and the rules of `processes` hold: an actor whose process or node dies
is `Lost`, an engine or a player is started again wherever there is room, a learner goes back to its last checkpoint.
The loop, the collector's bookkeeping and the evaluations stay with whoever calls `harness train`.

Weights go by the run's folder, which every node must see under the same path: snapshots and checkpoints are read again
long after they were written, by stale pools, by evaluations and by a run that is taken up, when an object store may
have died with its node. Each actor shows before its first work that it sees the folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from harness.config import Strict
from harness.core import Seconds
from harness.errors import HarnessError, SetupError
from harness.service import cluster
from training.machine import PATIENT
from training.process import wire
from training.process.child import Holder
from training.process.options import ProcessOptions
from training.process.parent import BEATS, Hold, Lost, Process, last_words
from training.watch import Overdue, Watch

MOST_CALLS = 10_000
"""Under way in one actor."""
END_SECONDS = 30.0
"""What an actor has to be gone, once it was ended."""

Share = Annotated[float, msgspec.Meta(ge=0)]


class ClusterOptions(Strict, frozen=True, kw_only=True):
    """Where learner, engines and players run: it changes speed, never what is learnt, and is in no recipe's digest."""

    address: str | None = None
    """Of a Ray cluster, as Ray has it; `auto` is the one that this machine belongs to. None uses none."""
    learner_cpus: Share = 1.0
    """What each rank of the learner takes of its node,"""
    learner_gpus: Share = 0.0
    engine_cpus: Share = 1.0
    """and each replica of the engines (`processes.replicas`)."""
    engine_gpus: Share = 0.0
    player_cpus: Share = 1.0
    """What each player takes (`processes.players`)."""
    connect_seconds: Seconds = 120.0


class Holds(NamedTuple):
    """What holds the parts of a run that have processes of their own."""

    learner: Hold
    engine: Hold
    player: Hold


class Resources(NamedTuple):
    """What an actor takes of its node."""

    cpus: float
    gpus: float


class Held:
    """What an actor is: one object, as a child process has it."""

    def __init__(self) -> None:
        self._holder = Holder()

    async def make(self, make: Callable[[], Any], log: str, mark: str) -> wire.Answer:
        """Make the object, if `mark`, which the run has just written, is seen here; print to `log` from now on."""
        try:
            _look_for(mark)
            _print_to(log)
        except (SetupError, OSError) as error:
            return wire.Answer(0, None, wire.fault_of(error))
        return await _answer(self._holder.make(make))

    async def call(self, method: str, arguments: Sequence[Any]) -> wire.Answer:
        """Call a method of the object."""
        return await _answer(self._holder.call(method, arguments))

    async def beat(self) -> int:
        """Give a sign of life: the process id."""
        return os.getpid()

    async def stay(self) -> None:
        """Never return: whoever waits for it learns of the actor's end."""
        await asyncio.Event().wait()


async def _answer(work: Any) -> wire.Answer:
    try:
        return wire.Answer(0, await work)
    except Exception as error:
        return wire.Answer(0, None, wire.fault_of(error))


def _look_for(mark: str) -> None:
    if not Path(mark).exists():
        raise SetupError(
            f"node {os.uname().nodename} does not see {Path(mark).parent}: give --out a folder that all nodes of the "
            "cluster share under the same path"
        )


def _print_to(log: str) -> None:
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)


class Actor:
    """An actor of a Ray cluster and the object in it: a `Caller`, as `Process` is."""

    def __init__(
        self,
        resources: Resources,
        name: str,
        make: Callable[[], Any],
        log: Path,
        watch: Watch,
        options: ProcessOptions,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Describe an actor; `start` starts it. All but `resources` is as for `Process`."""
        self.name = name
        self.error: HarnessError | None = None
        """Why it is lost."""
        self._resources = resources
        self._make = make
        self._log = log
        self._watch = watch
        self._options = options
        self._environment = {**PATIENT, **(environment or {})}
        if resources.gpus and "LOCAL_RANK" in self._environment:
            self._environment["LOCAL_RANK"] = "0"  # an actor sees the GPU that is its own, and no other
        self._actor: Any = None
        self._pending: set[asyncio.Future[Any]] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._lost: asyncio.Future[HarnessError] = asyncio.Future()
        self._ended = asyncio.Event()
        self._closing = False
        self._log_begin = 0

    async def start(self) -> None:
        """Have the actor placed, and make the object. What that raises is raised here."""
        import ray

        cpus, gpus = self._resources
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._log_begin = self._log.stat().st_size if self._log.exists() else 0
        self._actor = (
            ray.remote(Held)
            .options(
                num_cpus=cpus, num_gpus=gpus, max_concurrency=MOST_CALLS, max_restarts=0,
                runtime_env={"env_vars": self._environment},
            )
            .remote()
        )  # fmt: skip
        self._watch.queue(f"calls of {self.name}", lambda: len(self._pending))
        self._tasks = [asyncio.create_task(self._stay(), name=f"end of {self.name}")]
        seconds = self._options.start_seconds
        mark = self._log.parent / f".{secrets.token_hex(8)}"
        try:
            room = f"{self.name}: finding a node with {cpus:g} CPUs and {gpus:g} GPUs to spare"
            await self._await(self._actor.beat.remote(), seconds, room)
            mark.touch()
            await self._take("make", self._make, str(self._log), str(mark), seconds=seconds)
        except BaseException:
            await self.close()
            raise
        finally:
            mark.unlink(missing_ok=True)
        self._tasks.append(asyncio.create_task(self._listen(), name=f"life of {self.name}"))

    async def call(self, method: str, *arguments: Any, seconds: float) -> Any:
        """Call a method of the object, and return or raise what it does.

        Raises:
            Lost: the actor or its node is dead, or out of reach.
            Overdue: there was no answer in time.
        """
        return await self._take("call", method, arguments, seconds=seconds)

    def tell(self, method: str, *arguments: Any) -> None:
        """Call a method without waiting for what it does."""
        if self._actor is not None and self.error is None and not self._closing:
            self._actor.call.remote(method, arguments)

    async def gone(self) -> HarnessError:
        """Wait until the actor is lost, and return why."""
        return await asyncio.shield(self._lost)

    async def close(self) -> None:
        """End the actor, and wait until it is gone."""
        import ray

        if self._actor is None:
            return
        self._closing = True
        self._settle(Lost(f"the actor of {self.name} is closed"))
        with contextlib.suppress(Exception):  # it is gone, or the cluster is
            ray.kill(self._actor)
        if self.error is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    await self._ended.wait()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._actor = None

    async def _take(self, entry: str, *arguments: Any, seconds: float) -> Any:
        """Call the actor itself, and take its answer apart."""
        if self.error is not None:
            raise self.error
        if self._actor is None or self._closing:
            raise Lost(f"the actor of {self.name} is closed")
        if len(self._pending) >= MOST_CALLS - 2:  # `stay` and `beat` must not wait behind them
            raise Lost(f"{MOST_CALLS:,} calls wait for {self.name}")
        what = f"{self.name}: {arguments[0] if entry == 'call' else entry}"
        answer: wire.Answer = await self._await(getattr(self._actor, entry).remote(*arguments), seconds, what)
        if answer.fault is not None:
            raise wire.error_of(answer.fault, self.name)
        return answer.value

    async def _await(self, reference: Any, seconds: float, what: str) -> Any:
        """Wait for one of the actor's values, or until it is lost."""
        import ray

        future = _future(reference)
        self._pending.add(future)
        try:
            async with self._watch.deadline(seconds, what):
                return await future
        except (asyncio.CancelledError, Overdue):
            with contextlib.suppress(Exception):  # it is gone, or the cluster is
                ray.cancel(reference)
            raise
        except ray.exceptions.RayTaskError:  # what it said could not be carried here: a defect
            raise
        except ray.exceptions.RayError as error:
            self._fail(self._loss(error))
            raise (self.error or self._loss(error)) from error
        finally:
            self._pending.discard(future)

    async def _stay(self) -> None:
        """Notice the actor's end."""
        import ray

        try:
            await _future(self._actor.stay.remote())
        except ray.exceptions.RayError as error:
            self._ended.set()
            if not self._closing:
                self._fail(self._loss(error))

    async def _listen(self) -> None:
        """Ask for signs of life. Counted in looks, so that a driver that itself stood still blames nobody."""
        looks, beat = 0, _future(self._actor.beat.remote())
        while self.error is None:
            await asyncio.sleep(self._options.silent_seconds / BEATS)
            if beat.done():
                looks, beat = 0, _future(self._actor.beat.remote())
            elif (looks := looks + 1) >= BEATS:
                why = f"the actor of {self.name} gave no sign of life for {self._options.silent_seconds:g} seconds"
                self._watch.report(why)
                self._fail(Overdue(f"{why}: what everything was doing is above; its own words are in {self._log}"))

    def _loss(self, error: Exception) -> Lost:
        reason = " ".join(str(error).split()).partition(". ")[0][:300] or type(error).__name__
        return Lost(f"the actor of {self.name} is lost ({reason}){last_words(self._log, self._log_begin)}")

    def _fail(self, error: HarnessError) -> None:
        if self.error is None:
            self.error = error
            self._settle(error)
            self._lost.set_result(error)

    def _settle(self, error: HarnessError) -> None:
        """Tell all who wait that there will be no answer."""
        for future in self._pending:
            if not future.done():
                future.set_exception(error)


def _future(reference: Any) -> asyncio.Future[Any]:
    """Return a value of Ray's as a future that may be given up or settled here, without Ray's own being touched."""
    own: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def copy(done: asyncio.Future[Any]) -> None:
        error = None if done.cancelled() else done.exception()
        if own.done():
            return
        if error is not None:
            own.set_exception(error)
        elif not done.cancelled():
            own.set_result(done.result())

    own.add_done_callback(lambda done: None if done.cancelled() else done.exception())  # nobody may ask for it
    asyncio.wrap_future(reference.future()).add_done_callback(copy)
    return own


def require(options: ClusterOptions, processes: ProcessOptions) -> None:
    """Refuse a cluster that cannot be used. SetupError with the remedy."""
    if options.address is None:
        return
    if find_spec("ray") is None:
        raise SetupError("a cluster needs the package 'ray': pip install -e '.[cluster]'")
    if not (processes.learner and processes.engine):
        raise SetupError("on a cluster learner and engines are actors: leave processes.learner and .engine true")


@contextlib.asynccontextmanager
async def joined(options: ClusterOptions, processes: ProcessOptions) -> AsyncIterator[Holds]:
    """Be part of the cluster inside, and give what holds the parts of a run: child processes where there is none.

    Raises:
        SetupError: Ray is missing, or there is no cluster at the address.
    """
    require(options, processes)
    if options.address is None:
        yield Holds(Process, Process, Process)
        return
    async with cluster.joined(options.address, options.connect_seconds):
        yield Holds(
            functools.partial(Actor, Resources(options.learner_cpus, options.learner_gpus)),
            functools.partial(Actor, Resources(options.engine_cpus, options.engine_gpus)),
            functools.partial(Actor, Resources(options.player_cpus, 0.0)),
        )
