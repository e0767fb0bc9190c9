"""One vLLM server of this machine, shared by all processes that ask for the same model under the same flags.

A server has a folder in the user's cache, named after the digest of what it computes: its socket, its log, its users.
It listens on that socket alone, so no port can be taken and nobody else on the machine can reach it. A keeper process
ends it when its last user is gone, however that went. A server whose weights one user has changed is that user's own:
who comes later gets another (the next *slot*).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import platformdirs

from harness.core import digest
from harness.errors import ModelError, SetupError
from harness.models.vllm import keeper

LONGEST_SOCKET = 100
"""Characters of a socket's path that the system takes, and some to spare."""
GATE_SECONDS = 60.0
MOST_SLOTS = 256
LOG_BYTES = 16 << 20
"""Of a log's end: a dying engine is told of again with every turn under way."""
PREFIX = re.compile(r"^(\([^)]*pid=\d+\)\s*)?((ERROR|CRITICAL)\s[\d: -]+\[[^\]]*\]\s*)?")
"""What vLLM writes before a line of its log."""
TELLING = re.compile(r"^([A-Za-z_.]*(Error|Exception|Exit|Interrupt)\b.*|(Value|Assertion) error, .*|.*\berror: .*)")
NOT_TELLING = (
    "Engine core initialization failed",
    "Engine core proc",
    "EngineDeadError",
    "WorkerProc init",
    "SystemExit",
    "Exception caught",
    "validation error for",
)
REMEDIES = (
    (
        re.compile("memory|kv.?cache|max seq len|max_model_len", re.IGNORECASE),
        "lower context or batch, of connection.local or of a recipe's engine",
    ),
    (re.compile("torchvision::nms"), "uninstall torchvision, which is not of torch's own build"),
    (re.compile("ModuleNotFoundError|ImportError"), "install vLLM anew in an environment of its own"),
)


class Server:
    """A server that this process uses."""

    def __init__(self, folder: Path, user: Path, descriptor: int) -> None:
        self.folder = folder
        self.socket = folder / "socket"
        self._user = user
        self._descriptor: int | None = descriptor
        self._last_words: str | None = None

    def ended(self) -> str | None:
        """Say why the server is no more; None while its keeper lives."""
        if self._last_words is None and not keeper.is_locked(self.folder / "keeper"):
            self._last_words = last_words(self.folder) if self.folder.exists() else "it was ended"
        return self._last_words

    def complaint(self) -> str | None:
        """Return what its log says is wrong; None where it says nothing."""
        return complaint(self.folder)

    def claim(self) -> None:
        """Make the server this user's own. ModelError where others use it."""
        with keeper.locked(gate_of(self.folder), GATE_SECONDS) as held:
            others = [path for path in (self.folder / "users").iterdir() if path != self._user]
            if not held or any(keeper.is_locked(path) for path in others):
                raise ModelError("other runs share this server, and would go on with weights that they did not ask for")
            (self.folder / "private").touch()

    def leave(self) -> None:
        """Use it no more."""
        if self._descriptor is not None:
            self._user.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = None


def root() -> Path:
    """Return the folder of all servers."""
    folder = platformdirs.user_cache_path("agent-harness") / "vllm"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(f"cannot make the folder {folder}: {error.strerror}; set XDG_CACHE_HOME to another") from error
    return folder


def gate_of(folder: Path) -> Path:
    """Return the file that is locked while somebody joins a server or ends it."""
    return folder.with_name(f"{folder.name}.gate")


