"""Cross-policy sampling, enumerated: two turns, two actions, the model of each turn drawn from two pools.

Only the *product* weights of a whole trajectory are unbiased, with each turn's weight from the pool that sampled it.
The loss uses token-level, truncated weights: their gradient is biased, and the test says by how much.
"""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install -e '.[train]'")

from harness.core import Tokens  # noqa: E402 - after torch
from harness.dice import Dice  # noqa: E402
from harness.models.sampler import Request, Sampled  # noqa: E402
from tests.training.players import Dicing  # noqa: E402
from training import losses, samples  # noqa: E402
from training.policies import PooledSampler, PoolOptions, pool_of  # noqa: E402

CURRENT, STALE, TARGET = {"a": 0.7, "b": 0.3}, {"a": 0.4, "b": 0.6}, {"a": 0.8, "b": 0.2}
POOLS = ((0.75, CURRENT), (0.25, STALE))
REWARDS = {"aa": 1.0, "ab": 0.3, "ba": 0.3, "bb": 0.0}


class Played(NamedTuple):
    """One way that an episode can go."""

    chance: float
    actions: str
    behaviour: tuple[float, float]
    """Of each action, the probability that its own pool gave it."""

    @property
    def reward(self) -> float:
        return REWARDS[self.actions]


def everything() -> list[Played]:
    """Return every choice of pools and actions with its chance."""
    return [
        Played(p1 * one[a] * p2 * two[b], a + b, (one[a], two[b]))
        for (p1, one), (p2, two) in product(POOLS, repeat=2)
        for a, b in product("ab", repeat=2)
    ]


def weight(played: Played, behaviour: tuple[float, float]) -> float:
    """Return the product of the loss's own ratios over an episode."""
    target = torch.tensor([TARGET[action] for action in played.actions], dtype=torch.float64).log()
    old = torch.tensor(behaviour, dtype=torch.float64).log()
    return float(losses.weigh(target - old, "decoupled", 0.0, (0.0, 0.0)).prod())


def mixture(played: Played) -> tuple[float, float]:
    """Return what both pools together give each action."""
    first, second = (sum(share * pool[action] for share, pool in POOLS) for action in played.actions)
    return first, second


def pretended(played: Played) -> tuple[float, float]:
    """Return the behaviour if all tokens were the current pool's."""
    return CURRENT[played.actions[0]], CURRENT[played.actions[1]]


WORTH = sum(TARGET[a] * TARGET[b] * REWARDS[a + b] for a, b in product("ab", repeat=2))


def test_the_true_value() -> None:
    assert pytest.approx(0.7360, abs=5e-5) == WORTH
    assert sum(played.chance for played in everything()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("whose", "value"), [("engine", 0.7360), ("mixture", 0.7360), ("current", 0.6173)], ids=lambda each: str(each)
)
def test_the_value_by_product_weights(whose: str, value: float) -> None:
    behaviour = {"engine": lambda played: played.behaviour, "mixture": mixture, "current": pretended}[whose]
    found = sum(played.chance * weight(played, behaviour(played)) * played.reward for played in everything())
    assert found == pytest.approx(value, abs=5e-5)
    if whose == "current":
        assert found / WORTH - 1 == pytest.approx(-0.16, abs=0.005)


@pytest.mark.parametrize(("whose", "variance"), [("engine", 0.446), ("mixture", 0.278)])
def test_the_variance_of_product_weights(whose: str, variance: float) -> None:
    behaviour = {"engine": lambda played: played.behaviour, "mixture": mixture}[whose]
    squares = sum(played.chance * weight(played, behaviour(played)) ** 2 for played in everything())
    assert squares - 1 == pytest.approx(variance, abs=5e-4)


def gradient(correction: str, behaviour: Any, cap: float = 2.0, baseline: float = 0.0) -> float:
    """Return the expected gradient of the *loss as shipped*, by the logit of action a, at θ = target, negated."""
    logit = torch.tensor(TARGET["a"], dtype=torch.float64).logit().requires_grad_()
    total = torch.zeros((), dtype=torch.float64)
    for played in everything():
        new = torch.stack([torch.nn.functional.logsigmoid(logit if a == "a" else -logit) for a in played.actions])
        old = torch.tensor(behaviour(played), dtype=torch.float64).log()
        terms = losses.policy(
            new,
            old,
            torch.full((2,), played.reward - baseline, dtype=torch.float64),
            torch.tensor([0, 1]),
            prox=new.detach(),
            correction=correction,
            cap=cap,
            clip=losses.Clip(1.0, 1e9, 1e9),
        )
        total = total + played.chance * terms.loss.sum()
    return -float(torch.autograd.grad(total, logit)[0])


def true_gradient() -> float:
    """Return the gradient of the true value by the logit of action a."""
    logit = torch.tensor(TARGET["a"], dtype=torch.float64).logit().requires_grad_()
    p = {"a": torch.sigmoid(logit), "b": torch.sigmoid(-logit)}
    value = sum(p[a] * p[b] * REWARDS[a + b] for a, b in product("ab", repeat=2))
    return float(torch.autograd.grad(value, logit)[0])


