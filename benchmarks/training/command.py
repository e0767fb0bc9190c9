"""The command line: `python -m benchmarks training [EXPERIMENT…]`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from benchmarks.training import lines as results
from benchmarks.training import orders, runner, section, simulation
from benchmarks.training.orders import Order
from benchmarks.training.table import EXPERIMENTS, SMOKE, Experiment, named
from harness.errors import SetupError
from training import machine

WORK = Path("runs") / "experiments"


@click.command()
@click.argument("names", nargs=-1, metavar="[EXPERIMENT]...")
@click.option("--all", "every", is_flag=True, help="Run all experiments.")
@click.option("--plan", is_flag=True, help="Print what there is to run and how long it takes, and run nothing.")
@click.option(
    "--smoke", is_flag=True, help="Two updates of a tiny model by two seeds: all of the way, in a minute or two."
)
@click.option("--statistics", is_flag=True, help="Simulate how often the comparisons are wrong.")
@click.option("--seed", "seeds", type=int, multiple=True, help="Only these of the declared seeds.")
@click.option("--jobs", type=click.IntRange(1, 2), default=1, show_default=True, help="Runs at once; cores are shared.")
@click.option("--results", "folder", type=click.Path(path_type=Path), help="Folder of the result lines.")
@click.option("--work", type=click.Path(path_type=Path), default=WORK, show_default=True, help="Folder of the runs.")
@click.option("--plots", type=click.Path(path_type=Path), help="Folder of the plots.")
def program(
    names: tuple[str, ...],
    every: bool,
    plan: bool,
    smoke: bool,
    statistics: bool,
    seeds: tuple[int, ...],
    jobs: int,
    folder: Path | None,
    work: Path,
    plots: Path | None,
) -> int:
    """Run experiments and print what they say."""
    table = SMOKE if smoke else EXPERIMENTS
    folder = folder or (work / "smoke-results" if smoke else results.FOLDER)
    plots = plots or (work / "smoke-plots" if smoke else section.PLOTS)
    if statistics:
        click.echo(simulation.report())
        return 0
    if plan:
        click.echo(planned(results.read(folder), table))
        return 0
    chosen = with_needed(names if names else [each.name for each in table] if every or smoke else [], table)
    machine.spin()  # what runs inherits it, as under `harness train`
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what runs is put away
    work_on = runner.Runner(folder, work, jobs, _say)
    failed: list[str] = []
    for experiment in chosen:
        failed += work_on.perform(wanted(experiment, seeds, work_on, table))
    show(folder, plots, chosen or table, table)
    for sentence in failed:
        click.echo(sentence, err=True)
    return 1 if failed else 0


def with_needed(names: Sequence[str], table: Sequence[Experiment]) -> list[Experiment]:
    """Return experiments by name, those that they wait for before them."""
    found: dict[str, Experiment] = {}
    for name in names:
        experiment = named(name, table)
        found |= {each.name: each for each in with_needed(experiment.after, table)} | {name: experiment}
    return list(found.values())


def wanted(
    experiment: Experiment, seeds: Sequence[int], work: runner.Runner, table: Sequence[Experiment]
) -> list[Order]:
    """Return the orders of an experiment. SetupError for a seed that was not declared."""
    declared = {seed for each in table for seed in each.seeds}
    if unknown := sorted(set(seeds) - declared):
        raise SetupError(f"seed {unknown[0]} was not declared: there is {', '.join(map(str, sorted(declared)))}")
    found = orders.orders(experiment, work.lines, table)
    if seeds and set(seeds) & set(experiment.seeds):
        bases = {order.base for order in found if order.seed in seeds}
        found = [order for order in found if order.seed in seeds or order.key in bases]
    return found


def planned(lines: dict[str, results.Line], table: Sequence[Experiment]) -> str:
    """Return what there is to run: a command, the runs that are there, and the time of the others."""
    counted: set[str] = set()
    total = 0.0
    rows = ["| command | runs | there | minutes for the rest | asks |", "|---|---|---|---|---|"]
    for experiment in table:
        found = orders.orders(experiment, lines, table)
        waiting = len(experiment.arms) * len(experiment.seeds) - sum(
            len(orders.keys(experiment, arm.name, lines, table)) for arm in experiment.arms
        )
        new = [order for order in found if order.key not in lines and order.key not in counted]
        minutes = sum(
            results.minutes(lines, order.recipe, order.kind, order.above) or order.minutes for order in new
        ) + waiting * (results.minutes(lines, experiment.recipe, "train", experiment.above) or experiment.minutes)
        counted |= {order.key for order in new}
        total += minutes
        there = sum(order.key in lines for order in found)
        count = f"{len(found) + waiting}" + (f", {waiting} after {experiment.after[0]}" if waiting else "")
        rows.append(
            f"| `python -m benchmarks training {experiment.name}` | {count} | {there} | {minutes:,.0f} "
            f"| {experiment.asks} |"
        )
    rows += [
        "",
        f"All of it: {total:,.0f} minutes, one run at a time. A run that several experiments need is made once.",
    ]
    return "\n".join(rows)


def show(folder: Path, plots: Path, chosen: Sequence[Experiment], table: Sequence[Experiment] = EXPERIMENTS) -> None:
    """Print what results say, and draw it."""
    lines = results.read(folder)
    stories = [section.story(experiment, lines, table) for experiment in chosen]
    if len(stories) > 1:
        print(section.overview(stories), end="\n\n")
    for told in stories:
        print(section.text(told, section.draw(told, plots)), end="\n\n")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
