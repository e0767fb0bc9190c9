"""How old data may be: which new work is admitted, and which tokens the learner drops.

Decided here (M8): all work is counted in groups, and admitted while

    capacity = min(max_running - running, (η + version + 1)·B - (accepted + running)) > 0

That bounds what is *begun*, not what long attempts become; so the learner drops every single token beyond its lag
budget, η for the current pool and η + stale_interval·depth for a stale one. A dropped group gives its unit back, a
dropped token none. Everything is a value: the checkpoint holds `Admission` as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec
import numpy as np

from harness.core import Count, Natural, Value
from training.values import Attempt, Bools, Metrics, Sample, Segment

Tally = Counter[tuple[int, int]]
"""(pool, weight version) to a number of tokens."""
VERSION_BITS = 32
UNBOUNDED = np.iinfo(np.int64).max


class Budget(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many versions a token may lag behind the weights that are trained on it."""

    eta: Natural = 2
    stale_interval: Count | None = 25
    """Versions between refreshes of the stale pools; None never refreshes them, and does not bound their lag."""

    def most(self, pool: int) -> int:
        """Return the largest lag of a pool's tokens: 0 is the current pool, k the stale one of depth k."""
        if pool and self.stale_interval is None:
            return int(UNBOUNDED)
        return self.eta + (self.stale_interval or 0) * pool


class Admission(Value, frozen=True, kw_only=True):
    """Groups begun, finished and trained on; each method returns what is then."""

    batch: Count
    """B: groups that the learner takes for one version."""
    eta: Natural
    max_running: Count
    version: Natural = 0
    accepted: Natural = 0
    """Complete groups so far, those trained on included."""
    running: Natural = 0

    @property
    def capacity(self) -> int:
        """How many groups may be begun now; below 0 after a resume with a smaller η."""
        room = (self.eta + self.version + 1) * self.batch - (self.accepted + self.running)
        return min(self.max_running - self.running, room)

    def begun(self) -> Admission:
        """Begin a group. ValueError where there is no capacity."""
        if self.capacity <= 0:
            raise ValueError("a group was begun without capacity")
        return msgspec.structs.replace(self, running=self.running + 1)

    def finished(self) -> Admission:
        """Count a running group as complete."""
        return msgspec.structs.replace(self, running=self.running - 1, accepted=self.accepted + 1)

    def dropped(self) -> Admission:
        """Give back the unit of a running group that came to nothing: otherwise the learner waits for it for ever."""
        return msgspec.structs.replace(self, running=self.running - 1)

    def published(self, version: int) -> Admission:
        """Move on to new weights."""
        return msgspec.structs.replace(self, version=version)


def restarted(batch: int, eta: int, max_running: int, version: int, restored: int) -> Admission:
    """Return the admission after a restart: version·B groups are trained on, and `restored` wait in the buffer.

    What was running is lost and is begun again, so it is not counted.
    """
    accepted = version * batch + restored
    return Admission(batch=batch, eta=eta, max_running=max_running, version=version, accepted=accepted)


def keep(segment: Segment, version: int, budget: Budget) -> Bools:
    """Return which tokens weights of a version may be trained on: [T], False where a token is not masked."""
    most = np.array([budget.most(pool) for pool in range(int(segment.pools.max(initial=0)) + 1)])
    within = (version - segment.versions) <= most[np.maximum(segment.pools, 0)]
    return np.asarray(segment.mask & within)


def trained(samples: Iterable[Sample], version: int) -> Metrics:
    """Return how far behind weights of a version the tokens are that they are trained on.

    `tokens/too_old` counts those that are left out for it.
    """
    found = [(sample.segment, sample.kept) for sample in samples]
    left_out = sum(segment.tokens - int(kept.sum()) for segment, kept in found)
    return {**metrics("trained", _counted(found), version), "tokens/too_old": left_out}


def tally(attempts: Iterable[Attempt]) -> Tally:
    """Count the sampled tokens of attempts by pool and version."""
    return _counted((part, part.mask) for one in attempts for part in one.segments)


def _counted(parts: Iterable[tuple[Segment, Bools]]) -> Tally:
    """Count tokens by pool and version, all segments at once: there may be thousands."""
    chosen = [(part.pools[mask].astype(np.int64) << VERSION_BITS) | part.versions[mask] for part, mask in parts]
    keys, counts = np.unique(np.concatenate([np.zeros(0, np.int64), *chosen]), return_counts=True)
    pairs = zip(keys >> VERSION_BITS, keys & ((1 << VERSION_BITS) - 1), counts, strict=True)
    return Counter({(int(pool), int(version)): int(count) for pool, version, count in pairs})


def histogram(counts: Tally, version: int) -> dict[int, dict[int, int]]:
    """Return pool -> lag behind a version -> tokens, in rising order."""
    found: dict[int, dict[int, int]] = {}
    for (pool, sampled), tokens in sorted(counts.items(), key=lambda item: (item[0][0], -item[0][1])):
        lags = found.setdefault(pool, {})
        lags[version - sampled] = lags.get(version - sampled, 0) + tokens
    return found


def metrics(where: str, counts: Tally, version: int) -> Metrics:
    """Return a histogram as numbers: `lag/queue/1/7` tokens of pool 1 are 7 versions old; `lag/queue/1/max`.

    Args:
        where: `flight`, `queue` or `trained`.
        counts: the tokens there.
        version: of the weights that they are compared with.
    """
    found: Metrics = {}
    for pool, lags in histogram(counts, version).items():
        found |= {f"lag/{where}/{pool}/{lag}": tokens for lag, tokens in lags.items()}
        found[f"lag/{where}/{pool}/max"] = max(lags)
        found[f"lag/{where}/{pool}/mean"] = sum(lag * n for lag, n in lags.items()) / sum(lags.values())
    return found
