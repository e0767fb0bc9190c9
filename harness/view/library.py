"""The runs that a viewer knows: found below the folders it was given, opened when looked at, closed when forgotten.

Decided here: a run is named by its path below the folder that was given, and looked up by that name alone: no part of
an address ever becomes a path. One thread reads long logs and counts, so that a page answers at once with what is
known. Whether a run is being played is read off the system's list of locks, without touching the lock itself.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import msgspec

from harness import runlog
from harness.core import digest
from harness.errors import SetupError
from harness.metrics import Summary, summarise_board
from harness.runlog import HEADER, LINES, Header
from harness.table import RunTable, logged_table
from harness.view.index import Index

METRICS = "metrics.jsonl"
RECIPE = "recipe.json"
EVALUATIONS = "evaluations"
LOCKS = Path("/proc/locks")
FOUND_SECONDS = 2.0
"""Folders are looked through again after so long."""
MOST_RUNS = 5_000
MOST_OPEN = 24
MOST_ROWS = 500_000
"""Attempts of all runs that are held open; beyond it the run that was not looked at for longest is closed."""
AT_ONCE = 8 << 20
"""Bytes of log that a page waits for."""
FEW = 3_000
"""Attempts that are summarised while a page waits."""
QUIET_SECONDS = 60.0
Kind = Literal["run", "train"]
State = Literal["playing", "complete", "stopped"]


class Place(msgspec.Struct, frozen=True):
    """A folder that was found."""

    name: str
    kind: Kind
    folder: Path


class Progress(msgspec.Struct, frozen=True):
    """How far a run is."""

    state: State
    done: int
    """Attempts of which a record counts."""
    planned: int
    read: float
    """Share of the log that was read."""


class Opened:
    """One run, opened for looking at."""

    def __init__(self, place: Place, worker: ThreadPoolExecutor) -> None:
        self.place = place
        self.index = Index(place.folder / LINES)
        self._worker = worker
        self._lock = threading.Lock()
        self._under_way: Future[None] | None = None
        self._stamp = (0, 0)
        self._header, self._digest = self._read_header()
        self._summaries: tuple[int, bytes, list[Summary]] | None = None
        self.problem = ""
        """What the reading thread could not do."""
        with self._lock:
            kept = self.index.recall()
            if kept is not None and kept.summaries and kept.planned == self._digest:
                self._summaries = (kept.offset, self._digest, kept.summaries)

    @property
    def header(self) -> Header:
        """Return the header as it stands; a resumed run may have written it anew."""
        if self._stamp != _stamp(self.place.folder / HEADER):
            self._header, self._digest = self._read_header()
        return self._header

    def _read_header(self) -> tuple[Header, bytes]:
        self._stamp = _stamp(self.place.folder / HEADER)
        header = runlog.read(self.place.folder).header
        wanted = [msgspec.to_builtins(header.board), {name: sorted(tasks) for name, tasks in header.tasks.items()}]
        return header, bytes.fromhex(digest(wanted))

    @property
    def progress(self) -> Progress:
        """Return how far the run is, by what was read of it."""
        header, index = self.header, self.index
        epochs = {entry.name: entry.epochs for entry in header.board.entries}
        planned = sum(len(tasks) * epochs.get(name, 1) for name, tasks in header.tasks.items())
        done = len(index.newest)
        size = index.size
        state: State = "complete" if done >= planned else "playing" if self.playing else "stopped"
        return Progress(state, done, planned, index.offset / size if size else 1.0)

    @property
    def playing(self) -> bool:
        """Return whether a process holds the run's lock."""
        return _locked(self.place.folder / ".lock", self.index.log)

    def catch_up(self, seconds: float) -> bool:
        """Read what is new, waiting so long at most; return whether all of it was read."""
        if self.index.size - self.index.offset <= AT_ONCE and self._lock.acquire(timeout=seconds):
            try:
                while self.index.advance():
                    pass
                return True
            finally:
                self._lock.release()
        self._begin()
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.index.size > self.index.offset:
            time.sleep(0.01)
        return self.index.size <= self.index.offset

    def summaries(self) -> list[Summary] | None:
        """Return the summaries of what was read; while they are being counted those of an earlier look, or None."""
        known = self._summaries
        if known and known[:2] == (self.index.offset, self._digest):
            return known[2]
        if len(self.index.rows) <= FEW and self.index.size - self.index.offset <= AT_ONCE:
            with self._lock:
                self._summarise()
        else:
            self._begin()
        return self._summaries[2] if self._summaries else None

    def table(self) -> RunTable | None:
        """Return the run's table, or None while it is not counted yet."""
        summaries, header = self.summaries(), self.header
        if summaries is None:
            return None
        return logged_table(header, str(self.place.folder), summaries)

    def _begin(self) -> None:
        if self._under_way is None or self._under_way.done():
            self._under_way = self._worker.submit(self._work)

    def _work(self) -> None:
        """Read the log to its end, count, and keep the index: in the reading thread."""
        more = True
        try:
            while more:
                with self._lock:
                    more = self.index.advance()
            with self._lock:
                self._summarise()
                known = self._summaries
                self.index.keep(self._digest, known[2] if known else None)
        except (SetupError, OSError) as error:
            self.problem = str(error)

    def _summarise(self) -> None:
        header = self.header
        planned = runlog.Run(self.place.folder, header).planned
        attempts = [row.light() for row in self.index.rows]
        self._summaries = (self.index.offset, self._digest, summarise_board(attempts, header.board, planned))


