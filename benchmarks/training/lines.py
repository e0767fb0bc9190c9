"""Results on disk: one JSON line a run, appended as it comes; the newest line of a key counts.

Decided here: a line has all that a comparison, a table or a plot is made of, task by task, so nothing else of a run
must be kept; and what was done is told by its key, so that it is not done twice.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from harness.core import Value
from harness.errors import SetupError, StorageError
from harness.metrics import Measure, pass_at_k

FOLDER = Path(__file__).with_name("results")
SUFFIX = ".jsonl"
Floats = NDArray[np.float64]


class Counted(Value, frozen=True, kw_only=True):
    """What of a task's attempts counts."""

    measure: Measure = "success"
    tries: int = 1
    """k of pass@k; of one, the mean of the attempts."""


SUCCESS = Counted()


class Scored(Value, frozen=True, kw_only=True):
    """How one model did on the tasks of one environment."""

    env: str
    split: str
    temperature: float
    epochs: int
    successes: tuple[int, ...]
    """Of each task, in the order of the tasks' ids."""
    rewards: tuple[float, ...] = ()
    """The mean of each task's attempts; empty where it was not written down."""
    tasks_digest: str
    """Of those ids: only equal tasks are paired."""

    def values(self, counted: Counted = SUCCESS) -> Floats:
        """Return the value of each task; none where it was not written down."""
        if counted.measure == "reward":
            return np.array(self.rewards, dtype=np.float64)
        return np.array([pass_at_k(self.epochs, wins, counted.tries) for wins in self.successes], dtype=np.float64)


class Curve(Value, frozen=True, kw_only=True):
    """What was seen on the way, one entry an update (or an evaluation of the validation split)."""

    seconds: tuple[float, ...] = ()
    samples: tuple[int, ...] = ()
    """Attempts trained on so far."""
    values: tuple[float, ...] = ()


class Line(Value, frozen=True, kw_only=True):
    """One run."""

    key: str
    kind: str
    recipe: str
    above: Mapping[str, Any]
    seed: int
    command: str
    commit: str
    at: str
    """UTC, when it was done."""
    load: tuple[float, float]
    """Of the machine, just before and at the end, a minute's mean."""
    cores: int
    processor: str = ""
    """Its name, and the widest arithmetic of those that torch looks for; empty where it was not written down."""
    sittings: int
    """More than one: it was interrupted and taken up."""
    seconds: float
    """Of training; neither start-up nor scoring is in it."""
    wall_seconds: float
    """Of all of it, in this sitting."""
    peak_mb: float
    """Of all its processes together, shared pages counted once."""
    figures: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Means over the updates, by the names of the run's own metrics, and counts."""
    scores: tuple[Scored, ...] = ()
    reward: Curve = Curve()
    validation: Curve = Curve()
    by_env: Mapping[str, Curve] = msgspec.field(default_factory=dict)
    """`validation`, environment by environment."""
    began: str = ""
    """Digest of the weights that it began with (of a warm start: that it made); empty where it was not written down."""

    def table(self, temperature: float, counted: Counted = SUCCESS) -> dict[str, Floats]:
        """Return environment -> the value of each task, at a temperature; only of environments where it is known."""
        found = {each.env: each.values(counted) for each in self.scores if each.temperature == temperature}
        return {env: values for env, values in found.items() if len(values)}

    def digests(self, temperature: float) -> dict[str, str]:
        """Return environment -> which tasks those are."""
        return {each.env: each.tasks_digest for each in self.scores if each.temperature == temperature}

    def success(self, temperature: float, counted: Counted = SUCCESS) -> float | None:
        """Return the mean over the environments; None where it was not scored."""
        found = self.table(temperature, counted)
        return float(np.mean([values.mean() for values in found.values()])) if found else None


def append(path: Path, line: Line) -> None:
    """Write a line and put it on disk. StorageError where the disk refuses."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _mend(path)
        with path.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}; free some space and run it again") from error


def read(folder: Path) -> dict[str, Line]:
    """Return key -> the newest line of it, from all files of a folder. A torn last line is passed over."""
    found: dict[str, Line] = {}
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        for number, text in enumerate(path.read_bytes().splitlines(keepends=True), 1):
            if not text.endswith(b"\n"):
                continue
            try:
                line = msgspec.json.decode(text, type=Line)
            except msgspec.MsgspecError as error:
                raise SetupError(f"{path}, line {number} is damaged ({error}): delete it to run that again") from error
            found[line.key] = line
    return found


def of_seeds(lines: Mapping[str, Line], keys: Mapping[int, str]) -> dict[int, Line]:
    """Return seed -> its line, of the seeds that were run."""
    return {seed: lines[key] for seed, key in keys.items() if key in lines}


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of those that are there; None where none is."""
    present = [value for value in values if value is not None]
    return float(np.mean(present)) if present else None


def minutes(lines: Mapping[str, Line], recipe: str, kind: str, above: Mapping[str, Any]) -> float | None:
    """Return the median minutes of the runs of a kind, of the same environments; None where none was made."""
    envs = set(above.get("envs", ()))
    taken = sorted(
        line.wall_seconds / 60
        for line in lines.values()
        if line.recipe == recipe and line.kind == kind and set(line.above.get("envs", ())) == envs
    )
    return taken[len(taken) // 2] if taken else None


def rounded(values: Sequence[float], digits: int = 4) -> tuple[float, ...]:
    """Return values short enough for a line."""
    return tuple(round(float(value), digits) for value in values)


def _mend(path: Path) -> None:
    """Cut off a last line that a crash tore."""
    text = path.read_bytes() if path.exists() else b""
    if text and not text.endswith(b"\n"):
        os.truncate(path, text.rfind(b"\n") + 1)
