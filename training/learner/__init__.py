"""The learner: a batch of samples to new weights. It never generates, and its backends contain no loss."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from harness.errors import SetupError, nearest
from training.learner.options import LearnerOptions

if TYPE_CHECKING:
    from training.learner.update import Learner

NEEDED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"torch": ("torch", "transformers"), "deepspeed": ("torch", "transformers", "deepspeed")}
)
"""Backend to the packages that it needs."""


def require_sense(backend: str, options: LearnerOptions) -> None:
    """Refuse options that a backend has not. SetupError with the remedy."""
    if backend == "deepspeed" and options.optimizer != "adamw":
        raise SetupError(
            f"the deepspeed learner has no optimizer '{options.optimizer}': take adamw, or the torch learner"
        )


def make(backend: str, folder: Path, options: LearnerOptions) -> Learner:
    """Make the learner of the model in a folder. SetupError: a package is missing, or it cannot be loaded."""
    if backend not in NEEDED:
        raise SetupError(f"there is no learner '{backend}'{nearest(backend, NEEDED)}")
    if missing := [name for name in NEEDED[backend] if find_spec(name) is None]:
        extra = "deepspeed" if backend == "deepspeed" else "train"
        raise SetupError(f"the {backend} learner needs the package '{missing[0]}': pip install -e '.[{extra}]'")
    require_sense(backend, options)
    from training.learner.update import Learner

    if backend == "torch":
        from training.learner.torch import TorchBackend

        return Learner(TorchBackend(folder, options), options)
    from training.learner.deepspeed import DeepSpeedBackend

    return Learner(DeepSpeedBackend(folder, options), options)
