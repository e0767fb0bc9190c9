"""Which simulations there are to run, which are done, and which way of training is the best in its kind.

Decided here: one-step-off and asynchronous training are tuned at every setting in their part of the GPUs, on three
values and then around the best of them; asynchronous and synchronous also in how many groups are under way, and
synchronous with the GPUs in turns or in halves. What is to run follows from what is done, so a sweep that was stopped
goes on; each result is a line, appended as it comes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

import msgspec

from benchmarks.simulation import traces
from benchmarks.simulation.run import Method, Outcome, Way, failure, simulate, split
from harness.core import Value
from harness.errors import HarnessError

RESULTS = Path(__file__).with_name("results.jsonl")
COARSE = (0.25, 0.5, 0.75)
FINE = (0.125, 0.0625)
"""Steps around the best part, one after the other; only the first where tails and balance are swept."""
ETAS = (1, 2, 4, 8)
SWEPT_ETAS = (2, 8)
SHARES: Mapping[str, float] = {"areal": 1 / 8, "verl": 1 / 4, "agentrl": 1 / 4, "tools": 1 / 4}
"""Of each place's GPUs and batch, what is simulated."""
SWEPT, SWEPT_SHARE = "areal", 1 / 16
"""Where tails and balance are swept,"""
SIZED = ("areal", "agentrl")
"""and where the number of episodes at once is."""
SIGMAS = (0.2, 0.5, None, 1.1, 1.4)
BALANCES = (0.25, 0.5, 1.0, 2.0, 4.0)
AT_ONCE = (16, 64, 256, 1024, 4096)
BATCHES = (2.0, 4.0)
"""Of synchronous training with a larger batch: another algorithm, fewer updates."""


class Setting(Value, frozen=True, kw_only=True):
    """Where ways of training are compared."""

    place: str
    share: float
    sigma: float | None = None
    """Of the lengths; None is the place's own."""
    balance: float = 1.0
    """What training costs, times the place's own."""
    batch: float = 1.0
    """Groups of an update, times the place's own."""


class Case(Value, frozen=True, kw_only=True):
    """One simulation."""

    setting: Setting
    method: Method


class Line(Value, frozen=True, kw_only=True):
    """One result."""

    case: Case
    outcome: Outcome


Done = Mapping[Case, Outcome]


def place_of(setting: Setting) -> traces.Place:
    """Return the place as it is simulated."""
    place = traces.scaled(traces.places()[setting.place], setting.share)
    if setting.sigma is not None:
        place = traces.tailed(place, setting.sigma)
    place = traces.balanced(place, setting.balance)
    return msgspec.structs.replace(place, groups=round(place.groups * setting.batch))


def main_settings() -> list[Setting]:
    """Return the places as published."""
    return [main_setting(name) for name in SHARES]


def main_setting(name: str) -> Setting:
    """Return one place as published."""
    return Setting(place=name, share=SHARES[name])


def tails() -> list[Setting]:
    """Return one place with other tails, its own among them."""
    return [Setting(place=SWEPT, share=SWEPT_SHARE, sigma=sigma) for sigma in SIGMAS]


def balances() -> list[Setting]:
    """Return one place with cheaper and dearer training, its own among them."""
    return [Setting(place=SWEPT, share=SWEPT_SHARE, balance=balance) for balance in BALANCES]


def sizes(name: str) -> list[Setting]:
    """Return one place with other numbers of episodes at once, and GPUs in proportion."""
    place = traces.places()[name]
    return [Setting(place=name, share=count / (place.groups * place.group_size)) for count in AT_ONCE]


def batches() -> list[Setting]:
    """Return the places with larger batches, for synchronous training alone."""
    return [msgspec.structs.replace(each, batch=batch) for each in main_settings() for batch in BATCHES]


def large(setting: Setting) -> Case:
    """Return the run of synchronous training with a larger batch."""
    return Case(setting=setting, method=Method(way="sync", engines=0.0))


def wanted(done: Done) -> list[Case]:
    """Return what there is to run now; what follows from it comes when it is done."""
    found: list[Case] = []
    for setting in main_settings():
        found += [*tuning(done, setting, "sync"), *tuning(done, setting, "one-step")]
        for eta in ETAS:
            found += [*tuning(done, setting, "async", eta), *extras(done, setting, eta)]
    for setting in [*tails(), *balances()]:
        found += [*tuning(done, setting, "sync"), *tuning(done, setting, "one-step")]
        for eta in SWEPT_ETAS:
            found += tuning(done, setting, "async", eta)
    found += [large(setting) for setting in batches()]
    for name in SIZED:
        for setting in sizes(name):
            found += follow(done, setting, main_setting(name))
    return [case for case in dict.fromkeys(found) if case not in done]


