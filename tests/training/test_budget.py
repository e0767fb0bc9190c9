"""What a recipe will take, told before anything is made: exact where it can be, and a refusal in one sentence."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.config import convert, merge
from harness.errors import SetupError
from training import budget, forecast, machine
from training.budget import Part
from training.forecast import Play
from training.recipe import Recipe, made

QWEN_HALF = {  # Qwen2.5-0.5B's own configuration
    "hidden_size": 896, "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
    "intermediate_size": 4864, "vocab_size": 151936, "max_position_embeddings": 32768, "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}  # fmt: skip


SMALL: dict[str, Any] = {
    "name": "small",
    "envs": {"alfworld": {"difficulty": 0.0}, "webshop": {}},
    "steps": 60,
    "groups": 8,
    "running": 16,
    "collect": {"group_size": 8, "limits": {"turns": 12}},
    "learner": {"minibatches": 2, "micro_tokens": 8192},
    "engine": {"answer_tokens": 48, "context": 4096},
    "score": {"every": 10, "tasks": 60, "test_tasks": 200},
}


def recipe(**above: Any) -> Recipe:
    return convert(Recipe, merge(SMALL, above), "small")


def test_every_key_of_a_recipe_is_told_and_read_back() -> None:
    found = recipe(learner={"lora": {"rank": 4}}, envs={"tests.a:make": {"text": 'a "b"\n\x7fü'}})
    values = forecast.whole(found)
    assert values["learner"]["lora"] == {"rank": 4, "alpha": 32.0, "targets": "all-linear"}
    assert values["learner"]["betas"] == [0.9, 0.999] and values["log"]["alarms"]["updates"] == 5
    told = "\n".join(forecast.toml(values))
    assert 'device = "none"' in told
    assert made(tomllib.loads(told), "told") == found


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["nano", "tiny", "small"])
def test_made_models_are_counted_to_the_last_weight(shape: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="needs transformers: pip install -e '.[train]'")
    torch = pytest.importorskip("torch")
    size = budget.size_of(recipe(begin={"shape": shape}))
    config = transformers.Qwen3Config(
        vocab_size=size.vocabulary, hidden_size=size.hidden, num_hidden_layers=size.layers, head_dim=size.head_size,
        num_attention_heads=size.heads, num_key_value_heads=size.key_value_heads, tie_word_embeddings=False,
        intermediate_size=size.feed_forward, max_position_embeddings=size.context,
    )  # fmt: skip
    with torch.device("meta"):
        model = transformers.Qwen3ForCausalLM(config)
    assert size.parameters == sum(weights.numel() for weights in model.parameters())
    config.save_pretrained(tmp_path)
    assert budget.size_of(recipe(begin={"model": str(tmp_path)})).parameters == size.parameters


def test_a_models_own_configuration_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN_HALF))
    size = budget.size_of(recipe(begin={"model": str(tmp_path)}))
    assert (size.head_size, size.bytes) == (64, 2)
    assert size.parameters == pytest.approx(494_032_768, rel=1e-3), "it has no norms of queries and keys, but biases"
    with pytest.raises(SetupError, match=r"holds no config\.json"):
        budget.size_of(recipe(begin={"model": str(tmp_path / "none")}))
    (tmp_path / "config.json").write_text(json.dumps({**QWEN_HALF, "vocab_size": None}))
    with pytest.raises(SetupError, match="does not say how large"):
        budget.size_of(recipe(begin={"model": str(tmp_path)}))


def named(parts: list[Part], word: str) -> int:
    return sum(part.least for part in parts if word in part.what)


def test_what_takes_memory_follows_the_recipe() -> None:
    size = budget.size_of(recipe())
    count = size.parameters
    plain = budget.memory(recipe(), size, "cpu")
    assert named(plain, "learner: weights") == 4 * count and named(plain, "optimizer") == 8 * count
    assert named(plain, "gradients") == 4 * count
    assert sum("engine, " in part.what and "weights" in part.what for part in plain) == 2
    deeper = budget.memory(recipe(pools={"depth": 3}), size, "cpu")
    assert sum("engine, " in part.what and "weights" in part.what for part in deeper) == 4
    kept = budget.memory(recipe(learner={"loss": {"kl": 0.1}}), size, "cpu")
    assert named(kept, "began with") == 4 * count and not named(plain, "began with")
    lora = budget.memory(recipe(learner={"lora": {"rank": 2}, "precision": "bfloat16"}), size, "cpu")
    assert named(lora, "optimizer") < named(plain, "optimizer") / 20
    assert named(budget.memory(recipe(learner={"checkpointing": True}), size, "cpu"), "activations") < named(
        plain, "activations"
    )
    halved = budget.memory(recipe(learner={"micro_tokens": 4096}), size, "cpu")
    assert named(halved, "activations") == pytest.approx(named(plain, "activations") / 2, rel=0.01)
    ranks = budget.memory(recipe(backend="deepspeed", ranks=2), size, "cpu")
    assert named(ranks, "optimizer") == 8 * count, "it is spread over the ranks"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "micro_tokens", "lengths"),
    [("nano", 1024, (4096, 4096)), ("tiny", 1024, (1000, 700, 900, 300, 1024, 500))],
    ids=["longer than a micro-batch", "of different lengths"],
)
def test_a_learner_takes_what_is_said(shape: str, micro_tokens: int, lengths: tuple[int, ...]) -> None:
    pytest.importorskip("transformers", reason="needs transformers: pip install -e '.[train]'")
    command = [sys.executable, "-m", "tests.training.peaks", shape, *map(str, (micro_tokens, *lengths))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["taken"] == pytest.approx(found["most"], rel=0.25)
    assert (found["least"] < found["most"]) == (max(lengths) > micro_tokens)


def test_a_warm_start_counts_by_itself_as_all_weights_are_trained_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    size = budget.size_of(recipe())
    lora = recipe(learner={"lora": {"rank": 2}, "precision": "bfloat16"})
    parts = budget.warm_start(lora, size, "cpu")
    assert named(parts, "weights, gradients and optimizer") == 16 * size.parameters
    assert {part.where for part in budget.warm_start(lora, size, "cuda")} == {"memory", "cuda"}
    fewer = budget.warm_start(recipe(begin={"warm_start": {"micro_tokens": 1024}}), size, "cpu")
    longer = recipe(begin={"warm_start": {"micro_tokens": 1024}, "longest": 2048})
    assert named(fewer, "activations") < named(parts, "activations") / 8
    activations = next(part for part in budget.warm_start(longer, size, "cpu") if "activations" in part.what)
    assert activations.most == pytest.approx(2 * activations.least, rel=0.01), "a play longer than a micro-batch"
    half = recipe(begin={"warm_start": {"precision": "bfloat16"}})
    monkeypatch.setattr(machine, "has_bfloat16", lambda device: device != "cpu")
    assert budget.warm_start(half, size, "cpu") == budget.warm_start(recipe(), size, "cpu")
    assert "float32" in budget.told_of_bfloat16(half, "cpu") and not budget.told_of_bfloat16(recipe(), "cpu")
    monkeypatch.setattr(machine, "has_bfloat16", lambda device: True)
    assert named(budget.warm_start(half, size, "cpu"), "activations") < named(parts, "activations")
    assert not budget.told_of_bfloat16(half, "cpu")
    none = msgspec.structs.replace(lora, begin=msgspec.structs.replace(lora.begin, warm_start=None))
    assert budget.warm_start(none, size, "cpu") == []


def test_a_gpu_and_the_machine_are_told_apart() -> None:
    size = budget.size_of(recipe())
    places = budget.totals(budget.memory(recipe(), size, "cuda"))
    assert set(places) == {"memory", "cuda"}
    assert places["cuda"][1] > places["cuda"][0] > 2 * budget.GPU_PROCESS
    engine_only = budget.totals(budget.memory(recipe(engine={"device": "cpu"}), size, "cuda"))
    assert engine_only["cuda"][0] < places["cuda"][0]


def test_too_little_is_refused_in_one_sentence_with_what_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = budget.memory(recipe(), budget.size_of(recipe()), "cpu")
    budget.require_room(parts, tmp_path)
    monkeypatch.setattr(machine, "free_memory", lambda: 1 << 29)
    with pytest.raises(
        SetupError, match=r"needs 2\.\d GiB of memory, and this machine has 512 MiB free.*'4 processes'"
    ):
        budget.require_room(parts, tmp_path)
    monkeypatch.setattr(machine, "free_memory", lambda: None)
    budget.require_room(parts, tmp_path)
    monkeypatch.setattr(machine, "free_disk", lambda folder: 1 << 20)
    on_disk = budget.disk(recipe(), budget.size_of(recipe()))
    with pytest.raises(SetupError, match=r"of disk, and .* has 1 MiB free.*another folder with --out"):
        budget.require_room(on_disk, tmp_path / "run")
    for part in (*parts, *on_disk):
        assert any(name in part.what for name in budget.REMEDIES if name) or part.where == "disk", part.what


def test_tokens_are_bounded_by_turns_answers_and_context() -> None:
    wanted = recipe()
    plays = [Play("alfworld", 12, 6.0, 120.0, ""), Play("webshop", 10, 4.0, 80.0, "")]
    size = budget.size_of(wanted)
    found = forecast.tokens(wanted, size, plays)
    assert (found.attempts, found.most_sampled, found.about_sampled) == (64, 64 * 12 * 48, 64 * 96)
    assert (found.most_computed, found.beside) == (64 * 4096, 0)
    assert found.evaluated == 2 * ((1 + 6) * 60 + 3 * 200)
    unbounded = [plays[0]._replace(most_turns=None, problem="no machine")]
    found = forecast.tokens(wanted, size, unbounded)
    assert (found.most_sampled, found.about_sampled) == (64 * 4096, None)


@pytest.mark.parametrize(
    ("course", "mean"),
    [
        ({"over": "groups"}, 100.0),
        ({"over": "groups", "shares": {"alfworld": 3}}, 110.0),
        ({"shares": {"alfworld": 3}}, 4 / (3 / 120 + 1 / 80)),
    ],
)
def test_tokens_are_forecast_by_the_shares_that_the_curriculum_holds(course: dict[str, Any], mean: float) -> None:
    wanted = recipe(curriculum=course)
    plays = [Play("alfworld", 12, 6.0, 120.0, ""), Play("webshop", 10, 4.0, 80.0, "")]
    assert forecast.tokens(wanted, budget.size_of(wanted), plays).about_sampled == round(64 * mean)
    silent = [plays[0]._replace(tokens=0.0), plays[1]]
    assert forecast.tokens(wanted, budget.size_of(wanted), silent).about_sampled is not None


def test_gold_play_beside_own_play_is_forecast() -> None:
    wanted = recipe(ptx={"tasks": {"alfworld": 20}, "sequences": {"alfworld": 8}})
    plays = [Play("alfworld", 12, 6.0, 120.0, ""), Play("webshop", 10, 4.0, 80.0, "")]
    size = budget.size_of(wanted)
    found = forecast.tokens(wanted, size, plays)
    assert (found.beside, found.most_computed) == (8 * 120, 64 * 4096 + 8 * wanted.begin.longest)
    unknown = [plays[0]._replace(problem="no machine"), plays[1]]
    assert forecast.tokens(wanted, size, unknown).beside is None
    told = forecast.text(wanted, size, [], Path(), plays)
    assert "# gold play learnt beside in an update (ptx.sequences): 8 of alfworld, about 960 tokens" in told


def test_the_machine_is_read_from_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = tmp_path / "groups" / "memory" / "box"
    group.mkdir(parents=True)
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text("4:cpu:/\n3:memory:/box\n")
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:   1000000 kB\n")
    for name, value in (("limit_in_bytes", 5000), ("usage_in_bytes", 3000)):
        (group / f"memory.{name}").write_text(f"{value}\n")
    (group / "memory.stat").write_text("cache 800\ninactive_file 700\n")
    monkeypatch.setattr(machine, "PROC", tmp_path)
    monkeypatch.setattr(machine, "GROUPS", tmp_path / "groups")
    assert machine.free_memory() == 5000 - 3000 + 700
    (group / "memory.limit_in_bytes").write_text("max\n")
    assert machine.free_memory() == 1000000 * 1024
    (tmp_path / "meminfo").unlink()
    assert machine.free_memory() is None


def test_the_peak_counts_children_and_the_disk_a_folder_that_is_not_there(tmp_path: Path) -> None:
    alone = machine.peak_bytes()
    child = subprocess.Popen([sys.executable, "-c", "input('x')"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout and child.stdout.read(1) == b"x"
        both = machine.peak_bytes()
    finally:
        child.communicate()
    assert alone is not None and both is not None and both > alone + (1 << 20)
    assert machine.free_disk(tmp_path / "not" / "there") is not None
