"""The simulator: costs as they were measured, an engine that shares its steps, and the loop's promises kept."""

from __future__ import annotations

import asyncio
import statistics
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import simulation
from benchmarks.simulation import clock, costs, report, sweep, traces
from benchmarks.simulation.costs import Decode, Gpu, LearnerCost, Network
from benchmarks.simulation.engine import Arrival, SimulatedEngine
from benchmarks.simulation.run import Method, Outcome, in_real_time, simulate, split
from benchmarks.simulation.traces import Place, Spread, World
from harness.models.sampler import Request, Sampled

DECODE = Decode(step=0.01, sequence=0.001, cached=0.0, prompt=0.0001, room=1e6)
SMALL = Place(
    title="small",
    source="",
    published=(),
    gpus=4,
    groups=4,
    group_size=2,
    minibatches=2,
    engine_gpus=1,
    sequence_gpus=1,
    grain=16,
    switch_seconds=1.0,
    update_seconds=0.2,
    gpu=Gpu(terabytes_a_second=3.35, teraflops=989.0, cache_gigabytes=50.0),
    model=Network(billions=8.19, cache_bytes=147456),
    learner=LearnerCost(utilisation=0.4, flops=40),
    envs=(
        World(
            name="talk",
            turns=Spread(mean=4, sigma=0.6, most=12),
            tokens=Spread(mean=200, sigma=0.8, most=1024),
            opening_tokens=512,
            seen_tokens=64,
            start_seconds=0.3,
            step_seconds=Spread(mean=0.5, sigma=1.0, most=10.0),
        ),
        World(
            name="think",
            turns=Spread(mean=1, sigma=0.0, most=1),
            tokens=Spread(mean=800, sigma=1.0, most=8192),
            opening_tokens=256,
            seen_tokens=0,
            start_seconds=0.0,
            step_seconds=Spread(mean=0.0, sigma=0.0, most=0.0),
        ),
    ),
)
METHODS = [
    Method(way="sync", engines=0.0),
    Method(way="sync", engines=0.5),
    Method(way="one-step"),
    *(
        Method(way="async", eta=eta, interrupt=interrupt, ahead=eta + 1)
        for eta in (1, 4)
        for interrupt in (True, False)
    ),
]


def test_time_jumps_and_threads_are_done_in_place() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        seen = [loop.time()]
        await asyncio.gather(asyncio.sleep(7200), asyncio.sleep(3600))
        seen.append(loop.time())
        seen.append(await asyncio.to_thread(loop.time))
        with pytest.raises(KeyError):
            await asyncio.to_thread({}.__getitem__, "nothing")
        return seen

    assert clock.run(main()) == [0.0, 7200.0, 7200.0]


def test_the_decode_curve_is_what_was_measured() -> None:
    curve = costs.measured()
    for point in costs.points():
        fitted = 1000 * curve.seconds(point.concurrency, point.concurrency * point.length)
        assert fitted == pytest.approx(point.milliseconds, rel=0.06), point
    assert costs.misfit() < 0.02
    gpu = Gpu(terabytes_a_second=3.35, teraflops=989.0, cache_gigabytes=1)
    same = costs.decode(Network(billions=8.19, cache_bytes=147456), gpu, 1)
    assert same[:4] == pytest.approx(curve[:4])


