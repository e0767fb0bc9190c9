"""A model small enough that an update takes a fraction of a second, and torch's settings as they were."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _nothing_fails_in_silence(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail where a task of the event loop failed and nobody asked why."""
    yield
    failed = [each for each in caplog.get_records("call") if each.name == "asyncio" and each.exc_info]
    silent = [each.getMessage() for each in failed if not isinstance(each.exc_info[1], KeyboardInterrupt)]
    assert not silent, silent


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a model with random weights."""
    from harness import newmodel
    from harness.core import EnvOptions

    plays = asyncio.run(newmodel.gold_play("db", tasks=4, seed=0, options=EnvOptions()))
    folder = tmp_path_factory.mktemp("base") / "nano"
    newmodel.make(folder, newmodel.SHAPES["nano"], plays, seed=0)
    return folder


@pytest.fixture
def torch_as_it_was() -> Iterator[None]:
    """Put torch's global settings back."""
    import torch

    threads = torch.get_num_threads()
    yield
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(threads)
