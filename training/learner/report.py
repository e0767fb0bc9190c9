"""What an update says of itself, from what was recorded of each token.

Names: `ppo_kl`, `ess`, `clip/high`, `mismatch/k3`, `ratio/lag/2/p50`, `ratio/pool/1/p99`, `task/db/loss_share`. Ratios
are prox/μ where prox was computed, else π_θ/μ: how far the trainer is from what sampled. Decided here: the *mismatch*
of engine and trainer is read off tokens of lag 0 alone, staleness off the rest (2605.12070); tokens over a mixed cache
match no version and are reported apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from training.losses import Terms
from training.packing import Rows
from training.values import Metrics

QUANTILES = (1, 10, 50, 90, 99)
LAGS = ((0, 0), (1, 1), (2, 2), (3, 4), (5, 8), (9, 16), (17, 32), (33, 1 << 62))


class Record(NamedTuple):
    """The trained tokens of one micro-batch."""

    table: dict[str, NDArray[Any]]
    """Arrays [n]."""
    envs: tuple[str, ...]
    """Names of `table["env"]`."""


def record(rows: Rows, terms: Terms, losses: NDArray[Any], apart: NDArray[Any], *, first: bool, fresh: bool) -> Record:
    """Keep what the report needs.

    Args:
        rows: the micro-batch.
        terms: what its losses are made of.
        losses: each token's part of the loss.
        apart: log of the trainer's probability over the behaviour's.
        first: of the update's first mini-batch.
        fresh: `apart` is of the weights that the update began with.
    """
    count = len(losses)
    arrays = {
        "loss": losses,
        "apart": apart,
        "log_ratio": _array(terms.log_ratio),
        "weight": _array(terms.weight),
        "kept": _array(terms.kept),
        "low": _array(terms.clipped.low),
        "high": _array(terms.clipped.high),
        "dual": _array(terms.clipped.dual),
        "behaviour": rows.tokens.logprobs,
        "version": rows.tokens.versions,
        "pool": rows.tokens.pools,
        "env": rows.tokens.envs,
        "mixed": rows.tokens.mixed_kv,
        "first": np.full(count, first),
        "fresh": np.full(count, fresh),
    }
    return Record(arrays, rows.env_names)


def metrics(records: Sequence[Record], version: int, epochs: int) -> Metrics:
    """Return the numbers of one update, whose weights were of a version when it began.

    Tokens are counted once, in however many epochs they are trained on.
    """
    names = sorted({name for one in records for name in one.envs})
    table = {key: np.concatenate([one.table[key] for one in records]) for key in records[0].table if key != "env"}
    envs = np.concatenate([np.array([names.index(name) for name in one.envs])[one.table["env"]] for one in records])
    lag = version - table["version"]
    ratio = np.exp(np.clip(table["apart"].astype(np.float64), -20, 20))
    clean = table["fresh"] & ~table["mixed"]
    found: Metrics = {
        "tokens/trained": len(lag) // epochs,
        "ppo_kl": float(-table["log_ratio"].mean()),
        "ppo_kl/first": _mean(-table["log_ratio"][table["first"]]),
        "clip/low": float(table["low"].mean()),
        "clip/high": float(table["high"].mean()),
        "clip/dual": float(table["dual"].mean()),
        "dropped": float(1 - table["kept"].mean()),
        "weight/mean": float(table["weight"].mean()),
        "weight/max": float(table["weight"].max()),
        "ess": ess(ratio),
        "surprise": float(-table["behaviour"].mean()),
        "mismatch/k3": _mean(k3(table["apart"][clean & (lag == 0)])),
        "mismatch/k3_mixed_kv": _mean(k3(table["apart"][table["fresh"] & table["mixed"]])),
        "mismatch/max": float(np.abs(table["apart"][clean & (lag == 0)]).max(initial=0.0)),
    }
    for low, high in LAGS:
        found |= _quantiles(f"ratio/lag/{low if low == high else f'{low}+'}", ratio[(lag >= low) & (lag <= high)])
    for pool in np.unique(table["pool"]):
        of_pool = table["pool"] == pool
        found |= _quantiles(f"ratio/pool/{pool}", ratio[of_pool])
        found[f"pool/{pool}/tokens"] = int(of_pool.sum()) // epochs
        found[f"pool/{pool}/ess"] = ess(ratio[of_pool])
        found[f"pool/{pool}/kl"] = _mean(k3(table["apart"][of_pool & table["fresh"]]))
        found[f"pool/{pool}/clipped"] = _mean((table["low"] | table["high"] | table["dual"])[of_pool])
    sizes = np.abs(table["loss"])
    for place, name in enumerate(names):
        found[f"task/{name}/loss_share"] = float(sizes[envs == place].sum() / max(sizes.sum(), 1e-30))
        found[f"task/{name}/trained_tokens"] = int((envs == place).sum()) // epochs
    return found


def ess(weights: NDArray[np.float64]) -> float:
    """Return the effective sample size (Σw)² / Σw², as a share of the number (M4)."""
    squares = float((weights**2).sum())
    return float(weights.sum() ** 2 / squares / len(weights)) if squares else 0.0


def k3(apart: NDArray[Any]) -> NDArray[np.float64]:
    """Return e^d - d - 1 of log π - log μ: on average over μ's tokens KL(μ‖π)."""
    values = np.clip(apart.astype(np.float64), -20, 20)
    return np.asarray(np.expm1(values) - values)


def _quantiles(name: str, values: NDArray[np.float64]) -> Metrics:
    if not len(values):
        return {}
    return {
        f"{name}/p{q:02d}": float(value) for q, value in zip(QUANTILES, np.percentile(values, QUANTILES), strict=True)
    }


def _mean(values: NDArray[Any]) -> float:
    return float(values.mean()) if len(values) else 0.0


def _array(tensor: Any) -> NDArray[Any]:
    return np.asarray(tensor.detach().cpu().numpy())