def test_a_smaller_model_and_more_gpus_decode_faster() -> None:
    gpu = Gpu(terabytes_a_second=3.35, teraflops=989.0, cache_gigabytes=50.0)
    small, large = Network(billions=1.5, cache_bytes=28672), Network(billions=14.8, cache_bytes=196608)
    one, four = costs.decode(large, gpu, 1), costs.decode(large, gpu, 4)
    assert costs.decode(small, gpu, 1).seconds(64, 64_000) < four.seconds(64, 64_000) < one.seconds(64, 64_000)
    assert four.room == 4 * one.room
    assert four.seconds(64, 64_000) > one.seconds(64, 64_000) / 4, "what is not read or computed is not shared"


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=60), st.integers(1, 16), st.integers(1, 4))
def test_an_update_takes_no_less_than_its_work_and_its_longest_sequence(
    lengths: list[int], gpus: int, together: int
) -> None:
    seconds = costs.update_seconds(lengths, 1, gpus, together, 1.0)
    shared = min(together, gpus)
    least = max(sum(lengths) / (gpus // shared * shared), max(lengths) / shared)
    assert least <= seconds + 1e-9
    assert seconds <= 2 * least + 1e-9, "sequences are spread"
    assert costs.update_seconds(lengths, 4, gpus, together, 1.0) >= seconds - 1e-9


@pytest.mark.parametrize("sigma", [0.0, 0.3, 0.8, 1.4])
def test_lengths_have_the_mean_that_is_named_however_heavy_the_tail(sigma: float) -> None:
    place = traces.tailed(traces.places()["areal"], sigma)
    (world,) = place.envs
    lengths = [traces.draw(place, world, f"t{n}", n)[0].tokens * place.grain for n in range(4000)]
    assert statistics.mean(lengths) == pytest.approx(world.tokens.mean, rel=0.05)
    assert max(lengths) <= world.tokens.most + place.grain


def test_an_episode_is_its_seed_and_its_task() -> None:
    world = SMALL.envs[0]
    assert traces.draw(SMALL, world, "a", 1) == traces.draw(SMALL, world, "a", 1)
    assert traces.draw(SMALL, world, "a", 1) != traces.draw(SMALL, world, "a", 2)
    spread = [len(traces.draw(SMALL, world, "a", seed)) for seed in range(200)]
    wider = [len(traces.draw(SMALL, world, f"t{seed}", seed)) for seed in range(200)]
    assert statistics.pvariance(spread) < statistics.pvariance(wider), "attempts at one task are alike"


Played = list[tuple[Sampled, float]]


def play(requests: list[Request], updates: dict[float, int], arrival: Arrival = "interrupt") -> Played:
    """Return what an engine of one replica sampled, and when, with new weights arriving at given seconds."""

    async def main() -> Played:
        engine = SimulatedEngine(DECODE, 1, 1, 0.5, arrival)
        await engine.open()
        loop = asyncio.get_running_loop()

        async def one(request: Request) -> tuple[Sampled, float]:
            sampled = await engine.sample(request)
            at = loop.time()
            await engine.release(request.episode)
            return sampled, at

        async def updated(at: float, version: int) -> None:
            await asyncio.sleep(at)
            await engine.update("", version)

        changes = [asyncio.ensure_future(updated(at, version)) for at, version in updates.items()]
        found = await asyncio.gather(*(one(request) for request in requests))
        await asyncio.gather(*changes)
        await engine.close()
        return found

    return clock.run(main())


def request(episode: str, tokens: int, prompt: int = 0) -> Request:
    return Request(episode=episode, prompt_ids=(0,) * prompt, max_tokens=tokens)


def test_turns_share_each_step() -> None:
    ((_, alone),) = play([request("a", 100)], {})
    assert alone == pytest.approx(100 * 0.011)
    (_, short), (_, long) = play([request("a", 100), request("b", 200)], {})
    assert short == pytest.approx(100 * 0.012)
    assert long == pytest.approx(100 * 0.012 + 100 * 0.011)
    ((_, after),) = play([request("a", 100, prompt=1000)], {})
    assert after == pytest.approx(0.1 + 100 * 0.011)


def test_new_weights_arrive_inside_a_turn_and_cost_a_new_cache() -> None:
    ((sampled, at),) = play([request("a", 100)], {0.5555: 1})
    assert sampled.versions == (0,) * 51 + (1,) * 49
    held = 50.5 * DECODE.prompt
    assert at == pytest.approx(1.1 + 0.5 + held)


def test_without_interruption_a_turn_is_of_one_version_and_the_next_waits() -> None:
    first, second = play([request("a", 100), request("b", 200)], {0.1: 1}, "turn")
    assert set(first[0].versions) == set(second[0].versions) == {0}
    later = play([request("a", 100)], {0.1: 1, 0.2: 2}, "turn")
    assert set(later[0][0].versions) == {0} and later[0][1] == pytest.approx(1.1)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 300), st.integers(0, 200)), min_size=1, max_size=12),
    st.lists(st.floats(0.01, 5.0), max_size=3, unique=True),
    st.sampled_from(["interrupt", "turn", "episode"]),
)
def test_every_turn_is_sampled_whole_and_never_faster_than_alone(
    turns: list[tuple[int, int]], updates: list[float], arrival: Arrival
) -> None:
    requests = [request(f"e{place}", tokens, prompt) for place, (tokens, prompt) in enumerate(turns)]
    found = play(requests, {at: place + 1 for place, at in enumerate(sorted(updates))}, arrival)
    for (tokens, prompt), (sampled, at) in zip(turns, found, strict=True):
        assert len(sampled.ids) == len(sampled.versions) == tokens
        assert list(sampled.versions) == sorted(sampled.versions)
        assert at >= tokens * 0.011 + prompt * DECODE.prompt - 1e-6
        if arrival != "interrupt":
            assert len(set(sampled.versions)) == 1


