"""The experiments' machinery: the table, what is run and when, what is written, and what is made of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.training import controls, measure, orders, plots, runner, section
from benchmarks.training import lines as results
from benchmarks.training.command import planned, program, wanted, with_needed
from benchmarks.training.lines import Curve, Line, Scored
from benchmarks.training.runner import Runner
from benchmarks.training.statistics import effect
from benchmarks.training.table import EXPERIMENTS, FIVE, SMOKE, THREE, TUNING, Arm, Experiment, named
from harness.errors import SetupError
from tests.training.making import attempt, group
from training import begin
from training import curriculum as choosing
from training import recipe as recipes
from training.policies import PoolOptions

WARM = Arm(name="warm start", kind="warm")
PLAIN = Arm(name="plain")
SMALL = Experiment(
    name="small",
    asks="?",
    arms=(
        WARM,
        PLAIN,
        Arm(name="slow", above={"eta": 0}),
        Arm(name="slow, equal time", above={"eta": 0}, of="slow", seconds_of="plain"),
        Arm(name="control", kind="sft", seconds_of="plain"),
    ),
    against=(("plain", "slow"), ("plain", "control")),
    seeds=(1, 2, 3),
    warmed=None,
    tasks=40,
    temperatures=(0.0,),
)
FAKE = """
import json, pathlib, sys
place = pathlib.Path(sys.argv[1])
job = json.loads(place.read_text())
with (place.parent.parent / "calls").open("a") as calls:
    told = [job["kind"], job["above"].get("eta"), job["seed"], job["seconds"], job["steps"], job["cores"]]
    calls.write(" ".join(map(str, told)) + "\\n")
if (place.parent.parent / f"broken-{job['kind']}").exists():
    sys.exit("SetupError: it does not work")
if job["kind"] == "warm":
    (place.parent / "base").mkdir(exist_ok=True)
    (place.parent / "base" / "weights").write_text("w")
