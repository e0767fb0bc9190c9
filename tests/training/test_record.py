"""What a run writes down: whole lines, once each; alarms when raised and when gone; TensorBoard; a full disk."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.errors import SetupError, StorageError
from training import recipe as recipes
from training import record
from training.alarms import AlarmOptions
from training.record import LogOptions, Record
from training.values import Metrics

ROOT = Path(__file__).parents[2]
QUIET = LogOptions(tensorboard=False, alarms=AlarmOptions(updates=2))
UPDATE: Metrics = {
    "idle/learner": 0.1, "idle/engine": 0.2, "task/db/loss_share": 0.6, "task/kg/loss_share": 0.4, "ess": 0.9,
    "surprise": 0.5, "pool/0/kl": 0.001, "pool/1/kl": 0.05, "forks": 0.0, "env/errors": 0.01, "reward/spread": 0.4,
    "reward/mean": 0.3, "loop/lag": 0.01, "tokens/generated": 100, "tokens/trained": 90,
}  # fmt: skip
WRONG: dict[str, Metrics] = {
    "learner idle": {"idle/learner": 0.8},
    "engine idle": {"idle/engine": np.float64(0.9)},
    "one task dominates": {"task/db/loss_share": 0.95, "task/kg/loss_share": 0.05},
    "ESS collapse": {"ess": 0.01},
    "entropy collapse": {"surprise": 1e-4},
    "pools too far apart": {"pool/1/kl": np.float32(2.0)},
    "forks rising": {"forks": 0.3},
    "environment errors rising": {"env/errors": 0.4},
    "reward constant": {"reward/spread": 0.0},
    "event loop lagging": {"loop/lag": 3.0},
}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def begun(folder: Path, say: Callable[[str], None] = lambda line: None, version: int = 0) -> Record:
    return Record(folder, QUIET, say, version)


def test_a_line_an_update_with_rates_and_no_number_that_json_has_not(tmp_path: Path) -> None:
    said: list[str] = []
    written = begun(tmp_path, said.append)
    written(1, {**UPDATE, "mismatch/k3": math.nan, "steps": np.int64(4), "grad_norm": np.float32(0.5)})
    (line,) = lines(tmp_path / "metrics.jsonl")
    assert (line["version"], line["mismatch/k3"], line["steps"], line["grad_norm"]) == (1, None, 4, 0.5)
    assert line["tokens/generated_per_second"] > line["tokens/trained_per_second"] > 0
    assert line["memory/peak_bytes"] > 1 << 20
    assert said == [record.summary(line)] and said[0].startswith("update 1  reward +0.300  tokens 90  ess 0.90")
    assert not (tmp_path / "alarms.jsonl").exists() and not (tmp_path / "tensorboard").exists()


def test_an_update_without_a_token_to_train_on_is_told_too(tmp_path: Path) -> None:
    said: list[str] = []
    begun(tmp_path, said.append)(1, {"tokens/trained": 0, "loss": 0.0})
    assert said[0].startswith("update 1  reward +0.000  tokens 0")


@pytest.mark.parametrize("name", WRONG)
def test_each_alarm_is_written_once_when_raised_and_once_when_gone(tmp_path: Path, name: str) -> None:
    said: list[str] = []
    written = begun(tmp_path, said.append)
    updates = [UPDATE] * 4 + [{**UPDATE, **WRONG[name]}] * 5 + [UPDATE] * 3
    for version, metrics in enumerate(updates, 1):
        written(version, metrics)
    raised, gone = lines(tmp_path / "alarms.jsonl")
    assert (raised["event"], raised["name"], raised["version"]) == ("raised", name, 6)
    assert raised["cause"] and raised["remedy"]
    assert (gone["event"], gone["name"]) == ("gone", name) and gone["version"] in (7, 8, 9, 10), (
        "rising ones may settle"
    )
    in_metrics = {line["version"]: line for line in lines(tmp_path / "metrics.jsonl")}
    assert in_metrics[6]["alarms/raised"] == [name]
    assert in_metrics[gone["version"]]["alarms/gone"] == [name]
    assert [line for line in said if line.startswith("alarm")] == [
        f"alarm: {name}: {raised['cause']}; {raised['remedy']}"
    ]
    assert f"no longer: {name}" in said


def test_a_run_that_is_taken_up_has_each_update_once(tmp_path: Path) -> None:
    written = begun(tmp_path)
    for version in range(1, 5):
        written(version, UPDATE)
    for version in range(5, 8):
        written(version, {**UPDATE, "ess": 0.0})
    before = lines(tmp_path / "metrics.jsonl")
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"version": 8, "sec')
    resumed = begun(tmp_path, version=6)
    assert [line["version"] for line in lines(tmp_path / "metrics.jsonl")] == [1, 2, 3, 4, 5, 6]
    assert [line["event"] for line in lines(tmp_path / "alarms.jsonl")] == ["raised"]
    resumed(7, {**UPDATE, "ess": 0.0})
    assert len(lines(tmp_path / "alarms.jsonl")) == 1, "what was raised before is not raised again"
    resumed(8, UPDATE)
    after = lines(tmp_path / "metrics.jsonl")
    assert [line["version"] for line in after] == list(range(1, 9)) and after[:6] == before[:6]
    assert after[-1]["alarms/gone"] == ["ESS collapse"]
    assert after[-1]["seconds"] >= before[5]["seconds"], "time goes on"
    begun(tmp_path, version=5)
    assert not (tmp_path / "alarms.jsonl").read_text(), "an alarm of a lost update is lost with it"


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"version": 1}\n{"vers\n{"version": 3}\n')
    with pytest.raises(SetupError, match=r"metrics.jsonl, line 2 is damaged"):
        begun(tmp_path, version=3)


FULL = """
import resource, signal, sys
from pathlib import Path
from harness.errors import StorageError
from training.record import LogOptions, Record
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
folder = Path(sys.argv[1])
written = Record(folder, LogOptions(tensorboard=False), print)
written(1, {"reward/mean": 0.0})
size = (folder / "metrics.jsonl").stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 40, size + 40))
try:
    written(2, {"reward/mean": 0.0})
