"""The benchmark of the engines: rows that are kept, prompts that no engine has read, memory of what was started."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from benchmarks import _inference_rows as rows
from benchmarks import _inference_serve as serve
from benchmarks import inference
from harness.errors import SetupError
from harness.models.sampler import Request

LINE = {"cells": [[1.0, 2.0]], "memory": 3.0}


class Vocabulary:
    """A tokenizer of twenty words and a mark."""

    def __len__(self) -> int:
        return 21

    def convert_ids_to_tokens(self, index: int) -> str:
        return f"Ġ{'abcdefghijklmnopqrst'[index]}" if index < 20 else "<|mark|>"

    def decode(self, ids: list[int]) -> str:
        return "".join(map(str, ids))

    def encode(self, text: str, **_: bool) -> list[int]:
        return [int(text)]


def test_a_row_is_measured_once_and_again_where_it_was_missing_or_its_code_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[dict[str, Any]] = [{"missing": "no vLLM"}, LINE, {**LINE, "memory": 4.0}]
    orders: list[Mapping[str, Any]] = []

    def asked(order: Mapping[str, Any]) -> dict[str, Any]:
        orders.append(order)
        return answers[len(orders) - 1]

    def memory() -> float | None:
        line = inference.measured("hf", inference.NOTHING, tmp_path, inference.SMALL)
        return line.get("memory")

    monkeypatch.setattr(inference, "FOLDER", tmp_path / "kept")
    monkeypatch.setattr(inference, "asked", asked)
    assert [memory() for _ in range(4)] == [None, 3.0, 3.0, 3.0]
    with inference.kept().open("a") as file:
        file.write('{"key": "cut o')
    monkeypatch.setattr(inference, "code", lambda: "changed")
    assert [memory() for _ in range(3)] == [4.0, 4.0, 4.0]
    assert len(orders) == 3
    assert len(inference.read()) == 2


@pytest.mark.parametrize("forget", [False, True])
async def test_episodes_go_on_with_what_was_said_and_a_forgetful_one_begins_anew(forget: bool) -> None:
    words = rows.Words(Vocabulary())
    assert words.ids == list(range(20))
    asked: list[tuple[int, ...]] = []
    released: list[str] = []

    async def sample(request: Request) -> list[int]:
        asked.append(request.prompt_ids)
        return [7] * request.max_tokens

    async def release(name: str) -> None:
        released.append(name)

    play = rows.together(rows.Engine(sample, release), words, forget=forget)
    assert await play([5], True) == (1, rows.TURNS * rows.SAID)
    assert [len(ids) for ids in asked] == [rows.PROMPT + turn * (rows.SAID + rows.SEEN) for turn in range(rows.TURNS)]
    for before, after in pairwise(asked):
        said = (*before, *[7] * rows.SAID)
        assert after[1 : len(said)] == said[1:]
        assert (after[0] == before[0]) is not forget
    assert released == ["bench-5"] * (1 + forget * rows.TURNS)
    assert await play([6, 7], False) == (2, 2 * rows.ANSWER)
    assert len(set(asked)) == len(asked), "no prompt comes twice"


def test_a_server_that_lacks_a_package_is_left_out_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "find_spec", lambda name: None if name == "fastapi" else object())
    with pytest.raises(SetupError, match="transformers serve needs fastapi: pip install"):
        serve.require()


def test_memory_is_of_all_that_was_started() -> None:
    command = "sleep 60 & echo $!; wait"
    with subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE, text=True, start_new_session=True) as shell:
        assert shell.stdout
        child = int(shell.stdout.readline())
        try:
            assert {shell.pid, child} <= set(rows.descendants(os.getpid()))
            assert 0 < rows.peak(child) < 1000
        finally:
            os.killpg(shell.pid, 9)
    assert rows.peak(shell.pid) == 0, "it has ended, and nobody waits for it any more"
