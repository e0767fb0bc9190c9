"""Task advantage normalisation (AgentRL 2510.04206, eq. 1), with floors.

A task of the paper is an environment here: it asks that advantages of each have mean 0 and variance 1 over its tokens.
Decided here: the population's variance; moments in double precision, in two passes, over the whole batch before any of
it is split over ranks and micro-batches; and the bounds without which a rare task explodes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from harness.core import Value
from training.values import Doubles


class Floors(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When not to trust a task's moments."""

    tokens: int = 64
    """With fewer tokens the advantages stay as they are."""
    groups: int = 2
    """With fewer groups the advantages stay as they are."""
    sigma: float = 0.05
    """σ is taken to be at least this."""
    clip: float = 5.0
    """Largest size of a normalised advantage."""


FLOORS = Floors()
NO_FLOORS = Floors(tokens=0, groups=0, sigma=0.0, clip=math.inf)
"""The paper's formula as it stands."""


class Moments(NamedTuple):
    """Tokens, mean and sum of squared distances from the mean."""

    tokens: int = 0
    mean: float = 0.0
    squares: float = 0.0

    @property
    def sigma(self) -> float:
        """The population's standard deviation."""
        return math.sqrt(self.squares / self.tokens) if self.tokens else 0.0


def moments(values: Doubles, tokens: Doubles) -> Moments:
    """Return the moments of values that stand for so many tokens each, in two passes."""
    count = int(tokens.sum())
    if not count:
        return Moments()
    mean = float((values * tokens).sum() / count)
    return Moments(count, mean, float((tokens * (values - mean) ** 2).sum()))


def normalise(values: Doubles, found: Moments, groups: int, floors: Floors = FLOORS) -> Doubles:
    """Return Ã = (Â - μ) / σ for the values of one task, or Â where there is too little to go by.

    Zero-variance groups must be gone before: their zeros would get the advantage -μ / σ.
    """
    sigma = max(found.sigma, floors.sigma)
    if found.tokens < floors.tokens or groups < floors.groups or sigma == 0:
        return values
    return np.clip((values - found.mean) / sigma, -floors.clip, floors.clip)
