"""The commands of `harness leaderboard`: show, add, build. Light to import."""

from __future__ import annotations

from pathlib import Path

import click

from leaderboards.bundles import FOLDER as BUNDLES

FORMATS = ("table", "markdown", "csv", "json")
bundles_option = click.option(
    "--bundles",
    type=click.Path(path_type=Path),
    default=BUNDLES,
    help=f"The folder of runs from elsewhere [default: {BUNDLES}/].",
)


@click.command("show")
@click.argument("board", default="mini")
@click.argument("runs", nargs=-1, type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", help="How to write it [default: table].")
@click.option("--by", default="overall", help="The column to rank by [default: overall].")
@click.option("--allow-different", is_flag=True, help="Show runs of different protocols together, and say so.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON on standard output.")
def show(board: str, runs: tuple[Path, ...], form: str, by: str, allow_different: bool, as_json: bool) -> None:
    """Show BOARD: its published rows, and the given RUN folders.

    Without a RUN, those in runs/ and bundles/ that share the protocol of the newest are shown. A table on a terminal
    goes to standard error; the other formats go to standard output.
    """
    import json

    from rich.console import Console

    from leaderboards import render
    from leaderboards.commands import board_of, build

    board, runs = board_of(board, runs)
    table = build(board, runs, by=by, allow_different=allow_different)
    if as_json or form == "json":
        click.echo(json.dumps(render.as_json(table)))
    elif form == "markdown":
        click.echo(render.as_markdown(table), nl=False)
    elif form == "csv":
        click.echo(render.as_csv(table), nl=False)
    else:
        console = Console(stderr=True)
        console.print(render.terminal(table, console.width))


@click.command("add", epilog="Example: harness leaderboard add their-run.tar.gz --set env.db.server=local")
@click.argument("bundle", type=click.Path(path_type=Path))
@bundles_option
@click.option("--data", help="Folder of fetched data sets [default: the user's cache].")
@click.option("--set", "overrides", multiple=True, metavar="env.NAME.KEY=VALUE", help="How this machine opens NAME.")
@click.option(
    "--tolerate",
    multiple=True,
    metavar="NAME",
    help="Let observations of this environment differ, and say so on the board; rewards may not.",
)
@click.option("--json", "as_json", is_flag=True, help="End with one line of JSON on standard output.")
def add(
    bundle: Path, bundles: Path, data: str | None, overrides: tuple[str, ...], tolerate: tuple[str, ...], as_json: bool
) -> None:
    """Check BUNDLE, and keep its run for the boards.

    Its files must be those of its manifest, its fingerprints those that this code computes, and every scored attempt is
    played again: the same observations and the same rewards must come out. Its row then says 're-graded, not attested'.
    """
    import json

    from harness.cli._options import per_environment
    from harness.config import parse_overrides
    from harness.errors import SetupError
    from leaderboards.add import add as take_in
    from leaderboards.submission import Settings

    chosen = per_environment(parse_overrides(overrides))
    if unknown := sorted(set(chosen) - {"env_settings"}):
        raise SetupError(f"--set takes env.NAME.KEY=VALUE here, not '{unknown[0]}': the protocol is the board's")
    settings = Settings(env_settings=chosen.get("env_settings", {}), data=data, tolerated=tolerate)
    folder, new = take_in(bundle, bundles, settings, say=lambda text: click.echo(text, err=True))
    click.echo(f"{folder}: re-graded, not attested" if new else f"{folder} has this bundle already", err=True)
    if as_json:
        click.echo(json.dumps({"run": str(folder), "new": new}))


@click.command("build")
@click.argument("runs", nargs=-1, type=click.Path(path_type=Path))
@click.option("--out", "-o", type=click.Path(path_type=Path), default=Path("site"), help="Folder [default: site/].")
@bundles_option
@click.option(
    "--trajectories", type=click.IntRange(0, 5000), default=100, help="In the report of a run [default: 100]."
)
@click.option("--allow-different", is_flag=True, help="Show runs of different protocols together, and say so.")
def build(runs: tuple[Path, ...], out: Path, bundles: Path, trajectories: int, allow_different: bool) -> None:
    """Build the boards as a static site: published rows, the given RUN folders, and runs from elsewhere.

    Without a RUN, those in runs/ are shown. Each row of a run links to its report. The same rows make the same bytes.
    """
    from leaderboards.site import build_site

    pages = build_site(out, runs, bundles, trajectories=trajectories, allow_different=allow_different)
    click.echo(f"{out / 'index.html'}: {len(pages)} files", err=True)
