"""Whether a run from elsewhere may stand on a board: what its bundle says, held against what this code computes.

Decided here: the board, its tasks, the environments, their settings and the protocol are ours, never the bundle's. Of
the bundle count the name of the model, how the agent and the model say they were set up (a claim, unless the agent is
one of ours), the number of epochs, and the recorded attempts. A task of the board without an attempt counts 0, and too
many of those refuse the run. Whatever is refused is refused in one sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path

import msgspec

from harness import registry, runlog
from harness.bundle import LEFT_OUT, Manifest
from harness.config import EvalConfig, ModelOptions
from harness.core import Agent, Board, Json, Trajectory, Value
from harness.errors import SetupError
from harness.fingerprint import differences, fingerprint, protocol
from harness.metrics import summarise_board
from harness.plan import EntryPlan, prepare
from harness.regrade import Mismatch, regrade_all
from harness.runlog import Header, Run
from harness.table import plain
from leaderboards.board import load, names

OURS = frozenset({"direct", "react"})
"""Agents that play inside this process: what a score owes them is computed here. Scripted ones are ours as well."""
MOST_EPOCHS = 64
MOST_NAME = 120
MIN_COVERAGE = 0.98
PLAYS_NOTHING = "scripted/noop"
"""Stands in for the agent while environments are opened."""


class Settings(Value, frozen=True, kw_only=True):
    """How the environments are opened on this machine."""

    env_settings: Mapping[str, Mapping[str, Json]] = msgspec.field(default_factory=dict)
    data: str | None = None
    tolerated: tuple[str, ...] = ()
    """Entries of which observations may differ: a person has looked at the differences."""


class Accepted(Value, frozen=True, kw_only=True):
    """What was found of a run that may stand on its board."""

    header: Header
    """With our board and all of its tasks."""
    replayed: int
    claimed: tuple[str, ...]
    """Parts of the protocol that only the submitter can know."""
    tolerated: tuple[Mismatch, ...]


class _Claimed:
    """An agent or a model of which only its account of itself is known."""

    def __init__(self, name: str, account: Mapping[str, Json]) -> None:
        self.name = name
        self._account = {key: value for key, value in account.items() if key != "name"}

    def protocol(self) -> Mapping[str, Json]:
        """Return the account it gives of itself."""
        return self._account


async def check(
    folder: Path,
    manifest: Manifest,
    settings: Settings,
    *,
    say: Callable[[str], None] = lambda _: None,
    done: Callable[[int], None] = lambda _: None,
) -> Accepted:
    """Check an unpacked bundle and play its attempts again.

    Raises:
        SetupError: it may not stand on its board; the message says why.
    """
    run = runlog.read(folder)
    board = _board(run.header)
    _refuse_other_manifest(run.header, manifest)
    counted = _counted(run, board)
    agent, claimed = _agent(run.header)
    config = EvalConfig(
        model=PLAYS_NOTHING,
        board=board.name,
        env=tuple(entry.name for entry in board.entries),
        env_settings=settings.env_settings,
        data=settings.data,
    )
    async with prepare(config) as plan:
        plans = {entry.entry.name: entry for entry in plan.entries}
        for entry in plan.entries:
            _refuse_other_protocol(run.header, entry, agent)
        _refuse_other_tasks(run, plans)
        header = _header(run.header, board, plans, bool(agent and agent.privileged), len(load(board.name).entries))
        _refuse_gaps(Run(folder, header))
        say(f"re-playing {len(counted)} attempts of {run.header.model} …")
        found = await regrade_all(plans, _scored(run, counted), done=done)
    serious = [mismatch for mismatch in found if not (mismatch.observed and mismatch.entry in settings.tolerated)]
    for mismatch in serious[:20]:
        say(str(mismatch))
    if serious:
        attempts = len({(mismatch.entry, mismatch.task_id, mismatch.epoch) for mismatch in serious})
        raise SetupError(
            f"the bundle is refused: {attempts} of {len(counted)} attempts came out otherwise when re-played, the "
            f"first {serious[0]}"
        )
    return Accepted(header=header, replayed=len(counted), claimed=claimed, tolerated=tuple(found))


def _board(header: Header) -> Board:
    """Return our board of that name, narrowed to what was played, with the epochs played."""
    if header.board.name not in names():
        raise SetupError(f"the bundle is a run of '{plain(header.board.name[:80])}', which is no board here")
    for what, text in (("model", header.model), ("agent", header.agent)):
        if not text or len(text) > MOST_NAME or not text.isprintable():
            raise SetupError(f"the bundle's {what} needs a printable name of at most {MOST_NAME} characters")
    board = load(header.board.name)
    unknown = sorted({*header.tasks, *header.protocols, *header.fingerprints} - {entry.name for entry in board.entries})
    if unknown or not header.tasks:
        raise SetupError(
            f"the bundle plays '{plain(''.join(unknown[:1])[:80])}', which is no entry of board '{board.name}'"
        )
    epochs = {entry.name: entry.epochs for entry in header.board.entries}
    entries = tuple(
        msgspec.structs.replace(entry, epochs=epochs.get(entry.name, 0))
        for entry in board.entries
        if entry.name in header.tasks
    )
    for entry in entries:
        if not 1 <= entry.epochs <= MOST_EPOCHS:
            raise SetupError(
                f"the bundle plays {entry.name} in {entry.epochs} epochs; a board takes 1 to {MOST_EPOCHS}"
            )
    return msgspec.structs.replace(board, entries=entries)


def _refuse_other_manifest(header: Header, manifest: Manifest) -> None:
    told = {
        "board": (manifest.board, header.board.name),
        "model": (manifest.model, header.model),
        "agent": (manifest.agent, header.agent),
        "fingerprints": (dict(manifest.fingerprints), dict(header.fingerprints)),
    }
    for what, (said, is_) in told.items():
        if said != is_:
            raise SetupError(f"the bundle's manifest and its run.json name another {what}: bundle the run anew")


def _counted(run: Run, board: Board) -> dict[tuple[str, str, int], int]:
    """Return key -> the record that counts and is scored, having looked at each record.

    Raises:
        SetupError: a record is not of this run, or an attempt was played again though it had a score.
    """
    entries = {entry.name: entry for entry in board.entries}
    last: dict[tuple[str, str, int], int] = {}
    scored: dict[tuple[str, str, int], int] = {}
    for record in _records(run):
        where = plain(f"{record.entry[:40]}/{record.task_id[:80]}/{record.epoch}")
        entry = entries.get(record.entry)
        if entry is None or record.env != entry.env or record.split != entry.split:
            raise SetupError(f"the bundle has an attempt at {where}, which board '{board.name}' does not ask for")
        if not 0 <= record.epoch < entry.epochs:
            raise SetupError(f"the bundle has an attempt at {where}, beyond its {entry.epochs} epochs")
        header = run.header
        of = (record.model, record.agent, record.fingerprint)
        if of != (header.model, header.agent, header.fingerprints.get(record.entry)):
            raise SetupError(f"the bundle's attempt at {where} is of another model, agent or fingerprint than the run")
        key = (record.entry, record.task_id, record.epoch)
        if key in scored:
            raise SetupError(f"the bundle has a second record of {where}, which was scored already")
        if record.attempt != last.get(key, -1) + 1:
            raise SetupError(f"the bundle lacks a record of {where}: attempt {record.attempt} does not follow the last")
        last[key] = record.attempt
        if record.score.value is not None:
            scored[key] = record.attempt
    return scored


def _records(run: Run) -> Iterator[Trajectory]:
    try:
        yield from run.trajectories()
    except RecursionError as error:
        raise SetupError("the bundle's log holds JSON that is nested too deep") from error


def _scored(run: Run, counted: Mapping[tuple[str, str, int], int]) -> Iterator[Trajectory]:
    for record in _records(run):
        if counted.get((record.entry, record.task_id, record.epoch)) == record.attempt:
            yield record


def _agent(header: Header) -> tuple[Agent | None, tuple[str, ...]]:
    """Return the agent where it is one of ours, and what is only claimed. None of the bundle's is ever started."""
    spec = header.config.agent
    settings = dict(header.config.agent_settings)
    if header.config.model.startswith("scripted/"):
        spec, settings = header.config.model, {}
    member = spec.partition(":")[0]
    if not (member in OURS or member.startswith("scripted/")) or member not in registry.names("agents"):
        return None, ("agent", "model")
    agent = registry.make_agent(spec, settings)
    if header.agent != agent.name or (header.model != agent.name and not agent.needs_model):
        named = f"agent '{header.agent}' and model '{header.model}'"
        raise SetupError(f"the bundle names {named}, but was set up as '{plain(agent.name)}'")
    return agent, ("model",) if agent.needs_model else ()


