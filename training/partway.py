"""Work that may be cut off at any moment, and goes on where it stood once it is asked for again.

Decided here: what is half done stands in a folder under a key, the digest of all that it is made from; under another
key it begins anew. Training steps write all that the next one depends on every half minute, whole or not at all, so
`kill -9` costs no more than that. Ctrl-C and SIGTERM end whatever runs at once, but training steps: there the one under
way is finished, and written, first. A second one does not wait for it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import msgspec

from harness import runlog
from harness.core import Trajectory
from harness.errors import SetupError, StorageError
from training import disk

if TYPE_CHECKING:
    from training.learner.backend import Backend

SECONDS = 30.0
"""Between two writings,"""
SHARE = 0.05
"""or longer, where writing would take more than this of the time."""
AGAIN = 0.01
"""Seconds until an interrupt that Python dropped comes again."""
KEY, STATE = "key", "state.json"

Handler = Callable[[int, FrameType | None], Any]
State = TypeVar("State")


def at_once(number: int, frame: FrameType | None) -> None:
    """End what runs. Unlike Python's own handler, asyncio leaves it in place: a loop that is blocked ends too."""
    raise KeyboardInterrupt


@contextlib.contextmanager
def signals(handler: Handler, *numbers: signal.Signals) -> Iterator[None]:
    """Have a handler take signals inside; one that is ignored stays so, and so do all but in the main thread.

    Python drops what is raised where nothing can catch it (in `__del__`, in a weak reference's callback): a
    KeyboardInterrupt of a handler that was called there comes again a moment later.
    """
    main = threading.main_thread()
    if threading.current_thread() is not main:
        yield
        return
    before = {number: signal.getsignal(number) for number in numbers or (signal.SIGINT, signal.SIGTERM)}
    taken = {number: each for number, each in before.items() if each is not signal.SIG_IGN}
    dropped = sys.unraisablehook

    def again(what: sys.UnraisableHookArgs) -> None:
        if taken and issubclass(what.exc_type, KeyboardInterrupt):
            threading.Timer(AGAIN, signal.pthread_kill, (main.ident, next(iter(taken)))).start()
        else:
            dropped(what)

    try:
        sys.unraisablehook = again
        for number in taken:
            signal.signal(number, handler)
        yield
    finally:
        for number, each in taken.items():
            signal.signal(number, each)
        sys.unraisablehook = dropped


def beside(out: Path) -> Path:
    """Return the folder of what is half done of another."""
    return out.with_name(f".{out.name}.begun")


def begun(folder: Path, key: str) -> bool:
    """Have a folder for half-done work of a key; return whether there was one. Work of another key is removed."""
    disk.recover(folder)
    with contextlib.suppress(OSError):
        if (folder / KEY).read_text() == key:
            return True
    with disk.staging(folder) as part:
        (part / KEY).write_text(key)
        disk.put(part, folder)
    return False


@contextlib.contextmanager
def held(folder: Path, key: str, busy: str) -> Iterator[bool]:
    """Do as `begun` does, for this process alone. SetupError says `busy` where another is at it."""
    try:
        if folder.is_dir():  # it may be of another key, and is then removed
            runlog.lock(folder, busy).close()
        found = begun(folder, key)
        lock = runlog.lock(folder, busy)
    except OSError as error:
        raise StorageError(disk.refusal(folder, error)) from error
    with lock:
        yield found


class Steps:
    """Training steps that are taken up again. Use as a context manager around their loop."""

    def __init__(self, folder: Path | None) -> None:
        """Have a folder to write them in; None writes nothing, and leaves signals as they are."""
        self._folder = folder
        self._due = time.monotonic() + SECONDS
        self._asked = False
        self._handling = contextlib.ExitStack()

    def __enter__(self) -> Self:
        if self._folder is not None:
            self._handling.enter_context(signals(self._ask))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handling.close()
        if self._asked and kind is None:
            raise KeyboardInterrupt

    def read(self, backend: Backend, kind: type[State]) -> State | None:
        """Put a backend where it stood, and return what was written of it; None where nothing was.

        Raises:
            SetupError: it is damaged.
        """
        if self._folder is None:
            return None
        disk.recover(self._folder)
        if not self._folder.is_dir():
            return None
        try:
            state = msgspec.json.decode((self._folder / STATE).read_bytes(), type=kind)
        except (OSError, msgspec.MsgspecError) as error:
            raise SetupError(f"{self._folder} cannot be taken up again ({error}): remove it to begin anew") from error
        backend.load(self._folder)
        return state

    def keep(self, backend: Backend, state: Any) -> None:
        """Write a backend between two steps, where it is time or an end was asked for; then KeyboardInterrupt.

        Raises:
            StorageError: the disk is full; what was written before is as it was.
        """
        before = time.monotonic()
        if self._folder is not None and (self._asked or before >= self._due):
            with disk.staging(self._folder) as part:
                backend.save(part)
                (part / STATE).write_bytes(msgspec.json.encode(state))
                disk.put(part, self._folder)
            after = time.monotonic()
            self._due = after + max(SECONDS, (after - before) / SHARE)
        if self._asked:
            raise KeyboardInterrupt

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True


class Plays:
    """Gold play as it is made, a line each. Use as a context manager."""

    def __init__(self, path: Path) -> None:
        """Read what is there, and cut off a line that is not whole."""
        self.known: dict[str, Trajectory] = {}
        """By task id."""
        self._path = path
        self._file = path.open("ab", buffering=0)
        end, decoder = 0, msgspec.json.Decoder(Trajectory)
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError), path.open("rb") as lines:
            for line in lines:
                if line.endswith(b"\n"):
                    play = decoder.decode(line)
                    self.known[play.task_id] = play
                    end += len(line)
        self._file.truncate(end)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def keep(self, play: Trajectory) -> None:
        """Write one. StorageError where the disk is full."""
        line = msgspec.json.encode(play) + b"\n"
        try:
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise StorageError(disk.refusal(self._path, error)) from error


def done(folder: Path) -> None:
    """Remove what was kept of work that is done."""
    shutil.rmtree(folder, ignore_errors=True)
