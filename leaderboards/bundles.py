"""The runs from elsewhere that stand on the boards: a folder of run folders, each with a `regrade.json`.

The record is written last, before the run's folder gets the name that is read (leaderboards/add.py).
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from harness.core import Value
from harness.errors import SetupError

FOLDER = Path("bundles")
RECORD = "regrade.json"
FORMAT = 1


class Record(Value, frozen=True, kw_only=True):
    """What `regrade.json` says."""

    format: int = FORMAT
    sha256: str
    """Of the bundle."""
    harness: str
    """The version that re-played it."""
    replayed: int
    """Attempts whose observations and rewards came out as recorded."""
    claimed: tuple[str, ...] = ()
    """Parts of the protocol that only the submitter can know."""
    differing: tuple[str, ...] = ()
    """Observations that differ, which the person who added the run let pass."""


def record(folder: Path) -> Record | None:
    """Return how a run came to stand here; None for a run of our own. SetupError where that cannot be read."""
    path = folder / RECORD
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=Record)
    except (OSError, msgspec.MsgspecError) as error:
        raise SetupError(f"cannot read {path}: {error}; add the bundle again") from error
