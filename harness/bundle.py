"""A run as one file that can be sent: `manifest.json`, `run.json` and `trajectories.jsonl` in a `.tar.gz`.

Decided here: what a bundle holds and what is left out of it (addresses, keys' names, paths of data: they are true of
one machine only), and how one from elsewhere is opened. An archive is hostile: it is read by a reader of our own that
knows plain files of three names and nothing else, into a bounded number of bytes, and nothing in it names a place on
disk. What a bundle says is checked by whoever takes it in; here only that its files are those of its manifest.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import os
import platform
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import IO

import msgspec

from harness import __version__, runlog
from harness.core import Board, Json, Value
from harness.errors import SetupError
from harness.runlog import Header, Run
from harness.table import plain

FORMAT = 1
MANIFEST = "manifest.json"
LEFT_OUT = "(left out)"
MEBIBYTE = 2**20
MOST_SMALL = 64 * MEBIBYTE
"""Of the manifest and of `run.json`."""
MOST_BYTES = 4096 * MEBIBYTE
"""Of `trajectories.jsonl`."""
MOST_RATIO = 250
"""Bytes that come out of one byte of archive, once more than `MOST_SMALL` have: text does not shrink further."""
MOST_LINE = 64 * MEBIBYTE
MOST_LINES = 1_000_000
BLOCK = 512
CHUNK = MEBIBYTE


class File(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file of a bundle."""

    sha256: str
    bytes: int


class Manifest(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `manifest.json` says."""

    format: int = FORMAT
    harness: str
    python: str
    packages: Mapping[str, str]
    """Name -> version of what grading may depend on, on the machine that made the bundle."""
    created: str
    """When the run began; UTC, ISO 8601."""
    board: str
    model: str
    agent: str
    fingerprints: Mapping[str, str]
    records: int
    """Lines of the run log."""
    files: Mapping[str, File]


def pack(run: Run, out: Path) -> Manifest:
    """Write a run as a bundle; the same run makes the same bytes. The run may still be written to.

    Raises:
        SetupError: the run has no attempt, or a file cannot be read or written.
    """
    header = public(run.header)
    small = msgspec.json.format(msgspec.json.encode(header), indent=1)
    temporary = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        lines, count, size = _measure(run.folder / runlog.LINES)
        if not count:
            raise SetupError(f"{run.folder} has no finished attempt to bundle: resume it first")
        manifest = Manifest(
            harness=__version__,
            python=platform.python_version(),
            packages=_packages(),
            created=header.created,
            board=header.board.name,
            model=header.model,
            agent=header.agent,
            fingerprints=header.fingerprints,
            records=count,
            files={
                runlog.HEADER: File(sha256=hashlib.sha256(small).hexdigest(), bytes=len(small)),
                runlog.LINES: File(sha256=lines, bytes=size),
            },
        )
        out.parent.mkdir(parents=True, exist_ok=True)
        # The name and the time that gzip would write differ from one day to the next.
        with (
            temporary.open("wb") as raw,
            gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive,
            (run.folder / runlog.LINES).open("rb") as log,
        ):
            for name, content in ((MANIFEST, _formatted(manifest)), (runlog.HEADER, small)):
                _add(archive, name, len(content), io.BytesIO(content))
            _add(archive, runlog.LINES, size, log)
        temporary.replace(out)
    except OSError as error:
        text = f"cannot bundle {run.folder} as {out}: {error.strerror or error}; choose another --out"
        raise SetupError(text) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    return manifest


def public(header: Header) -> Header:
    """Return a header without what is true of one machine only: addresses, names of keys, folders of data."""
    config = header.config
    connection = msgspec.structs.replace(
        config.connection,
        base_url=LEFT_OUT if config.connection.base_url else None,
        api_key_env=None,
        local=msgspec.structs.replace(config.connection.local, addresses=()),
    )
    settings = {name: _without_addresses(values) for name, values in config.env_settings.items()}
    remote = LEFT_OUT if config.controller else None
    config = msgspec.structs.replace(config, connection=connection, env_settings=settings, data=None, controller=remote)
    return msgspec.structs.replace(header, config=config, board=_public_board(header.board))


def _public_board(board: Board) -> Board:
    entries = tuple(
        msgspec.structs.replace(entry, settings=_without_addresses(entry.settings)) for entry in board.entries
    )
    return msgspec.structs.replace(board, entries=entries)


def _without_addresses(settings: Mapping[str, Json]) -> dict[str, Json]:
    """Leave out addresses, which may hold a password."""
    return {
        key: LEFT_OUT if key.endswith("_url") or (isinstance(value, str) and "://" in value) else value
        for key, value in settings.items()
    }


def _packages() -> dict[str, str]:
    """Return the versions of this project's requirements, as far as they are installed."""
    found = {}
    for requirement in metadata.requires("agent-harness") or ():
        name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return dict(sorted(found.items()))


def _measure(path: Path) -> tuple[str, int, int]:
    """Return the SHA-256, number and size of a log's whole lines; a torn last line is none."""
    found, count, size = hashlib.sha256(), 0, 0
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break
            found.update(line)
            count, size = count + 1, size + len(line)
    return found.hexdigest(), count, size


def _formatted(value: Value) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1)


