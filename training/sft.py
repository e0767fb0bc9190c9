"""From gold play to a model: what `harness sft` does, and what a training run begins with.

Gold play is of the environments' own `train` splits, as many tasks of each as asked for. Nothing that a held-out split
has is learnt from. The result is a model like any other: `harness eval --model hf/FOLDER`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from harness import heldout
from harness.config import LocalOptions
from harness.core import EnvOptions, Trajectory
from harness.errors import SetupError, StorageError
from harness.models.local import load_tokenizer, stop_ids
from harness.models.render import Renderer
from harness.newmodel import gold_play, require_packages
from training import disk, learner, partway, warmstart, weights
from training.learner.options import LearnerOptions
from training.values import Gold, Segment
from training.warmstart import Progress, WarmStartOptions

BETAS = (0.9, 0.95)
"""Of the optimizer: a short memory, for a few hundred steps."""
LONGEST = 4096
"""Tokens of a sequence."""


def plays(wanted: Sequence[Gold], seed: int, work: Path | None = None) -> list[Trajectory]:
    """Return gold play of train tasks that is right and that no held-out split has.

    Args:
        wanted: what is played.
        seed: of the play.
        work: folder where plays are kept as they are made; what is there is not played again.

    Raises:
        SetupError: an environment cannot be played here, or its gold play fails.
    """
    found: list[Trajectory] = []
    for number, gold in enumerate(wanted):
        name, count, options = gold.env, gold.tasks, EnvOptions(settings=gold.settings)
        if work is None:
            played = asyncio.run(gold_play(name, count, seed, options))
        else:
            with partway.Plays(work / f"plays-{number}.jsonl") as kept:
                played = asyncio.run(gold_play(name, count, seed, options, known=kept.known, keep=kept.keep))
        right = [play for play in played if play.score.value == 1]
        if len(right) < len(played) / 2:
            raise SetupError(
                f"gold play of {name} is right on {len(right)} of {len(played)} tasks: it is not to be learnt"
            )
        held_out = heldout.digests(name, options)
        found += [play for play in right if play.digest not in held_out]
    warmstart.require_train(found, frozenset())
    return found


def segments(folder: Path, trajectories: Iterable[Trajectory], longest: int = LONGEST) -> list[Segment]:
    """Return play as token sequences of a model's own; those beyond `longest` tokens are left out."""
    tokenizer = load_tokenizer(folder)
    renderer = Renderer(tokenizer, stop_ids(folder, tokenizer), LocalOptions().template)
    made = [segment for play in trajectories for segment in warmstart.demonstration(renderer, play)]
    return [segment for segment in made if len(segment.ids) <= longest]


def kept_segments(work: Path, make: Callable[[], Sequence[Segment]]) -> list[Segment]:
    """Return token sequences to learn from: those that a folder keeps, or where there are none those that are made."""
    path = work / "segments.npz"
    if not path.is_file():
        made = make()
        part = path.with_suffix(".part")
        try:
            with part.open("wb") as file:
                np.savez(
                    file,
                    lengths=np.array([len(each.ids) for each in made], np.int64),
                    ids=_joined([each.ids for each in made], np.int32),
                    mask=_joined([each.mask for each in made], np.bool_),
                )
            disk.sync(part)
            part.rename(path)
        except OSError as error:
            raise StorageError(disk.refusal(path, error)) from error
    with np.load(path) as found:
        ends = found["lengths"].cumsum()  # what is behind the last is empty
        ids, masks = np.split(found["ids"], ends)[:-1], np.split(found["mask"], ends)[:-1]
    return [warmstart.segment(*each) for each in zip(ids, masks, strict=True)]


def _joined(arrays: Sequence[NDArray[Any]], kind: type) -> NDArray[Any]:
    return np.concatenate([np.empty(0, kind), *arrays]).astype(kind)


def run(
    source: Path,
    out: Path,
    trajectories: Sequence[Trajectory],
    options: WarmStartOptions,
    *,
    longest: int = LONGEST,
    device: str | None = None,
    say: Callable[[Progress], None] = lambda _: None,
) -> Progress:
    """Fine-tune the model in `source` on play and write it to `out`, which must not be there.

    Raises:
        SetupError: a package is missing, `out` is taken, or there is nothing to learn from.
        StorageError: the disk is full.
    """
    return learn(source, out, segments(source, trajectories, longest), options, device=device, say=say)


def require_free(out: Path) -> None:
    """Refuse to write a model where something is. SetupError."""
    if out.exists():
        raise SetupError(f"{out} is there already: give --out another folder")


def supervised(learning: LearnerOptions, options: WarmStartOptions) -> LearnerOptions:
    """Return a learner's options with the optimizer and the precision that supervised learning has."""
    return msgspec.structs.replace(learning, betas=BETAS, optimizer=options.optimizer, precision=options.precision)


def learn(
    source: Path,
    out: Path,
    sequences: Sequence[Segment],
    options: WarmStartOptions,
    *,
    device: str | None,
    say: Callable[[Progress], None] = lambda _: None,
    work: Path | None = None,
) -> Progress:
    """Do what `run` does, on token sequences.

    Args:
        source: folder of the model.
        out: where it is written to.
        sequences: what is learnt.
        options: how.
        device: as torch names it.
        say: is told of each step.
        work: where it is kept how far it has come; what is there is gone on from.
    """
    require_packages()
    require_free(out)
    wanted = LearnerOptions(lr=options.lr, device=device, seed=options.seed)
    made = learner.make("torch", source, supervised(wanted, options))

    def told(progress: Progress) -> None:
        say(progress)
        steps.keep(made.backend, progress)

    with partway.Steps(work) as steps:
        begun = steps.read(made.backend, Progress) or warmstart.START
        progress = warmstart.fit(made.backend, sequences, options, told, begun)
    weights.write_model(made.backend, source, out)
    return progress
