"""One loss and the same weights on one rank and on two, by plain torch and by DeepSpeed. Real processes over gloo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1000)]

ROOT = Path(__file__).resolve().parents[3]
SECONDS = 900
"""DeepSpeed compiles an extension at its first start."""


def train(folder: Path, model: Path, backend: str, ranks: int, **options: Any) -> tuple[list[Any], dict[str, Any]]:
    """Train in so many processes; return the metrics of each update and the weights."""
    folder.mkdir()
    arguments = [sys.executable, "-m", "tests.training.learner.rank", backend, model, folder / "store", folder / "out"]
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    logs = [(folder / f"rank{rank}.log").open("wb") for rank in range(ranks)]
    started = [
        subprocess.Popen(
            [*map(str, arguments), str(rank), str(ranks), json.dumps(options)],
            cwd=ROOT, env=environment, stdout=logs[rank], stderr=subprocess.STDOUT,
        )
        for rank in range(ranks)
    ]  # fmt: skip
    try:
        codes = [process.wait(SECONDS) for process in started]
    finally:
        for process, log in zip(started, logs, strict=True):
            process.kill()
            process.wait()
            log.close()
    said = [(folder / f"rank{rank}.log").read_text()[-3000:] for rank, code in enumerate(codes) if code]
    assert codes == [0] * ranks, "\n".join(said)
    metrics = json.loads((folder / "out" / "metrics.json").read_text())
    return metrics, torch.load(folder / "out" / "weights.pt", weights_only=True)


@pytest.fixture(scope="module")
def alone(nano: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Any], dict[str, Any]]:
    return train(tmp_path_factory.mktemp("ranks") / "alone", nano, "torch", 1)


def assert_same(found: tuple[list[Any], dict[str, Any]], expected: tuple[list[Any], dict[str, Any]]) -> None:
    for one, other in zip(found[0], expected[0], strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-6)
        assert one["ptx/loss"] == pytest.approx(other["ptx/loss"], rel=1e-6)
        assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-5)
        assert one["tokens/trained"] == other["tokens/trained"]
        assert one["task/db/loss_share"] == pytest.approx(other["task/db/loss_share"], rel=1e-5)
    assert found[1].keys() == expected[1].keys()
    for name, each in found[1].items():
        assert torch.allclose(each, expected[1][name], rtol=0, atol=1e-5), name
    # What was saved and loaded took the same third step.
    assert found[0][3]["loss"] == pytest.approx(found[0][2]["loss"], rel=1e-6)


needs_deepspeed = pytest.mark.skipif(find_spec("deepspeed") is None, reason="needs deepspeed: pip install deepspeed")
needs_peft = pytest.mark.skipif(find_spec("peft") is None, reason="needs peft: pip install peft")
LORA = {"rank": 4, "alpha": 8.0}


def test_torch_on_two_ranks_is_torch_on_one(nano: Path, alone: Any, tmp_path: Path) -> None:
    assert_same(train(tmp_path / "two", nano, "torch", 2), alone)


def test_packed_rows_held_to_the_beginning_are_the_same_on_two_ranks(nano: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"packed": True, "loss": {"kl": 0.1, "objective": "gspo", "veto": [0.05, 20.0]}}
    alone = train(tmp_path / "alone", nano, "torch", 1, **options)
    assert_same(train(tmp_path / "two", nano, "torch", 2, **options), alone)


@needs_deepspeed
@pytest.mark.parametrize("stage", [2, 3])
@pytest.mark.parametrize("ranks", [1, 2])
def test_deepspeed_is_torch_on_one_rank(nano: Path, alone: Any, tmp_path: Path, stage: int, ranks: int) -> None:
    assert_same(train(tmp_path / "ds", nano, "deepspeed", ranks, zero_stage=stage), alone)


@needs_peft
@needs_deepspeed
def test_adapters_under_deepspeed_are_adapters_under_torch(nano: Path, tmp_path: Path) -> None:
    spread = train(tmp_path / "spread", nano, "deepspeed", 2, zero_stage=3, lora=LORA)
    assert_same(spread, train(tmp_path / "alone", nano, "torch", 1, lora=LORA))


@needs_peft
def test_adapters_on_two_ranks_begin_alike(nano: Path, tmp_path: Path) -> None:
    assert_same(
        train(tmp_path / "two", nano, "torch", 2, lora=LORA), train(tmp_path / "alone", nano, "torch", 1, lora=LORA)
    )
