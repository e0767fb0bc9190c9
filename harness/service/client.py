"""Plays tasks of a controller as if they were local: one `Env` for our own controllers and anybody's.

Named `agentrl:http://host:5020/api#TASK`; `harness eval --controller URL --env db` comes here too. A worker of ours
describes its environment, so that ids, digests, fingerprint, trajectories and scores are those of a local run. What a
foreign controller does not tell (gold answers, limits, rules, prompts) is "unknown" in the fingerprint.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping

from harness import registry
from harness.core import EnvOptions, Json, Policy, Task, digest
from harness.errors import LostError, SetupError, nearest
from harness.models.wire import mapping
from harness.service.client_answers import Described, Garbled, Listed, read_capacity, read_described, read_indices
from harness.service.client_http import ASK_SECONDS, CANCEL_SECONDS, Line, MissingError, Patience
from harness.service.client_session import RemoteSession
from harness.service.protocol import told_settings

UNKNOWN = "unknown"
WHOLE = "all"
"""The one split of a foreign task: which one it is, a controller does not say."""
RENEW_SECONDS = 60.0
"""A session that is idle for so long is renewed: its agent thinks."""
HEALTH_SECONDS = 10.0
HEALTH_TRIES = 20
ASK = Patience(ASK_SECONDS, again=True, waits=True)


def make(options: EnvOptions, argument: str) -> RemoteEnv:
    """Make the environment of a controller's task. SetupError where `argument` is not URL#TASK."""
    url, _, task = argument.rpartition("#")
    if not url or not task:
        raise SetupError(f"'agentrl:{argument}' names no task: write agentrl:http://host:5020/api#TASK")
    return RemoteEnv(Line(url), task, options)