assert job["base"] is None or (pathlib.Path(job["base"]) / "weights").read_text() == "w"
wins = [int((task * 7 + job["seed"]) % 10 < (6 if job["kind"] == "train" else 3)) for task in range(job["tasks"])]
score = {"env": "kg", "split": "test", "epochs": 1, "successes": wins, "tasks_digest": "d"}
score["temperature"] = job["temperatures"][0]
pace = 20.0 if job["above"].get("eta") == 0 else 10.0
curve = {"seconds": [pace * n for n in range(1, 6)], "samples": [8, 16, 24, 32, 40], "values": [0.1] * 5}
out = {"seconds": 5 * pace, "sittings": 1, "figures": {"updates": 5}, "scores": [score], "reward": curve}
place.with_name("outcome.json").write_text(json.dumps(out))
"""


def line(key: str, seed: int, wins: list[int], **changed: object) -> Line:
    score = Scored(env="kg", split="test", temperature=0.0, epochs=1, successes=tuple(wins), tasks_digest="d")
    values: dict[str, object] = {
        "key": key, "kind": "train", "recipe": "micro", "above": {}, "seed": seed, "command": "c", "commit": "0",
        "at": "2026-01-01", "load": (0.1, 0.2), "cores": 2, "sittings": 1, "seconds": 60.0, "wall_seconds": 120.0,
        "peak_mb": 900.0, "scores": (score,),
    }  # fmt: skip
    return Line(**{**values, **changed})  # type: ignore[arg-type]


def test_every_arm_of_the_table_is_a_recipe_that_can_be_read() -> None:
    for experiment in (*EXPERIMENTS, *SMOKE):
        names = [arm.name for arm in experiment.arms]
        assert len(set(names)) == len(names)
        for place, arm in enumerate(experiment.arms):
            recipe = orders.resolved(experiment.recipe, orders.laid(experiment.above, arm.above), experiment.seeds[0])
            assert recipe.seed == experiment.seeds[0]
            assert choosing.begin(list(recipe.envs), recipe.curriculum, recipe.shown).envs.keys() == recipe.envs.keys()
            assert (arm.kind == "rejection" and not arm.best_of) == (arm.played is not None)
            assert {arm.of, arm.seconds_of} - {None} <= set(names[:place]), "what an arm goes by is run before it"
            msgspec.convert({"depth": 1, **arm.sampled}, PoolOptions)
        assert {name for pair in experiment.against for name in pair} <= set(names)
        assert all(other in [each.name for each in EXPERIMENTS] for other in experiment.after)


def test_seeds_are_declared_and_the_sweep_has_one_of_its_own() -> None:
    for experiment in EXPERIMENTS:
        sweeps = {"sweep", "iteration_sweep"}
        seeds = TUNING if experiment.name in sweeps else THREE if experiment.recipe == "tiny" else FIVE
        assert experiment.seeds == seeds
    assert len(THREE) == 3 and len(FIVE) == 5 and not set(TUNING) & {*THREE, *FIVE}
    tiny = named("tiny")
    assert tiny.tasks >= 200 and set(tiny.temperatures) == {0.0, 1.0}
    assert named("sweep").split == "validation"


def test_arms_that_do_the_same_are_one_run_and_others_never_are() -> None:
    def key(experiment: Experiment, arm: str = "as the recipe", seed: int = 21) -> str:
        return orders.keys(msgspec.structs.replace(experiment, seeds=(seed,)), arm, {})[seed]

    plain = key(named("async"))
    sharing = ("pass_at_k", "cross_policy", "stale_interval", "stale_kl", "weighting")
    assert {key(named(name)) for name in sharing} == {plain}
    others = [
        key(named("async"), seed=22),
        key(named("async"), "synchronous"),
        key(named("async"), "synchronous, equal time"),
        key(named("pass_at_k"), "mixed 1:1"),
        key(msgspec.structs.replace(named("async"), tasks=99)),
        key(msgspec.structs.replace(named("async"), recipe="tiny")),
    ]
    assert len({plain, *others}) == 1 + len(others)
    bases = {order.base for order in orders.orders(named("corrections"), {})} - {None}
    assert len(bases) == 1, "all arms and seeds of micro begin with the same warm start"
    own = [msgspec.structs.replace(named("async"), warmed=None, seeds=(seed,)) for seed in (21, 22)]
    assert len({order.base for each in own for order in orders.orders(each, {})} - {None}) == 2


@pytest.mark.parametrize(
    ("name", "after", "best"),
    [
        ("tiny", "sweep", {"continued SFT": "sft 0.003", "rejection-sampled SFT": "rejection 0.001, 80% play"}),
        ("iteration", "iteration_sweep", {"expert iteration": "iteration 0.0003"}),
    ],
)
def test_what_is_tuned_waits_for_its_sweep_and_takes_what_was_best_on_validation(
    name: str, after: str, best: dict[str, str]
) -> None:
    tuned, sweep = named(name), named(after)
    assert {order.kind for order in orders.orders(tuned, {})} == {"warm", "train"}
    done = {}
    for arm in sweep.arms:
        for seed, key in orders.keys(sweep, arm.name, {}).items():
            good = arm.name in best.values()
            scores = [
                Scored(
                    env="kg", split="validation", temperature=t, epochs=1, successes=(1, int(good)), tasks_digest="d"
                )
                for t in sweep.temperatures
            ]
            done[key] = line(key, seed, [], scores=tuple(scores))
    controls = [order for order in orders.orders(tuned, done) if order.kind not in {"warm", "train"}]
    found = {order.arm: (order.above["learner"]["lr"], order.played) for order in controls}
    chosen = {arm: sweep.arm(name) for arm, name in best.items()}
    assert found == {arm: (one.above["learner"]["lr"], one.played) for arm, one in chosen.items()}
    assert with_needed([name], EXPERIMENTS) == [sweep, tuned]
    assert "warm" in {order.kind for order in orders.orders(sweep, {})}
    assert "warm" not in {order.kind for order in orders.orders(sweep, done)}, "nothing is left to begin with it"


def test_a_control_is_known_by_what_it_depends_on_and_training_by_all_of_it() -> None:
    small = msgspec.structs.replace(SMALL, seeds=(1,))

    def keys(**above: object) -> dict[str, str]:
        changed = msgspec.structs.replace(small, above=above)
        return {name: orders.keys(changed, name, {})[1] for name in ("warm start", "plain", "control")}

    def control(seconds: float, **above: object) -> str:
        arm = Arm(name="control", kind="sft", seconds=seconds, above=above)
        (key,) = orders.keys(msgspec.structs.replace(small, arms=(arm,), against=()), "control", {}).values()
        return key

    assert keys(learner={"epochs": 3})["plain"] != keys()["plain"]
    assert keys(learner={"epochs": 3})["control"] != keys()["control"], "its seconds are another run's"
    assert control(50) == control(50, learner={"epochs": 3, "loss": {"objective": "gspo"}}, steps=3, groups=5)
    assert len({control(50), control(51), control(50, learner={"lr": 1e-5}), control(50, running=3)}) == 4
    assert keys(learner={"epochs": 3}, running=3)["warm start"] == keys()["warm start"]


@pytest.mark.parametrize("words", ["nosuch", "training nosuch", "training --wrong", "training tiny --jobs many"])
def test_wrong_words_are_told_in_a_sentence(words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *words.split()], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr and words.split()[-1] in done.stderr


def test_environments_are_replaced_and_other_tables_are_laid_over() -> None:
    below = {"envs": {"kg": {"difficulty": 0}}, "learner": {"lr": 1, "minibatches": 2}}
    assert orders.laid(below, {"envs": {"db": {}}, "learner": {"lr": 3}}) == {
        "envs": {"db": {}},
        "learner": {"lr": 3, "minibatches": 2},
    }
    course = {"shares": {"kg": 2, "db": 1}, "horizon": {"kg": [[0, 8]]}, "first": 3}
    assert orders.laid({"curriculum": course}, {"envs": {"db": {}}}) == {
        "envs": {"db": {}},
        "curriculum": {"shares": {"db": 1}, "horizon": {}, "first": 3},
    }
    assert orders.resolved("micro", {"tan": {}}, 1).tan is not None
    with pytest.raises(SetupError, match=r"unknown setting 'learner\.rate'"):
        orders.resolved("micro", {"learner": {"rate": 1}}, 1)
    with pytest.raises(SetupError, match="there is no experiment 'asinc'; did you mean 'async'"):
        named("asinc")


def test_lines_come_back_and_a_torn_one_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "micro.jsonl"
    results.append(path, line("a", 1, [1, 0]))
    with path.open("ab") as file:
        file.write(b'{"key": "b", "ki')
    assert set(results.read(tmp_path)) == {"a"}
    results.append(path, line("b", 2, [1, 1]))
    results.append(path, line("a", 1, [1, 1]))
    found = results.read(tmp_path)
    assert {key: each.success(0.0) for key, each in found.items()} == {"a": 1.0, "b": 1.0}
    path.write_bytes(b"{}\n" + path.read_bytes())
    with pytest.raises(SetupError, match="line 1 is damaged"):
        results.read(tmp_path)


def fake(folder: Path, jobs: int = 1) -> Runner:
    script = folder / "fake.py"
    script.write_text(FAKE)
    return Runner(folder / "results", folder / "work", jobs, lambda _: None, (sys.executable, "-S", str(script)))


def calls(folder: Path) -> list[str]:
    path = folder / "work" / "calls"
    found = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return found


def test_each_run_is_made_once_and_what_failed_is_tried_again(tmp_path: Path) -> None:
    small = msgspec.structs.replace(SMALL, seeds=(1,))
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "broken-train").touch()
    failed = fake(tmp_path).perform(orders.orders(small, {}))
    assert len([each for each in failed if "it does not work" in each]) == 2
    assert len([each for each in failed if "waits for a run that failed" in each]) == 2
    assert [call.split()[0] for call in calls(tmp_path)] == ["warm", "train", "train"]
    (tmp_path / "work" / "broken-train").unlink()
    work = fake(tmp_path)
    assert work.perform(orders.orders(small, work.lines)) == []
    made = calls(tmp_path)
    assert [call.split()[:2] for call in made[:2]] == [["train", "None"], ["train", "0"]], "the warm start is there"
    assert "train 0 1 50.0 2" in made[2], "two updates had been made when the other arm's seconds were over"
    assert "sft None 1 50.0 None" in made[3], "a control has the seconds of the arm that it is compared with"
    again = fake(tmp_path)
    assert again.perform(orders.orders(small, again.lines)) == [] and calls(tmp_path) == []
    assert all(each.commit and each.cores >= 1 for each in again.lines.values())


def test_two_runs_at_once_share_the_cores(tmp_path: Path) -> None:
    assert runner.shared([0, 1, 2, 3], 2) == [(0, 2), (1, 3)] and runner.shared([5], 2) == [(5,), (5,)]
    (tmp_path / "work").mkdir()
    work = fake(tmp_path, jobs=2)
    assert work.perform(orders.orders(msgspec.structs.replace(SMALL, seeds=(1, 2)), {})) == []
    assert len({call.partition("[")[2] for call in calls(tmp_path)}) == len(set(runner.shared(sorted(_cores()), 2)))


def test_all_of_one_seed_is_made_before_the_next_and_nothing_before_what_it_needs(tmp_path: Path) -> None:
    small = msgspec.structs.replace(SMALL, seeds=(1, 2))
    (tmp_path / "work").mkdir()
    work = fake(tmp_path)
    assert work.perform(orders.orders(small, {})) == []
    assert [call.split()[2] for call in calls(tmp_path)] == ["1"] * 5 + ["2"] * 5
    warm, plain = (orders.keys(small, name, {})[1] for name in ("warm start", "plain"))
    shutil.rmtree(work.folder(warm))
    again = fake(tmp_path, jobs=2)
    del again.lines[plain]
    assert again.perform(orders.orders(small, again.lines)) == []
    assert [call.split()[0] for call in calls(tmp_path)] == ["warm", "train"], "its weights are made anew, and first"


def test_a_warm_start_of_all_seeds_is_kept_beside_the_results_and_begun_with_again(tmp_path: Path) -> None:
    shared = msgspec.structs.replace(SMALL, seeds=(1, 2), warmed=20)
    (tmp_path / "work").mkdir()
    work = fake(tmp_path)
    assert work.perform(orders.orders(shared, {})) == []
    assert [call.split()[0] for call in calls(tmp_path)].count("warm") == 1
    (kept,) = (tmp_path / "results" / "begun").iterdir()
    assert kept.name == orders.keys(shared, "warm start", {})[1] and work.base(kept.name) == kept
    shutil.rmtree(tmp_path / "work")
    (tmp_path / "work").mkdir()
    longer = msgspec.structs.replace(shared, arms=(*shared.arms, Arm(name="new", above={"eta": 5})))
    again = fake(tmp_path)
    assert again.perform(orders.orders(longer, again.lines)) == []
    assert [call.split()[:2] for call in calls(tmp_path)] == [["train", "5"]] * 2, "as on another machine, a year later"


def test_training_that_is_made_again_for_its_weights_alone_keeps_its_first_line(tmp_path: Path) -> None:
    shared = msgspec.structs.replace(SMALL, seeds=(1,), warmed=20)
    (tmp_path / "work").mkdir()
    work = fake(tmp_path)
    assert work.perform(orders.orders(shared, {})) == [] and len(calls(tmp_path)) == 5
    plain = orders.keys(shared, "plain", {})[1]
    told = msgspec.structs.replace(work.lines[plain], seconds=7.0, at="2026-01-01T00:00:00+00:00")
    results.append(tmp_path / "results" / "micro.jsonl", told)
    shutil.rmtree(tmp_path / "work")
    (tmp_path / "work").mkdir()
    sampling = msgspec.structs.replace(shared, arms=(*shared.arms, Arm(name="new", kind="sample", of="plain")))
    again = fake(tmp_path)
    assert again.perform(orders.orders(sampling, again.lines)) == []
    assert [call.split()[0] for call in calls(tmp_path)] == ["train", "sample"], "its weights were gone"
    assert again.lines[plain] == fake(tmp_path).lines[plain] == told


def test_runs_that_began_with_different_weights_are_not_compared() -> None:
    table = {"plain": {"began": "a"}, "slow": {"began": "b"}, "control": {}}
    found = {}
    for arm, changed in table.items():
        for seed, key in orders.keys(SMALL, arm, {}).items():
            same = {"began": "a"} if changed and seed == 3 else changed
            found[key] = line(key, seed, [1, 0, 1] * 13 + [1], **same)
    slow, control = (each for each in section.story(SMALL, found, (SMALL,)).compared)
    assert slow.effect is None, "two of three seeds are of another warm start"
    assert control.effect is not None and control.effect.seeds == 3, "of old lines nothing is known"


def _cores() -> set[int]:
    import os

    return os.sched_getaffinity(0)


def test_a_process_is_ended_with_all_that_it_began() -> None:
    script = """
