"""Supervised fine-tuning: what is learnt is what a rollout would have sampled, and it is learnt."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="needs torch: pip install -e '.[local]'")
pytest.importorskip("transformers", reason="needs transformers: pip install -e '.[local]'")

from harness import newmodel
from harness.core import EnvOptions, Trajectory
from harness.errors import SetupError
from harness.models.local import load_tokenizer, stop_ids
from harness.models.render import Renderer
from training import sft, warmstart
from training.warmstart import Progress, WarmStartOptions


@pytest.fixture(scope="module")
def plays() -> list[Trajectory]:
    return asyncio.run(newmodel.gold_play("db", tasks=24, seed=0, options=EnvOptions()))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, plays: list[Trajectory]) -> Path:
    folder = tmp_path_factory.mktemp("models") / "nano"
    newmodel.make(folder, newmodel.SHAPES["nano"], plays, seed=0)
    return folder


def test_a_demonstration_is_the_dialogue_token_by_token(model: Path, plays: list[Trajectory]) -> None:
    tokenizer = load_tokenizer(model)
    renderer = Renderer(tokenizer, stop_ids(model, tokenizer))
    for play in plays:
        (segment,) = warmstart.demonstration(renderer, play)
        whole = renderer.text(play.history[: 2 * len(play.turns) + 1], play.tools, open_turn=False)
        learnt = tokenizer.decode(segment.ids[segment.mask])
        for turn in play.turns:
            for call in turn.reply.message.tool_calls:
                assert f'"name": "{call.name}"' in learnt
        assert learnt.count("<|im_end|>") == len(play.turns)
        assert whole.startswith(tokenizer.decode(segment.ids)[:200])
        assert not segment.mask[0] and segment.mask[-1]


def test_play_of_other_splits_is_refused(plays: list[Trajectory]) -> None:
    warmstart.require_train(plays, frozenset())
    with pytest.raises(SetupError, match="of split 'test'"):
        warmstart.require_train([msgspec.structs.replace(plays[0], split="test")], frozenset())
    with pytest.raises(SetupError, match="also in a held-out split"):
        warmstart.require_train(plays, {plays[3].digest})


def test_what_is_learnt_is_learnt_and_is_a_model_like_any_other(
    model: Path, plays: list[Trajectory], tmp_path: Path
) -> None:
    said: list[Progress] = []
    out = tmp_path / "learnt"
    options = WarmStartOptions(lr=5e-3, epochs=4, sequences=8, warmup=2)
    done = sft.run(model, out, plays, options, say=said.append)
    assert done.step == 12 and done.share == 1.0
    assert said[-1].loss < 0.8 * said[0].loss
    assert {"config.json", "model.safetensors", "tokenizer.json", "probe.json"} <= {path.name for path in out.iterdir()}
    with pytest.raises(SetupError, match="is there already"):
        sft.run(model, out, plays, options)
    again = tmp_path / "again"
    sft.run(model, again, plays, options)
    assert (again / "model.safetensors").read_bytes() == (out / "model.safetensors").read_bytes()


def test_nothing_to_learn_from_is_said(model: Path, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="nothing to learn from"):
        sft.run(model, tmp_path / "out", [], WarmStartOptions())
    assert not (tmp_path / "out").exists()


def test_the_rate_rises_and_falls() -> None:
    options = WarmStartOptions(lr=1.0, warmup=9)
    rates = [warmstart.rate(options, step, step / 100) for step in range(1, 101)]
    assert rates[0] == pytest.approx(0.1, abs=0.01) and max(rates) > 0.95
    assert rates[-1] == pytest.approx(0.1) and rates[20:] == sorted(rates[20:], reverse=True)


@given(st.lists(st.integers(2, 900), min_size=1, max_size=400), st.integers(1, 9), st.integers(0, 9))
def test_an_epoch_has_each_segment_once_among_others_of_like_length(
    lengths: list[int], together: int, seed: int
) -> None:
    segments = [
        warmstart.segment(np.full(length, number), np.arange(length) > 0) for number, length in enumerate(lengths)
    ]
    options = WarmStartOptions(sequences=together, epochs=1, seed=seed)
    steps = list(warmstart.batches(segments, options))
    assert sorted(segment.ids[0] for step in steps for segment in step) == list(range(len(segments)))
    assert len(steps) == math.ceil(len(segments) / together)
    assert all(len(step) <= together for step in steps)


def test_steps_of_like_lengths_hardly_pad_and_do_not_go_by_length() -> None:
    lengths = np.random.default_rng(0).integers(100, 900, 4096)
    segments = [warmstart.segment(np.zeros(length, int), np.arange(length) > 0) for length in lengths]
    steps = list(warmstart.batches(segments, WarmStartOptions(sequences=4, epochs=2)))
    padded = sum(len(step) * max(len(each.ids) for each in step) for step in steps)
    assert padded < 1.03 * 2 * lengths.sum()
    means = np.array([np.mean([len(each.ids) for each in step]) for step in steps])
    assert abs(np.corrcoef(means[1:], means[:-1])[0, 1]) < 0.1
