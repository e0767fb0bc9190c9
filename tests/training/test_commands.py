"""`harness train` as a person meets it: what is told before, what is refused, and that no fault costs the run."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from training import alarms, checkpoint, machine
from training import recipe as recipes

ROOT = Path(__file__).parents[2]
ENV = "tests.training.provoking:make"
RECIPE = f"""
steps = 1000
groups = 2
running = 4
eta = 0
checkpoint_every = 1
processes = false
[envs."{ENV}"]
[begin]
shape = "nano"
tasks = 8
[begin.warm_start]
seconds = 0.5
[collect]
group_size = 2
retries = 4
retry_seconds = 0.01
most_failed = 2
[engine]
answer_tokens = 6
context = 512
[score]
every = 1000
tasks = 1
[log.alarms]
updates = 2
"""
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # for the processes that it starts
    (tmp_path / "small.toml").write_text(RECIPE)
    return partial(run, "train")


def test_a_dry_run_tells_the_recipe_the_room_and_the_tokens(run: Run) -> None:
    pytest.importorskip("torch", reason="needs torch: pip install -e '.[train]'")
    code, out, err = run("--dry-run", "--recipe", "small.toml", "--steps", "3")
    assert code == 0, err
    found = recipes.made(tomllib.loads(out), "told")
    assert found == recipes.load("small.toml", {"steps": 3})
    for wanted in ("minibatches = 4", "# memory: ", "free: ", "learner: optimizer", "# disk: ", "engine, stale 1",
                   "gold play: 1.0 turns", "at most 3 turns", "tokens of 3 updates"):  # fmt: skip
        assert wanted in out, wanted
    assert [path.name for path in Path().iterdir()] == ["small.toml"], "nothing was made"
    code, out, _ = run("--dry-run", "--recipe", "small.toml", "--json")
    told = json.loads(out)
    assert code == 0 and told["tokens"]["attempts"] == 4 and told["recipe"]["learner"]["minibatches"] == 4
    assert {"least", "most", "free"} == set(told["totals"]["memory"])


def test_too_little_memory_is_refused_before_anything_is_made(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="needs torch: pip install -e '.[train]'")
    monkeypatch.setattr(machine, "free_memory", lambda: 100 << 20)
    for words in ((), ("--dry-run",)):
        code, _, err = run("--recipe", "small.toml", "--out", "run", *words)
        assert code == 2
        assert err.splitlines()[-1].startswith("harness: the run needs ") and "machine has 100 MiB free" in err
    assert not Path("run").exists()


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
@pytest.mark.parametrize("setting", ["envs.kg.gold=serching", "begin.envs.kg.gold=serching", "envs.kg.breadth=-1"])
def test_a_wrong_setting_of_an_environment_is_refused_dry_or_not(run: Run, dry: tuple[str, ...], setting: str) -> None:
    code, out, err = run("--recipe", "tiny", "--out", "run", *dry, "--set", setting)
    assert (code, out) == (2, "") and "env.kg" in err and err.count("\n") == 1
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--set", "learner.rate=1"), "unknown setting 'learner.rate'"),
        (("--set", 'log.wandb="p"'), "pip install wandb"),
        (("--set", "learner.lora.rank=4"), "needs the package 'peft': pip install -e '.[train]'"),
        (("--set", 'backend="deepspeed"'), "needs the package 'deepspeed': pip install -e '.[deepspeed]'"),
        (("--set", 'begin.model="nowhere"'), "holds no config.json"),
        (("--set", 'begin.shape="huge"'), "there is no begin.shape 'huge'"),
        (("--set", 'score.test="tset"'), "score.test: tests.training.provoking:make has no split 'tset'"),
        (("--set", "learner.deterministic=true"), "set engine.batch to 1, not 64"),
        (("--set", "envs.atlantis={}"), "no env 'atlantis'"),
        (("--set", "begin.tasks={kg=3}"), "begin.tasks and envs must name the same environments"),
        (("--set", 'collect.split="training"'), "has no split 'training' to train on"),
        (("--resume", "."), "holds no training run"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(
    run: Run, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], message: str
) -> None:
    pytest.importorskip("torch", reason="needs torch: pip install -e '.[train]'")
    for name in ("wandb", "peft", "deepspeed"):
        monkeypatch.setitem(sys.modules, name, None)
    if words[-1] == 'begin.model="nowhere"':
        Path("nowhere").mkdir()
    code, out, err = run("--recipe", "small.toml", "--out", "run", *words)
    assert (code, out) == (2, "") and message in err and err.count("\n") == 1
    assert not Path("run").exists()


def test_without_torch_the_extra_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    code, _, err = run("--recipe", "small.toml", "--out", "run")
    assert code == 2 and "needs the package 'torch': pip install -e '.[train]'" in err


@pytest.mark.slow
def test_a_model_without_a_chat_template_is_refused(run: Run) -> None:
    pytest.importorskip("torch", reason="needs torch: pip install -e '.[train]'")
    from tests.training.players import tokenizer_folder

    folder = tokenizer_folder(Path("model"))
    (folder / "config.json").write_text(
        '{"model_type": "qwen3", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "vocab_size": 640,'
        ' "intermediate_size": 8, "max_position_embeddings": 64}'
    )
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings.pop("chat_template", None)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    code, _, err = run("--recipe", "small.toml", "--out", "run", "--set", 'begin.model="model"')
    assert code == 2 and "has no chat template: add chat_template.jinja" in err
    assert not Path("run").exists()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@contextmanager
def ended_when(ready: Callable[[], bool], seconds: float = 240.0) -> Iterator[None]:
    """End this process's run by SIGTERM as soon as something is so."""
    over = threading.Event()

    def watch() -> None:
        until = time.monotonic() + seconds
        while not over.is_set() and not ready() and time.monotonic() < until:
            time.sleep(0.05)
        if not over.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let no file grow beyond a size, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_an_end_before_the_first_update_says_how_to_go_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="needs torch: pip install -e '.[train]'")
    from training import warmstart

    step = warmstart.step

    def ending(*words: Any) -> float:
        os.kill(os.getpid(), signal.SIGTERM)
        return step(*words)

    monkeypatch.setattr(warmstart, "step", ending)
    for words, seen in (
        (("--recipe", "small.toml", "--out", "run"), "gold play of 8 train tasks"),
        (("--resume", "run"), "what was begun goes on where it stood"),
    ):
        code, _, err = run(*words)
        assert code == 130 and err.splitlines()[0] == seen
        assert "interrupted; go on with: harness train --resume run" in err
    assert not Path("run", "base").exists()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_is_ended_between_checkpoints_keeps_every_update(run: Run) -> None:
    pytest.importorskip("torch", reason="needs torch: pip install -e '.[train]'")
    folder = Path("run")
    words = ("--recipe", "small.toml", "--out", "run", "--set", "checkpoint_every=1000")
    with ended_when(lambda: len(lines(folder / "metrics.jsonl")) >= 2):
        code, _, err = run(*words)
    assert code == 130 and "the run ends behind the update under way, which is kept" in err
    assert f"interrupted; go on with: harness train --resume {folder}" in err
    done = lines(folder / "metrics.jsonl")[-1]["version"]
    newest = checkpoint.newest(folder / "checkpoints")
    assert newest is not None and newest.name == f"step-{done:06d}"
    code, _, err = run("--resume", "run", "--steps", str(done + 1), "--set", "score.test_tasks=0")
    assert code == 0 and f"taken up at update {done}" in err
    assert [line["version"] for line in lines(folder / "metrics.jsonl")] == list(range(1, done + 2))