import subprocess, sys, time
held = bytes(range(256)) * 200_000
child = "held = bytes(range(256)) * 100_000; print('up', flush=True); import time; time.sleep(60)"
subprocess.Popen([sys.executable, "-S", "-c", child])
try:
    time.sleep(60)
except KeyboardInterrupt:
    pass
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None and process.stdout.readline()
    children = runner.descendants(process.pid)
    assert children and runner.memory(process.pid) > (51.2 + 25.6) / 1.05
    runner.end(process)
    process.stdout.close()
    until = time.monotonic() + 10
    while set(children) & set(runner.processes()) and time.monotonic() < until:
        time.sleep(0.05)
    assert process.returncode is not None and not set(children) & set(runner.processes())


def test_the_figures_of_a_run_are_read_from_its_lines(tmp_path: Path) -> None:
    def update(version: int, seconds: float, **more: object) -> str:
        values = {"version": version, "seconds": seconds, "ess": 0.5, "reward/mean": 0.1 * version, "grad_norm": 1.0}
        return json.dumps({**values, "tokens/trained": 10, "pool/1/kl": 0.2, **more})

    texts = [update(1, 10.0), update(2, 20.0), update(3, 31.0), '{"version": 4, "sec']
    (tmp_path / "metrics.jsonl").write_text(
        "\n".join(texts) + "\n" + update(3, 5.0, ess=0.1) + "\n" + update(4, 12.0) + "\n"
    )
    made, sittings = measure.updates(tmp_path)
    assert sittings == 2 and [(each["version"], each["seconds"]) for each in made] == [
        (1, 10),
        (2, 20),
        (3, 36),
        (4, 43),
    ]
    found = measure.figures(made)
    assert found["updates"] == 4 and found["tokens_trained"] == 40 and found["ess"] == 0.4 and found["ess_least"] == 0.1
    assert found["stale_kl"] == 0.2 and found["grad_norm_unrest"] == 0 and "lag" not in found
    curve = measure.reward(made, 32)
    assert curve.samples == (32, 64, 96, 128) and curve.values == (0.1, 0.2, 0.3, 0.4)
    assert [measure.cut(curve, seconds) for seconds in (1, 20, 35, 43, 86)] == [1, 2, 2, 4, 8]


