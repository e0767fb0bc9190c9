"""A run on disk: `run.json` says what was asked, `trajectories.jsonl` has one whole attempt a line.

Decided here: a line is appended once, flushed and fsynced before its attempt counts as finished; lines that wait
together share one fsync. A torn last line is cut off and owed again. A folder of another protocol is refused with the
keys that differ. One process at a time writes a run.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import msgspec

from harness import __version__
from harness.config import EvalConfig
from harness.core import AttemptKey, Board, Json, Trajectory, Value
from harness.errors import SetupError, StorageError
from harness.fingerprint import differences
from harness.metrics import Attempt, newest

FORMAT = 1
HEADER = "run.json"
LINES = "trajectories.jsonl"
OTHER_PROTOCOL = "holds a run of another protocol"
"""What is said of a folder that cannot be gone on in."""


class Header(Value, frozen=True, kw_only=True):
    """What `run.json` says."""

    format: int = FORMAT
    harness: str = __version__
    created: str = ""
    """UTC, ISO 8601."""
    config: EvalConfig
    board: Board
    """The board as played: its entries narrowed to those asked for, flags laid over it."""
    whole: int = 0
    """How many entries the board has when nothing is left out."""
    model: str
    """The model's name; the agent's own where it needs none."""
    agent: str
    privileged: bool = False
    """Whether the agent was handed gold play: such a run is never ranked."""
    fingerprints: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Entry -> fingerprint."""
    protocols: Mapping[str, Mapping[str, Json]] = msgspec.field(default_factory=dict)
    """Entry -> the document that was hashed."""
    tasks: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)
    """Entry -> the tasks asked for: id -> group. A continued run holds every task ever asked for."""
    unavailable: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Entry -> why it could not run on this machine, with the remedy."""


class Run(msgspec.Struct, frozen=True):
    """A run folder, opened for reading."""

    folder: Path
    header: Header

    @property
    def planned(self) -> dict[str, dict[str, int]]:
        """Return entry -> group -> number of tasks asked for."""
        return {entry: dict(Counter(tasks.values())) for entry, tasks in self.header.tasks.items()}

    def attempts(self) -> list[Attempt]:
        """Return every recorded attempt in its light form, in the order written."""
        return list(_decode(self.folder / LINES, msgspec.json.Decoder(Attempt)))

    def newest(self) -> dict[AttemptKey, Attempt]:
        """Return the newest record of each attempt: the one that counts."""
        return newest(self.attempts())

    def trajectories(self) -> Iterator[Trajectory]:
        """Yield every recorded attempt, whole."""
        return _decode(self.folder / LINES, msgspec.json.Decoder(Trajectory))


def read(folder: Path) -> Run:
    """Open a run folder for reading. SetupError where it is none, or is broken, naming the file and the remedy."""
    path = folder / HEADER
    try:
        header = msgspec.json.decode(path.read_bytes(), type=Header)
    except FileNotFoundError as error:
        raise SetupError(f"{folder} is not a run folder: it has no {HEADER}") from error
    except (OSError, msgspec.MsgspecError) as error:
        raise SetupError(f"cannot read {path}: {error}; restore it, or play the run anew in another folder") from error
    if header.format != FORMAT:
        raise SetupError(
            f"{path} has run format {header.format}, this version reads {FORMAT}: use the version it names"
        )
    return Run(folder, header)


def _decode(path: Path, decoder: msgspec.json.Decoder[Any]) -> Iterator[Any]:
    """Yield the lines of a log; a torn last line is passed over, a broken one before it is a SetupError."""
    if not path.exists():
        return
    try:
        lines = path.open("rb")
    except OSError as error:
        raise SetupError(f"cannot read {path}: {error.strerror}") from error
    with lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield decoder.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise SetupError(
                    f"{path}, line {number} is damaged ({error}): delete that line and resume the run to play it again"
                ) from error


class RunLog:
    """A run folder, opened for writing. Use as a context manager."""

    def __init__(self, folder: Path, header: Header) -> None:
        """Make the folder, or continue it if it is of the same protocol.

        Raises:
            SetupError: the folder is another run's, is in use, or cannot be made.
        """
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = lock(folder, f"another process is writing the run in {folder}; wait for it or use --out")
        except OSError as error:
            raise SetupError(f"cannot write to {folder}: {error.strerror}; choose another with --out") from error
        try:
            self.header = self._continue(header) if (folder / HEADER).exists() else _dated(header)
            self.finished = Run(folder, self.header).newest()
            write_atomically(folder / HEADER, msgspec.json.format(msgspec.json.encode(self.header), indent=1))
            self._size = _cut_torn_line(folder / LINES)
            # Unbuffered: nothing is left behind in memory that a close would write again after a failure.
            self._file = (folder / LINES).open("ab", buffering=0)
        except OSError as error:
            self._lock.close()
            raise SetupError(f"cannot write to {folder}: {error.strerror}; choose another with --out") from error
        except SetupError:
            self._lock.close()
            raise
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._writer: asyncio.Task[None] | None = None

    def __enter__(self) -> RunLog:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the files; every finished append is on disk already."""
        self._file.close()
        self._lock.close()

    def _continue(self, header: Header) -> Header:
        """Take over the folder's own date. SetupError where model, agent or protocol differ."""
        old = read(self.folder).header
        wrong = [
            f"{name}: {getattr(old, name)!r} against {getattr(header, name)!r}"
            for name in ("model", "agent")
            if getattr(old, name) != getattr(header, name)
        ]
        for entry in sorted({*old.protocols} & {*header.protocols}):
            wrong += [f"{entry}.{line}" for line in differences(old.protocols[entry], header.protocols[entry])]
        if old.config.seed != header.config.seed:
            wrong.append(f"seed: {old.config.seed} against {header.config.seed}")
        if wrong:
            shown = "; ".join(wrong[:8]) + ("; …" if len(wrong) > 8 else "")
            raise SetupError(f"{self.folder} {OTHER_PROTOCOL} ({shown}): choose another folder with --out")
        return msgspec.structs.replace(
            header,
            created=old.created,
            fingerprints={**old.fingerprints, **header.fingerprints},
            protocols={**old.protocols, **header.protocols},
            tasks={e: {**old.tasks.get(e, {}), **header.tasks.get(e, {})} for e in {*old.tasks, *header.tasks}},
        )

    async def append(self, trajectory: Trajectory) -> None:
        """Write one attempt; returns when it is on disk. StorageError if it cannot be, with the file left whole."""
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((msgspec.json.encode(trajectory) + b"\n", done))
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write_waiting())
        await asyncio.shield(done)

    async def _write_waiting(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                await asyncio.to_thread(self._write, b"".join(line for line, _ in batch))
            except OSError as error:
                problem = StorageError(f"cannot write {self.folder / LINES}: {error.strerror}")
                for _, done in batch:
                    if not done.done():
                        done.set_exception(problem)
            else:
                for _, done in batch:
                    if not done.done():
                        done.set_result(None)

    def _write(self, lines: bytes) -> None:
        """Append and fsync; on failure cut the file back to its last whole line."""
        rest = memoryview(lines)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
            os.fsync(self._file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file.fileno(), self._size)
            raise
        self._size += len(lines)


def _dated(header: Header) -> Header:
    return msgspec.structs.replace(header, created=datetime.now(UTC).isoformat(timespec="seconds"))


def _cut_torn_line(path: Path) -> int:
    """Cut what stands behind the last newline, and return the size that is left."""
    path.touch()
    with path.open("rb+") as file:
        size = end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - 65536)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        if end != size:
            file.truncate(end)
    return end


def lock(folder: Path, busy: str) -> TextIO:
    """Take a folder for this process until the file that is returned is closed.

    Raises:
        SetupError: another has it; `busy` is what it says.
        OSError: the folder cannot be written.
    """
    file = (folder / ".lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise SetupError(busy) from error
    return file


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all, and on disk. OSError where the disk refuses; what was there is as it was."""
    temporary = path.with_suffix(".tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
