"""Any process of a run is killed or stands still, at any moment: the run goes on, or is taken up, as if nothing were.

Two layouts and kills at moments drawn from a seed. In deterministic mode the last weights are those of a run that
nobody disturbed, bit for bit; else no group is trained on twice in what survives. Nothing is left running.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("torch", reason="needs torch: pip install -e '.[train]'")
pytest.importorskip("transformers", reason="needs transformers: pip install -e '.[train]'")

from training import checkpoint, weights
from training.recipe import Recipe, digest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

LOTTERY = "tests.training.lottery:make"
SECONDS = 900.0
EXACT = {"eta": 0, "engine": {"dtype": "float32", "device": "cpu", "batch": 1, "answer_tokens": 6}}
LOOSE = {"eta": 1, "engine": {"device": "cpu", "answer_tokens": 6}}


def wanted(exact: bool, steps: int, **above: Any) -> Recipe:
    """Return a recipe whose updates take a fraction of a second."""
    values = {
        "name": "kill", "envs": {LOTTERY: {}}, "steps": steps, "groups": 2, "running": 6, "checkpoint_every": 2,
        "collect": {"group_size": 4}, "pools": {"stale_interval": 2},
        "learner": {"lr": 1e-3, "minibatches": 2, "device": "cpu", "deterministic": exact},
        "log": {"tensorboard": False}, **(EXACT if exact else LOOSE), **above,
    }  # fmt: skip
    return msgspec.convert(values, Recipe)


class Driven:
    """A run in a process, and its children."""

    def __init__(self, folder: Path, base: Path, recipe: Recipe) -> None:
        self.folder = folder
        self.recipe = recipe
        folder.mkdir(parents=True, exist_ok=True)
        note = folder.with_suffix(".json")
        note.write_bytes(msgspec.json.encode(recipe))
        self.output = folder.with_suffix(".out")
        with self.output.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.training.driver", str(folder), str(base), str(note)],
                stdout=out, stderr=out,
            )  # fmt: skip

    def __enter__(self) -> Driven:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def child(self, what: str) -> int | None:
        """Return the process id of one child, which may be on its way again; None where none comes."""
        mark = b"envs.bfcl.worker" if what == "worker" else f"the {what}".encode()
        end = time.monotonic() + SECONDS
        while self.process.poll() is None and time.monotonic() < end:
            for pid in descendants(self.process.pid):
                if mark in command_of(pid):
                    return pid
            time.sleep(0.01)
        return None

    def wait(self) -> int:
        """Wait for the end; return the status."""
        return self.process.wait(SECONDS)

    def until(self, version: int) -> None:
        """Wait until an update is written down."""
        end = time.monotonic() + SECONDS
        while newest_line(self.folder) < version:
            assert self.process.poll() is None and time.monotonic() < end, self.output.read_text()[-3000:]
            time.sleep(0.01)


def descendants(pid: int) -> Iterator[int]:
    """Yield the processes that a process has started, and what those have."""
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(each) for each in path.read_text().split()]
        except OSError:
            continue
        for child in children:
            yield child
            yield from descendants(child)


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def newest_line(folder: Path) -> int:
    """Return the newest update that is written down."""
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return max((json.loads(line)["version"] for line in lines if line.endswith("}")), default=0)


def last_weights(folder: Path) -> str:
    return weights.read(folder / "checkpoints" / "last").digest


def gone(pids: list[int], seconds: float = 20.0) -> list[int]:
    """Wait for processes to end; return those that do not."""
    end = time.monotonic() + seconds
    while left := [pid for pid in pids if Path(f"/proc/{pid}/cmdline").exists() and command_of(pid)]:
        if time.monotonic() > end:
            return left
        time.sleep(0.05)
    return []


def killed(folder: Path, base: Path, recipe: Recipe, victims: list[str], seed: int) -> list[str]:
    """Run to the end, and kill one victim after another at moments of the seed's; return what the run said."""
    dice = random.Random(seed)
    marks = sorted(dice.sample(range(1, recipe.steps), len(victims)))
    left = list(zip(victims, marks, strict=True))
    for _ in range(len(victims) + 1):
        with Driven(folder, base, recipe) as run:
            while left and run.process.poll() is None:
                victim, mark = left.pop(0)
                run.until(mark)
                time.sleep(dice.uniform(0, 0.4))
                pid = run.process.pid if victim == "main" else run.child(victim)
                assert pid is not None, f"there is no {victim}"
                children = list(descendants(run.process.pid))
                os.kill(pid, signal.SIGKILL)
                if victim == "main":
                    run.wait()
                    assert not gone(children), "what a run starts ends with it"
                    break
            else:
                assert run.wait() == 0, run.output.read_text()[-3000:]
                return run.output.read_text().splitlines()
    raise AssertionError("the run never came to its end")


