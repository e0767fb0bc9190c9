"""What the simulations say, as tables and plots.

Decided here: a ratio is of tokens trained on a second, each way at its best in its kind, all of a setting's GPUs
counted on both sides. Which targets are met and where is computed, never written by hand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.simulation import costs, sweep, traces
from benchmarks.simulation.run import Method, Outcome, split
from benchmarks.simulation.sweep import Case, Done, Setting
from benchmarks.training import plots

PLOTS = Path(__file__).parent.parent.parent / "docs" / "simulation"
WANTED_RATIO, WANTED_IDLE = 2.8, 0.05


class Compared(NamedTuple):
    """The best of each kind at one setting."""

    setting: Setting
    sync: Case
    one_step: Case
    asynchronous: Case
    """Of all η that were run."""


def compared(done: Done, setting: Setting, etas: Sequence[int]) -> Compared | None:
    """Return the best of each kind; None while some are not done."""
    sync, one_step = sweep.tuned(done, setting, "sync"), sweep.tuned(done, setting, "one-step")
    found = [case for eta in etas if (case := sweep.tuned(done, setting, "async", eta)) is not None]
    if sync is None or one_step is None or len(found) < len(etas):
        return None
    return Compared(setting, sync, one_step, max(found, key=lambda case: done[case].rate))


def text(done: Done) -> str:
    """Return the whole section."""
    parts = [
        _standing(done),
        "### At the places of the published systems",
        _table(*_places(done)),
        _targets(done),
        "### Each way at each place",
        _table(*_ways(done)),
        "### A heavier tail, at the same mean length",
        _table(*_swept(done, sweep.tails(), "sigma of the lengths", lambda each: f"{_sigma(each):g}")),
        "### Dearer and cheaper training",
        _table(*_swept(done, sweep.balances(), "cost of training, times", lambda each: f"{each.balance:g}")),
        "### More episodes at once, and GPUs in proportion",
        _table(*_sizes(done)),
        "### Synchronous training with a larger batch (fewer updates: another algorithm)",
        _table(*_batches(done)),
        "### Versions behind, as trained on, % of tokens",
        _table(*_lags(done)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _standing(done: Done) -> str:
    missing = len(sweep.wanted(done))
    hours = sum(outcome.seconds for outcome in done.values()) / 3600
    minutes = sum(outcome.cpu for outcome in done.values()) / 60
    said = (
        f"{len(done)} simulations: {hours:,.0f} hours of clusters in {minutes:.1f} minutes of one core. The fitted "
        f"decode curve misses the measured points by {100 * costs.misfit():.1f} % (root of the mean square)."
    )
    if missing:
        said += (
            f" At least {missing} are still to run (`python -m benchmarks simulation run`); what is below is partial."
        )
    return said


Table = tuple[Sequence[str], list[list[str]]]


def _places(done: Done) -> Table:
    heads = ["place", "simulated", "best eta", "over synchronous", "over one-step-off", "learner idle", "published"]
    rows = []
    for setting in sweep.main_settings():
        found = compared(done, setting, sweep.ETAS)
        if found is None:
            continue
        place, best = traces.places()[setting.place], done[found.asynchronous]
        simulated = sweep.place_of(setting)
        rows.append(
            [
                place.title,
                f"{simulated.gpus} GPUs, {simulated.groups} x {simulated.group_size} episodes",
                str(found.asynchronous.method.eta),
                _times(best.rate / done[found.sync].rate),
                _times(best.rate / done[found.one_step].rate),
                _percent(best.learner_idle),
                " to ".join(_times(ratio) for ratio in place.published) or "none",
            ]
        )
    return heads, rows


def _targets(done: Done) -> str:
    """Say where the targets are met."""
    settings: list[tuple[Setting, Sequence[int]]] = [(each, sweep.ETAS) for each in sweep.main_settings()]
    settings += [(each, sweep.SWEPT_ETAS) for each in [*sweep.tails(), *sweep.balances()]]
    found = [one for each, etas in settings if (one := compared(done, each, etas)) is not None]
    if not found:
        return ""
    ratios = {one: done[one.asynchronous].rate / done[one.sync].rate for one in found}
    fast = [one for one in found if ratios[one] >= WANTED_RATIO]
    busy = [one for one in fast if done[one.asynchronous].learner_idle <= WANTED_IDLE]
    top = max(found, key=lambda one: ratios[one])
    said = f"At least {_times(WANTED_RATIO)} over synchronous: {_named(fast)}. "
    said += f"With a learner idle for at most {_percent(WANTED_IDLE)}: {_named(busy)}. "
    return said + f"The most is {_times(ratios[top])}, at {_name(top.setting)}."


def _named(found: Sequence[Compared]) -> str:
    return "; ".join(dict.fromkeys(_name(one.setting) for one in found)) if found else "nowhere among these settings"


def _name(setting: Setting) -> str:
    name = setting.place
    if setting.sigma is not None:
        name += f" with sigma {setting.sigma:g}"
    return name if setting.balance == 1 else f"{name} with training {setting.balance:g} times as dear"


def _ways(done: Done) -> Table:
    heads = ["place", "way", "GPUs that generate + learn", "batches under way", "tokens/s", "over synchronous"]
    heads += ["learner idle", "engines idle", "dropped for lag"]
    rows = []
    for setting in sweep.main_settings():
        sync = sweep.tuned(done, setting, "sync")
        cases = [sync, sweep.tuned(done, setting, "one-step")]
        for eta in sweep.ETAS:
            cases.append(sweep.tuned(done, setting, "async", eta))
            cases += [case for case in sweep.extras(done, setting, eta) if case in done]
        rows += [
            _way(setting, case.method, done[case], done[sync])
            for case in cases
            if case is not None and sync is not None
        ]
    return heads, rows


def _way(setting: Setting, method: Method, outcome: Outcome, sync: Outcome) -> list[str]:
    place = sweep.place_of(setting)
    generating, learning = split(place.gpus, place.engine_gpus, method.engines)
    name: str = method.way
    if method.way == "async":
        name = f"async, eta {method.eta}" + ("" if method.interrupt else ", turns not interrupted")
    eta = {"sync": 0, "one-step": 1}.get(method.way, method.eta)
    return [
        setting.place,
        name,
        "all, in turns" if method.engines == 0 else f"{generating} + {learning}",
        f"{method.ahead:g}",
        f"{outcome.rate:,.0f}" if not outcome.failed else f"none: {outcome.failed}",
        _times(outcome.rate / sync.rate),
        _percent(outcome.learner_idle),
        _percent(outcome.engine_idle),
        _percent(outcome.dropped(eta)),
    ]


def _swept(done: Done, settings: Sequence[Setting], what: str, value: Callable[[Setting], str]) -> Table:
    heads = [what, "over synchronous", "over one-step-off", "best eta", "learner idle", "engines idle"]
    rows = []
    for setting in settings:
        found = compared(done, setting, sweep.SWEPT_ETAS)
        if found is not None:
            best = done[found.asynchronous]
            rows.append(
                [
                    value(setting),
                    _times(best.rate / done[found.sync].rate),
                    _times(best.rate / done[found.one_step].rate),
                    str(found.asynchronous.method.eta),
                    _percent(best.learner_idle),
                    _percent(best.engine_idle),
                ]
            )
    return heads, rows


def _sizes(done: Done) -> Table:
    ways = [f"eta {eta} over synchronous" for eta in sweep.SWEPT_ETAS]
    heads = ["place", "episodes at once", "GPUs", "one-step-off over synchronous", *ways]
    rows = []
    for name in sweep.SIZED:
        for setting in sweep.sizes(name):
            cases = sweep.follow(done, setting, sweep.main_setting(name))
            if cases and all(case in done for case in cases):
                base, *others = [done[case].rate for case in cases]
                place = sweep.place_of(setting)
                count = place.groups * place.group_size
                rows.append([name, f"{count:,}", str(place.gpus), *(_times(rate / base) for rate in others)])
    return heads, rows


def _batches(done: Done) -> Table:
    heads = ["place", "batch, times", "tokens/s", "best asynchronous at its own batch over it"]
    rows = []
    for setting in sweep.batches():
        case = sweep.large(setting)
        found = compared(done, sweep.main_setting(setting.place), sweep.ETAS)
        if case in done and found is not None:
            rate = done[case].rate
            ratio = done[found.asynchronous].rate / rate
            rows.append([setting.place, f"{setting.batch:g}", f"{rate:,.0f}", _times(ratio)])
    return heads, rows


def _lags(done: Done) -> Table:
    most = max(sweep.ETAS)
    heads = ["place", "eta", *(str(lag) for lag in range(most + 1)), "more: dropped"]
    rows = []
    for setting in sweep.main_settings():
        for eta in sweep.ETAS:
            case = sweep.tuned(done, setting, "async", eta)
            if case is not None:
                outcome = done[case]
                every = sum(outcome.lags.values())
                shares = [outcome.lags.get(lag, 0) / every if lag <= eta else 0.0 for lag in range(most + 1)]
                cells = [f"{100 * share:.0f}" if share else "" for share in shares]
                rows.append([setting.place, str(eta), *cells, f"{100 * outcome.dropped(eta):.0f}"])
    return heads, rows


def draw(done: Done, folder: Path = PLOTS) -> list[Path]:
    """Draw the plots that there are results for; return their files."""
    tails = _by_setting(done, sweep.tails(), _sigma)
    balances = _by_setting(done, sweep.balances(), _balance)
    drawn = {
        "eta": ("Asynchronous over tuned synchronous", "eta", _by_eta(done)),
        "tail": ("Asynchronous training, by tail", "sigma of the lengths", tails),
        "balance": ("Asynchronous training, by balance", "log2 of what training costs", balances),
        "episodes": ("Asynchronous over synchronous, by size", "log2 of episodes at once", _by_size(done)),
    }
    written = []
    for name, (title, x_name, curves) in drawn.items():
        if curves:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{name}.svg"
            path.write_text(plots.curves(title, x_name, "tokens trained on a second, times", curves), encoding="utf-8")
            written.append(path)
    return written


def _curve(name: str, found: Iterable[tuple[float, float]]) -> list[plots.Band]:
    pairs = sorted(found)
    if len(pairs) < 2:
        return []
    xs, ys = np.array(pairs).T
    return [plots.Band(name, xs, ys, ys, ys)]


def _by_eta(done: Done) -> list[plots.Band]:
    curves = []
    for setting in sweep.main_settings():
        sync = sweep.tuned(done, setting, "sync")
        tuned = {eta: sweep.tuned(done, setting, "async", eta) for eta in sweep.ETAS}
        if sync is not None:
            rates = [(float(eta), done[case].rate / done[sync].rate) for eta, case in tuned.items() if case is not None]
            curves += _curve(setting.place, rates)
    return curves


def _by_setting(done: Done, settings: Sequence[Setting], value: Callable[[Setting], float]) -> list[plots.Band]:
    found = [one for each in settings if (one := compared(done, each, sweep.SWEPT_ETAS)) is not None]

    def ratios(to: Callable[[Compared], Case]) -> list[tuple[float, float]]:
        return [(value(one.setting), done[one.asynchronous].rate / done[to(one)].rate) for one in found]

    over_sync = _curve("over synchronous", ratios(lambda one: one.sync))
    return over_sync + _curve("over one-step-off", ratios(lambda one: one.one_step))


def _by_size(done: Done) -> list[plots.Band]:
    curves = []
    for name in sweep.SIZED:
        found = []
        for setting in sweep.sizes(name):
            cases = sweep.follow(done, setting, sweep.main_setting(name))
            if cases and all(case in done for case in cases):
                place = sweep.place_of(setting)
                best = max(done[case].rate for case in cases[2:])
                found.append((math.log2(place.groups * place.group_size), best / done[cases[0]].rate))
        curves += _curve(name, found)
    return curves


def _sigma(setting: Setting) -> float:
    if setting.sigma is not None:
        return setting.sigma
    (world,) = traces.places()[setting.place].envs
    return world.tokens.sigma


def _balance(setting: Setting) -> float:
    return math.log2(setting.balance)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return "Not run yet."
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines).replace("| --- ", "|---").replace("--- |", "---|")


def _times(ratio: float) -> str:
    return f"{ratio:.2f}"


def _percent(share: float) -> str:
    return f"{100 * max(share, 0.0):.1f} %"