def _add(archive: tarfile.TarFile, name: str, size: int, content: IO[bytes]) -> None:
    info = tarfile.TarInfo(name)
    info.size = size
    archive.addfile(info, content)


def unpack(path: Path, folder: Path) -> Manifest:
    """Write the run that a bundle holds into `folder`, which exists and is empty, and return what its manifest says.

    Raises:
        SetupError: it is no bundle, holds anything but plain files of the three names, unpacks to too much, or a file
            is not the one of the manifest. `folder` may then hold a part, which is worth nothing.
    """
    try:
        packed = path.stat().st_size
        with gzip.open(path, "rb") as stream:
            return _unpack(_Bounded(stream, packed), path, folder)
    except (EOFError, gzip.BadGzipFile, zlib.error, tarfile.HeaderError) as error:
        raise SetupError(f"{path} is no whole bundle ({error}): make it with 'harness bundle RUN'") from error
    except OSError as error:
        raise SetupError(f"cannot read {path}: {error.strerror or error}") from error


def _unpack(stream: _Bounded, path: Path, folder: Path) -> Manifest:
    wanted = [MANIFEST, runlog.HEADER, runlog.LINES]
    manifest: Manifest | None = None
    for name, size in _members(stream, path):
        if not wanted or name != wanted[0]:
            due = wanted[0] if wanted else "nothing more"
            raise SetupError(f"{path} holds '{plain(name[:80])}', where a bundle has {due}")
        most = MOST_BYTES if name == runlog.LINES else MOST_SMALL
        if size > most:
            raise SetupError(f"{path}: {name} has {size:,} bytes, more than the {most:,} that are read")
        wanted.pop(0)
        if name == MANIFEST:
            manifest = _manifest(stream.take(size), path)
            continue
        assert manifest is not None  # noqa: S101 - it came first
        said = manifest.files.get(name)
        if File(sha256=_write(stream, size, folder / name, path), bytes=size) != said:
            raise SetupError(f"{path}: {name} is not the file that the manifest names: its SHA-256 or size differs")
    if wanted or manifest is None:
        raise SetupError(f"{path} lacks {', '.join(wanted)}: make it with 'harness bundle RUN'")
    return manifest


class _Bounded:
    """The archive's bytes, counted: too many for its size end the reading."""

    def __init__(self, stream: gzip.GzipFile, packed: int) -> None:
        self._stream = stream
        self._left = min(MOST_BYTES + 2 * MOST_SMALL, max(MOST_SMALL, packed * MOST_RATIO))

    def take(self, size: int) -> bytes:
        """Return exactly `size` bytes. EOFError where there are fewer, SetupError past the bound."""
        self._left -= size
        if self._left < 0:
            raise SetupError("the archive unpacks to far more than a run log of its size would: it is refused")
        found = self._stream.read(size)
        if len(found) < size:
            raise EOFError("it ends early")
        return found


def _members(stream: _Bounded, path: Path) -> Iterator[tuple[str, int]]:
    """Yield name and size of each plain file; whoever asks reads its bytes before asking for the next."""
    while True:
        block = stream.take(BLOCK)
        if not block.strip(b"\0"):
            return
        info = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
        # No extension header is followed: a long name, a link or a device has one type byte, and it is refused.
        if info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or info.size < 0:
            raise SetupError(f"{path}: '{plain(info.name[:80])}' is not a plain file, and a bundle holds nothing else")
        yield info.name, info.size
        stream.take(-info.size % BLOCK)


def _manifest(content: bytes, path: Path) -> Manifest:
    try:
        manifest = msgspec.json.decode(content, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise SetupError(f"{path}: {MANIFEST} cannot be read: {error}") from error
    if manifest.format != FORMAT:
        raise SetupError(f"{path} is a bundle of format {manifest.format}, this version reads {FORMAT}")
    if set(manifest.files) != {runlog.HEADER, runlog.LINES}:
        raise SetupError(f"{path}: {MANIFEST} must name {runlog.HEADER} and {runlog.LINES}, and nothing else")
    return manifest


def _write(stream: _Bounded, size: int, target: Path, path: Path) -> str:
    """Copy a member's bytes into a file, bounding lines by the way, and return their SHA-256."""
    found, lines, length = hashlib.sha256(), 0, 0
    with target.open("xb") as file:
        while size:
            chunk = stream.take(min(size, CHUNK))
            size -= len(chunk)
            found.update(chunk)
            file.write(chunk)
            ends = chunk.count(b"\n")
            lines += ends
            length = len(chunk) - chunk.rfind(b"\n") - 1 if ends else length + len(chunk)
            if lines > MOST_LINES or length > MOST_LINE:
                raise SetupError(f"{path}: {target.name} has more lines, or a longer one, than a run log has")
    return found.hexdigest()