def tuning(done: Done, setting: Setting, way: Way, eta: int = 0) -> list[Case]:
    """Return the runs that tune one way at one setting, as far as they are known yet."""
    if way == "sync":
        alone = [(0.0, 1.0), (0.0, 0.5), (0.5, 1.0)]
        return [Case(setting=setting, method=Method(way=way, engines=part, ahead=ahead)) for part, ahead in alone]
    first = Method(way=way, eta=eta, ahead=eta + 1.0)
    cases = _parts(setting, first, COARSE, [])
    for step in FINE if setting.share == SHARES[setting.place] else FINE[:1]:
        if not all(case in done for case in cases):
            return cases
        best = max(cases, key=lambda case: done[case].rate).method
        cases += _parts(setting, first, (best.engines - step, best.engines + step), cases)
    if way == "one-step" or eta < 2 or not all(case in done for case in cases):
        return cases
    best = max(cases, key=lambda case: done[case].rate).method
    fewer = msgspec.structs.replace(best, ahead=(eta + 1) / 2)
    return [*cases, Case(setting=setting, method=fewer)]


def _parts(setting: Setting, method: Method, parts: Sequence[float], known: Sequence[Case]) -> list[Case]:
    """Return runs with other parts of the GPUs, as far as they come to other numbers of GPUs than those known."""
    place = place_of(setting)

    def generating(part: float) -> int:
        return split(place.gpus, place.engine_gpus, part)[0]

    there = {generating(case.method.engines) for case in known}
    new = {generating(part): part for part in parts if generating(part) not in there}
    return [Case(setting=setting, method=msgspec.structs.replace(method, engines=part)) for part in new.values()]


def extras(done: Done, setting: Setting, eta: int) -> list[Case]:
    """Return the runs without interruption, at what is the best with it."""
    best = tuned(done, setting, "async", eta)
    if best is None:
        return []
    return [Case(setting=setting, method=msgspec.structs.replace(best.method, interrupt=False))]


def follow(done: Done, setting: Setting, like: Setting) -> list[Case]:
    """Return the runs of each way as it is best at another setting."""
    ways: list[tuple[Way, int]] = [("sync", 0), ("one-step", 0), *(("async", eta) for eta in SWEPT_ETAS)]
    best = [case for way, eta in ways if (case := tuned(done, like, way, eta)) is not None]
    return [Case(setting=setting, method=case.method) for case in best] if len(best) == len(ways) else []


def tuned(done: Done, setting: Setting, way: Way, eta: int = 0) -> Case | None:
    """Return the run of one way that trained the most tokens a second; None while some are not done."""
    cases = tuning(done, setting, way, eta)
    if not all(case in done for case in cases):
        return None
    return max(cases, key=lambda case: done[case].rate)


def load(path: Path = RESULTS) -> dict[Case, Outcome]:
    """Return what is done."""
    if not path.exists():
        return {}
    lines = path.read_bytes().splitlines()
    return {line.case: line.outcome for line in (msgspec.json.decode(each, type=Line) for each in lines if each)}


def run_case(case: Case) -> Outcome:
    """Run one simulation. Where a deadline of the loop's own ends it, that is the result."""
    try:
        return msgspec.structs.replace(simulate(place_of(case.setting), case.method), groups=())
    except HarnessError as error:
        return failure(error)


def work(path: Path = RESULTS, processes: int = 0) -> Iterator[Case]:
    """Run all that is missing in so many processes, 0 one for each core; yield each case as it is done."""
    done, most = load(path), processes or os.cpu_count() or 1
    with path.open("ab") as file, ProcessPoolExecutor(most) as pool:
        running: dict[Future[Outcome], Case] = {}
        while True:
            for case in _new(wanted(done), running.values())[: most - len(running)]:
                running[pool.submit(run_case, case)] = case
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                case = running.pop(future)
                done[case] = future.result()
                file.write(msgspec.json.encode(Line(case=case, outcome=done[case])) + b"\n")
                file.flush()
                yield case


def _new(cases: Sequence[Case], running: Iterable[Case]) -> list[Case]:
    known = set(running)
    return [case for case in cases if case not in known]
