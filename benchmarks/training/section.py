"""What the results say, as text and plots: per experiment the arms, the comparisons, and what was not run yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.training import orders, plots
from benchmarks.training.lines import SUCCESS, Counted, Curve, Floats, Line, mean, of_seeds
from benchmarks.training.statistics import Effect, Table, effect, family, level
from benchmarks.training.table import EXPERIMENTS, Experiment
from harness.core import Value
from harness.metrics.comparison import permutation_p

PLOTS = Path(__file__).parent.parent.parent / "docs" / "training"
FIGURES = (
    "training, s",
    "updates",
    "tokens trained /s",
    "learner idle",
    "engines idle",
    "lag",
    "ESS",
    "stale KL",
    "surprise",
    "peak MB",
    "load",
)
"""Heads of what `_row` has at its end."""


class Compared(Value, frozen=True, kw_only=True):
    """One comparison at one temperature."""

    arm: str
    against: str
    temperature: float
    counted: Counted
    effect: Effect | None
    """None below two seeds that both have."""
    alone: tuple[float, ...] = ()
    """p of each seed by itself, paired by task, as `harness compare` has it."""

    @property
    def at(self) -> str:
        """Say what is compared."""
        told = f"pass@{self.counted.tries}" if self.counted.tries > 1 else self.counted.measure
        return _at(self.temperature) + ("" if self.counted == SUCCESS else f", {told}")


class Story(Value, frozen=True, kw_only=True):
    """All that is known of one experiment."""

    experiment: Experiment
    arms: Mapping[str, Mapping[int, Line]]
    compared: tuple[Compared, ...]


def story(experiment: Experiment, lines: Mapping[str, Line], table: Sequence[Experiment] = EXPERIMENTS) -> Story:
    """Return an experiment's results, its comparisons corrected as one family."""
    arms = {arm.name: of_seeds(lines, orders.keys(experiment, arm.name, lines, table)) for arm in experiment.arms}
    found = [
        _compared(experiment, arms, arm, against, *each)
        for arm, against in experiment.against
        for each in _played(experiment, arm, against)
    ]
    effects = family([each.effect for each in found])
    compared = [msgspec.structs.replace(each, effect=one) for each, one in zip(found, effects, strict=True)]
    return Story(experiment=experiment, arms=arms, compared=tuple(compared))


def _played(experiment: Experiment, *arms: str) -> list[tuple[float, Counted]]:
    """Return at which temperatures and by what arms can be compared: what is sampled is played at 1 alone."""
    sampled = [experiment.arm(arm).kind == "sample" for arm in arms]
    counted = [Counted(measure=each) for each in experiment.measures]
    counted += [Counted(tries=experiment.epochs)] if all(sampled) and experiment.epochs > 1 else []
    return [(each, one) for each in experiment.temperatures if each == 1 or not any(sampled) for one in counted]


def overview(stories: Sequence[Story]) -> str:
    """Return the comparisons of all experiments in one table."""
    rows = ["| experiment | compared | at | difference | detectable | says |", "|---|---|---|---|---|---|"]
    for told in stories:
        name = told.experiment.name
        for each in told.compared:
            if (found := each.effect) is not None:
                low, high = found.interval
                rows.append(
                    f"| [{name}](#{name}) | {each.arm} against {each.against} | {each.at} "
                    f"| {found.difference:+.3f} [{low:+.3f}, {high:+.3f}] | {found.detectable:.3f} | {found.says} |"
                )
    return "\n".join(["### All comparisons", "", *rows])


def text(told: Story, drawn: Sequence[str]) -> str:
    """Return an experiment's part of the page."""
    asked = told.experiment
    wanted = len(asked.arms) * len(asked.seeds)
    made = [line for lines in told.arms.values() for line in lines.values()]
    parts = [f"### {asked.name}", asked.asks]
    if len(made) < wanted:
        parts.append(
            f"{len(made)} of {wanted} runs are there; `python -m benchmarks training {asked.name}` makes the rest."
        )
    if made:
        parts += [_arms(told)]
    if len(cores := sorted({line.cores for line in made})) > 1:
        parts.append(f"These runs had {' or '.join(map(str, cores))} cores each: their seconds cannot be compared.")
    if len(machines := sorted({line.processor for line in made})) > 1:
        named = ", ".join(name or "not written down" for name in machines)
        parts.append(f"These runs are of several machines ({named}): seconds can be compared within one.")
    if any(each.effect for each in told.compared):
        parts += [_comparisons(told)]
    if passes := _passing(told):
        parts += [passes]
    parts += [f"![{asked.name}](training/{name})" for name in drawn]
    return "\n\n".join(parts)


