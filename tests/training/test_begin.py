"""The beginning of a run is cut off at any moment, and ends in the same weights as one that nobody disturbed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

pytest.importorskip("torch", reason="needs torch: pip install -e '.[train]'")
pytest.importorskip("transformers", reason="needs transformers: pip install -e '.[train]'")

from harness import runlog
from harness.core import Trajectory
from harness.errors import SetupError
from tests.training import beginner
from training import begin, copying, partway, sft, warmstart
from training import recipe as recipes
from training.copying import Lesson
from training.learner.options import LearnerOptions
from training.partway import Plays
from training.recipe import Recipe
from training.values import Gold
from training.warmstart import Progress, WarmStartOptions


def interrupted(after: int, work: Callable[..., Any], number: signal.Signals = signal.SIGTERM) -> Callable[..., Any]:
    """Return work that asks for the end of this process at its n-th call, and does it all the same."""
    calls = count(1)

    def called(*arguments: Any, **named: Any) -> Any:
        if next(calls) == after:
            os.kill(os.getpid(), number)
        return work(*arguments, **named)

    return called


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Recipe:
    """A recipe whose beginning takes a second."""
    monkeypatch.setattr(copying, "LESSONS", (Lesson(16, 16, 2), Lesson(24, 16, 2)))
    monkeypatch.setattr(copying, "KNOWN", 6.0)
    monkeypatch.setattr(copying, "REMEMBERED", 0.5)
    return beginner.recipe()


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def begun(recipe: Recipe, folder: Path) -> list[str]:
    said: list[str] = []
    begin.begin(recipe, folder / "base", said.append)
    return said


def test_each_part_is_cut_off_and_taken_up(small: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep, step, fit = Plays.keep, warmstart.step, warmstart.fit
    steps: list[int] = []

    def counted(*words: Any, **named: Any) -> float:
        steps.append(len(steps))
        return step(*words, **named)

    with monkeypatch.context() as patch:
        patch.setattr(warmstart, "step", counted)
        said = begun(small, tmp_path / "whole")
    assert said[0] == "gold play of 24 train tasks" and "2 of 2 lessons known" in said[3]
    assert not any("warning" in line for line in said)
    assert {path.name for path in (tmp_path / "whole").iterdir()} == {"made", "base"}

    played: list[str] = []

    def kept(plays: Plays, play: Trajectory) -> None:
        played.append(play.task_id)
        keep(plays, play)

    for owner, name, after, work, number in (
        (Plays, "keep", 9, kept, signal.SIGINT),
        (warmstart, "step", 5, step, signal.SIGTERM),  # of the lessons
        (warmstart, "step", 4, step, signal.SIGINT),  # of those that were left
        (warmstart, "step", len(steps) - 9 - 10, step, signal.SIGTERM),  # of the warm start, ten before its end
    ):
        with monkeypatch.context() as patch:
            patch.setattr(Plays, "keep", kept)
            patch.setattr(owner, name, interrupted(after, work, number))
            with pytest.raises(KeyboardInterrupt):
                begun(small, tmp_path / "cut")
    assert len(played) == len(set(played)) == 24, "no task is played twice"

    first: list[Progress] = []

    def fitted(*words: Any) -> Progress:
        first.append(words[-1])
        return fit(*words)

    monkeypatch.setattr(warmstart, "fit", fitted)
    said = begun(small, tmp_path / "cut")
    assert said[:2] == ["what was begun goes on where it stood", "warm start on 24 sequences of gold play"]
    assert first[0].step == 24 - 10 and first[0].seconds > 0
    assert weights(tmp_path / "cut" / "base") == weights(tmp_path / "whole" / "base")
    assert begun(small, tmp_path / "cut") == [], "what is there is not made again"


def test_a_model_that_did_not_learn_to_copy_in_time_is_told_of(
    small: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "KNOWN", 0.0)
    assert small.begin.copying is not None
    short = msgspec.structs.replace(small.begin.copying, seconds=0.2)
    said = begun(msgspec.structs.replace(small, begin=msgspec.structs.replace(small.begin, copying=short)), tmp_path)
    assert "copying: 0 of 2 lessons known" in said[1]
    assert "give begin.copying.seconds more than 0.2" in said[2]


def test_with_other_settings_it_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = beginner.recipe(copying=None)
    monkeypatch.setattr(warmstart, "step", interrupted(2, warmstart.step))
    with pytest.raises(KeyboardInterrupt):
        begun(recipe, tmp_path)
    assert (tmp_path / "made").is_dir()
    said = begun(beginner.recipe(copying=None, warm_start=None, tasks=9), tmp_path)
    assert said == ["gold play of 9 train tasks"]
    assert weights(tmp_path / "base") == weights(tmp_path / "made")
    shutil.rmtree(tmp_path / "base")
    begun(beginner.recipe(copying=None, warm_start=None, model=str(tmp_path / "made")), tmp_path)
    assert weights(tmp_path / "base") == weights(tmp_path / "made"), "a model that is given is nothing half done"


def test_gold_play_may_be_of_easier_tasks_than_those_trained_on() -> None:
    asked = {"envs": {"kg": {"difficulty": 0.4}}, "begin": {"tasks": 5, "envs": {"kg": {"difficulty": 0.0}}}}
    recipe = recipes.made({"name": "easier", "steps": 1, **asked}, "easier")
    assert recipe.envs["kg"]["difficulty"] == 0.4
    played = begin.gold_play(recipe, recipe.gold)
    assert played and all(play.task_id.startswith("train-d0-") for play in played)


def test_gold_play_may_be_of_several_kinds() -> None:
    more = [{"env": "kg", "tasks": 2, "settings": {"difficulty": 0.8}}]
    asked = {"envs": {"kg": {"difficulty": 0.4}}, "begin": {"tasks": 3, "more": more}}
    recipe = recipes.made({"name": "several", "steps": 1, **asked}, "several")
    played = begin.gold_play(recipe, recipe.gold)
    assert [play.task_id.split("-")[1] for play in played] == ["d0.4"] * 3 + ["d0.8"] * 2
    assert recipe.shown == {"kg": 3}


def test_more_gold_play_of_what_is_not_trained_on_is_refused() -> None:
    more = [{"env": "os", "tasks": 2, "settings": {}}]
    with pytest.raises(SetupError, match=r"begin\.more names 'os', which envs does not: add it, or leave it out"):
        recipes.made({"name": "odd", "steps": 1, "envs": {"kg": {}}, "begin": {"more": more}}, "odd")


def test_supervised_learning_has_its_own_optimizer_and_the_learners_rate() -> None:
    given = WarmStartOptions(lr=5.0, optimizer="muon", precision="bfloat16")
    found = sft.supervised(LearnerOptions(lr=1e-3, micro_tokens=77, betas=(0.9, 0.999)), given)
    assert (found.lr, found.micro_tokens) == (1e-3, 77)
    assert (found.optimizer, found.precision, found.betas) == ("muon", "bfloat16", sft.BETAS)


def test_a_line_that_is_not_whole_is_played_again(tmp_path: Path) -> None:
    wanted = [Gold(env=beginner.ENV, tasks=3, settings={})]
    plays = sft.plays(wanted, 0, tmp_path)
    path = tmp_path / "plays-0.jsonl"
    path.write_bytes(path.read_bytes()[:-5])
    with Plays(path) as kept:
        assert list(kept.known) == [play.task_id for play in plays[:2]]
    again = sft.plays(wanted, 0, tmp_path)
    assert [play.history for play in again] == [play.history for play in plays]
    assert path.read_bytes().count(b"\n") == 3


def test_sequences_are_kept_as_they_are_learnt(tmp_path: Path) -> None:
    made = [warmstart.segment(np.arange(n, 2 * n), np.arange(n) % 3 == 2) for n in (3, 70_000, 5)]
    kept = sft.kept_segments(tmp_path, lambda: made)
    again = sft.kept_segments(tmp_path, pytest.fail)
    for found in (kept, again):
        assert [each.ids.tolist() for each in found] == [each.ids.tolist() for each in made]
        assert [each.mask.tolist() for each in found] == [each.mask.tolist() for each in made]
    (tmp_path / "none").mkdir()
    assert sft.kept_segments(tmp_path / "none", list) == []


class Backend:
    """Stands for a backend of one number."""

    def __init__(self) -> None:
        self.saved = 0

    def save(self, folder: Path) -> None:
        self.saved += 1
        (folder / "number").write_text(str(self.saved))

    def load(self, folder: Path) -> None:
        self.saved = int((folder / "number").read_text())


def test_steps_are_written_when_it_is_time_and_before_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend: Any = Backend()
    with partway.Steps(tmp_path / "steps") as steps:
        assert steps.read(backend, int) is None
        steps.keep(backend, 1)
        assert backend.saved == 0, "it is not time yet"
        monkeypatch.setattr(partway, "SECONDS", 0.0)
    with partway.Steps(tmp_path / "steps") as steps:
        steps.keep(backend, 2)
    assert backend.saved == 1
    monkeypatch.undo()
    with pytest.raises(KeyboardInterrupt), partway.Steps(tmp_path / "steps") as steps:
        os.kill(os.getpid(), signal.SIGTERM)
        steps.keep(backend, 3)
    with pytest.raises(KeyboardInterrupt), partway.Steps(tmp_path / "steps"):
        os.kill(os.getpid(), signal.SIGTERM)
    backend = Backend()
    with partway.Steps(tmp_path / "steps") as steps:
        assert (steps.read(backend, int), backend.saved) == (3, 2)
    (tmp_path / "steps" / partway.STATE).write_text("?")
    with partway.Steps(tmp_path / "steps") as steps, pytest.raises(SetupError, match="remove it to begin anew"):
        steps.read(backend, int)


def test_who_asks_twice_is_not_kept_waiting() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), partway.Steps(Path("nowhere")):
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        pytest.fail("it went on")
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_signal_is_not_lost_where_python_drops_what_is_raised() -> None:
    class Asking:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            went_on.append("it was raised somewhere else")

    went_on: list[str] = []
    before = sys.unraisablehook
    with pytest.raises(KeyboardInterrupt), partway.signals(partway.at_once):
        Asking()
        time.sleep(10)
        went_on.append("it was lost")
    assert not went_on
    assert sys.unraisablehook is before


def test_a_signal_that_is_ignored_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with partway.signals(partway.at_once):
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) is partway.at_once
    finally:
        signal.signal(signal.SIGINT, before)


def test_supervised_learning_by_command_goes_on_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., tuple[int, str, str]]
) -> None:
    begun(beginner.recipe(copying=None, warm_start=None, tasks=8), tmp_path)
    monkeypatch.chdir(tmp_path)

    def learnt(out: str, code: int) -> str:
        words = ["--model", "made", "--out", out, "--env", beginner.ENV, "--tasks", "20", "--epochs", "3"]
        ended, _, err = run("sft", *words)
        assert ended == code
        return err

    learnt("whole", 0)
    with monkeypatch.context() as patch:
        patch.setattr(warmstart, "step", interrupted(4, warmstart.step, signal.SIGINT))
        assert "interrupted; the same command goes on where it stood" in learnt("cut", 130)
    assert not (tmp_path / "cut").exists()
    with runlog.lock(tmp_path / ".cut.begun", "taken twice"):
        assert "another process makes cut: wait for it, or give --out another" in learnt("cut", 2)
    said = learnt("cut", 0)
    assert "what was begun goes on where it stood" in said and "gold play" not in said
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")
    assert not list(tmp_path.glob(".*"))
    assert "is there already" in learnt("cut", 2)
    code, _, err = run("sft", "--model", "made", "--out", "odd", "--env", beginner.ENV, "--set", "kgg.gold=x")
    assert code == 2 and "--set kgg… is of no environment that is named: say --env kgg" in err


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_at_any_moment_it_ends_in_the_same_weights(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.training.beginner", str(tmp_path), "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=590, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    ends = [line.split() for line in done.stdout.splitlines() if line.startswith("SIG")]
    assert len(ends) > 1 and ends[-1][1] == "0", done.stdout
    for name, status, seconds in ends[:-1]:
        assert status == ("-9" if name == "SIGKILL" else "130") and float(seconds) < 5, done.stdout
    assert "Traceback" not in done.stderr, done.stderr
    assert weights(tmp_path / "cut" / "base") == weights(tmp_path / "whole" / "base")
