"""Processes that play the episodes: agents, environments and rendering, more than one event loop has time for.

Decided here: what samples stays beside the loop, so pools are drawn, lags counted and weights taken in one place; a
player asks for its turns by answering a question that waits, so one line serves both ways, over a socket pair as in a
Ray cluster. Which player plays an attempt changes nothing of it. A player holds nothing that is not elsewhere too: one
that dies is started again, and its attempts are played again from their beginning, by the same seeds.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness import registry
from harness.config import LocalOptions
from harness.core import EnvOptions, Json, Trajectory
from harness.errors import HarnessError
from harness.models.local import LocalModel
from harness.models.sampler import Refresh, Request, Sampled, Sampler
from training.play import Order, here
from training.process import wire
from training.process.kept import Begin, Kept, beginning
from training.process.learner import surroundings
from training.process.options import ProcessOptions
from training.process.parent import Caller, Hold, Lost
from training.process.replicas import together
from training.watch import Watch

ASKED_SECONDS = 10.0
"""A question for turns is answered after so long even where there are none."""
CLOSE_SECONDS = 60.0
"""What a player has to close its environments."""


class Seats(NamedTuple):
    """What a player is made of."""

    name: str
    base: Path
    """Folder of the model: its tokenizer is read."""
    options: LocalOptions
    envs: Mapping[str, Mapping[str, Json]]
    """Environment -> its settings."""


class Asked(NamedTuple):
    """What a player wants of the engines."""

    number: int
    episode: str
    request: Request | None
    """None lets the episode go."""


class Relay:
    """Stands for the engines in a player: a `Sampler` whose turns are sampled where the run is."""

    def __init__(self) -> None:
        self.name = "relay"
        self.context = 0
        self._numbers = itertools.count()
        self._asked: deque[Asked] = deque()  # no more than a turn and an end for each episode under way
        self._there = asyncio.Event()
        self._waiting: dict[int, asyncio.Future[Sampled]] = {}

    async def open(self) -> None:
        """Be open: the engines are."""

    async def sample(self, request: Request) -> Sampled:
        """Have one turn sampled."""
        number = next(self._numbers)
        future: asyncio.Future[Sampled] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self._ask(Asked(number, request.episode, request))
        try:
            return await future
        finally:
            del self._waiting[number]

    async def release(self, episode: str) -> None:
        """Have an episode forgotten, and its turn ended if one is under way."""
        self._ask(Asked(next(self._numbers), episode, None))

    async def update(self, weights: Json, version: int, refresh: Refresh = "recompute_kv") -> None:
        """Take no weights: the run's own sampler does."""
        raise NotImplementedError

    def protocol(self) -> Mapping[str, Json]:
        """Return nothing: nothing is scored here that is compared."""
        return {}

    async def close(self) -> None:
        """Let go of nothing."""

    async def asked(self) -> list[Asked]:
        """Return what was asked since the last call; wait for something, if not for long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ASKED_SECONDS):
                await self._there.wait()
        found = list(self._asked)
        self._asked.clear()
        self._there.clear()
        return found

    def answered(self, number: int, sampled: Sampled | None, fault: wire.Fault | None) -> None:
        """Hand a turn, or why there is none, to who waits for it."""
        if (future := self._waiting.get(number)) is None or future.done():
            return
        if sampled is not None:
            future.set_result(sampled)
        elif fault is not None:
            future.set_exception(wire.error_of(fault, "the engines"))

    def _ask(self, asked: Asked) -> None:
        self._asked.append(asked)
        self._there.set()


class Playing:
    """A player, in its own process: the environments, the agent, and a model whose engines are elsewhere."""

    def __init__(self, seats: Seats) -> None:
        self._relay = Relay()
        self._model = LocalModel(seats.name, seats.base, self._relay, seats.options)
        self._envs = {name: registry.make_env(name, EnvOptions(settings=each)) for name, each in seats.envs.items()}
        self._play = here(self._envs, registry.make_agent("direct"), self._model)

    async def open(self, name: str, context: int) -> None:
        """Open the environments; the engines are called so, and hold so many tokens."""
        self._relay.name, self._relay.context = name, context
        for env in self._envs.values():
            await env.open()

    async def play(self, order: Order) -> tuple[Trajectory, int]:
        """Play an attempt; return it, and how often a template rewrote a history since the start."""
        return await self._play(order), self._model.forks

    async def asked(self) -> list[Asked]:
        """Return what the engines are wanted for."""
        return await self._relay.asked()

    async def answered(self, number: int, sampled: Sampled | None, fault: wire.Fault | None) -> None:
        """Take a turn, or why there is none."""
        self._relay.answered(number, sampled, fault)

    async def close(self) -> None:
        """Close the environments."""
        for env in self._envs.values():
            await env.close()


class Player:
    """One player's process, and the turns that are sampled for it."""

    def __init__(
        self,
        name: str,
        begin: Begin,
        sampler: Sampler,
        options: ProcessOptions,
        say: Callable[[str], None],
    ) -> None:
        self.under_way = 0
        """Attempts that it plays."""
        self.forks = 0
        self._sampler = sampler
        self._kept = Kept(name, begin, self._load, options, say)
        self._caller: Caller | None = None
        self._relaying: asyncio.Task[None] | None = None
        self._episodes: dict[str, set[asyncio.Task[None]]] = defaultdict(set)
        """Episode that has not been let go -> its turns under way."""
        self._releases: set[asyncio.Task[None]] = set()
        self._broken: asyncio.Future[HarnessError] = asyncio.get_running_loop().create_future()

    async def open(self) -> None:
        """Start it. What its environments raise is raised here."""
        await self._kept.running()

    async def play(self, order: Order) -> Trajectory:
        """Play an attempt, from its beginning again where the process died."""
        self.under_way += 1
        trajectory: Trajectory
        try:
            trajectory, forks = await self._kept.call("play", order)
        finally:
            self.under_way -= 1
        self.forks = max(self.forks, forks)
        return trajectory

    async def gone(self) -> HarnessError:
        """Wait until it is lost for good, and return why."""
        lost = asyncio.ensure_future(self._kept.gone())
        try:
            done, _ = await asyncio.wait([lost, self._broken], return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            lost.cancel()

    async def close(self) -> None:
        """Close its environments, and end it."""
        if self._caller is not None:
            with contextlib.suppress(HarnessError):  # it is gone, and they with it
                await self._caller.call("close", seconds=CLOSE_SECONDS)
        await self._let_go()
        await self._kept.close()

    async def _load(self, caller: Caller) -> None:
        """Open a new process's environments, once nothing is done any more for the one before."""
        await self._let_go()
        seconds = self._kept.options.start_seconds
        await caller.call("open", self._sampler.name, self._sampler.context, seconds=seconds)
        self._caller = caller
        self._relaying = asyncio.create_task(self._relay(caller), name="turns of a player")

    async def _relay(self, caller: Caller) -> None:
        """Have sampled what the player asks for, until it is gone."""
        try:
            while True:
                for asked in await caller.call("asked", seconds=self._kept.options.call_seconds):
                    if asked.request is None:
                        _held(self._releases, self._release(asked.episode))
                    else:
                        _held(self._episodes[asked.episode], self._turn(caller, asked.number, asked.request))
        except Lost:
            pass  # `Kept` starts it again, or says why not
        except HarnessError as error:
            if not self._broken.done():
                self._broken.set_result(error)

    async def _turn(self, caller: Caller, number: int, request: Request) -> None:
        try:
            caller.tell("answered", number, await self._sampler.sample(request), None)
        except Exception as error:  # the player's to judge
            caller.tell("answered", number, None, wire.fault_of(error))

    async def _release(self, episode: str) -> None:
        turns = self._episodes.pop(episode, set())
        for turn in turns:
            turn.cancel()
        await asyncio.gather(*turns, return_exceptions=True)
        await self._sampler.release(episode)

    async def _let_go(self) -> None:
        """End what is done for the player, and have its episodes forgotten."""
        if self._relaying is not None:
            self._relaying.cancel()
            await asyncio.gather(self._relaying, return_exceptions=True)
        self._relaying = self._caller = None
        await asyncio.gather(*self._releases, *map(self._release, [*self._episodes]), return_exceptions=True)


def _held(tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
    """Begin work, and keep it among others until it is done."""
    task = asyncio.create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


class Players:
    """All players: an attempt goes to the one that plays the fewest."""

    def __init__(self, players: Sequence[Player]) -> None:
        self._players = tuple(players)
        self.gone = tuple(player.gone for player in self._players)

    @property
    def forks(self) -> int:
        """How often a chat template rewrote a history, as far as is known."""
        return sum(player.forks for player in self._players)

    async def open(self) -> None:
        """Start all, side by side."""
        await together([each.open() for each in self._players])

    async def play(self, order: Order) -> Trajectory:
        """Play an attempt."""
        return await min(self._players, key=lambda each: each.under_way).play(order)

    async def close(self) -> None:
        """End all."""
        await asyncio.gather(*(each.close() for each in self._players), return_exceptions=True)


def describe(
    seats: Seats, sampler: Sampler, processes: ProcessOptions, *,
    folder: Path, watch: Watch, say: Callable[[str], None], hold: Hold,
) -> Players:  # fmt: skip
    """Return the players of a run, each in a process of its own.

    Args:
        seats: what each is made of.
        sampler: what samples their turns, here.
        processes: how many, deadlines and restarts.
        folder: of the run, where the processes' output goes.
        watch: whose deadlines hold.
        say: is told when one is started again.
        hold: what holds them.
    """
    make = functools.partial(Playing, seats)
    names = [f"player {place}" for place in range(processes.players)]
    begins = [beginning(hold, name, make, folder, watch, processes, surroundings(1)) for name in names]
    return Players([Player(*each, sampler, processes, say) for each in zip(names, begins, strict=True)])
