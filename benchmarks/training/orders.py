"""What is to be run, in which order: the table's arms and seeds as orders, each known by what it does.

Decided here: an order's key is of everything its figures depend on (the recipe's own text, what is laid over it, the
seed, the tasks it is scored on, the runs whose seconds or settings it takes), so a result is found again whichever
experiment asks for it, and one of other settings never is. Seeds are the outer loop: what is stopped half-way has all
arms of some seeds, which can be compared, and not all seeds of some arms, which cannot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from benchmarks.training.lines import Line, mean
from benchmarks.training.table import CONTROLS, EXPERIMENTS, WARM, Arm, Experiment, Kind, named
from harness.config import merge, read_toml
from harness.core import Value, digest
from harness.errors import SetupError
from training import recipe as recipes
from training.recipe import Recipe

KEY = 16
BEGINNING = ("envs", "begin", "engine", "collect")
"""What a warm start and its score depend on."""
NOT_OF_CONTROLS = (
    "steps", "groups", "credit", "tan", "negative", "imitation", "aggregation", "checkpoint_every", "pools", "ptx",
    "score",
)  # fmt: skip
NOT_OF_THEIR_LEARNER = ("epochs", "minibatches", "loss")
"""What no control depends on: they learn as the warm start does (`benchmarks/training/controls.py`)."""


class Order(Value, frozen=True, kw_only=True):
    """One run to be made."""

    key: str
    experiment: str
    arm: str
    kind: str
    recipe: str
    above: Mapping[str, Any]
    seed: int
    split: str
    tasks: int
    temperatures: tuple[float, ...]
    epochs: int
    sampled: Mapping[str, Any]
    base: str | None = None
    """Key of the warm start."""
    of: str | None = None
    """Key of the run that it goes by."""
    seconds: float | None = None
    """Of training, of a control whose seconds are declared."""
    played: float | None = None
    """Share of its seconds that rejection sampling plays."""
    seconds_of: str | None = None
    """Key of the run whose seconds it has."""
    kept: bool = False
    """A warm start that all seeds begin with, and later runs too: its weights are kept beside the results."""
    minutes: float = 0.0

    @property
    def needs(self) -> tuple[str, ...]:
        """Return the keys of the runs that must be there before."""
        return tuple(key for key in (self.base, self.of, self.seconds_of) if key is not None)


def orders(experiment: Experiment, lines: Mapping[str, Line], table: Sequence[Experiment] = EXPERIMENTS) -> list[Order]:
    """Return what an experiment is made of, seed by seed, warm starts first; without arms that wait for a sweep.

    A warm start that is no arm is part of it only while something is to begin with it.
    """
    found: dict[str, Order] = {}
    for seed in experiment.seeds:
        made = [order_of(experiment, arm, seed, lines, table) for arm in experiment.arms]
        begins = any(order is not None and order.base and order.key not in lines for order in made)
        warm = order_of(experiment, WARM, seed, lines, table) if begins else None
        for order in filter(None, (warm, *made)):
            found.setdefault(order.key, order)
    return list(found.values())


def keys(
    experiment: Experiment, arm: str, lines: Mapping[str, Line], table: Sequence[Experiment] = EXPERIMENTS
) -> dict[int, str]:
    """Return seed -> key of an arm's runs."""
    found = {seed: order_of(experiment, experiment.arm(arm), seed, lines, table) for seed in experiment.seeds}
    return {seed: order.key for seed, order in found.items() if order is not None}