def plain(outcome: Outcome) -> Outcome:
    """Return an outcome without what depends on the machine."""
    return msgspec.structs.replace(outcome, cpu=0.0)


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_groups_are_trained_once_and_no_token_beyond_its_budget(method: Method) -> None:
    found = simulate(SMALL, method, measured=4)
    eta = {"sync": 0, "one-step": 1}.get(method.way, method.eta)
    trained = [group for update in found.groups for group in update]
    assert all(len(update) == SMALL.groups for update in found.groups)
    assert len(set(trained)) == len(trained)
    assert 0 <= found.accepted - len(trained) <= (eta + 1) * SMALL.groups, (
        "what is not trained on waits, within its bound"
    )
    assert max(trained) < (eta + len(found.groups)) * SMALL.groups, "nothing is begun ahead of the admission rule"
    assert found.most_lag <= eta
    assert found.trained == SMALL.grain * sum(count for lag, count in found.lags.items() if lag <= eta)
    assert 0 <= found.learner_idle <= 1 and 0 <= found.engine_idle <= 1
    assert found.open_episodes <= (eta + 1) * SMALL.groups * SMALL.group_size


def test_one_step_off_is_batch_after_batch_one_version_behind() -> None:
    found = simulate(SMALL, Method(way="one-step"), measured=4)
    expected = [tuple(range(at, at + SMALL.groups)) for at in range(0, SMALL.groups * len(found.groups), SMALL.groups)]
    assert list(found.groups) == expected
    assert set(found.lags) == {1}


def test_no_lag_allowed_is_synchronous_training() -> None:
    sync = simulate(SMALL, Method(way="sync", engines=0.5), measured=4)
    none = simulate(SMALL, Method(way="async", eta=0, engines=0.5), measured=4)
    assert plain(sync) == plain(none)
    assert set(sync.lags) == {0}
    assert sync.learner_idle > 0.2 and sync.engine_idle > 0.2, "each waits for the other"


def test_a_seed_says_everything() -> None:
    method = Method(way="async", eta=2, ahead=3)
    first, again, other = (plain(simulate(SMALL, method, seed=seed, measured=2)) for seed in (3, 3, 4))
    assert first == again
    assert first.seconds != other.seconds


def test_dear_training_keeps_the_learner_busy_and_cheap_training_the_engines() -> None:
    method = Method(way="async", eta=4, ahead=5)
    dear = simulate(traces.balanced(SMALL, 40.0), method, measured=4)
    cheap = simulate(traces.balanced(SMALL, 0.01), method, measured=4)
    assert dear.learner_idle < 0.05 < dear.engine_idle
    assert cheap.engine_idle < 0.05 < cheap.learner_idle


@pytest.mark.slow
@pytest.mark.parametrize("method", [METHODS[0], METHODS[2], METHODS[5]], ids=str)
def test_a_simulated_run_takes_as_long_as_a_real_one(method: Method) -> None:
    virtual = simulate(SMALL, method, measured=4)
    real, lost = in_real_time(SMALL, method, speed=virtual.seconds / 6, measured=4)
    if lost > 0.2 * real.seconds:
        pytest.skip(f"this machine is too busy to keep time: {lost / real.seconds:.0%} of it was lost")
    assert 0.95 * virtual.seconds <= real.seconds <= 1.05 * virtual.seconds + lost
    assert real.trained == pytest.approx(virtual.trained, rel=0.05)
    assert real.learner_idle == pytest.approx(virtual.learner_idle, abs=0.05 + lost / real.seconds)


