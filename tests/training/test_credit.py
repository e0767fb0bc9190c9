"""Group advantages: the golden numbers, and what a batch's credit keeps and leaves out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import SetupError
from tests.training import making
from training import credit
from training.credit import dr_grpo, gigpo, grpo, rloo
from training.values import Attempt

ONE_OF_FOUR = np.array([1.0, 0.0, 0.0, 0.0])
GROUPS = st.lists(st.floats(-1, 1, allow_nan=False), min_size=2, max_size=16).map(np.array)


def test_grpo_divides_by_the_samples_deviation() -> None:
    assert grpo.advantages(ONE_OF_FOUR) == pytest.approx([1.499997] + [-0.499999] * 3, abs=5e-7)
    population = (ONE_OF_FOUR - 0.25) / (ONE_OF_FOUR.std() + grpo.EPSILON)
    assert population == pytest.approx([1.732047] + [-0.577349] * 3, abs=5e-7)


def test_grpo_of_one_attempt_has_mean_0_and_deviation_1() -> None:
    assert grpo.advantages(np.array([0.7])) == pytest.approx([0.7], abs=1e-6)


def test_dr_grpo_does_not_divide() -> None:
    assert dr_grpo.advantages(ONE_OF_FOUR).tolist() == [0.75, -0.25, -0.25, -0.25]


def test_rloo_compares_with_the_others() -> None:
    assert rloo.advantages(ONE_OF_FOUR) == pytest.approx([1, -1 / 3, -1 / 3, -1 / 3])
    assert rloo.advantages(np.array([0.3])).tolist() == [0.0]


@given(GROUPS)
def test_rloo_is_the_reward_less_the_mean_of_the_others(rewards: np.ndarray) -> None:
    others = [(rewards.sum() - reward) / (len(rewards) - 1) for reward in rewards]
    assert rloo.advantages(rewards) == pytest.approx(rewards - others, abs=1e-9)


@given(GROUPS)
def test_every_rule_centres_a_group(rewards: np.ndarray) -> None:
    for rule in (grpo, dr_grpo, rloo):
        assert rule.advantages(rewards).sum() == pytest.approx(0, abs=1e-5)


def test_gigpo_adds_what_a_step_was_worth_among_steps_from_the_same_state() -> None:
    totals = gigpo.advantages(np.array([1.0, 0.0]), [["a", "b"], ["a", "c"]], discount=0.5)
    # Episode: +-0.5. From state a returns are 0.5 and 0, so +-0.25; b and c are alone: 0.
    assert totals[0].tolist() == [0.75, 0.5]
    assert totals[1].tolist() == [-0.75, -0.5]


def test_gigpo_counts_a_state_seen_twice_in_one_attempt() -> None:
    totals = gigpo.advantages(np.array([1.0, 0.0]), [["a", "a"], ["b"]], discount=0.5, step_weight=2.0)
    assert totals[0].tolist() == [0.5 + 2 * (0.5 - 0.75), 0.5 + 2 * (1.0 - 0.75)]
    assert totals[1].tolist() == [-0.5]


def test_gigpo_may_divide_by_the_deviation() -> None:
    totals = gigpo.advantages(ONE_OF_FOUR, [["a"]] * 4, divide=True)
    assert totals[0] == pytest.approx([2 * 1.499997], abs=1e-6)


def test_gigpo_without_shared_states_is_dr_grpo() -> None:
    totals = gigpo.advantages(ONE_OF_FOUR, [[str(number)] for number in range(4)])
    assert np.concatenate(totals).tolist() == dr_grpo.advantages(ONE_OF_FOUR).tolist()


def assigned(*groups: list[Attempt], rule: str = "grpo") -> credit.Credit:
    made = [making.group(attempts, number) for number, attempts in enumerate(groups)]
    return credit.assign(made, credit.rule_of(rule), floors=None)


def test_what_is_below_0_may_weigh_less_and_what_is_above_stays() -> None:
    groups = [making.group([making.attempt(reward) for reward in ONE_OF_FOUR])]
    as_it_is, less = (credit.assign(groups, credit.rule_of("dr_grpo"), None, negative) for negative in (1.0, 0.1))
    assert [float(place.advantages[0]) for _, place in as_it_is.attempts] == [0.75, -0.25, -0.25, -0.25]
    assert [float(place.advantages[0]) for _, place in less.attempts] == pytest.approx([0.75, -0.025, -0.025, -0.025])


def test_what_succeeded_may_be_imitated_in_groups_that_always_succeed_too() -> None:
    rewards = [ONE_OF_FOUR, [1, 1], [0, 0], [0.5, 0.5]]
    groups = [making.group([making.attempt(reward) for reward in each], number) for number, each in enumerate(rewards)]
    found = credit.assign(groups[::-1], credit.rule_of("dr_grpo"), None, negative=0.1, imitation=0.3)
    places = [place[:2] for _, place in found.attempts]
    assert places == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]
    advantages = [float(place.advantages[0]) for _, place in found.attempts]
    assert advantages == pytest.approx([1.05, -0.025, -0.025, -0.025, 0.3, 0.3])
    assert found.filtered == {"all_alike": 3}


def test_what_is_imitated_is_no_part_of_the_normalisation_which_comes_before_what_weighs_less() -> None:
    groups = [making.group([making.attempt(reward, 20) for reward in ONE_OF_FOUR], number) for number in range(2)]
    always = making.group([making.attempt(1, 20)] * 2, 2)
    plain = credit.assign(groups, credit.rule_of("dr_grpo"))
    more = credit.assign([*groups, always], credit.rule_of("dr_grpo"), negative=0.1, imitation=0.3)
    assert plain.tasks == more.tasks
    root = 3**0.5  # of one success in four the advantages are 3/4 and -1/4, with a deviation of √3/4
    advantages = [float(place.advantages[0]) for _, place in more.attempts]
    assert advantages == pytest.approx([root + 0.3, *[-0.1 / root] * 3] * 2 + [0.3] * 2)


@given(st.lists(st.lists(st.integers(0, 1), min_size=2, max_size=8), min_size=1, max_size=4), st.integers(1, 3))
def test_what_is_left_out_below_0_is_weighed_for(rewards: list[list[int]], most: int) -> None:
    groups = [making.group([making.attempt(one) for one in each], number) for number, each in enumerate(rewards)]
    whole = credit.assign(groups, credit.rule_of("dr_grpo"), None, imitation=0.3)
    found = credit.thinned(whole, most, 7)
    assert [place[:2] for _, place in found.attempts] == [place[:2] for _, place in whole.attempts]
    for number in range(len(rewards)):
        of_group = [place for _, place in found.attempts if place.group_id == number]
        below = [place.weight for place in of_group if place.advantages[0] < 0]
        assert sum(below) == pytest.approx(len(below))
        assert sum(map(bool, below)) == min(most, len(below))
        assert all(place.weight == 1 for place in of_group if place.advantages[0] >= 0)


def test_thinning_is_even_over_groups_and_repeats() -> None:
    groups = [making.group([making.attempt(reward) for reward in ONE_OF_FOUR], number) for number in range(600)]
    found = credit.assign(groups, credit.rule_of("dr_grpo"), None)
    kept = [place.attempt for _, place in credit.thinned(found, 1, 3).attempts if place.weight > 1]
    assert len(kept) == 600 and all(150 < kept.count(attempt) < 250 for attempt in (1, 2, 3))
    assert kept == [place.attempt for _, place in credit.thinned(found, 1, 3).attempts if place.weight > 1]


def test_groups_whose_rewards_are_alike_are_filtered() -> None:
    found = assigned([making.attempt(1), making.attempt(1)], [making.attempt(1), making.attempt(0)])
    assert {place.group_id for _, place in found.attempts} == {1}
    assert found.filtered == {"all_alike": 1}


@pytest.mark.parametrize("rule", ["grpo", "dr_grpo", "rloo"])
@pytest.mark.parametrize("reward", [0.1, 0.3, 1e9 / 3])
def test_rounding_alone_is_no_advantage(rule: str, reward: float) -> None:
    assert assigned([making.attempt(reward)] * 7, rule=rule).filtered == {"all_alike": 1}


def test_gigpo_compares_the_ways_of_a_group_that_always_succeeds() -> None:
    short = replace(making.attempt(1), anchors=("asked",))
    long = replace(making.attempt(1), anchors=("asked", "lost"), turns=2)
    found = assigned([short, long], [short, short], [long, long], rule="gigpo")
    assert [place.group_id for _, place in found.attempts] == [0, 0]
    assert [place.advantages.round(9).tolist() for _, place in found.attempts] == [[0.025], [-0.025, 0.0]]
    assert found.filtered == {"all_alike": 2}


def test_an_infrastructure_failure_is_neither_compared_with_nor_trained_on() -> None:
    failed = making.attempt(0, by_agent=False)
    found = assigned([making.attempt(1), failed, making.attempt(0.5)], rule="dr_grpo")
    assert [place.attempt for _, place in found.attempts] == [0, 2]
    assert [place.advantages[0] for _, place in found.attempts] == [0.25, -0.25]


def test_a_group_with_one_scored_attempt_is_filtered() -> None:
    found = assigned([making.attempt(1), making.attempt(0, by_agent=False)])
    assert found.attempts == ()
    assert found.filtered == {"too_few_scored": 1}


def test_groups_come_in_the_order_of_their_ids() -> None:
    groups = [making.group([making.attempt(1), making.attempt(0)], number) for number in (3, 1, 2)]
    found = credit.assign(groups, credit.rule_of("rloo"))
    assert [place.group_id for _, place in found.attempts] == [1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_a_reward_that_is_no_number_is_refused(reward: float) -> None:
    with pytest.raises(SetupError, match=r"reward of an attempt at db task t is (nan|inf).*leave the environment out"):
        making.attempt(reward)


def test_what_was_found_and_filtered_is_reported() -> None:
    found = assigned([making.attempt(1, 10), making.attempt(0, 30)], [making.attempt(1)] * 2, rule="dr_grpo")
    assert credit.metrics(found) == {
        "groups/all_alike": 1,
        "task/db/tokens": 40,
        "task/db/mu": -0.25,
        "task/db/sigma": pytest.approx(0.75**0.5 / 2),
        "task/db/groups": 1,
    }


def test_an_unknown_rule_is_refused_with_the_nearest() -> None:
    with pytest.raises(SetupError, match="did you mean 'grpo'"):
        credit.rule_of("grpoo")


def test_gigpo_refuses_attempts_without_states() -> None:
    with pytest.raises(SetupError, match="needs a state for each turn"):
        assigned([making.attempt(1), making.attempt(0)], rule="gigpo")
