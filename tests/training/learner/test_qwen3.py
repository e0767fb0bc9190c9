"""The passes made here say what `transformers` says, token by token, and have its gradient."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.training import making
from training import packing
from training.learner import network, qwen3
from training.learner.network import Scorer
from training.learner.options import LearnerOptions, LoraOptions, own_passes
from training.packing import Rows
from training.values import Sample

ALL = making.samples(9)


def last_turn(sample: Sample) -> Sample:
    """Train on the last turn alone, so on few positions of a row."""
    return replace(sample, kept=sample.segment.mask & (sample.segment.turns == sample.segment.turns.max()))


def everything(sample: Sample) -> Sample:
    """Train on what is read as well."""
    places = np.arange(len(sample.segment.ids))
    return replace(sample, kept=places > 0, advantages=np.ones(len(places), np.float32))


def found(scorer: Scorer, rows: Rows) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the log-probabilities, and the gradient of a sum of them in which none weighs as much as another."""
    scorer.zero_grad()
    values = scorer(rows)
    (values * torch.linspace(-1, 1, len(values))).sum().backward()
    trained = ((name, each) for name, each in scorer.named_parameters() if each.requires_grad)
    return values.detach(), {name: each.grad.clone() for name, each in trained}


def assert_alike(folder: Path, rows: Rows, apart: float, **options: Any) -> None:
    """Compare the passes made here with those of a model whose passes are left to `transformers`."""
    given = LearnerOptions(device="cpu", **options)
    model = network.load(folder, given)
    assert own_passes(model.config.model_type, model.config.layer_types, model.device.type)
    values, gradient = found(Scorer(model, given), rows)
    expected, wanted = found(Scorer(model, given, own=False), rows)
    assert (values - expected).abs().max() <= apart
    assert gradient.keys() == wanted.keys()
    for name, each in wanted.items():
        assert (gradient[name] - each).norm() <= apart * max(1.0, float(each.norm())), name


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("trained", [last_turn, everything, lambda sample: sample])
def test_values_and_gradient_are_those_of_transformers(nano: Path, trained: Any, packed: bool) -> None:
    batch = packing.plan([trained(sample) for sample in ALL], 100_000, packed)
    assert len(batch) == 1
    assert_alike(nano, packing.rows(batch[0], packed), 2e-5)


def test_a_row_of_which_nothing_is_asked_gives_nothing(nano: Path) -> None:
    model = network.load(nano, LearnerOptions(device="cpu"))
    ids = torch.arange(1, 13).view(2, 6)
    asked = torch.tensor([[False] * 6, [False, True, False, False, True, False]])
    both = qwen3.hidden(model, ids, asked)
    alone = qwen3.hidden(model, ids[1:], asked[1:])
    assert both.shape == (2, 32)
    assert torch.allclose(both, alone, atol=1e-6)


def test_in_bfloat16_they_are_as_near_as_it_is_exact(nano: Path) -> None:
    (batch,) = packing.plan(ALL, 100_000, packed=False)
    assert_alike(nano, packing.rows(batch, packed=False), 0.15, precision="bfloat16")


def test_adapters_have_their_gradient(nano: Path) -> None:
    pytest.importorskip("peft", reason="needs peft: pip install -e '.[train]'")
    (batch,) = packing.plan(ALL, 100_000, packed=False)
    assert_alike(nano, packing.rows(batch, packed=False), 2e-5, lora=LoraOptions(rank=2))


def test_activations_that_are_computed_again_are_the_same(nano: Path) -> None:
    (batch,) = packing.plan(ALL, 100_000, packed=False)
    assert_alike(nano, packing.rows(batch, packed=False), 2e-5, checkpointing=True)