def order_of(
    experiment: Experiment, arm: Arm, seed: int, lines: Mapping[str, Line], table: Sequence[Experiment]
) -> Order | None:
    """Return the order of one arm and seed; None while the sweep that it takes its settings from is not done."""
    chosen = best_of(experiment, arm, lines, table)
    if chosen is None:
        return None
    above = laid(experiment.above, laid(chosen.above, arm.above))
    warm = arm.kind == "warm"
    seed = experiment.warmed if warm and experiment.warmed is not None else seed
    values = laid(source(experiment.recipe), above)
    which = "test" if warm else experiment.split
    known: dict[str, Any] = {
        "kind": arm.kind,
        "seed": seed,
        "split": values.get("score", {}).get(which, which),
        "tasks": experiment.tasks,
        "temperatures": [1.0] if arm.kind == "sample" else list(experiment.temperatures),
        "epochs": experiment.epochs if arm.kind == "sample" else 1,
        "sampled": dict(arm.sampled),
    }
    linked: dict[str, Any] = {"base": None, "of": None, "seconds_of": None}
    if not warm:
        linked["base"] = _key(experiment, WARM, seed, lines, table)
        for name, other in (("of", arm.of), ("seconds_of", arm.seconds_of)):
            linked[name] = _key(experiment, experiment.arm(other), seed, lines, table) if other else None
    if arm.seconds is not None:
        known["seconds"] = arm.seconds
    if chosen.played is not None:
        known["played"] = chosen.played
    return Order(
        key=digest({**known, **linked, "values": _dependent(arm.kind, values)})[:KEY],
        experiment=experiment.name,
        arm=arm.name,
        recipe=experiment.recipe,
        above=above,
        kept=warm and experiment.warmed is not None,
        minutes=experiment.warm_minutes if warm else experiment.minutes,
        **{**known, "temperatures": tuple(known["temperatures"])},
        **linked,
    )


def _dependent(kind: Kind, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of a recipe that the figures of a kind depend on."""
    if kind == "warm":
        return {name: values[name] for name in BEGINNING if name in values}
    if kind not in CONTROLS:
        return values
    own = {name: value for name, value in values.get("learner", {}).items() if name not in NOT_OF_THEIR_LEARNER}
    return {**{name: value for name, value in values.items() if name not in NOT_OF_CONTROLS}, "learner": own}


def best_of(experiment: Experiment, arm: Arm, lines: Mapping[str, Line], table: Sequence[Experiment]) -> Arm | None:
    """Return the sweep's arm that did best on validation, at all temperatures alike; an arm that waits for none."""
    if not arm.best_of:
        return arm
    sweep = named(experiment.after[0], table)
    found: list[tuple[float, int, Arm]] = []
    for place, name in enumerate(arm.best_of):
        done = [lines[key] for key in keys(sweep, name, lines, table).values() if key in lines]
        score = mean(line.success(each) for line in done for each in sweep.temperatures)
        if len(done) < len(sweep.seeds) or score is None:
            return None
        found.append((score, -place, sweep.arm(name)))
    return max(found, key=lambda each: each[:2])[2]


OF_ENVS = (("begin", "envs"), ("curriculum", "shares"), ("curriculum", "horizon"))
"""Where a recipe names environments besides `envs`."""


def laid(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Lay values over values; which environments there are is the upper ones' to say, and nothing names another."""
    found = merge(below, above)
    if "envs" not in above:
        return found
    for part, key in OF_ENVS:
        if key in found.get(part, {}):
            kept = {env: value for env, value in found[part][key].items() if env in above["envs"]}
            found[part] = {**found[part], key: kept}
    return {**found, "envs": above["envs"]}


@cache
def source(name: str) -> Mapping[str, Any]:
    """Return a recipe's own text as values."""
    path = recipes.FOLDER / f"{name}.toml"
    if not path.is_file():
        raise SetupError(f"there is no recipe '{name}' in {recipes.FOLDER}")
    return read_toml(path)


def resolved(name: str, above: Mapping[str, Any], seed: int) -> Recipe:
    """Return the recipe of a run. SetupError names the key that is unknown or wrong."""
    values = laid(source(name), above)
    return recipes.made({"name": name, **values, "seed": seed}, name)


def _key(
    experiment: Experiment, arm: Arm, seed: int, lines: Mapping[str, Line], table: Sequence[Experiment]
) -> str | None:
    order = order_of(experiment, arm, seed, lines, table)
    return order.key if order is not None else None
