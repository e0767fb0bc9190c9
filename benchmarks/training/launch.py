"""One run, in a process of its own: `python -m benchmarks.training.launch JOB.json PARENT`, begun by the runner.

Trains, or does what a control does, then scores what came of it by `harness eval`; `outcome.json` beside the job is
written last, and whole. A training run that was interrupted goes on from its last checkpoint, a warm start from where
it stood unless it was being scored; anything else begins anew.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.training import controls, measure, orders, sampling
from benchmarks.training.lines import Curve, Scored
from harness.core import Value
from harness.errors import HarnessError
from harness.models.hf.engine import weights_digest
from training import checkpoint, run, scores, scoring, weights
from training.begin import begin
from training.learner.options import LearnerOptions
from training.process.child import end_with_parent
from training.recipe import Recipe

OUTCOME, JOB, BASE = "outcome.json", "job.json", "base"


class Job(Value, frozen=True, kw_only=True):
    """What a run is told."""

    kind: str
    recipe: str
    above: Mapping[str, Any]
    seed: int
    split: str
    tasks: int
    temperatures: tuple[float, ...]
    epochs: int
    sampled: Mapping[str, Any]
    base: str | None
    """Folder of the warm start."""
    of: str | None
    """Folder of the run whose weights are sampled."""
    seconds: float | None
    played: float | None
    """Share of those that rejection sampling plays; expert iteration has none."""
    kept: bool
    """Weights of this warm start are kept: half as large."""
    steps: int | None
    cores: tuple[int, ...]
    """Cores that it and all its processes keep to."""


class Outcome(Value, frozen=True, kw_only=True):
    """What came of it."""

    seconds: float
    sittings: int
    figures: Mapping[str, float]
    scores: tuple[Scored, ...]
    reward: Curve = Curve()
    validation: Curve = Curve()
    by_env: Mapping[str, Curve] = msgspec.field(default_factory=dict)
    began: str = ""


def perform(job: Job, folder: Path) -> Outcome:
    """Do a job in a folder."""
    recipe = orders.resolved(job.recipe, job.above, job.seed)
    shutil.rmtree(folder / scores.FOLDER, ignore_errors=True)
    doers = {
        "warm": warm,
        "train": train,
        "sft": continued,
        "rejection": own_play,
        "iteration": own_play,
        "sample": sample,
    }
    done = doers[job.kind](job, recipe, folder)
    base = folder / BASE if job.base is None else Path(job.base)
    return msgspec.structs.replace(done, began=weights_digest(base)[: orders.KEY])


def warm(job: Job, recipe: Recipe, folder: Path) -> Outcome:
    """Make the model that all arms of a seed begin with."""
    begun = time.monotonic()
    base = folder / BASE
    shutil.rmtree(base, ignore_errors=True)
    begin(recipe, base, say)
    seconds = time.monotonic() - begun
    if job.kept:
        round_off(base)
    return Outcome(seconds=seconds, sittings=1, figures={}, scores=score(job, recipe, folder, base))


def round_off(folder: Path) -> None:
    """Round a model's weights to bfloat16, in place: half as much to keep, and what is scored is what is kept."""
    from training.learner import network

    made = network.load(folder, LearnerOptions(device="cpu"))
    for parameter in made.parameters():
        parameter.data = parameter.data.bfloat16().float()
    rounded = {name: tensor.bfloat16() for name, tensor in network.merged(made).items()}
    weights.replace(folder, weights.model_writer(rounded, made.eval(), folder))


