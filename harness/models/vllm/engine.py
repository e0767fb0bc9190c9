"""The sampler over vLLM servers: token ids in, exactly what was sampled out, whatever the weights do meanwhile.

Decided here: an episode stays with the replica of its first turn, the least busy then. New weights are taken while
nothing is being sampled: turns under way are interrupted, and give what they have sampled so far, so that each token
is known to be of the old weights or the new; then they go on behind it (`keep_kv`, `recompute_kv`) or begin again
(`abort_requeue`). After an update servers keep caches apart by a new salt, except under `keep_kv`: there, whatever
follows on a cache that may be of older weights is flagged `mixed_kv`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path

from harness.config import LocalOptions
from harness.core import Json, seed_of
from harness.errors import ModelError, OutOfContext, SetupError
from harness.models import proof
from harness.models.hf.engine import weights_digest
from harness.models.sampler import Refresh, Request, Sampled
from harness.models.vllm import launch, weights
from harness.models.vllm.client import Part, Refused
from harness.models.vllm.replica import Replica, attached, started

UPDATE_SECONDS = 1800.0
"""Deadline of an update, and of a turn that waits for one."""
LEAST_HEAT = 0.01
"""vLLM takes any temperature between 0 and this for this."""
ROUND = 1024

log = logging.getLogger(__name__)


class Turn:
    """A turn under way: what has been sampled of it so far."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.cached: int | None = None
        """Of the prompt, what the first request found in the cache."""
        self.finish = ""
        self.forget()

    def forget(self) -> None:
        """Begin again."""
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.versions: list[int] = []
        self.mixed: list[bool] = []

    @property
    def seed(self) -> int:
        """What the next request draws by: not again what the last one drew by."""
        return seed_of(self.request.seed, len(self.ids)) if self.ids else self.request.seed

    def add(self, part: Part, version: int, *, mixed: bool) -> None:
        """Take in what a request gave."""
        count = len(part.ids)
        self.ids += part.ids
        self.logprobs += part.logprobs
        self.versions += [version] * count
        self.mixed += [mixed] * count
        self.cached = part.cached or 0 if self.cached is None else self.cached
        self.finish = part.finish
        if part.finish == "abort" and len(self.ids) >= self.request.max_tokens:
            self.finish = "length"  # interrupted behind its last token