async def join(
    name: str, place: int, start: Sequence[str], environment: Mapping[str, str], *, own: bool = False
) -> Server:
    """Use the server of that name which is the `place`-th open to all; start it where there is none.

    Args:
        name: of what is computed, and under which flags: equal names are equal servers.
        place: which of several servers of that name.
        start: the command that starts it, but for the socket at its end.
        environment: of that command.
        own: start one that nobody else joins, whatever its place.

    Raises:
        SetupError: the folder cannot be made. That the server answers is for the caller to see.
    """
    passed = 0
    for folder in [each for each in root().glob(f"{name}-*") if own and each.is_dir()]:
        await _left(folder)
    for slot in range(MOST_SLOTS):
        folder = root() / f"{name}-{slot}"
        if len(str(folder / "socket")) > LONGEST_SOCKET:
            raise SetupError(f"the path {folder} is too long for a socket: set XDG_CACHE_HOME to a shorter folder")
        async with _gate(gate_of(folder), GATE_SECONDS):
            alive = keeper.is_locked(folder / "keeper")
            if alive and (own or (folder / "private").exists()):
                continue
            if not own and passed < place:
                passed += 1
                continue
            if not alive:
                _prepare(folder)
            server = _use(folder)
            if own:
                (folder / "private").touch()
            if not alive:
                _start(folder, [*start, str(server.socket)], environment)
            return server
    raise SetupError(f"{MOST_SLOTS} servers of {name} run already: end some of the runs that use them")


@asynccontextmanager
async def _gate(path: Path, seconds: float) -> AsyncIterator[None]:
    """Hold a file's lock; whoever else does is done in that time."""
    deadline = time.monotonic() + seconds
    while True:
        with keeper.locked(path, 0) as held:
            if held:
                yield
                return
        if time.monotonic() > deadline:
            raise SetupError(f"{path} stays locked: end the process that holds it")
        await asyncio.sleep(0.05)


def alone(what: str, seconds: float) -> AbstractAsyncContextManager[None]:
    """Do something, with what is named, while no other process of this user does."""
    return _gate(root() / f"{digest(what)[:16]}.gate", seconds)


async def _left(folder: Path) -> None:
    """Wait until a server that nobody uses any more is gone: it keeps its memory until then."""
    deadline = time.monotonic() + GATE_SECONDS
    while keeper.is_locked(folder / "keeper") and time.monotonic() < deadline:
        with contextlib.suppress(FileNotFoundError):  # its keeper is just removing it
            if keeper.used(folder):
                return
        await asyncio.sleep(0.05)


def _prepare(folder: Path) -> None:
    """Make the folder of a server, or clear away what the last one left."""
    (folder / "users").mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in ("socket", "log", "ended", "private"):
        (folder / name).unlink(missing_ok=True)


def _use(folder: Path) -> Server:
    """Become a user: a file that is there under its name only once it is locked."""
    name = f"{os.getpid()}-{secrets.token_hex(4)}"
    descriptor = os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    user = (folder / name).rename(folder / "users" / name)
    return Server(folder, user, descriptor)


def _start(folder: Path, command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Start a keeper, which has its lock from its first moment: it inherits it."""
    lock = os.open(folder / "keeper", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(
            [sys.executable, "-I", keeper.__file__, str(folder), str(gate_of(folder)), str(lock), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=dict(environment),
            pass_fds=(lock,),
            start_new_session=True,
            timeout=GATE_SECONDS,
            check=True,
        )
    finally:
        os.close(lock)


def last_words(folder: Path) -> str:
    """Return what is known of a server's end, in one sentence."""
    log = f"(its log: {folder / 'log'})"
    try:
        status = int((folder / "ended").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return f"its keeper was killed {log}"
    if status < 0:
        return f"it was killed by signal {-status} {log}"
    if chosen := complaint(folder):
        return chosen
    lines = _log(folder)
    return f"it ended with status {status} and the words '{lines[-1][:300] if lines else ''}' {log}"


def complaint(folder: Path) -> str | None:
    """Return the line of a server's log that best says what is wrong, with a remedy; None where there is none."""
    lines = [line for line in _log(folder) if TELLING.match(line)]
    chosen = [line for line in lines if not any(each in line for each in NOT_TELLING)]
    if not chosen:
        return None
    remedy = next((f"; {remedy}" for pattern, remedy in REMEDIES if pattern.search(chosen[-1])), "")
    return f"{chosen[-1][:300]}{remedy} (its log: {folder / 'log'})"


def _log(folder: Path) -> list[str]:
    """Return the end of a server's log, without what vLLM writes before each line."""
    try:
        with (folder / "log").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line for line in (PREFIX.sub("", each).strip() for each in text.splitlines()) if line]
