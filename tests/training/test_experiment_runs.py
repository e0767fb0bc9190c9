"""The experiments, run: all of the way on a model of nothing, and a control that has something to learn from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from benchmarks.training import controls, launch, orders, runner
from benchmarks.training import lines as results
from benchmarks.training.table import CONTROLS
from harness import newmodel
from harness.core import EnvOptions


@pytest.mark.slow
@pytest.mark.heavy
@pytest.mark.timeout(900)
def test_all_of_the_way_two_updates_two_seeds_and_all_controls(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs torch: pip install -e '.[train]'")
    words = ["--smoke", "--jobs", "2", "--work", str(tmp_path), "--plots", str(tmp_path / "plots")]
    command = [sys.executable, "-m", "benchmarks", "training", *words]
    done = subprocess.run(command, cwd=runner.ROOT, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stderr
    lines = results.read(tmp_path / "smoke-results").values()
    kinds = ["iteration", "rejection", "sample", "sft", "train", "warm"]
    assert sorted(each.kind for each in lines) == [kind for kind in kinds for _ in range(2)]
    trained = {each.seed: each for each in lines if each.kind == "train"}
    for each in lines:
        assert len(each.table(1.0)["db"]) == 4 and each.peak_mb > 50 and each.seconds > 0
        if each.kind in CONTROLS:
            # A single step may take its time on a busy machine; without the bound it would go on for ever.
            assert each.seconds < trained[each.seed].seconds + 60, "equal wall-clock"
    assert all(each.figures["updates"] == 2 and len(each.reward.values) == 2 for each in trained.values())
    assert "| mixed | 2 |" in done.stdout and "pass@2" in done.stdout
    assert "### smoke" in done.stdout and "no claim: 2 of 3 seeds" in done.stdout
    again = subprocess.run(command, cwd=runner.ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert again.returncode == 0 and "begins" not in again.stderr, "what was run is not run again"


async def test_a_warm_start_is_kept_in_half_the_room_and_computes_what_it_did(base: Path) -> None:
    from harness.config import LocalOptions
    from harness.models.hf.engine import TransformersSampler, load

    whole = (base / "model.safetensors").stat().st_size
    launch.round_off(base)
    assert (base / "model.safetensors").stat().st_size < 0.6 * whole
    kept = {name: weights.clone() for name, weights in load(base, LocalOptions()).state_dict().items()}
    assert all(weights.equal(weights.bfloat16().float()) for weights in kept.values())
    launch.round_off(base)
    again = load(base, LocalOptions()).state_dict()
    assert all(weights.equal(kept[name]) for name, weights in again.items())
    sampler = TransformersSampler(base, LocalOptions())
    await sampler.open()
    try:
        await sampler.update(str(base), 1)  # which compares the probe
    finally:
        await sampler.close()


LOTTERY = {
    "envs": {"tests.training.lottery:make": {}}, "processes": False, "running": 4, "engine": {"answer_tokens": 4},
    "collect": {"group_size": 4},
}  # fmt: skip


@pytest.fixture
async def base(tmp_path: Path) -> Path:
    """Return the folder of a model of nothing."""
    pytest.importorskip("torch", reason="needs torch: pip install -e '.[train]'")
    newmodel.make(tmp_path / "base", newmodel.SHAPES["nano"], await newmodel.gold_play("db", 8, 0, EnvOptions()), 0)
    return tmp_path / "base"


class EnoughError(Exception):
    """Two rounds are over."""


@pytest.mark.slow
@pytest.mark.heavy
@pytest.mark.timeout(600)
async def test_expert_iteration_learns_what_succeeded_and_plays_on_with_it(base: Path, tmp_path: Path) -> None:
    told = []

    def say(what: str) -> None:
        told.append(what)
        if len(told) == 2:
            raise EnoughError

    with pytest.raises(EnoughError):
        recipe, options = orders.resolved("micro", LOTTERY, 1), controls.RejectionOptions(groups=2)
        await controls.rejection_sampled(recipe, tmp_path / "rounds", base, 500, say, options)
    assert told[0].startswith("round 1: ") and not told[1].startswith("round 2: 0 successes")
    (model,) = (tmp_path / "rounds" / "snapshots").glob("v000002-*")
    assert (model / "model.safetensors").read_bytes() != (base / "model.safetensors").read_bytes()


@pytest.mark.slow
@pytest.mark.heavy
@pytest.mark.timeout(600)
async def test_what_is_sampled_once_is_learnt_once_and_in_time(base: Path, tmp_path: Path) -> None:
    recipe, told, groups = orders.resolved("micro", LOTTERY, 1), [], 2
    options = msgspec.structs.replace(controls.once(0.9), groups=groups)
    done = await controls.rejection_sampled(recipe, tmp_path / "rounds", base, 8, told.append, options)
    assert (done.rounds, len(told)) == (1, 1)
    admitted = (recipe.eta + 1) * groups * recipe.collect.group_size
    assert done.played > 2 * admitted, "it plays for all of its seconds, and not until play that learns would wait"
    assert 0.9 * 8 <= done.seconds < 8 + 60 and done.samples > 0
    assert (Path(done.model) / "model.safetensors").read_bytes() != (base / "model.safetensors").read_bytes()