def test_scores_are_read_task_by_task(tmp_path: Path, run: Callable[..., tuple[int, str, str]]) -> None:
    out = tmp_path / "evaluations" / "validation-000002"
    words = ["eval", "--model", "scripted/oracle", "--env", "db", "--split", "validation", "--limit", "3"]
    assert run(*words, "--out", str(out))[0] == 0
    (score,) = measure.scored(out, "validation", 0.0)
    assert score.env == "db" and score.successes == (1, 1, 1) and score.rewards == (1, 1, 1)
    assert list(score.values()) == [1, 1, 1]
    made = [{"version": version, "seconds": 10.0 * version} for version in (1, 2)]
    curve, by_env = measure.validation(tmp_path, made, 16)
    assert curve == Curve(seconds=(20.0,), samples=(32,), values=(1.0,)) and by_env == {"db": curve}


def test_a_control_learns_different_successes_of_each_task_and_of_no_task_too_many() -> None:
    won = [attempt(1.0, seed=number) for number in range(6)]
    groups = [
        group([*won, won[0], attempt(0.0, seed=7), attempt(1.0, by_agent=False, seed=8)]),
        group([attempt(0.4, seed=9), attempt(1.0, seed=10), attempt(1.0, seed=10)], 1),
    ]
    found = controls.successes(groups, most=4)
    assert [segment.ids.tobytes() for segment in found[:4]] == [one.segments[0].ids.tobytes() for one in won[:4]]
    assert len(found) == 5


