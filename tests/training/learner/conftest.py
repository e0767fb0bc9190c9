"""A model small enough that an update takes a tenth of a second."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

torch = pytest.importorskip("torch", reason="needs torch: pip install -e '.[train]'")
pytest.importorskip("transformers", reason="needs transformers: pip install -e '.[train]'")

from tests.training.learner import models  # noqa: E402 - imports torch


@pytest.fixture(scope="session")
def nano(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a model with random weights."""
    return models.write(tmp_path_factory.mktemp("models") / "nano")


@pytest.fixture(autouse=True)
def _one_thread(torch_as_it_was: None) -> None:
    torch.set_num_threads(1)
