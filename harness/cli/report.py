"""`harness report`: runs as one file to read, mail or print."""

from __future__ import annotations

from pathlib import Path

import click

FORMATS = ("html", "markdown", "csv", "json", "svg", "png")


@click.command("report", epilog="Example: harness report runs/one runs/two --out report.html")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out", "-o", type=click.Path(path_type=Path), help="The file, or the folder of plots [default: report.*]."
)
@click.option("--format", "form", type=click.Choice(FORMATS), help="[default: what --out ends in, else html]")
@click.option("--trajectories", type=click.IntRange(0, 5000), default=30, help="Attempts shown in full [default: 30].")
@click.option("--seed", type=int, default=0, help="Of the sample among them [default: 0].")
@click.option("--allow-different", is_flag=True, help="Compare across fingerprints, and say so.")
def command(
    runs: tuple[Path, ...], out: Path | None, form: str | None, trajectories: int, seed: int, allow_different: bool
) -> None:
    """Write one report of RUNS: tables, plots, how the runs differ, and chosen attempts.

    The HTML page holds all it needs and fetches nothing. Formats svg and png write the plots into a folder.
    """
    from harness.cli._report import write

    write(runs, out, form, trajectories=trajectories, seed=seed, allow_different=allow_different)
