"""What a run writes down while it trains: one place takes each update's numbers, and hands them on.

    RUN/metrics.jsonl      a line an update, always
    RUN/alarms.jsonl       a line each time an alarm is raised, and when it is gone
    RUN/tensorboard/       where TensorBoard is installed
    wandb                  only where the recipe names a project: `[log] wandb = "project"`

Decided here: a line is on disk before the run goes on, whole or not at all. A run that is taken up drops the lines of
updates that are later than its checkpoint, so that no update stands twice, and its time goes on where it stood. The
disk's refusal ends the run; TensorBoard's and wandb's are told once, and it goes on without them.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Protocol

import msgspec

from harness import runlog
from harness.core import Json, Value
from harness.errors import SetupError, StorageError
from training import disk, scores
from training.alarms import Alarm, AlarmOptions, Watched
from training.machine import peak_bytes
from training.values import Metrics

LINES, ALARMS, TENSORBOARD = "metrics.jsonl", "alarms.jsonl", "tensorboard"
RAISED: Literal["raised"] = "raised"
GONE: Literal["gone"] = "gone"
Say = Callable[[str], None]


class LogOptions(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a run's numbers go besides its folder, and where alarms begin. No weight depends on it."""

    tensorboard: bool = True
    """Where it is installed."""
    wandb: str | None = None
    """Project of Weights & Biases; None sends nothing anywhere."""
    alarms: AlarmOptions = AlarmOptions()


class AlarmLine(Value, frozen=True, kw_only=True):
    """One line of `alarms.jsonl`."""

    version: int
    event: Literal["raised", "gone"]
    name: str
    cause: str
    remedy: str


class Sink(Protocol):
    """Somewhere else that numbers go."""

    def write(self, version: int, values: Mapping[str, float]) -> None:
        """Take the numbers of an update."""
        ...

    def close(self) -> None:
        """Send what waits."""
        ...


class Record:
    """The record of one run. Called once an update, with the version of the weights that it made."""

    def __init__(self, folder: Path, options: LogOptions, say: Say, version: int = 0) -> None:
        """Go on with a run's record from a version; a new run's is empty.

        Raises:
            SetupError: wandb is asked for and not installed, or cannot begin.
            StorageError: the disk refuses.
        """
        require(options)
        self._say = say
        self._metrics = Lines(folder / LINES)
        self._alarms = Lines(folder / ALARMS)
        kept = self._metrics.cut(version)
        self._watched = Watched(options.alarms, standing(self._alarms.cut(version)))
        for line in kept:
            self._watched.saw(line)
        self._begun = time.monotonic() - (kept[-1]["seconds"] if kept else 0.0)
        self._last = time.monotonic()
        self._folder = folder
        self._scored: set[int] = set()
        self._sinks = sinks(folder, options, version)

    def __call__(self, version: int, metrics: Metrics) -> None:
        """Write down what an update was like. StorageError where the disk refuses; what was written stays whole."""
        now = time.monotonic()
        line = {"version": version, "seconds": round(now - self._begun, 3), **_plain(metrics)}
        line |= _rates(line, now - self._last)
        line["memory/peak_bytes"] = peak_bytes()
        self._last = now
        self._watched.saw(line)
        risen, gone = self._watched.changes()
        for event, alarms in ((RAISED, risen), (GONE, gone)):
            if alarms:
                line[f"alarms/{event}"] = [alarm.name for alarm in alarms]
                for alarm in alarms:
                    self._alarms.append(msgspec.to_builtins(_line(version, event, alarm)))
        self._metrics.append(line)
        self._say(summary(line))
        for alarm in risen:
            self._say(f"alarm: {alarm}")
        for alarm in gone:
            self._say(f"no longer: {alarm.name}")
        self._hand_on(version, line)

    def close(self) -> None:
        """Send what waits to be sent."""
        self._hand_on_scores()
        for sink in self._sinks:
            self._tried(sink, sink.close)

    def _hand_on(self, version: int, line: Mapping[str, Json]) -> None:
        values = {key: float(value) for key, value in line.items() if isinstance(value, (int, float))}
        for sink in self._sinks:
            self._tried(sink, partial(sink.write, version, values))
        self._hand_on_scores()

    def _hand_on_scores(self) -> None:
        """Hand on the validation scores that are new: they come when they are ready, some updates late."""
        for found in scores.read(self._folder, skip=self._scored) if self._sinks else ():
            self._scored.add(found.version)
            values = {"validation/score": found.score, "validation/low": found.low, "validation/high": found.high}
            for sink in self._sinks:
                self._tried(sink, partial(sink.write, found.version, values))

    def _tried(self, sink: Sink, what: Callable[[], None]) -> None:
        """Do it, or tell it once and go on without the sink."""
        try:
            what()
        except Exception as error:  # other people's code, threads and servers: no common base
            reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
            self._say(f"{type(sink).__name__} takes no more: {reason}; {LINES} goes on")
            self._sinks = [each for each in self._sinks if each is not sink]