class VllmSampler:
    """One model on one or several servers."""

    def __init__(
        self,
        folder: Path,
        options: LocalOptions,
        runtime: launch.Runtime | None,
        addresses: Sequence[str],
        request_seconds: float,
        *,
        own: bool = False,
    ) -> None:
        """Describe it; `open` starts the servers, or finds them.

        Args:
            folder: of the model.
            options: how it is served.
            runtime: starts servers; None where there are addresses.
            addresses: of servers that run already.
            request_seconds: deadline of one request.
            own: whether the servers are this sampler's own from the start, as one that takes new weights wants them.
        """
        self.name = "vllm"
        self.context = 0
        self._folder, self._options, self._runtime = folder, options, runtime
        self._addresses, self._seconds, self._own = addresses, request_seconds, own
        self._replicas: list[Replica] = []
        self._homes: dict[str, Replica] = {}
        """Episode -> the replica that it stays with."""
        self._turns: dict[str, asyncio.Task[Sampled]] = {}
        self._version, self._salt = 0, ""
        self._older_cache = False
        """Whether caches may be of older weights than these."""
        self._flying = 0
        """Requests that servers work on."""
        self._updates = 0
        self._refresh: Refresh = "recompute_kv"
        """Of the last update, or the one under way."""
        self._open = asyncio.Event()
        self._updating = asyncio.Lock()
        self._broken = ""
        """Why nothing more is sampled."""
        self._digest = weights_digest(folder)

    async def open(self) -> None:
        """Start the servers, join those that run, or find those given. SetupError with the remedy."""
        if self._addresses:
            opening = [attached(address, self._seconds) for address in self._addresses]
        else:
            assert self._runtime is not None  # noqa: S101 - whoever made this looked for it
            opening = [
                started(self._runtime, self._folder, self._options, place, self._seconds, own=self._own)
                for place in range(self._options.replicas)
            ]
        try:
            outcomes = await asyncio.gather(*map(self._enlist, opening), return_exceptions=True)
            if failures := [each for each in outcomes if isinstance(each, BaseException)]:
                raise failures[0]
            self.context = self._agreed_context()
            if (came := proof.read(self._folder)) is not None:
                await self._prove(came)
        except BaseException as error:
            await self.close()
            if isinstance(error, ModelError):
                raise SetupError(f"the model in {self._folder} cannot be served: {error}") from error
            raise
        self._broken = ""
        self._open.set()

    async def _enlist(self, opening: Awaitable[Replica]) -> None:
        self._replicas.append(await opening)

    def _agreed_context(self) -> int:
        """Return the context that every replica has. SetupError where more was asked for."""
        least = min(self._replicas, key=lambda replica: replica.context)
        asked = self._options.context or round_down(least.context)
        if asked > least.context:
            raise SetupError(
                f"connection.local.context is {asked}, and {least.name} holds {least.context}: lower it, or start the "
                "server with a larger --max-model-len"
            )
        return asked

    async def sample(self, request: Request) -> Sampled:
        """Sample one turn on the episode's replica."""
        wanted = len(request.prompt_ids) + request.max_tokens
        if wanted > self.context:
            raise OutOfContext(f"a prompt and an answer of {wanted} tokens together do not fit into {self.context}")
        if not request.prompt_ids:
            raise ModelError("there is nothing to answer: the prompt has no token")
        if 0 < request.temperature < LEAST_HEAT:
            raise ModelError(f"vLLM samples at no temperature between 0 and {LEAST_HEAT}: give 0 or one from there on")
        turn = asyncio.ensure_future(self._sample(request))
        self._turns[request.episode] = turn
        try:
            return await turn
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise ModelError("the turn was given up") from None
        finally:
            if self._turns.get(request.episode) is turn:
                del self._turns[request.episode]

    async def _sample(self, request: Request) -> Sampled:
        turn, begun = Turn(request), time.monotonic()
        replica = self._home(request.episode)
        while turn.finish in ("", "abort"):
            await self._clear()
            version, salt, older, updates = self._version, self._salt, self._older_cache, self._updates
            self._flying += 1
            try:
                part = await replica.client.complete(request, turn.ids, turn.seed, salt)
            except Refused as error:
                raise await replica.failure(error) from error
            finally:
                self._flying -= 1
            # Where a server does not say what it had in its cache, it may have been anything.
            turn.add(part, version, mixed=older and part.cached != 0)
            if turn.finish == "abort":
                if self._updates == updates:
                    raise ModelError(f"{replica.name} interrupted the turn, and nobody here asked for it")
                if self._refresh == "abort_requeue":
                    turn.forget()
        return Sampled(
            ids=tuple(turn.ids),
            logprobs=tuple(turn.logprobs),
            versions=tuple(turn.versions),
            mixed_kv=tuple(turn.mixed) if any(turn.mixed) else (),
            finish="stop" if turn.finish == "stop" else "length",
            engine=replica.name,
            seconds=time.monotonic() - begun,
            cached_tokens=turn.cached or 0,
        )

    def _home(self, episode: str) -> Replica:
        """Return the replica of an episode: the least busy, where it has none yet."""
        if episode not in self._homes:
            if not self._replicas:
                raise ModelError("the model is closed")
            busy = list(self._homes.values())
            alive = [replica for replica in self._replicas if replica.ended() is None]
            self._homes[episode] = min(alive or self._replicas, key=busy.count)
        return self._homes[episode]

    async def _clear(self) -> None:
        """Wait until no update is under way."""
        try:
            async with asyncio.timeout(UPDATE_SECONDS):
                await self._open.wait()
        except TimeoutError as error:
            raise ModelError(f"new weights were not taken within {UPDATE_SECONDS:.0f} s") from error
        if self._broken:
            raise ModelError(self._broken)

    async def release(self, episode: str) -> None:
        """Forget an episode, and end its turn if one is under way. Its cache goes when the server needs the room."""
        self._homes.pop(episode, None)
        if (turn := self._turns.pop(episode, None)) is not None:
            turn.cancel()

    async def update(self, weights: Json, version: int, refresh: Refresh = "recompute_kv") -> None:
        """Take the weights of a folder, and prove it. ModelError where they are not taken: nothing is sampled then."""
        folder = folder_of(weights)
        try:
            async with asyncio.timeout(UPDATE_SECONDS), self._updating:
                must = await asyncio.to_thread(self._known, folder)
                for replica in self._replicas:
                    await asyncio.to_thread(replica.claim)
                await self._exchange(folder, version, refresh, must)
        except TimeoutError as error:
            raise ModelError(f"the weights in {folder} were not taken within {UPDATE_SECONDS:.0f} s") from error

    def _known(self, folder: Path) -> proof.Probe | None:
        """Look at weights before they are taken; return what they must compute, where that is known."""
        weights.require_same(self._folder, folder)
        must = weights.expected(self._folder, folder)
        if isinstance(must, str):
            log.warning("it is not proven that %s computes its new weights: %s", self.name, must)
            return None
        return must

    async def _exchange(self, folder: Path, version: int, refresh: Refresh, must: proof.Probe | None) -> None:
        """Interrupt what is under way, put the weights in the place of the old, and go on."""
        self._open.clear()
        self._updates += 1
        self._refresh, self._broken = refresh, f"{self.name} was left in the middle of an update"
        try:
            clear = refresh != "keep_kv"
            await asyncio.gather(*(replica.pause(clear=clear) for replica in self._replicas))
            while self._flying:  # a request may have been on its way when the servers were told to pause
                await asyncio.sleep(0.02)
                await asyncio.gather(*(replica.pause(clear=clear) for replica in self._replicas))
            await asyncio.gather(*(replica.take(folder, clear=clear) for replica in self._replicas))
            self._version, self._older_cache = version, not clear
            if clear:
                self._salt = secrets.token_hex(8)
            if must is not None:
                await self._prove(must)
            self._digest = await asyncio.to_thread(weights_digest, folder)
            self._broken = ""
        except ModelError as error:
            self._broken = str(error)
            raise
        finally:
            self._open.set()

    async def _prove(self, must: proof.Probe) -> None:
        """Compare what the servers compute with what they must. ModelError where rounding does not explain it."""
        for replica in self._replicas:
            try:
                found = await replica.client.probe(must.ids)
            except Refused as error:
                raise await replica.failure(error) from error
            proof.compare(must, found, self._dtype(), replica.name)

    def _dtype(self) -> str:
        return launch.dtype(self._folder, self._options, cpu=self._runtime is not None and self._runtime.cpu)

    def protocol(self) -> Mapping[str, Json]:
        """Return what a score depends on."""
        served = sorted({replica.version for replica in self._replicas})
        return {
            "engine": "vllm",
            "version": self._runtime.version if self._runtime else ", ".join(served),
            "dtype": self._options.dtype,
            "context": self.context or self._options.context,
            "weights": self._digest,
        }

    async def close(self) -> None:
        """Use the servers no more; each ends with its last user."""
        self._broken = "the model is closed"
        for turn in list(self._turns.values()):
            turn.cancel()
        replicas, self._replicas = self._replicas, []
        for replica in replicas:
            await replica.close()


def round_down(context: int) -> int:
    """Return a context that is the same again where one found by free memory is a little less or more."""
    return context // ROUND * ROUND or context


def folder_of(weights: Json) -> Path:
    """Return the folder that weights are in, as a server would name it."""
    return Path(str(weights)).resolve()
