"""Task advantage normalisation: the golden numbers, its two properties, its pitfalls and its floors."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.training import making
from training import credit
from training.credit import tan
from training.credit.tan import NO_FLOORS, Floors
from training.values import Doubles

VALUES = np.array([1.0, -1.0])
TOKENS = np.array([10.0, 30.0])
SPREADS = st.lists(st.tuples(st.floats(-3, 3), st.integers(1, 200)), min_size=2, max_size=20)


def plain(values: Doubles, tokens: Doubles) -> Doubles:
    return tan.normalise(values, tan.moments(values, tokens), groups=2, floors=NO_FLOORS)


def test_golden_numbers() -> None:
    found = tan.moments(VALUES, TOKENS)
    assert (found.tokens, found.mean) == (40, -0.5)
    assert found.sigma == pytest.approx(0.866025, abs=5e-7)
    assert plain(VALUES, TOKENS) == pytest.approx([1.7320508, -0.5773503], abs=5e-8)
    assert (plain(VALUES, TOKENS) * TOKENS).sum() == pytest.approx(0, abs=1e-12)


@given(SPREADS)
def test_over_tokens_the_sum_is_0_and_the_mean_square_is_1(spread: list[tuple[float, int]]) -> None:
    values, tokens = np.array([v for v, _ in spread]), np.array([float(n) for _, n in spread])
    assume(tan.moments(values, tokens).sigma > 1e-3)
    found = plain(values, tokens)
    assert (found * tokens).sum() / tokens.sum() == pytest.approx(0, abs=1e-9)
    assert (found**2 * tokens).sum() / tokens.sum() == pytest.approx(1, rel=1e-9)


@given(SPREADS, st.floats(0.01, 100), st.floats(-5, 5))
def test_a_task_may_rescale_its_rewards(spread: list[tuple[float, int]], scale: float, shift: float) -> None:
    values, tokens = np.array([v for v, _ in spread]), np.array([float(n) for _, n in spread])
    assume(tan.moments(values, tokens).sigma > 1e-3)
    assert plain(values * scale + shift, tokens) == pytest.approx(plain(values, tokens), abs=1e-6)


@given(SPREADS, st.randoms())
def test_any_split_gives_the_same_moments(spread: list[tuple[float, int]], random: Random) -> None:
    cuts = [(value, count, random.randint(0, count)) for value, count in spread]
    parts = [(value, part) for value, count, cut in cuts for part in (cut, count - cut)]
    random.shuffle(parts)
    whole, split = (
        tan.moments(np.array([v for v, _ in each]), np.array([float(n) for _, n in each])) for each in (spread, parts)
    )
    assert split.tokens == whole.tokens
    assert split.mean == pytest.approx(whole.mean, abs=1e-12)
    assert split.sigma == pytest.approx(whole.sigma, abs=1e-9)


def test_pitfall_zero_variance_groups_would_get_an_advantage() -> None:
    values, tokens = np.array([1.0, -1.0, 0.0]), np.array([10.0, 30.0, 60.0])
    assert plain(values, tokens) == pytest.approx([2, -4 / 3, 1 / 3])


def test_zero_variance_groups_are_gone_before_the_normalisation() -> None:
    mixed = making.group([making.attempt(1, 10), *[making.attempt(-1, 10)] * 3], 0)
    alike = making.group([making.attempt(0, 60)] * 2, 1)
    found = credit.assign([mixed, alike], credit.rule_of("dr_grpo"), NO_FLOORS)
    assert found.tasks["db"].moments.tokens == 40
    assert [place.advantages[0] for _, place in found.attempts] == pytest.approx([3**0.5] + [-(3**-0.5)] * 3)


def test_each_environment_has_moments_of_its_own() -> None:
    large = making.group([making.attempt(100, env="db"), making.attempt(0, env="db")], 0)
    small = making.group([making.attempt(0.1, env="kg"), making.attempt(0, env="kg")], 1)
    found = credit.assign([large, small], credit.rule_of("dr_grpo"), NO_FLOORS)
    assert np.concatenate([place.advantages for _, place in found.attempts]) == pytest.approx([1, -1, 1, -1])


def test_pitfall_one_lucky_attempt_in_a_huge_batch_explodes_without_a_clip() -> None:
    values, tokens = np.array([1.0, 0.0]), np.array([1.0, 9999.0])
    found = tan.moments(values, tokens)
    assert plain(values, tokens)[0] > 99
    assert tan.normalise(values, found, groups=9, floors=Floors(sigma=0.0))[0] == 5.0
    assert tan.normalise(values, found, groups=9, floors=Floors(sigma=0.5))[0] == pytest.approx(2, abs=1e-3)


@pytest.mark.parametrize(("tokens", "groups"), [(39, 2), (40, 1)])
def test_with_too_few_tokens_or_groups_advantages_stay(tokens: int, groups: int) -> None:
    found = tan.moments(VALUES, np.array([10.0, tokens - 10.0]))
    assert tan.normalise(VALUES, found, groups, Floors(tokens=40)) is VALUES


def test_no_spread_at_all_leaves_advantages_as_they_are() -> None:
    values = np.array([0.5, 0.5])
    assert tan.normalise(values, tan.moments(values, TOKENS), 2, NO_FLOORS) is values


def test_no_token_has_no_moments() -> None:
    assert tan.moments(np.array([]), np.array([])) == tan.Moments()
    assert tan.Moments().sigma == 0


def test_floors_hold_below_them_alone_and_both_sides_are_clipped() -> None:
    found = tan.moments(VALUES, TOKENS)
    for floors, same in ((Floors(tokens=40, groups=2), False), (Floors(tokens=41), True), (Floors(groups=3), True)):
        assert np.array_equal(tan.normalise(VALUES, found, 2, floors), VALUES) is same
    rare = np.array([0.0, -1.0])
    assert tan.normalise(rare, tan.moments(rare, np.array([9999.0, 1.0])), 9, Floors(sigma=0.0))[1] == -5.0