def test_the_bias_of_the_token_level_gradient(capsys: pytest.CaptureFixture[str]) -> None:
    """The other turn's actions come from the pools, not from the target: a bias that no token-level weight removes."""
    exact = true_gradient()
    found = {
        "each pool's own behaviour": gradient("decoupled", lambda played: played.behaviour),
        "truncated at 2": gradient("tis", lambda played: played.behaviour),
        "truncated at 1.2": gradient("tis", lambda played: played.behaviour, cap=1.2),
        "all as if current": gradient("decoupled", pretended),
    }
    with capsys.disabled():
        print(f"\ngradient of the value: {exact:.4f}; of the token-level loss, and its bias:")
        for name, value in found.items():
            print(f"  {name:28} {value:.4f}  {value / exact - 1:+.1%}")
    # J = Σ_t E[w_t A ∇log π_t]: each turn's own weight is exact, the other turn is averaged over the pools' mixture.
    mixed = sum(share * pool["a"] for share, pool in POOLS)
    slope = TARGET["a"] * TARGET["b"]
    by_hand = 2 * slope * (mixed * (REWARDS["aa"] - REWARDS["ba"]) + (1 - mixed) * (REWARDS["ab"] - REWARDS["bb"]))
    assert found["each pool's own behaviour"] == pytest.approx(by_hand, rel=1e-9)
    assert exact == pytest.approx(
        2 * slope * (TARGET["a"] * (REWARDS["aa"] - REWARDS["ba"]) + TARGET["b"] * (REWARDS["ab"] - REWARDS["bb"]))
    )
    bias = {name: abs(value / exact - 1) for name, value in found.items()}
    assert 0.05 < bias["each pool's own behaviour"] < bias["all as if current"]


def test_product_weights_have_an_unbiased_gradient() -> None:
    """With the weight of the other turn as well, the surrogate's gradient is exact."""
    logit = torch.tensor(TARGET["a"], dtype=torch.float64).logit().requires_grad_()
    total = torch.zeros((), dtype=torch.float64)
    for played in everything():
        new = torch.stack([torch.nn.functional.logsigmoid(logit if a == "a" else -logit) for a in played.actions])
        ratio = (new.sum() - torch.tensor(played.behaviour, dtype=torch.float64).log().sum()).exp()
        total = total + played.chance * ratio * played.reward
    assert float(torch.autograd.grad(total, logit)[0]) == pytest.approx(true_gradient(), rel=1e-9)


def test_golden_effective_sample_size() -> None:
    import numpy as np

    from training.learner import report

    assert report.ess(np.array([0.5, 1.0, 1.0, 2.0])) == pytest.approx(0.81)


class Toy(Dicing):
    """An engine that says 0 for "a" and 1 for "b"."""

    def __init__(self, name: str, chances: dict[str, float]) -> None:
        super().__init__(name)
        self.chances = chances

    async def sample(self, request: Request) -> Sampled:
        action = "a" if Dice("toy", request.seed).chance(self.chances["a"]) else "b"
        said = (int(action == "b"),), (math.log(self.chances[action]),)
        return Sampled(ids=said[0], logprobs=said[1], versions=(0,), finish="stop", engine=self.name)


async def test_what_the_pools_sample_has_the_true_value_under_its_own_logprobs() -> None:
    sampler = PooledSampler(
        [Toy("current", CURRENT), Toy("stale", STALE)], PoolOptions(stale_ratio=POOLS[1][0]), Path("base")
    )
    own = current = 0.0
    episodes = 10_000
    for number in range(episodes):
        turns, prompt = [], (9,)
        for turn in range(2):
            asked = Request(episode=str(number), prompt_ids=prompt, max_tokens=1, seed=2 * number + turn)
            one = await sampler.sample(asked)
            turns.append(
                Tokens(
                    prompt_ids=prompt, sampled_ids=one.ids, logprobs=one.logprobs, versions=one.versions, mask=(True,),
                    engine=one.engine, temperature=1.0,
                )
            )  # fmt: skip
            prompt += one.ids
        await sampler.release(str(number))
        (segment,) = samples.segments(turns, pool_of)
        actions = "".join("ab"[each] for each in segment.ids[segment.mask])
        assert segment.logprobs[segment.mask] == pytest.approx(
            [math.log((CURRENT, STALE)[pool][a]) for pool, a in zip(segment.pools[segment.mask], actions, strict=True)]
        )
        aimed = math.prod(TARGET[action] for action in actions) * REWARDS[actions]
        own += aimed / math.exp(segment.logprobs[segment.mask].sum()) / episodes
        current += aimed / math.prod(CURRENT[action] for action in actions) / episodes
    assert own == pytest.approx(WORTH, abs=0.03)  # its standard error is 0.007
    assert current == pytest.approx(0.6173, abs=0.03), "as if all were the current pool's"