def _refuse_other_protocol(header: Header, plan: EntryPlan, agent: Agent | None) -> None:
    """Compute the entry's protocol, and hold the bundle's against it."""
    name = plan.entry.name
    said = header.protocols.get(name, {})
    parts = {part: said.get(part) for part in ("agent", "model")}
    claims = {part: account if isinstance(account, Mapping) else {} for part, account in parts.items()}
    player = agent or _Claimed(header.agent, claims["agent"])
    has_model = agent.needs_model if agent else bool(claims["model"] or said.get("sampling"))
    model = _Claimed("", claims["model"]) if has_model else None
    document = protocol(plan.entry, plan.env, player, model, plan.limits)
    if keys := differences(msgspec.to_builtins(document), said):
        shown = "; ".join(keys[:4]) + ("; …" if len(keys) > 4 else "")
        raise SetupError(
            f"the bundle is refused: {name} was not played by the board's protocol (ours against its): {shown}"
        )
    if header.fingerprints.get(name) != fingerprint(document):
        theirs = plain(header.fingerprints.get(name, "missing")[:32])
        raise SetupError(
            f"the bundle is refused: its fingerprint of {name} is {theirs}, the one computed here is "
            f"{fingerprint(document)}"
        )


def _refuse_other_tasks(run: Run, plans: Mapping[str, EntryPlan]) -> None:
    for name, plan in plans.items():
        ours = {task.id for task in plan.tasks}
        played = {record.task_id for record in run.attempts() if record.entry == name}
        if unknown := sorted({*run.header.tasks[name], *played} - ours):
            raise SetupError(f"the bundle is refused: {name} has no task '{plain(unknown[0][:80])}' on this board")


