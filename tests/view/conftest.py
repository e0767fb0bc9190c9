"""A folder of runs that the viewer's tests look at, and the server that shows them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.errors import SetupError
from harness.view import html
from tests.view import making


def pytest_runtest_setup() -> None:
    """Skip where the extra `view` is not installed."""
    try:
        html.require()
    except SetupError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two real runs, a hostile one and a training run with an evaluation."""
    root = tmp_path_factory.mktemp("view") / "runs"
    making.play(root / "good", "scripted/oracle")
    making.play(root / "bad", "scripted/random")
    hostile = [
        making.trajectory(text, number=at, value=None if at == 1 else 0.0) for at, text in enumerate(making.HOSTILE)
    ]
    making.write_run(root / "hostile <img src=x onerror=window.pwned=1>", hostile, making.HOSTILE[0])
    alarm = {"version": 3, "event": "raised", "name": "one task dominates", "cause": "kg has it", "remedy": "lower it"}
    making.write_training(root / "learning", [making.update(one) for one in range(1, 9)], [alarm])
    making.play(root / "learning" / "evaluations" / "validation-000004", "scripted/random")
    evil = [making.update(at, task=text) for at, text in enumerate(making.HOSTILE, 1)]
    texts = dict.fromkeys(("name", "cause", "remedy", "event"), making.HOSTILE[0])
    making.write_training(root / "evil", evil, [{"version": 1, **texts}, {**alarm, "cause": making.HOSTILE[4]}])
    return root


@pytest.fixture(scope="session")
def address(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a viewer that shows the runs."""
    with making.serving(tmp_path_factory.mktemp("cache"), str(runs)) as where:
        yield where.rstrip("/")
