"""The most memory that updates of a small learner take: `python -m tests.training.peaks SHAPE MICRO_TOKENS LENGTH...`.

Prints the bytes beyond what the learner takes before them, and what `training.budget` says of that.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import torch
from transformers import Qwen3ForCausalLM

from harness import newmodel
from training import budget, learner, machine, warmstart
from training.learner.options import LearnerOptions
from training.recipe import Recipe
from training.values import Sample

UPDATES = 3
SHARE = 0.2
"""Of the tokens are trained on."""


def samples(lengths: Sequence[int], vocabulary: int, draw: np.random.Generator) -> list[Sample]:
    """Return attempts of random tokens."""
    found = []
    for number, length in enumerate(lengths):
        mask = (draw.random(length) < SHARE) & (np.arange(length) > 0)
        segment = warmstart.segment(draw.integers(0, vocabulary, length), mask)
        advantages = mask.astype(np.float32) * (-1) ** number
        found.append(
            Sample(segment=segment, env="e", group_id=number, attempt=0, advantages=advantages, kept=mask,
                   coefficient=1e-3)
        )  # fmt: skip
    return found


def main() -> None:
    """Measure."""
    shape, micro_tokens, *lengths = sys.argv[1], *map(int, sys.argv[2:])
    torch.set_num_threads(1)
    recipe = msgspec.convert({"name": "peak", "envs": {}, "steps": 1, "begin": {"shape": shape}}, Recipe)
    size = budget.size_of(recipe)
    options = LearnerOptions(minibatches=1, micro_tokens=micro_tokens, device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        Qwen3ForCausalLM(newmodel.configuration(newmodel.SHAPES[shape])).save_pretrained(folder)
        made = learner.make("torch", Path(folder), options)
    draw = np.random.default_rng(0)
    made.update(samples([16, 16], size.vocabulary, draw), 0)  # libraries, gradients and optimizer are there now
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here on
    before = machine.peak_bytes() or 0
    for version in range(UPDATES):
        made.update(samples(draw.permutation(lengths).tolist(), size.vocabulary, draw), version + 1)
    taken = (machine.peak_bytes() or 0) - before
    said = [part for part in budget.memory(msgspec.structs.replace(recipe, learner=options, groups=1,
            engine=msgspec.structs.replace(recipe.engine, context=max(lengths))), size, "cpu")
            if part.what == "learner: activations"]  # fmt: skip
    print(json.dumps({"taken": taken, "least": said[0].least, "most": said[0].most}))


if __name__ == "__main__":
    main()