def _header(header: Header, board: Board, plans: Mapping[str, EntryPlan], privileged: bool, whole: int) -> Header:
    """Return the header that the board keeps: ours, but for who played, when, and how often."""
    try:
        created = datetime.fromisoformat(header.created).isoformat(timespec="seconds")
    except ValueError as error:
        raise SetupError("the bundle is refused: its run.json has no date of creation") from error
    model, remote = header.config.model, header.config.connection.base_url
    return Header(
        created=created,
        config=EvalConfig(
            model=model if len(model) <= MOST_NAME and model.isprintable() else header.model,
            agent=header.agent,
            board=board.name,
            connection=ModelOptions(base_url=LEFT_OUT if remote else None),
        ),
        board=board,
        whole=whole,
        model=header.model,
        agent=header.agent,
        privileged=privileged or header.privileged,
        fingerprints={name: header.fingerprints[name] for name in plans},
        protocols={name: header.protocols[name] for name in plans},
        tasks={name: {task.id: task.group for task in plan.tasks} for name, plan in plans.items()},
    )


def _refuse_gaps(run: Run) -> None:
    """Refuse a run that lacks more of the board's attempts than a run may."""
    for summary in summarise_board(run.attempts(), run.header.board, run.planned):
        if summary.coverage < MIN_COVERAGE:
            raise SetupError(
                f"the bundle is refused: {summary.entry} has {summary.scored} scored attempts of the board's "
                f"{summary.tasks * summary.epochs}, and a board takes {MIN_COVERAGE:.0%} or more"
            )
