"""Gold play learnt beside own play, as PPO-ptx learns pretraining text beside it (InstructGPT, 2203.02155, equation 2).

    RUN/gold/ENV/segments.npz    gold play as token sequences of the run's own

What seldom succeeds seldom has an advantage: while another environment moves the weights that both share, nothing else
holds what the model could do there. Decided here: what an update draws depends on (seed, version) alone, so a resumed
run draws as an uninterrupted one; the log-likelihood is a mean over the tokens of the update.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from harness.core import digest, seed_of
from harness.errors import SetupError
from training import partway, sft, warmstart
from training.begin import begun_by, gold_play
from training.recipe import Recipe
from training.values import Gold, Sample, Segment

Plays = Mapping[str, Sequence[Segment]]
"""Environment -> token sequences."""


def play(recipe: Recipe, base: Path, folder: Path, say: Callable[[str], None]) -> Plays:
    """Return the gold play of a run, in tokens of the model that it began with; nothing where none is asked for.

    Raises:
        SetupError: an environment cannot be played here, its gold play fails, or too little of it is short enough.
        StorageError: the disk is full.
    """
    if recipe.ptx is None:
        return {}
    found = {gold.env: _segments(recipe, gold, base, folder / gold.env) for gold in recipe.rehearsed}
    for name, wanted in recipe.ptx.sequences.items():
        if (have := len(found[name])) < wanted:
            raise SetupError(
                f"gold play of {name} has {have} sequences of at most {recipe.begin.longest} tokens, fewer than "
                f"the {wanted} that an update learns (ptx.sequences): raise ptx.tasks or begin.longest"
            )
    say(f"gold play beside own play: {sum(map(len, found.values())):,} sequences")
    return found


def _segments(recipe: Recipe, gold: Gold, base: Path, work: Path) -> list[Segment]:
    """Return what a folder keeps of this very gold play; else it is made."""
    longest = recipe.begin.longest
    partway.begun(work, digest([begun_by(recipe), msgspec.to_builtins((gold, recipe.envs[gold.env]))]))
    return sft.kept_segments(work, lambda: sft.segments(base, gold_play(recipe, [gold]), longest))


def batch(recipe: Recipe, plays: Plays, version: int) -> list[Sample]:
    """Return what the update of a version learns beside own play."""
    if recipe.ptx is None:
        return []
    draw = random.Random(seed_of("ptx", recipe.seed, version))
    chosen = [each for name in sorted(plays) for each in draw.sample(plays[name], recipe.ptx.sequences[name])]
    draw.shuffle(chosen)  # mini-batches share them out in this order
    weight = recipe.ptx.coefficient / sum(segment.tokens for segment in chosen)
    return [warmstart.sample(segment, number, weight) for number, segment in enumerate(chosen)]