def seeded(key: str, shift: int) -> Iterator[Line]:
    for seed in (1, 2, 3):
        curve = Curve(seconds=(10.0, 20.0 + seed, 40.0), samples=(8, 16, 24), values=(0.1, 0.2 + shift / 50, 0.5))
        wins = [int((task * 7 + seed) % 10 < 3 + shift) for task in range(40)]
        figures = {"tokens_trained": 6000.0, "stale_kl": 0.01 * shift, "ess": 0.9, "grad_norm_unrest": 0.2}
        yield line(f"{key}{seed}", seed, wins, reward=curve, validation=curve, by_env={"kg": curve}, figures=figures)


def told() -> section.Story:
    arms = {"plain": dict(enumerate(seeded("p", 5), 1)), "slow": dict(enumerate(seeded("s", 0), 1))}
    lines: dict[str, Line] = {}
    for name, made in arms.items():
        for seed, key in orders.keys(SMALL, name, {}).items():
            lines[key] = msgspec.structs.replace(made[seed], key=key)
    return section.story(SMALL, lines)


def test_the_section_says_what_is_known_and_what_is_missing() -> None:
    text = section.text(told(), ["small-reward-seconds.svg"])
    assert "6 of 15 runs are there" in text and "(training/small-reward-seconds.svg)" in text
    row = next(row for row in text.splitlines() if row.startswith("| plain against slow"))
    assert "| greedy | +0.500 |" in row and "| 3 × 40 | better |" in row
    assert next(row for row in text.splitlines() if row.startswith("| plain against control")).count("no claim") == 1
    row = next(row for row in text.splitlines() if row.startswith("| plain | 3 |"))
    assert "| 0.800 [0." in row and "] (0.800 to 0.800) | kg 0.80 | 60 |" in row