except StorageError as error:
    print("refused:", error)
assert (folder / "metrics.jsonl").stat().st_size == size
"""


def test_a_full_disk_leaves_whole_lines_and_a_sentence(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)],
        capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "refused: cannot write" in done.stdout and "what was written before is as it was" in done.stdout
    assert [line["version"] for line in lines(tmp_path / "metrics.jsonl")] == [1]


def test_a_record_that_cannot_be_cut_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = begun(tmp_path)
    written(1, UPDATE)
    before = (tmp_path / "metrics.jsonl").read_bytes()

    def refuse(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StorageError, match="No space left"):
        begun(tmp_path)
    assert (tmp_path / "metrics.jsonl").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


class Failing:
    """A sink that takes nothing."""

    def __init__(self) -> None:
        self.asked = 0

    def write(self, version: int, values: dict[str, float]) -> None:
        self.asked += 1
        raise RuntimeError("the server is gone\nand more")

    def close(self) -> None:
        raise AssertionError("it was given up")


def test_a_sink_that_fails_is_told_once_and_the_record_goes_on(tmp_path: Path) -> None:
    said: list[str] = []
    written, sink = begun(tmp_path, said.append), Failing()
    written._sinks.append(sink)
    for version in (1, 2):
        written(version, UPDATE)
    written.close()
    assert sink.asked == 1
    assert [line for line in said if "takes no more" in line] == [
        "Failing takes no more: the server is gone; metrics.jsonl goes on"
    ]
    assert len(lines(tmp_path / "metrics.jsonl")) == 2


WANDB = """
import json, pathlib
class Run:
    def define_metric(self, name, step_metric): note("define", name, step_metric)
    def log(self, values): note("log", values)
    def finish(self): note("finish")
def note(*what):
    with pathlib.Path("calls.jsonl").open("a") as file:
        file.write(json.dumps(what) + "\\n")
def init(**options):
    note("init", options)
    return Run()
"""


def test_wandb_is_asked_only_where_a_project_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "wandb" in sys.modules or (tmp_path / "wandb.py").exists():
        pytest.skip("wandb is installed: nothing is sent from a test")
    (tmp_path / "wandb.py").write_text(WANDB)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    written = Record(tmp_path / "run", LogOptions(tensorboard=False, wandb="agents"), lambda line: None)
    monkeypatch.delitem(sys.modules, "wandb")
    (tmp_path / "run").mkdir()
    written(1, UPDATE)
    written.close()
    calls = lines(tmp_path / "calls.jsonl")
    assert calls[0][1]["project"] == "agents" and calls[0][1]["resume"] == "allow"
    assert calls[2][1]["reward/mean"] == 0.3 and calls[2][1]["version"] == 1
    assert calls[-1] == ["finish"]


def test_wandb_that_is_missing_is_refused_with_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(SetupError, match="pip install wandb"):
        Record(tmp_path, LogOptions(wandb="agents"), lambda line: None)


@pytest.mark.slow
def test_tensorboard_has_the_curves(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs torch: pip install -e '.[train]'")
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    written = Record(tmp_path, LogOptions(), lambda line: None)
    for version in range(1, 4):
        written(version, {**UPDATE, "reward/mean": version / 10})
    written.close()
    resumed = Record(tmp_path, LogOptions(), lambda line: None, version=2)
    resumed(3, {**UPDATE, "reward/mean": 0.9})
    resumed.close()
    events = reader.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(each.step, round(each.value, 3)) for each in events.Scalars("reward/mean")] == [
        (1, 0.1),
        (2, 0.2),
        (3, 0.9),
    ]


def test_without_tensorboard_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    for name in ("tensorboard", "tensorboardX"):
        monkeypatch.setitem(sys.modules, name, None)
    written = Record(tmp_path, LogOptions(), said.append)
    written(1, UPDATE)
    written.close()
    assert len(said) == 1


def test_what_is_logged_may_change_when_a_run_is_taken_up() -> None:
    plain, other = recipes.load("tiny", {}), recipes.load("tiny", {"log": {"wandb": "p", "alarms": {"updates": 9}}})
    assert other.log.alarms.updates == 9
    assert recipes.digest(plain) == recipes.digest(other)
    with pytest.raises(SetupError, match=r"unknown setting 'log\.alarms\.update'; did you mean 'updates'"):
        recipes.load("tiny", {"log": {"alarms": {"update": 9}}})
