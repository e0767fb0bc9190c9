"""From trajectories to samples: every sampled token once, after exactly what it was sampled after."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core import Ending, Message, Reply, Score, Tokens, Trajectory, Turn
from harness.errors import SetupError
from tests.training import making
from training import aggregation, credit, samples
from training.values import Segment


def tokens(
    prompt: list[int], sampled: list[int], *, engine: str = "hf:0", version: int = 0, **options: object
) -> Tokens:
    fields = {
        "prompt_ids": tuple(prompt),
        "sampled_ids": tuple(sampled),
        "logprobs": tuple(-float(each) for each in sampled),
        "versions": (version,) * len(sampled),
        "mask": (True,) * len(sampled),
        "engine": engine,
        "temperature": 1.0,
    }
    return Tokens(**(fields | options))  # type: ignore[arg-type]


def trajectory(
    turns: list[Tokens | None], *, ending: Ending = Ending.COMPLETED, score: float | None = 1.0
) -> Trajectory:
    return Trajectory(
        entry="train", task_id="t1", epoch=0, attempt=0, env="db", split="train", group="select", digest="d",
        agent="direct", model="hf/x", fingerprint="f", seed=0,
        opening=(Message(role="user", content="Do it."),), tools=(),
        turns=tuple(
            Turn(
                reply=Reply(message=Message(role="assistant"), tokens=each),
                messages=(Message(role="user", content=f"saw {number % 2}"),),
            )
            for number, each in enumerate(turns)
        ),
        ending=ending, score=Score(value=score),
    )  # fmt: skip


def test_a_prompt_that_extends_what_is_there_extends_the_segment() -> None:
    (found,) = samples.segments([tokens([1, 2], [3, 4]), tokens([1, 2, 3, 4, 5], [6], version=7)])
    assert found.ids.tolist() == [1, 2, 3, 4, 5, 6]
    assert found.mask.tolist() == [False, False, True, True, False, True]
    assert found.logprobs.tolist() == [0, 0, -3, -4, 0, -6]
    assert found.versions.tolist() == [-1, -1, 0, 0, -1, 7]
    assert found.turns.tolist() == [0, 0, 0, 0, 1, 1]


def test_a_prompt_that_rewrites_history_forks() -> None:
    first, second = samples.segments([tokens([1, 2], [3]), tokens([1, 9, 3], [4]), tokens([1, 9, 3, 4], [5])])
    assert (first.ids.tolist(), second.ids.tolist()) == ([1, 2, 3], [1, 9, 3, 4, 5])
    assert second.turns.tolist() == [1, 1, 1, 1, 2]


def test_a_shorter_prompt_forks() -> None:
    assert len(samples.segments([tokens([1, 2, 3], [4]), tokens([1, 2], [5])])) == 2


def test_another_temperature_forks() -> None:
    assert len(samples.segments([tokens([1], [2]), tokens([1, 2], [3], temperature=0.5)])) == 2


def test_tokens_carry_their_engines_pool() -> None:
    pools = {"hf:current": 0, "hf:stale": 1}
    (found,) = samples.segments(
        [tokens([1], [2], engine="hf:current"), tokens([1, 2], [3], engine="hf:stale")], pools.__getitem__
    )
    assert found.pools.tolist() == [-1, 0, 1]


def test_forced_tokens_are_read_and_not_trained_on() -> None:
    (found,) = samples.segments([tokens([1], [2, 3], mask=(True, False), mixed_kv=(True, True))])
    assert (found.mask.tolist(), found.logprobs.tolist()) == ([False, True, False], [0, -2, 0])
    assert (found.versions.tolist(), found.mixed_kv.tolist()) == ([-1, 0, -1], [False, True, True])


@st.composite
def dialogues(draw: st.DrawFn) -> list[Tokens]:
    """Turns that mostly go on from one another, and sometimes rewrite what was there."""
    ids = st.integers(0, 5)
    turns: list[Tokens] = []
    history: list[int] = []
    for number in range(draw(st.integers(1, 6))):
        if turns and draw(st.integers(0, 3)) == 0:
            history = draw(st.lists(ids, min_size=1, max_size=6))
        prompt = history + draw(st.lists(ids, min_size=0 if history else 1, max_size=4))
        sampled = draw(st.lists(ids, max_size=4))
        mask = tuple(draw(st.lists(st.booleans(), min_size=len(sampled), max_size=len(sampled))))
        versions = tuple(draw(st.lists(st.integers(0, 9), min_size=len(sampled), max_size=len(sampled))))
        turns.append(tokens(prompt, sampled, mask=mask, versions=versions, engine=str(number)))
        history = prompt + sampled
    return turns


@given(dialogues())
def test_every_sampled_token_is_there_once_after_what_it_was_sampled_after(turns: list[Tokens]) -> None:
    found: dict[int, list[tuple[list[int], int, float, int]]] = {number: [] for number in range(len(turns))}
    for segment in samples.segments(turns, int):
        for place in np.flatnonzero(segment.mask):
            assert segment.pools[place] == segment.turns[place]
            found[int(segment.turns[place])].append(
                (
                    segment.ids[:place].tolist(),
                    int(segment.ids[place]),
                    float(segment.logprobs[place]),
                    int(segment.versions[place]),
                )
            )
    for number, turn in enumerate(turns):
        before = [*turn.prompt_ids]
        assert found[number] == [
            ([*before, *turn.sampled_ids[:place]], turn.sampled_ids[place], turn.logprobs[place], turn.versions[place])
            for place, on in enumerate(turn.mask)
            if on
        ]


@pytest.mark.parametrize(("field", "value"), [("logprobs", (0.0,)), ("versions", ()), ("mixed_kv", (True,))])
def test_arrays_that_are_not_aligned_are_refused(field: str, value: tuple[object, ...]) -> None:
    with pytest.raises(SetupError, match="turn 0 of an attempt has 2 tokens"):
        samples.segments([tokens([1], [2, 3], **{field: value})])


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"logprobs": (float("nan"),)}, "no finite number"),
        ({"temperature": 0.0}, "set the sampling temperature above 0"),
        ({"prompt_ids": ()}, "nothing comes before it"),
    ],
)
def test_tokens_that_cannot_be_trained_on_are_refused(changed: dict[str, object], why: str) -> None:
    with pytest.raises(SetupError, match=why):
        samples.segments([tokens([1], [2], **changed)])


def test_an_attempt_has_what_training_needs() -> None:
    found = samples.attempt(
        trajectory([tokens([1], [2]), tokens([1, 2, 3], [4]), tokens([1, 2, 3, 4], [5])], score=0.4)
    )
    assert (found.task_key, found.reward, found.turns, found.tokens) == (("db", "t1"), 0.4, 3, 3)
    assert found.anchors[0] != found.anchors[1] != found.anchors[2]


def test_equal_observations_are_equal_anchors() -> None:
    first, second, third, fourth = samples.anchors(trajectory([tokens([1], [2])] * 4))
    assert second == fourth
    assert len({first, second, third}) == 3


@pytest.mark.parametrize(
    ("ending", "score", "reward"),
    [
        (Ending.COMPLETED, 0.0, 0.0),
        (Ending.COMPLETED, 1.0, 1.0),
        (Ending.TURN_LIMIT, 0.0, -0.2),
        (Ending.INVALID_ACTION, None, -0.2),
        (Ending.TURN_LIMIT, 0.5, 0.5),
        (Ending.ENV_ERROR, None, 0.0),
    ],
)
def test_an_abnormal_end_by_the_agents_doing_costs(ending: Ending, score: float | None, reward: float) -> None:
    found = samples.attempt(trajectory([tokens([1], [2])], ending=ending, score=score))
    assert found.reward == reward
    assert found.by_agent is (ending is not Ending.ENV_ERROR)


def test_an_attempt_without_tokens_is_refused() -> None:
    with pytest.raises(SetupError, match="db task t1 has no tokens: train on play of hf/ or vllm/"):
        samples.attempt(trajectory([tokens([1], [2]), None]))


def test_a_score_that_is_no_number_is_refused() -> None:
    with pytest.raises(SetupError, match="reward of an attempt at db task t1 is nan"):
        samples.attempt(trajectory([tokens([1], [2])], score=float("nan")))


def test_dropped_tokens_leave_the_factors_of_the_others() -> None:
    group = making.group([making.attempt(1, 10, version=0), making.attempt(0, 30, version=5)])
    found = credit.assign([group], credit.rule_of("dr_grpo"), floors=None)

    def fresh(segment: Segment) -> np.ndarray:
        return segment.versions >= 5

    whole = samples.make(found, aggregation.token_mean)
    kept = samples.make(found, aggregation.token_mean, fresh)
    assert [sample.coefficient for sample in whole] == [sample.coefficient for sample in kept] == [1 / 40] * 2
    assert [int(sample.kept.sum()) for sample in kept] == [0, 30]
    assert [set(sample.advantages[sample.segment.mask].tolist()) for sample in kept] == [{0.5}, {-0.5}]


def test_a_turns_tokens_have_that_turns_advantage() -> None:
    short = replace(making.attempt(1), anchors=("asked",))
    long = replace(making.attempt(1), segments=(making.segment([2, 3]),), turns=2, anchors=("asked", "lost"))
    found = credit.assign([making.group([short, long])], credit.rule_of("gigpo"), floors=None)
    (_, first), (_, second) = found.attempts
    assert first.advantages[0] == -second.advantages[0] != 0 == second.advantages[1], "each group by its own"
    made = samples.make(found, aggregation.token_mean)[1]
    assert made.advantages[made.segment.mask] == pytest.approx([second.advantages[0]] * 2 + [0.0] * 3)


def test_an_attempt_that_others_weigh_for_is_counted_and_not_trained_on() -> None:
    group = making.group([making.attempt(reward) for reward in (1, 0, 0, 0)])
    found = credit.assign([group], credit.rule_of("dr_grpo"), floors=None)
    whole, thin = (samples.make(each, aggregation.seq_mean) for each in (found, credit.thinned(found, 1, 0)))
    one, other = thin
    assert (one.attempt, other.attempt in (1, 2, 3)) == (0, True)
    assert (one.coefficient, other.coefficient) == (whole[0].coefficient, 3 * whole[other.attempt].coefficient)


def test_an_attempt_in_two_segments_is_one_sequence() -> None:
    forked = samples.attempt(trajectory([tokens([1], [2, 3, 4]), tokens([9], [5])]))
    plain = samples.attempt(trajectory([tokens([1], [2, 3])], score=0.0))
    found = credit.assign([making.group([forked, plain])], credit.rule_of("rloo"), floors=None)
    made = samples.make(found, aggregation.seq_mean)
    assert [sample.coefficient for sample in made] == [1 / 8, 1 / 8, 1 / 4]