class Lines:
    """A file of JSON lines that is whole after whatever happens."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def cut(self, version: int) -> list[dict[str, Json]]:
        """Drop the lines of later versions and a torn last one, all at once; return those that stay.

        Raises:
            SetupError: another line is damaged.
            StorageError: the disk refuses; the file is as it was.
        """
        if not self.path.exists():
            return []
        kept = [line for line in read(self.path) if line["version"] <= version]
        text = "".join(_text(line) for line in kept).encode()
        try:
            runlog.write_atomically(self.path, text)
            disk.sync(self.path.parent)
        except OSError as error:
            raise StorageError(disk.refusal(self.path, error)) from error
        return kept

    def append(self, line: Mapping[str, Json]) -> None:
        """Write one line and put it on disk. StorageError where that fails, with the file as it was."""
        rest = memoryview(_text(line).encode())
        try:
            with self.path.open("ab", buffering=0) as file:
                size = os.fstat(file.fileno()).st_size
                try:
                    while rest:
                        rest = rest[file.write(rest) :]
                    os.fsync(file.fileno())
                except OSError:
                    with contextlib.suppress(OSError):
                        os.ftruncate(file.fileno(), size)
                    raise
        except OSError as error:
            raise StorageError(disk.refusal(self.path, error)) from error


def read(path: Path) -> list[dict[str, Json]]:
    """Return the whole lines of a record. SetupError for a damaged one; a torn last one is passed over."""
    found = []
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), 1):
        if not line.endswith(b"\n"):
            break
        try:
            found.append({"version": 0, "seconds": 0.0, **json.loads(line)})
        except (ValueError, TypeError) as error:
            raise SetupError(f"{path}, line {number} is damaged ({error}): delete that line") from error
    return found


def standing(
    lines: Sequence[Mapping[str, Json]], before: Mapping[str, Alarm] = MappingProxyType({})
) -> dict[str, Alarm]:
    """Return the alarms that were raised, before or by these lines, and are not gone."""
    found = dict(before)
    for line in lines:
        alarm = Alarm(name=str(line["name"]), cause=str(line["cause"]), remedy=str(line["remedy"]))
        if line["event"] == RAISED:
            found[alarm.name] = alarm
        else:
            found.pop(alarm.name, None)
    return found


def summary(line: Mapping[str, Json]) -> str:
    """Return the few figures of an update that matter, as one line."""
    idle = line.get("idle/learner")
    parts = [
        f"update {line['version']}",
        f"reward {line.get('reward/mean') or 0.0:+.3f}",
        f"tokens {line.get('tokens/trained', 0):,}",
        f"ess {line['ess']:.2f}" if line.get("ess") is not None else "",
        f"learner idle {100 * idle:.0f} %" if idle is not None else "",
        f"{line['seconds']:.0f} s",
    ]
    return "  ".join(part for part in parts if part)


def require(options: LogOptions) -> None:
    """Refuse a record that cannot be kept here. SetupError with the remedy."""
    if options.wandb is not None and find_spec("wandb") is None:
        raise SetupError("log.wandb needs the package 'wandb': pip install wandb, or leave log.wandb out")


def sinks(folder: Path, options: LogOptions, version: int) -> list[Sink]:
    """Return where else a run's numbers go."""
    found: list[Sink] = []
    if options.tensorboard and (writer := _summary_writer()) is not None:
        found.append(TensorBoard(writer(str(folder / TENSORBOARD), purge_step=version + 1)))
    if options.wandb is not None:
        found.append(Wandb(folder, options.wandb))
    return found


class TensorBoard:
    """TensorBoard's event files."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(self, version: int, values: Mapping[str, float]) -> None:
        """Take the numbers of an update."""
        for name, value in values.items():
            if name != "version":
                self._writer.add_scalar(name, value, version)
        self._writer.flush()

    def close(self) -> None:
        """Write what waits."""
        self._writer.close()


class Wandb:
    """A run of Weights & Biases; the same folder is the same run."""

    def __init__(self, folder: Path, project: str) -> None:
        wandb = importlib.import_module("wandb")
        name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
        try:
            self._run = wandb.init(project=project, dir=str(folder), name=folder.name, id=name, resume="allow")
            # Scores come some updates late: the version is their step, whatever came in between.
            self._run.define_metric("*", step_metric="version")
        except Exception as error:  # no login, no network: no common base
            reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
            raise SetupError(f"wandb cannot begin: {reason}; log in, or leave log.wandb out") from error

    def write(self, version: int, values: Mapping[str, float]) -> None:
        """Take the numbers of an update."""
        self._run.log({**values, "version": version})

    def close(self) -> None:
        """Send what waits."""
        self._run.finish()


def _summary_writer() -> Any:
    """Return TensorBoard's writer, torch's or tensorboardX's; None where neither is installed."""
    for needed, module in ((("tensorboard", "torch"), "torch.utils.tensorboard"), (("tensorboardX",), "tensorboardX")):
        with contextlib.suppress(ImportError):  # it is there, and of another version than is expected
            if all(find_spec(name) for name in needed):
                return importlib.import_module(module).SummaryWriter
    return None


def _rates(line: Mapping[str, Json], seconds: float) -> Metrics:
    """Return how long an update took, and the tokens a second."""
    found: Metrics = {"update/seconds": round(seconds, 3)}
    for what in ("generated", "trained"):
        tokens = line.get(f"tokens/{what}")
        if isinstance(tokens, (int, float)):
            found[f"tokens/{what}_per_second"] = round(tokens / max(seconds, 1e-9), 1)
    return found


def _plain(metrics: Metrics) -> dict[str, Json]:
    """Return numbers as JSON has them: one that is no finite number is null."""
    return {key: _number(value) for key, value in metrics.items()}


def _number(value: Any) -> Json:
    if isinstance(value, (bool, int, str)) or value is None:
        return value
    if hasattr(value, "dtype") and getattr(value.dtype, "kind", "") in "iu":
        return int(value)
    number = float(value)
    return number if math.isfinite(number) else None


def _line(version: int, event: Literal["raised", "gone"], alarm: Alarm) -> AlarmLine:
    return AlarmLine(version=version, event=event, name=alarm.name, cause=alarm.cause, remedy=alarm.remedy)


def _text(line: Mapping[str, Json]) -> str:
    return json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n"
