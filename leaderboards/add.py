"""Takes a bundle in: unpacked and checked beside the others under a name that nothing reads, then named in one step.

Decided here: a run that is refused, or a process that dies, leaves nothing that a board would show. The same bundle is
taken in once.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from harness import __version__, bundle, runlog
from harness.errors import SetupError
from leaderboards.bundles import RECORD, Record, record
from leaderboards.submission import Settings, check

ADDING = ".adding-"


def add(
    archive: Path,
    folder: Path,
    settings: Settings,
    *,
    say: Callable[[str], None] = lambda _: None,
    done: Callable[[int], None] = lambda _: None,
) -> tuple[Path, bool]:
    """Take a bundle in and return its run's folder, and whether it is new there.

    Raises:
        SetupError: it may not stand on its board; nothing of it is then left.
    """
    mark = _sha256(archive)
    if (known := _known(folder, mark)) is not None:
        return known, False
    try:
        folder.mkdir(parents=True, exist_ok=True)
        room = Path(tempfile.mkdtemp(prefix=ADDING, dir=folder))
    except OSError as error:
        raise SetupError(f"cannot write to {folder}: {error.strerror}; choose another with --bundles") from error
    try:
        manifest = bundle.unpack(archive, room)
        accepted = asyncio.run(check(room, manifest, settings, say=say, done=done))
        kept = Record(
            sha256=mark,
            harness=__version__,
            replayed=accepted.replayed,
            claimed=accepted.claimed,
            differing=tuple(str(mismatch) for mismatch in accepted.tolerated),
        )
        for name, value in ((runlog.HEADER, accepted.header), (RECORD, kept)):
            (room / name).write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=1))
        place = folder / f"{accepted.header.board.name}-{_slug(accepted.header.model)}-{mark[:8]}"
        return _settle(room, place), True
    finally:
        shutil.rmtree(room, ignore_errors=True)


def _known(folder: Path, mark: str) -> Path | None:
    """Return the folder of the run that came from this very bundle."""
    for path in sorted(folder.glob(f"*/{RECORD}")):
        found = None if path.parent.name.startswith(ADDING) else record(path.parent)
        if found is not None and found.sha256 == mark:
            return path.parent
    return None


def _settle(room: Path, place: Path) -> Path:
    """Give a run that is whole on disk its name, in one step."""
    try:
        for path in room.iterdir():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        room.chmod(0o755)
        room.rename(place)
    except OSError as error:
        raise SetupError(f"cannot write {place}: {error.strerror}; choose another with --bundles") from error
    return place


def _slug(name: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "-._") else "-" for c in name)[:60].strip("-.") or "run"


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise SetupError(f"cannot read {path}: {error.strerror}") from error
