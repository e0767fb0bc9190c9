"""One simulated training run: `training.loop.train` as it is, with parts that only take time.

Decided here: what is measured begins once the pipeline is full, after as many updates as groups may be ahead, and ends
with the last update; a run is then cut off, so the loop's last checkpoint is never written. Synchronous training has
all GPUs for generation and then all of them for learning (or a fixed part for each); one-step-off and asynchronous
training have a fixed part for each.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import msgspec

from benchmarks.simulation import clock, costs
from benchmarks.simulation.engine import Arrival, SimulatedEngine
from benchmarks.simulation.players import TracedEnv, TracedLearner, TracedModel
from benchmarks.simulation.traces import Place
from harness import registry
from harness.core import Limits, SamplingParams, Value
from training import curriculum
from training.buffer import Buffer
from training.collect import CollectOptions, Collector, Table
from training.loop import Parts, train
from training.play import here
from training.policies import PooledSampler, PoolOptions
from training.recipe import Recipe
from training.staleness import Admission
from training.values import Metrics
from training.watch import Watch

Way = Literal["sync", "one-step", "async"]
LONG = 1e6
"""Seconds that nothing here takes."""
MEASURED = 6
"""Updates that are measured."""


class Method(Value, frozen=True, kw_only=True):
    """A way of training, tuned."""

    way: Way
    eta: int = 0
    interrupt: bool = True
    """Whether new weights arrive inside a turn."""
    engines: float = 0.5
    """Of the GPUs, those that generate; 0 shares all of them in turns, which only synchronous training can."""
    ahead: float = 1.0
    """Groups under way at once, in batches."""


class Outcome(Value, frozen=True, kw_only=True):
    """What a run was like, from its first measured update to its last."""

    seconds: float
    """Of virtual time."""
    trained: int
    """Tokens trained on."""
    learner_idle: float
    """Share of the time in which no update was computed."""
    engine_idle: float
    """Share of the GPUs' time in which they generated nothing."""
    lags: dict[int, int]
    """Versions behind to tokens of the simulation, those included that the learner drops for it."""
    most_lag: int
    """Of what the learner trained on."""
    open_episodes: int
    """At most."""
    updates: int
    groups: tuple[tuple[int, ...], ...]
    """Trained on in each update, those before the measurement included."""
    accepted: int
    """Groups that were played to their end."""
    cpu: float
    """Seconds of processor time that the simulation itself took."""
    failed: str = ""
    """Why the loop ended before its time; what is above is then nothing."""

    @property
    def rate(self) -> float:
        """Tokens trained on a second."""
        return self.trained / self.seconds if self.seconds else 0.0

    def dropped(self, eta: int) -> float:
        """Return the share of tokens that the learner drops for their lag."""
        return sum(count for lag, count in self.lags.items() if lag > eta) / max(1, sum(self.lags.values()))


def failure(error: Exception) -> Outcome:
    """Return the outcome of a run that ended with an error."""
    return Outcome(
        seconds=0.0,
        trained=0,
        learner_idle=1.0,
        engine_idle=1.0,
        lags={},
        most_lag=0,
        open_episodes=0,
        updates=0,
        groups=(),
        accepted=0,
        cpu=0.0,
        failed=str(error),
    )


