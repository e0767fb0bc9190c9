"""The validation scores of a run, read from the runs of `harness eval` that made them: complete ones alone."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from harness import runlog
from harness.core import Value
from harness.errors import SetupError
from harness.metrics import overall, summarise_board

FOLDER = "evaluations"
VALIDATION = "validation-"


class Score(Value, frozen=True, kw_only=True):
    """What the weights of one version scored."""

    version: int
    score: float
    low: float
    """Of the 95 % interval."""
    high: float
    coverage: float
    envs: tuple[tuple[str, float], ...] = ()


def read(folder: Path, skip: Collection[int] = ()) -> list[Score]:
    """Return the scores of a run by version, without those of versions to skip."""
    found = []
    for path in sorted((folder / FOLDER).glob(f"{VALIDATION}*/{runlog.HEADER}")):
        version = path.parent.name.removeprefix(VALIDATION)
        if version.isdigit() and int(version) not in skip and (score := _score(path.parent, int(version))):
            found.append(score)
    return found


def of(folder: Path, version: int) -> Score | None:
    """Return what the weights of one version scored in a run; None where that is not whole."""
    return _score(folder / FOLDER / f"{VALIDATION}{version:06d}", version)


def _score(folder: Path, version: int) -> Score | None:
    """Return what one evaluation found; None while it is under way, or where it cannot be read."""
    try:
        run = runlog.read(folder)
        if (folder / runlog.LINES).read_bytes().count(b"\n") < sum(map(len, run.header.tasks.values())):
            return None
        attempts = run.attempts()
        if len({attempt.key for attempt in attempts}) < sum(map(len, run.header.tasks.values())):
            return None
        summaries = summarise_board(attempts, run.header.board, run.planned)
    except (SetupError, OSError):  # begun anew at this moment
        return None
    whole = overall(summaries)
    if whole is None:
        return None
    return Score(
        version=version,
        score=whole.headline,
        low=whole.interval[0],
        high=whole.interval[1],
        coverage=whole.coverage,
        envs=tuple((each.entry, each.headline) for each in summaries),
    )