def train(job: Job, recipe: Recipe, folder: Path) -> Outcome:
    """Train by the recipe, from the warm start."""
    begin = msgspec.structs.replace(recipe.begin, model=job.base, warm_start=None, copying=None, tasks=1, more=())
    first = recipe.curriculum.first
    behind = max(recipe.shown.values(), default=0) if first is None else first
    course = msgspec.structs.replace(recipe.curriculum, first=behind)
    wanted = msgspec.structs.replace(recipe.score, test_tasks=0)  # scoring on test is done here, of the last weights
    steps = job.steps or recipe.steps
    recipe = msgspec.structs.replace(recipe, begin=begin, score=wanted, curriculum=course, steps=steps)
    place = folder / "run"
    resume = checkpoint.newest(place / "checkpoints") is not None
    if not resume:
        shutil.rmtree(place, ignore_errors=True)
    run.run(recipe, place, say, resume=resume)
    made, sittings = measure.updates(place)
    each = recipe.groups * recipe.collect.group_size
    validation, by_env = measure.validation(place, made, each)
    return Outcome(
        seconds=made[-1]["seconds"],
        sittings=sittings + resume,
        figures={**measure.figures(made), "samples": len(made) * each},
        scores=score(job, recipe, folder, place / "checkpoints" / "last"),
        reward=measure.reward(made, each),
        validation=validation,
        by_env=by_env,
    )


def continued(job: Job, recipe: Recipe, folder: Path) -> Outcome:
    """Go on with supervised learning."""
    shutil.rmtree(folder / "model", ignore_errors=True)
    base, seconds = _given(job)
    done = controls.continued_sft(recipe, base, folder / "model", seconds, say)
    return _controlled(job, recipe, folder, done)


def own_play(job: Job, recipe: Recipe, folder: Path) -> Outcome:
    """Learn from own play that succeeded."""
    base, seconds = _given(job)
    options = controls.RejectionOptions() if job.played is None else controls.once(job.played)
    shutil.rmtree(folder / "rounds", ignore_errors=True)
    done = asyncio.run(controls.rejection_sampled(recipe, folder / "rounds", base, seconds, say, options))
    return _controlled(job, recipe, folder, done)


def sample(job: Job, recipe: Recipe, folder: Path) -> Outcome:
    """Play with two policies of another run."""
    assert job.of is not None
    begun, run_folder = time.monotonic(), Path(job.of) / "run"
    wanted = sampling.Wanted(split=job.split, tasks=job.tasks, tries=job.epochs)
    found = asyncio.run(sampling.play(recipe, folder, run_folder, job.sampled, wanted, say))
    return Outcome(seconds=time.monotonic() - begun, sittings=1, figures={}, scores=found)


def score(job: Job, recipe: Recipe, folder: Path, model: Path) -> tuple[Scored, ...]:
    """Score a model on held-out tasks, at each temperature."""
    scorings = []
    for temperature in job.temperatures:
        wanted = msgspec.structs.replace(recipe.score, temperature=temperature)
        asked = msgspec.structs.replace(recipe, score=wanted)
        what = f"{job.split}-t{temperature:g}"
        scorings.append(partial(scoring.evaluate, asked, folder, model, 0, job.split, job.tasks, what=what))
    results = asyncio.run(scoring.side_by_side(recipe, scorings))
    pairs = zip(results, job.temperatures, strict=True)
    return tuple(
        each for result, temperature in pairs for each in measure.scored(Path(result.folder), job.split, temperature)
    )


def say(line: str) -> None:
    """Tell it the log."""
    print(line, file=sys.stderr, flush=True)


def _given(job: Job) -> tuple[Path, float]:
    assert job.base is not None and job.seconds is not None
    return Path(job.base), job.seconds


def _controlled(job: Job, recipe: Recipe, folder: Path, done: controls.Done) -> Outcome:
    figures = {"samples": done.samples, "tokens_trained": done.tokens, "attempts": done.played, "rounds": done.rounds}
    return Outcome(
        seconds=done.seconds,
        sittings=1,
        figures={name: float(value) for name, value in figures.items()},
        scores=score(job, recipe, folder, Path(done.model)),
    )


def main() -> None:
    """Do the job that the command line names."""
    path = Path(sys.argv[1])
    end_with_parent(int(sys.argv[2]))
    job = msgspec.json.decode(path.read_bytes(), type=Job)
    os.sched_setaffinity(0, job.cores)
    try:
        outcome = perform(job, path.parent)
    except HarnessError as error:
        sys.exit(f"{type(error).__name__}: {error}")
    temporary = path.with_name(f".{OUTCOME}.part")
    temporary.write_bytes(msgspec.json.encode(outcome))
    temporary.replace(path.with_name(OUTCOME))


if __name__ == "__main__":
    main()
