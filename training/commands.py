"""The commands that the trainer brings. Light to import: whatever is heavy is imported inside the command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console

    from training.recipe import Recipe
    from training.scoring import Result
    from training.warmstart import Progress


@click.command("sft")
@click.option("--model", required=True, help="Folder of the model to begin with (see harness init-model).")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder to write the model to.")
@click.option(
    "--env", "envs", multiple=True, required=True, help="Environment whose gold play is learnt; several times."
)
@click.option("--tasks", type=click.IntRange(min=1, max=1_000_000), default=500, show_default=True, help="Of each.")
@click.option("--lr", type=float, default=2e-3, show_default=True, help="Learning rate at its height.")
@click.option("--epochs", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--seconds", type=click.FloatRange(min=0, min_open=True), help="Stop after this long.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--device", help="As torch names it; a GPU where there is one, if none.")
@click.option("--set", "overrides", multiple=True, metavar="ENV.KEY=VALUE", help="A setting of an environment.")
def sft(
    model: str,
    out: Path,
    envs: tuple[str, ...],
    tasks: int,
    lr: float,
    epochs: int,
    seconds: float | None,
    seed: int,
    device: str | None,
    overrides: tuple[str, ...],
) -> None:
    """Fine-tune a model on gold play of train tasks; play the result with harness eval --model hf/OUT."""
    from harness.config import convert, parse_overrides
    from harness.core import digest
    from harness.errors import SetupError
    from harness.models.hf.engine import weights_digest
    from harness.models.local import model_folder
    from training import machine, partway
    from training import sft as room
    from training.values import Gold, Segment
    from training.warmstart import WarmStartOptions

    machine.spin()
    source = model_folder(model.removeprefix("hf/"), model)
    given = {"lr": lr, "epochs": epochs, "seconds": seconds, "seed": seed}
    options = convert(WarmStartOptions, given, "harness sft")
    settings, work = parse_overrides(overrides), partway.beside(out)
    if odd := sorted(settings.keys() - {*envs}):
        raise SetupError(f"--set {odd[0]}… is of no environment that is named: say --env {odd[0]}, or leave it out")

    def sequences() -> list[Segment]:
        played = room.plays([Gold(env=env, tasks=tasks, settings=settings.get(env, {})) for env in envs], seed, work)
        click.echo(f"{len(played):,} tasks of gold play", err=True)
        return room.segments(source, played)

    try:
        with partway.signals(partway.at_once):
            room.require_free(out)
            key = digest([weights_digest(source), given, envs, tasks, settings])
            with partway.held(work, key, f"another process makes {out}: wait for it, or give --out another") as begun:
                if begun:
                    click.echo("what was begun goes on where it stood", err=True)
                learnt = room.kept_segments(work, sequences)
                done = room.learn(source, out, learnt, options, device=device, say=_say, work=work / "learnt")
                partway.done(work)
    except KeyboardInterrupt:
        click.echo("interrupted; the same command goes on where it stood", err=True)
        raise
    click.echo(
        f"{out}: {done.tokens:,} tokens learnt in {done.step:,} steps and {done.seconds:.0f} s, last loss "
        f"{done.loss:.3f}; play it with: harness eval --model hf/{out}"
    )


@click.command("train")
@click.option("--recipe", "name", default="tiny", show_default=True, help="A name, or a TOML file.")
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the run.")
@click.option("--resume", type=click.Path(path_type=Path, exists=True, file_okay=False), help="Take this run up again.")
@click.option("--steps", type=click.IntRange(min=1), help="Updates, instead of the recipe's.")
@click.option("--seed", type=int, help="Instead of the recipe's.")
@click.option(
    "--dry-run", is_flag=True, help="Print the resolved recipe, the memory it takes and its tokens; train not."
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON on standard output.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="A value of the recipe.")
def train(
    name: str,
    out: Path | None,
    resume: Path | None,
    steps: int | None,
    seed: int | None,
    dry_run: bool,
    as_json: bool,
    overrides: tuple[str, ...],
) -> None:
    """Train a model on the environments' train splits by asynchronous cross-policy GRPO, and score it on the way."""
    import json
    from datetime import UTC, datetime

    import msgspec
    from rich.console import Console

    from harness.config import merge, parse_overrides
    from harness.errors import SetupError
    from training import machine
    from training import recipe as recipes

    machine.spin()
    flags = {key: value for key, value in (("steps", steps), ("seed", seed)) if value is not None}
    above = merge(flags, parse_overrides(overrides))
    recipe = recipes.load(name, above) if resume is None else recipes.stored(resume, above)
    if resume is not None and out is not None:
        raise SetupError("--resume goes on in its own folder: leave --out away")
    folder = resume or out or Path("runs") / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-train-{recipe.name}"
    from training import preflight

    if dry_run:
        _forecast(recipe, folder, resume=resume is not None, as_json=as_json)
        return
    preflight.check(recipe, folder, resume=resume is not None)
    results = _train(recipe, folder, Console(stderr=True), resume=resume is not None)
    if as_json:
        click.echo(json.dumps({"run": str(folder), "results": msgspec.to_builtins(results)}))
        return
    for result in results:
        click.echo(f"{result.what:<16} {result.score:.3f}  {result.folder}")
    if results:
        click.echo(f"compare them: harness compare {results[0].folder} {results[-1].folder}")


def _forecast(recipe: Recipe, folder: Path, *, resume: bool, as_json: bool) -> None:
    """Print what a run would be; refuse one that cannot be, after what is known of it was printed."""
    import json

    from training import budget, forecast, preflight
    from training.begin import own_base

    preflight.require_envs(recipe)
    size = budget.size_of(recipe, own_base(recipe, folder))
    parts = forecast.parts_of(recipe, size)
    known = (recipe, size, parts, folder, forecast.plays_of(recipe))
    click.echo(json.dumps(forecast.as_json(*known)) if as_json else forecast.text(*known))
    preflight.require_room(recipe, size, folder, resume=resume)


def _train(recipe: Recipe, folder: Path, console: Console, *, resume: bool) -> list[Result]:
    """Train in sight of a person. Ctrl-C or SIGTERM ends all that was started, and says how to go on."""
    import signal

    from training import partway, screen
    from training import recipe as recipes
    from training.process.parent import Lost
    from training.watch import Overdue

    try:
        with partway.signals(partway.at_once, signal.SIGTERM):
            from training.run import run

            with screen.shown(folder, recipe.name, recipe.steps, console) as say:
                return run(recipe, folder, say, resume=resume)
    except KeyboardInterrupt:
        begun = (folder / recipes.NOTE).is_file()
        go_on = f"go on with: harness train --resume {folder}" if begun else "nothing was begun yet"
        click.echo(f"interrupted; {go_on}", err=True)
        raise
    except (Lost, Overdue) as error:
        click.echo(f"harness: {error}; go on with: harness train --resume {folder}", err=True)
        raise SystemExit(3) from error


def _say(progress: Progress) -> None:
    if progress.step % 20 == 0:
        click.echo(
            f"{100 * progress.share:3.0f} %  step {progress.step:,}  loss {progress.loss:.3f}  "
            f"{progress.tokens / max(progress.seconds, 1e-9):,.0f} tokens/s",
            err=True,
        )
