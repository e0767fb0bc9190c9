"""Folders that are whole or not there: written beside their place, put on disk, renamed.

Decided here: whatever stops it (no space left, a crash) the folder that was there before is as it was, and what was
half written is under a name that nobody reads and that the next write removes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from harness.errors import HarnessError, StorageError

PART = ".part"
ASIDE = ".old"
REFUSED = ("no space left", "os error 28", "file write failed", "iostream error")
"""What libraries that do not raise an OSError say of a full disk."""


@contextlib.contextmanager
def staging(folder: Path) -> Iterator[Path]:
    """Give a new folder to write into; it is gone afterwards unless `put` has moved it.

    Raises:
        StorageError: in one sentence, where the disk refuses.
    """
    part = folder.with_name(f".{folder.name}{PART}")
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        yield part
    except HarnessError:  # says itself what is wrong, whatever is behind it: a deadline is a TimeoutError, an OSError
        raise
    except OSError as error:
        raise StorageError(refusal(folder, error)) from error
    except Exception as error:
        if (cause := out_of_space(error)) is None:
            raise
        raise StorageError(refusal(folder, cause)) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def put(part: Path, folder: Path) -> None:
    """Put a staged folder on disk and in its place; an equal name that was there is replaced."""
    for path in sorted(part.rglob("*")):
        sync(path)
    sync(part)
    recover(folder)
    if folder.exists():
        shutil.rmtree(_aside(folder), ignore_errors=True)
        folder.rename(_aside(folder))
    part.rename(folder)
    sync(folder.parent)
    shutil.rmtree(_aside(folder), ignore_errors=True)


def copy(source: Path, folder: Path) -> None:
    """Copy a folder, whole or not at all. StorageError where the disk refuses."""
    with staging(folder) as part:
        shutil.copytree(source, part, dirs_exist_ok=True)
        put(part, folder)


def recover(folder: Path) -> None:
    """Bring back a folder that a crash caught while it was being replaced."""
    if not folder.exists() and _aside(folder).exists():
        _aside(folder).rename(folder)


def unfinished(root: Path, names: str) -> list[Path]:
    """Return the folders that a crash caught while they were being replaced, of names that begin so."""
    found = (path.name.removeprefix(".").removesuffix(ASIDE) for path in sorted(root.glob(f".{names}*{ASIDE}")))
    return [root / name for name in found if not (root / name).exists()]


def _aside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}{ASIDE}")


def sync(path: Path) -> None:
    """Put one file, or a folder's entries, on disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def out_of_space(error: BaseException | None) -> OSError | None:
    """Return the refusal of the disk that is behind an error; torch and safetensors wrap it in errors of their own."""
    while error is not None:
        if isinstance(error, OSError):
            return error
        if any(words in str(error).lower() for words in REFUSED):
            return OSError(28, os.strerror(28))
        error = error.__cause__ or error.__context__
    return None


def refusal(folder: Path, error: OSError) -> str:
    """Say in one sentence that a folder could not be written."""
    return (
        f"cannot write {folder}: {error.strerror or error}; free some space there, and go on; what was written before "
        "is as it was"
    )
