"""From a configuration to a run that is ready to play: environments open, model reached, protocol hashed.

Decided here: which board, entries and tasks a configuration means, which agent or model its name means, and in which
order things are opened, so that what is cheap to refuse is refused before what is dear.
"""

from __future__ import annotations

import asyncio
import importlib
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from harness import models, registry
from harness.config import EvalConfig
from harness.core import (
    Agent,
    Board,
    BoardEntry,
    Env,
    EnvOptions,
    Limits,
    Model,
    SamplingParams,
    Task,
    seed_of,
)
from harness.errors import SetupError, nearest
from harness.fingerprint import fingerprint, protocol
from harness.runlog import Header

ENDLESS = 100_000
"""A split that yields more tasks than this is taken to be endless, and needs a limit."""
CHECK_SECONDS = 3600.0
CLOSE_SECONDS = 60.0


class EntryPlan(msgspec.Struct, frozen=True):
    """One board entry, ready to play."""

    entry: BoardEntry
    env: Env
    tasks: list[Task]
    limits: Limits
    protocol: Mapping[str, Any]
    fingerprint: str


class Plan(msgspec.Struct, frozen=True):
    """A run, ready to play."""

    config: EvalConfig
    board: Board
    whole: int
    """How many entries the board has when nothing is left out."""
    entries: list[EntryPlan]
    unavailable: dict[str, str]
    agent: Agent
    model: Model | None

    @property
    def model_name(self) -> str:
        """The model's name; the agent's own where it needs none."""
        return self.model.name if self.model else self.agent.name

    def header(self) -> Header:
        """Return what the run's folder says of it."""
        return Header(
            config=self.config,
            board=self.board,
            whole=self.whole,
            model=self.model_name,
            agent=self.agent.name,
            privileged=self.agent.privileged or bool(getattr(self.model, "privileged", False)),
            fingerprints={plan.entry.name: plan.fingerprint for plan in self.entries},
            protocols={plan.entry.name: plan.protocol for plan in self.entries},
            tasks={plan.entry.name: {task.id: task.group for task in plan.tasks} for plan in self.entries},
            unavailable=self.unavailable,
        )


def load_board(config: EvalConfig) -> tuple[Board, int]:
    """Return the board as it will be played, and how many entries the whole board has.

    Played are the entries asked for, with the person's settings laid over them.

    Without a board (or without the leaderboards room) it is made of the environments named, on their `test` split.

    Raises:
        SetupError: an unknown board or entry; the message has the nearest names.
    """
    if config.board and registry.room("leaderboards"):
        board: Board = importlib.import_module("leaderboards.board").load(config.board)
    else:
        chosen = config.env or tuple(registry.names("envs"))
        board = Board(
            name="custom",
            title="custom",
            entries=tuple(BoardEntry(name=e, env=e, split=_usual_split(e)) for e in chosen),
        )
    by_name = {entry.name: entry for entry in board.entries}
    for name in config.env:
        if name not in by_name:
            if name in registry.names("envs") or ":" in name:
                by_name[name] = BoardEntry(name=name, env=name, split=config.split or _usual_split(name))
            else:
                raise SetupError(f"board '{board.name}' has no environment '{name}'{nearest(name, by_name)}")
    asked = [by_name[name] for name in dict.fromkeys(config.env)] or list(board.entries)
    played = msgspec.structs.replace(board, entries=tuple(_overlay(entry, config) for entry in asked))
    return played, max(len(board.entries), len(asked))


def _usual_split(name: str) -> str:
    """Return the split that is played where none is named; which one a controller has, it does not say."""
    return "all" if name.startswith(f"{registry.REMOTE}:") else "test"


def _overlay(entry: BoardEntry, config: EvalConfig) -> BoardEntry:
    return msgspec.structs.replace(
        entry,
        split=config.split or entry.split,
        rules=config.rules or entry.rules,
        settings={**entry.settings, **config.env_settings.get(entry.env, {})},
        turns=config.limits.turns or entry.turns,
        epochs=config.epochs or entry.epochs,
        sampling=sampling(entry, config),
    )


