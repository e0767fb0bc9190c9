"""Runs played here as rows of a leaderboard.

Decided here: a run that deviates from what its board pins (rules, back-ends, splits, turns, tasks, sampling, the agent
beside published rows) is `adapted: <deviations>` and is never ranked; neither is an agent that was handed gold play. A
row has an overall only when every entry of the board was played. Rows of different protocols do not share a table
unless the person allows it, and then the table says so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from harness import runlog
from harness.core import Aggregate, Board, BoardEntry, Ending, Limits, Usage
from harness.errors import SetupError
from harness.fingerprint import apart
from harness.metrics import Overall, Summary, leaves, overall, shares, summarise_board
from harness.runlog import Header, Run
from leaderboards.board import layout
from leaderboards.bundles import Record, record
from leaderboards.rank import HERE, OVERALL, REGRADED, Cell, Group, Row

API = frozenset({"openai", "anthropic", "google", "openrouter"})
LOCAL = frozenset({"vllm", "hf"})
TRAINED = re.compile(r"/(checkpoints(/|$)|snapshots/v\d{6,}-[0-9a-f]{12}/?$)")
"""In the folders of a training run, as `training/weights.py` names them. Hugging Face's cache has `snapshots` too, each
named by 40 digits of a commit."""


def row(run: Run, board: Board) -> Row:
    """Return a run's row on its board. `board` is whole, the run's own may be narrowed."""
    header = run.header
    summaries = summarise_board(run.attempts(), header.board, run.planned)
    plan = layout(board.published) if board.published else None
    parts = plan.parts if plan else {}
    kept = record(run.folder)
    deviating = deviations(header, board)
    cells = {summary.entry: _cell(summary, summary.tasks, decimals=1) for summary in summaries}
    whole = len(summaries) == len(board.entries)
    if parts:
        cells = _part_cells(summaries[0], parts) if summaries else {}
    elif whole and (mean := overall(summaries)):
        cells[OVERALL] = _cell(mean, None, decimals=1)
    cost, latency = _cost(summaries, per_call=bool(plan and plan.cost_column))
    return Row(
        name=header.model,
        group=_group(header),
        origin=_origin(deviating, kept),
        cells=cells,
        ranked=not deviating and not header.privileged,
        tasks=sum(summary.tasks for summary in summaries),
        date=header.created[:10],
        fingerprints=header.fingerprints,
        source=str(run.folder),
        notes=(*_notes(header, board, summaries), *_bundle_notes(kept)),
        cost=cost,
        cost_text="" if cost is None else f"{cost:.4f}" if cost < 0.1 else f"{cost:.2f}",
        latency_text="" if latency is None or not (plan and plan.latency_column) else f"{latency:.2f}",
        error_share=_error_share(summaries),
    )


def _origin(deviating: Sequence[str], kept: Record | None) -> str:
    adapted = f"adapted: {'; '.join(deviating)}" if deviating else ""
    return "; ".join(part for part in (adapted, REGRADED if kept else "") if part) or HERE


def _bundle_notes(kept: Record | None) -> Iterator[str]:
    if kept is None:
        return
    yield f"{kept.replayed} attempts re-played, bundle {kept.sha256[:8]}"
    if kept.claimed:
        yield f"by the submitter's word: {' and '.join((*kept.claimed, 'who wrote the replies'))}"
    if kept.differing:
        yield f"{len(kept.differing)} observations differ"


def _cost(summaries: Sequence[Summary], *, per_call: bool) -> tuple[float | None, float | None]:
    """Return what an attempt (or 1,000 calls) costs, and the seconds of a call; None where it is unknown."""
    usage = sum((summary.usage for summary in summaries), Usage())
    attempts = sum(summary.attempts for summary in summaries)
    if not usage.calls or not attempts:
        return None, None
    share = 1000 / usage.calls if per_call else 1 / attempts
    return None if usage.cost_usd is None else usage.cost_usd * share, usage.seconds / usage.calls


def _error_share(summaries: Sequence[Summary]) -> float | None:
    """Return the share of attempts that ended by no doing of the agent."""
    attempts = sum(summary.attempts for summary in summaries)
    failed = sum(count for s in summaries for ending, count in s.endings.items() if not Ending(ending).by_agent)
    return failed / attempts if attempts else None


def deviations(header: Header, board: Board) -> list[str]:
    """Return what a run does otherwise than its board pins, each in a few words."""
    config, played = header.config, {entry.name: entry for entry in header.board.entries}
    found: list[str] = []
    for entry in board.entries:
        if entry.name in header.tasks:
            found += [f"{entry.name} {text}" for text in _entry_deviations(header, entry, played[entry.name])]
    for name in ("tokens", "seconds"):
        if getattr(config.limits, name) != getattr(Limits(), name):
            found.append(f"{name} limit {getattr(config.limits, name)}")
    if board.published and header.agent != "direct" and header.agent != header.model:
        found.append(f"agent {header.agent}")
    return found


def _entry_deviations(header: Header, pinned: BoardEntry, played: BoardEntry) -> Iterator[str]:
    if played.rules != pinned.rules:
        yield f"rules {played.rules}"
    for key, value in pinned.settings.items():
        if played.settings.get(key) != value:
            yield f"{key} {played.settings.get(key, 'not set')}"
    if played.split != pinned.split:
        yield f"split {played.split}"
    if played.turns != pinned.turns:
        yield f"{played.turns} turns"
    if header.config.prompts.get(pinned.env):
        yield "own prompts"
    for name in pinned.sampling.__struct_fields__:
        if getattr(played.sampling, name) != getattr(pinned.sampling, name):
            yield f"{name} {getattr(played.sampling, name)}"
    count = len(header.tasks[pinned.name])
    if pinned.tasks is not None and count != pinned.tasks:
        yield f"{count} of {pinned.tasks} tasks"
    elif pinned.tasks is None and (header.config.limit or header.config.task_ids):
        yield f"{count} chosen tasks"


def _notes(header: Header, board: Board, summaries: Sequence[Summary]) -> Iterator[str]:
    if len(summaries) < len(board.entries):
        yield f"{len(summaries)} of {len(board.entries)} environments"
    pinned = {entry.name: entry.epochs for entry in board.entries}
    yield from dict.fromkeys(
        f"{entry.epochs} of {pinned[entry.name]} epochs"
        for entry in header.board.entries
        if entry.epochs != pinned.get(entry.name, entry.epochs)
    )
    if header.privileged:
        yield "handed gold play, never ranked"
    yield from (
        f"{summary.entry} coverage {summary.coverage:.3f}: lower bound" for summary in summaries if summary.coverage < 1
    )


def _cell(value: Summary | Overall, tasks: int | None, *, decimals: int) -> Cell:
    return Cell(
        value=value.headline,
        text=f"{value.headline * 100:.{decimals}f}",
        error=value.error,
        lower=value.lower,
        upper=value.upper,
        tasks=tasks,
    )


def _part_cells(summary: Summary, parts: Mapping[str, Aggregate]) -> dict[str, Cell]:
    """Return the cells of a board whose columns are means of task groups; a part without all of its groups has none."""
    cells = {}
    for name, tree in parts.items():
        groups = {group: summary.groups.get(group) for group in leaves(tree)}
        present = {group: found for group, found in groups.items() if found is not None and found.tasks}
        if len(present) < len(groups):
            continue
        weights = shares(tree, {group: found.tasks for group, found in present.items()})
        lower = sum(weights[group] * found.lower for group, found in present.items())
        upper = sum(weights[group] * found.upper for group, found in present.items())
        error = math.sqrt(sum((weights[group] * found.error) ** 2 for group, found in present.items()))
        cells[name] = Cell(value=lower, text=f"{lower * 100:.2f}", error=error, lower=lower, upper=upper)
    return cells


def _group(header: Header) -> Group:
    provider = header.config.model.partition("/")[0]
    if TRAINED.search(header.config.model):
        return "trained"
    if provider in LOCAL or header.config.connection.base_url:
        return "open"
    return "API" if provider in API else "other"


def check_fingerprints(runs: Sequence[Run], *, allow_different: bool) -> list[str]:
    """Return a sentence for each pair of runs that played an entry under different protocols, where that is allowed.

    Raises:
        SetupError: it is not allowed; the message names the keys that differ.
    """
    first: dict[str, Run] = {}
    found: dict[str, list[str]] = {}
    for run in runs:
        for entry in run.header.fingerprints:
            other = first.setdefault(entry, run)
            keys = apart(other.header.protocols, run.header.protocols, [entry]).get(entry)
            if not keys:
                continue
            shown = "; ".join(keys[:6]) + ("; …" if len(keys) > 6 else "")
            if not allow_different:
                raise SetupError(
                    f"{entry} was played under two protocols in {other.folder} and {run.folder} ({shown}): "
                    "show them in one table with --allow-different"
                )
            found.setdefault(f"in {other.folder} and {run.folder}: {shown}", []).append(entry)
    return [f"DIFFERENT PROTOCOLS of {', '.join(entries)} {where}" for where, entries in found.items()]


def agreeing(runs: Sequence[Run]) -> tuple[list[Run], list[Run]]:
    """Return the runs that share one protocol with the newest, and those that do not; gold play yields to the rest."""
    first: dict[str, str] = {}
    kept, left = [], []
    newest_first = sorted(runs, key=lambda run: run.header.created, reverse=True)
    for run in sorted(newest_first, key=lambda run: run.header.privileged):
        marks = run.header.fingerprints
        if all(first.get(entry, mark) == mark for entry, mark in marks.items()):
            first.update(marks)
            kept.append(run)
        else:
            left.append(run)
    return kept, left


def discover(root: Path, board: str) -> list[Run]:
    """Return the runs of a board in a folder of runs, oldest first; what is no readable run is passed over."""
    found = []
    for path in sorted(root.glob(f"*/{runlog.HEADER}")):
        if path.parent.name.startswith("."):
            continue
        try:
            run = runlog.read(path.parent)
        except SetupError:
            continue
        if run.header.board.name == board:
            found.append(run)
    return sorted(found, key=lambda run: run.header.created)