class Waves(Admission, frozen=True, kw_only=True):
    """Admission of one-step-off training: a batch is begun when the one before is complete, all of it at once."""

    @property
    def capacity(self) -> int:
        """How many groups may be begun now."""
        wave = (self.accepted // self.batch + 1) * self.batch
        return min(super().capacity, wave - (self.accepted + self.running))


def simulate(place: Place, method: Method, *, seed: int = 0, measured: int = MEASURED) -> Outcome:
    """Run in virtual time."""
    gc.disable()  # it would walk through thousands of episodes again and again
    try:
        return clock.run(_simulate(place, method, seed, measured, 1.0))
    finally:
        gc.enable()


def in_real_time(
    place: Place, method: Method, *, speed: float, seed: int = 0, measured: int = MEASURED
) -> tuple[Outcome, float]:
    """Run by the clock on the wall, everything so many times as fast.

    Returns the outcome and the most by which this machine may have made it longer, both in seconds of virtual time.
    """
    found, lost = clock.run_by_the_wall(_simulate(place, method, seed, measured, speed))
    return msgspec.structs.replace(found, seconds=found.seconds * speed), lost * speed


async def _simulate(place: Place, method: Method, seed: int, measured: int, speed: float) -> Outcome:
    begun = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        run = _Run(place, method, seed, measured, speed, Path(folder))
        await run.engine.open()
        training = asyncio.ensure_future(train(run.parts))
        try:
            await asyncio.wait([training, run.over], return_when=asyncio.FIRST_COMPLETED)
        finally:
            training.cancel()
            await asyncio.wait([training])
            await run.engine.close()
        if not training.cancelled():
            training.result()
        return run.outcome(time.process_time() - begun)


class _Run:
    """The parts of a run, and what is seen of it."""

    def __init__(self, place: Place, method: Method, seed: int, measured: int, speed: float, folder: Path) -> None:
        eta = {"sync": 0, "one-step": 1, "async": method.eta}[method.way]
        generating, learning = split(place.gpus, place.engine_gpus, method.engines)
        engines = generating // place.engine_gpus
        switch = place.switch_seconds if method.engines == 0 else 0.0
        decode = costs.decode(place.model, place.gpu, place.engine_gpus).hastened(speed)
        arrival: Arrival = "episode" if method.way == "one-step" else "interrupt" if method.interrupt else "turn"
        self.over = asyncio.get_running_loop().create_future()
        self.engine = SimulatedEngine(decode, engines, place.grain, place.update_seconds / speed, arrival)
        self.learner = TracedLearner(place, learning, switch_seconds=switch, speed=speed)
        self._engines = engines
        self._first = eta + 2
        self._last = self._first + measured
        self._seen: dict[int, Metrics] = {}
        self._at: dict[int, tuple[float, float, float]] = {}
        recipe = Recipe(
            name=place.title,
            envs={world.name: {} for world in place.envs},
            steps=self._last + 1,
            groups=place.groups,
            eta=eta,
            running=max(1, round(method.ahead * place.groups)),
            seed=seed,
            checkpoint_every=self._last + 1,
            collect=CollectOptions(
                group_size=place.group_size,
                params=SamplingParams(temperature=1.0, top_p=1.0),
                limits=Limits(seconds=None),
                group_seconds=LONG,
                batch_seconds=LONG,
                seed=seed,
            ),
            pools=PoolOptions(stale_ratio=0.0, depth=0),
        )
        self.parts = self._parts(place, recipe, method.way, folder, speed)

    def _parts(self, place: Place, recipe: Recipe, way: Way, folder: Path, speed: float) -> Parts:
        sampler = PooledSampler([self.engine], recipe.pools, folder)
        model: Any = TracedModel(place, sampler)
        envs = {world.name: TracedEnv(world, speed) for world in place.envs}
        admission = (Waves if way == "one-step" else Admission)(
            batch=recipe.groups, eta=recipe.eta, max_running=recipe.running
        )
        collector = Collector(
            Table(
                envs=envs,
                play=here(envs, registry.make_agent("direct"), model),
            ),
            recipe.collect,
            recipe.curriculum,
            admission=admission,
            curriculum=curriculum.begin([world.name for world in place.envs], recipe.curriculum),
            buffer=Buffer(recipe.groups, (recipe.eta + 1) * recipe.groups),
            watch=Watch(),
        )
        return Parts(
            recipe=recipe,
            folder=folder,
            forks=lambda: model.forks,
            sampler=sampler,
            learner=self.learner,
            gold=lambda version: [],
            collector=collector,
            version=0,
            record=self._record,
            scored=lambda version, weights: None,
            pinned=list,
            gone=(),
            lags=list,
        )

    def _record(self, version: int, metrics: Metrics) -> None:
        self._seen[version] = metrics
        self._at[version] = (asyncio.get_running_loop().time(), self.learner.busy, self.engine.busy)
        if version == self._last and not self.over.done():
            self.over.set_result(None)

    def outcome(self, cpu: float) -> Outcome:
        """Return what was seen from the first measured update to the last."""
        begun, end = self._at[self._first], self._at[self._last]
        seconds, learning, generating = (after - before for after, before in zip(end, begun, strict=True))
        measured = [self._seen[version] for version in range(self._first + 1, self._last + 1)]
        lags: Counter[int] = Counter()
        for metrics in measured:
            lags.update({int(name.rsplit("/", 1)[1]): n for name, n in metrics.items() if is_lag(name)})
        return Outcome(
            seconds=seconds,
            trained=sum(metrics["tokens/trained"] for metrics in measured),
            learner_idle=1 - learning / seconds,
            engine_idle=1 - generating / (seconds * self._engines),
            lags=dict(sorted(lags.items())),
            most_lag=self.learner.most_lag,
            open_episodes=self.engine.most_open,
            updates=len(measured),
            groups=tuple(self.learner.groups),
            accepted=self.parts.collector.admission.accepted,
            cpu=cpu,
        )


def is_lag(name: str) -> bool:
    """Say whether a metric is a number of tokens that lag so far."""
    return name.startswith("lag/trained/0/") and name.rsplit("/", 1)[1].isdigit()


def split(gpus: int, engine: int, engines: float) -> tuple[int, int]:
    """Return how many GPUs generate, in whole engines, and how many learn; all do both where no part is given."""
    if engines == 0:
        return gpus, gpus
    generating = engine * min((gpus - 1) // engine, max(1, round(gpus * engines / engine)))
    return generating, gpus - generating