class Library:
    """All runs below some folders."""

    def __init__(self, folders: Sequence[Path]) -> None:
        """Look through the folders. SetupError where one is neither a run nor a folder of runs."""
        for folder in folders:
            if not folder.is_dir():
                raise SetupError(f"there is no folder '{folder}': give run folders, or the folder that holds them")
        self._folders = [folder.resolve() for folder in folders]
        self._found: dict[str, Place] = {}
        self._looked = -FOUND_SECONDS
        self._opened: OrderedDict[str, Opened] = OrderedDict()
        self._lock = threading.Lock()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="reading")

    def close(self) -> None:
        """End the reading thread; what it reads now is read to its end."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    def places(self) -> dict[str, Place]:
        """Return name -> place of all that is there now."""
        with self._lock:
            if time.monotonic() - self._looked > FOUND_SECONDS:
                self._found = _look(self._folders)
                self._looked = time.monotonic()
            return self._found

    def name_of(self, folder: Path) -> str:
        """Return the name of a folder. SetupError where it is no run."""
        found = next((place.name for place in self.places().values() if place.folder == folder.resolve()), None)
        if found is None:
            raise SetupError(f"{folder} is not a run folder: it has no {HEADER} and no {METRICS}")
        return found

    def open(self, name: str) -> Opened:
        """Open a run. KeyError where there is none of that name, SetupError where it cannot be read."""
        place = self.places()[name]
        if place.kind != "run":
            raise KeyError(name)
        with self._lock:
            opened = self._opened.get(name)
            if opened is None or opened.place != place:
                opened = self._opened[name] = Opened(place, self._worker)
            self._opened.move_to_end(name)
            while len(self._opened) > 1 and (len(self._opened) > MOST_OPEN or self._rows() > MOST_ROWS):
                self._opened.popitem(last=False)
        return opened

    def _rows(self) -> int:
        return sum(len(one.index.rows) for one in self._opened.values())


def stamp(place: Place) -> tuple[object, ...]:
    """Return what changes whenever there is something new to say of a run."""
    log = place.folder / LINES
    return _stamp(place.folder / HEADER), _stamp(log), _locked(place.folder / ".lock", log)


def _look(folders: Sequence[Path]) -> dict[str, Place]:
    found: dict[str, Place] = {}
    for folder in folders:
        kind = kind_of(folder)
        if kind is not None:
            _add(found, folder, folder.parent, kind)
        for below in _below(folder) if kind is None else ():
            if (inner := kind_of(below)) is not None:
                _add(found, below, folder, inner)
    return found


def _add(found: dict[str, Place], folder: Path, root: Path, kind: Kind) -> None:
    """Add a run under a name of its own, and a training run's evaluations after it."""
    while (name := str(folder.relative_to(root))) in found and found[name].folder != folder and root != root.parent:
        root = root.parent
    if len(found) >= MOST_RUNS:
        return
    found[name] = Place(name, kind, folder)
    evaluations = folder / EVALUATIONS
    if kind == "train" and evaluations.is_dir():
        for below in _below(evaluations):
            if kind_of(below) == "run":
                _add(found, below, root, "run")


def _below(folder: Path) -> list[Path]:
    """Return what lies in a folder; nothing where that may not be read."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def kind_of(folder: Path) -> Kind | None:
    """Return what a folder holds."""
    try:
        if (folder / HEADER).is_file():
            return "run"
        return "train" if (folder / METRICS).is_file() or (folder / RECIPE).is_file() else None
    except OSError:
        return None


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def _locked(lock: Path, log: Path) -> bool:
    """Return whether another process holds a file's lock; where the system does not tell, whether the log moves."""
    try:
        inode = str(lock.stat().st_ino)
        held = LOCKS.read_text()
    except OSError:
        return time.time() - _stamp(log)[0] / 1e9 < QUIET_SECONDS
    return any(
        fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == inode
        for fields in map(str.split, held.splitlines())
        if len(fields) > 5
    )