class RemoteEnv:
    """One task of a controller. What it is, is known once it is open."""

    opens_first = True
    """Its tasks are known only then."""
    endless: frozenset[str] = frozenset()

    def __init__(self, line: Line, task: str, options: EnvOptions) -> None:
        self.line = line
        self.task = task
        self.name = task
        self.turn_limit: int | None = None
        self.max_sessions: int | None = None
        self.split = WHOLE
        self.described: Described | None = None
        """None where the worker is not one of ours."""
        self.live: set[RemoteSession] = set()
        self.stragglers: set[asyncio.Task[None]] = set()
        """Starts that nobody waits for any more; their sessions are cancelled when they are known."""
        self._options = options
        self._version = UNKNOWN
        self._listed: tuple[Listed, ...] = ()
        self._renewing: asyncio.Task[None] | None = None
        self._local: dict[str, Task] | None = None

    async def open(self) -> None:
        """Reach the controller and learn what it serves. SetupError where it has no such task, or under other rules."""
        if self._renewing is not None:
            return
        self._version = await self.line.open()
        try:
            self.described = await self._describe() if self.line.ours else None
            if self.described is not None:
                self._take(self.described)
            else:
                self._listed = await self._indices()
                self._refuse_options()
            self.max_sessions = await self._capacity()
        except LostError as error:
            await self.line.close()
            raise SetupError(f"the controller at {self.line.url} cannot be played with: {error}") from error
        except SetupError:
            await self.line.close()
            raise
        self._renewing = asyncio.create_task(self._renew())

    async def _describe(self) -> Described | None:
        try:
            said = await self.line.ask("GET", f"describe?name={self.task}", ASK)
            return read_described(said.body)
        except MissingError:
            return None
        except Garbled as error:
            raise LostError(f"its description of '{self.task}' is not understood: {error}") from error

    async def _indices(self) -> tuple[Listed, ...]:
        try:
            said = await self.line.ask("GET", f"get_indices?name={self.task}", ASK)
            listed = read_indices(said.body, self.task)
        except Garbled as error:
            raise LostError(str(error)) from error
        except LostError as error:
            raise SetupError(await self._absent(str(error))) from error
        if not listed:
            raise SetupError(await self._absent("it lists no index"))
        return listed

    async def _absent(self, why: str) -> str:
        """Say that the task is not there, and what is."""
        names: list[str] = []
        with contextlib.suppress(LostError):
            workers = (await self.line.ask("GET", "list_workers", ASK)).body
            names = [str(name) for name in workers] if isinstance(workers, dict) else []
        other = nearest(self.task, names) if names else "; it has no task at all"
        return (
            f"the controller at {self.line.url} has no task '{self.task}' to play ({why}){other}; a worker of ours is "
            f"started with: harness worker --env NAME --controller URL"
        )

    async def _capacity(self) -> int | None:
        """Return how many sessions there is room for; a foreign controller is asked to wait instead."""
        if not self.line.ours:
            return None
        return read_capacity((await self.line.ask("GET", "list_workers", ASK)).body, self.task)

    def _take(self, described: Described) -> None:
        """Be the environment that is described. SetupError where another was asked for."""
        asked = self._options
        wrong = [
            f"{what} {theirs!r}, not {ours!r}"
            for what, theirs, ours in (
                ("rules", described.rules, asked.rules),
                ("settings", described.settings, told_settings(asked.settings)),
            )
            if theirs is not None and theirs != ours
        ]
        texts = described.protocol.get("prompts")
        told = texts if isinstance(texts, dict) else {}
        wrong += [f"another text '{name}'" for name, text in asked.prompts.items() if told.get(name) != text]
        if wrong:
            raise SetupError(
                f"the controller's '{self.task}' is played with {'; '.join(wrong)}: start its worker with what you ask "
                "for"
            )
        self.name, self.split, self.turn_limit = described.env, described.split, described.turn_limit
        self._listed = described.tasks

    def _refuse_options(self) -> None:
        """Refuse what a foreign task cannot be told."""
        asked = self._options
        given = ["--prompts"] * bool(asked.prompts) + ["--rules upstream"] * (asked.rules != "fixed")
        given += [f"the setting '{name}'" for name in asked.settings]
        if given:
            raise SetupError(
                f"the controller's '{self.task}' is not a worker of this project, and cannot be told "
                f"{' and '.join(given)}: leave that out"
            )

    def splits(self) -> Mapping[str, str]:
        """Return the one split that the controller's task has."""
        line = f"{len(self._listed)} tasks of the controller at {self.line.url}"
        return dict.fromkeys((self.split, WHOLE), line)

    def tasks(self, split: str) -> Iterator[Task]:
        """Yield the tasks in the controller's order, without gold answers; a foreign one has its tools at the start."""
        for listed in self._listed:
            data = {"task": self.task, "index": listed.index}
            yield Task(
                id=listed.id,
                env=self.name,
                split=self.split,
                group=listed.group,
                instruction=listed.instruction,
                tools=listed.tools,
                data=data,
                digest=listed.digest or digest({"env": self.name, "data": data}),
            )

    def session(self, task: Task) -> RemoteSession:
        """Return one episode of a task, not yet opened."""
        return RemoteSession(self, task.data["index"], task.tools)

    def demonstrate(self, task: Task) -> Policy:
        """Return gold play as the environment on this machine has it: a controller never tells it."""
        if self.described is None:
            raise SetupError(f"there is no gold play for '{self.task}': its controller does not tell it")
        local = registry.make_env(self.name, self._options)
        if self._local is None:
            ids = {listed.id for listed in self._listed}
            self._local = {}
            for known in local.tasks(self.split):
                if known.id in ids:
                    self._local[known.id] = known
                if len(self._local) == len(ids):
                    break
        known_here = self._local.get(task.id)
        if known_here is None or known_here.digest != task.digest:
            raise SetupError(f"task '{task.id}' is not the one of that name on this machine, which gold play needs")
        return local.demonstrate(known_here)

    def protocol(self, split: str) -> Mapping[str, Json]:
        """Return what the worker tells; of a foreign one, that it is unknown."""
        if self.described is not None:
            rules = UNKNOWN if self.described.rules is None else self.described.rules
            return {"rules": rules, **self.described.protocol, "split": self.split}
        unknown = dict.fromkeys(("rules", "split", "prompts", "tools", "turn_limit", "data", "gold"), UNKNOWN)
        return {**unknown, "service": "agentrl", "controller": self._version, "task": self.task}

    async def close(self) -> None:
        """Cancel what is still under way, and end all connections."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
            self._renewing = None
        endings = [asyncio.create_task(session.end()) for session in self.live]
        if waiting := {*endings, *self.stragglers}:
            _, late = await asyncio.wait(waiting, timeout=CANCEL_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self.line.close()

    async def healthy(self) -> bool:
        """Ask our controller whether a worker's environment is well; of a foreign one, whether it has the task yet.

        A controller that has just been started again has no worker yet: it is given a moment.
        """
        for _ in range(HEALTH_TRIES):
            if await self._well():
                return True
            await asyncio.sleep(1.0)
        return False

    async def _well(self) -> bool:
        try:
            if self.described is None:
                return bool(await self._indices())
            said = await self.line.ask("GET", f"healthy?name={self.task}", Patience(HEALTH_SECONDS, again=True))
            return mapping(said.body).get("healthy") is True
        except (LostError, SetupError):
            return False

    async def _renew(self) -> None:
        """Keep sessions whose agent thinks for long: a controller of ours ends idle ones."""
        while self.line.ours:
            await asyncio.sleep(RENEW_SECONDS)
            now = asyncio.get_running_loop().time()
            idle = [session for session in self.live if session.idle_since < now - RENEW_SECONDS]
            for session in idle:
                with contextlib.suppress(LostError):
                    await session.renew()