@pytest.fixture(scope="module")
def undisturbed(base: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the digest of the last weights of a run that nobody disturbs."""
    folder = tmp_path_factory.mktemp("kill") / "undisturbed"
    killed(folder, base, wanted(True, 6), [], 0)
    return last_weights(folder)


def test_all_in_one_process_gives_the_same_bits(base: Path, undisturbed: str, tmp_path: Path) -> None:
    killed(tmp_path / "run", base, wanted(True, 6, processes=False), [], 0)
    assert last_weights(tmp_path / "run") == undisturbed


def test_players_give_the_same_bits_also_where_one_is_killed(base: Path, undisturbed: str, tmp_path: Path) -> None:
    recipe = wanted(True, 6, processes={"players": 2})
    said = killed(tmp_path / "run", base, recipe, ["player 1", "player 0"], 3)
    assert last_weights(tmp_path / "run") == undisturbed
    assert 1 <= sum("the player" in line and "it is started again" in line for line in said) <= 2, said


def test_replicas_of_the_engines_give_the_same_bits(base: Path, undisturbed: str, tmp_path: Path) -> None:
    killed(tmp_path / "run", base, wanted(True, 6, processes={"replicas": 2}), [], 0)
    assert last_weights(tmp_path / "run") == undisturbed
    logs = (tmp_path / "run" / "processes").glob("engine*.log")
    assert {path.name for path in logs} == {"engine-0.log", "engine-1.log"}, "each has a process"


def test_killed_and_taken_up_it_ends_with_the_same_bits(base: Path, undisturbed: str, tmp_path: Path) -> None:
    said = killed(tmp_path / "run", base, wanted(True, 6), ["worker", "learner", "main", "engine"], 1)
    assert last_weights(tmp_path / "run") == undisturbed
    back = sum("the run goes back to its last checkpoint" in line for line in said)
    assert back in {1, 2}, said  # the engine is killed last, and may be when nothing is left for it to sample
    versions = [json.loads(line)["version"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert versions == list(range(1, 7))


def test_killed_while_it_runs_ahead_no_group_is_trained_on_twice(base: Path, tmp_path: Path) -> None:
    recipe = wanted(False, 10)
    said = killed(tmp_path / "run", base, recipe, ["engine", "main", "learner", "worker"], 2)
    assert sum("it is started again" in line for line in said) == 1, said
    assert sum("the run goes back to its last checkpoint" in line for line in said) == 1, said
    newest = checkpoint.newest(tmp_path / "run" / "checkpoints")
    assert newest is not None
    state = checkpoint.read(newest, digest(recipe)).state
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    dropped = sum(value for line in lines for key, value in line.items() if key.startswith("drop/"))
    assert state.version == recipe.steps
    assert state.spent.below + len(state.spent.above) == recipe.steps * recipe.groups + dropped
    assert [line["version"] for line in lines] == list(range(1, recipe.steps + 1))


def test_a_child_that_stands_still_ends_the_run_which_can_be_taken_up(base: Path, tmp_path: Path) -> None:
    recipe = wanted(True, 4, processes={"silent_seconds": 8.0})
    with Driven(tmp_path / "run", base, recipe) as run:
        run.until(2)
        pid = run.child("engine")
        assert pid is not None
        children = list(descendants(run.process.pid))
        os.kill(pid, signal.SIGSTOP)
        assert run.wait() != 0
        assert not gone(children)
    said = run.output.read_text()
    assert "the process of the engine gave no sign of life for 8 seconds" in said
    assert "queue calls of the engine: " in said and "queue groups running: " in said and "in train" in said
    killed(tmp_path / "run", base, recipe, [], 0)
    assert newest_line(tmp_path / "run") == 4