def draw(told: Story, folder: Path) -> list[str]:
    """Draw an experiment's plots into a folder; return their names."""
    name, measures = told.experiment.name, told.experiment.measures
    made: dict[str, str] = {}
    for over, what in (("seconds", "seconds of training"), ("samples", "attempts trained on")):
        for curve, y_name in (("validation", "validation success, greedy"), ("reward", "mean reward in training")):
            seen = {arm: [getattr(line, curve) for line in lines.values()] for arm, lines in told.arms.items()}
            if bands := _bands(seen, over):
                made[f"{curve}-{over}"] = plots.curves(name, what, y_name, bands)
    for env in _envs(told) if told.experiment.by_env else ():
        seen = {arm: [line.by_env.get(env, Curve()) for line in lines.values()] for arm, lines in told.arms.items()}
        if bands := _bands(seen, "samples"):
            made[f"validation-{env}"] = plots.curves(f"{name}: {env}", what, "validation success, greedy", bands)
    if bands := _bands(_passes(told), "samples"):
        made["pass"] = plots.curves(name, "tries at a task", "a success among them", bands)
    if bars := [_bar(each) for each in told.compared if each.effect is not None]:
        made["differences"] = plots.bars(name, f"difference of {' and '.join(measures)}, 95 % interval", bars)
    if dots := _apart(told):
        success = f"success, {_at(told.experiment.temperatures[0])}"
        made["kl"] = plots.points(name, "mean KL of the stale pool's tokens", success, dots)
        unrest = _apart(told, "grad_norm_unrest")
        made["kl-unrest"] = plots.points(
            name, "mean KL of the stale pool's tokens", "unrest of the gradient's norm", unrest
        )
    for plot, svg in made.items():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}-{plot}.svg").write_text(svg, encoding="utf-8")
    return [f"{name}-{plot}.svg" for plot in made]


def _bands(curves: Mapping[str, Sequence[Curve]], over: str) -> list[plots.Band]:
    """Return the curves that there are; none where it is one alone, which says nothing of what is asked."""
    bands = [found for name, each in curves.items() if (found := plots.band(name, each, over))]
    return bands if len(bands) > 1 else []


def _envs(told: Story) -> list[str]:
    return sorted({env for lines in told.arms.values() for line in lines.values() for env in line.by_env})


def _compared(
    experiment: Experiment,
    arms: Mapping[str, Mapping[int, Line]],
    arm: str,
    against: str,
    temperature: float,
    counted: Counted,
) -> Compared:
    """Return a comparison by itself, not yet corrected for others."""
    first, second = _paired(arms[arm], arms[against], temperature, counted)
    return Compared(
        arm=arm,
        against=against,
        temperature=temperature,
        counted=counted,
        effect=effect(first, second, len(experiment.seeds)),
        alone=tuple(_alone(first[seed], second[seed]) for seed in first),
    )


def _paired(
    first: Mapping[int, Line], second: Mapping[int, Line], temperature: float, counted: Counted
) -> tuple[Table, Table]:
    """Return both arms' tasks of the seeds that began with the same weights, as far as known, and played the same."""
    ones: dict[int, dict[str, Floats]] = {}
    others: dict[int, dict[str, Floats]] = {}
    for seed in sorted(set(first) & set(second)):
        one, other = first[seed], second[seed]
        tables = one.table(temperature, counted), other.table(temperature, counted)
        began_alike = not (one.began and other.began) or one.began == other.began
        if all(tables) and began_alike and one.digests(temperature) == other.digests(temperature):
            ones[seed], others[seed] = tables
    return ones, others


def _alone(one: Mapping[str, Floats], other: Mapping[str, Floats]) -> float:
    """Return the p-value of a seed by itself; environments count alike."""
    return permutation_p(np.concatenate([(one[env] - other[env]) / len(one[env]) for env in one]))[0]


def _arms(told: Story) -> str:
    asked = told.experiment
    counted = [Counted(measure=each) for each in asked.measures]
    heads = [
        "arm",
        "seeds",
        *(_at(each) for each in asked.temperatures),
        *("by environment" if each == SUCCESS else f"{each.measure} by environment" for each in counted),
        *FIGURES,
    ]
    rows = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for name, lines in told.arms.items():
        if lines:
            rows.append("| " + " | ".join(_row(name, [*lines.values()], asked.temperatures, counted)) + " |")
    return "\n".join(rows)