def resolve_player(config: EvalConfig) -> tuple[Agent, Model | None]:
    """Make the agent, and the model if it needs one. `scripted/NAME` and `human` are agents given as models."""
    as_agent = config.model.startswith("scripted/") or config.model == "human"
    known = config.model.partition(":")[0] in registry.names("agents")
    if as_agent and known:
        return registry.make_agent(config.model, dict(config.agent_settings)), None
    agent = registry.make_agent(config.agent, dict(config.agent_settings))
    if not agent.needs_model:
        return agent, None
    if not config.model:
        raise SetupError(f"agent '{agent.name}' needs a model: name one with --model provider/name")
    if as_agent:
        raise SetupError(f"no scripted agent '{config.model}'{nearest(config.model, registry.names('agents'))}")
    return agent, models.connect(config.model, config.connection)


@asynccontextmanager
async def prepare(
    config: EvalConfig,
    *,
    contact: bool = True,
    say: Callable[[str], None] = lambda _: None,
    reach: Callable[[BoardEntry], str] | None = None,
) -> AsyncIterator[Plan]:
    """Open everything that a run needs; all of it is closed on the way out.

    An environment that cannot run on this machine is left out and noted, unless it was asked for by name. Without
    `contact` the model is not called: what it refuses is then unknown, and missing from the fingerprints. `reach` names
    an entry's environment as the registry knows it, where that is not the configuration's own place.
    """
    board, whole = load_board(config)
    async with AsyncExitStack() as stack:
        agent, model = resolve_player(config)
        for thing in (agent, model):
            if thing is not None:
                stack.push_async_callback(_close, thing)
        found: list[tuple[BoardEntry, Env, list[Task]]] = []
        unavailable: dict[str, str] = {}
        for entry in board.entries:
            try:
                env, tasks = await _open(entry, config, reach(entry) if reach else _reached(entry, config.controller))
            except SetupError as error:
                if entry.name in config.env or len(board.entries) == 1:
                    raise
                unavailable[entry.name] = str(error)
                continue
            stack.push_async_callback(_close, env)
            found.append((entry, env, tasks))
        if not found:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in unavailable.items())
            raise SetupError(f"no environment of board '{board.name}' can run here ({reasons})")
        _refuse_unplayed(config, board)
        _refuse_unknown_tasks(config, found)
        if model is not None and contact:
            say(f"asking {model.name} …")
            await _check(model, found[0][0].sampling, tools=agent.needs_tool_calling)
        if config.cost_limit is not None and not getattr(model, "priced", True):
            raise SetupError(
                f"what calls to {config.model} cost is not known, so --cost-limit cannot be kept: bound the run with "
                "--token-limit and --limit instead"
            )
        entries = [_planned(*each, agent, model, config) for each in found]
        yield Plan(config, board, whole, entries, unavailable, agent, model)


async def _check(model: Model, params: SamplingParams, *, tools: bool) -> None:
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            await model.check(params, tools=tools)
    except TimeoutError as error:
        raise SetupError(f"{model.name} does not answer within {CHECK_SECONDS:.0f} s: check its server") from error


async def _open(entry: BoardEntry, config: EvalConfig, name: str) -> tuple[Env, list[Task]]:
    """Make an entry's environment, choose its tasks, and open it."""
    options = EnvOptions(
        rules=entry.rules,
        prompts=config.prompts.get(entry.env, {}),
        data=Path(config.data) if config.data else None,
        settings=entry.settings,
    )
    env = registry.make_env(name, options)
    if not getattr(env, "opens_first", False):
        tasks = select(env, entry, config)
        await env.open()
        return env, tasks
    await env.open()
    try:
        _refuse_longer(env, entry)
        return env, select(env, entry, config)
    except SetupError:
        await _close(env)
        raise


def _reached(entry: BoardEntry, controller: str | None) -> str:
    """Name an entry's environment as the registry knows it: at the controller, where there is one."""
    if controller is None or entry.env.startswith(f"{registry.REMOTE}:"):
        return entry.env
    task = entry.env if entry.split == "test" else f"{entry.env}-{entry.split}"
    return f"{registry.REMOTE}:{controller}#{task}"


