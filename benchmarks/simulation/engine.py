"""An engine that computes nothing and takes as long: replicas that share each step among the sequences under way.

Decided here: all sequences of a replica advance together, a token a step, and a step's seconds follow from how many
there are and how much they hold; a prompt that is not cached stops them for as long as it takes. An episode stays on
its replica. New weights reach a replica between two tokens (`interrupt`: all caches are computed anew), once no turn is
under way (`turn`: none begins until then), or once no episode is (`episode`). It runs in virtual and in real time.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable
from typing import Literal

from benchmarks.simulation.costs import Decode
from harness.core import Json
from harness.models.sampler import Refresh, Request, Sampled

Arrival = Literal["interrupt", "turn", "episode"]
STRIDE = 512.0
"""Steps after which a step's seconds are found again: what the sequences hold has grown."""
MARKS = 64
"""Updates that are remembered, as far back as a turn can have begun."""


class Turn:
    """One turn under way or waiting; tokens are real ones."""

    __slots__ = ("begun", "cached", "context", "done", "tokens")

    def __init__(self, context: int, cached: int, tokens: int) -> None:
        self.context = context
        self.cached = cached
        self.tokens = tokens
        self.begun = 0.0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Replica:
    """One GPU."""

    def __init__(self, decode: Decode) -> None:
        self.episodes = 0
        """That stay on it."""
        self.refreshes = 0
        """How often its caches have become worthless."""
        self.marks: deque[tuple[float, int]] = deque([(0.0, 0)], maxlen=MARKS)
        self._decode = decode
        self._busy = 0.0
        self._steps = 0.0
        self._held = 0.0
        self._reserved = 0
        self._running: list[tuple[float, int, Turn]] = []
        self._waiting: deque[Turn] = deque()
        self._order = itertools.count()
        self._free_at = self._last = asyncio.get_running_loop().time()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._empty = asyncio.Event()
        self._empty.set()

    def submit(self, turn: Turn) -> None:
        """Take in a turn; its future is settled when it is sampled."""
        self._waiting.append(turn)
        self._advance()
        self._go_on()

    def busy(self) -> float:
        """Return the seconds in which it computed."""
        self._advance()
        return self._busy

    def versions(self, turn: Turn, count: int) -> tuple[int, ...]:
        """Return the weights that sampled each of `count` equal parts of a turn that is done."""
        marks = list(self.marks)
        if marks[-1][0] <= turn.begun:
            return (marks[-1][1],) * count
        found, place = [], 0
        for part in range(count):
            at = turn.begun + turn.tokens * part / count
            while place + 1 < len(marks) and marks[place + 1][0] <= at:
                place += 1
            found.append(marks[place][1])
        return tuple(found)

    async def refresh(self, version: int, seconds: float, *, drained: bool) -> None:
        """Take new weights: at once, or once no turn is under way."""
        if drained:
            self._closed = True
            await self._empty.wait()
            self._closed = False
        self._advance()
        self.refreshes += 1
        self._stall(seconds + self._held * self._decode.prompt)
        self.marks.append((self._steps, version))
        self._go_on()

    def _advance(self) -> None:
        """Bring everything up to now."""
        now = asyncio.get_running_loop().time()
        computing = now if self._running else min(now, self._free_at)
        self._busy += max(0.0, computing - self._last)
        since = max(self._last, self._free_at)
        if self._running and now > since:
            steps = (now - since) / self._seconds
            self._steps += steps
            self._held += steps * len(self._running)
        self._last = now

    def _stall(self, seconds: float) -> None:
        self._free_at = max(self._free_at, self._last) + seconds

    def _go_on(self) -> None:
        """Finish what is done, begin what there is room for, and wake up when the next is done."""
        while self._running and self._running[0][0] <= self._steps + 1e-6:
            _, _, turn = heapq.heappop(self._running)
            self._reserved -= turn.context + turn.tokens
            self._held -= turn.context + turn.tokens
            if not turn.done.done():  # called off
                turn.done.set_result(None)
        while self._waiting and not self._closed and self._fits(self._waiting[0]):
            self._begin(self._waiting.popleft())
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._running:
            self._held = 0.0
            self._empty.set()
            return
        self._empty.clear()
        self._seconds = self._decode.seconds(len(self._running), max(0.0, self._held))
        ahead = min(self._running[0][0] - self._steps, STRIDE) * self._seconds
        self._timer = asyncio.get_running_loop().call_at(max(self._last, self._free_at) + ahead, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._advance()
        self._go_on()

    def _fits(self, turn: Turn) -> bool:
        return not self._running or self._reserved + turn.context + turn.tokens <= self._decode.room

    def _begin(self, turn: Turn) -> None:
        self._stall((turn.context - turn.cached) * self._decode.prompt)
        turn.begun = self._steps
        self._reserved += turn.context + turn.tokens
        self._held += turn.context
        heapq.heappush(self._running, (self._steps + turn.tokens, next(self._order), turn))


class _Stay:
    """An episode on its replica."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.held = 0
        self.refreshes = replica.refreshes


class SimulatedEngine:
    """Replicas behind the interface of an engine. A request's `max_tokens` is how many tokens its turn will have."""

    def __init__(self, decode: Decode, replicas: int, grain: int, update_seconds: float, arrival: Arrival) -> None:
        self.name = "simulated"
        self.context = 2**31
        self._decode = decode
        self._count = replicas
        self._grain = grain
        self._update_seconds = update_seconds
        self._arrival = arrival
        self._replicas: list[Replica] = []
        self._stays: dict[str, _Stay] = {}
        self._after: Callable[[], None] | None = None
        self._updating: set[asyncio.Task[None]] = set()
        self.most_open = 0

    async def open(self) -> None:
        """Start the replicas."""
        self._replicas = [Replica(self._decode) for _ in range(self._count)]

    @property
    def busy(self) -> float:
        """Seconds in which replicas computed, all together."""
        return sum(replica.busy() for replica in self._replicas)

    async def sample(self, request: Request) -> Sampled:
        """Take as long as a turn of `max_tokens` takes."""
        stay = self._stays.get(request.episode) or self._arrive(request.episode)
        replica = stay.replica
        context = len(request.prompt_ids) * self._grain
        cached = stay.held if stay.refreshes == replica.refreshes else 0
        turn = Turn(context, min(cached, context), request.max_tokens * self._grain)
        begun = asyncio.get_running_loop().time()
        replica.submit(turn)
        await turn.done
        stay.held, stay.refreshes = context + turn.tokens, replica.refreshes
        return Sampled(
            ids=(0,) * request.max_tokens,
            logprobs=(-1.0,) * request.max_tokens,
            versions=replica.versions(turn, request.max_tokens),
            finish="stop",
            engine=self.name,
            seconds=asyncio.get_running_loop().time() - begun,
        )

    async def release(self, episode: str) -> None:
        """Forget an episode; what waited for the last of them happens."""
        stay = self._stays.pop(episode, None)
        if stay is not None:
            stay.replica.episodes -= 1
        if not self._stays and self._after is not None:
            self._after()

    async def update(self, weights: Json, version: int, refresh: Refresh = "recompute_kv") -> None:
        """Serve new weights, as soon as they may arrive."""
        if self._arrival == "episode":
            self._after = lambda: self._begin_update(version)
            if not self._stays:
                self._after()
            return
        await self._update(version)

    def protocol(self) -> dict[str, Json]:
        """Return nothing: nothing is scored on it."""
        return {}

    async def close(self) -> None:
        """End an update that is under way."""
        for task in tuple(self._updating):
            task.cancel()
            await asyncio.wait([task])

    def _arrive(self, episode: str) -> _Stay:
        replica = min(self._replicas, key=lambda each: each.episodes)
        replica.episodes += 1
        stay = self._stays[episode] = _Stay(replica)
        self.most_open = max(self.most_open, len(self._stays))
        return stay

    def _begin_update(self, version: int) -> None:
        self._after = None
        task = asyncio.get_running_loop().create_task(self._update(version))
        self._updating.add(task)
        task.add_done_callback(self._updating.discard)

    async def _update(self, version: int) -> None:
        drained = self._arrival == "turn"
        seconds = self._update_seconds
        await asyncio.gather(*(each.refresh(version, seconds, drained=drained) for each in self._replicas))
        await asyncio.sleep(seconds)
