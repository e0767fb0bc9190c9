"""`harness train`, whole: from nothing to scored models, killed and taken up again, and what it refuses."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.errors import SetupError, StorageError
from training import checkpoint, curriculum, run
from training import recipe as recipes
from training.aggregation import Sequence
from training.buffer import NOTHING
from training.commands import train
from training.policies import Mix
from training.process.options import ProcessOptions
from training.recipe import Recipe

SMALL = (
    "envs={db={}}", 'begin.shape="nano"', "begin.tasks=16", "begin.warm_start.seconds=5", "begin.warm_start.epochs=1",
    "groups=2", "collect.group_size=2", "running=4", "collect.limits.turns=2", "engine.answer_tokens=8",
    "score.tasks=2", "score.test_tasks=2", "score.every=2", "checkpoint_every=1",
    "ptx.tasks.db=6", "ptx.sequences.db=3",
)  # fmt: skip


def command(*words: str) -> list[str]:
    return [sys.executable, "-c", "from harness.cli import main; main()", "train", *words]


def small(folder: Path, steps: int) -> list[str]:
    settings = [word for pair in SMALL for word in ("--set", pair)]
    return command(
        "--recipe", str(folder / "small.toml"), "--out", str(folder / "run"), "--steps", str(steps), *settings
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_is_killed_taken_up_and_ends_with_scored_models(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs torch: pip install -e '.[train]'")
    (tmp_path / "small.toml").write_text("steps = 50\n[envs.db]\n")
    folder = tmp_path / "run"
    process = subprocess.Popen(
        small(tmp_path, 50), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    until = time.monotonic() + 400
    while not (folder / "checkpoints" / "step-000003").is_dir():
        assert process.poll() is None and time.monotonic() < until, process.stdout and process.stdout.read()
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = [json.loads(line)["version"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    done = subprocess.run(
        command("--resume", str(folder), "--steps", str(max(before) + 2)),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "taken up at update" in done.stderr and "warm start" not in done.stderr
    versions = [json.loads(line)["version"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert versions[-1] == max(before) + 2
    assert versions[len(before)] in {max(before), max(before) + 1}, "at most the work since the last checkpoint is lost"
    assert "test-warm-start" in done.stdout and "test-last" in done.stdout
    assert (folder / "checkpoints" / "last" / "config.json").is_file() and (folder / "checkpoints" / "best").is_dir()
    newest = checkpoint.newest(folder / "checkpoints")
    assert newest is not None
    state = json.loads((newest / checkpoint.STATE).read_bytes())
    assert all(choice["index"] >= 16 for choice in state["curriculum"]["open"]), "gold play was shown of 0 to 15"
    assert state["curriculum"]["envs"]["db"]["cursor"] > 16
    kept = (folder / "recipe.json").read_bytes()
    other = subprocess.run(
        command("--resume", str(folder), "--set", "learner.lr=0.1"),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert other.returncode == 2 and "is of another recipe" in other.stderr
    assert (folder / "recipe.json").read_bytes() == kept, "the run's own recipe is not lost"
    again = subprocess.run(small(tmp_path, 50), capture_output=True, text=True, timeout=100, check=False)
    assert again.returncode == 2 and "go on with harness train --resume" in again.stderr


def test_every_recipe_that_comes_along_can_be_read() -> None:
    assert "tiny" in recipes.names()
    for name in recipes.names():
        recipe = recipes.load(name, {})
        assert recipe.name == name
        assert recipes.load(name, {"steps": 7}).steps == 7
        alike = recipes.digest(recipes.load(name, {"steps": 7})) == recipes.digest(recipe)
        assert alike is (recipe.learner.schedule == "constant"), "a rate that falls until the last update knows it"
        assert recipes.digest(recipes.load(name, {"groups": 9})) != recipes.digest(recipe)


def test_a_rate_that_falls_until_the_last_update_keeps_a_run_at_its_length() -> None:
    def digest(**learner: object) -> set[str]:
        falling = {"schedule": "cosine", **learner}
        return {recipes.digest(recipes.load("tiny", {"steps": steps, "learner": falling})) for steps in (7, 9)}

    assert len(digest()) == 2, "with more updates it would rise again"
    assert len(digest(updates=7)) == 1, "it ends as low as it gets"


def test_over_which_processes_a_run_is_spread_is_no_part_of_its_digest() -> None:
    apart, together = recipes.load("tiny", {"processes": True}), recipes.load("tiny", {"processes": False})
    threads = recipes.load("tiny", {"processes": {"engine": False, "learner_threads": 1}})
    assert apart.spread == ProcessOptions()
    assert not together.spread.learner and not together.spread.engine
    assert threads.spread.learner and not threads.spread.engine and threads.spread.learner_threads == 1
    assert recipes.digest(apart) == recipes.digest(together) == recipes.digest(threads)


def test_how_much_is_computed_at_once_is_no_part_of_its_digest_but_where_the_last_bits_are() -> None:
    def digests(**learner: object) -> set[str]:
        sizes: tuple[dict[str, object], ...] = ({}, {"micro_tokens": 512}, {"checkpointing": True}, {"device": "cpu"})
        return {recipes.digest(recipes.load("tiny", {"learner": {**learner, **each}})) for each in sizes}

    assert len(digests()) == 1 and len(digests(deterministic=True)) == 4
    plain = recipes.digest(recipes.load("tiny", {}))
    assert recipes.digest(recipes.load("tiny", {"engine": {"batch": 3}, "score": {"tasks": 3}})) == plain
    assert recipes.digest(recipes.load("tiny", {"learner": {"lr": 1e-5}})) != plain


def test_shares_of_the_curriculum_are_those_of_the_loss() -> None:
    batch = [Sequence("kg", 500), Sequence("alfworld", 1000)]
    weigh = recipes.load("tiny", {"aggregation": "task_mean"}).weigh
    assert weigh(batch) == pytest.approx([1 / 1.15 / 500, 0.15 / 1.15 / 1000]), "alfworld has 0.15, kg what is usual"
    even = recipes.load("tiny", {"aggregation": "task_mean", "curriculum": {"shares": {"alfworld": 1.0}}}).weigh
    assert even(batch) == pytest.approx([0.5 / 500, 0.5 / 1000])


def plain(**above: object) -> Recipe:
    return recipes.made({"name": "r", "envs": {"db": {}}, "steps": 5, **above}, "r")


def test_a_run_is_one_processs_at_a_time(tmp_path: Path) -> None:
    recipe = plain()
    with run.claimed(recipe, tmp_path, resume=False):
        with (
            pytest.raises(SetupError, match=r"another process trains in .*: wait for it, or end it"),
            run.claimed(recipe, tmp_path, resume=True),
        ):
            pass
        code = "import sys; from pathlib import Path; from training import recipe, run; folder = Path(sys.argv[1])\n"
        code += "with run.claimed(recipe.stored(folder, {}), folder, resume=True): pass"
        other = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=60)
        assert other.returncode and "another process trains in" in other.stderr
    with run.claimed(recipe, tmp_path, resume=True):
        pass


def test_another_beginning_begins_anew_and_the_same_one_does_not(tmp_path: Path) -> None:
    with run.claimed(plain(), tmp_path, resume=False):
        for made in ("base", "evaluations", "checkpoints/best"):
            (tmp_path / made).mkdir(parents=True)
    with run.claimed(plain(steps=9, learner={"lr": 1e-3}), tmp_path, resume=True):
        assert (tmp_path / "base").is_dir(), "it is made from the same"
    with run.claimed(plain(begin={"tasks": 7}), tmp_path, resume=True):
        assert {path.name for path in tmp_path.iterdir()} == {".lock", "recipe.json", "checkpoints"}
        assert not list((tmp_path / "checkpoints").iterdir())
    assert recipes.stored(tmp_path, {}).begin.tasks == 7


def test_a_run_is_not_cut_short_behind_its_last_checkpoint(tmp_path: Path) -> None:
    recipe = plain()
    state = checkpoint.State(
        step=7, version=7, recipe=recipes.digest(recipe), curriculum=curriculum.begin(["db"], recipe.curriculum),
        spent=NOTHING, mix=Mix(stale=0.0), served=(7,),
    )  # fmt: skip
    with run.claimed(recipe, tmp_path, resume=False):
        checkpoint.write(tmp_path / checkpoint.FOLDER, state, [], lambda folder: None, [])
    before = (tmp_path / recipes.NOTE).read_bytes()
    with (
        pytest.raises(SetupError, match="has 7 updates behind it: give --steps as many, or more"),
        run.claimed(recipe, tmp_path, resume=True),
    ):
        pass
    assert (tmp_path / recipes.NOTE).read_bytes() == before
    with run.claimed(plain(steps=7), tmp_path, resume=True):
        pass


def test_a_full_disk_costs_a_run_no_recipe(tmp_path: Path) -> None:
    with run.claimed(plain(), tmp_path, resume=False):
        pass
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with (
            pytest.raises(StorageError, match=r"recipe\.json: File too large; free some space there"),
            run.claimed(plain(steps=6), tmp_path, resume=True),
        ):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert recipes.stored(tmp_path, {}).steps == 5


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"learner": {"learning_rate": 1}}, "unknown setting 'learner.learning_rate'"),
        ({"groups": 0}, "groups"),
        ({"eta": -1}, "eta must be 0 or more"),
        ({"begin": {"envs": {"webshop": {}}}}, "begin.envs names 'webshop', which envs does not"),
        ({"processes": {"treads": 1}}, "unknown setting 'processes.treads'"),
        ({"credit": "gpro"}, "no credit rule 'gpro'; did you mean 'grpo'"),
        ({"aggregation": "tokn_mean"}, "no aggregation 'tokn_mean'; did you mean 'token_mean'"),
        ({"collect": {"group_size": 1}}, "collect.group_size must be 2 or more"),
        ({"collect": {"params": {"top_p": 0.9}}}, "collect.params.top_p must be 1"),
        ({"learner": {"loss": {"band": [2.0, 0.5]}}}, "learner.loss.band must rise"),
        ({"learner": {"loss": {"veto": [1.1, 0.9]}}}, "learner.loss.veto must rise"),
        ({"pools": {"schedule": [[50, 0.5], [10, 0.1]]}}, "the versions of pools.schedule must rise"),
    ],
)
def test_a_recipe_with_a_mistake_is_refused_by_key(given: dict[str, object], message: str) -> None:
    with pytest.raises(SetupError, match=message):
        recipes.load("tiny", given)


def test_an_unknown_recipe_and_a_folder_without_a_run_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="did you mean 'tiny'"):
        recipes.load("tony", {})
    with pytest.raises(SetupError, match="holds no training run"):
        recipes.stored(tmp_path, {})


def test_a_dry_run_prints_the_recipe() -> None:
    result = CliRunner().invoke(train, ["--dry-run", "--steps", "3"], standalone_mode=False)
    assert tomllib.loads(result.output)["steps"] == 3
