"""From trajectories to samples: which tokens follow which, exactly as they were sampled.

Decided here: nothing is rendered or tokenized again. A turn whose prompt begins with all that is there (earlier prompts
and earlier sampled tokens, id by id) extends the segment; any other turn begins a new one, a *fork*. So each sampled
token is trained on exactly once, after exactly the ids it was sampled after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from harness.core import Ending, Message, Tokens, Trajectory, digest
from harness.errors import SetupError
from training import aggregation
from training.credit import Credit
from training.values import Attempt, Bools, Sample, Segment

PoolOf = Callable[[str], int]
"""An engine's name (`Tokens.engine`) to the index of its pool."""

ABNORMAL_REWARD = -0.2
"""AgentRL (2510.04206): what an abnormal end by the agent's doing is worth."""


@dataclass(slots=True)
class _Growing:
    """A segment that turns are being added to."""

    temperature: float
    ids: list[int] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    pools: list[int] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    mixed: list[bool] = field(default_factory=list)

    def goes_on(self, tokens: Tokens) -> bool:
        """Say whether a turn's prompt begins with all that is there."""
        known = len(self.ids)
        return tokens.temperature == self.temperature and list(tokens.prompt_ids[:known]) == self.ids

    def add(self, tokens: Tokens, turn: int, pool: int) -> None:
        """Add what a turn's prompt has beyond what is there, and what was sampled after it."""
        new = tokens.prompt_ids[len(self.ids) :]
        none, count = len(new), len(tokens.sampled_ids)
        mask = list(tokens.mask)
        self.ids += [*new, *tokens.sampled_ids]
        self.mask += [False] * none + mask
        self.logprobs += [0.0] * none + [value if on else 0.0 for value, on in zip(tokens.logprobs, mask, strict=True)]
        self.versions += [-1] * none + [value if on else -1 for value, on in zip(tokens.versions, mask, strict=True)]
        self.pools += [-1] * none + [pool if on else -1 for on in mask]
        self.turns += [turn] * (none + count)
        self.mixed += [False] * none + list(tokens.mixed_kv or [False] * count)

    def done(self) -> Segment:
        """Return it, whole."""
        return Segment(
            ids=np.array(self.ids),
            mask=np.array(self.mask),
            logprobs=np.array(self.logprobs),
            versions=np.array(self.versions),
            pools=np.array(self.pools),
            turns=np.array(self.turns),
            mixed_kv=np.array(self.mixed),
            temperature=self.temperature,
        )


def segments(turns: Sequence[Tokens], pool_of: PoolOf = lambda engine: 0) -> tuple[Segment, ...]:
    """Return the turns of one attempt as token sequences. SetupError where a turn's arrays are not aligned."""
    done: list[Segment] = []
    growing: _Growing | None = None
    for turn, tokens in enumerate(turns):
        _require_aligned(tokens, turn)
        if growing is None or not growing.goes_on(tokens):
            if growing is not None:
                done.append(growing.done())
            growing = _Growing(tokens.temperature)
        growing.add(tokens, turn, pool_of(tokens.engine))
    if growing is not None:
        done.append(growing.done())
    return tuple(done)


def attempt(
    trajectory: Trajectory, pool_of: PoolOf = lambda engine: 0, abnormal_reward: float = ABNORMAL_REWARD
) -> Attempt:
    """Return what training needs of a trajectory.

    Args:
        trajectory: one attempt; each turn has its tokens.
        pool_of: an engine's name to its pool.
        abnormal_reward: instead of a score of 0, where the agent brought about another ending than COMPLETED.

    Raises:
        SetupError: a turn without tokens, a reward that is no finite number, tokens that are not aligned.
    """
    who = f"{trajectory.env} task {trajectory.task_id}"
    turns = [turn.reply.tokens for turn in trajectory.turns]
    sampled = [tokens for tokens in turns if tokens is not None]
    if len(sampled) < len(turns):
        raise SetupError(f"an attempt at {who} has no tokens: train on play of hf/ or vllm/ models")
    return Attempt(
        task_key=(trajectory.env, trajectory.task_id),
        env=trajectory.env,
        reward=reward(trajectory, abnormal_reward),
        ending=trajectory.ending,
        by_agent=trajectory.ending.by_agent,
        segments=segments(sampled, pool_of),
        turns=len(turns),
        digest=trajectory.digest,
        anchors=anchors(trajectory),
    )


def reward(trajectory: Trajectory, abnormal_reward: float = ABNORMAL_REWARD) -> float:
    """Return what an attempt is worth; 0 for one that is masked."""
    if not trajectory.ending.by_agent:
        return 0.0
    value = trajectory.score.value or 0.0
    return abnormal_reward if trajectory.ending is not Ending.COMPLETED and value == 0 else value


def anchors(trajectory: Trajectory) -> tuple[str, ...]:
    """Return, turn by turn, a digest of what the agent had just been told."""
    told: list[tuple[Message, ...]] = [trajectory.opening, *(turn.messages for turn in trajectory.turns)]
    texts = [[(message.role, message.content) for message in messages] for messages in told]
    return tuple(digest(text) for text in texts[: len(trajectory.turns)])


def make(
    credit: Credit,
    weigh: aggregation.Aggregation = aggregation.task_mean,
    keep: Callable[[Segment], Bools] | None = None,
) -> list[Sample]:
    """Return what the learner trains on, in the order of group, attempt, segment.

    Args:
        credit: advantages, turn by turn.
        weigh: the aggregation; it sees every masked token, whether `keep` leaves it in or not (M3: the denominator
            stays, otherwise dropping more raises the step size), and attempts that others weigh for.
        keep: the tokens of a segment that are not too old; None keeps all.
    """
    sized = [aggregation.Sequence(attempt.env, attempt.tokens) for attempt, _ in credit.attempts]
    made: list[Sample] = []
    for (one, place), coefficient in zip(credit.attempts, weigh(sized), strict=True):
        for segment in one.segments:
            if not segment.tokens or not place.weight:
                continue
            values = np.where(segment.mask, place.advantages[segment.turns], 0.0).astype(np.float32)
            kept = segment.mask if keep is None else segment.mask & keep(segment)
            made.append(
                Sample(
                    segment=segment,
                    env=one.env,
                    group_id=place.group_id,
                    attempt=place.attempt,
                    advantages=values,
                    kept=kept,
                    coefficient=coefficient * place.weight,
                    weight=place.weight,
                )
            )
    return made


def _require_aligned(tokens: Tokens, turn: int) -> None:
    count = len(tokens.sampled_ids)
    lengths = {len(tokens.logprobs), len(tokens.versions), len(tokens.mask), len(tokens.mixed_kv) or count}
    if lengths != {count}:
        raise SetupError(
            f"turn {turn} of an attempt has {count} tokens and other numbers of log-probabilities or marks"
        )