def test_one_table_has_all_comparisons() -> None:
    rows = section.overview([told(), told()]).splitlines()
    found = [row for row in rows if row.startswith("| [small](#small) | plain against slow | greedy | +0.500 [+0.")]
    assert len(found) == 2 and all(row.endswith(" | better |") for row in found)
    assert not any("plain against control" in row for row in rows), "it has no runs yet"


def test_runs_on_unequal_cores_are_told() -> None:
    story = told()
    assert "cores each" not in section.text(story, [])
    story.arms["slow"][1] = msgspec.structs.replace(story.arms["slow"][1], cores=7)  # type: ignore[index]
    assert f"These runs had {story.arms['plain'][1].cores} or 7 cores each" in section.text(story, [])


def test_runs_on_several_machines_are_told(tmp_path: Path) -> None:
    said = tmp_path / "cpuinfo"
    said.write_text("processor\t: 0\nmodel name\t: Some Chip\nflags\t\t: fma avx2 avx512f\n\n")
    assert runner.processor(said) == "Some Chip avx512f" and runner.processor(tmp_path / "none") == ""
    story = told()
    assert "several machines" not in section.text(story, [])
    story.arms["slow"][1] = msgspec.structs.replace(story.arms["slow"][1], processor="Some Chip")  # type: ignore[index]
    assert "of several machines (not written down, Some Chip)" in section.text(story, [])


def test_tasks_that_are_not_the_same_are_not_compared() -> None:
    story = told()
    changed = {
        seed: msgspec.structs.replace(each, scores=(msgspec.structs.replace(each.scores[0], tasks_digest="other"),))
        for seed, each in story.arms["slow"].items()
    }
    assert effect(*section._paired(story.arms["plain"], changed, 0.0, results.SUCCESS), len(SMALL.seeds)) is None


