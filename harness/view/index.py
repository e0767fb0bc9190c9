"""Where each attempt of a run lies in its log, and what a list needs of it: so that no run is ever read whole.

Decided here: the log is read once, from where the last look ended, in bounded pieces; a trajectory is then one seek and
one line. The index of a long log is kept in the user's cache, never in the run, and is used only where the log still
begins, and reads around the index's end, as it did. A damaged line is counted and passed over: a viewer shows the rest.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec
import platformdirs

from harness.core import AttemptKey, Ending, Score, Trajectory, Usage
from harness.errors import SetupError
from harness.metrics import Attempt, Summary, TurnMark

FORMAT = 1
PIECE = 16 << 20
"""Bytes of log read at once; a longer line is read whole all the same."""
LONG = 32 << 20
"""Logs from here on have their index kept."""
MOST_KEPT = 32
MOST_MESSAGE = 300
LEVEL = "agentrl_status"


class Row(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One recorded attempt, and where its line is."""

    offset: int
    length: int
    entry: str
    task_id: str
    epoch: int
    attempt: int
    group: str
    ending: Ending
    value: float | None
    turns: int
    usage: Usage
    seconds: float
    failure: str = ""
    status: str = ""
    """What the environment calls the ending in `agentrl-eval`'s words."""

    @property
    def key(self) -> AttemptKey:
        """What this is an attempt at."""
        return AttemptKey(self.entry, self.task_id, self.epoch)

    def light(self) -> Attempt:
        """Return the attempt as statistics take it."""
        return Attempt(
            entry=self.entry,
            task_id=self.task_id,
            epoch=self.epoch,
            attempt=self.attempt,
            group=self.group,
            ending=self.ending,
            score=Score(value=self.value, parts={LEVEL: self.status} if self.status else {}),
            turns=(_TURN,) * self.turns,
            usage=self.usage,
            seconds=self.seconds,
        )


class Kept(msgspec.Struct, frozen=True, array_like=True):
    """An index as the cache holds it."""

    format: int
    begin: bytes
    end: bytes
    """Digests of the log's first bytes, and of those before `offset`."""
    offset: int
    damaged: int
    rows: list[Row]
    planned: bytes = b""
    """Digest of the header that the summaries were made under."""
    summaries: list[Summary] = []


class Index:
    """The attempts of one log, as far as it was read. Not for several threads at once."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self._clear()

    def _clear(self) -> None:
        self.rows: list[Row] = []
        self.newest: dict[AttemptKey, int] = {}
        """The place in `rows` of the record that counts."""
        self.offset = 0
        self.damaged = 0

    @property
    def size(self) -> int:
        """Return the size of the log now; 0 where there is none yet."""
        try:
            return self.log.stat().st_size
        except OSError:
            return 0

    def advance(self, most: int = PIECE) -> bool:
        """Read on by about so many bytes; return whether there may be more. A log that shrank is read anew."""
        size = self.size
        if size < self.offset:
            self._clear()
        if size == self.offset:
            return False
        begun = self.offset
        with self.log.open("rb") as file:
            file.seek(begun)
            for line in _lines(file, most):
                self._take(line)
                self.offset += len(line)
        return self.offset - begun >= most

    def _take(self, line: bytes) -> None:
        try:
            attempt = _DECODER.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self.damaged += 1
            return
        self._add(_row(attempt, self.offset, len(line)))

    def _add(self, row: Row) -> None:
        place = self.newest.get(row.key)
        if place is None or row.attempt >= self.rows[place].attempt:
            self.newest[row.key] = len(self.rows)
        self.rows.append(row)

    def counting(self) -> Iterator[Row]:
        """Yield the records that count, in the order in which their keys first came."""
        return (self.rows[place] for place in list(self.newest.values()))

    def records(self, key: AttemptKey) -> list[Row]:
        """Return every record of a key, oldest first."""
        return [row for row in self.rows if row.key == key]

    def read(self, row: Row) -> Trajectory:
        """Read one attempt whole. SetupError where its line is damaged."""
        with self.log.open("rb") as file:
            file.seek(row.offset)
            line = file.read(row.length)
        try:
            return msgspec.json.decode(line, type=Trajectory)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise SetupError(f"the record of {row.task_id} in {self.log} is damaged: {error}") from error

    def recall(self) -> Kept | None:
        """Take the index from the cache where it still fits the log."""
        try:
            kept = msgspec.msgpack.decode(_place(self.log).read_bytes(), type=Kept)
        except (OSError, msgspec.MsgspecError):
            return None
        if kept.format != FORMAT or kept.offset > self.size or (kept.begin, kept.end) != _marks(self.log, kept.offset):
            return None
        self._clear()
        for row in kept.rows:
            self._add(row)
        self.offset, self.damaged = kept.offset, kept.damaged
        return kept

    def keep(self, planned: bytes = b"", summaries: list[Summary] | None = None) -> None:
        """Put the index of a long log into the cache; where that cannot be written, nothing is lost but time."""
        if self.offset < LONG:
            return
        begin, end = _marks(self.log, self.offset)
        kept = Kept(FORMAT, begin, end, self.offset, self.damaged, self.rows, planned, summaries or [])
        place = _place(self.log)
        part = place.with_suffix(f".{os.getpid()}")
        with contextlib.suppress(OSError):
            place.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(msgspec.msgpack.encode(kept))
            part.replace(place)
            old = sorted(place.parent.glob("*.index"), key=lambda path: path.stat().st_mtime, reverse=True)
            for path in old[MOST_KEPT:]:
                path.unlink(missing_ok=True)


_DECODER = msgspec.json.Decoder(Attempt)
_TURN = TurnMark()


def _row(attempt: Attempt, offset: int, length: int) -> Row:
    return Row(
        offset,
        length,
        attempt.entry,
        attempt.task_id,
        attempt.epoch,
        attempt.attempt,
        attempt.group,
        attempt.ending,
        attempt.score.value,
        len(attempt.turns),
        attempt.usage,
        attempt.seconds,
        attempt.failure.message[:MOST_MESSAGE] if attempt.failure else "",
        str(attempt.score.parts.get(LEVEL, "")),
    )


def _lines(file: IO[bytes], most: int) -> Iterator[bytes]:
    """Yield whole lines, about `most` bytes of them; a torn last line is not yet one."""
    read = 0
    while read < most and (line := file.readline()):
        if not line.endswith(b"\n"):
            return
        read += len(line)
        yield line


def _marks(log: Path, offset: int) -> tuple[bytes, bytes]:
    """Return digests of a log's beginning and of what stands before an offset."""
    with log.open("rb") as file:
        begin = file.read(min(4096, offset))
        file.seek(max(0, offset - 4096))
        end = file.read(min(4096, offset))
    return hashlib.sha256(begin).digest(), hashlib.sha256(end).digest()


def _place(log: Path) -> Path:
    name = hashlib.sha256(str(log.resolve()).encode()).hexdigest()[:32]
    return Path(platformdirs.user_cache_dir("agent-harness")) / "view" / f"{name}.index"