def test_gpus_are_split_in_whole_engines() -> None:
    assert split(16, 4, 0.5) == (8, 8)
    assert split(16, 4, 0.3) == (4, 12)
    assert split(16, 4, 0.99) == (12, 4)
    assert split(8, 1, 0.0) == (8, 8)
    assert split(2, 1, 0.75) == (1, 1)


def outcome(rate: float) -> Outcome:
    return Outcome(
        seconds=1.0,
        trained=round(rate),
        learner_idle=0.1,
        engine_idle=0.2,
        lags={0: 3, 1: 1},
        most_lag=1,
        open_episodes=1,
        updates=1,
        groups=(),
        accepted=1,
        cpu=0.1,
    )


@pytest.fixture(scope="module")
def everything() -> dict[sweep.Case, Outcome]:
    """Return a whole sweep whose best split is 0.625 for whoever has engines of its own."""
    done: dict[sweep.Case, Outcome] = {}
    while missing := sweep.wanted(done):
        for case in missing:
            method = case.method
            near = 1 - abs(method.engines - 0.625) - (method.ahead < method.eta + 1) - (not method.interrupt)
            done[case] = outcome(1000 * (1 + method.eta) * (1 + near) if method.way != "sync" else 1000)
    return done


def test_ways_are_tuned_around_their_best_and_without_interruption_at_the_best(
    everything: dict[sweep.Case, Outcome],
) -> None:
    setting = sweep.main_settings()[0]
    best = sweep.tuned(everything, setting, "async", 4)
    assert best is not None and best.method == Method(way="async", eta=4, engines=0.625, ahead=5.0)
    halted = msgspec.structs.replace(best.method, interrupt=False)
    assert sweep.Case(setting=setting, method=halted) in everything
    assert sweep.tuned({}, setting, "async", 4) is None
    assert sweep.wanted({}) and not sweep.wanted(everything)


def test_the_report_says_who_is_best_where_and_what_is_missing(
    everything: dict[sweep.Case, Outcome], tmp_path: Path
) -> None:
    said = report.text(everything)
    for place in traces.places().values():
        assert f"| {place.title} |" in said
    assert "still to run" not in said and "Not run yet" not in said
    best = everything[report.compared(everything, sweep.main_settings()[0], sweep.ETAS).asynchronous]  # type: ignore[union-attr]
    assert f"| 8 | {best.rate / 1000:.2f} |" in said
    assert "At least 2.80 over synchronous: areal; " in said
    assert "idle for at most 5.0 %: nowhere" in said
    drawn = report.draw(everything, tmp_path)
    assert sorted(path.name for path in drawn) == ["balance.svg", "episodes.svg", "eta.svg", "tail.svg"]
    assert all(path.read_text().startswith("<svg") for path in drawn)
    nothing = report.text({})
    assert "still to run" in nothing and "Not run yet" in nothing
    assert report.draw({}, tmp_path / "none") == []


def test_a_finished_sweep_runs_nothing(everything: dict[sweep.Case, Outcome], tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    lines = [msgspec.json.encode(sweep.Line(case=case, outcome=found)) for case, found in everything.items()]
    path.write_bytes(b"\n".join(lines) + b"\n")
    assert sweep.load(path) == everything
    assert list(sweep.work(path, processes=1)) == []


@pytest.mark.parametrize("words", [["walk"], ["run", "two"], ["run", "1", "2"]])
def test_other_words_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert simulation.command(words) == 2
    assert "simulation [run" in capsys.readouterr().err


@pytest.mark.parametrize("name", sweep.SHARES)
def test_committed_places_are_whole(name: str) -> None:
    place = traces.places()[name]
    assert place.source and 0 < sweep.SHARES[name] <= 1
    assert place.gpus % place.engine_gpus == 0
    assert all(spread.mean <= spread.most for world in place.envs for spread in (world.turns, world.tokens))
    scaled = traces.scaled(place, sweep.SHARES[name])
    assert scaled.gpus * place.groups == scaled.groups * place.gpus