def test_arms_that_play_a_task_several_times_are_compared_by_pass_at_k_too(tmp_path: Path) -> None:
    ratios = {"mixed": 0.5, "alone": 0.0}
    sampled = (Arm(name=k, kind="sample", of="plain", sampled={"stale_ratio": v}) for k, v in ratios.items())
    arms, against = (WARM, PLAIN, *sampled), (("mixed", "alone"),)
    asked = msgspec.structs.replace(SMALL, arms=arms, against=against, temperatures=(1.0,), epochs=4)
    wins = {"mixed": [2] * 40, "alone": [4] * 20 + [0] * 20}
    found = {}
    for name, each in wins.items():
        for seed, key in orders.keys(asked, name, {}).items():
            score = Scored(env="kg", split="test", temperature=1.0, epochs=4, successes=tuple(each), tasks_digest="d")
            found[key] = line(key, seed, [], scores=(score,))
    story = section.story(asked, found)
    differences = {each.at: each.effect.difference for each in story.compared if each.effect}
    assert differences == pytest.approx({"T = 1": 0.0, "T = 1, pass@4": 0.5}), "as often, and of twice as many tasks"
    text = section.text(story, [])
    assert "| arm | seeds | pass@1 | pass@2 | pass@4 |" in text
    assert "| mixed | 3 | 0.500 | 0.833 | 1.000 |" in text and "| alone | 3 | 0.500 | 0.500 | 0.500 |" in text
    assert "small-pass.svg" in section.draw(story, tmp_path)


def test_rewards_are_compared_where_an_experiment_asks_for_it_and_only_of_lines_that_have_them() -> None:
    asked = msgspec.structs.replace(
        SMALL, arms=(WARM, PLAIN, Arm(name="slow", above={"eta": 0})), against=(("plain", "slow"),), seeds=(1, 2, 3, 4),
        measures=("success", "reward"),
    )  # fmt: skip
    paid = {"plain": 0.75, "slow": 0.5}
    found = {}
    for name, reward in paid.items():
        for seed, key in orders.keys(asked, name, {}).items():
            each = line(key, seed, [0] * 40)
            score = msgspec.structs.replace(each.scores[0], rewards=() if seed == 4 else (reward,) * 40)
            found[key] = msgspec.structs.replace(each, scores=(score,))
    story = section.story(asked, found)
    effects = {each.at: each.effect for each in story.compared if each.effect}
    assert {at: each.seeds for at, each in effects.items()} == {"greedy": 4, "greedy, reward": 3}
    assert effects["greedy"].difference == 0 and effects["greedy, reward"].difference == pytest.approx(0.25)
    assert effects["greedy, reward"].says == "no claim: 3 of 4 seeds"
    text = section.text(story, [])
    assert "| by environment | reward by environment |" in text
    assert "| kg 0.00 | kg 0.75 |" in text and "| kg 0.00 | kg 0.50 |" in text
    assert "reward by environment" not in section.text(msgspec.structs.replace(story, experiment=SMALL), [])


def test_many_curves_are_drawn_without_bands() -> None:
    curve = Curve(seconds=(1.0, 2.0), samples=(8, 16), values=(0.1, 0.2))
    wide = Curve(seconds=(1.0, 2.0), samples=(8, 16), values=(0.1, 0.9))
    found = [plots.band(str(name), (curve, wide), "seconds") for name in range(plots.BANDS + 1)]
    few, many = (plots.curves("t", "x", "y", [each for each in found[:count] if each]) for count in (1, len(found)))
    assert ">0.8</text>" in few and ">0.8</text>" not in many, "what is not drawn takes no room"


