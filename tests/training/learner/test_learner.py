"""The torch learner: one loss whatever the split, exact where it must be, and intact where it refuses."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from harness.errors import SetupError
from harness.models.hf.engine import pretrained
from tests.training import making
from tests.training.learner import models
from training import learner, losses, machine, packing
from training import recipe as recipes
from training.learner import update
from training.learner.options import LearnerOptions, LossOptions
from training.learner.update import Learner
from training.values import Sample

SAMPLES = making.samples(12)
ON = {"deterministic": True}


def updated(folder: Path, samples: list[Sample] = SAMPLES, version: int = 1, **options: Any) -> tuple[Any, Any]:
    one = models.make(folder, **options)
    return one.update(samples, version), models.weights(one)


def assert_close(one: dict[str, Any], other: dict[str, Any], tolerance: float) -> None:
    assert one.keys() == other.keys()
    for name, each in one.items():
        assert torch.allclose(each, other[name], rtol=0, atol=tolerance), name


@pytest.fixture(scope="module")
def whole(nano: Path) -> tuple[Any, Any]:
    return updated(nano, micro_tokens=100_000, lr=1e-2, grad_clip=1e9)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("micro_tokens", [1, 70, 200])
def test_every_split_into_micro_batches_gives_the_same_loss(
    nano: Path, whole: tuple[Any, Any], micro_tokens: int, packed: bool
) -> None:
    metrics, _ = updated(nano, micro_tokens=micro_tokens, packed=packed, lr=1e-2, grad_clip=1e9)
    assert metrics["loss"] == pytest.approx(whole[0]["loss"], rel=1e-6)
    assert metrics["grad_norm"] == pytest.approx(whole[0]["grad_norm"], rel=1e-5)


@pytest.mark.parametrize(
    "loss",
    [
        {"kl": 0.1},
        {"kl": 0.1, "kl_weighted": False},
        {"objective": "gspo"},
        {"objective": "cispo", "correction": "masked"},
        {"veto": (0.05, 20.0)},
    ],
)
def test_every_loss_is_the_same_however_it_is_split(nano: Path, loss: dict[str, Any]) -> None:
    whole, *split = (
        updated(nano, micro_tokens=size, packed=packed, lr=1e-2, grad_clip=1e9, **loss)[0]
        for size, packed in ((100_000, False), (70, False), (70, True))
    )
    for metrics in split:
        assert metrics["loss"] == pytest.approx(whole["loss"], rel=1e-6) != 0
        assert metrics["grad_norm"] == pytest.approx(whole["grad_norm"], rel=1e-5)
        assert metrics["dropped"] == pytest.approx(whole["dropped"])


@pytest.mark.parametrize("packed", [True, False])
def test_packed_is_padded_token_by_token(nano: Path, packed: bool) -> None:
    one, alone = models.make(nano, micro_tokens=100_000, packed=packed), models.make(nano, micro_tokens=1)
    together = {s.segment.ids.tobytes(): s.segment.logprobs for s in models.played(one, SAMPLES)}
    for sample in models.played(alone, SAMPLES):
        assert together[sample.segment.ids.tobytes()] == pytest.approx(sample.segment.logprobs, abs=2e-5)


def test_dropping_tokens_takes_their_loss_away_and_leaves_the_rest(nano: Path) -> None:
    first = [replace(s, kept=s.segment.mask & (s.segment.turns == 0)) for s in SAMPLES]
    rest = [replace(s, kept=s.segment.mask & (s.segment.turns > 0)) for s in SAMPLES]
    whole, *parts = (updated(nano, part, correction="bypass")[0]["loss"] for part in (SAMPLES, first, rest))
    assert sum(parts) == pytest.approx(whole, rel=1e-6)


def test_mini_batches_have_the_batchs_loss_on_average(nano: Path) -> None:
    losses = [updated(nano, minibatches=count, lr=1e-12)[0]["loss"] for count in (1, 2, 4)]
    assert losses[1:] == pytest.approx([losses[0]] * 2, rel=1e-5)


@pytest.mark.parametrize("minibatches", [1, 4])
def test_the_first_mini_batch_of_recomputed_prox_has_no_kl(nano: Path, minibatches: int) -> None:
    one = models.make(nano, minibatches=minibatches, correction="decoupled", lr=1e-2)
    metrics = one.update(models.played(one, SAMPLES), version=0)
    assert abs(metrics["ppo_kl/first"]) < 1e-8
    assert metrics["mismatch/k3"] < 1e-8
    assert (abs(metrics["ppo_kl"]) < 1e-8) is (minibatches == 1)


def test_on_policy_every_correction_is_the_same_step(nano: Path) -> None:
    one = models.make(nano)
    own = models.played(one, SAMPLES)
    found = {c: updated(nano, own, 0, correction=c) for c in ("bypass", "decoupled", "tis", "masked")}
    for metrics, _ in found.values():
        assert metrics["loss"] == pytest.approx(found["bypass"][0]["loss"], rel=1e-5)
        assert metrics["ess"] == pytest.approx(1, abs=1e-6)


def test_deterministic_updates_are_equal_bit_for_bit(nano: Path) -> None:
    one, other = (updated(nano, minibatches=2, **ON)[1] for _ in range(2))
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_what_is_saved_goes_on_as_if_never_interrupted(nano: Path, tmp_path: Path, optimizer: str) -> None:
    options = {"minibatches": 2, "warmup": 5, "optimizer": optimizer, **ON}
    through = models.make(nano, **options)
    through.update(SAMPLES, 0)
    through.save(tmp_path)
    through.update(SAMPLES, 1)
    resumed = models.make(nano, **options)
    resumed.load(tmp_path)
    assert resumed.steps == 2
    resumed.update(SAMPLES, 1)
    expected, found = through.weights(), resumed.weights()
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_muon_turns_what_lies_between_embedding_and_head(nano: Path) -> None:
    before = models.weights(models.make(nano))
    _, adamw = updated(nano, lr=1e-3, warmup=0, minibatches=1)
    _, muon = updated(nano, lr=1e-3, warmup=0, minibatches=1, optimizer="muon")
    for name, each in before.items():
        if each.ndim == 2 and "embed" not in name and "lm_head" not in name:
            turned = torch.linalg.svdvals((muon[name] - each).double())
            most = 1e-3 * 0.2 * max(each.shape) ** 0.5  # Liu et al. 2025, equation 4: as large as a step of AdamW
            assert turned.max() < 1.3 * most and turned.median() > 0.5 * most, name
            assert not torch.allclose(muon[name], adamw[name], rtol=0, atol=1e-5), name
        else:
            assert torch.equal(muon[name], adamw[name]), name


def test_deepspeed_has_adamw_alone(nano: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learner, "NEEDED", {"deepspeed": ()})
    refusal = "no optimizer 'muon': take adamw, or the torch learner"
    with pytest.raises(SetupError, match=refusal):
        learner.make("deepspeed", nano, LearnerOptions(optimizer="muon"))
    asked = {"name": "odd", "steps": 1, "envs": {"kg": {}}, "backend": "deepspeed", "learner": {"optimizer": "muon"}}
    with pytest.raises(SetupError, match=refusal):
        recipes.made(asked, "odd")


def test_a_cut_file_is_refused_and_the_learner_is_as_it_was(nano: Path, tmp_path: Path) -> None:
    one = models.make(nano)
    one.save(tmp_path)
    before = models.weights(one)
    (tmp_path / "learner.pt").write_bytes((tmp_path / "learner.pt").read_bytes()[:1000])
    with pytest.raises(SetupError, match=r"learner.pt cannot be taken up again"):
        one.load(tmp_path)
    assert_close(before, one.weights(), 0)


def test_weights_of_another_model_are_refused(nano: Path, tmp_path: Path) -> None:
    models.make(models.write(tmp_path / "tied", tied=True)).save(tmp_path)
    with pytest.raises(SetupError, match="it holds weights of other names"):
        models.make(nano).load(tmp_path)


def test_models_loaded_at_once_and_after_keep_their_ties(tmp_path: Path) -> None:
    """Transformers swaps methods of its own class while it loads, which is no thing to do in two threads."""
    tied = models.write(tmp_path / "tied", tied=True)

    def loaded(_: int) -> bool:
        network = pretrained(tied, torch.float32, "cpu")
        return network.get_output_embeddings().weight is network.get_input_embeddings().weight

    patient = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads take turns all the time, so that what can come between does
    try:
        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(loaded, range(24)))
    finally:
        sys.setswitchinterval(patient)
    assert loaded(24)


@pytest.mark.parametrize(("changed", "what"), [("coefficient", "the loss is nan"), ("advantages", "the loss is nan")])
def test_a_loss_that_is_no_number_is_refused_before_the_step(nano: Path, changed: str, what: str) -> None:
    bad = {"coefficient": float("nan"), "advantages": np.full_like(SAMPLES[0].advantages, np.nan)}[changed]
    one = models.make(nano)
    before = models.weights(one)
    with pytest.raises(
        SetupError,
        match=f"after 0 optimizer steps {what}, and the step was not taken: begin a run of a lower learner.lr",
    ):
        one.update([replace(SAMPLES[0], **{changed: bad}), *SAMPLES[1:]], 0)
    assert_close(before, one.weights(), 0)
    assert one.update(SAMPLES, 0)["grad_norm"] == pytest.approx(models.make(nano).update(SAMPLES, 0)["grad_norm"])


def test_a_gradient_that_overflows_is_refused_before_the_step(nano: Path) -> None:
    one = models.make(nano)
    before = models.weights(one)
    with pytest.raises(SetupError, match="the gradient's norm is"):
        one.update([replace(sample, coefficient=1e37) for sample in SAMPLES], 0)
    assert_close(before, one.weights(), 0)


def test_the_update_raises_what_was_good_and_lowers_what_was_bad(nano: Path) -> None:
    one = models.make(nano, lr=1e-2)
    own = models.played(one, SAMPLES)
    signed = [
        replace(sample, advantages=np.where(sample.segment.mask, 1.0 if number % 2 else -1.0, 0.0).astype(np.float32))
        for number, sample in enumerate(own)
    ]
    one.update(signed, 0)
    after = {sample.segment.ids.tobytes(): sample for sample in models.played(one, signed)}
    risen = [after[sample.segment.ids.tobytes()].segment.logprobs - sample.segment.logprobs for sample in signed]
    moved = [(change * sample.advantages).sum() for change, sample in zip(risen, signed, strict=True)]
    assert sum(change > 0 for change in moved) >= 10


def rates(one: Learner, versions: Iterable[int]) -> Iterator[float]:
    """Yield the learning rate of one step after the other, two an update."""
    for step, version in enumerate(versions):
        one.steps = step
        yield one.rate(version)


def test_the_learning_rate_warms_up(nano: Path) -> None:
    one = models.make(nano, lr=1.0, warmup=3)
    assert [*rates(one, range(5))] == [0.25, 0.5, 0.75, 1.0, 1.0]


def test_the_learning_rate_falls_to_a_tenth_at_the_last_update(nano: Path) -> None:
    one = models.make(nano, lr=1.0, warmup=1, schedule="cosine", updates=10)
    assert [*rates(one, (0, 0, 5, 10, 99))] == pytest.approx([0.5, 1.0, 0.55, 0.1, 0.1])
    assert [*rates(models.make(nano, lr=1.0, schedule="cosine"), (0, 9))] == [1.0, 1.0], "until nobody knows when"


def test_the_rate_and_the_clip_reach_the_optimizer(nano: Path) -> None:
    def moved(**options: Any) -> float:
        one = models.make(nano, lr=1e-2, **options)
        before = models.weights(one)
        one.update(SAMPLES, 0)
        return max(float((one.weights()[name] - each).abs().max()) for name, each in before.items())

    assert moved(warmup=99) == pytest.approx(1e-4, rel=0.02), "AdamW's first step is as large as its rate"
    assert moved(grad_clip=1e-12) < 1e-5 < 5e-3 < moved(), "of a gradient below its epsilon nothing moves"


def test_nothing_to_train_on_changes_nothing(nano: Path) -> None:
    one = models.make(nano)
    before = models.weights(one)
    assert (
        one.update([replace(sample, kept=np.zeros_like(sample.kept)) for sample in SAMPLES], 0)["tokens/trained"] == 0
    )
    assert_close(before, one.weights(), 0)


def test_what_has_no_gradient_is_not_computed(nano: Path) -> None:
    alike = [replace(s, advantages=np.zeros_like(s.advantages)) if s.group_id < 2 else s for s in SAMPLES]
    found, changed = updated(nano, alike, lr=1e-2)
    alone, expected = updated(nano, [s for s in alike if s.group_id >= 2], lr=1e-2)
    assert_close(changed, expected, 0)
    assert found["tokens/computed"] == alone["tokens/computed"]
    assert found["tokens/read"] == sum(len(s.segment.ids) for s in SAMPLES if s.group_id >= 2 and s.kept.any())
    held = updated(nano, alike, lr=1e-2, kl=0.1)[0]
    assert held["tokens/computed"] == updated(nano, lr=1e-2)[0]["tokens/computed"]


def gold(count: int) -> list[Sample]:
    """Return samples whose mean log-likelihood a token is to be learnt."""
    made = [replace(s, advantages=s.segment.mask.astype(np.float32)) for s in making.samples(count, seed=7)]
    return [replace(each, coefficient=1 / sum(s.kept.sum() for s in made)) for each in made]


def test_gold_play_is_learnt_beside_the_batch(nano: Path) -> None:
    own, beside = models.make(nano, lr=1e-2), models.make(nano, lr=1e-2)
    still = models.make(nano, lr=1e-12)
    found = still.update(SAMPLES, 0, gold(6))
    assert found["loss"] == pytest.approx(still.update(SAMPLES, 0)["loss"] + found["ptx/loss"], rel=1e-5)
    for version in range(5):
        own.update(SAMPLES, version)
        beside.update(SAMPLES, version, gold(6))
    assert beside.update(SAMPLES, 5, gold(6))["ptx/loss"] < own.update(SAMPLES, 5, gold(6))["ptx/loss"] - 0.1


@pytest.mark.parametrize("count", [1, 6])
def test_gold_play_is_the_same_however_it_is_split(nano: Path, count: int) -> None:
    options: dict[str, Any] = {"minibatches": 3, "lr": 1e-12}
    whole, apart = models.make(nano, micro_tokens=100_000, **options), models.make(nano, micro_tokens=1, **options)
    found, other = whole.update(SAMPLES, 0, gold(count)), apart.update(SAMPLES, 0, gold(count))
    assert found["loss"] == pytest.approx(other["loss"], rel=1e-6)
    assert found["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-5)
    together = models.make(nano, **{**options, "minibatches": 1}).update(SAMPLES, 0, gold(count))
    assert found["ptx/loss"] == pytest.approx(together["ptx/loss"], rel=1e-5), "mini-batches have it on average"


def test_gradient_checkpointing_changes_memory_and_not_the_step(nano: Path) -> None:
    plain, kept = updated(nano), updated(nano, checkpointing=True)
    assert kept[0]["loss"] == pytest.approx(plain[0]["loss"], rel=1e-6)
    assert_close(plain[1], kept[1], 1e-5)


def test_logits_in_parts_are_the_same(nano: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from training.learner import network

    plain = updated(nano, micro_tokens=1000)
    monkeypatch.setattr(network, "most_logits", lambda device: 3 * models.VOCABULARY)
    parts = updated(nano, micro_tokens=1000)
    assert parts[0]["loss"] == pytest.approx(plain[0]["loss"], rel=1e-6)
    assert parts[0]["grad_norm"] == pytest.approx(plain[0]["grad_norm"], rel=1e-5)


def test_bfloat16_computes_half_and_keeps_float32(nano: Path) -> None:
    one = models.make(nano, precision="bfloat16")
    metrics = one.update(SAMPLES, 0)
    assert metrics["loss"] == pytest.approx(updated(nano)[0]["loss"], rel=0.1)
    assert {each.dtype for each in one.weights().values()} == {torch.float32}


@pytest.mark.parametrize("has", [True, False])
def test_a_cpu_without_bfloat16_computes_in_float32(nano: Path, monkeypatch: pytest.MonkeyPatch, *, has: bool) -> None:
    monkeypatch.setattr(machine, "has_bfloat16", lambda device: has)
    asked, plain = models.make(nano, precision="bfloat16"), models.make(nano)
    asked.update(SAMPLES, 0)
    plain.update(SAMPLES, 0)
    alike = [torch.equal(each, plain.weights()[name]) for name, each in asked.weights().items()]
    assert all(alike) is not has


@pytest.mark.parametrize(("prox", "passes"), [("log_linear", 1), ("recompute", 2)])
def test_log_linear_prox_needs_no_pass_and_is_between_the_versions_of_the_update(
    nano: Path, prox: str, passes: int
) -> None:
    one = models.make(nano, prox=prox, correction="decoupled", micro_tokens=100_000)
    with (
        mock.patch.object(losses, "log_linear", wraps=losses.log_linear) as between,
        mock.patch.object(one.backend, "logprobs", wraps=one.backend.logprobs) as computed,
    ):
        one.update(SAMPLES, 2)
    assert computed.call_count == passes
    assert [call.args[3:] for call in between.call_args_list] == ([(2, 3)] if prox == "log_linear" else [])


def test_on_policy_log_linear_prox_is_the_recomputed_one(nano: Path) -> None:
    own = models.played(models.make(nano), SAMPLES)
    metrics = updated(nano, own, 1, prox="log_linear", correction="decoupled")[0]
    exact = updated(nano, own, 1, prox="recompute", correction="decoupled")[0]
    assert metrics["loss"] == pytest.approx(exact["loss"], rel=1e-5)


@pytest.mark.parametrize(
    "changed",
    [
        {"clip_low": 0.05},
        {"clip_high": 0.6},
        {"dual_clip": 1.1},
        {"cap": 1.2},
        {"objective": "gspo"},
        {"objective": "cispo"},
        {"correction": "decoupled"},
        {"correction": "bypass"},
        {"correction": "masked"},
        {"correction": "masked", "band": (0.9, 1.1)},
        {"veto": (0.9, 1.1)},
    ],
)
def test_each_option_of_the_loss_reaches_it(changed: dict[str, Any]) -> None:
    signed = [replace(each, advantages=each.advantages * (-1) ** place) for place, each in enumerate(SAMPLES)]
    rows = packing.rows(packing.plan(signed, 100_000, False)[0], False)
    behaviour = torch.from_numpy(rows.tokens.logprobs)
    steps = torch.arange(len(behaviour))
    prox, new = behaviour + 0.9 * torch.sin(steps * 1.3), behaviour + 1.3 * torch.sin(steps * 0.7)
    bounds = {"clip_low": "low", "clip_high": "high", "dual_clip": "dual"}
    wanted = losses.policy(
        new,
        behaviour,
        torch.from_numpy(rows.tokens.advantages),
        torch.from_numpy(rows.tokens.turns),
        prox=prox,
        clip=losses.CLIP._replace(**{bounds[name]: value for name, value in changed.items() if name in bounds}),
        **{name: value for name, value in changed.items() if name not in bounds},
    ).loss
    found = update.policy_terms(LossOptions(**changed), new, behaviour, rows, prox).loss
    assert torch.equal(found, wanted)
    assert not torch.equal(found, update.policy_terms(LossOptions(), new, behaviour, rows, prox).loss)


def test_the_divergence_may_go_without_the_weight_of_what_was_sampled_by_others(nano: Path) -> None:
    weighed, plain = (updated(nano, kl=1.0, kl_weighted=each, epochs=2, lr=1e-2)[0]["loss"] for each in (True, False))
    assert weighed != pytest.approx(plain, rel=1e-3)


def test_the_divergence_from_the_start_holds_the_weights_back(nano: Path) -> None:
    loose, held = models.make(nano, lr=1e-2), models.make(nano, lr=1e-2, kl=50.0)
    own = models.played(loose, SAMPLES)
    for version in range(4):
        loose.update(own, version)
        held.update(own, version)
    assert held.update(own, 9)["mismatch/k3"] == 0  # no token of lag 0
    assert held.update(own, 0)["mismatch/k3"] < 0.5 * loose.update(own, 0)["mismatch/k3"]


def test_a_veto_and_a_mask_drop_tokens_and_say_so(nano: Path) -> None:
    vetoed = updated(nano, veto=(0.9, 1.1))[0]
    masked = updated(nano, correction="masked", band=(0.9, 1.1))[0]
    assert 0.5 < vetoed["dropped"] <= 1
    assert 0.5 < masked["dropped"] <= 1


def sampled_by(sample: Sample, pool: int, version: int) -> Sample:
    mask = sample.segment.mask
    changed = replace(sample.segment, pools=np.where(mask, pool, -1), versions=np.where(mask, version, -1))
    return replace(sample, segment=changed)


def test_the_report_tells_lags_pools_and_tasks_apart(nano: Path) -> None:
    one = models.make(nano)
    own = models.played(one, SAMPLES)
    stale = [sampled_by(sample, pool=1, version=3) for sample in SAMPLES[:4]]
    fresh = [sampled_by(sample, pool=0, version=10) for sample in own[4:]]
    metrics = one.update(stale + fresh, version=10)
    assert metrics["ratio/lag/0/p99"] == pytest.approx(1, abs=1e-5)
    assert metrics["ratio/lag/5+/p99"] > 1.5
    assert metrics["pool/0/kl"] < 1e-8 < metrics["pool/1/kl"]
    assert metrics["mismatch/k3"] < 1e-8
    assert metrics["pool/0/tokens"] + metrics["pool/1/tokens"] == metrics["tokens/trained"]
    shares = [metrics[f"task/{env}/loss_share"] for env in ("alfworld", "db")]
    assert sum(shares) == pytest.approx(1)
    assert all(np.isfinite(value) for value in metrics.values())


def test_tokens_are_counted_once_in_however_many_epochs(nano: Path) -> None:
    one, two = updated(nano, lr=1e-2)[0], updated(nano, lr=1e-2, epochs=2)[0]
    assert (one["steps"], two["steps"]) == (1, 2)
    for name in ("tokens/trained", "pool/0/tokens", "task/db/trained_tokens"):
        assert one[name] == two[name] > 0
    assert two["tokens/computed"] == 2 * one["tokens/computed"]
    assert abs(two["ppo_kl/first"]) < 1e-6 < abs(two["ppo_kl"]), "the second epoch begins with other weights"


def test_what_was_sampled_on_a_cache_of_older_weights_is_reported_apart(nano: Path) -> None:
    first, *own = models.played(models.make(nano), SAMPLES)
    mask = first.segment.mask
    old = replace(first.segment, mixed_kv=mask, logprobs=np.where(mask, first.segment.logprobs - 0.5, 0.0))
    metrics = updated(nano, [replace(first, segment=old), *own], version=0)[0]
    assert metrics["mismatch/k3"] < 1e-8 < 0.1 < metrics["mismatch/k3_mixed_kv"]


def test_tied_weights_are_given_once(tmp_path: Path) -> None:
    one = models.make(models.write(tmp_path / "tied", tied=True))
    assert "lm_head.weight" not in one.weights()
    assert "model.embed_tokens.weight" in one.weights()


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"cannot be loaded for training"):
        models.make(tmp_path)


def test_an_unknown_learner_is_refused(nano: Path) -> None:
    with pytest.raises(SetupError, match="did you mean 'torch'"):
        learner.make("torhc", nano, LearnerOptions())
