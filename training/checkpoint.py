"""All of a run as one folder: what a resumed run needs to go on as if nothing had happened.

    checkpoints/step-000040/
        state.json       counters, curriculum (with its cursors), spent ids, stale share, which pool served what
        buffer.bin       complete groups that were not trained on yet
        learner/         weights, optimizer, steps, random state: the learner's own
        pools/N/         the snapshot that pool N served
        manifest.json    size and SHA-256 of every file

Decided here: the folder is written beside its place and renamed, so there is never half of one; it is written between
two updates, so no group is half trained on. Groups under way are not in it: they are played again under their own ids.
The counters of the admission rule follow from the version and the buffer (M8), so they are not written at all.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness.core import Json, Value
from harness.errors import SetupError
from training import buffer, disk, staleness
from training.buffer import Buffer, Spent
from training.curriculum import Curriculum
from training.policies import Mix, Served
from training.staleness import Admission
from training.values import Group
from training.weights import Write

FOLDER = "checkpoints"
"""Of a run."""
FORMAT = 2
STATE, GROUPS, MANIFEST = "state.json", "buffer.bin", "manifest.json"
LEARNER, POOLS = "learner", "pools"
CHUNK = 1 << 24


class State(Value, frozen=True, kw_only=True):
    """What `state.json` says."""

    format: int = FORMAT
    step: int
    """Updates so far."""
    version: int
    """Of the weights that the update made and the current pool serves."""
    recipe: str
    """Digest of the resolved recipe: another recipe does not take this up."""
    curriculum: Curriculum
    spent: Spent
    mix: Mix
    served: tuple[int, ...]
    """The weight version of each pool."""


class Entry(Value, frozen=True, kw_only=True):
    """One file of the manifest."""

    size: int
    sha256: str


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Checkpoint:
    """A checkpoint, read and verified."""

    folder: Path
    state: State
    groups: tuple[Group, ...]

    @property
    def learner(self) -> Path:
        """The learner's own folder."""
        return self.folder / LEARNER

    @property
    def serving(self) -> tuple[Served, ...]:
        """What each pool served, from the checkpoint's own copies."""
        return tuple(
            Served(version=version, folder=str(self.folder / POOLS / str(pool)))
            for pool, version in enumerate(self.state.served)
        )


def write(root: Path, state: State, groups: Sequence[Group], learner: Write, serving: Sequence[Served]) -> Path:
    """Write a checkpoint and return its folder.

    Args:
        root: folder of the checkpoints.
        state: as it stood between two updates, at one moment with `groups`.
        groups: what waited in the buffer.
        learner: writes the learner's own into the folder it is given.
        serving: what each pool serves; its files are linked, since nobody writes to a snapshot again.

    Raises:
        StorageError: the disk refuses; earlier checkpoints are as they were.
    """
    folder = root / f"step-{state.step:06d}"
    with disk.staging(folder) as part:
        (part / LEARNER).mkdir()
        learner(part / LEARNER)
        for pool, served in enumerate(serving):
            _link_all(Path(served.folder), part / POOLS / str(pool))
        (part / GROUPS).write_bytes(buffer.encode(groups))
        (part / STATE).write_bytes(msgspec.json.encode(state))
        manifest = {str(path.relative_to(part)): _entry(path) for path in sorted(part.rglob("*")) if path.is_file()}
        (part / MANIFEST).write_bytes(msgspec.json.encode(manifest))
        disk.put(part, folder)
    return folder


def steps(root: Path) -> list[Path]:
    """Return the checkpoints of a run, the oldest first. One that a crash caught while it was replaced is put back."""
    for folder in disk.unfinished(root, "step-"):
        disk.recover(folder)
    return sorted(path for path in root.glob("step-*") if (path / MANIFEST).is_file())


def newest(root: Path) -> Path | None:
    """Return the newest checkpoint of a run; None where there is none."""
    found = steps(root)
    return found[-1] if found else None


def read(folder: Path, recipe: str) -> Checkpoint:
    """Read and verify a checkpoint. SetupError names the file that is damaged, or says that the recipe is another."""
    manifest: dict[str, Entry] = _decoded(folder / MANIFEST, dict[str, Entry])
    for name, entry in manifest.items():
        _verify(folder, name, entry)
    state = state_of(folder, recipe)
    return Checkpoint(folder=folder, state=state, groups=buffer.decode((folder / GROUPS).read_bytes()))


def state_of(folder: Path, recipe: str) -> State:
    """Return a checkpoint's state. SetupError where it cannot be read, or says that the recipe is another."""
    state: State = _decoded(folder / STATE, State)
    if state.format != FORMAT:
        raise SetupError(
            f"{folder} has checkpoint format {state.format}, this version reads {FORMAT}: use the version that wrote it"
        )
    if state.recipe != recipe:
        raise SetupError(
            f"{folder} is of another recipe: resume with the recipe that the run has, or begin a run in another folder"
        )
    return state


def resumed(checkpoint: Checkpoint, batch: int, eta: int, max_running: int) -> tuple[Admission, Buffer]:
    """Return the admission and the buffer of a run that goes on from a checkpoint."""
    state, groups = checkpoint.state, checkpoint.groups
    admission = staleness.restarted(batch, eta, max_running, state.version, len(groups))
    return admission, Buffer(batch, (eta + 1) * batch, groups, state.spent)


def prune(root: Path, most: int, keep: Iterable[Path] = ()) -> None:
    """Remove all but the newest `most` checkpoints and those to keep, and what a crash left half written.

    A folder inside a checkpoint (a pool's snapshot, still served) keeps the checkpoint.
    """
    found = steps(root)
    kept = {each for path in keep for each in (path.resolve(), *path.resolve().parents)}
    for path in found[: max(0, len(found) - most)]:
        if path.resolve() not in kept:
            # Renamed first: a removal that is cut off leaves nothing that looks like a checkpoint.
            gone = path.with_name(f".{path.name}{disk.PART}")
            shutil.rmtree(gone, ignore_errors=True)
            path.rename(gone)
    for end in (disk.PART, disk.ASIDE):  # one that was replaced is back under its name by now, or not needed
        for path in root.glob(f".step-*{end}"):
            shutil.rmtree(path, ignore_errors=True)


def _link_all(source: Path, target: Path) -> None:
    target.mkdir(parents=True)
    for path in sorted(source.iterdir()):
        if path.is_file():
            try:
                os.link(path.resolve(), target / path.name)
            except OSError:  # another file system, or one without links
                shutil.copyfile(path, target / path.name)


def _entry(path: Path) -> Entry:
    total = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            total.update(chunk)
    return Entry(size=path.stat().st_size, sha256=total.hexdigest())


def _verify(folder: Path, name: str, entry: Entry) -> None:
    path = folder / name
    try:
        found = _entry(path)
    except OSError as error:
        raise _damaged(folder, f"{name} cannot be read ({error.strerror})") from error
    if found != entry:
        raise _damaged(folder, f"{name} is not as it was written")


def _decoded(path: Path, kind: type) -> Json:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError) as error:
        raise _damaged(path.parent, f"{path.name} cannot be read ({error})") from error


def _damaged(folder: Path, what: str) -> SetupError:
    return SetupError(f"the checkpoint {folder} is damaged: {what}; remove it to resume from the one before")
