"""Group-in-group advantages: the episode's, and the step's among steps from the same state (GiGPO 2505.10978).

Only useful where observations repeat exactly (ALFWorld, WebShop; KG and DB in their first turns): elsewhere each step
is alone with its state and the step's part is 0. The episode's mean is over attempts, as in the paper (the code
released with it takes it over steps, so that long attempts weigh more).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from training.values import Doubles

EPSILON = 1e-6


def advantages(
    rewards: Doubles,
    anchors: Sequence[Sequence[str]],
    *,
    discount: float = 0.95,
    step_weight: float = 1.0,
    divide: bool = False,
) -> list[Doubles]:
    """Return A = A_episode + ω · A_step (eq. 10) of one group, attempt by attempt: [turns].

    Args:
        rewards: of the attempts, each given at its last turn: [G].
        anchors: attempt by attempt, the state before each turn.
        discount: γ of the return R_t = γ^(T-1-t) · R (eq. 8).
        step_weight: ω.
        divide: by the sample standard deviation (`mean_std_norm`), or not (`mean_norm`, the released default).
    """
    returns = [
        reward * discount ** np.arange(len(states) - 1, -1, -1, dtype=np.float64)
        for reward, states in zip(rewards, anchors, strict=True)
    ]
    alike: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for attempt, states in enumerate(anchors):
        for turn, state in enumerate(states):
            alike[state].append((attempt, turn))
    episodes = _normalised(rewards, divide)
    totals = [np.full(len(states), episodes[attempt]) for attempt, states in enumerate(anchors)]
    for places in alike.values():
        steps = _normalised(np.array([returns[attempt][turn] for attempt, turn in places]), divide)
        for (attempt, turn), step in zip(places, steps, strict=True):
            totals[attempt][turn] += step_weight * step
    return totals


def _normalised(values: Doubles, divide: bool) -> Doubles:
    """Centre a group of values; those that are alike, or one alone, become 0 and not what rounding leaves of them."""
    if np.ptp(values) == 0:
        return np.zeros_like(values)
    centred = values - values.mean()
    return np.asarray(centred / (values.std(ddof=1) + EPSILON) if divide else centred)
