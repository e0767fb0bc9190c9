"""New weights for the engines: a folder of safetensors, whole or not there at all.

Decided here: a snapshot's name has its version *and* the digest of its weights, since a version is given again after a
crash. It is written beside its place, put on disk, and renamed. `probe.json` says what the weights must compute, so an
engine that did not really take them is found out. Who serves an old snapshot keeps it; all others are removed.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from harness.core import Value
from harness.errors import SetupError
from harness.models.hf.engine import weights_digest
from training import disk

if TYPE_CHECKING:
    from training.learner.backend import Backend

FILE = "model.safetensors"
NOTE = "snapshot.json"
BESIDE = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
          "vocab.json", "merges.txt", "added_tokens.json", "tokenizer.model", "chat_template.jinja")  # fmt: skip
"""What makes weights a model that `hf/FOLDER` plays."""

Write = Callable[[Path], None]


class Snapshot(Value, frozen=True, kw_only=True):
    """Weights on disk."""

    version: int
    digest: str
    """SHA-256 of the weight files."""
    name: str
    """Of the folder."""


def publish(root: Path, version: int, write: Write) -> tuple[Path, Snapshot]:
    """Write a snapshot and return its folder. StorageError where the disk is full; older ones are as they were.

    Args:
        root: folder of the snapshots.
        version: of the weights.
        write: puts the weights, and what else belongs to them, into the folder that it is given.
    """
    with disk.staging(root / f"v{version:06d}") as part:
        write(part)
        found = weights_digest(part)
        snapshot = Snapshot(version=version, digest=found, name=f"v{version:06d}-{found[:12]}")
        (part / NOTE).write_bytes(msgspec.json.encode(snapshot))
        folder = root / snapshot.name
        if not _is_whole(folder):  # one that is there has the same weights, and an engine may be reading it
            disk.put(part, folder)
    return folder, snapshot


def model_writer(weights: Mapping[str, Any], network: Any, base: Path) -> Write:
    """Return what writes tensors as a model of their own.

    Args:
        weights: name to tensor, adapters merged.
        network: the model that they are of, for the probe.
        base: folder of the model that training began with: configuration and tokenizer are its.
    """

    def write(folder: Path) -> None:
        import torch
        from safetensors.torch import save_file

        from harness.models import proof

        for name in BESIDE:
            if (base / name).is_file():
                shutil.copyfile(base / name, folder / name)
        tensors = {name: torch.empty(tensor.shape, dtype=tensor.dtype) for name, tensor in weights.items()}
        for name, tensor in weights.items():
            tensors[name].copy_(tensor.detach())
        save_file(tensors, folder / FILE, metadata={"format": "pt"})
        proof.write(folder, network)

    return write


def write_model(backend: Backend, base: Path, folder: Path) -> None:
    """Write a learner's model into a folder, whole or not at all. StorageError where the disk is full.

    Args:
        backend: whose weights, adapters merged.
        base: folder of the model that training began with; may be `folder`, which is then replaced.
        folder: where.
    """
    replace(folder, model_writer(backend.weights(), backend.network.eval(), base))


def replace(folder: Path, write: Write) -> None:
    """Put what is written in the place of a folder, whole or not at all. StorageError where the disk is full."""
    with disk.staging(folder) as part:
        write(part)
        disk.put(part, folder)


def noted(folder: Path) -> Snapshot:
    """Return what a snapshot says of itself, unverified. OSError or MsgspecError where it says nothing."""
    return msgspec.json.decode((folder / NOTE).read_bytes(), type=Snapshot)


def read(folder: Path) -> Snapshot:
    """Return what a snapshot says of itself. SetupError where its weights are not those it names."""
    try:
        snapshot = noted(folder)
        found = weights_digest(folder)
    except (OSError, msgspec.MsgspecError) as error:
        raise SetupError(f"the snapshot in {folder} cannot be read: {error}; resume from another checkpoint") from error
    if found != snapshot.digest:
        raise SetupError(f"the weights in {folder} are damaged: resume from another checkpoint")
    return snapshot


def _is_whole(folder: Path) -> bool:
    try:
        read(folder)
    except SetupError:
        return False
    return True


def prune(root: Path, keep: Iterable[Path]) -> list[Path]:
    """Remove all snapshots but those to keep, and what a crash left half written. Return what was removed."""
    kept = {path.resolve() for path in keep}
    gone = [path for path in sorted(root.glob("v*")) if path.is_dir() and path.resolve() not in kept]
    gone += sorted(root.glob(f".v*{disk.PART}"))
    for path in gone:
        shutil.rmtree(path, ignore_errors=True)
    return gone
