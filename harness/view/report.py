"""What a report of runs says, as values: their tables, how they differ, and the attempts that are shown in full.

Decided here: which attempts those are. First what flipped between the runs, then failures, one of each ending in each
environment in turn, then a sample drawn by a seed; the rule and its counts are printed with them. All follows from the
runs and the seed, so that the same command makes the same report.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import TypeVar

from harness import runlog
from harness.bundle import public
from harness.core import AttemptKey, Trajectory, Value, seed_of
from harness.errors import SetupError
from harness.fingerprint import apart
from harness.metrics import Attempt, compare, summarise_board
from harness.runlog import Header, Run
from harness.table import ComparisonTable, RunTable, logged_table

Drawn = TypeVar("Drawn")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
MOST_RUNS = len(LETTERS)
FLIP, FAILURE, SAMPLE = "flip", "failure", "sample"
WHYS = (FLIP, FAILURE, SAMPLE)
FLIPS_UP_TO = 0.5
FAILURES_UP_TO = 0.75
"""Of all that are chosen: the share that flips fill at most, and flips and failures together."""


class ReportRun(Value, frozen=True, kw_only=True):
    """One run of a report."""

    letter: str
    """"A", "B", …; "" where there is one run."""
    header: Header
    """Without what is true of one machine only: a report is mailed."""
    table: RunTable
    standing: str = ""
    """Its rank range on its board."""


class Chosen(Value, frozen=True, kw_only=True):
    """One attempt that is shown in full."""

    run: int
    attempt: Attempt
    why: str


class Report(Value, frozen=True, kw_only=True):
    """Several runs, ready to be written in any form."""

    runs: tuple[ReportRun, ...]
    comparisons: tuple[ComparisonTable, ...]
    """Of each run with each later one, by letter."""
    left: tuple[str, ...] = ()
    """What is not compared, and why: a sentence each."""
    chosen: tuple[Chosen, ...]
    rule: str
    """How they were chosen, in a sentence."""

    @property
    def title(self) -> str:
        """Name the runs' models, and their board where they share one."""
        models = list(dict.fromkeys(run.table.model for run in self.runs))
        boards = {run.table.board for run in self.runs}
        return ", ".join(models) + (f" on {boards.pop()}" if len(boards) == 1 else "")


def gather(
    runs: Sequence[Run],
    *,
    trajectories: int,
    seed: int = 0,
    standings: Sequence[str] = (),
    allow_different: bool = False,
) -> Report:
    """Return a report of some runs. What was played under different protocols is compared only where that is allowed.

    Raises:
        SetupError: too many runs, or one that cannot be read.
    """
    if len(runs) > MOST_RUNS:
        raise SetupError(f"a report takes {MOST_RUNS} runs at most, not {len(runs)}")
    attempts = [run.attempts() for run in runs]
    counting = [_sorted(run.newest()) for run in runs]
    counted = [summarise_board(each, run.header.board, run.planned) for run, each in zip(runs, attempts, strict=True)]
    several = len(runs) > 1
    made = tuple(
        ReportRun(
            letter=LETTERS[place] if several else "",
            header=public(run.header),
            table=logged_table(run.header, run.folder.resolve().name, summaries),
            standing=standings[place] if standings else "",
        )
        for place, (run, summaries) in enumerate(zip(runs, counted, strict=True))
    )
    comparisons, left = _comparisons(runs, attempts, allow_different)
    compared = {entry.entry for table in comparisons for entry in table.comparison.entries}
    chosen, rule = choose(counting, trajectories, seed, compared)
    return Report(runs=made, comparisons=tuple(comparisons), left=tuple(left), chosen=tuple(chosen), rule=rule)


def _sorted(newest: Mapping[AttemptKey, Attempt]) -> list[Attempt]:
    return [newest[key] for key in sorted(newest)]


def _comparisons(
    runs: Sequence[Run], attempts: Sequence[Sequence[Attempt]], allow_different: bool
) -> tuple[list[ComparisonTable], list[str]]:
    """Compare every two runs on what both played, and say what is not compared."""
    found, left = [], []
    for first, second in combinations(range(len(runs)), 2):
        before, after = runs[first].header, runs[second].header
        shared = {
            entry.name: entry.aggregate
            for entry in before.board.entries
            if entry.name in before.tasks and entry.name in after.tasks
        }
        different = apart(before.protocols, after.protocols, shared)
        if not allow_different:
            pair = f"{LETTERS[first]} and {LETTERS[second]}"
            left += [
                f"{name} is not compared: {pair} played it under different protocols ({'; '.join(keys[:4])})."
                for name, keys in different.items()
            ]
            shared = {name: tree for name, tree in shared.items() if name not in different}
        if shared:
            table = ComparisonTable(
                first=LETTERS[first],
                second=LETTERS[second],
                comparison=compare(attempts[first], attempts[second], shared),
                different=different if allow_different else {},
            )
            found.append(table)
    return found, left


