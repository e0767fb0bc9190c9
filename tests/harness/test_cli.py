"""The command line as a person meets it: exit codes, one sentence for bad input, JSON on standard output alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from harness import runlog
from harness.errors import SetupError

ROOT = Path(__file__).parents[2]
ENV = "tests.contracts.guessing:make"
PLAY = ("eval", "--board", "", "--env", ENV)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


def test_eval_prints_a_table_and_one_line_of_json(run: Any) -> None:
    code, out, err = run(*PLAY, "--model", "scripted/oracle", "--json")
    result = json.loads(out)
    assert code == result["exit_code"] == 0
    row = result["environments"][ENV]
    assert (row["score"], row["coverage"], row["endings"]) == (1.0, 1.0, {"completed": 40})
    assert row["interval"][0] > 0.9
    assert row["interval"][1] == 1.0
    assert row["fingerprint"][:8] in err
    assert "never ranked" in " ".join(err.split())
    folder = Path(result["run"])
    assert len(runlog.read(folder).attempts()) == 40


def test_the_same_command_starts_anew_when_it_was_finished_and_goes_on_when_not(run: Any) -> None:
    _, out, _ = run(*PLAY, "--model", "scripted/noop", "--json")
    first = Path(json.loads(out)["run"])
    _, out, _ = run(*PLAY, "--model", "scripted/noop", "--json")
    assert Path(json.loads(out)["run"]) != first
    lines = (first / runlog.LINES).read_bytes().splitlines(keepends=True)
    second = Path(json.loads(out)["run"])
    (second / runlog.LINES).write_bytes(b"".join(lines[:11]) + lines[11][:100])
    code, out, err = run(*PLAY, "--model", "scripted/noop", "--json")
    assert (code, Path(json.loads(out)["run"])) == (0, second)
    assert "29 attempts to play" in err
    assert len(runlog.read(second).attempts()) == 40


def test_resume_status_export_and_score(run: Any, tmp_path: Path) -> None:
    run(*PLAY, "--model", "scripted/random", "--out", "r", "--limit", "20")
    lines = Path("r", runlog.LINES).read_bytes().splitlines(keepends=True)
    Path("r", runlog.LINES).write_bytes(b"".join(lines[:5]))
    code, out, _ = run("status", "r", "--json")
    assert code == 0
    status = json.loads(out)["environments"][ENV]
    assert (status["attempts"], status["coverage"], status["lower"]) == (5, 0.25, status["lower"])
    assert status["upper"] >= 0.75
    code, out, _ = run("resume", "r", "--json")
    assert (code, json.loads(out)["environments"][ENV]["coverage"]) == (0, 1.0)
    assert [sorted(Path("r", runlog.LINES).read_bytes().splitlines())[0][:9]] == [b'{"entry":']
    code, out, err = run("score", "r", "--json")
    assert code == 0, err
    assert "0 of 20 grades differ" in err
    assert json.loads(out)["model"].startswith("replay/")
    code, out, _ = run("export", "r", "--format", "csv")
    assert (code, len(out.strip().splitlines())) == (0, 21)
    code, out, _ = run("export", "r")
    first = json.loads(out.splitlines()[0])
    assert first["messages"][0]["role"] == "user"
    assert first["tools"][0]["function"]["name"] == "guess"
    code, _, _ = run("export", "r", "--format", "bundle", "--out", "r.tar.gz")
    assert code == 0
    assert subprocess.run(["tar", "xzf", "r.tar.gz", "-C", str(tmp_path / "..")], check=False).returncode == 0


def test_score_tells_a_changed_grade(run: Any) -> None:
    run(*PLAY, "--model", "scripted/oracle", "--out", "r", "--limit", "5")
    path = Path("r", runlog.LINES)
    path.write_bytes(path.read_bytes().replace(b'"score":{"value":1.0', b'"score":{"value":0.0', 1))
    code, _, err = run("score", "r")
    assert code == 5
    assert "1 of 5 grades differ" in err


def test_compare_tells_a_regression(run: Any) -> None:
    run(*PLAY, "--model", "scripted/oracle", "--out", "good")
    run(*PLAY, "--model", "scripted/noop", "--out", "bad")
    code, _, err = run("compare", "good", "bad")
    assert code == 2
    assert "--allow-different" in err
    code, out, err = run("compare", "good", "bad", "--allow-different", "--gate", "--json")
    assert code == 5
    assert json.loads(out)["fallen"] == [ENV]
    assert "DIFFERENT PROTOCOLS" in err
    code, _, _ = run("compare", "bad", "good", "--allow-different", "--gate")
    assert code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["evl"], "no command 'evl'; did you mean 'eval'"),
        ([*PLAY, "--model", "scripted/orcl"], "did you mean 'scripted/oracle'"),
        ([*PLAY, "--model", "scripted/noop", "--limitt", "3"], "--limit"),
        ([*PLAY, "--model", "scripted/noop", "--limit", "0"], "x>=1"),
        ([*PLAY, "--model", "scripted/noop", "--set", "limits.truns=3"], "unknown setting 'limits.truns'; did you"),
        ([*PLAY, "--model", "scripted/noop", "--set", "limits"], "--set takes dotted.key=value"),
        ([*PLAY, "--model", "scripted/noop", "--set", "limits.turns=many"], "limits.turns"),
        ([*PLAY, "--model", "scripted/noop", "--config", "no.toml"], "cannot read no.toml"),
        ([*PLAY, "--model", "scripted/noop", "--prompts", "no.toml"], "cannot read the prompts file no.toml"),
        ([*PLAY, "--model", "scripted/noop", "--split", "tes"], "did you mean 'test'"),
        ([*PLAY, "--model", "scripted/noop", "--task-id", "guessing/100"], "no task 'guessing/100'"),
        ([*PLAY, "--model", "scripted/noop", "--max-connections", "lots"], "--max-connections takes"),
        ([*PLAY, "--model", "scripted/noop", "--out", "/proc/x"], "choose another with --out"),
        ([*PLAY], "needs a model"),
        ([*PLAY, "--model", "scripted/noop", "--time-limit", "nan"], "must be a number, not nan"),
        ([*PLAY, "--model", "scripted/noop", "--cost-limit", "inf"], "must be a number, not inf"),
        ([*PLAY, "--model", "scripted/noop", "--limit", "9" * 30], "at 'limit'"),
        ([*PLAY, "--model", "scripted/noop,"], "needs a model"),
        ([*PLAY, "--model", "x", "--agent", "json:loads"], "agent 'json:loads' cannot be made: TypeError"),
        ([*PLAY, "--model", "x", "--agent", "tests.harness.test_cli:make_nothing"], "made a int, which has no 'start'"),
        (["eval", "--model", "scripted/noop", "--env", "db", "--prompts", "p.toml"], "of db must hold {question}"),
        (["resume", "nowhere"], "is not a run folder"),
        (["status", "nowhere"], "is not a run folder"),
        (["compare", "nowhere", "there"], "is not a run folder"),
        (["data", "fetch", "agntbench"], "did you mean 'agentbench'"),
    ],
)  # fmt: skip
def test_bad_input_exits_2_with_one_sentence(run: Any, arguments: list[str], words: str) -> None:
    Path("p.toml").write_text('[db]\nquestion = "no place for it"\n')
    code, out, err = run(*arguments)
    assert code == 2
    assert words in err
    assert "Traceback" not in err
    assert out == ""
    assert not Path("runs").exists()


def make_nothing(argument: str, settings: Any) -> int:
    return 5


def make_broken_agent(argument: str, settings: Any) -> Any:
    from harness.errors import AgentError
    from tests.harness.test_rollout import Puppet

    def act(turn: int, seat: Any) -> Any:
        raise AgentError("my bug, on line 7")

    return Puppet(act)


def test_why_attempts_failed_stands_under_the_table(run: Any) -> None:
    code, _, err = run(*PLAY, "--agent", "tests.harness.test_cli:make_broken_agent", "--limit", "4")
    assert code == 0
    assert f"4 × {ENV}, agent: my bug, on line 7" in err


def test_a_replay_of_gold_play_is_never_ranked_either(run: Any) -> None:
    run(*PLAY, "--model", "scripted/oracle", "--out", "r", "--limit", "3")
    code, _, err = run("score", "r")
    assert code == 0
    assert "replay/r · direct" in err
    assert runlog.read(Path("r-scored")).header.privileged


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    code = "from harness.cli import main; main()"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", code, "models"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    assert done.returncode == 3
    assert done.stderr == "harness: cannot write the output: No space left on device\n"


def test_another_protocol_in_the_folder_is_refused_and_nothing_lost(run: Any) -> None:
    run(*PLAY, "--model", "scripted/noop", "--out", "r", "--limit", "3")
    before = Path("r", runlog.LINES).read_bytes()
    code, _, err = run(*PLAY, "--model", "scripted/noop", "--out", "r", "--limit", "3", "--turn-limit", "4")
    assert code == 2
    assert "limits.turns: 16 against 4" in err
    assert Path("r", runlog.LINES).read_bytes() == before
    code, _, _ = run(*PLAY, "--model", "scripted/noop", "--out", "r", "--limit", "9")
    assert code == 0
    assert len(runlog.read(Path("r")).attempts()) == 9


def test_settings_rise_from_file_to_flags_to_set(run: Any) -> None:
    Path("s.toml").write_text('model = "scripted/noop"\nseed = 3\n[limits]\nturns = 2\nseconds = 50.0\n')
    code, _, err = run(
        *PLAY, "--config", "s.toml", "--turn-limit", "3", "--set", "seed=5", "--limit", "2", "--out", "r"
    )
    assert code == 0, err
    config = runlog.read(Path("r")).header.config
    assert (config.model, config.seed, config.limits.turns, config.limits.seconds) == ("scripted/noop", 5, 3, 50.0)


def test_dry_run_plays_nothing(run: Any) -> None:
    code, out, _ = run(*PLAY, "--model", "scripted/noop", "--dry-run", "--epochs", "3")
    assert code == 0
    assert "120 attempts, at most 16 turns" in out
    assert not Path("runs").exists()


def test_low_coverage_exits_4(run: Any) -> None:
    flaky = ("eval", "--board", "", "--env", "tests.harness.test_evaluate:make_flaky")
    code, out, _ = run(*flaky, "--model", "scripted/oracle", "--json")
    row = json.loads(out)["environments"]["tests.harness.test_evaluate:make_flaky"]
    assert (code, row["coverage"], row["score"], row["lower"], row["upper"]) == (4, 0.6, 1.0, 0.6, 1.0)
    code, _, _ = run(*flaky, "--model", "scripted/oracle", "--fresh", "--min-coverage", "0.5")
    assert code == 0


def test_a_setting_is_known_by_the_name_that_messages_have_for_it(run: Any) -> None:
    code, _, err = run(*PLAY, "--model", "scripted/oracle", "--set", f'env."{ENV}".tasks="many"')
    assert code == 2
    assert "env.guessing: Expected `int`, got `str`, at 'tasks'" in err
    code, out, _ = run(*PLAY, "--model", "scripted/oracle", "--json", "--set", f'env."{ENV}".tasks=7')
    assert (code, json.loads(out)["environments"][ENV]["tasks"]) == (0, 7)


def make_bracketed(options: Any) -> Any:
    """An environment that names an extra of the package in what it cannot do."""
    raise SetupError("it lacks a package: pip install 'x[extra]' and [/look")


def test_what_cannot_run_is_said_letter_by_letter(run: Any, tmp_path: Path) -> None:
    Path("two.toml").write_text(
        'title = "Two"\n'
        f'[[entries]]\nname = "here"\nenv = "{ENV}"\nsplit = "test"\n'
        '[[entries]]\nname = "gone"\nenv = "tests.harness.test_cli:make_bracketed"\nsplit = "test"\n'
    )
    code, _, err = run("eval", "--board", "two.toml", "--model", "scripted/oracle", "--limit", "2")
    assert code == 0
    assert "gone cannot run here: it lacks a package: pip install 'x[extra]' and [/look" in err


def test_help_of_every_command(run: Any) -> None:
    code, out, _ = run("--help")
    assert code == 0
    names = [line.split()[0] for line in out.split("Commands:")[1].strip().splitlines()]
    assert {"eval", "resume", "status", "score", "compare", "envs", "models", "data", "doctor", "export"} <= set(names)
    for name in names:
        code, out, _ = run(name, "--help")
        assert code == 0
        assert "Usage:" in out


def start(*arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", "from harness.cli import main; main()", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def make_slow(options: Any) -> Any:
    """A guessing environment whose every step takes a while."""
    import asyncio

    from tests.contracts.guessing import Guessing, GuessingSession

    class SlowSession(GuessingSession):
        async def step(self, message: Any) -> Any:
            await asyncio.sleep(float(options.settings.get("seconds", 0.2)))
            return await super().step(message)

    return type("Slow", (Guessing,), {"session": lambda self, task: SlowSession(self, task)})(200)


SLOW = ("eval", "--board", "", "--env", "tests.harness.test_cli:make_slow", "--model", "scripted/oracle", "--out", "r")


def wait_for_lines(folder: Path, count: int) -> None:
    deadline = time.monotonic() + 30
    while not (folder / runlog.LINES).exists() or (folder / runlog.LINES).read_bytes().count(b"\n") < count:
        assert time.monotonic() < deadline, "the run does not get on"
        time.sleep(0.02)


def test_one_interrupt_finishes_what_is_under_way(tmp_path: Path) -> None:
    process = start(*SLOW, "--concurrency", "4")
    wait_for_lines(Path("r"), 4)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "harness resume r" in err
    assert "Traceback" not in err
    done = len(runlog.read(Path("r")).attempts())
    assert 4 <= done < 200
    assert start("status", "r").wait(20) == 0


def test_two_interrupts_stop_at_once_and_lose_nothing_finished(tmp_path: Path) -> None:
    process = start(*SLOW, "--concurrency", "4", "--set", 'env_settings."x"={}')
    assert process.wait(20) == 2
    seconds = 'env_settings."tests.harness.test_cli:make_slow".seconds=4'  # longer than stopping at once may take
    process = start(*SLOW, "--concurrency", "1", "--set", seconds)
    wait_for_lines(Path("r"), 1)
    process.send_signal(signal.SIGINT)
    time.sleep(0.05)
    clock = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 130
    assert time.monotonic() - clock < 3
    attempts = runlog.read(Path("r")).attempts()
    assert len(attempts) == 1
    assert all(record.score.value == 1.0 for record in attempts)
