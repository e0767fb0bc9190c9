"""From gold play to a model: what `harness sft` does, and what a training run begins with.

Gold play is of the environments' own `train` splits, as many tasks of each as asked for. Nothing that a held-out split
has is learnt from. The result is a model like any other: `harness eval --model hf/FOLDER`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from harness import heldout
from harness.config import LocalOptions
from harness.core import EnvOptions, Json, Trajectory
from harness.errors import SetupError
from harness.models.local import load_tokenizer, stop_ids
from harness.models.render import Renderer
from harness.newmodel import gold_play, require_packages
from training import learner, warmstart, weights
from training.learner.options import LearnerOptions
from training.values import Segment
from training.warmstart import Progress, WarmStartOptions

BETAS = (0.9, 0.95)
"""Of the optimizer: a short memory, for a few hundred steps."""


def plays(names: Iterable[str], tasks: int, seed: int, settings: Mapping[str, Mapping[str, Json]]) -> list[Trajectory]:
    """Return gold play of train tasks that is right and that no held-out split has.

    Raises:
        SetupError: an environment cannot be played here, or its gold play fails.
    """
    found: list[Trajectory] = []
    for name in names:
        options = EnvOptions(settings=settings.get(name, {}))
        played = asyncio.run(gold_play(name, tasks, seed, options))
        right = [play for play in played if play.score.value == 1]
        if len(right) < len(played) / 2:
            raise SetupError(
                f"gold play of {name} is right on {len(right)} of {len(played)} tasks: it is not to be learnt"
            )
        held_out = heldout.digests(name, options)
        found += [play for play in right if play.digest not in held_out]
    warmstart.require_train(found, frozenset())
    return found


def segments(folder: Path, trajectories: Sequence[Trajectory], longest: int) -> list[Segment]:
    """Return play as token sequences of a model's own; those beyond `longest` tokens are left out."""
    tokenizer = load_tokenizer(folder)
    renderer = Renderer(tokenizer, stop_ids(folder, tokenizer), LocalOptions().template)
    made = [segment for play in trajectories for segment in warmstart.demonstration(renderer, play)]
    return [segment for segment in made if len(segment.ids) <= longest]


def run(
    source: Path,
    out: Path,
    trajectories: Sequence[Trajectory],
    options: WarmStartOptions,
    *,
    longest: int = 4096,
    device: str | None = None,
    say: Callable[[Progress], None] = lambda _: None,
) -> Progress:
    """Fine-tune the model in `source` on play and write it to `out`, which must not be there.

    Raises:
        SetupError: a package is missing, `out` is taken, or there is nothing to learn from.
        StorageError: the disk is full.
    """
    require_packages()
    if out.exists():
        raise SetupError(f"{out} is there already: give --out another folder")
    sequences = segments(source, trajectories, longest)
    wanted = LearnerOptions(lr=options.lr, betas=BETAS, device=device, seed=options.seed, precision=options.precision)
    made = learner.make("torch", source, wanted)
    progress = warmstart.fit(made.backend, sequences, options, say)
    weights.write_model(made.backend, source, out)
    return progress