def choose(
    runs: Sequence[Sequence[Attempt]], most: int, seed: int = 0, compared: Collection[str] = ()
) -> tuple[list[Chosen], str]:
    """Return the attempts to show in full, and the rule in a sentence.

    `runs` has each run's counting attempts; only what was `compared`, by entry, can have flipped.
    """
    everything = {(place, one.key): one for place, attempts in enumerate(runs) for one in attempts}
    picked: dict[tuple[int, AttemptKey], str] = {}
    if len(everything) <= most:
        whys = {key: FLIP for group in _flips(runs, compared) for key in group}
        picked = {key: whys.get(key, SAMPLE if one.score.value == 1 else FAILURE) for key, one in everything.items()}
        rule = f"All {len(everything)} attempts that count are here."
    else:
        for group in _drawn(_flips(runs, compared), seed):
            if len(picked) + len(group) <= most * FLIPS_UP_TO:
                picked |= dict.fromkeys(group, FLIP)
        for key in _failures(everything, seed):
            if len(picked) < most * FAILURES_UP_TO:
                picked.setdefault(key, FAILURE)
        for key in _drawn(list(everything), seed):
            if len(picked) < most:
                picked.setdefault(key, SAMPLE)
        counts = {why: sum(one == why for one in picked.values()) for why in WHYS}
        rule = (
            f"Of {len(everything)} attempts that count, {len(picked)} are here: {counts[FLIP]} that came out otherwise "
            f"in another run, {counts[FAILURE]} failures (one of each ending in each environment in turn) and "
            f"{counts[SAMPLE]} drawn from the rest by seed {seed}."
        )
    chosen = [Chosen(run=key[0], attempt=everything[key], why=why) for key, why in picked.items()]
    return sorted(chosen, key=lambda one: (WHYS.index(one.why), one.attempt.key, one.run)), rule


def _flips(runs: Sequence[Sequence[Attempt]], compared: Collection[str]) -> list[tuple[tuple[int, AttemptKey], ...]]:
    """Return the keys whose scored attempts succeeded in one run and not in another, with each run that has them."""
    by_key: dict[AttemptKey, dict[int, bool]] = {}
    for place, attempts in enumerate(runs):
        for one in attempts:
            if one.score.value is not None and one.entry in compared:
                by_key.setdefault(one.key, {})[place] = one.score.value == 1
    return [tuple((place, key) for place in found) for key, found in by_key.items() if len(set(found.values())) > 1]


def _failures(everything: Mapping[tuple[int, AttemptKey], Attempt], seed: int) -> Iterator[tuple[int, AttemptKey]]:
    """Yield failed attempts: one of each run, environment and ending, then a second of each, and so on."""
    kinds: dict[tuple[int, str, str], list[tuple[int, AttemptKey]]] = {}
    for (place, key), one in everything.items():
        if one.score.value != 1:
            kinds.setdefault((place, one.entry, str(one.ending)), []).append((place, key))
    queues = [_drawn(kinds[kind], seed) for kind in sorted(kinds)]
    for turn in range(max(map(len, queues), default=0)):
        yield from (queue[turn] for queue in queues if turn < len(queue))


def _drawn(values: Sequence[Drawn], seed: int) -> list[Drawn]:
    """Return the values in an order that the seed fixes, whatever order they came in."""
    return sorted(values, key=lambda value: (seed_of("report", seed, value), str(value)))


def read_chosen(report: Report, folders: Sequence[Path]) -> Iterator[tuple[int, Trajectory]]:
    """Yield the chosen attempts whole, with their places in the report, in the order of the logs."""
    wanted = {(one.run, one.attempt.key, one.attempt.attempt): place for place, one in enumerate(report.chosen)}
    for number, folder in enumerate(folders):
        if not any(run == number for run, _, _ in wanted):
            continue
        last: dict[int, Trajectory] = {}
        for trajectory in runlog.read(folder).trajectories():
            place = wanted.get((number, trajectory.key, trajectory.attempt))
            if place is not None:
                last[place] = trajectory
        yield from sorted(last.items())