def test_plots_are_whole_pictures(tmp_path: Path) -> None:
    story = told()
    story = msgspec.structs.replace(story, experiment=msgspec.structs.replace(SMALL, by_env=True))
    names = section.draw(story, tmp_path)
    assert {name.removeprefix("small-").removesuffix(".svg") for name in names} == {
        "validation-seconds", "validation-samples", "reward-seconds", "reward-samples", "differences", "validation-kg",
    }  # fmt: skip
    for name in names:
        picture = ElementTree.fromstring((tmp_path / name).read_text())
        texts = {element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")}
        assert texts & {"plain", "plain − slow, greedy"} and "nan" not in (tmp_path / name).read_text()
    sampled = msgspec.structs.replace(SMALL, name="stale_kl", temperatures=(1.0,))
    arms = {
        arm: {
            seed: msgspec.structs.replace(line, scores=(msgspec.structs.replace(line.scores[0], temperature=1.0),))
            for seed, line in lines.items()
        }
        for arm, lines in story.arms.items()
    }
    section.draw(section.Story(experiment=sampled, arms=arms, compared=()), tmp_path)
    for name in ("stale_kl-kl", "stale_kl-kl-unrest"):
        assert (tmp_path / f"{name}.svg").read_text().count("<circle") == 2 * 3, "a point a run"
    assert plots.band("one", [Curve(seconds=(1.0,), samples=(1,), values=(0.5,))], "seconds") is None


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)), min_size=1, max_size=5), st.text(max_size=20))
def test_any_points_can_be_drawn(pairs: list[tuple[float, float]], name: str) -> None:
    name = "".join(letter for letter in name if letter.isprintable())
    svg = plots.points(name, "<x>", "y&", [plots.Dots(name, [x for x, _ in pairs], [y for _, y in pairs])])
    circles = ElementTree.fromstring(svg).findall("{http://www.w3.org/2000/svg}circle")
    assert len(circles) == len(pairs)
    for circle in circles:
        assert 0 <= float(circle.attrib["cx"]) <= plots.WIDTH and 0 <= float(circle.attrib["cy"]) <= plots.HEIGHT


def test_the_plan_says_what_is_left_and_counts_shared_runs_once(tmp_path: Path) -> None:
    text = planned({}, EXPERIMENTS)
    for experiment in EXPERIMENTS:
        assert f"`python -m benchmarks training {experiment.name}`" in text
    assert "6 after sweep" in text and "5 after iteration_sweep" in text
    result = CliRunner().invoke(program, ["--plan", "--results", str(tmp_path)], standalone_mode=False)
    assert result.output.strip() == text.strip()
    small = planned({}, [SMALL])
    twice = planned({}, [SMALL, msgspec.structs.replace(SMALL, name="again")])
    assert f"All of it: {3 * (4 * SMALL.minutes + SMALL.warm_minutes):,.0f} minutes" in small
    assert small.splitlines()[-1] == twice.splitlines()[-1]


def test_the_plan_reckons_by_the_runs_of_the_same_environments() -> None:
    three = {"envs": {"kg": {}, "alfworld": {}, "webshop": {}}}
    made = [(60.0, {}), (90.0, {}), (120.0, {"lr": 1.0}), (600.0, three), (660.0, three)]
    lines = {
        f"r{at}": line(f"r{at}", at, [1], wall_seconds=seconds, above=above) for at, (seconds, above) in enumerate(made)
    }
    assert results.minutes(lines, "micro", "train", {}) == 1.5
    assert results.minutes(lines, "micro", "train", {"envs": {"webshop": {}, "kg": {}, "alfworld": {}}}) == 11
    assert results.minutes(lines, "micro", "train", {"envs": {"kg": {}}}) is None
    assert results.minutes(lines, "micro", "warm", {}) is None


def test_a_seed_that_was_not_declared_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="seed 7 was not declared"):
        wanted(SMALL, [7], fake(tmp_path), [SMALL])
    assert {order.seed for order in wanted(SMALL, [2], fake(tmp_path), [SMALL])} == {2}
    shared = msgspec.structs.replace(SMALL, warmed=9)
    found = wanted(shared, [2], fake(tmp_path), [shared])
    assert {(order.kind == "warm", order.seed) for order in found} == {(True, 9), (False, 2)}


def test_continued_sft_has_gold_play_of_each_kind_and_none_that_the_warm_start_had() -> None:
    more = [{"env": "kg", "tasks": 3, "settings": {"breadth": 36}}]
    asked = {"envs": {"kg": {"difficulty": 0.2}}, "begin": {"tasks": 8, "more": more}}
    recipe = recipes.made({"name": "several", "steps": 1, **asked}, "several")
    shown = {play.digest for play in begin.gold_play(recipe, recipe.gold)}
    further = controls.further_plays(recipe)
    assert len(further) == 8 + 3
    assert not shown & {play.digest for play in further}
