"""How the losses of tokens make one number: the factor of each token's loss, from the whole batch at once.

Decided here: an aggregation is a factor per attempt, found before anything is computed. The sum of factor times loss
over all tokens is the loss, however it is split into mini-batches, micro-batches and ranks; and a token that is dropped
later takes its loss away and leaves the others' factors as they are (M3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Many
from functools import partial
from typing import NamedTuple

from harness.errors import SetupError, nearest


class Sequence(NamedTuple):
    """One attempt: where it was played, and its masked tokens."""

    env: str
    tokens: int


LONGEST = 4096
"""L_max of `dr_grpo`, where a context says no other."""
Aggregation = Callable[[Many[Sequence]], list[float]]
"""The attempts of a batch to the factor of each one's tokens."""


def token_mean(sequences: Many[Sequence]) -> list[float]:
    """Weigh every token alike: 1 / N (DAPO 2503.14476, eq. 8)."""
    total = sum(one.tokens for one in sequences)
    return [1.0 / total if total else 0.0] * len(sequences)


def seq_mean(sequences: Many[Sequence]) -> list[float]:
    """Weigh every attempt alike, and its tokens alike: 1 / (S · |M_g|) (GRPO, DeepSeekMath 2402.03300, eq. 3)."""
    present = sum(one.tokens > 0 for one in sequences)
    return [1.0 / (present * one.tokens) if one.tokens else 0.0 for one in sequences]


def dr_grpo(sequences: Many[Sequence], longest: int) -> list[float]:
    """Divide by a constant, so that length has no part in it: 1 / (S · L_max) (Dr. GRPO 2503.20783, sec. 3.2)."""
    return [1.0 / (len(sequences) * longest)] * len(sequences)


def task_mean(sequences: Many[Sequence], shares: Mapping[str, float] | None = None, floor: int = 256) -> list[float]:
    """Weigh every environment by its share and its tokens alike: w_i / N_i, Σ w_i = 1 (M3).

    Args:
        sequences: the attempts of the batch.
        shares: environment to its share; None is equal shares. They are renormalised over those present.
        floor: N_i is taken to be at least this many, so that the few tokens of a rare task do not get all its share.
    """
    counts: dict[str, int] = {}
    for one in sequences:
        counts[one.env] = counts.get(one.env, 0) + one.tokens
    wanted = {env: (shares or {}).get(env, 0.0) if shares else 1.0 for env, count in counts.items() if count}
    total = sum(wanted.values())
    factors = {env: share / total / max(counts[env], floor) if total else 0.0 for env, share in wanted.items()}
    return [factors.get(one.env, 0.0) for one in sequences]


def named(
    name: str, *, shares: Mapping[str, float] | None = None, floor: int = 256, longest: int = LONGEST
) -> Aggregation:
    """Return the aggregation of that name; `shares` and `floor` are task_mean's, `longest` dr_grpo's."""
    known: dict[str, Aggregation] = {
        "token_mean": token_mean,
        "seq_mean": seq_mean,
        "dr_grpo": partial(dr_grpo, longest=longest),
        "task_mean": partial(task_mean, shares=shares, floor=floor),
    }
    if name not in known:
        raise SetupError(f"there is no aggregation '{name}'{nearest(name, known)}")
    return known[name]
