"""The recipes that come along: each number is the paper's or the design's, and a dry run says what is missing here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.errors import SetupError
from training import budget, preflight
from training import recipe as recipes
from training.commands import train
from training.credit.tan import FLOORS
from training.recipe import Recipe

QWEN_14B = {  # Qwen2.5-14B's own configuration
    "hidden_size": 5120, "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8,
    "intermediate_size": 13824, "vocab_size": 152064, "max_position_embeddings": 32768, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.fixture
def paper() -> Recipe:
    return recipes.load("agentrl", {})


def test_the_papers_environments_and_sizes(paper: Recipe) -> None:
    assert set(paper.envs) == {"alfworld", "db", "kg", "os", "webshop"}, "five; BFCL is held out"
    assert (paper.steps, paper.groups, paper.collect.group_size) == (1000, 256, 8)
    assert paper.running * paper.collect.group_size == 2048, "its concurrency, in attempts"
    assert (paper.collect.limits.turns, paper.engine.answer_tokens, paper.engine.context) == (20, 1024, 8192)
    assert paper.collect.params.temperature == 0.8 and paper.collect.params.max_output_tokens == 1024
    assert paper.collect.abnormal_reward == -0.2
    assert paper.begin.model and "Qwen2.5" in paper.begin.model and paper.begin.warm_start is None
    assert (paper.score.every, paper.score.temperature) == (25, 0.8)


def test_the_papers_cross_policy_and_normalisation(paper: Recipe) -> None:
    pools = paper.pools
    assert (pools.stale_ratio, pools.stale_interval, pools.depth, pools.scope) == (0.25, 25, 1, "turn")
    assert pools.weighting == "fixed" and not pools.schedule
    assert paper.tan is not None and (paper.tan.tokens, paper.tan.groups) == (0, 0), "no floors"
    assert paper.tan.sigma <= 1e-6 and paper.tan.clip >= 1e6
    assert (paper.credit, paper.aggregation) == ("grpo", "token_mean")


def test_the_papers_loss_and_optimizer(paper: Recipe) -> None:
    loss, learner = paper.learner.loss, paper.learner
    assert (loss.correction, loss.objective) == ("bypass", "ppo")
    assert (loss.clip_low, loss.clip_high, loss.dual_clip) == (0.2, 0.2, 3.0)
    assert (loss.kl, loss.kl_weighted, loss.veto) == (1e-4, False, None)
    assert (learner.lr, learner.weight_decay, learner.micro_tokens) == (1e-6, 0.0, 16384)
    assert (paper.backend, learner.precision, learner.lora) == ("deepspeed", "bfloat16", None)
    assert paper.cluster.address == "auto" and paper.cluster.learner_gpus == paper.cluster.engine_gpus == 1


def test_one_gpu_has_the_designs_defaults() -> None:
    found = recipes.load("one-gpu", {})
    assert (found.groups, found.collect.group_size, found.eta) == (32, 8, 2)
    assert (found.credit, found.aggregation, found.tan) == ("grpo", "task_mean", FLOORS)
    assert found.collect.params.temperature == found.collect.params.top_p == 1.0
    assert (found.pools.stale_ratio, found.pools.stale_interval) == (0.25, 25)
    loss = found.learner.loss
    assert (loss.correction, loss.cap, loss.clip_low, loss.clip_high, loss.dual_clip) == ("tis", 2.0, 0.2, 0.28, 3.0)
    assert (loss.kl, found.learner.lr, found.learner.grad_clip, found.learner.minibatches) == (0.0, 1e-6, 1.0, 4)
    assert found.learner.precision == found.engine.dtype == "bfloat16"
    assert found.cluster.address is None and found.ranks == 1 and found.backend == "torch"


def test_one_gpu_takes_adapters() -> None:
    assert recipes.load("one-gpu", {"learner": {"lora": {"rank": 16}}}).learner.lora is not None


@pytest.mark.parametrize("name", ["agentrl", "one-gpu"])
def test_a_model_that_is_not_there_is_said(name: str) -> None:
    with pytest.raises(SetupError, match=r"holds no config\.json, so it is no model; name the folder of one"):
        budget.size_of(recipes.load(name, {}))


def test_a_gpu_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight.machine, "free_gpu", lambda device: None)
    with pytest.raises(SetupError, match=r"learner\.device is 'cuda', and torch finds no such device here"):
        preflight.require_devices(recipes.load("one-gpu", {}))
    preflight.require_devices(recipes.load("one-gpu", {"cluster": {"address": "auto"}}))


@pytest.mark.parametrize("part", ["learner", "engine"])
def test_a_device_of_no_known_name_is_said(part: str) -> None:
    preflight.require_devices(recipes.load("tiny", {part: {"device": "cpu"}}))
    with pytest.raises(SetupError, match=rf"{part}\.device is 'gpu0', and torch finds no such device here"):
        preflight.require_devices(recipes.load("tiny", {part: {"device": "gpu0"}}))


@pytest.mark.parametrize("name", ["agentrl", "one-gpu"])
def test_a_dry_run_tells_all_and_then_what_is_missing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN_14B))
    monkeypatch.setattr(preflight.machine, "free_gpu", lambda device: None)
    monkeypatch.setattr(budget.machine, "free_memory", lambda: 8 << 30)
    only = "envs={db={}}"  # gold play of all five takes seconds
    words = ["--recipe", name, "--dry-run", "--set", f"begin.model={tmp_path}", "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(train, [*words, "--set", only])
    assert "# a model of 14,769,701,888 weights" in done.output and "[learner.loss]" in done.output
    assert isinstance(done.exception, SetupError), done.output
    wanted = {"agentrl": "of memory, and this machine has 8.0 GiB free", "one-gpu": "torch finds no such device here"}
    assert wanted[name] in str(done.exception)
    assert not (tmp_path / "run").exists()


def test_replicas_are_refused_where_there_cannot_be_any() -> None:
    with pytest.raises(SetupError, match=r"leave processes\.engine true, or replicas out"):
        preflight.require_replicas(recipes.load("tiny", {"processes": {"replicas": 2, "engine": False}}))
    with pytest.raises(SetupError, match=r"say engine\.replicas instead"):
        preflight.require_replicas(recipes.load("tiny", {"processes": {"replicas": 2}, "sampler": "vllm"}))
    preflight.require_replicas(recipes.load("tiny", {"processes": {"replicas": 2}}))
    preflight.require_replicas(recipes.load("agentrl", {}))


def test_replicas_take_memory_each() -> None:
    one, two = (recipes.load("tiny", {"processes": {"replicas": count}}) for count in (1, 2))
    size = budget.size_of(one)
    once, twice = ({part.what: part for part in budget.memory(each, size, "cpu")} for each in (one, two))
    assert twice["engine, current: weights"].least == 2 * once["engine, current: weights"].least
    assert twice["5 processes"].least * 4 == once["4 processes"].least * 5
    assert twice["evaluation: weights"] == once["evaluation: weights"], "of which there is one"
    on_gpu = [part.what for part in budget.memory(two, size, "cuda") if part.what.endswith("processes on it")]
    assert on_gpu == ["1 processes on it", "3 processes on it"], "the learner; two engines and the evaluation's"


@pytest.mark.parametrize("part", ["shares", "horizon"])
def test_a_course_for_what_is_not_trained_on_is_refused_before_anything_is_made(part: str, tmp_path: Path) -> None:
    """And not after the warm start: that would have cost its minutes. Nor is it let in where a run goes on."""
    above = {"curriculum": {part: {"webshop": {"shares": 0.5, "horizon": [[0, 8]]}[part]}}}
    with pytest.raises(SetupError, match="'webshop', which is not trained on"):
        recipes.load("tiny", above)
    (tmp_path / "recipe.json").write_bytes(recipes.text(recipes.load("tiny", {})))
    with pytest.raises(SetupError, match="'webshop', which is not trained on"):
        recipes.stored(tmp_path, above)
