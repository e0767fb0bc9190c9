"""`harness init-model`: a small chat model from nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click


@click.command("init-model")
@click.argument("shape", type=click.Choice(["nano", "tiny", "tiny-copying", "small"]), default="tiny")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder to make.")
@click.option("--env", "envs", multiple=True, help="Environments whose train text the tokenizer learns; all, if none.")
@click.option("--tasks", type=click.IntRange(min=1, max=10_000), default=200, show_default=True, help="Of each.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the weights.")
def command(shape: str, out: Path, envs: tuple[str, ...], tasks: int, seed: int) -> None:
    """Write a small Qwen3-shaped model with random weights, and a tokenizer trained on the environments' train splits.

    nano has 0.2, tiny 1 and small 6 million parameters; tiny-copying is tiny with two attention heads that copy.
    """
    from harness import newmodel, registry
    from harness.core import EnvOptions
    from harness.errors import SetupError

    newmodel.require_packages()
    plays = []
    for name in envs or registry.names("envs"):
        try:
            plays += asyncio.run(newmodel.gold_play(name, tasks, seed, EnvOptions()))
        except SetupError as error:
            if envs:
                raise
            click.echo(f"without {name}: {error}", err=True)
    made = newmodel.make(out, newmodel.SHAPES[shape], plays, seed)
    click.echo(
        f"{made.folder}: {made.parameters:,} parameters, {made.vocabulary:,} tokens learnt from gold play of "
        f"{made.tasks:,} train tasks; play it with: harness eval --model hf/{made.folder} --limit 2"
    )
