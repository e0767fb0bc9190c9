"""Runs as rows: what they may claim, and which of them may share a table."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from harness import runlog
from harness.config import EvalConfig, ModelOptions
from harness.core import BoardEntry, Limits, SamplingParams
from harness.errors import SetupError
from leaderboards import unpaired
from leaderboards.board import layout, load
from leaderboards.rank import Row
from leaderboards.runs import agreeing, check_fingerprints, discover, row
from tests.leaderboards.played import Values, once, play
from training import weights

FULL = {entry.name: {"": [1.0] * (entry.tasks or 0)} for entry in load("agentbench-fc").entries}


async def row_of(folder: Path, values: Values, name: str = "agentbench-fc", **fields: object) -> Row:
    full = load(name)
    played = msgspec.structs.replace(full, **fields.pop("board", {}))  # type: ignore[arg-type]
    await play(folder, once(played), values, **fields)  # type: ignore[arg-type]
    return row(runlog.read(folder), full)


async def test_a_whole_run_is_run_here_and_ranked(tmp_path: Path) -> None:
    values = {**FULL, "db": {"": [1.0] * 150 + [0.0] * 150}}
    found = await row_of(tmp_path, values)
    assert (found.origin, found.ranked, found.group, found.tasks) == ("run here", True, "API", 903)
    assert found.cells["db"].text == "50.0"
    assert found.cells["overall"].text == "90.0"
    assert found.date == runlog.read(tmp_path).header.created[:10] != ""
    assert found.notes == ("1 of 4 epochs",)
    assert set(found.fingerprints) == set(FULL)


async def test_one_environment_has_no_overall(tmp_path: Path) -> None:
    found = await row_of(tmp_path, {"db": FULL["db"]})
    assert (found.origin, set(found.cells)) == ("run here", {"db"})
    assert found.notes[0] == "1 of 5 environments"


def entries_with(**change: object) -> dict[str, object]:
    changed = [msgspec.structs.replace(entry, **change) for entry in load("agentbench-fc").entries]
    return {"entries": tuple(changed)}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"board": entries_with(rules="fixed")}, "adapted: db rules fixed"),
        ({"board": entries_with(settings={"backend": "embedded"})}, "adapted: db backend embedded"),
        ({"board": entries_with(settings={})}, "adapted: db backend not set"),
        ({"board": entries_with(split="dev")}, "adapted: db split dev"),
        ({"board": entries_with(turns=3)}, "adapted: db 3 turns"),
        ({"agent": "react"}, "adapted: agent react"),
        ({"config": EvalConfig(model="openai/x", prompts={"db": {"system": "…"}})}, "adapted: db own prompts"),
        (
            {"board": entries_with(sampling=SamplingParams(temperature=0.1))},
            "adapted: db temperature 0.1",
        ),
        ({"config": EvalConfig(model="openai/x", limits=Limits(tokens=99))}, "adapted: tokens limit 99"),
    ],
)
async def test_a_deviation_is_said_and_keeps_the_row_from_a_rank(
    tmp_path: Path, fields: dict[str, object], said: str
) -> None:
    found = await row_of(tmp_path, {"db": FULL["db"]}, **fields)
    assert (found.origin, found.ranked) == (said, False)


async def test_a_part_of_the_tasks_is_adapted(tmp_path: Path) -> None:
    found = await row_of(tmp_path, {"db": {"": [1.0] * 20}})
    assert found.origin == "adapted: db 20 of 300 tasks"


async def test_the_boards_own_temperature_is_no_deviation(tmp_path: Path) -> None:
    config = EvalConfig(model="openai/x", sampling=SamplingParams(temperature=0.8))
    assert (await row_of(tmp_path, {"db": FULL["db"]}, config=config)).origin == "run here"


async def test_gold_play_is_never_ranked(tmp_path: Path) -> None:
    found = await row_of(tmp_path, FULL, privileged=True, model="scripted/oracle", agent="scripted/oracle")
    assert (found.ranked, found.group) == (False, "other")
    assert "handed gold play, never ranked" in found.notes


@pytest.mark.parametrize(
    ("model", "connection", "group"),
    [
        ("anthropic/claude", ModelOptions(), "API"),
        ("vllm/Qwen/Qwen3-8B", ModelOptions(), "open"),
        ("openai/local", ModelOptions(base_url="http://localhost:1/v1"), "open"),
        ("hf/runs/a/checkpoints/best", ModelOptions(), "trained"),
        ("hf/checkpoints/best", ModelOptions(), "trained"),
        ("hf/runs/a/checkpoints", ModelOptions(), "trained"),
        ("hf//runs/a/snapshots/v000024-576036f6f8b7", ModelOptions(), "trained"),
        (f"hf//cache/hub/models--Qwen--Qwen3-8B/snapshots/{'0a' * 20}", ModelOptions(), "open"),
        ("scripted/random", ModelOptions(), "other"),
    ],
)
async def test_groups(tmp_path: Path, model: str, connection: ModelOptions, group: str) -> None:
    config = EvalConfig(model=model, connection=connection)
    assert (await row_of(tmp_path, {"db": FULL["db"]}, config=config)).group == group


async def test_what_training_publishes_is_known_as_trained(tmp_path: Path) -> None:
    def write(part: Path) -> None:
        (part / "model.safetensors").write_bytes(b"weights")

    folder, _ = weights.publish(tmp_path / "snapshots", 24, write)
    config = EvalConfig(model=f"hf/{folder}")
    assert (await row_of(tmp_path, {"db": FULL["db"]}, config=config)).group == "trained"


async def test_unscored_attempts_leave_the_lower_bound(tmp_path: Path) -> None:
    found = await row_of(tmp_path, {"db": {"": [1.0] * 200 + [None] * 100}})
    cell = found.cells["db"]
    assert (cell.text, cell.low, cell.high) == ("66.7", pytest.approx(2 / 3), 1.0)
    assert any("lower bound" in note for note in found.notes)


async def test_columns_of_bfcl_come_from_its_categories(tmp_path: Path) -> None:
    right = {"simple": 0.5, "java": 0.5, "javascript": 0.5, "live_multiple": 1.0}
    values = {
        "bfcl": {
            name: [float(i < right.get(name, 0.0) * size) for i in range(size)]
            for name, size in (("simple", 400), ("java", 100), ("javascript", 50), ("multiple", 200), ("parallel", 200),
                               ("parallel_multiple", 200), ("irrelevance", 240), ("live_simple", 258),
                               ("live_multiple", 1053), ("live_parallel", 16), ("live_parallel_multiple", 24),
                               ("live_irrelevance", 882), ("live_relevance", 18), ("multi_turn_base", 200),
                               ("multi_turn_miss_func", 200), ("multi_turn_miss_param", 200),
                               ("multi_turn_long_context", 200))
        }
    }  # fmt: skip
    board = load("bfcl-v3")
    folder = tmp_path / "run"
    await play(folder, board, values)
    found = row(runlog.read(folder), board)
    assert found.origin == "run here"
    texts = {name: cell.text for name, cell in found.cells.items() if name not in layout("bfcl-v3").details}
    assert (found.cells["live_multiple"].text, found.cells["irrelevance"].text) == ("100.00", "0.00")
    live = 1053 / 2251
    assert texts == {
        "non_live": "10.00",
        "non_live_ast": "12.50",
        "live": f"{live * 100:.2f}",
        "multi_turn": "0.00",
        "overall": f"{(0.1 + live) / 3 * 100:.2f}",
    }


async def test_a_category_not_played_leaves_its_columns_empty(tmp_path: Path) -> None:
    found = await row_of(tmp_path, {"bfcl": {"multiple": [1.0] * 3}}, name="bfcl-v3")
    assert set(found.cells) == {"non_live_multiple"}
    assert not found.ranked


async def test_different_protocols_share_no_table_unless_allowed(tmp_path: Path) -> None:
    board = once(load("agentbench-fc"))
    for name, turns in (("a", 15), ("b", 8)):
        await play(tmp_path / name, board, {"db": {"": [1.0]}}, protocol={"limits": {"turns": turns}})
    runs = [runlog.read(tmp_path / name) for name in "ab"]
    with pytest.raises(SetupError, match=r"db was played under two protocols.*limits.turns: 15 against 8"):
        check_fingerprints(runs, allow_different=False)
    assert "DIFFERENT PROTOCOLS" in check_fingerprints(runs, allow_different=True)[0]
    assert check_fingerprints(runs[:1], allow_different=False) == []


async def test_two_checkpoints_of_a_model_share_a_table(tmp_path: Path) -> None:
    board = once(load("agentbench-fc"))
    for name in "ab":
        engine = {"name": "transformers", "weights": name}
        await play(tmp_path / name, board, {"db": {"": [1.0]}}, protocol={"model": {"engine": engine}})
    runs = [runlog.read(tmp_path / name) for name in "ab"]
    assert runs[0].header.protocols != runs[1].header.protocols
    assert check_fingerprints(runs, allow_different=False) == []


async def test_runs_of_the_newest_protocol_are_kept(tmp_path: Path) -> None:
    board = once(load("agentbench-fc"))
    runs = []
    for number, (turns, privileged) in enumerate([(15, False), (8, False), (15, False), (8, True)]):
        folder = tmp_path / str(number)
        protocol = {"limits": {"turns": turns}}
        await play(folder, board, {"db": {"": [1.0]}}, protocol=protocol, privileged=privileged)
        run = runlog.read(folder)
        runs.append(msgspec.structs.replace(run, header=msgspec.structs.replace(run.header, created=str(number))))
    kept, left = agreeing(runs)
    assert [run.folder.name for run in kept] == ["2", "0"]
    assert [run.folder.name for run in left] == ["1", "3"]


async def test_runs_are_discovered_by_board(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{")
    await play(tmp_path / "ours", once(load("agentbench-fc")), {"db": {"": [1.0]}})
    await play(tmp_path / "other", load("mini"), {"db": {"": [1.0]}})
    assert [run.folder.name for run in discover(tmp_path, "agentbench-fc")] == ["ours"]
    assert discover(tmp_path / "nothing", "mini") == []


async def test_against_a_published_row(tmp_path: Path) -> None:
    values = {"db": {"": [1.0] * 270 + [0.0] * 30}}
    await play(tmp_path / "run", once(load("agentbench-fc")), values)
    found = unpaired.against(runlog.read(tmp_path / "run"), "GPT-5 (2025-08-07)")
    assert set(found.columns) == {"db"}
    difference = found.columns["db"]
    assert (difference.first, difference.second) == (pytest.approx(0.632), pytest.approx(0.9))
    assert found.verdict("db") == "better"
    error_of_gpt5 = found.published.cells["db"].error
    assert error_of_gpt5 is not None and error_of_gpt5 > 0.007  # more than its run-to-run spread of 0.7 points


async def test_an_adapted_run_claims_nothing(tmp_path: Path) -> None:
    await play(tmp_path / "run", once(load("agentbench-fc")), {"db": {"": [1.0] * 200}})
    found = unpaired.against(runlog.read(tmp_path / "run"), "GPT-5 (2025-08-07)")
    assert found.verdict("db") == "no claim"
    assert any("adapted: db 200 of 300 tasks" in note for note in unpaired.notes(found))


async def test_unscored_attempts_are_compared_at_the_nearer_bound(tmp_path: Path) -> None:
    await play(tmp_path / "run", once(load("agentbench-fc")), {"db": {"": [1.0] * 180 + [None] * 120}})
    difference = unpaired.against(runlog.read(tmp_path / "run"), "GPT-5 (2025-08-07)").columns["db"]
    assert (difference.difference, difference.p) == (0.0, 1.0)  # between 60 and 100 % anything may be true


async def test_nothing_in_common_is_said(tmp_path: Path) -> None:
    board = load("mini")
    own = msgspec.structs.replace(board, entries=(BoardEntry(name="db", env="db", split="test"),))
    await play(tmp_path / "run", own, {"db": {"": [1.0]}})
    with pytest.raises(SetupError, match="no published scores"):
        unpaired.against(runlog.read(tmp_path / "run"), "GPT-5")
