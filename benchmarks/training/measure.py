"""What a finished run was like, read from its folder: figures, curves, and scores task by task."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.training.lines import Curve, Scored, mean, rounded
from harness import runlog
from harness.core import digest
from harness.metrics import by_task
from training import scores

EDGE = 5
"""Updates at either end whose mean stands for the beginning and for the end."""
MEANS = {
    "idle_learner": "idle/learner",
    "idle_engine": "idle/engine",
    "ess": "ess",
    "grad_norm": "grad_norm",
    "lag": "lag/trained/0/mean",
    "stale_lag": "lag/trained/1/mean",
    "stale_kl": "pool/1/kl",
    "stale_ess": "pool/1/ess",
    "fresh_kl": "pool/0/kl",
    "clipped_high": "clip/high",
    "clipped_low": "clip/low",
    "env_errors": "env/errors",
}
"""Figure to the run's own name of it; a mean over the updates."""
SUMS = {"tokens_trained": "tokens/trained", "tokens_generated": "tokens/generated", "attempts": "attempts"}
Update = Mapping[str, Any]


def updates(run: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the updates of a run in order, their seconds counted over all sittings, and the number of sittings.

    Updates that a crash lost and a resumed run made again count once, with the time that both took.
    """
    path = run / "metrics.jsonl"
    found: dict[int, dict[str, Any]] = {}
    before, last, sittings = 0.0, 0.0, 1
    for text in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue  # torn by a crash
        if line["seconds"] < last:
            before, sittings = before + last, sittings + 1
        last = line["seconds"]
        found[line["version"]] = {**line, "seconds": before + last}
    return [found[version] for version in sorted(found)], sittings


def figures(made: Sequence[Update]) -> dict[str, float]:
    """Return what the updates were like."""
    found: dict[str, float | None] = {"updates": len(made)}
    for name, key in MEANS.items():
        found[name] = mean(update.get(key) for update in made)
    for name, key in SUMS.items():
        found[name] = sum(update.get(key, 0) for update in made)
    norms = [update["grad_norm"] for update in made if "grad_norm" in update]
    found["grad_norm_unrest"] = float(np.std(norms) / max(np.mean(norms), 1e-12)) if norms else None
    found["ess_least"] = min((update["ess"] for update in made if "ess" in update), default=None)
    for name, key in (("surprise", "surprise"), ("reward", "reward/mean")):
        values = [update[key] for update in made if key in update]
        found[f"{name}_first"], found[f"{name}_last"] = mean(values[:EDGE]), mean(values[-EDGE:])
    return {name: round(float(value), 5) for name, value in found.items() if value is not None}


def reward(made: Sequence[Update], of_an_update: int) -> Curve:
    """Return the mean reward of each update's attempts, of which there are so many."""
    return Curve(
        seconds=rounded([update["seconds"] for update in made], 1),
        samples=tuple(update["version"] * of_an_update for update in made),
        values=rounded([update["reward/mean"] for update in made]),
    )


def validation(run: Path, made: Sequence[Update], of_an_update: int) -> tuple[Curve, dict[str, Curve]]:
    """Return the success on the validation split at the updates whose weights were scored, and that by environment."""
    when = {0: 0.0, **{update["version"]: update["seconds"] for update in made}}
    points: dict[int, dict[str, float]] = {}
    for folder in sorted((run / scores.FOLDER).glob(f"{scores.VALIDATION}*")):
        version = int(folder.name.rpartition("-")[2])
        found = {each.env: float(each.values().mean()) for each in scored(folder, "validation", 0.0)}
        if found and version in when:
            points[version] = found

    def curve(values: Sequence[float]) -> Curve:
        return Curve(
            seconds=rounded([when[version] for version in points], 1),
            samples=tuple(version * of_an_update for version in points),
            values=rounded(values),
        )

    envs = sorted({env for found in points.values() for env in found})
    by_env = {env: curve([found.get(env, 0.0) for found in points.values()]) for env in envs}
    return curve([sum(found.values()) / len(found) for found in points.values()]), by_env


def scored(folder: Path, split: str, temperature: float) -> tuple[Scored, ...]:
    """Return how a run of `harness eval` went, task by task; a task that could not be scored did not succeed."""
    run = runlog.read(folder)
    attempts = run.attempts()
    found = []
    for entry, tasks in run.header.tasks.items():
        rows = by_task(attempts, entry)
        wins, paid = (
            [rows[task].scored(measure) if task in rows else [] for task in sorted(tasks)]
            for measure in ("success", "reward")
        )
        epochs = max((len(row.attempts) for row in rows.values()), default=1)
        found.append(
            Scored(
                env=entry,
                split=split,
                temperature=temperature,
                epochs=epochs,
                successes=tuple(int(sum(each)) for each in wins),
                rewards=rounded([sum(each) / epochs for each in paid]),
                tasks_digest=digest(sorted(tasks)),
            )
        )
    return tuple(found)


def cut(curve: Curve, seconds: float) -> int:
    """Return how many updates a run had made after so long; beyond its end at the pace that it had."""
    done = sum(each <= seconds for each in curve.seconds)
    if done == len(curve.seconds) and done:
        done = int(seconds / (curve.seconds[-1] / done))
    return max(1, done)
