"""Owns one vLLM server for as long as anybody uses it, and ends every process of it then.

Started as a script of its own: `python -I keeper.py FOLDER GATE LOCK COMMAND...`. LOCK is an inherited descriptor whose
lock says that this keeper lives. A user of the server holds a lock on a file of its own in FOLDER/users for its life,
so whoever is killed is no user any more. Who joins or ends a server holds the file GATE meanwhile. A server that ends
by itself leaves its folder, with its status in the file `ended`; one that nobody uses leaves nothing.

It is no child of who started it: some (Ray, for one) kill their children as they end, and a server whose keeper is
killed while it starts does not hear of that.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

LOOK_SECONDS = 0.5
"""How often the server and its users are looked at."""
GRACE_SECONDS = 10.0
"""What a server has to end in good order: it removes its shared memory then."""
GATE_SECONDS = 10.0
REMOVALS = 50
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def keep(folder: Path, gate: Path, command: list[str]) -> None:
    """Run the command until it ends, or until nobody holds a lock in `folder/users`."""
    for number in SIGNALS:
        signal.signal(number, lambda *_: sys.exit(0))
    if sys.platform == "linux":  # what a server leaves behind becomes a child of ours, and can be ended
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=_begin_group
        )
    try:
        while process.poll() is None:
            time.sleep(LOOK_SECONDS)
            if used(folder):
                continue
            with locked(gate, 0) as held:
                if held and not used(folder):
                    end(process)
                    remove(folder)
                    return
    finally:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        end(process)
    with locked(gate, GATE_SECONDS):
        (folder / "ended").write_text(str(process.returncode), encoding="utf-8")


def used(folder: Path) -> bool:
    """Whether anybody uses the server; forgets who does no more."""
    found = False
    for path in (folder / "users").iterdir():
        if is_locked(path):
            found = True
        else:
            path.unlink(missing_ok=True)
    return found


def is_locked(path: Path) -> bool:
    """Whether somebody holds a file's lock."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        # Shared: two that look at the same time must not take each other for the owner.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextlib.contextmanager
def locked(path: Path, seconds: float) -> Iterator[bool]:
    """Hold a file's lock. False where it could not be had in that time."""
    deadline = time.monotonic() + seconds
    with path.open("ab") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    yield False
                    return
                time.sleep(0.05)
            else:
                yield True
                return


def end(process: subprocess.Popen[bytes]) -> None:
    """End a server and all that it has started."""
    if process.poll() is None:
        _signal_group(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)
    _signal_group(process.pid, signal.SIGKILL)
    process.wait()
    for _ in range(REMOVALS):
        orphans = children(os.getpid())
        if not orphans:
            return
        for orphan in orphans:
            _signal_group(orphan, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                os.kill(orphan, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(orphan, 0)


def children(parent: int) -> list[int]:
    """Return the processes that a process has started or inherited."""
    try:
        return [int(each) for each in Path(f"/proc/self/task/{parent}/children").read_text().split()]
    except OSError:  # not Linux, or a kernel that does not say
        return []


def remove(folder: Path) -> None:
    """Remove a folder, again where a process that is just ending has still written to it."""
    for _ in range(REMOVALS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)


def _begin_group() -> None:
    """Become the leader of a group, and have Linux end it should the keeper itself be killed."""
    os.setpgid(0, 0)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _signal_group(leader: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # all of it has ended
        os.killpg(leader, number)


if __name__ == "__main__":
    if os.fork():
        os._exit(0)
    # The descriptor in the third place stays open, and so locked, until this process ends.
    keep(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[4:])
