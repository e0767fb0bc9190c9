"""The losses: golden numbers, where gradients stop, and identities between the corrections."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="needs torch: pip install -e '.[train]'")

from training import losses  # noqa: E402 - imports torch
from training.losses import Clip  # noqa: E402

OLD_CLIP = Clip(0.2, 0.2)
NO_CLIP = Clip(1.0, 1e9, 1e9)
LOGS = st.floats(-4, 4)


def one(value: float, *, gradient: bool = False) -> Any:
    return torch.tensor([value], dtype=torch.float64, requires_grad=gradient)


def policy(theta: float, mu: float, prox: float | None = None, advantage: float = 1.0, **options: Any) -> Any:
    """Return loss and gradient by log θ of one token with these probabilities."""
    new = one(math.log(theta), gradient=True)
    old = None if prox is None else one(math.log(prox))
    terms = losses.policy(new, one(math.log(mu)), one(advantage), torch.zeros(1, dtype=torch.long), prox=old, **options)
    terms.loss.sum().backward()
    return float(terms.loss.detach()), float(new.grad)


@pytest.mark.parametrize(
    ("ratio", "advantage", "clip", "loss"),
    [
        (1.5, 1, OLD_CLIP, -1.2),
        (1.5, 1, Clip(0.2, 0.28), -1.28),
        (0.5, 1, OLD_CLIP, -0.5),
        (0.5, -1, OLD_CLIP, 0.8),
        (1.5, -1, OLD_CLIP, 1.5),
        (5.0, -1, OLD_CLIP, 3.0),
    ],
)
def test_golden_ppo_clip(ratio: float, advantage: float, clip: Clip, loss: float) -> None:
    assert float(losses.ppo_clip(one(ratio), one(advantage), clip).loss) == pytest.approx(loss)


@pytest.mark.parametrize(
    ("ratio", "advantage", "which"), [(1.5, 1, "high"), (0.5, -1, "low"), (5.0, -1, "dual"), (1.0, 1, None)]
)
def test_the_clip_that_binds_is_named_and_stops_the_gradient(ratio: float, advantage: float, which: str | None) -> None:
    given_ratio = one(ratio, gradient=True)
    found = losses.ppo_clip(given_ratio, one(advantage), OLD_CLIP)
    found.loss.sum().backward()
    assert {name for name in ("low", "high", "dual") if getattr(found, name)} == ({which} if which else set())
    assert float(given_ratio.grad) == (0.0 if which else -advantage)


EXAMPLE = {"theta": 0.33, "mu": 0.2, "prox": 0.3, "clip": OLD_CLIP}


def test_golden_bypass_is_clipped_without_gradient() -> None:
    loss, gradient = policy(**EXAMPLE, correction="bypass")
    assert loss == pytest.approx(-1.2)
    assert gradient == 0


def test_golden_decoupled_lets_stale_data_teach() -> None:
    loss, gradient = policy(**EXAMPLE, correction="decoupled")
    assert loss == pytest.approx(-1.65)
    assert gradient == pytest.approx(-1.65)


def test_golden_tis_truncates_the_weight() -> None:
    assert policy(**EXAMPLE, correction="tis", cap=1.2)[0] == pytest.approx(-1.32)


def test_masked_drops_a_weight_outside_the_band() -> None:
    assert policy(**EXAMPLE, correction="masked", band=(0.5, 2))[0] == pytest.approx(-1.65)
    assert policy(**EXAMPLE, correction="masked", band=(0.5, 1.4)) == (0.0, 0.0)


@given(LOGS, LOGS, st.floats(-2, 2))
def test_where_prox_is_the_behaviour_all_corrections_are_bypass(theta: float, mu: float, advantage: float) -> None:
    mu_p, theta_p = math.exp(mu - 5), math.exp(theta - 5)
    plain = policy(theta_p, mu_p, None, advantage, correction="bypass")
    for correction in ("decoupled", "tis", "masked"):
        assert policy(theta_p, mu_p, mu_p, advantage, correction=correction) == pytest.approx(plain)


def test_a_correction_without_prox_is_an_error() -> None:
    with pytest.raises(ValueError, match="needs prox"):
        policy(0.3, 0.2, None, correction="tis")


def test_the_weight_carries_no_gradient() -> None:
    prox = one(math.log(0.3), gradient=True)
    terms = losses.policy(one(math.log(0.33), gradient=True), one(math.log(0.2)), one(1), torch.tensor([0]), prox=prox)
    terms.loss.sum().backward()
    assert prox.grad is None


def test_log_ratios_are_clamped() -> None:
    assert float(losses.exp(one(1000.0))) == pytest.approx(math.exp(20))
    assert math.isfinite(policy(1.0, 1e-300, correction="bypass", advantage=-1.0)[0])


def test_golden_log_linear_prox() -> None:
    found = losses.log_linear(one(math.log(0.33)), one(math.log(0.2)), torch.tensor([1]), 3, 4)
    assert math.exp(float(found)) == pytest.approx(0.27927, abs=5e-6)


def test_log_linear_goes_by_each_tokens_own_version() -> None:
    new, behaviour = torch.zeros(4, requires_grad=True), torch.full((4,), -3.0)
    found = losses.log_linear(new, behaviour, torch.tensor([4, 3, 2, 1]), prox_version=3, version=4)
    # Of the version in the making: θ itself. Of prox's: μ itself. Older: between.
    assert found.tolist() == pytest.approx([0, -3, -1.5, -1])
    assert not found.requires_grad


def test_a_turn_is_vetoed_by_its_geometric_mean() -> None:
    log_weight = torch.tensor([0.0, 0.0, 1.0, 1.0, 2.0, -2.0])
    kept = losses.turn_veto(log_weight, torch.tensor([0, 0, 1, 1, 2, 2]), (0.5, 2.0))
    assert kept.tolist() == [True, True, False, False, True, True]


def test_a_vetoed_turn_has_loss_0_and_the_others_keep_theirs() -> None:
    new, behaviour = torch.tensor([-1.0, -1.0, -1.0]), torch.tensor([-1.0, -5.0, -5.0])
    terms = losses.policy(
        new, behaviour, torch.ones(3), torch.tensor([0, 1, 1]), correction="bypass", veto=(0.5, 2.0), clip=NO_CLIP
    )
    assert terms.loss.tolist() == [-1.0, 0.0, 0.0]
    assert terms.kept.tolist() == [True, False, False]


@pytest.mark.parametrize(("ratio", "value"), [(0.5, 0.19315), (1.0, 0.0), (2.0, 0.30685)])
def test_golden_k3(ratio: float, value: float) -> None:
    assert float(losses.k3(one(math.log(ratio)), one(0.0))) == pytest.approx(value, abs=5e-6)


@given(LOGS, LOGS)
def test_k3_is_never_negative(reference: float, new: float) -> None:
    assert float(losses.k3(one(reference), one(new))) >= -1e-12


def test_weighted_k3_has_the_value_and_the_gradient_of_the_divergence() -> None:
    logits = torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64, requires_grad=True)
    reference = torch.log_softmax(torch.tensor([1.0, 0.0, -1.0], dtype=torch.float64), 0)
    behaviour = torch.log_softmax(torch.tensor([-0.5, 0.2, 0.1], dtype=torch.float64), 0)
    new = torch.log_softmax(logits, 0)
    exact = (new.exp() * (new - reference)).sum()
    expected = (behaviour.exp() * losses.weighted_k3(reference, new, behaviour)).sum()
    plain = (behaviour.exp() * losses.k3(reference, new)).sum()
    assert float(expected.detach()) == pytest.approx(float(exact.detach()), rel=1e-12)
    assert abs(float((plain - exact).detach())) > 0.01
    (wanted,) = torch.autograd.grad(exact, logits, retain_graph=True)
    (found,) = torch.autograd.grad(expected, logits)
    assert found.tolist() == pytest.approx(wanted.tolist(), rel=1e-9)


def test_gspo_takes_the_turns_geometric_mean() -> None:
    new, turns = torch.log(torch.tensor([2.0, 0.5, 3.0])), torch.tensor([0, 0, 1])
    terms = losses.policy(
        new, torch.zeros(3), torch.ones(3), turns, correction="bypass", objective="gspo", clip=NO_CLIP
    )
    assert terms.loss.tolist() == pytest.approx([-1.0, -1.0, -3.0])


def test_cispo_bounds_the_weight_and_keeps_the_gradient() -> None:
    loss, gradient = policy(0.4, 0.2, correction="bypass", objective="cispo", clip=OLD_CLIP)
    assert loss == pytest.approx(-1.2 * math.log(0.4))
    assert gradient == pytest.approx(-1.2)


@pytest.mark.parametrize(("theta", "weight"), [(0.22, 1.1), (0.1, 0.8)])
def test_cispos_weight_has_no_gradient_and_a_lower_bound(theta: float, weight: float) -> None:
    found = policy(theta, 0.2, correction="bypass", objective="cispo", clip=OLD_CLIP)
    assert found == pytest.approx((-weight * math.log(theta), -weight))