def checkpoints(folder: Path) -> dict[str, str]:
    files = sorted(path for path in (folder / "checkpoints").glob("step-*/**/*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_alarms_are_raised_by_a_run_and_no_fault_costs_it_its_checkpoints(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="needs torch: pip install -e '.[train]'")
    folder = Path("run")
    names = {"learner idle", "reward constant", "environment errors rising"}
    monkeypatch.setenv("PROVOKING", "one flaky")
    with ended_when(lambda: names <= {line["name"] for line in lines(folder / "alarms.jsonl")}):
        code, _, err = run("--recipe", "small.toml", "--out", "run")
    assert code == 130 and f"interrupted; go on with: harness train --resume {folder}" in err
    assert "alarm: reward constant: in the last 2 updates" in err
    written = lines(folder / "metrics.jsonl")
    assert [line["version"] for line in written] == list(range(1, len(written) + 1))
    always = {"idle/learner", "idle/engine", "env/errors", "forks", "reward/spread", "loop/lag",
              "update/learning_seconds", "update/publishing_seconds"}  # fmt: skip
    assert all(always <= set(line) for line in written), "what the alarms read is what the loop writes"
    assert {name for line in written for name in line.get("alarms/raised", ())} >= names
    assert bool(list((folder / "tensorboard").glob("events*"))) == (find_spec("tensorboard") is not None)

    monkeypatch.setenv("PROVOKING", "nan")
    before = checkpoints(folder)
    code, _, err = run("--resume", "run")
    assert code == 2 and "came to nothing (grader: grading: the score nan is not in [0, 1]): mend that" in err
    monkeypatch.setenv("PROVOKING", "fail")
    code, _, err = run("--resume", "run")
    assert code == 2 and "came to nothing (env: the container is gone)" in err and "harness validate" in err
    assert checkpoints(folder) == before

    monkeypatch.setenv("PROVOKING", "mixed")
    snapshot = max(path.stat().st_size for path in (folder / "base").glob("*.safetensors"))
    with files_of_at_most(2 * snapshot):  # weights fit, and weights with their optimizer do not
        code, _, err = run("--resume", "run")
    assert code == 3 and "checkpoints/step-" in err and "what was written before is as it was" in err
    whole = checkpoint.steps(folder / "checkpoints")
    for each in whole:
        checkpoint.read(each, recipes.digest(recipes.stored(folder, {})))
    last = int(whole[-1].name.removeprefix("step-"))

    def learnt() -> bool:
        return any(line["version"] >= last + 2 and line["tokens/trained"] for line in lines(folder / "metrics.jsonl"))

    with ended_when(learnt):
        code, _, err = run("--resume", "run")
    assert code == 130 and f"taken up at update {last}" in err
    written = lines(folder / "metrics.jsonl")
    assert [line["version"] for line in written] == list(range(1, len(written) + 1)), "each update once"
    read = {key for line in written for key in line if alarms.READ.fullmatch(key)}
    assert {"ess", "surprise", "pool/0/kl", f"task/{ENV}/loss_share"} <= read