def _row(name: str, lines: Sequence[Line], temperatures: Sequence[float], counted: Sequence[Counted]) -> list[str]:
    def figure(key: str) -> float | None:
        return mean(line.figures.get(key) for line in lines)

    rate = mean(line.figures["tokens_trained"] / line.seconds for line in lines if line.figures.get("tokens_trained"))
    return [
        name,
        str(len(lines)),
        *(_success(lines, each) for each in temperatures),
        *(_by_env([line.table(temperatures[0], each) for line in lines]) for each in counted),
        _number(mean(line.seconds for line in lines), 0),
        _number(figure("updates"), 0),
        _number(rate, 0),
        _percent(figure("idle_learner")),
        _percent(figure("idle_engine")),
        _number(figure("lag"), 2),
        _number(figure("ess"), 2),
        _number(figure("stale_kl"), 4),
        " → ".join(filter(None, (_number(figure(f"surprise_{end}"), 2) for end in ("first", "last")))),
        _number(max(line.peak_mb for line in lines), 0),
        _number(max(max(line.load) for line in lines), 1),
    ]


def _by_env(tables: Sequence[Mapping[str, Floats]]) -> str:
    """Return the mean of each environment that was scored in all seeds."""
    known = [table for table in tables if table]
    return ", ".join(
        f"{env} {np.mean([table[env].mean() for table in known]):.2f}"
        for env in sorted(set().union(*known))
        if all(env in table for table in known)
    )


def _comparisons(told: Story) -> str:
    rows = [
        "| compared | at | difference | 95 % interval | p (Holm) | detectable | seeds × tasks | says | each seed |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for each in told.compared:
        name = f"{each.arm} against {each.against}"
        found = each.effect
        if found is None:
            rows.append(f"| {name} | {each.at} | | | | | | no claim: too few seeds | |")
            continue
        low, high = found.interval
        rows.append(
            f"| {name} | {each.at} | {found.difference:+.3f} | {low:+.3f} to {high:+.3f} "
            f"| {found.p_holm:.2g} | {found.detectable:.3f} | {found.seeds} × {found.tasks} | {found.says} "
            f"| {'; '.join(f'{value:+.3f}, p {p:.2g}' for value, p in zip(found.each, each.alone, strict=True))} |"
        )
    return "\n".join(rows)


def _passes(told: Story) -> dict[str, list[Curve]]:
    """Return arm -> each seed's pass@k over k, of the arms whose tasks were played several times."""
    ks = tuple(range(1, told.experiment.epochs + 1))
    return {
        arm.name: [
            Curve(samples=ks, values=tuple(line.success(1.0, Counted(tries=k)) or 0.0 for k in ks))
            for line in lines.values()
        ]
        for arm in told.experiment.arms
        if arm.kind == "sample" and (lines := told.arms[arm.name])
    }


def _passing(told: Story) -> str:
    """Return pass@k as a table, k a power of two."""
    arms = _passes(told)
    if not arms:
        return ""
    ks = [k for k in range(1, told.experiment.epochs + 1) if k.bit_count() == 1]
    rows = ["| arm | seeds | " + " | ".join(f"pass@{k}" for k in ks) + " |", "|---" * (2 + len(ks)) + "|"]
    for name, curves in arms.items():
        cells = [f"{np.mean([each.values[k - 1] for each in curves]):.3f}" for k in ks]
        rows.append(f"| {name} | {len(curves)} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _apart(told: Story, against: str | None = None) -> list[plots.Dots]:
    """Return the points of an experiment about the stale pool's distance; none of any other."""
    if told.experiment.name != "stale_kl":
        return []
    found, temperature = [], told.experiment.temperatures[0]
    for name, lines in told.arms.items():
        pairs = [
            (line.figures.get("stale_kl"), line.figures.get(against) if against else line.success(temperature))
            for line in lines.values()
        ]
        there = [(x, y) for x, y in pairs if x is not None and y is not None]
        if there:
            found.append(plots.Dots(name, [x for x, _ in there], [y for _, y in there]))
    return found


def _bar(each: Compared) -> plots.Bar:
    assert each.effect is not None
    low, high = each.effect.interval
    return plots.Bar(f"{each.arm} − {each.against}, {each.at}", each.effect.difference, low, high)


def _at(temperature: float) -> str:
    return "greedy" if temperature == 0 else f"T = {temperature:g}"


def _success(lines: Sequence[Line], temperature: float) -> str:
    """Return the mean, its interval over seeds and tasks, and what the seeds span."""
    there = [value for line in lines if (value := line.success(temperature)) is not None]
    if not there:
        return ""
    whole = level({line.seed: line.table(temperature) for line in lines})  # one warm start of all seeds has none
    within = f" [{whole[0]:.3f}, {whole[1]:.3f}]" if whole else ""
    return f"{np.mean(there):.3f}{within} ({min(there):.3f} to {max(there):.3f})"


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.0f} %"