def _refuse_longer(env: Env, entry: BoardEntry) -> None:
    """Refuse more turns than a controller's worker plays: it keeps its own limit."""
    if entry.turns is not None and env.turn_limit is not None and entry.turns > env.turn_limit:
        raise SetupError(
            f"the controller's '{entry.name}' is played for {env.turn_limit} turns at most, not {entry.turns}: "
            f"ask for no more with --turn-limit"
        )


async def _close(thing: Env | Agent | Model) -> None:
    async with asyncio.timeout(CLOSE_SECONDS):
        await thing.close()


def _planned(
    entry: BoardEntry, env: Env, tasks: list[Task], agent: Agent, model: Model | None, config: EvalConfig
) -> EntryPlan:
    limits = msgspec.structs.replace(config.limits, turns=entry.turns)
    document = protocol(entry, env, agent, model, limits)
    return EntryPlan(entry, env, tasks, limits, document, fingerprint(document))


def sampling(entry: BoardEntry, config: EvalConfig) -> SamplingParams:
    """Return the board's sampling with the person's settings laid over it."""
    asked = config.sampling
    changed = {name: getattr(asked, name) for name in asked.__struct_fields__ if getattr(asked, name) not in (None, {})}
    return msgspec.structs.replace(entry.sampling, **changed)


def select(env: Env, entry: BoardEntry, config: EvalConfig) -> list[Task]:
    """Return the tasks of an entry that the configuration asks for.

    Raises:
        SetupError: the split is unknown, or endless and without a limit.
    """
    if entry.split not in env.splits():
        raise SetupError(f"environment '{env.name}' has no split '{entry.split}'{nearest(entry.split, env.splits())}")
    stream = env.tasks(entry.split)
    if config.task_ids:
        return list(_named(stream, set(config.task_ids)))
    if entry.split in getattr(env, "endless", ()) and (config.shuffle is not None or not config.limit):
        raise _no_end(env.name, entry.split)
    if config.shuffle is None:
        return list(islice(stream, config.limit)) if config.limit else _finite(stream, env.name, entry.split)
    tasks = _finite(stream, env.name, entry.split)
    random.Random(seed_of("shuffle", config.shuffle, entry.name)).shuffle(tasks)
    return tasks[: config.limit]


def _finite(stream: Iterator[Task], env: str, split: str) -> list[Task]:
    tasks = list(islice(stream, ENDLESS))
    if len(tasks) == ENDLESS:
        raise _no_end(env, split)
    return tasks


def _no_end(env: str, split: str) -> SetupError:
    return SetupError(f"split '{split}' of '{env}' has no end: say how many tasks with --limit, and not --shuffle")


def _named(stream: Iterator[Task], wanted: set[str]) -> Iterator[Task]:
    """Yield the wanted tasks, reading no further than the last of them."""
    for task in islice(stream, ENDLESS):
        if task.id in wanted:
            yield task
            wanted.discard(task.id)
        if not wanted:
            return


def _refuse_unknown_tasks(config: EvalConfig, found: list[tuple[BoardEntry, Env, list[Task]]]) -> None:
    """Refuse a task id that no entry has, with the nearest ones."""
    chosen = {task.id for _, _, tasks in found for task in tasks}
    for name in config.task_ids:
        if name not in chosen:
            known = [task.id for entry, env, _ in found for task in islice(env.tasks(entry.split), 10_000)]
            raise SetupError(
                f"no task '{name}' in {', '.join(entry.name for entry, _, _ in found)}{nearest(name, known)}"
            )


def _refuse_unplayed(config: EvalConfig, board: Board) -> None:
    """Refuse replaced texts or settings of an environment that the run does not play."""
    played = {entry.env for entry in board.entries}
    for name in (*config.prompts, *config.env_settings):
        if name not in played:
            raise SetupError(f"settings are given for '{name}', which this run does not play{nearest(name, played)}")
