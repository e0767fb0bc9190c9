"""`harness export`: the forms that trainers read, and that nobody can learn from held-out tasks."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import export, runlog
from harness.core import Message, Tokens, ToolCall, Trajectory
from training import samples

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


ENV = "tests.training.provoking:make"


def play(run: Run, out: str, split: str, model: str = "scripted/oracle", limit: int = 4, env: str = ENV) -> Path:
    words = ("--model", model, "--split", split, "--limit", str(limit), "--out", out)
    code, _, err = run("eval", "--env", env, *words)
    assert code == 0, err
    return Path(out)


def rewrite(folder: Path, change: Callable[[Trajectory], Trajectory]) -> None:
    lines = [msgspec.json.encode(change(each)) + b"\n" for each in runlog.read(folder).trajectories()]
    (folder / runlog.LINES).write_bytes(b"".join(lines))


def exported(run: Run, *words: str) -> list[Any]:
    code, out, err = run("export", *words)
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


def test_openai_lines_end_with_the_models_last_word_and_sharegpt_takes_turns(run: Run) -> None:
    play(run, "r", "train", env="db")
    lines = exported(run, "r", "--format", "openai")
    assert len(lines) == 4
    for line in lines:
        assert set(line) == {"messages", "tools"}
        assert line["messages"][-1]["role"] == "assistant"
        asked = [call["id"] for message in line["messages"] for call in message.get("tool_calls", ())]
        assert asked and {tool["function"]["name"] for tool in line["tools"]} >= {"execute_sql"}
        answered = [message["tool_call_id"] for message in line["messages"] if message["role"] == "tool"]
        assert set(answered) <= set(asked)
    for line in exported(run, "r", "--format", "sharegpt"):
        sides = [turn["from"] for turn in line["conversations"]]
        assert sides[-1] in ("gpt", "function_call")
        assert all((side in ("human", "observation")) == (place % 2 == 0) for place, side in enumerate(sides))
        assert {"name", "description", "parameters"} <= set(json.loads(line["tools"])[0])
        calls = [turn["value"] for turn in line["conversations"] if turn["from"] == "function_call"]
        assert {"name", "arguments"} <= set(json.loads(calls[0].splitlines()[-1]))


@pytest.mark.parametrize("split", ["test", "validation"])
@pytest.mark.parametrize("form", ["openai", "sharegpt", "tokens"])
def test_held_out_tasks_are_refused_by_name_and_by_digest(run: Run, split: str, form: str) -> None:
    folder = play(run, "r", split, limit=2)
    code, out, err = run("export", "r", "--format", form)
    assert (code, out) == (2, "") and f"is of split '{split}', which no model may learn from" in err
    rewrite(folder, lambda each: msgspec.structs.replace(each, split="train"))
    code, out, err = run("export", "r", "--format", form)
    assert (code, out) == (2, "") and f"is of split '{split}'" in err, "the run's own word holds too"
    header = folder / runlog.HEADER
    header.write_text(header.read_text().replace(f'"{split}"', '"train"'))
    assert all(entry.split == "train" for entry in runlog.read(folder).header.board.entries)
    code, out, err = run("export", "r", "--format", form, "--out", "out.jsonl")
    assert (code, out) == (2, "") and "its digest is that of a held-out task" in err
    assert not Path("out.jsonl").exists() and not list(Path().glob(".out*"))
    assert run("export", "r", "--include-held-out")[0] == 2


def test_filters_choose_before_anything_is_refused(run: Run) -> None:
    play(run, "good", "train")
    play(run, "bad", "train", "scripted/noop")
    play(run, "held", "test", limit=2)
    runs = ("good", "bad", "held", "--format", "openai")
    assert run("export", *runs)[0] == 2
    assert len(exported(run, *runs, "--split", "train")) == 8
    assert len(exported(run, *runs, "--split", "train", "--min-score", "1")) == 4
    assert len(exported(run, *runs, "--split", "train", "--env", "provoking")) == 8
    code, _, err = run("export", *runs, "--split", "train", "--env", "kg")
    assert code == 2 and "no attempt is left" in err
    code, _, err = run("export", *runs, "--split", "test")
    assert code == 2 and "no model may learn from" in err
    for words in (("--format", "csv", "--min-score", "1"), ("--format", "bundle", "bad", "--out", "b.tar.gz")):
        assert run("export", "good", *words)[0] == 2
    assert len(exported(run, "good", "--format", "messages", "--min-score", "1")) == 4
    code, out, _ = run("export", "good", "bad", "--format", "csv")
    assert (code, len(out.splitlines())) == (0, 9)


def test_tokens_are_told_as_they_were_sampled(run: Run) -> None:
    folder = play(run, "r", "train")
    code, _, err = run("export", "r", "--format", "tokens")
    assert code == 2 and "has no tokens" in err

    def sampled(each: Trajectory) -> Trajectory:
        turns, prompt = [], (1, 2, 3)
        for turn in each.turns:
            tokens = made(prompt, (7, 8), logprob=-0.1234567890123)
            turns.append(msgspec.structs.replace(turn, reply=msgspec.structs.replace(turn.reply, tokens=tokens)))
            prompt = (*prompt, 7, 8, 4)
        return msgspec.structs.replace(each, turns=tuple(turns))

    rewrite(folder, sampled)
    for line in exported(run, "r", "--format", "tokens"):
        arrays = [line[name] for name in ("ids", "mask", "logprobs", "versions", "turns")]
        assert {len(array) for array in arrays} == {len(line["ids"])}
        assert (line["reward"], line["env"], line["sequence"]) == (1.0, "provoking", 0)
        assert {value for value, on in zip(line["logprobs"], line["mask"], strict=True) if on} == {-0.1234567890123}
        assert sum(line["mask"]) == 2 * len(line["engines"])


def made(prompt: Sequence[int], ids: Sequence[int], logprob: float = -0.5, temperature: float = 1.0) -> Tokens:
    count = len(ids)
    return Tokens(
        prompt_ids=tuple(prompt),
        sampled_ids=tuple(ids),
        logprobs=(logprob,) * count,
        versions=(3,) * count,
        mask=(True,) * count,
        engine="hf:0",
        temperature=temperature,
    )


@given(st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(1, 9), min_size=1, max_size=3)), min_size=1))
def test_sequences_are_those_that_the_trainer_makes(turns: list[tuple[int, list[int]]]) -> None:
    prompt: list[int] = [1]
    given_turns = []
    for kind, ids in turns:
        prompt = [2, 2] if kind == 2 else prompt  # a fork
        given_turns.append(made(prompt, ids, temperature=1.0 if kind else 0.5))
        prompt = [*prompt, *ids, 5]
    ours, theirs = export.aligned(given_turns), samples.segments(given_turns)
    assert len(ours) == len(theirs)
    for one, segment in zip(ours, theirs, strict=True):
        for name in ("ids", "mask", "logprobs", "versions", "turns"):
            assert np.array_equal(np.array(one[name], getattr(segment, name).dtype), getattr(segment, name)), name


def test_what_the_environment_says_between_two_turns_is_one_observation(run: Run) -> None:
    folder = play(run, "r", "train", limit=1, env="db")
    (trajectory,) = runlog.read(folder).trajectories()
    calls = tuple(ToolCall(id=str(number), name="a", arguments="{broken") for number in range(2))
    answers = (*(Message(role="tool", content=f"t{each.id}", tool_call_id=each.id) for each in calls),)
    first = trajectory.turns[0]
    spoken = msgspec.structs.replace(first.reply, message=Message(role="assistant", content="hm", tool_calls=calls))
    turns = (
        msgspec.structs.replace(first, reply=spoken, messages=(*answers, Message(role="user", content="go"))),
        first,
    )
    (line,) = export.sharegpt(msgspec.structs.replace(trajectory, turns=turns))
    call, observation = line["conversations"][1:3]
    assert call["value"].startswith("hm\n[") and "{broken" in call["value"]
    assert observation == {"from": "observation", "value": "t0\n\nt1\n\ngo"}
