"""The model that training begins with: from nothing or a folder, taught to copy, and warm-started on gold play.

    RUN/.base.begun/plays-N.jsonl    gold play as it is made, an entry of `Recipe.gold` each
    RUN/.base.begun/drawn/           a model of random weights, where it is to learn to copy
    RUN/.base.begun/copying/         how far that has come
    RUN/made/                        the model that was made
    RUN/.base.begun/segments.npz     gold play as token sequences of its own
    RUN/.base.begun/learnt/          how far the warm start has come
    RUN/base/                        what training begins with; `.base.begun` is gone then

Decided here: each part stands under a name of its own as soon as it is finished, whole, and is not made again.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from harness import heldout, newmodel
from harness.core import EnvOptions, Trajectory, digest
from harness.errors import SetupError
from training import copying, disk, partway, renaming, sft
from training.recipe import NOTE, Recipe, stored
from training.values import Gold

Say = Callable[[str], None]


def begin(recipe: Recipe, base: Path, say: Say) -> None:
    """Make the model that training begins with, where it is not there: from nothing or a folder, and warm-started.

    What was cut off goes on where it stood. In the main thread, Ctrl-C and SIGTERM raise KeyboardInterrupt.
    """
    work = partway.beside(base)
    with partway.signals(partway.at_once):
        if not base.is_dir():
            _begin(recipe, base, work, say)
        partway.done(work)


def _begin(recipe: Recipe, base: Path, work: Path, say: Say) -> None:
    """Make `base`. Whatever is finished on the way stands under a name of its own, and is not made again."""
    given, wanted = recipe.begin, recipe.begin.warm_start
    if given.model is None and given.shape not in newmodel.SHAPES:
        raise SetupError(f"begin.shape must be one of {', '.join(newmodel.SHAPES)}, not '{given.shape}'")
    made = base.with_name("made")
    if partway.begun(work, begun_by(recipe)):
        say("what was begun goes on where it stood")
    elif given.model is None:
        shutil.rmtree(made, ignore_errors=True)

    @functools.cache
    def plays() -> Sequence[Trajectory]:
        found = gold_play(recipe, recipe.gold, work)
        say(f"gold play of {len(found):,} train tasks")
        return renaming.renamed(found, given.renamed, recipe.seed)

    if given.model is None and not made.is_dir():
        _make(recipe, made, work, plays, say)
    source = Path(given.model).expanduser() if given.model else made
    if wanted is None:
        disk.copy(source, base)
        return
    sequences = sft.kept_segments(work, lambda: sft.segments(source, plays(), given.longest))
    say(f"warm start on {len(sequences):,} sequences of gold play")
    seeded = msgspec.structs.replace(wanted, seed=recipe.seed + wanted.seed)
    done = sft.learn(source, base, sequences, seeded, device=recipe.learner.device, work=work / "learnt")
    say(f"warm start: {done.tokens:,} tokens in {done.seconds:.0f} s, last loss {done.loss:.3f}")


def begun_by(recipe: Recipe) -> str:
    """Return the digest of what the model that training begins with is made from."""
    return digest(msgspec.to_builtins((recipe.gold, recipe.seed, recipe.begin)))


def own_base(recipe: Recipe, folder: Path) -> Path | None:
    """Return a run's own copy of what it began with; None where there is none, or this recipe begins with another."""
    base, note = folder / "base", folder / NOTE
    if not base.is_dir() or (note.exists() and begun_by(stored(folder, {})) != begun_by(recipe)):
        return None
    return base


def gold_play(recipe: Recipe, wanted: Sequence[Gold], work: Path | None = None) -> list[Trajectory]:
    """Return gold play of a recipe's environments, and of no task that a held-out split has.

    Held out is what is so under the settings of gold play, and under those that are trained with.
    """
    found = sft.plays(wanted, recipe.seed, work)
    others = {gold.env for gold in wanted if gold.settings != recipe.envs[gold.env]}
    held_out = {name: heldout.digests(name, EnvOptions(settings=recipe.envs[name])) for name in others}
    return [play for play in found if play.digest not in held_out.get(play.env, ())]


def _make(recipe: Recipe, made: Path, work: Path, plays: Callable[[], Sequence[Trajectory]], say: Say) -> None:
    """Make a model from nothing, which has learnt to copy where the recipe says so."""
    wanted = recipe.begin.copying
    drawn = made if wanted is None else work / "drawn"
    if not drawn.is_dir():
        newmodel.make(drawn, newmodel.SHAPES[recipe.begin.shape], plays(), recipe.seed)
    if wanted is not None:
        heads = newmodel.SHAPES[recipe.begin.shape].copies
        lessons = copying.FROM_HEADS if heads else copying.LESSONS
        seeded = msgspec.structs.replace(wanted, seed=recipe.seed + wanted.seed)
        learnt = copying.run(
            drawn, seeded, lessons, device=recipe.learner.device, say=say, out=made, work=work / "copying"
        )
        say(f"copying: {learnt.lessons} of {len(lessons)} lessons known after {learnt.seconds:.0f} s")
        if learnt.lessons < len(lessons):
            say(
                "warning: a model that has not learnt to copy hardly learns to play: give begin.copying.seconds more "
                f"than {wanted.seconds:g}, or begin again when the machine is idle"
            )
